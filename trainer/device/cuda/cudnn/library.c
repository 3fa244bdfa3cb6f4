#include "trainer/device/cuda/cudnn/library.h"

#include "trainer/device/cuda/load.h"
#include "trainer/device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

#define CUDNN_NAME    "libcudnn.so." STRING(CUDNN_MAJOR)
#define CUBLASLT_NAME "libcublasLt.so." STRING(CUBLAS_VER_MAJOR)
#define NVRTC_NAME    "libnvrtc.so." STRING(CUBLAS_VER_MAJOR) /* toolkit version */

/* cuDNN 9.8 introduced device properties and engines for CONV_RELU_NORM. */
#define CUDNN_VERSION_MIN 90800

bool driver_load(const char *path)
{
	if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
		return true;
	/* dlopen() of a soname returns a library already loaded under that soname */
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

#define LIBRARY_LOAD(function)                                                                     \
	ret_library->function = (__typeof__(ret_library->function))dlsym(library, #function);      \
	if (!ret_library->function)                                                                \
		return load_no_function(NAME, #function, error);

/*
 * cuDNN opens these libraries by name without a path, and NVRTC does the same with its builtins. If
 * they are only in the folders of LOAD_FOLDERS, this works only once they are loaded.
 */
static void load_before_cudnn(void)
{
	void *compiler = load_library(NVRTC_NAME);
	int (*ask_version)(int *, int *) = NULL;
	char builtins[64];
	int major, minor;

	if (compiler)
		ask_version = (__typeof__(ask_version))dlsym(compiler, "nvrtcVersion");
	if (ask_version && ask_version(&major, &minor) == 0) {
		snprintf(builtins, sizeof(builtins), "libnvrtc-builtins.so.%d.%d", major, minor);
		load_library(builtins);
	}
	load_library(CUBLASLT_NAME);
}

int cudnn_library_load(struct cudnn_library *ret_library, char *error)
{
	void *library;

	load_before_cudnn();
	library = load_library(CUDNN_NAME);
	if (!library)
		return load_not_found(CUDNN_NAME,
				      "cuDNN " STRING(CUDNN_MAJOR) " (libcudnn9-cuda-" STRING(
					      CUBLAS_VER_MAJOR) ")",
				      error);
#define NAME CUDNN_NAME
	CUDNN_LIBRARY(LIBRARY_LOAD)
#undef NAME
	if (ret_library->cudnnGetVersion() < CUDNN_VERSION_MIN) {
		size_t version = ret_library->cudnnGetVersion();

		snprintf(error, DEVICE_ERROR_MAX,
			 "cuDNN %zu.%zu.%zu is installed, 9.8.0 or newer is needed: upgrade it, or "
			 "name the folder of a newer one by " LOAD_FOLDERS,
			 version / 10000, version / 100 % 100, version % 100);
		return -ENODEV;
	}
	return 0;
}

int cublaslt_library_load(struct cublaslt_library *ret_library, char *error)
{
	void *library = load_library(CUBLASLT_NAME);

	if (!library)
		return load_not_found(CUBLASLT_NAME,
				      "cuBLAS " STRING(CUBLAS_VER_MAJOR) " (libcublas-" STRING(
					      CUBLAS_VER_MAJOR) "-" STRING(CUBLAS_VER_MINOR) ")",
				      error);
#define NAME CUBLASLT_NAME
	CUBLASLT_LIBRARY(LIBRARY_LOAD)
#undef NAME
	return 0;
}
