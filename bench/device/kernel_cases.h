/*
 * What kernel_bench measures: every kernel of the CUDA backend at shapes of ResNet-50 with a batch
 * of 256 at 224 x 224. A case queues its kernel once on memory that it takes from a slice, saying
 * of each piece whether it is read, written or both; so the bytes that a rate is made of are those
 * that the kernel has to move, each once, and nothing of what caches or partial sums take.
 */
#pragma once

#include "trainer/device/cuda/kernels/columns.h"
#include "trainer/device/cuda/kernels/update.h"

/* Memory of one repetition, in pieces aligned to 256 bytes. */
struct slice {
	char *at;       /* next free byte in the device's memory */
	uint64_t taken; /* bytes so far */
	uint64_t moved; /* bytes that the kernel has to read and write */
};

/* What is not taken from slices, since kernels read meaning from it. All in the device's memory. */
struct kernel_bench {
	struct kernel_device device;
	enum cuda_element element;
	struct step_arguments *step; /* a batch of `samples`, with labels */
	struct device_params_state *state;
	struct device_results *results;
	struct update_decision *decision;
	struct update_chunk *chunks; /* of `parameters` elements */
	uint32_t chunk_count;
	void *images; /* [samples][224][224][3] bytes */
};

#ifdef KERNEL_BENCH_SMALL /* what an emulated GPU gets through: figures mean nothing */
#define KERNEL_SAMPLES    1
#define KERNEL_PARAMETERS 10001
#else
#define KERNEL_SAMPLES    256
#define KERNEL_PARAMETERS 25557032 /* ResNet-50's */
#endif

struct kernel_case {
	const char *kernel, *name;
	int (*queue)(const struct kernel_bench *bench, const struct kernel_case *k,
		     struct slice *slice);
	uint32_t h, w, c; /* of KERNEL_SAMPLES samples; of pools: of what is pooled */
};

extern const struct kernel_case kernel_cases[];
extern const unsigned kernel_case_count;
