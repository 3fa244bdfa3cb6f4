/* Calls of oneDNN that several files use. */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <string.h>

int cpu_status(dnnl_status_t status)
{
	switch (status) {
	case dnnl_success:
		return 0;
	case dnnl_out_of_memory:
		return -ENOMEM;
	case dnnl_unimplemented:
		return -ENOTSUP;
	case dnnl_invalid_arguments:
		return -EINVAL;
	default:
		return -EIO;
	}
}

dnnl_data_type_t cpu_type(enum element element)
{
	return element == ELEMENT_BF16 ? dnnl_bf16 : dnnl_f32;
}

struct onednn_tensor cpu_describe(struct device_shape shape, dnnl_data_type_t type,
				  dnnl_format_tag_t tag)
{
	return (struct onednn_tensor){
		.rank = 4,
		.dims = {shape.n, shape.c, shape.h, shape.w},
		.type = type,
		.tag = tag,
	};
}

struct onednn_window cpu_window(const struct device_node *node)
{
	dnnl_dim_t pad = node->pad, pad_end = pad + node->pad_extra;

	return (struct onednn_window){
		.kernel = {node->window_h, node->window_w},
		.strides = {node->stride, node->stride},
		.padding = {pad, pad},
		.padding_end = {pad_end, pad_end},
	};
}

dnnl_primitive_attr_t cpu_attributes(void)
{
	dnnl_primitive_attr_t attributes;

	if (dnnl_primitive_attr_create(&attributes) != dnnl_success)
		return NULL;
	if (dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) !=
	    dnnl_success) {
		dnnl_primitive_attr_destroy(attributes);
		return NULL;
	}
	return attributes;
}

void cpu_need_scratchpad(struct cpu_exec *exec, size_t bytes)
{
	if (bytes > exec->scratchpad_size)
		exec->scratchpad_size = bytes;
}

int cpu_op_create(struct cpu_exec *exec, struct cpu_op *op)
{
	cpu_need_scratchpad(exec, onednn_bytes(op->desc, DNNL_ARG_SCRATCHPAD));
	return cpu_status(dnnl_primitive_create(&op->primitive, op->desc));
}

static int op_bind_one(struct cpu_exec *exec, struct cpu_op *op, int argument, void *data)
{
	dnnl_memory_t memory;
	int r = cpu_status(onednn_memory(op->desc, argument, exec->device->engine, data, &memory));

	if (r < 0)
		return r;
	op->args[op->count++] = (dnnl_exec_arg_t){argument, memory};
	return 0;
}

static int op_bind(struct cpu_exec *exec, const struct cpu_binding *binding)
{
	struct cpu_op *op = binding->op;
	int r = 0;

	for (int i = 0; i < CPU_ARGUMENTS_MAX && r == 0; i++)
		if (binding->arguments[i].data)
			r = op_bind_one(exec, op, binding->arguments[i].argument,
					binding->arguments[i].data);
	if (r == 0 && onednn_bytes(op->desc, DNNL_ARG_SCRATCHPAD))
		r = op_bind_one(exec, op, DNNL_ARG_SCRATCHPAD,
				cpu_block(exec, exec->scratchpad_block));
	return r;
}

int cpu_bind(struct cpu_exec *exec, const struct cpu_binding *bindings, size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		if (bindings[i].op->primitive)
			r = op_bind(exec, &bindings[i]);
	return r;
}

int cpu_op_run(struct cpu_exec *exec, struct cpu_op *op)
{
	if (!op->primitive)
		return 0;
	return cpu_status(
		dnnl_primitive_execute(op->primitive, exec->device->stream, op->count, op->args));
}

void cpu_op_release(struct cpu_op *op)
{
	for (int i = 0; i < op->count; i++)
		dnnl_memory_destroy(op->args[i].memory);
	if (op->primitive)
		dnnl_primitive_destroy(op->primitive);
	if (op->desc)
		dnnl_primitive_desc_destroy(op->desc);
	memset(op, 0, sizeof(*op));
}
