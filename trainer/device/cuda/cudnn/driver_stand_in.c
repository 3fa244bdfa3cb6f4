/*
 * Stand-in for libcuda.so.1 on machines without a driver, so that cuDNN can plan run-time compiled
 * engines for an absent GPU. It accepts the compiled code and returns dummy handles for it; calls
 * that need a device fail with "no device". engines_open() loads it only when planning from device
 * properties and only if the real driver is missing. Every symbol that cuDNN 9 looks up must exist,
 * used or not, or cuDNN offers none of these engines.
 */
#include <stdint.h>
#include <stdlib.h>

enum { SUCCESS = 0, NO_DEVICE = 100 }; /* values of CUresult */

#define EXPORT __attribute__((visibility("default")))
#define HANDLE ((void *)(uintptr_t)64) /* never dereferenced */

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

/* Calls that cuDNN makes while it prepares kernels. */
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

/* Parameters are omitted because the arguments are ignored. */
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
