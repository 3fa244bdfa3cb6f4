/*
 * Opening what computes convolutions and matrix products. Two implementations: cudnn/ loads cuDNN
 * and cuBLASLt, emulation/ computes on the host; which one a program has is decided when it is
 * linked, as for gpu.h.
 *
 * Engines are for the GPU that was selected or, from its properties alone, for one that is not
 * here: then they only plan, and say what would run and with how much workspace. They belong to the
 * thread that uses the device.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

#define ENGINES_WORKSPACE_MAX (1ull << 30) /* bytes */
/*
 * Bytes of workspace that are filled before what is timed, to keep the GPU busy until all launches
 * are queued: short kernels take the host longer to launch than the GPU to run, and in a captured
 * graph that time does not count. Filling them takes an H100 0.08 ms, by its memory's 3.35 TB/s.
 */
#define ENGINES_LEAD (256ull << 20)

struct engines_options {
	const struct gpu_properties *gpu; /* that was selected; NULL: for `properties` */
	const char *properties;           /* text: a GPU in JSON, as cuDNN describes devices */
	/*
	 * File of tuned plans, by problem, GPU and version of cuDNN; shared with other processes.
	 * NULL: cudnn-plans in $XDG_CACHE_HOME/loaderd or
	 * ~/.cache/loaderd; "": none.
	 */
	const char *plans;
	/* bytes: plans that need more are not taken; 0: ENGINES_WORKSPACE_MAX */
	uint64_t workspace_max;
	bool tf32; /* fp32 problems may round their inputs to tf32 */
	/* tune() will be called; plans of earlier tuning are used in either case */
	bool autotune;
};

struct engines {
	struct conv_engines conv;
	struct matmul_engines matmul;
	/* "cuDNN 9.19.0, cuBLASLt 13.1.0"; and what they lack if there is no driver */
	char name[192];
};

/*
 * -ENODEV: a library is missing or too old: error (DEVICE_ERROR_MAX bytes) says which, and how it
 * is installed. -EINVAL: the properties are not a GPU's. -ENOMEM, -EIO. After success error is "",
 * or says why there are no tuned plans: a damaged file is left out, and written anew by tune().
 */
int engines_open(const struct engines_options *options, struct engines *ret_engines, char *error);
void engines_close(struct engines *engines); /* plans must have been freed */
