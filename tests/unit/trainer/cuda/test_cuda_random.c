/*
 * Random graphs in fp32 on the emulated GPU against the CPU backend: values, gradients of values,
 * inputs and parameters over micro-batches, weights after an update, and evaluation. Covers every
 * fusion level, with all plans and with some refused, with and without memory shared by lifetime.
 * GRAPHS, from meson.build, is the number of graphs per level; level C runs as many again with
 * refused plans.
 */
#include "tests/test.h"
#include "tests/unit/trainer/cuda/random_graph.h"
#include "tests/unit/trainer/cuda/random_plans.h"
#include "trainer/device/cuda/cuda.h"

#include <math.h>

/* A graph on a device. */
struct side {
	struct device *device;
	struct random_graph random;
};

static float uniform_at(uint64_t seed, uint64_t index)
{
	uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15 + index * 0xd1342543de82ef95;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return (float)(z >> 40) / (float)(1 << 23) - 1;
}

static void fill_params(struct side *side)
{
	for (size_t i = 0; i < device_params_count(side->random.params); i++) {
		struct device_param *param = device_params_at(side->random.params, i);
		const struct device_param_spec *spec = device_param_spec(param);
		size_t count = device_param_elements(param);
		float *values = malloc(count * sizeof(float));
		float scale = 0.3f, offset = spec->kind == DEVICE_BUFFER ? 1.5f : 0;

		if (spec->kind == DEVICE_CONV_WEIGHT)
			scale = 1.7f / sqrtf((float)(count / spec->shape[0]));
		else if (spec->kind == DEVICE_LINEAR_WEIGHT)
			scale = 1.7f / sqrtf((float)spec->shape[1]);
		else if (spec->kind == DEVICE_VECTOR)
			offset = 0.7f;
		for (size_t j = 0; j < count; j++)
			values[j] = offset + scale * uniform_at(i, j);
		assert_int_equal(device_param_write(param, DEVICE_VALUE, values), 0);
		free(values);
	}
}

static uint64_t refusal_seed;
static unsigned refusal_share; /* number of eighths of the patterns that have no plan */
static int (*all_plans)(void *state, const struct conv_problem *problem,
			struct conv_plan **ret_plan);

static int some_plans(void *state, const struct conv_problem *problem, struct conv_plan **ret_plan)
{
	if (random_plans_refuse(refusal_seed, refusal_share, problem))
		return -ENOENT;
	return all_plans(state, problem, ret_plan);
}

static void refuse_plans(struct device *device)
{
	struct cuda_device *cuda = (struct cuda_device *)device;

	all_plans = cuda->engines.conv.plan;
	cuda->engines.conv.plan = some_plans;
}

static void open_side(struct side *side, const char *backend, enum device_fusion fusion,
		      const struct random_graph_options *options)
{
	struct device_options device_options = {
		.precision = DEVICE_FP32, .threads = 1, .fusion = fusion};
	char error[DEVICE_ERROR_MAX] = "";

	if (device_open(backend, &device_options, &side->device, error))
		fail_msg("%s", error);
	if (strcmp(backend, "cpu") != 0)
		refuse_plans(side->device);
	random_graph_new(side->device, options, &side->random);
	if (device_graph_plan(side->random.graph, error))
		fail_msg("seed %llu on %s: %s", (unsigned long long)options->seed, backend, error);
	fill_params(side);
}

static void close_side(struct side *side)
{
	random_graph_free(&side->random);
	device_close(side->device);
}

static void give_gradients(struct side *side, uint64_t seed)
{
	const struct device_graph *graph = side->random.graph;

	for (uint32_t i = 0; i < graph->value_count; i++) {
		const struct device_value *value = graph->values[i];
		size_t count = device_shape_elements(value->shape);

		if (graph->loss || value->consumers || !value->needs_gradient)
			continue;
		float *values = malloc(count * sizeof(float));
		for (size_t j = 0; j < count; j++)
			values[j] = uniform_at(seed + 77, j);
		assert_int_equal(device_value_write(side->random.graph, value, DEVICE_GRAD, values),
				 0);
		free(values);
	}
}

static void feed(struct side *side, uint64_t seed)
{
	struct device_graph *graph = side->random.graph;
	struct device_shape shape = graph->input->y->shape;
	size_t count = device_shape_elements(shape);
	int32_t labels[8];
	float *images = malloc(count * sizeof(float));
	struct device_batch batch = {
		.images = images,
		.labels = labels,
		.count = shape.n,
		.channels = shape.c,
		.element = DEVICE_ELEMENT_F32,
		.draws = {.seed = seed, .step = seed + 1, .first = 2},
	};
	uint64_t ticket;

	for (size_t i = 0; i < count; i++)
		images[i] = uniform_at(seed, i);
	for (uint32_t i = 0; i < shape.n; i++)
		labels[i] = (int32_t)((seed + i) % 6) - 1;
	assert_int_equal(device_upload(graph, &batch, &ticket), 0);
	assert_int_equal(device_upload_done(graph, ticket, true), 0);
	free(images);
}

