/*
 * Choosing, executing and tuning plans with a fake cuDNN: its engines only take time on the
 * emulated GPU, or fail in every possible way. Nothing of NVIDIA's is loaded. No descriptor may be
 * left at the end.
 */
#include "trainer/device/cuda/cudnn/cudnn_engines.h"

#include "tests/gpu/emulation/queue.h"
#include "tests/test.h"
#include "trainer/device/device.h"

#include <stdatomic.h>
#include <time.h>

#define WORKSPACE 1000 /* available bytes */

/* The heuristics' results, in order. */
static const struct engine {
	unsigned ms;
	int64_t workspace;
	bool refuses, fails, varies; /* has no plan; fails when executed; is not deterministic */
	bool compiled;
} engines[] = {
	{.ms = 12},
	{.refuses = true},
	{.ms = 1, .workspace = WORKSPACE + 1},
	{.fails = true},
	{.ms = 1, .varies = true},
	{.ms = 5, .workspace = WORKSPACE},
	{.ms = 25},
	{.ms = 20, .compiled = true},
	{.ms = 20, .compiled = true},
};

#define ENGINES               (sizeof(engines) / sizeof(engines[0]))
#define LAST                  (ENGINES - 1)
#define FASTEST_DETERMINISTIC 5
#define FASTEST               4

/*
 * A descriptor. For an engine, a config, a plan or a knob it has the engine's index; for pointers,
 * their count and ids.
 */
struct fake {
	cudnnBackendDescriptorType_t type;
	bool finished;
	size_t engine;
	int64_t count;
	int64_t ids[CONV_OPERANDS];
	void *pointers[CONV_OPERANDS];
	void *workspace;
};

static unsigned descriptors, executed[ENGINES];
static size_t breaking = ENGINES;             /* engine whose execution breaks the GPU */
static const struct conv_arguments *expected; /* passed to executions */

