/* Wrappers of oneDNN calls that several files use. */
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

int cpu_describe(dnnl_memory_desc_t *ret_desc, struct device_shape shape, dnnl_data_type_t type,
		 dnnl_format_tag_t tag)
{
	/* oneDNN's logical order is N, C, H, W for every layout */
	dnnl_dims_t dims = {shape.n, shape.c, shape.h, shape.w};

	return cpu_status(dnnl_memory_desc_init_by_tag(ret_desc, 4, dims, type, tag));
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

const dnnl_memory_desc_t *cpu_op_part(const struct cpu_op *op, int argument)
{
	return dnnl_primitive_desc_query_md(op->desc, dnnl_query_exec_arg_md, argument);
}

size_t cpu_op_bytes(const struct cpu_op *op, int argument)
{
	const dnnl_memory_desc_t *desc = cpu_op_part(op, argument);

	return desc ? dnnl_memory_desc_get_size(desc) : 0;
}

void cpu_need_scratchpad(struct cpu_exec *exec, size_t bytes)
{
	if (bytes > exec->scratchpad_size)
		exec->scratchpad_size = bytes;
}

int cpu_op_create(struct cpu_exec *exec, struct cpu_op *op)
{
	cpu_need_scratchpad(exec, cpu_op_bytes(op, DNNL_ARG_SCRATCHPAD));
	return cpu_status(dnnl_primitive_create(&op->primitive, op->desc));
}

/* Advances to the first implementation whose name does not start with `avoided`. */
static dnnl_status_t op_pass_over(dnnl_primitive_desc_iterator_t iterator, const char *avoided,
				  dnnl_primitive_desc_t *ret_desc)
{
	for (;;) {
		dnnl_primitive_desc_t desc = dnnl_primitive_desc_iterator_fetch(iterator);
		const char *name = "";

		if (!desc)
			return dnnl_out_of_memory;
		dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
		if (!avoided || strncmp(name, avoided, strlen(avoided)) != 0) {
			*ret_desc = desc;
			return dnnl_success;
		}
		dnnl_primitive_desc_destroy(desc);
		if (dnnl_primitive_desc_iterator_next(iterator) != dnnl_success)
			return dnnl_unimplemented;
	}
}

int cpu_op_new(struct cpu_exec *exec, struct cpu_op *op, const_dnnl_op_desc_t desc,
	       const_dnnl_primitive_desc_t hint, const char *avoided)
{
	dnnl_primitive_attr_t attributes = cpu_attributes();
	dnnl_primitive_desc_iterator_t iterator;

	if (!attributes)
		return -ENOMEM;
	int r = cpu_status(dnnl_primitive_desc_iterator_create(&iterator, desc, attributes,
							       exec->device->engine, hint));
	dnnl_primitive_attr_destroy(attributes);
	if (r < 0)
		return r;
	r = cpu_status(op_pass_over(iterator, avoided, &op->desc));
	dnnl_primitive_desc_iterator_destroy(iterator);
	return r < 0 ? r : cpu_op_create(exec, op);
}

static int op_bind_one(struct cpu_exec *exec, struct cpu_op *op, int argument, void *data)
{
	dnnl_memory_t memory;
	int r = cpu_status(
		dnnl_memory_create(&memory, cpu_op_part(op, argument), exec->device->engine, data));

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
	if (r == 0 && cpu_op_bytes(op, DNNL_ARG_SCRATCHPAD))
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