static void step(struct side *side, uint64_t seed, const struct device_hyper *hyper)
{
	struct device_graph *graph = side->random.graph;
	uint64_t number;
	int r;

	feed(side, seed);
	if (graph->options.mode == DEVICE_EVAL) {
		r = device_evaluate(graph, DEVICE_VALUE, &number);
	} else {
		give_gradients(side, seed);
		r = device_step(graph, hyper, &number);
	}
	if (r < 0)
		fail_msg("%s", device_error(side->device));
	assert_int_equal(device_synchronize(side->device), 0);
}

/* A tensor of both devices. Comparison starts when all tensors have been read. */
struct pair {
	float *gpu, *cpu; /* [count] */
	size_t count;
	const char *name;
};

struct pairs {
	struct pair list[512];
	size_t count;
};

static struct pair *add_pair(struct pairs *pairs, size_t count, const char *name)
{
	struct pair *pair = &pairs->list[pairs->count++];

	assert_true(pairs->count <= sizeof(pairs->list) / sizeof(pairs->list[0]));
	*pair = (struct pair){malloc(count * sizeof(float)), malloc(count * sizeof(float)), count,
			      name};
	return pair;
}

static double rms(const float *values, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (double)values[i] * (double)values[i];
	return sqrt(sum / (double)count);
}

/*
 * Compares by relative error of the norm. Tensors that almost cancel, such as gradients before a
 * norm, are measured against the largest of their kind in the graph. Frees the tensors.
 */
static void compare(struct pairs *pairs, const char *what, uint64_t seed)
{
	double largest = 0;

	for (size_t i = 0; i < pairs->count; i++)
		largest = fmax(largest, rms(pairs->list[i].cpu, pairs->list[i].count));
	for (size_t i = 0; i < pairs->count; i++) {
		struct pair *pair = &pairs->list[i];
		double size = rms(pair->cpu, pair->count);

		for (size_t j = 0; j < pair->count; j++)
			pair->gpu[j] -= pair->cpu[j];
		double error = rms(pair->gpu, pair->count);
		if (!(error <= 1e-3 * size + 2e-4 * largest))
			fail_msg("seed %llu: %s of %s: error %g of %g, the largest is %g",
				 (unsigned long long)seed, what, pair->name, error, size, largest);
		free(pair->gpu);
		free(pair->cpu);
	}
}

static void compare_params(struct side *gpu, struct side *cpu, enum device_slot slot,
			   const char *what, uint64_t seed)
{
	struct pairs pairs = {.count = 0};

	for (size_t i = 0; i < device_params_count(cpu->random.params); i++) {
		struct device_param *a = device_params_at(gpu->random.params, i);
		struct device_param *b = device_params_at(cpu->random.params, i);

		if (slot == DEVICE_GRAD && device_param_spec(b)->kind == DEVICE_BUFFER)
			continue;
		struct pair *pair =
			add_pair(&pairs, device_param_elements(b), device_param_spec(b)->name);
		assert_int_equal(device_param_read(a, slot, pair->gpu), 0);
		assert_int_equal(device_param_read(b, slot, pair->cpu), 0);
	}
	compare(&pairs, what, seed);
}

static void compare_values(struct side *gpu, struct side *cpu, enum device_slot slot,
			   const char *what, uint64_t seed)
{
	struct device_graph *a = gpu->random.graph, *b = cpu->random.graph;
	struct pairs pairs = {.count = 0};

	for (uint32_t i = 0; i < b->value_count; i++) {
		size_t count = device_shape_elements(b->values[i]->shape);
		struct pair *pair = add_pair(&pairs, count, b->values[i]->producer->name);
		bool logits = b->loss && b->loss->x == b->values[i];
		int on_gpu = device_value_read(a, a->values[i], slot, pair->gpu);
		int on_cpu = device_value_read(b, b->values[i], slot, pair->cpu);

		/* a GPU keeps the logits for device_logits() */
		if (!logits)
			assert_int_equal(on_gpu, on_cpu);
		if (on_cpu == 0 && on_gpu == 0)
			continue;
		assert_int_equal(on_cpu, -ENOENT);
		free(pair->gpu);
		free(pair->cpu);
		pairs.count--;
	}
	compare(&pairs, what, seed);
}

