/*
 * Opening what computes convolutions and matrix products. Two implementations: cudnn/ loads cuDNN and cuBLASLt, emulation/ computes on the
 * host; which one a program has is decided when it is linked, as for gpu.h.
 */
#ifndef TRAINER_DEVICE_CUDA_ENGINES_H
#define TRAINER_DEVICE_CUDA_ENGINES_H

#include "conv.h"

struct engines_options {
	const struct gpu_properties *gpu; /* that was selected */
	bool tf32;                        /* fp32 problems may round their inputs to tf32 */
	bool autotune;                    /* tune() will be called; plans of earlier tuning are used in either case */
};

struct engines {
	struct conv_engines conv;
	struct matmul_engines matmul;
	char name[128]; /* "cuDNN 9.19.0, cuBLASLt 13.1.0" */
};

/* -ENODEV: a library is missing or too old: error (DEVICE_ERROR_MAX bytes) says which, and how it is installed. -ENOMEM. */
int engines_open(const struct engines_options *options, struct engines *ret_engines, char *error);
void engines_close(struct engines *engines); /* plans must have been freed */

#endif
