/*
 * Replaces libcuda.so.1 by a driver without GPUs, to test the errors when no GPU can be opened.
 * $DRIVER_VERSION is its version, in CUDA's numbering; 0 simulates a missing driver.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NO_DEVICE = 100 }; /* CUresult */

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuDriverGetVersion(int *ret_version);
EXPORT int cuGetProcAddress_v2(const char *symbol, void **ret_function, int version, uint64_t flags,
			       int *ret_status);

int cuDriverGetVersion(int *ret_version)
{
	*ret_version = atoi(getenv("DRIVER_VERSION"));
	return SUCCESS;
}

/* Any other function of the driver; ignores its arguments. */
static int refuse(void)
{
	return NO_DEVICE;
}

/* The runtime looks up all other functions with this one, and this one too. */
int cuGetProcAddress_v2(const char *symbol, void **ret_function, int version, uint64_t flags,
			int *ret_status)
{
	if (strcmp(symbol, "cuDriverGetVersion") == 0)
		*ret_function = (void *)cuDriverGetVersion;
	else if (strcmp(symbol, "cuGetProcAddress") == 0)
		*ret_function = (void *)cuGetProcAddress_v2;
	else
		*ret_function = (void *)refuse;
	if (ret_status)
		*ret_status = SUCCESS;
	return SUCCESS;
}