static void run(uint64_t seed, enum device_fusion fusion)
{
	static const struct device_hyper hyper = {
		.lr = {0.01f}, .momentum = 0.9f, .grad_scale = 0.5f};
	struct random_graph_options options = {
		.seed = seed,
		.mode = seed % 8 == 7 ? DEVICE_EVAL : DEVICE_TRAIN,
		.keep_all = seed % 3 == 0,
		.loss = seed % 2,
		.nodes = 1 + seed % 16,
		.samples = 3,
		.recompute = (uint32_t)(seed / 4 % 2),
	};
	bool training = options.mode == DEVICE_TRAIN;
	struct side gpu, cpu;

	open_side(&gpu, "cuda-emulated", fusion, &options);
	open_side(&cpu, "cpu", DEVICE_FUSION_AUTO, &options);
	/* two micro-batches, so that gradients are summed; the update follows */
	for (int i = 0; i < (training ? 2 : 1); i++) {
		step(&gpu, seed + (uint64_t)i, i ? &hyper : NULL);
		step(&cpu, seed + (uint64_t)i, i ? &hyper : NULL);
		compare_values(&gpu, &cpu, DEVICE_VALUE, "value", seed);
		if (!training)
			continue;
		compare_values(&gpu, &cpu, DEVICE_GRAD, "gradient", seed);
		if (i == 0)
			compare_params(&gpu, &cpu, DEVICE_GRAD, "gradient", seed);
	}
	compare_params(&gpu, &cpu, DEVICE_VALUE, "updated value", seed);
	close_side(&gpu);
	close_side(&cpu);
}

static unsigned
	recomputed; /* graphs for which recomputation adds backward FLOPs, counted per device */

/* Recomputation gives the same losses, running statistics and weights bit for bit. */
static void run_anew(uint64_t seed, const char *backend, enum device_fusion fusion)
{
	static const struct device_hyper hyper = {
		.lr = {0.01f}, .momentum = 0.9f, .grad_scale = 0.5f};
	struct random_graph_options options = {
		.seed = seed,
		.mode = DEVICE_TRAIN,
		.loss = seed % 2,
		.nodes = 4 + seed % 20,
		.samples = 3,
	};
	struct device_graph_info kept_info, anew_info;
	struct side kept, anew;

	open_side(&kept, backend, fusion, &options);
	options.recompute = 1 + (uint32_t)(seed / 2 % 2);
	open_side(&anew, backend, fusion, &options);
	for (uint64_t i = 0; i < 3; i++) {
		step(&kept, seed + i, i ? &hyper : NULL);
		step(&anew, seed + i, i ? &hyper : NULL);
	}
	for (size_t i = 0; i < device_params_count(kept.random.params); i++) {
		struct device_param *param = device_params_at(kept.random.params, i);
		size_t count = device_param_elements(param);
		float *values = malloc(2 * count * sizeof(float));

		assert_int_equal(device_param_read(param, DEVICE_VALUE, values), 0);
		assert_int_equal(device_param_read(device_params_at(anew.random.params, i),
						   DEVICE_VALUE, values + count),
				 0);
		if (memcmp(values, values + count, count * sizeof(float)) != 0)
			fail_msg("seed %llu on %s: %s differs", (unsigned long long)seed, backend,
				 device_param_spec(param)->name);
		free(values);
	}
	device_graph_info(kept.random.graph, &kept_info);
	device_graph_info(anew.random.graph, &anew_info);
	recomputed += anew_info.flops_backward > kept_info.flops_backward;
	close_side(&kept);
	close_side(&anew);
}

TEST(anew)
{
	recomputed = 0;
	for (uint64_t seed = 0; seed < GRAPHS; seed++) {
		run_anew(seed, "cpu", DEVICE_FUSION_AUTO);
		run_anew(seed, "cuda-emulated",
			 (enum device_fusion)(DEVICE_FUSION_NONE + seed % 3));
	}
	/*
	 * enough graphs have a product in a segment other than the last, so that it is recomputed
	 */
	assert_true(recomputed > GRAPHS);
}

TEST(none)
{
	for (uint64_t seed = 0; seed < GRAPHS; seed++)
		run(seed, DEVICE_FUSION_NONE);
}

TEST(b)
{
	for (uint64_t seed = 0; seed < GRAPHS; seed++)
		run(seed, DEVICE_FUSION_B);
}

TEST(c)
{
	for (uint64_t seed = 0; seed < GRAPHS; seed++)
		run(seed, DEVICE_FUSION_C);
}

TEST(some_plans)
{
	for (uint64_t seed = 0; seed < GRAPHS; seed++) {
		refusal_seed = seed;
		refusal_share = 2 + seed % 5;
		run(seed + GRAPHS, DEVICE_FUSION_C);
	}
	refusal_share = 0;
}
