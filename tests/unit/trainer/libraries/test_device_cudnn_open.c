/*
 * Opening cuDNN's engines: with missing libraries, with and without a device, with limits, and with
 * tuned plans. Skipped if the libraries are not installed. Nothing is executed.
 */
#include "tests/unit/trainer/libraries/cudnn_test.h"
#include "trainer/device/device.h"

#include <dlfcn.h>

TEST(workspace)
{
	struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	const struct layer layer = {56, 64, 64, 3, 1};
	struct conv_plan_info free_info, tight_info;
	struct engines engines;
	struct sweep sweep = {&engines, CUDA_F32, 64, true};
	struct conv_problem problem = problem_of(&sweep, &layer, CONV_FORWARD);
	struct conv_plan *plan;

	open_engines(&engines, &options);
	assert_int_equal(engines.conv.plan(engines.conv.state, &problem, &plan), 0);
	engines.conv.plan_info(plan, &free_info);
	engines.conv.plan_free(plan);
	engines_close(&engines);
	assert_true(free_info.workspace_bytes > 1 << 20);

	options.workspace_max = 1 << 20;
	open_engines(&engines, &options);
	assert_int_equal(engines.conv.plan(engines.conv.state, &problem, &plan), 0);
	engines.conv.plan_info(plan, &tight_info);
	engines.conv.plan_free(plan);
	engines_close(&engines);
	assert_true(tight_info.workspace_bytes <= 1 << 20);
	assert_string_not_equal(free_info.engine, tight_info.engine);
}

/* A tuned plan takes precedence over the heuristic's; layers of the same shape share it. */
TEST(tuned)
{
	char path[] = "/tmp/loaderd-tuned-XXXXXX", wanted[32];
	const struct engines_options options = {.properties = cudnn_properties, .plans = path};
	const struct layer layer = {56, 64, 64, 3, 1};
	struct engines engines;
	struct sweep sweep = {&engines, CUDA_F16, 256, false};
	struct conv_problem problem = problem_of(&sweep, &layer, CONV_WEIGHTS);
	struct engine_configs *engine_configs;
	struct conv_plan *plan, *again;
	size_t other = 0;

	close(mkstemp(path));
	unlink(path);
	open_engines(&engines, &options);
	struct cudnn_engines *cudnn = engines.conv.state;
	assert_int_equal(engines.conv.plan(engines.conv.state, &problem, &plan), 0);
	assert_true(plan->info.tuned_ms == 0);
	assert_int_equal(engine_configs_find(cudnn, &problem, &engine_configs), 0);
	while (other < engine_configs->count &&
	       engine_configs->list[other].engine == engine_configs->list[0].engine)
		other++;
	assert_true(other < engine_configs->count);
	snprintf(wanted, sizeof(wanted), "cudnn %lld",
		 (long long)engine_configs->list[other].engine);
	assert_int_equal(plan_cache_store(&cudnn->tuned, &problem, false,
					  engine_configs->list[other].tag, 0.5f),
			 0);
	engine_configs_free(engine_configs);
	/* in this process and in the next; the old plan is unchanged */
	assert_int_equal(engines.conv.plan(engines.conv.state, &problem, &again), 0);
	assert_ptr_not_equal(plan, again);
	assert_string_equal(again->info.engine, wanted);
	engines.conv.plan_free(again);
	engines.conv.plan_free(plan);
	engines_close(&engines);

	open_engines(&engines, &options);
	assert_int_equal(engines.conv.plan(engines.conv.state, &problem, &plan), 0);
	assert_string_equal(plan->info.engine, wanted);
	assert_true(plan->info.tuned_ms == 0.5f);
	assert_int_equal(engines.conv.plan(engines.conv.state, &problem, &again), 0);
	assert_ptr_equal(plan, again);
	engines.conv.plan_free(again);
	engines.conv.plan_free(plan);
	engines_close(&engines);
	unlink(path);
}

/* Without a device nothing is executed or tuned, and the errors report that. */
TEST(absent)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	const struct layer layer = {56, 64, 64, 3, 1};
	struct engines engines;
	struct sweep sweep = {&engines, CUDA_F16, 256, false};
	struct conv_problem problem = problem_of(&sweep, &layer, CONV_FORWARD);
	struct conv_arguments arguments = {0};
	struct conv_plan *plan;
	_Alignas(CONV_ALIGNMENT) char place;

	open_engines(&engines, &options);
	assert_null(engines.conv.tune);
	assert_int_equal(engines.conv.plan(engines.conv.state, &problem, &plan), 0);
	assert_int_equal(engines.conv.execute(engines.conv.state, plan, &arguments, NULL), -EINVAL);
	arguments.x = arguments.w = arguments.y = arguments.workspace = &place;
	assert_int_equal(engines.conv.execute(engines.conv.state, plan, &arguments, NULL), -ENODEV);
	assert_non_null(strstr(engines.conv.error(engines.conv.state), "device"));
	engines.conv.plan_free(plan);
	problem.p = 1;
	assert_int_equal(engines.conv.plan(engines.conv.state, &problem, &plan), -EINVAL);
	engines_close(&engines);
}

