/*
 * Opens the engines for convolutions and matrix products. Two implementations, selected at link
 * time as for gpu.h: cudnn/ uses cuDNN and cuBLASLt, tests/gpu/emulation/ computes on the host.
 *
 * Engines are opened for the selected GPU, or for an absent GPU described by its properties. For an
 * absent GPU they only plan, and report which engine would run and its workspace. Engines belong to
 * the thread that uses the device.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

#define ENGINES_WORKSPACE_MAX (1ull << 30) /* bytes */
/*
 * Bytes of workspace to fill before each timing. The fill keeps the GPU busy until all launches are
 * queued. Without it the timing would include the launch time of short kernels, which a captured
 * graph does not have. An H100 fills them in 0.08 ms, at 3.35 TB/s.
 */
#define ENGINES_LEAD (256ull << 20)

struct engines_options {
	const struct gpu_properties *gpu; /* the selected GPU; NULL to use `properties` */
	const char *properties; /* a GPU as JSON, in cuDNN's format of device descriptions */
	/*
	 * File of tuned plans, by problem, GPU and cuDNN version; shared with other processes. NULL
	 * for cudnn-plans in $XDG_CACHE_HOME/loaderd or ~/.cache/loaderd; "" for none.
	 */
	const char *plans;
	/* bytes; plans that need more are skipped. 0 for ENGINES_WORKSPACE_MAX */
	uint64_t workspace_max;
	bool tf32; /* fp32 problems may round their inputs to tf32 */
	/* tune() will be called; results of earlier tuning are used in any case */
	bool autotune;
};

struct engines {
	struct conv_engines conv;
	struct matmul_engines matmul;
	/* such as "cuDNN 9.19.0, cuBLASLt 13.1.0"; mentions a missing driver */
	char name[192];
};

/*
 * -ENODEV if a library is missing or too old; `error` (DEVICE_ERROR_MAX bytes) names it and says
 * how to install it. -EINVAL if the properties do not describe a GPU. -ENOMEM, -EIO. On success
 * `error` is "", or the reason why there are no tuned plans: a damaged file is ignored, and tune()
 * replaces it.
 */
int engines_open(const struct engines_options *options, struct engines *ret_engines, char *error);
void engines_close(struct engines *engines); /* free plans first */
