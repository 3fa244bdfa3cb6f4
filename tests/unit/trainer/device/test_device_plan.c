/*
 * The arena, buckets of gradients, the thread pool, and the errors of recording and of the
 * functions of device.h.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"
#include "trainer/device/arena.h"
#include "trainer/device/buckets.h"
#include "trainer/device/cpu/loops.h"
#include "trainer/device/cpu/thread_pool.h"

#include <stdatomic.h>

/* ---- arena ---- */

static bool ranges_overlap(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end)
{
	return a < b_end && b < a_end;
}

static bool is_live(const struct arena_block *block, uint32_t step)
{
	return (block->first <= step && step <= block->last) ||
	       (block->second_first && block->second_first <= step && step <= block->second_last);
}

static bool live_together(const struct arena_block *a, const struct arena_block *b, uint32_t steps)
{
	for (uint32_t step = 0; step < steps; step++)
		if (is_live(a, step) && is_live(b, step))
			return true;
	return false;
}

static void check_layout(const struct arena *arena, uint32_t steps)
{
	uint64_t peak = 0;

	for (uint32_t i = 0; i < arena->count; i++) {
		const struct arena_block *a = &arena->blocks[i];

		assert_int_equal(a->offset % ARENA_ALIGNMENT, 0);
		assert_true(a->offset + a->size <= arena->size);
		for (uint32_t j = 0; j < i; j++) {
			const struct arena_block *b = &arena->blocks[j];

			if (live_together(a, b, steps))
				assert_false(ranges_overlap(a->offset, a->offset + a->size,
							    b->offset, b->offset + b->size));
		}
	}
	for (uint32_t step = 0; step < steps; step++) {
		uint64_t live = 0;

		for (uint32_t i = 0; i < arena->count; i++)
			if (is_live(&arena->blocks[i], step))
				live += arena->blocks[i].size;
		peak = live > peak ? live : peak;
	}
	/* no layout can be smaller than the peak of live bytes; a good one is not much larger */
	assert_true(arena->size >= peak);
	assert_true(arena->size <= peak + peak / 2);
}

TEST(arena)
{
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct arena arena;
		uint32_t count = 1 + (uint32_t)(uniform(seed, 0) * 120), steps = 60, block;

		arena_init(&arena);
		for (uint32_t i = 0; i < count; i++) {
			uint32_t first = (uint32_t)(uniform(seed, 4 * i + 1) * steps);
			uint32_t last =
				first + (uint32_t)(uniform(seed, 4 * i + 2) * (steps - first));

			assert_int_equal(
				arena_add_block(&arena,
						(uint64_t)(uniform(seed, 4 * i + 3) * 100000), last,
						last, &block),
				0);
			arena_extend(&arena, block, first);
			if (seed % 2 && last + 2 < steps && i % 3 == 0) {
				arena_add_second(&arena, block, last + 2);
				arena_extend(&arena, block,
					     last + 2 +
						     (uint32_t)(uniform(seed + 300, i) *
								(steps - last - 2)));
			}
		}
		assert_int_equal(arena_layout(&arena), 0);
		check_layout(&arena, steps);
		arena_deinit(&arena);
	}
}

TEST(arena_chain)
{
	struct arena arena;
	uint32_t block;

	/* a chain of equal buffers, each read by the next, needs only two */
	arena_init(&arena);
	for (uint32_t i = 0; i < 50; i++)
		assert_int_equal(arena_add_block(&arena, 4096, i, i + 1, &block), 0);
	assert_int_equal(arena_layout(&arena), 0);
	assert_int_equal(arena.size, 8192);
	assert_int_equal(arena.unshared, 50 * 4096);
	arena_deinit(&arena);
	/* a block that is rewritten later frees its bytes in between, unless it is kept */
	for (int keeps = 0; keeps < 2; keeps++) {
		arena_init(&arena);
		assert_int_equal(arena_add_block(&arena, 4096, 0, 1, &block), 0);
		arena_add_second(&arena, block, 5);
		arena_extend(&arena, block, 6);
		arena_extend(&arena, block, 2);
		assert_int_equal(arena.blocks[block].last, 2);
		assert_int_equal(arena.blocks[block].second_last, 6);
		if (keeps)
			arena_keep(&arena, block);
		assert_int_equal(arena_add_block(&arena, 4096, 3, 4, &block), 0);
		assert_int_equal(arena_layout(&arena), 0);
		assert_int_equal(arena.size, keeps ? 8192 : 4096);
		arena_deinit(&arena);
	}
	arena_init(&arena);
	assert_int_equal(arena_layout(&arena), 0);
	assert_int_equal(arena.size, 0);
	arena_deinit(&arena);
}

