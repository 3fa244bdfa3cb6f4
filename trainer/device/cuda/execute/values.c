/*
 * Access of the host to values between steps: reads logits, results and gradients, and writes
 * gradients of outputs.
 */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/kernels/elementwise.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Converts a tensor to fp32 without padding, into device memory of that size. */
static int values_convert(const struct cuda_exec *exec, const struct cuda_tensor *tensor,
			  struct device_shape shape, void *to)
{
	return elementwise_copy(&exec->device->kernels,
				&(struct elementwise_copy){
					.from = cuda_tensor_data(exec, tensor),
					.to = to,
					.rows = device_shape_elements(shape) / shape.c,
					.from_columns = tensor->shape.c,
					.to_columns = shape.c,
					.from_element = tensor->element,
					.to_element = CUDA_F32,
				});
}

int cuda_logits(struct device_graph *graph, float *ret_logits)
{
	struct cuda_exec *exec = graph->backend;
	struct cuda_device *device = exec->device;
	struct device_shape shape = graph->loss->x->shape;
	const float *from = exec->scratch;
	int r = 0;

	if (from)
		r = values_convert(exec, exec->logits, shape, exec->scratch);
	else
		from = cuda_tensor_data(exec, exec->logits);
	if (r == 0)
		r = cuda_copy_out(device, ret_logits, from,
				  device_shape_elements(shape) * sizeof(float));
	return cuda_check(device, r, "logits");
}

int cuda_logits_keep(struct device_graph *graph, float *memory)
{
	struct cuda_exec *exec = graph->backend;

	return cuda_check(exec->device,
			  values_convert(exec, exec->logits, graph->loss->x->shape, memory),
			  "logits");
}

int cuda_memory_new(struct device *device, size_t count, float **ret_memory)
{
	struct cuda_device *cuda = (struct cuda_device *)device;
	int r = 0;
	float *memory = cuda_allocate(&r, count * sizeof(*memory));

	if (r == 0)
		r = gpu_fill(memory, 0, count * sizeof(*memory), cuda->compute);
	if (r < 0)
		gpu_free(memory);
	else
		*ret_memory = memory;
	return cuda_check(cuda, r, "memory for logits");
}

void cuda_memory_free(struct device *device, float *memory)
{
	device->ops->synchronize(device);
	gpu_free(memory);
}

int cuda_memory_read(struct device *device, const float *memory, size_t count, float *ret_values)
{
	struct cuda_device *cuda = (struct cuda_device *)device;

	return cuda_check(cuda, cuda_copy_out(cuda, ret_values, memory, count * sizeof(*memory)),
			  "reading logits");
}

int cuda_losses(struct device_graph *graph, float *ret_losses)
{
	struct cuda_exec *exec = graph->backend;

	return cuda_check(exec->device,
			  cuda_copy_out(exec->device, ret_losses, exec->losses,
					graph->loss->x->shape.n * sizeof(float)),
			  "losses");
}

static struct cuda_tensor *values_find_kept(const struct cuda_exec *exec,
					    const struct device_value *value, enum device_slot slot)
{
	const struct cuda_program *program = exec->program;

	for (uint32_t i = 0; i < program->tensor_count; i++) {
		struct cuda_tensor *tensor = program->tensors[i];

		if (tensor->value == value && (tensor->kept || tensor->grad_output) &&
		    tensor->gradient == (slot == DEVICE_GRAD))
			return tensor;
	}
	return NULL;
}

/* Reads a tensor as fp32. Allocates device memory for the duration of the call. */
static int values_read_tensor(struct cuda_exec *exec, const struct cuda_tensor *tensor,
			      struct device_shape shape, float *ret_values)
{
	uint64_t count = device_shape_elements(shape);
	void *memory = NULL;
	int r = gpu_allocate(count * sizeof(float), &memory);

