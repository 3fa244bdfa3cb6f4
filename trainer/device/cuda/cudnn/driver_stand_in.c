/*
 * Stands in for libcuda.so.1 where there is no driver, so that cuDNN's engines that are compiled at
 * run time can be planned for a GPU that is not here: it takes the compiled code and hands out
 * names for it. Everything else answers that there is no device. engines_open() loads it for
 * properties alone, and only when the real driver is missing. What cuDNN 9 looks up must be there,
 * used or not, or it offers none of these engines.
 */
#include <stdint.h>
#include <stdlib.h>

enum { SUCCESS = 0, NO_DEVICE = 100 }; /* as CUresult */

#define EXPORT __attribute__((visibility("default")))
#define HANDLE ((void *)(uintptr_t)64) /* never followed */

EXPORT int cuLibraryLoadData(void **ret_library, const void *code, void *options, void *values,
			     unsigned count, void *library_options, void *library_values,
			     unsigned library_count);
EXPORT int cuLibraryGetKernel(void **ret_kernel, void *library, const char *name);
EXPORT int cuKernelGetFunction(void **ret_function, void *kernel);
EXPORT int cuGetErrorString(int error, const char **ret_text);
EXPORT int cuGetErrorName(int error, const char **ret_text);
EXPORT int cuDriverGetVersion(int *ret_version);
EXPORT int cuDeviceGetCount(int *ret_count);

int cuLibraryLoadData(void **ret_library, const void *code, void *options, void *values,
		      unsigned count, void *library_options, void *library_values,
		      unsigned library_count)
{
	*ret_library = HANDLE;
	return SUCCESS;
}

int cuLibraryGetKernel(void **ret_kernel, void *library, const char *name)
{
	*ret_kernel = HANDLE;
	return SUCCESS;
}

int cuKernelGetFunction(void **ret_function, void *kernel)
{
	*ret_function = HANDLE;
	return SUCCESS;
}

int cuGetErrorString(int error, const char **ret_text)
{
	*ret_text = error == NO_DEVICE ? "this is no driver, it only stands in for one" : "success";
	return SUCCESS;
}

int cuGetErrorName(int error, const char **ret_text)
{
	return cuGetErrorString(error, ret_text);
}

int cuDriverGetVersion(int *ret_version)
{
	*ret_version = 0;
	return SUCCESS;
}

int cuDeviceGetCount(int *ret_count)
{
	*ret_count = 0;
	return NO_DEVICE;
}

/* What is asked of kernels as they are prepared. */
#define ACCEPTED(X)                                                                                \
	X(cuFuncSetAttribute)                                                                      \
	X(cuKernelSetAttribute)                                                                    \
	X(cuLibraryUnload)

#define REFUSED(X)                                                                                 \
	X(cuInit)                                                                                  \
	X(cuCtxGetCurrent)                                                                         \
	X(cuCtxGetLimit)                                                                           \
	X(cuCtxPopCurrent)                                                                         \
	X(cuCtxPushCurrent)                                                                        \
	X(cuDeviceGet)                                                                             \
	X(cuGetProcAddress_v2)                                                                     \
	X(cuKernelGetAttribute)                                                                    \
	X(cuLaunchCooperativeKernel)                                                               \
	X(cuLaunchKernel)                                                                          \
	X(cuLaunchKernelEx)                                                                        \
	X(cuLibraryLoadFromFile)                                                                   \
	X(cuLinkAddData)                                                                           \
	X(cuLinkComplete)                                                                          \
	X(cuLinkCreate)                                                                            \
	X(cuLinkDestroy)                                                                           \
	X(cuOccupancyMaxPotentialClusterSize)                                                      \
	X(cuStreamGetCtx)

/* Arguments are not looked at: callers pass what they like. */
#define ACCEPT(name)                                                                               \
	EXPORT int name(void);                                                                     \
	int name(void)                                                                             \
	{                                                                                          \
		return SUCCESS;                                                                    \
	}
#define REFUSE(name)                                                                               \
	EXPORT int name(void);                                                                     \
	int name(void)                                                                             \
	{                                                                                          \
		return NO_DEVICE;                                                                  \
	}

ACCEPTED(ACCEPT)
REFUSED(REFUSE)