/* ---- thread_pool and loops ---- */

struct counts {
	_Atomic uint32_t done[1000];
	unsigned threads;
	_Atomic bool wrong;
};

static void count_task(void *context, uint32_t task, unsigned thread)
{
	struct counts *counts = context;

	atomic_fetch_add(&counts->done[task], 1);
	if (thread >= counts->threads)
		counts->wrong = true;
}

TEST(pool)
{
	for (unsigned threads = 1; threads <= 5; threads++) {
		static const uint32_t tasks[] = {0, 1, 2, 7, 1000};
		struct thread_pool thread_pool;

		assert_int_equal(thread_pool_init(&thread_pool, threads, 1), 0);
		for (size_t i = 0; i < 5; i++) {
			struct counts *counts = calloc(1, sizeof(*counts));

			counts->threads = threads;
			thread_pool_enter(&thread_pool);
			thread_pool_run(&thread_pool, tasks[i], count_task, counts);
			thread_pool_leave(&thread_pool);
			for (uint32_t t = 0; t < 1000; t++)
				assert_int_equal(counts->done[t], t < tasks[i]);
			assert_false(counts->wrong);
			free(counts);
		}
	}
}

/*
 * Processes that share CPUs divide the CPUs equally, with at least one thread each, and do not pin
 * threads. An explicit number of threads is not divided.
 */
TEST(pool_sharers)
{
	struct thread_pool alone, thread_pool;

	assert_int_equal(thread_pool_init(&alone, 0, 1), 0);
	for (unsigned sharers = 2; sharers <= 1000; sharers *= 5) {
		unsigned part = alone.threads / sharers;

		assert_int_equal(thread_pool_init(&thread_pool, 0, sharers), 0);
		assert_int_equal(thread_pool.threads, part ? part : 1);
		assert_false(thread_pool.pin);
	}
	assert_int_equal(thread_pool_init(&thread_pool, 7, 3), 0);
	assert_int_equal(thread_pool.threads, 7);
}

/* A caller's children must inherit the original affinity. */
TEST(pool_affinity)
{
	struct thread_pool thread_pool;
	cpu_set_t before, after;

	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	assert_int_equal(thread_pool_init(&thread_pool, 0, 1), 0);
	for (int i = 0; i < 3; i++) {
		thread_pool_enter(&thread_pool);
		thread_pool_leave(&thread_pool);
	}
	assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
	assert_true(CPU_EQUAL(&before, &after));
}

/* Sums have the same bits for any number of threads, and are correct for every fold of channels. */
TEST(loops)
{
	static const uint32_t channels[] = {1, 3, 16, 100, 255, 256, 257, 511, 512, 513, 1030};
	static const size_t rows[] = {1, 2, 31, 1000};

	for (size_t i = 0; i < sizeof(channels) / sizeof(*channels); i++) {
		for (size_t j = 0; j < 4; j++) {
			size_t count = rows[j] * channels[i];
			double *sum[3], *square[3], *expected = calloc(channels[i], sizeof(double));
			float *x = malloc(count * sizeof(float));
			struct columns columns;

			loops_columns_init(&columns, channels[i]);
			float *shift = calloc(columns.width, sizeof(float));
			for (size_t k = 0; k < count; k++) {
				x[k] = (float)uniform(j, k);
				expected[k % channels[i]] += (double)x[k];
			}
			for (unsigned threads = 1; threads <= 3; threads++) {
				struct thread_pool thread_pool;
				struct loops loops = {.thread_pool = &thread_pool,
						      .kernels = kernels_of(cpu_isa_chosen())};

				assert_int_equal(thread_pool_init(&thread_pool, threads, 1), 0);
				assert_int_equal(loops_reserve(&loops, channels[i]), 0);
				sum[threads - 1] = calloc(channels[i], sizeof(double));
				square[threads - 1] = calloc(channels[i], sizeof(double));
				loops_statistics(&loops, &columns, rows[j], x, ELEMENT_F32, shift,
						 sum[threads - 1], square[threads - 1]);
				assert_memory_equal(sum[threads - 1], sum[0],
						    channels[i] * sizeof(double));
				assert_memory_equal(square[threads - 1], square[0],
						    channels[i] * sizeof(double));
				loops_deinit(&loops);
			}
			for (uint32_t c = 0; c < channels[i]; c++)
				assert_float_equal(sum[0][c], expected[c], 1e-4);
			for (unsigned t = 0; t < 3; t++) {
				free(sum[t]);
				free(square[t]);
			}
			free(expected);
			free(shift);
			free(x);
		}
	}
}

