/*
 * Lower bound on a program's time on a device: the sum over operations of the larger of memory time
 * and arithmetic time (Williams, Waterman, Patterson 2009). Counts only unavoidable bytes, and no
 * launch overhead.
 */
#pragma once

#include "trainer/device/cuda/gpu.h"
#include "trainer/device/cuda/lowering/program.h"

struct roofline_device {
	double bytes_per_second;
	double flops_per_second[3]; /* dense, by enum cuda_element */
};

/* Costs of one direction (forward or backward) of a layer, or of all layers. */
struct roofline_sums {
	double flops, bytes, seconds;
	uint64_t workspace_bytes; /* largest of any operation */
};

/*
 * Peak FLOP/s of dense matrix products with fp32 accumulation at the GPU's highest clock: the
 * denominator of MFU, which no real program reaches. With tf32, fp32 products are those of tf32
 * tensor cores. Returns 0 if unknown.
 */
double roofline_peak_flops(const struct gpu_properties *gpu, enum cuda_element element, bool tf32);

double roofline_seconds(const struct roofline_device *device, enum cuda_element element,
			double flops, double bytes);
/* Sums the costs of the operations of a node (NULL for all nodes), forward or backward. */
void roofline_sum(const struct roofline_device *device, const struct cuda_program *program,
		  const struct device_node *node, bool backward, struct roofline_sums *ret_sums);

/* A store's device memory, and the bytes moved by an update. */
struct roofline_store {
	uint64_t slot_bytes; /* parameters, gradients, moments, EMA */
	uint64_t copy_bytes; /* weights in the program's element */
	double update_bytes;
};
void roofline_store(const struct device_params *params, enum cuda_element element,
		    struct roofline_store *ret_store);
/*
 * Bytes and FLOPs of a by_matrix optimizer's update: its matrix products and the kernels between
 * them. workspace_bytes is the size of the buffers that they share, without the library's
 * workspace. Zeros for other optimizers.
 */
void roofline_matrices(const struct roofline_device *device, const struct device_params *params,
		       enum cuda_element element, struct roofline_sums *ret_sums);
