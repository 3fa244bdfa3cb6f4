/*
 * Opens the engines for convolutions and matrix products. Two implementations, selected at link
 * time as for gpu.h: cudnn/ loads cuDNN and cuBLASLt, emulation/ computes on the host.
 *
 * Engines are for the selected GPU, or for an absent one given by its properties: then they only
 * plan, and report what would run and with how much workspace. They belong to the thread that uses
 * the device.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

#define ENGINES_WORKSPACE_MAX (1ull << 30) /* bytes */
/*
 * Bytes of workspace to fill before each timing, which keeps the GPU busy until all launches are
 * queued: short kernels take longer to launch than to run, and a captured graph does not pay for
 * that. An H100 takes 0.08 ms to fill them, at 3.35 TB/s.
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
	/* tune() will be called; plans of earlier tuning are used in any case */
	bool autotune;
};

struct engines {
	struct conv_engines conv;
	struct matmul_engines matmul;
	/* "cuDNN 9.19.0, cuBLASLt 13.1.0", and what is missing if there is no driver */
	char name[192];
};

/*
 * -ENODEV if a library is missing or too old: error (DEVICE_ERROR_MAX bytes) says which, and how to
 * install it. -EINVAL if the properties do not describe a GPU. -ENOMEM, -EIO. On success error is
 * "", or says why there are no tuned plans: a damaged file is ignored, and rewritten by tune().
 */
int engines_open(const struct engines_options *options, struct engines *ret_engines, char *error);
void engines_close(struct engines *engines); /* free plans first */
