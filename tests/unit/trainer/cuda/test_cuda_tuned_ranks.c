/*
 * Ranks that tune with different timings, each on a separate emulated GPU: ranks with the same kind
 * of GPU run the plans that one of them found, and if one rank fails, all fail. Run under mpirun.
 */
#include "tests/gpu/emulation/queue.h"
#include "tests/test.h"
#include "tests/unit/trainer/cuda/plan_times.h"
#include "tests/unit/trainer/device/test_device_reference.h"
#include "tests/unit/trainer/ranks_test.h"
#include "trainer/device/comm/comm.h"
#include "trainer/device/cuda/cuda.h"

#define SAMPLES  2 /* per rank */
#define SIDE     4
#define CHANNELS 8
#define CLASSES  10
#define STEPS    3
#define LOG_MAX  4096

/* ---- failing allocations, through the linker's wrapping ---- */

static long left = -1; /* allocations that still succeed; negative if none fails */

void *__real_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);

static bool fails(void)
{
	return left >= 0 && left-- == 0;
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

struct net {
	struct device *device;
	struct device_params *params;
	struct device_graph *graph;
	char error[DEVICE_ERROR_MAX]; /* from planning */
};

/* ---- two residual blocks; sums of synchronized norms come between those of gradients ---- */

static struct device_value *conv(struct net *net, const char *name, struct device_value *x,
				 uint32_t window, uint32_t stride, struct device_value *residual,
				 enum device_activation activation)
{
	static const char *const parts[] = {"weight", "gamma", "beta", "mean", "var"};
	struct device_param *p[5];
	struct device_norm norm;
	char full[32];

	for (unsigned i = 0; i < 5; i++) {
		snprintf(full, sizeof(full), "%s.%s", name, parts[i]);
		p[i] = i ? add_param(net->params, full, i < 3 ? DEVICE_VECTOR : DEVICE_BUFFER,
				     (struct device_shape){1, 1, 1, CHANNELS})
			 : add_param(net->params, full, DEVICE_CONV_WEIGHT,
				     (struct device_shape){CHANNELS, window, window,
							   device_value_shape(x).c});
	}
	norm = (struct device_norm){.gamma = p[1],
				    .beta = p[2],
				    .running_mean = p[3],
				    .running_var = p[4],
				    .epsilon = 1e-5f,
				    .momentum = 0.1f,
				    .synchronized = true};
	return device_conv(net->graph, x,
			   &(struct device_conv_spec){.name = name,
						      .weight = p[0],
						      .norm = &norm,
						      .stride = stride,
						      .pad = window / 2,
						      .residual = residual,
						      .activation = activation});
}

static void record_net(struct net *net)
{
	struct device_input_spec input = {
		.name = "input", .shape = {SAMPLES, SIDE, SIDE, 3}, .std = {1, 1, 1}};

	struct device_value *x =
		conv(net, "stem", device_input(net->graph, &input), 3, 1, NULL, DEVICE_RELU);
	struct device_value *y = conv(net, "a1", x, 3, 1, NULL, DEVICE_RELU);
	struct device_value *shortcut = conv(net, "a0", x, 1, 1, NULL, DEVICE_RELU);
	x = conv(net, "a2", y, 3, 1, shortcut, DEVICE_RELU);
	y = conv(net, "b1", x, 3, 2, NULL, DEVICE_RELU);
	shortcut = conv(net, "b0", x, 1, 2, NULL, DEVICE_IDENTITY);
	x = conv(net, "b2", y, 3, 1, shortcut, DEVICE_RELU);
	x = device_linear(
		net->graph, device_global_average_pool(net->graph, "pool", x),
		&(struct device_linear_spec){
			.name = "fc",
			.weight = add_param(net->params, "fc.weight", DEVICE_LINEAR_WEIGHT,
					    (struct device_shape){CLASSES, 1, 1, CHANNELS})});
	device_loss(net->graph, x, &(struct device_loss_spec){.name = "loss"});
}

static void fill(struct net *net)
{
	for (size_t i = 0; i < device_params_count(net->params); i++) {
		struct device_param *param = device_params_at(net->params, i);
		size_t count = device_param_elements(param);
		float *values = malloc(count * sizeof(*values));

		for (size_t k = 0; k < count; k++)
			values[k] = (float)uniform(i, k) - 0.3f;
		assert_int_equal(device_param_write(param, DEVICE_VALUE, values), 0);
		free(values);
	}
}

/* Too little for the workspace that tuning asks for. */
#define MEMORY (16 << 20)

/*
 * Leaves the device open. Planning failed if net->error is not empty. `memory`: bytes available for
 * planning.
 */
static void open_with(struct net *net, struct comm *ranks, bool autotune, uint64_t memory)
{
	struct device_options options = {.precision = DEVICE_FP16,
					 .fusion = DEVICE_FUSION_C,
					 .comm = ranks,
					 .autotune = autotune};
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	const struct device_graph_options training = {.mode = DEVICE_TRAIN};

	memset(net, 0, sizeof(*net));
	if (device_open("cuda-emulated", &options, &net->device, net->error) < 0)
		fail_msg("%s", net->error);
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	assert_int_equal(device_graph_new(net->params, &training, &net->graph), 0);
	record_net(net);
	assert_int_equal(device_params_allocate(net->params, &optimizer), 0);
	fill(net);
	emulation_limit_memory(memory);
	device_graph_plan(net->graph, net->error);
	emulation_limit_memory(0);
}

static void open_net(struct net *net, struct comm *ranks, bool autotune)
{
	open_with(net, ranks, autotune, MEMORY);
}

static void close_net(struct net *net)
{
	device_graph_free(net->graph);
	device_params_free(net->params);
	device_close(net->device);
}

static const char *is_unfused(const struct net *net)
{
	struct device_graph_info info;

	device_graph_info(net->graph, &info);
	return info.fallback_log;
}

/* ---- what plans take ---- */

/* For a rank that must not tune. */
static double must_not_tune(const struct conv_problem *problem)
{
	return -1;
}

/* ---- comparing ranks ---- */

/* Returns true if all ranks of [first, last] have this text, which must be shorter than LOG_MAX. */
static bool all_logged(const char *text, unsigned first, unsigned last)
{
	char mine[LOG_MAX] = "", *all = malloc(comm->world * sizeof(mine));
	bool same = true;

	assert_true(strlen(text) < sizeof(mine));
	strcpy(mine, text);
	assert_int_equal(comm_gather(comm, mine, sizeof(mine), all), 0);
	for (unsigned rank = first; rank <= last; rank++)
		same = same && strcmp(all + rank * sizeof(mine), all + first * sizeof(mine)) == 0;
	free(all);
	return same;
}

/*
 * Runs some steps. Weights are then equal bit for bit on all ranks, which shows that the ranks'
 * sums matched.
 */
static void step_together(struct net *net)
{
	static float images[SAMPLES * SIDE * SIDE * 3];
	int32_t labels[SAMPLES];
	struct device_batch batch = {.images = images,
				     .labels = labels,
				     .count = SAMPLES,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_F32};
	struct device_params_state scale = {.loss_scale = 128};
	const struct device_hyper hyper = {.lr = {0.01f, 0.01f}, .grad_scale = 1};
	struct device_results results;
	uint64_t ticket, id;

	assert_int_equal(device_params_set_state(net->params, &scale), 0);
	for (uint32_t t = 0; t < STEPS; t++) {
		for (size_t i = 0; i < sizeof(images) / sizeof(*images); i++)
			images[i] = (float)uniform(100 * t + comm->rank, i);
		for (uint32_t i = 0; i < SAMPLES; i++)
			labels[i] = (int32_t)((t + i * 3 + comm->rank) % CLASSES);
		assert_int_equal(device_upload(net->graph, &batch, &ticket), 0);
		if (device_step(net->graph, &hyper, &id) < 0)
			fail_msg("%s", device_error(net->device));
		assert_int_equal(device_results(net->graph, id, true, &results), 0);
		assert_true(results.updated);
		assert_int_equal(results.samples, SAMPLES * comm->world);
	}
	for (size_t i = 0; i < device_params_count(net->params); i++) {
		struct device_param *param = device_params_at(net->params, i);
		size_t size = device_param_elements(param) * sizeof(float);
		float *mine = malloc(size), *all = malloc(size * comm->world);

		assert_int_equal(device_param_read(param, DEVICE_VALUE, mine), 0);
		assert_int_equal(comm_gather(comm, mine, size, all), 0);
		for (unsigned rank = 0; rank < comm->world; rank++)
			assert_memory_equal((char *)all + rank * size, mine, size);
		free(mine);
		free(all);
	}
}

static const char *const patterns[] = {" statistics;", " scale-bias-relu;", " relu-norm;",
				       " relu-norm-add-shortcut;", " add;"};

static void expect_unfused(const struct net *net)
{
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (!strstr(is_unfused(net), patterns[i]))
			fail_msg("not taken apart:%s\n%s", patterns[i], is_unfused(net));
}

static void expect_planned(const struct net *net)
{
	if (*net->error)
		fail_msg("%s", net->error);
}

static void forget_tuning(void)
{
	emulation_time_plans(NULL);
	emulation_set_kind(NULL);
}

/* ---- one kind of GPU ---- */

TEST(fused_on_first)
{
	struct net net;

	emulation_time_plans(comm->rank ? fused_is_slow : fused_is_fast);
	open_net(&net, comm, true);
	expect_planned(&net);
	assert_string_equal(is_unfused(&net), "");
	step_together(&net);
	close_net(&net);
	forget_tuning();
}

TEST(unfused_on_first)
{
	struct net net;

	emulation_time_plans(comm->rank ? fused_is_fast : fused_is_slow);
	open_net(&net, comm, true);
	expect_planned(&net);
	expect_unfused(&net);
	assert_true(all_logged(is_unfused(&net), 0, comm->world - 1));
	step_together(&net);
	close_net(&net);
	forget_tuning();
}

TEST(others_wait)
{
	struct net net;

	emulation_time_plans(comm->rank ? must_not_tune : fused_is_slow);
	open_net(&net, comm, true);
	expect_planned(&net);
	expect_unfused(&net);
	close_net(&net);
	forget_tuning();
}

/*
 * Ranks that tuned separately before: the first rank's results apply, also if nothing is tuned now.
 */
TEST(earlier_findings)
{
	for (unsigned knows = 0; knows < 2; knows++) {
		struct net alone, net;

		emulation_time_plans(comm->rank == knows ? fused_is_slow : fused_is_fast);
		open_net(&alone, NULL, true);
		expect_planned(&alone);
		close_net(&alone);
		open_net(&net, comm, false);
		expect_planned(&net);
		if (knows == 0)
			expect_unfused(&net);
		else
			assert_string_equal(is_unfused(&net), "");
		close_net(&net);
		forget_tuning();
	}
}

/* ---- two kinds ---- */

/*
 * The first rank has one kind of GPU, the others another kind, for which the second rank tunes.
 * Each kind has a separate program, and all ranks step together.
 */
TEST(two_kinds)
{
	struct net net;

	emulation_set_kind(comm->rank ? "another kind" : NULL);
	emulation_time_plans(comm->rank == 0   ? fused_is_fast
			     : comm->rank == 1 ? fused_is_slow
					       : must_not_tune);
	open_net(&net, comm, true);
	expect_planned(&net);
	if (comm->rank)
		expect_unfused(&net);
	else
		assert_string_equal(is_unfused(&net), "");
	assert_true(all_logged(is_unfused(&net), 1, comm->world - 1));
	step_together(&net);
	close_net(&net);
	forget_tuning();
}

/* ---- failures ---- */

/* All ranks report the same error, which names this rank. */
static void expect_failure(const char *error, unsigned rank, const char *words)
{
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "rank %u: ", rank);
	if (strncmp(error, prefix, strlen(prefix)) != 0 || !strstr(error, words))
		fail_msg("not of rank %u, or without \"%s\": %s", rank, words, error);
	assert_true(all_logged(error, 0, comm->world - 1));
}

