#include "trainer/device/cuda/lowering/roofline.h"

#include "trainer/device/cuda/lowering/matrix_products.h"

#include <string.h>

/*
 * Multiply-adds per multiprocessor and clock, from NVIDIA's white papers "A100 Tensor Core GPU
 * Architecture" and "H100 Tensor Core GPU Architecture". The latter's peaks for tensor cores assume
 * a lower clock than its other peaks.
 */
static const struct rate {
	int major, minor;
	double fp32, tf32, half; /* fused multiply-adds, two FLOPs each; half: fp16 and bf16 */
	double tensor_khz_max;   /* clock of tensor core peaks; 0 for the GPU's maximum */
} rates[] = {
	{8, 0, 64, 512, 1024, 0},
	{9, 0, 128, 1024, 2048, 1830000},
};

double roofline_peak_flops(const struct gpu_properties *gpu, enum cuda_element element, bool tf32)
{
	for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
		const struct rate *rate = &rates[i];
		bool tensor = element != CUDA_F32 || tf32;
		double fused = element != CUDA_F32 ? rate->half : tf32 ? rate->tf32 : rate->fp32;
		double khz = gpu->clock_khz;

		if (rate->major != gpu->compute_major || rate->minor != gpu->compute_minor)
			continue;
		if (tensor && rate->tensor_khz_max > 0 && khz > rate->tensor_khz_max)
			khz = rate->tensor_khz_max;
		return 2 * fused * gpu->multiprocessors * khz * 1e3;
	}
	return 0;
}

double roofline_seconds(const struct roofline_device *device, enum cuda_element element,
			double flops, double bytes)
{
	double moving = bytes / device->bytes_per_second;
	double computing = flops / device->flops_per_second[element];

	return moving > computing ? moving : computing;
}

void roofline_sum(const struct roofline_device *device, const struct cuda_program *program,
		  const struct device_node *node, bool backward, struct roofline_sums *ret_sums)
{
	memset(ret_sums, 0, sizeof(*ret_sums));
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		if ((node && op->node != node) || op->backward != backward)
			continue;
		ret_sums->flops += op->flops;
		ret_sums->bytes += (double)op->bytes;
		ret_sums->seconds +=
			roofline_seconds(device, program->element, op->flops, (double)op->bytes);
		if (op->workspace_bytes > ret_sums->workspace_bytes)
			ret_sums->workspace_bytes = op->workspace_bytes;
	}
}

void roofline_store(const struct device_params *params, enum cuda_element element,
		    struct roofline_store *ret_store)
{
	const struct device_optimizer_spec *optimizer = &params->optimizer;

	memset(ret_store, 0, sizeof(*ret_store));
	for (size_t i = 0; i < params->count; i++) {
		const struct device_param *param = params->items[i];
		/* tensors start on cache lines */
		uint64_t bytes = (param->elements + 15) / 16 * 16 * sizeof(float);
		uint64_t slots = 0, states = 0;
		bool buffer = param->spec.kind == DEVICE_BUFFER;
		bool copied = element != CUDA_F32 && (param->spec.kind == DEVICE_CONV_WEIGHT ||
						      param->spec.kind == DEVICE_LINEAR_WEIGHT);
		uint64_t copy = copied ? param->elements * cuda_element_size(element) : 0;

		for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++)
			slots += device_param_takes(param, slot);
		for (unsigned s = 0; s < DEVICE_STATES_MAX; s++)
			states += device_param_takes(param, DEVICE_STATE + s);
		ret_store->slot_bytes += bytes * slots;
		ret_store->copy_bytes += copy;
		if (!params->has_optimizer || param->spec.frozen)
			continue;
		/* reads and writes value, state and EMA, reads the gradient, writes the copy */
		if (!buffer)
			ret_store->update_bytes += (double)(bytes * (3 + 2 * states) + copy);
		if (optimizer->ema)
			ret_store->update_bytes += 2.0 * (double)bytes;
	}
}

static void roofline_add(const struct roofline_device *device, enum cuda_element element,
			 double flops, uint64_t bytes, struct roofline_sums *sums)
{
	sums->flops += flops;
	sums->bytes += (double)bytes;
	sums->seconds += roofline_seconds(device, element, flops, (double)bytes);
}

static void roofline_matrix(const struct roofline_device *device, const struct device_param *param,
			    const struct device_optimizer_spec *optimizer,
			    enum cuda_element element, struct roofline_sums *sums)
{
	struct matrix_shape shape = matrix_shape_of(param);
	uint64_t x = matrix_x_bytes(&shape, element), gram = matrix_gram_bytes(&shape, element);
	uint64_t square = matrix_gram_bytes(&shape, CUDA_F32);
	/* operands and result */
	const uint64_t moved[] = {
		[MATRIX_GRAM] = x + gram,
		[MATRIX_SQUARE] = gram + square,
		[MATRIX_APPLY] = gram + 2 * x,
	};

	/* reads and writes state; reads the gradient, writes X; reads X, writes the gradient */
	roofline_add(device, element, 0,
		     param->elements * sizeof(float) * (2 * DEVICE_MATRIX_STATES + 4) + 2 * x,
		     sums);
	for (uint32_t i = 0; i < optimizer->ns_steps; i++) {
		for (int product = 0; product < MATRIX_PRODUCTS; product++) {
			struct matmul_problem p;

			matrix_problem_init(&p, &shape, (enum matrix_product)product, element);
			roofline_add(device, element, 2.0 * p.rows * p.columns * p.inner,
				     moved[product], sums);
		}
		roofline_add(device, element, 0, 2 * gram + square, sums);
	}
}

void roofline_matrices(const struct roofline_device *device, const struct device_params *params,
		       enum cuda_element element, struct roofline_sums *ret_sums)
{
	uint64_t x = 0, gram = 0, square = 0;

	memset(ret_sums, 0, sizeof(*ret_sums));
	for (size_t i = 0; i < params->count; i++) {
		const struct device_param *param = params->items[i];
		struct matrix_shape shape = matrix_shape_of(param);

		if (!device_param_matrix(param))
			continue;
		if (matrix_x_bytes(&shape, element) > x)
			x = matrix_x_bytes(&shape, element);
		if (matrix_gram_bytes(&shape, element) > gram)
			gram = matrix_gram_bytes(&shape, element);
		if (matrix_gram_bytes(&shape, CUDA_F32) > square)
			square = matrix_gram_bytes(&shape, CUDA_F32);
		if (!param->spec.frozen)
			roofline_matrix(device, param, &params->optimizer, element, ret_sums);
	}
	ret_sums->workspace_bytes = 2 * x + 2 * gram + square;
}