static cudnnStatus_t fake_create(cudnnBackendDescriptorType_t type, descriptor *ret_descriptor)
{
	struct fake *made = calloc(1, sizeof(*made));

	assert_non_null(made);
	made->type = type;
	descriptors++;
	*ret_descriptor = made;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_destroy(descriptor of)
{
	free(of);
	descriptors--;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_set(descriptor of, cudnnBackendAttributeName_t name,
			      cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	struct fake *fake = of;

	assert_false(fake->finished);
	switch (name) {
	case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG:
		fake->engine = (*(struct fake *const *)values)->engine;
		break;
	case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS:
		fake->count = count;
		memcpy(fake->ids, values, (size_t)count * sizeof(int64_t));
		break;
	case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS:
		assert_int_equal(count, fake->count);
		memcpy(fake->pointers, values, (size_t)count * sizeof(void *));
		break;
	case CUDNN_ATTR_VARIANT_PACK_WORKSPACE:
		memcpy(&fake->workspace, values, sizeof(void *));
		break;
	default:
		break;
	}
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_finalize(descriptor of)
{
	struct fake *fake = of;

	fake->finished = true;
	if (fake->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && engines[fake->engine].refuses)
		return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_get(descriptor of, cudnnBackendAttributeName_t name,
			      cudnnBackendAttributeType_t type, int64_t capacity,
			      int64_t *ret_count, void *ret_values)
{
	const struct fake *fake = of;
	struct fake *const *others = ret_values;
	int64_t count = 1;

	switch (name) {
	case CUDNN_ATTR_ENGINEHEUR_RESULTS:
		/* every mode returns all engines */
		count = ENGINES;
		assert_true(capacity >= count);
		for (size_t i = 0; i < ENGINES; i++)
			others[i]->engine = i;
		break;
	case CUDNN_ATTR_ENGINECFG_ENGINE:
	case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
		others[0]->engine = fake->engine;
		break;
	case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
	case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
		*(int64_t *)ret_values = (int64_t)fake->engine;
		break;
	case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
		*(cudnnBackendKnobType_t *)ret_values = CUDNN_KNOB_TYPE_TILEK;
		break;
	case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
		count = engines[fake->engine].varies;
		*(cudnnBackendNumericalNote_t *)ret_values = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
		break;
	case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
		count = engines[fake->engine].compiled;
		*(cudnnBackendBehaviorNote_t *)ret_values = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
		break;
	case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
		*(int64_t *)ret_values = engines[fake->engine].workspace;
		break;
	default:
		fail_msg("attribute %d is not expected", (int)name);
	}
	*ret_count = count;
	return CUDNN_STATUS_SUCCESS;
}

/* The only clock. Only engines take time, however busy the machine is. */
static atomic_ulong now_ms;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	unsigned long ms = atomic_load(&now_ms);

	*ret_time = (struct timespec){.tv_sec = (time_t)(ms / 1000),
				      .tv_nsec = (long)(ms % 1000 * 1000000)};
	return 0;
}

static void work(const void *arguments)
{
	size_t engine = *(const size_t *)arguments;

	executed[engine]++;
	atomic_fetch_add(&now_ms, engines[engine].ms);
}

static gpu_stream current;

static cudnnStatus_t fake_execute(cudnnHandle_t handle, descriptor plan, descriptor pack)
{
	const struct fake *fake = plan, *pointers = pack;

	assert_true(pointers->finished);
	assert_ptr_equal(pointers->workspace, expected->workspace);
	assert_int_equal(pointers->count, 3);
	for (int64_t i = 0; i < pointers->count; i++) {
		size_t offset = (size_t)pointers->ids[i] - 1;

		assert_true(offset == offsetof(struct conv_arguments, x) ||
			    offset == offsetof(struct conv_arguments, w) ||
			    offset == offsetof(struct conv_arguments, y));
		assert_memory_equal(&pointers->pointers[i], (const char *)expected + offset,
				    sizeof(void *));
	}
	if (engines[fake->engine].fails)
		return CUDNN_STATUS_EXECUTION_FAILED;
	if (fake->engine == breaking)
		emulation_break(true);
	assert_int_equal(emulation_queue(current, work, &fake->engine, sizeof(fake->engine)), 0);
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_stream(cudnnHandle_t handle, cudaStream_t stream)
{
	current = stream;
	return CUDNN_STATUS_SUCCESS;
}

static size_t fake_version(void)
{
	return 91900;
}

static const char *fake_words(cudnnStatus_t status)
{
	return "it would not";
}

static void fake_last_words(char *message, size_t size)
{
	snprintf(message, size, "said the engine");
}

struct fixture {
	struct cudnn_engines engines;
	struct conv_problem problem;
	struct conv_arguments arguments;
	gpu_stream stream;
	char path[64];
	_Alignas(CONV_ALIGNMENT) char bytes[3][CONV_ALIGNMENT];
};

static void open_fixture(struct fixture *f, bool deterministic)
{
	struct conv_problem *problem = &f->problem;
	char error[DEVICE_ERROR_MAX];

	memset(f, 0, sizeof(*f));
	memset(executed, 0, sizeof(executed));
	f->engines.library = (struct cudnn_library){
		.cudnnGetVersion = fake_version,
		.cudnnGetErrorString = fake_words,
		.cudnnGetLastErrorString = fake_last_words,
		.cudnnSetStream = fake_stream,
		.cudnnBackendCreateDescriptor = fake_create,
		.cudnnBackendDestroyDescriptor = fake_destroy,
		.cudnnBackendSetAttribute = fake_set,
		.cudnnBackendGetAttribute = fake_get,
		.cudnnBackendFinalize = fake_finalize,
		.cudnnBackendExecute = fake_execute,
	};
	f->engines.handle = (cudnnHandle_t)f->bytes; /* never dereferenced */
	f->engines.workspace_max = ENGINES_WORKSPACE_MAX;
	backend_init(&f->engines.device, &f->engines.library, "the GPU", f->engines.error);
	backend_new(&f->engines.device, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	snprintf(f->path, sizeof(f->path), "/tmp/loaderd-tune-%d", (int)getpid());
	unlink(f->path);
	assert_int_equal(plan_cache_init(&f->engines.tuned, f->path, "a GPU", error), 0);
	conv_problem_init(problem);
	problem->element = problem->gradient = CUDA_F16;
	problem->deterministic = deterministic;
	problem->n = problem->h = problem->w = problem->c = problem->k = 8;
	problem->p = problem->q = 8;
	problem->r = problem->s = problem->stride = 1;
	f->arguments =
		(struct conv_arguments){.x = f->bytes[0], .w = f->bytes[1], .y = f->bytes[2]};
	assert_int_equal(gpu_allocate(WORKSPACE, &f->arguments.workspace), 0);
	expected = &f->arguments;
	assert_int_equal(gpu_stream_new(&f->stream), 0);
}

static void close_fixture(struct fixture *f)
{
	gpu_free(f->arguments.workspace);
	gpu_stream_free(f->stream);
	plan_cache_deinit(&f->engines.tuned);
	backend_deinit(&f->engines.device);
	unlink(f->path);
	strcat(f->path, ".lock");
	unlink(f->path);
	assert_int_equal(descriptors, 0);
}

static void expect_engine(struct fixture *f, size_t engine, bool tuned)
{
	struct conv_plan_info info;
	struct conv_plan *plan;
	char name[64];

	assert_int_equal(cudnn_plan(&f->engines, &f->problem, &plan), 0);
	cudnn_plan_info(plan, &info);
	snprintf(name, sizeof(name), "cudnn %zu", engine);
	assert_string_equal(info.engine, name);
	assert_int_equal(info.workspace_bytes, engines[engine].workspace);
	assert_true(tuned ? info.tuned_ms >= (float)engines[engine].ms : info.tuned_ms == 0);
	executed[engine] = 0;
	assert_int_equal(cudnn_execute(&f->engines, plan, &f->arguments, f->stream), 0);
	assert_int_equal(gpu_stream_synchronize(f->stream), 0);
	assert_int_equal(executed[engine], 1);
	cudnn_plan_free(plan);
}

static void tune(bool deterministic, size_t fastest)
{
	struct plan_cache again;
	struct fixture f;
	char error[DEVICE_ERROR_MAX];

	open_fixture(&f, deterministic);
	expect_engine(&f, 0, false);
	executed[0] = 0;
	assert_int_equal(cudnn_tune(&f.engines, &f.problem, &f.arguments, WORKSPACE, f.stream), 0);
	for (size_t i = 0; i < ENGINES; i++) {
		bool runs = !engines[i].refuses && !engines[i].fails &&
			    engines[i].workspace <= WORKSPACE &&
			    !(deterministic && engines[i].varies) &&
			    i != LAST; /* one compiled engine is enough in addition to the others */

		assert_true(runs == (executed[i] > 0));
	}
	/* a hopeless engine is not timed to the end */
	assert_true(executed[6] < executed[fastest]);
	expect_engine(&f, fastest, true);
	/* known plans are not timed again */
	memset(executed, 0, sizeof(executed));
	assert_int_equal(cudnn_tune(&f.engines, &f.problem, &f.arguments, WORKSPACE, f.stream), 0);
	for (size_t i = 0; i < ENGINES; i++)
		assert_int_equal(executed[i], 0);
	/* nor in the next process */
	assert_int_equal(plan_cache_init(&again, f.path, "a GPU", error), 0);
	assert_non_null(plan_cache_find(&again, &f.problem, false));
	plan_cache_deinit(&again);
	/* like any plan, the tuned one must fit the available workspace */
	if (engines[fastest].workspace) {
		f.engines.workspace_max = WORKSPACE - 1;
		expect_engine(&f, 0, false);
	}
	close_fixture(&f);
}

TEST(tune)
{
	tune(false, FASTEST);
}

TEST(tune_deterministic)
{
	tune(true, FASTEST_DETERMINISTIC);
}

/*
 * Patterns that are faster unfused have no plan from then on, also in other processes, and are not
 * timed again.
 */
TEST(refused)
{
	struct plan_cache again;
	struct conv_plan *plan;
	struct fixture f;
	char error[DEVICE_ERROR_MAX];

	open_fixture(&f, false);
	assert_int_equal(cudnn_tune(&f.engines, &f.problem, &f.arguments, WORKSPACE, f.stream), 0);
	assert_int_equal(cudnn_refuse(&f.engines, &f.problem, 0.5f), 0);
	assert_int_equal(cudnn_plan(&f.engines, &f.problem, &plan), -ENOENT);
	assert_string_equal(
		f.engines.error,
		"forward 1x1/1 8>8 8x8 n8 f16: tuning found it faster when taken apart");
	memset(executed, 0, sizeof(executed));
	assert_int_equal(cudnn_tune(&f.engines, &f.problem, &f.arguments, WORKSPACE, f.stream), 0);
	for (size_t i = 0; i < ENGINES; i++)
		assert_int_equal(executed[i], 0);
	assert_int_equal(plan_cache_init(&again, f.path, "a GPU", error), 0);
	assert_string_equal(plan_cache_find(&again, &f.problem, false)->tag, PLAN_UNFUSED);
	plan_cache_deinit(&again);
	/* other shapes keep their plans */
	f.problem.k = 16;
	expect_engine(&f, 0, false);
	close_fixture(&f);
}

/*
 * If the GPU stops working after an engine configuration, the error names it and tuning ends,
 * whatever ran before.
 */
TEST(broken)
{
	struct fixture f;

	open_fixture(&f, false);
	breaking = 5;
	assert_int_equal(cudnn_tune(&f.engines, &f.problem, &f.arguments, WORKSPACE, f.stream),
			 -EIO);
	assert_non_null(strstr(f.engines.error, " 5:"));
	assert_non_null(strstr(f.engines.error, "an illegal memory access"));
	emulation_break(false);
	breaking = ENGINES;
	assert_int_equal(gpu_stream_synchronize(f.stream), 0);
	assert_true(executed[0] > 0 && executed[5] > 0 && executed[6] == 0);
	assert_null(plan_cache_find(&f.engines.tuned, &f.problem, false));
	close_fixture(&f);
}

/* If plans cannot be stored, tuning still serves this process and reports why they will be lost. */
TEST(unkept)
{
	struct fixture f;

	open_fixture(&f, false);
	/* in which no directories can be created */
	free(f.engines.tuned.path);
	f.engines.tuned.path = strdup("/proc/loaderd/plans");
	assert_string_equal(cudnn_cache_error(&f.engines), "");
	assert_int_equal(cudnn_tune(&f.engines, &f.problem, &f.arguments, WORKSPACE, f.stream), 0);
	expect_engine(&f, FASTEST, true);
	assert_non_null(
		strstr(cudnn_cache_error(&f.engines), "/proc/loaderd/plans cannot be written: "));
	close_fixture(&f);
}

/*
 * Another process's results are used without running anything; patterns that it did not unfuse have
 * a plan again.
 */
TEST(adopted)
{
	struct fixture f;
	char *bytes;
	size_t size;

	open_fixture(&f, false);
	struct conv_problem other = f.problem;
	other.k = 16;
	assert_int_equal(cudnn_tune(&f.engines, &f.problem, &f.arguments, WORKSPACE, f.stream), 0);
	assert_int_equal(cudnn_export_tuning(&f.engines, &bytes, &size), 0);
	plan_cache_deinit(&f.engines.tuned);
	assert_int_equal(plan_cache_init(&f.engines.tuned, "", "a GPU", f.engines.error), 0);
	expect_engine(&f, 0, false);
	assert_int_equal(cudnn_refuse(&f.engines, &other, 0.5f), 0);
	assert_int_equal(cudnn_import_tuning(&f.engines, bytes, size), 0);
	free(bytes);
	memset(executed, 0, sizeof(executed));
	assert_int_equal(cudnn_tune(&f.engines, &f.problem, &f.arguments, WORKSPACE, f.stream), 0);
	for (size_t i = 0; i < ENGINES; i++)
		assert_int_equal(executed[i], 0);
	expect_engine(&f, FASTEST, true);
	f.problem = other;
	expect_engine(&f, 0, false);
	close_fixture(&f);
}

/*
 * An error names the library, its version, the problem and the failed call, and includes cuDNN's
 * own message.
 */
TEST(words)
{
	struct fixture f;
	struct engine_configs *engine_configs;
	struct conv_plan *plan;

	open_fixture(&f, false);
	assert_int_equal(engine_configs_find(&f.engines, &f.problem, &engine_configs), 0);
	assert_int_equal(execution_plan_build(&f.engines, engine_configs, 1, &f.problem, &plan),
			 -ENOENT);
	assert_string_equal(f.engines.error,
			    "cuDNN 9.19.0, forward 1x1/1 8>8 8x8 n8 f16: plan: it would not: said "
			    "the engine");
	assert_int_equal(execution_plan_build(&f.engines, engine_configs, 3, &f.problem, &plan), 0);
	assert_int_equal(
		execution_plan_run(&f.engines, plan, engine_configs, &f.arguments, f.stream), -EIO);
	assert_non_null(strstr(f.engines.error, "cudnnBackendExecute"));
	cudnn_plan_free(plan);
	engine_configs_free(engine_configs);
	close_fixture(&f);
}