/*
 * The first rank takes the machine's last GPU, or an index that does not exist; in that case fewer
 * ranks would not help.
 */
TEST(gpu_lacks)
{
	struct device_options options = {.comm = comm, .index = 3};
	char error[DEVICE_ERROR_MAX];
	struct device *device;

	assert_int_equal(device_open("cuda-emulated", &options, &device, error), -ENODEV);
	expect_failure(error, 1, "it takes the GPU of index 4: ");
	options.index = 4;
	assert_int_equal(device_open("cuda-emulated", &options, &device, error), -ENODEV);
	expect_failure(error, 0, "none of index 4");
	assert_null(strstr(error, "no more ranks than there are GPUs"));
}

TEST(tuning_fails)
{
	for (unsigned failing = 0; failing < 2; failing++) {
		struct net net;

		emulation_set_kind(comm->rank ? "another kind" : NULL);
		emulation_time_plans(comm->rank == failing ? must_not_tune : fused_is_fast);
		open_net(&net, comm, true);
		expect_failure(net.error, failing, "stem: autotuning failed: ");
		close_net(&net);
		forget_tuning();
	}
}

/* Only the last rank runs out of memory, before tuning or without tuning. */
TEST(memory_lacks)
{
	unsigned last = comm->world - 1;

	for (int autotune = 0; autotune < 2; autotune++) {
		struct net net;

		emulation_time_plans(fused_is_fast);
		open_with(&net, comm, autotune, comm->rank == last ? 1 : MEMORY);
		expect_failure(net.error, last, "use a smaller batch");
		close_net(&net);
		forget_tuning();
	}
}

static int ranks_meet(struct cuda_exec *exec)
{
	return cuda_ranks_meet(exec->device, 0, exec->error);
}

static int agree(struct cuda_exec *exec)
{
	return cuda_ranks_agree(exec->graph, 0, exec->error);
}

/*
 * Whichever allocation of the agreement fails on the last rank, the other ranks learn of it, and no
 * two ranks wait in different collectives.
 */
TEST(agreeing_without_memory)
{
	static int (*const parts[])(struct cuda_exec *) = {ranks_meet, agree, cuda_ranks_share,
							   cuda_ranks_compare};
	unsigned last = comm->world - 1, failures = 0;
	struct cuda_exec *exec;
	struct net net;

	open_net(&net, comm, false);
	expect_planned(&net);
	exec = net.graph->backend;
	exec->error = net.error;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		for (long at = 0; at < 4; at++) {
			*net.error = '\0';
			left = comm->rank == last ? at : -1;
			int r = parts[i](exec);
			left = -1;
			failures += r < 0;
			if (r < 0)
				expect_failure(net.error, last, "memory");
			else
				assert_true(all_logged("", 0, last));
		}
	}
	assert_true(failures > 0); /* for tuning results, whose number is not bounded */
	close_net(&net);
	forget_tuning();
}
