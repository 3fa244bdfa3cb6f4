/* Implements engines.h for the host. */
#include "tests/gpu/emulation/engines.h"
#include "trainer/device/cuda/cuda.h"

#include <stdio.h>

int engines_open(const struct engines_options *options, struct engines *ret_engines, char *error)
{
	error[0] = '\0';
	ret_engines->conv = emulation_conv_engines;
	ret_engines->conv.key = emulation_kind();
	if (!emulation_times_plans()) {
		ret_engines->conv.tune = NULL;
		ret_engines->conv.refuse = NULL;
	}
	ret_engines->matmul = emulation_matmul_engines;
	snprintf(ret_engines->name, sizeof(ret_engines->name), "plain loops on the host");
	return 0;
}

void engines_close(struct engines *engines)
{
}