	if (r == 0)
		r = values_convert(exec, tensor, shape, memory);
	if (r == 0)
		r = cuda_copy_out(exec->device, ret_values, memory, count * sizeof(float));
	gpu_free(memory);
	return cuda_check(exec->device, r, tensor->name);
}

int cuda_value_read(struct device_graph *graph, const struct device_value *value,
		    enum device_slot slot, float *ret_values)
{
	struct cuda_exec *exec = graph->backend;
	struct device_results last = {.loss_scale = 1};

	if (slot != DEVICE_VALUE && slot != DEVICE_GRAD)
		return -ENOENT;
	const struct cuda_tensor *tensor = values_find_kept(exec, value, slot);
	if (!tensor)
		return -ENOENT;
	int r = values_read_tensor(exec, tensor, value->shape, ret_values);
	if (r < 0 || slot == DEVICE_VALUE || !exec->steps)
		return r;
	r = cuda_results(graph, exec->steps, true, &last);
	for (uint64_t i = 0; r == 0 && i < device_shape_elements(value->shape); i++)
		ret_values[i] = (float)((double)ret_values[i] / last.loss_scale);
	return r;
}

/* ---- gradients of outputs, which the caller writes ---- */

static int values_write_grad_output(struct cuda_exec *exec, struct cuda_grad_output *grad,
				    double scale)
{
	const struct device_value *value = grad->tensor->value;
	uint64_t count = device_shape_elements(value->shape);
	float *scaled = malloc(count * sizeof(float));
	void *memory = NULL;
	int r = scaled ? gpu_allocate(count * sizeof(float), &memory) : -ENOMEM;

	for (uint64_t i = 0; r == 0 && i < count; i++)
		scaled[i] = (float)((double)grad->values[i] * scale);
	if (r == 0)
		r = gpu_copy_in(memory, scaled, count * sizeof(float), exec->device->compute);
	if (r == 0)
		r = elementwise_copy(&exec->device->kernels,
				     &(struct elementwise_copy){
					     .from = memory,
					     .to = cuda_tensor_data(exec, grad->tensor),
					     .rows = count / value->shape.c,
					     .from_columns = value->shape.c,
					     .to_columns = grad->tensor->shape.c,
					     .from_element = CUDA_F32,
					     .to_element = grad->tensor->element,
				     });
	if (r == 0)
		r = gpu_stream_synchronize(exec->device->compute);
	gpu_free(memory);
	free(scaled);
	grad->scale = scale;
	return cuda_check(exec->device, r, "a given gradient");
}

int cuda_rescale_grad_outputs(struct cuda_exec *exec)
{
	double scale;
	int r = 0;

	if (!exec->grad_output_count || exec->device->base.info.precision != DEVICE_FP16)
		return 0;
	r = cuda_loss_scale(exec->graph->params, &scale);
	for (uint32_t i = 0; i < exec->grad_output_count && r == 0; i++)
		if (exec->grad_outputs[i].values && exec->grad_outputs[i].scale != scale)
			r = values_write_grad_output(exec, &exec->grad_outputs[i], scale);
	return r;
}

int cuda_value_write(struct device_graph *graph, const struct device_value *value,
		     enum device_slot slot, const float *values)
{
	struct cuda_exec *exec = graph->backend;
	uint64_t bytes = device_shape_elements(value->shape) * sizeof(float);
	double scale;
	int r;

	for (uint32_t i = 0; slot == DEVICE_GRAD && i < exec->grad_output_count; i++) {
		struct cuda_grad_output *grad = &exec->grad_outputs[i];

		if (grad->tensor->value != value)
			continue;
		if (!grad->values)
			grad->values = malloc(bytes);
		if (!grad->values)
			return -ENOMEM;
		memcpy(grad->values, values, bytes);
		r = cuda_loss_scale(graph->params, &scale);
		return r < 0 ? r : values_write_grad_output(exec, grad, scale);
	}
	return -ENOENT;
}