/* ---- refusals ---- */

struct refusal_case {
	struct device *device;
	struct device_params *params;
	struct device_param *weight, *gamma, *beta, *mean, *var, *linear;
};

static void open_seam(struct refusal_case *s)
{
	s->device = open_device(DEVICE_FP32, 1);
	assert_int_equal(device_params_new(s->device, &s->params), 0);
	s->weight = add_param(s->params, "weight", DEVICE_CONV_WEIGHT,
			      (struct device_shape){8, 3, 3, 3});
	s->gamma = add_param(s->params, "gamma", DEVICE_VECTOR, (struct device_shape){1, 1, 1, 8});
	s->beta = add_param(s->params, "beta", DEVICE_VECTOR, (struct device_shape){1, 1, 1, 8});
	s->mean = add_param(s->params, "mean", DEVICE_BUFFER, (struct device_shape){1, 1, 1, 8});
	s->var = add_param(s->params, "var", DEVICE_BUFFER, (struct device_shape){1, 1, 1, 8});
	s->linear = add_param(s->params, "linear", DEVICE_LINEAR_WEIGHT,
			      (struct device_shape){10, 1, 1, 8});
	assert_int_equal(device_params_allocate(
				 s->params, &(struct device_optimizer_spec){.kind = DEVICE_SGD}),
			 0);
}

static void close_seam(struct refusal_case *s)
{
	device_params_free(s->params);
	device_close(s->device);
}

static struct device_graph *begin(struct refusal_case *s, struct device_value **ret_input)
{
	struct device_input_spec input = {.name = "input", .shape = {2, 8, 8, 3}, .std = {1, 1, 1}};
	struct device_graph *graph;

	assert_int_equal(
		device_graph_new(s->params, &(struct device_graph_options){DEVICE_TRAIN}, &graph),
		0);
	*ret_input = device_input(graph, &input);
	assert_non_null(*ret_input);
	return graph;
}

static void expect_refusal(struct device_graph *graph, const char *word)
{
	char error[DEVICE_ERROR_MAX];

	assert_int_equal(device_graph_plan(graph, error), -EINVAL);
	if (!strstr(error, word))
		fail_msg("'%s' is not in: %s", word, error);
	device_graph_free(graph);
}

