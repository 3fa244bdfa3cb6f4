/* Opens the engines: libraries, the device or its properties, and the file of tuned plans. */
#include "trainer/device/cuda/cudnn/cudnn_engines.h"
#include "trainer/device/device.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *conv_error(void *state)
{
	return ((struct cudnn_engines *)state)->error;
}

/* Builds a device name from its properties, such as "NVIDIA H200, compute 9.0". */
static int name_absent(const char *properties, char *ret_name, size_t size, char *error)
{
	json_error_t where;
	json_t *json = json_loads(properties, 0, &where);
	const char *name = json_string_value(json_object_get(json, "deviceName"));
	json_int_t version = json_integer_value(json_object_get(json, "deviceVer"));

	if (!json)
		snprintf(error, DEVICE_ERROR_MAX, "the GPU's properties are not JSON: line %d: %s",
			 where.line, where.text);
	else if (!name || version < 100 || strpbrk(name, "\t\n"))
		snprintf(error, DEVICE_ERROR_MAX,
			 "the GPU's properties lack %s, as cuDNN's JSON of a device has it",
			 !name || strpbrk(name, "\t\n") ? "deviceName" : "deviceVer (900 for 9.0)");
	else
		snprintf(ret_name, size, "%.127s, compute %d.%d", name, (int)(version / 100),
			 (int)(version % 100 / 10));
	if (error[0]) {
		json_decref(json);
		return -EINVAL;
	}
	json_decref(json);
	return 0;
}

static int describe_absent(struct cudnn_engines *engines, const char *properties, char *error)
{
	struct backend *backend = &engines->device;

	backend_init(backend, &engines->library, "the GPU's properties", error);
	descriptor made = backend_new(backend, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	backend_set(backend, made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
		    (int64_t)strlen(properties) + 1, properties);
	backend_finish(backend, made, "device properties");
	return backend->result == -EIO ? -EINVAL : backend->result;
}

/* Returns the folder of the running program, or "" if unknown. */
static void find_program(char *ret_folder, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", ret_folder, size - 1);

	while (length > 0 && ret_folder[length - 1] != '/')
		length--;
	ret_folder[length > 0 ? length : 0] = '\0';
}

/*
 * Loads the driver stand-in: the configured one, else the one in the program's folder (as in a
 * build tree), else the installed one.
 */
static bool load_driver(void)
{
	const char *named = getenv("LOADERD_CUDA_DRIVER");
	char folder[PATH_MAX], path[PATH_MAX + 32];

	if (named)
		return driver_load(named);
	find_program(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%sdriver_stand_in.so", folder);
	return (*folder && driver_load(path)) || driver_load(DRIVER_STAND_IN);
}

static int open_device(struct cudnn_engines *engines, const struct engines_options *options,
		       char *ret_name, size_t size, char *error)
{
	if (options->gpu) {
		engines->compiles = true;
		snprintf(ret_name, size, "%s, compute %d.%d", options->gpu->name,
			 options->gpu->compute_major, options->gpu->compute_minor);
		return backend_status(&engines->library,
				      engines->library.cudnnCreate(&engines->handle),
				      options->gpu->name, "cudnnCreate", error);
	}
	engines->compiles = load_driver();
	int r = name_absent(options->properties, ret_name, size, error);
	return r < 0 ? r : describe_absent(engines, options->properties, error);
}

static void close_conv(struct cudnn_engines *engines)
{
	if (!engines)
		return;
	plan_cache_deinit(&engines->tuned);
	backend_deinit(&engines->device);
	if (engines->handle)
		engines->library.cudnnDestroy(engines->handle);
	free(engines);
}

static int open_conv(const struct engines_options *options, struct cudnn_engines **ret_engines,
		     char *error)
{
	struct cudnn_engines *engines = calloc(1, sizeof(*engines));
	char device[160], key[192];

	if (!engines) {
		snprintf(error, DEVICE_ERROR_MAX, "no memory for engines");
		return -ENOMEM;
	}
	engines->tf32 = options->tf32;
	engines->workspace_max =
		options->workspace_max ? options->workspace_max : ENGINES_WORKSPACE_MAX;
	int r = cudnn_library_load(&engines->library, error);
	if (r == 0)
		r = open_device(engines, options, device, sizeof(device), error);
	if (r < 0) {
		close_conv(engines);
		return r;
	}
	snprintf(key, sizeof(key), "%s, cuDNN %zu", device, engines->library.cudnnGetVersion());
	/* a damaged or unreadable file is reported, but not an error */
	plan_cache_init(&engines->tuned, options->plans, key, error);
	*ret_engines = engines;
	return 0;
}

int engines_open(const struct engines_options *options, struct engines *ret_engines, char *error)
{
	struct cudnn_engines *conv = NULL;
	size_t cublaslt;

	error[0] = '\0';
	memset(ret_engines, 0, sizeof(*ret_engines));
	int r = cublaslt_open(options, &ret_engines->matmul, &cublaslt, error);
	if (r == 0)
		r = open_conv(options, &conv, error);
	if (r < 0) {
		cublaslt_close(&ret_engines->matmul);
		return r;
	}
	ret_engines->conv = (struct conv_engines){
		.state = conv,
		.plan = cudnn_plan,
		.plan_info = cudnn_plan_info,
		.plan_free = cudnn_plan_free,
		.execute = cudnn_execute,
		.tune = options->gpu ? cudnn_tune : NULL,
		.refuse = options->gpu ? cudnn_refuse : NULL,
		.key = conv->tuned.device,
		.cache_error = cudnn_cache_error,
		.export_tuning = cudnn_export_tuning,
		.import_tuning = cudnn_import_tuning,
		.error = conv_error,
	};
	size_t cudnn = conv->library.cudnnGetVersion();
	snprintf(ret_engines->name, sizeof(ret_engines->name),
		 "cuDNN %zu.%zu.%zu, cuBLASLt %zu.%zu.%zu%s", cudnn / 10000, cudnn / 100 % 100,
		 cudnn % 100, cublaslt / 10000, cublaslt / 100 % 100, cublaslt % 100,
		 conv->compiles ? ""
				: ", none that is compiled at run time (no driver, and no "
				  "driver_stand_in.so)");
	return 0;
}

void engines_close(struct engines *engines)
{
	close_conv(engines->conv.state);
	cublaslt_close(&engines->matmul);
}