/*
 * A cuDNN with a device: HANDLE belongs to the GPU with these properties. Graph and plan get the
 * handle and no device properties.
 */
#define HANDLE ((cudnnHandle_t)0x1000)

static struct {
	struct cudnn_engines *engines;
	struct cudnn_library real;
	unsigned graphs, plans;
} device;

static cudnnStatus_t tell_properties(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name)
{
	return device.real.cudnnBackendSetAttribute(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
						    &device.engines->device.descriptors[0]);
}

static cudnnStatus_t set_with_device(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
				     cudnnBackendAttributeType_t type, int64_t count,
				     const void *values)
{
	assert_int_not_equal(name, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
	assert_int_not_equal(name, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
	if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
		assert_int_equal(tell_properties(of, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP), 0);
	if (type != CUDNN_TYPE_HANDLE)
		return device.real.cudnnBackendSetAttribute(of, name, type, count, values);
	assert_ptr_equal(*(const cudnnHandle_t *)values, HANDLE);
	assert_int_equal(count, 1);
	if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) {
		device.graphs++;
		return CUDNN_STATUS_SUCCESS;
	}
	assert_int_equal(name, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
	device.plans++;
	return tell_properties(of, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
}

TEST(present)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	const struct layer layer = {56, 64, 64, 3, 1};
	struct engines engines;
	struct sweep sweep = {&engines, CUDA_F16, 256, false};
	struct conv_problem problem = problem_of(&sweep, &layer, CONV_FORWARD);

	open_engines(&engines, &options);
	device.engines = engines.conv.state;
	device.real = device.engines->library;
	device.engines->library.cudnnBackendSetAttribute = set_with_device;
	device.engines->handle = HANDLE;
	expect_plan(&sweep, &problem);
	assert_int_equal(device.graphs, 1);
	assert_int_equal(device.plans, 1);
	device.engines->handle = NULL;
	engines_close(&engines);
}

TEST(bad_properties)
{
	static const struct {
		const char *text, *said;
	} bad[] = {
		{"{", "JSON"},
		{"{\"deviceVer\": 900}", "deviceName"},
		{"{\"deviceName\": \"H200\"}", "deviceVer"},
		{"{\"deviceName\": \"H200\", \"deviceVer\": 900}", "device properties"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct engines_options options = {.properties = bad[i].text, .plans = ""};
		char error[DEVICE_ERROR_MAX];
		struct engines engines;

		assert_int_equal(engines_open(&options, &engines, error), -EINVAL);
		if (!strstr(error, bad[i].said))
			fail_msg("%s is not named: %s", bad[i].said, error);
	}
}

/* A library with cuDNN's name that is not cuDNN. */
TEST(wrong_library)
{
	char folder[] = "/tmp/loaderd-library-XXXXXX", path[64], error[DEVICE_ERROR_MAX];
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	struct engines engines;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/libcudnn.so.9", folder);
	assert_int_equal(symlink(getenv("LOADERD_CUDA_DRIVER"), path), 0);
	setenv("LOADERD_CUDA_LIBRARIES", folder, 1);
	assert_int_equal(engines_open(&options, &engines, error), -ENODEV);
	unsetenv("LOADERD_CUDA_LIBRARIES");
	assert_non_null(strstr(error, "libcudnn.so.9 has no function cudnnGetVersion"));
	unlink(path);
	rmdir(folder);
}

static void copy_file(const char *from, const char *to)
{
	FILE *source = fopen(from, "r"), *sink = fopen(to, "w");
	char part[4096];
	size_t length;

	assert_non_null(source);
	assert_non_null(sink);
	while ((length = fread(part, 1, sizeof(part), source)) > 0)
		assert_int_equal(fwrite(part, 1, length, sink), length);
	fclose(source);
	assert_int_equal(fclose(sink), 0);
}

/*
 * NVRTC opens its headers, a library with the version in its name, through the loader's search
 * path. That path need not include the libraries' directory, so engines_open() loads the headers.
 */
TEST(compiler)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	char folder[] = "/tmp/loaderd-compiler-XXXXXX", name[32], path[128],
	     error[DEVICE_ERROR_MAX];
	int (*ask_version)(int *, int *) = NULL;
	struct engines engines;
	int major, minor;
	void *compiler;

	snprintf(name, sizeof(name), "libnvrtc.so.%d", CUBLAS_VER_MAJOR);
	compiler = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (compiler)
		ask_version = (__typeof__(ask_version))dlsym(compiler, "nvrtcVersion");
	if (!ask_version || ask_version(&major, &minor))
		skip();
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/libnvrtc-builtins.so.%d.%d", folder, major, minor);
	copy_file(getenv("LOADERD_CUDA_DRIVER"), path);
	setenv("LOADERD_CUDA_LIBRARIES", folder, 1);
	assert_int_equal(engines_open(&options, &engines, error), 0);
	unsetenv("LOADERD_CUDA_LIBRARIES");
	engines_close(&engines);
	assert_non_null(dlopen(path, RTLD_NOW | RTLD_NOLOAD));
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	return cudnn_test_found() ? test_run(NULL, NULL) : 77;
}