TEST(recording)
{
	struct refusal_case s;
	struct device_value *x;
	const char *text;

	open_seam(&s);
	struct device_norm norm = {s.gamma, s.beta, s.mean, s.var, 1e-5f, 0.1f};
	struct device_graph *graph = begin(&s, &x);
	assert_int_equal(device_graph_failure(graph, NULL), 0);
	assert_null(device_conv(
		graph, x,
		&(struct device_conv_spec){.name = "far", .weight = s.linear, .stride = 1}));
	/* only the first error is reported, not its consequences */
	assert_null(device_global_average_pool(graph, "team", NULL));
	assert_int_equal(device_graph_failure(graph, &text), -EINVAL);
	assert_non_null(strstr(text, "far: weight"));
	expect_refusal(graph, "far");
	graph = begin(&s, &x);
	struct device_value *y = device_conv(
		graph, x,
		&(struct device_conv_spec){
			.name = "c1", .weight = s.weight, .stride = 1, .pad = 1, .norm = &norm});
	assert_non_null(y);
	assert_int_equal(device_value_shape(y).c, 8);
	assert_null(device_conv(
		graph, y,
		&(struct device_conv_spec){.name = "c2", .weight = s.weight, .stride = 1}));
	expect_refusal(graph, "c2: weight has 3 input channels, its input 8");
	graph = begin(&s, &x);
	assert_null(device_conv(
		graph, x,
		&(struct device_conv_spec){.name = "c1", .weight = s.weight, .stride = 0}));
	expect_refusal(graph, "stride 0");
	graph = begin(&s, &x);
	struct device_norm wrong = norm;
	wrong.running_var = s.gamma;
	assert_null(device_conv(
		graph, x,
		&(struct device_conv_spec){
			.name = "c1", .weight = s.weight, .stride = 1, .norm = &wrong}));
	expect_refusal(graph, "running variance must be a buffer");
	graph = begin(&s, &x);
	assert_null(device_conv(graph, x,
				&(struct device_conv_spec){.name = "c1",
							   .weight = s.weight,
							   .stride = 1,
							   .norm = &norm,
							   .residual = x}));
	expect_refusal(graph, "residual is 2 x 8 x 8 x 3, the result 2 x 6 x 6 x 8");
	graph = begin(&s, &x);
	assert_null(device_norm(graph, "n", x, NULL, NULL, DEVICE_IDENTITY));
	expect_refusal(graph, "n: gamma is missing");
	graph = begin(&s, &x);
	assert_null(device_max_pool(graph, x, &(struct device_pool_spec){"p", 9, 1, 0}));
	expect_refusal(graph, "window of 9");
	graph = begin(&s, &x);
	assert_null(device_linear(graph, x,
				  &(struct device_linear_spec){.name = "fc", .weight = s.linear}));
	expect_refusal(graph, "fc: weight has 8 inputs");
	graph = begin(&s, &x);
	assert_null(device_attention(graph, x, &(struct device_attention_spec){"a", 2}));
	expect_refusal(graph, "attention of 2 heads takes 3 x 2 x D channels, its input has 3");
	graph = begin(&s, &x);
	assert_null(device_attention(graph, x, &(struct device_attention_spec){"a", 0}));
	expect_refusal(graph, "attention of 0 heads");
	graph = begin(&s, &x);
	assert_null(device_loss(graph, x, &(struct device_loss_spec){.name = "loss"}));
	expect_refusal(graph, "logits are 8 x 8 x 3");
	close_seam(&s);
}

TEST(calls)
{
	struct refusal_case s;
	struct device_value *x;
	struct device_param *p;
	uint8_t images[2 * 8 * 8 * 4] = {0};
	struct device_batch batch = {images, NULL, 2, 3, DEVICE_ELEMENT_U8, false};
	struct device_results results;
	uint64_t number = 77;
	float value;

	open_seam(&s);
	assert_int_equal(device_param_add(s.params,
					  &(struct device_param_spec){.name = "late",
								      .kind = DEVICE_VECTOR,
								      .shape = {1}},
					  &p),
			 -EBUSY);
	struct device_graph *graph = begin(&s, &x);
	x = device_conv(graph, x,
			&(struct device_conv_spec){.name = "c1", .weight = s.weight, .stride = 1});
	assert_int_equal(device_upload(graph, &batch, &number), -EINVAL); /* not planned */
	assert_int_equal(device_graph_plan(graph, NULL), 0);
	assert_int_equal(device_graph_plan(graph, NULL), -EBUSY);
	assert_int_equal(device_register_host(s.device, NULL, 1, true), -EINVAL);
	assert_int_equal(device_register_host(s.device, images, 0, true), -EINVAL);
	assert_non_null(strstr(device_error(s.device), "no memory"));
	assert_in_range(device_register_host(s.device, images, sizeof(images), true), 0,
			DEVICE_STAGED);
	assert_int_equal(device_step(graph, NULL, &number), -EINVAL); /* nothing uploaded */
	assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &number), -EINVAL);
	batch.count = 1;
	assert_int_equal(device_upload(graph, &batch, &number), -EINVAL);
	assert_non_null(strstr(device_error(s.device), "1 sample,"));
	batch.count = 2;
	batch.channels = 2;
	assert_int_equal(device_upload(graph, &batch, &number), -EINVAL);
	assert_int_equal(number, 77);
	batch.channels = 4;
	assert_int_equal(device_upload(graph, &batch, &number), 0);
	assert_int_equal(device_step(graph, NULL, &number), 0);
	assert_int_equal(number, 1);
	assert_int_equal(device_results(graph, 1, true, &results), 0);
	assert_int_equal(device_results(graph, 2, true, &results), -ERANGE);
	assert_int_equal(device_results(graph, 0, true, &results), -ERANGE);
	for (unsigned i = 0; i < DEVICE_RESULTS_MAX; i++) {
		assert_int_equal(device_upload(graph, &batch, &number), 0);
		assert_int_equal(device_step(graph, NULL, &number), 0);
	}
	assert_int_equal(device_results(graph, 1, true, &results), -ERANGE);
	assert_int_equal(device_results(graph, 2, true, &results), 0);
	assert_int_equal(results.step, 2);
	assert_int_equal(device_value_read(graph, x, DEVICE_STATE, &value), -ENOENT);
	device_unregister_host(s.device, images);
	device_unregister_host(s.device, images);
	device_unregister_host(s.device, NULL);
	device_graph_free(graph);
	close_seam(&s);
}

TEST(declaring)
{
	static const struct {
		struct device_param_spec spec;
		int result;
		const char *word;
	} cases[] = {
		{{.name = "", .kind = DEVICE_VECTOR, .shape = {1}}, -EINVAL, "name"},
		{{.name = "a", .kind = (enum device_param_kind)9, .shape = {1}}, -EINVAL, "kind 9"},
		{{.name = "a", .kind = DEVICE_CONV_WEIGHT, .shape = {1, 2, 0, 3}},
		 -EINVAL,
		 "dimension 2"},
		{{.name = "a", .kind = DEVICE_LINEAR_WEIGHT, .shape = {1, 2, 3}},
		 -EINVAL,
		 "dimension 2"},
		{{.name = "a", .kind = DEVICE_LINEAR_WEIGHT, .shape = {1u << 20, 1u << 20}},
		 -EINVAL,
		 "2^31"},
		{{.name = "a", .kind = DEVICE_VECTOR, .shape = {1}, .group = DEVICE_GROUPS_MAX},
		 -EINVAL,
		 "group"},
		{{.name = "a", .kind = DEVICE_VECTOR, .shape = {1}}, 0, NULL},
		{{.name = "a", .kind = DEVICE_VECTOR, .shape = {2}}, -EEXIST, "before"},
	};
	struct device *device = open_device(DEVICE_FP32, 1);
	struct device_params *params;
	struct device_param *p;

	assert_int_equal(device_params_new(device, &params), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(device_param_add(params, &cases[i].spec, &p), cases[i].result);
		if (cases[i].word)
			assert_non_null(strstr(device_error(device), cases[i].word));
	}
	device_params_free(params);
	device_close(device);
}

TEST(opening)
{
	struct device *device = NULL;
	char error[DEVICE_ERROR_MAX];

	assert_int_equal(device_open("abacus", NULL, &device, error), -ENODEV);
	assert_non_null(strstr(error, "'abacus' is not built in; this build has "));
	assert_non_null(strstr(error, "cpu"));
	assert_int_equal(device_open("cpu", &(struct device_options){.precision = DEVICE_FP16},
				     &device, error),
			 -ENOTSUP);
	assert_non_null(strstr(error, "fp16"));
	assert_int_equal(device_open("cpu", &(struct device_options){.index = 1}, &device, error),
			 -ENODEV);
	assert_null(device);
	assert_int_equal(device_open(NULL, NULL, &device, error), 0);
	assert_true(device_info(device)->precision != DEVICE_AUTO);
	device_close(device);
	assert_int_equal(device_open("cpu", NULL, &device, error), 0);
	assert_string_equal(error, "");
	assert_true(device_info(device)->threads > 0);
	device_close(device);
	device_close(NULL);
}

/* ---- buckets ---- */

/*
 * A chain of matrices: layer i is [widths[i + 1]][widths[i]], the second layer is frozen, and the
 * last one reuses the first one's matrix.
 */
struct chain {
	struct device_params *params;
	struct device_graph *graph;
	struct device_param *spare; /* unused by any operation */
};

static const uint32_t widths[] = {20, 20, 50, 50, 300, 4, 20};
enum { CHAIN = sizeof(widths) / sizeof(*widths) - 1 };

static struct device_param *chain_param(struct chain *chain, const char *name, uint32_t outputs,
					uint32_t inputs, bool frozen)
{
	struct device_param_spec spec = {.name = name,
					 .kind = DEVICE_LINEAR_WEIGHT,
					 .shape = {outputs, inputs},
					 .frozen = frozen};
	struct device_param *param;

	assert_int_equal(device_param_add(chain->params, &spec, &param), 0);
	return param;
}

static void chain_open(struct chain *chain, struct device *device)
{
	static const char *const names[] = {"w0", "w1", "w2", "w3", "w4", "w5"};
	struct device_input_spec input = {
		.name = "input", .shape = {2, 1, 1, widths[0]}, .std = {1, 1, 1, 1}};
	struct device_value *x;

	assert_int_equal(device_params_new(device, &chain->params), 0);
	assert_int_equal(device_graph_new(chain->params,
					  &(struct device_graph_options){DEVICE_TRAIN},
					  &chain->graph),
			 0);
	x = device_input(chain->graph, &input);
	for (unsigned i = 0; i < CHAIN; i++) {
		struct device_linear_spec spec = {.name = names[i]};

		spec.weight = chain_param(chain, names[i], widths[i + 1], widths[i], i == 1);
		x = device_linear(chain->graph, x, &spec);
	}
	chain->spare = chain_param(chain, "spare", 3, 5, false);
	x = device_linear(chain->graph, x,
			  &(struct device_linear_spec){
				  .name = "again", .weight = device_params_at(chain->params, 0)});
	device_loss(chain->graph, x, &(struct device_loss_spec){.name = "loss"});
	assert_int_equal(
		device_params_allocate(chain->params,
				       &(struct device_optimizer_spec){.kind = DEVICE_SGD}),
		0);
}

/*
 * Returns the bucket that holds the whole parameter, or NULL if none does. Asserts that no other
 * bucket overlaps it.
 */
static const struct bucket *bucket_of(const struct buckets *buckets,
				      const struct device_param *param)
{
	const struct bucket *found = NULL;

	for (uint32_t i = 0; i < buckets->count; i++) {
		const struct bucket *b = &buckets->items[i];

		if (!ranges_overlap(b->offset, b->offset + b->count, param->offset,
				    param->offset + param->elements))
			continue;
		assert_null(found);
		assert_true(b->offset <= param->offset &&
			    b->offset + b->count >= param->offset + param->elements);
		found = b;
	}
	return found;
}

TEST(buckets)
{
	static const size_t lengths[] = {100, 1000, 3000, 16000, 1000000};
	static const uint32_t counts[] = {5, 5, 4, 3, 1};
	struct device *device = open_device(DEVICE_FP32, 1);
	struct chain chain;

	chain_open(&chain, device);
	for (size_t k = 0; k < sizeof(lengths) / sizeof(*lengths); k++) {
		struct buckets buckets;

		assert_int_equal(buckets_plan(&buckets, chain.graph, lengths[k]), 0);
		assert_int_equal(buckets.count, counts[k]);
		for (uint32_t i = 1; i < buckets.count; i++)
			assert_true(buckets.items[i].node <= buckets.items[i - 1].node);
		for (size_t i = 0; i < device_params_count(chain.params); i++) {
			const struct device_param *param = device_params_at(chain.params, i);
			const struct bucket *bucket = bucket_of(&buckets, param);

			if (param->spec.frozen)
				continue;
			/*
			 * node 0 is the input and node i + 1 is layer i; of the layers that use the
			 * shared matrix, layer 0 is the last in backward
			 */
			assert_non_null(bucket);
			assert_true(param == chain.spare || bucket->node <= i + 1);
			assert_true(bucket->count <= lengths[k] ||
				    bucket->count == param->elements || lengths[k] < 1000);
		}
	}
	device_graph_free(chain.graph);
	device_params_free(chain.params);
	device_close(device);
}

/* However many parameters there are, all their sums can be in flight at once. */
TEST(many_buckets)
{
	struct device *device = open_device(DEVICE_FP32, 1);
	struct device_params *params;
	struct device_graph *graph;
	struct buckets buckets;

	assert_int_equal(device_params_new(device, &params), 0);
	for (unsigned i = 0; i < 1000; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%u", i);
		add_param(params, name, DEVICE_VECTOR,
			  (struct device_shape){1, 1, 1, i % 100 ? 3 : 5000});
	}
	assert_int_equal(
		device_params_allocate(params, &(struct device_optimizer_spec){.kind = DEVICE_SGD}),
		0);
	assert_int_equal(
		device_graph_new(params, &(struct device_graph_options){DEVICE_TRAIN}, &graph), 0);
	assert_int_equal(buckets_plan(&buckets, graph, 1), 0);
	assert_in_range(buckets.count, 10, BUCKETS_MAX);
	for (size_t i = 0; i < device_params_count(params); i++)
		assert_non_null(bucket_of(&buckets, device_params_at(params, i)));
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
}
