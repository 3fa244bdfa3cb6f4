/* See onednn_compat.h. Source: oneDNN's API reference, versions 2.6, 3.1 and 3.7. */
#include "trainer/device/cpu/onednn_compat.h"

#include <string.h>

/* Memory descriptors of one call; those not opened are zero. */
struct descs {
	dnnl_memory_desc_t x, weight, bias, y;
};

static bool is_avoided(const_dnnl_primitive_desc_t desc, const char *avoided)
{
	return avoided && strncmp(onednn_name(desc), avoided, strlen(avoided)) == 0;
}

#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t desc_open(dnnl_memory_desc_t *desc, const struct onednn_tensor *tensor)
{
	return dnnl_memory_desc_create_with_tag(desc, tensor->rank, tensor->dims, tensor->type,
						tensor->tag);
}

static void desc_close(dnnl_memory_desc_t *desc)
{
	if (*desc)
		dnnl_memory_desc_destroy(*desc);
}

static const_dnnl_memory_desc_t desc_pointer(const dnnl_memory_desc_t *desc)
{
	return *desc;
}

/* Advances to the first implementation that is not avoided; destroys `desc` on failure. */
static dnnl_status_t pass_over(dnnl_primitive_desc_t desc, const char *avoided,
			       dnnl_primitive_desc_t *ret_desc)
{
	while (is_avoided(desc, avoided))
		if (dnnl_primitive_desc_next_impl(desc) != dnnl_success) {
			dnnl_primitive_desc_destroy(desc);
			return dnnl_unimplemented;
		}
	*ret_desc = desc;
	return dnnl_success;
}

static dnnl_status_t conv_create(const struct onednn_choice *choice, dnnl_prop_kind_t pass,
				 const struct onednn_conv *conv, const struct descs *descs,
				 dnnl_primitive_desc_t *ret_desc)
{
	const struct onednn_window *w = &conv->window;
	dnnl_primitive_desc_t desc;
	dnnl_status_t status;

	if (pass == dnnl_backward_data)
		status = dnnl_convolution_backward_data_primitive_desc_create(
			&desc, choice->engine, dnnl_convolution_direct, descs->x, descs->weight,
			descs->y, w->strides, NULL, w->padding, w->padding_end, choice->forward,
			choice->attributes);
	else if (pass == dnnl_backward_weights)
		status = dnnl_convolution_backward_weights_primitive_desc_create(
			&desc, choice->engine, dnnl_convolution_direct, descs->x, descs->weight,
			NULL, descs->y, w->strides, NULL, w->padding, w->padding_end,
			choice->forward, choice->attributes);
	else
		status = dnnl_convolution_forward_primitive_desc_create(
			&desc, choice->engine, pass, dnnl_convolution_direct, descs->x,
			descs->weight, descs->bias, descs->y, w->strides, NULL, w->padding,
			w->padding_end, choice->attributes);
	return status == dnnl_success ? pass_over(desc, choice->avoided, ret_desc) : status;
}

static dnnl_status_t pool_create(const struct onednn_choice *choice, dnnl_prop_kind_t pass,
				 const struct onednn_pool *pool, const struct descs *descs,
				 dnnl_primitive_desc_t *ret_desc)
{
	static const dnnl_dims_t dilation = {0};
	const struct onednn_window *w = &pool->window;
	dnnl_primitive_desc_t desc;
	dnnl_status_t status =
		pass == dnnl_backward_data
			? dnnl_pooling_backward_primitive_desc_create(
				  &desc, choice->engine, pool->kind, descs->x, descs->y, w->strides,
				  w->kernel, dilation, w->padding, w->padding_end, choice->forward,
				  choice->attributes)
			: dnnl_pooling_forward_primitive_desc_create(
				  &desc, choice->engine, pass, pool->kind, descs->x, descs->y,
				  w->strides, w->kernel, dilation, w->padding, w->padding_end,
				  choice->attributes);

	return status == dnnl_success ? pass_over(desc, choice->avoided, ret_desc) : status;
}

dnnl_status_t onednn_append_activation(dnnl_post_ops_t ops, dnnl_alg_kind_t kind)
{
	return dnnl_post_ops_append_eltwise(ops, kind, 0, 0);
}

dnnl_status_t onednn_append_sum(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

#else /* version 2 */

static dnnl_status_t desc_open(dnnl_memory_desc_t *desc, const struct onednn_tensor *tensor)
{
	return dnnl_memory_desc_init_by_tag(desc, tensor->rank, tensor->dims, tensor->type,
					    tensor->tag);
}

static void desc_close(dnnl_memory_desc_t *desc)
{
}

static const dnnl_memory_desc_t *desc_pointer(const dnnl_memory_desc_t *desc)
{
	return desc;
}

/* Advances to the first implementation that is not avoided. */
static dnnl_status_t pass_over(dnnl_primitive_desc_iterator_t iterator, const char *avoided,
			       dnnl_primitive_desc_t *ret_desc)
{
	for (;;) {
		dnnl_primitive_desc_t desc = dnnl_primitive_desc_iterator_fetch(iterator);

		if (!desc)
			return dnnl_out_of_memory;
		if (!is_avoided(desc, avoided)) {
			*ret_desc = desc;
			return dnnl_success;
		}
		dnnl_primitive_desc_destroy(desc);
		if (dnnl_primitive_desc_iterator_next(iterator) != dnnl_success)
			return dnnl_unimplemented;
	}
}

static dnnl_status_t choose(const struct onednn_choice *choice, const_dnnl_op_desc_t operation,
			    dnnl_primitive_desc_t *ret_desc)
{
	dnnl_primitive_desc_iterator_t iterator;
	dnnl_status_t status = dnnl_primitive_desc_iterator_create(
		&iterator, operation, choice->attributes, choice->engine, choice->forward);

	if (status != dnnl_success)
		return status;
	status = pass_over(iterator, choice->avoided, ret_desc);
	dnnl_primitive_desc_iterator_destroy(iterator);
	return status;
}

static dnnl_status_t conv_create(const struct onednn_choice *choice, dnnl_prop_kind_t pass,
				 const struct onednn_conv *conv, const struct descs *descs,
				 dnnl_primitive_desc_t *ret_desc)
{
	const struct onednn_window *w = &conv->window;
	dnnl_convolution_desc_t operation;
	dnnl_status_t status;

	if (pass == dnnl_backward_data)
		status = dnnl_convolution_backward_data_desc_init(
			&operation, dnnl_convolution_direct, &descs->x, &descs->weight, &descs->y,
			w->strides, w->padding, w->padding_end);
	else if (pass == dnnl_backward_weights)
		status = dnnl_convolution_backward_weights_desc_init(
			&operation, dnnl_convolution_direct, &descs->x, &descs->weight, NULL,
			&descs->y, w->strides, w->padding, w->padding_end);
	else
		status = dnnl_convolution_forward_desc_init(
			&operation, pass, dnnl_convolution_direct, &descs->x, &descs->weight,
			conv->bias.rank ? &descs->bias : NULL, &descs->y, w->strides, w->padding,
			w->padding_end);
	return status == dnnl_success ? choose(choice, &operation, ret_desc) : status;
}

static dnnl_status_t pool_create(const struct onednn_choice *choice, dnnl_prop_kind_t pass,
				 const struct onednn_pool *pool, const struct descs *descs,
				 dnnl_primitive_desc_t *ret_desc)
{
	const struct onednn_window *w = &pool->window;
	dnnl_pooling_desc_t operation;
	dnnl_status_t status =
		pass == dnnl_backward_data
			? dnnl_pooling_backward_desc_init(&operation, pool->kind, &descs->x,
							  &descs->y, w->strides, w->kernel,
							  w->padding, w->padding_end)
			: dnnl_pooling_forward_desc_init(&operation, pass, pool->kind, &descs->x,
							 &descs->y, w->strides, w->kernel,
							 w->padding, w->padding_end);

	return status == dnnl_success ? choose(choice, &operation, ret_desc) : status;
}

dnnl_status_t onednn_append_activation(dnnl_post_ops_t ops, dnnl_alg_kind_t kind)
{
	return dnnl_post_ops_append_eltwise(ops, 1, kind, 0, 0);
}

dnnl_status_t onednn_append_sum(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_sum(ops, 1);
}

#endif

static dnnl_status_t conv_open(struct descs *descs, const struct onednn_conv *conv)
{
	dnnl_status_t status = desc_open(&descs->x, &conv->x);

	if (status == dnnl_success)
		status = desc_open(&descs->weight, &conv->weight);
	if (status == dnnl_success && conv->bias.rank)
		status = desc_open(&descs->bias, &conv->bias);
	return status == dnnl_success ? desc_open(&descs->y, &conv->y) : status;
}

static void descs_close(struct descs *descs)
{
	desc_close(&descs->x);
	desc_close(&descs->weight);
	desc_close(&descs->bias);
	desc_close(&descs->y);
}

dnnl_status_t onednn_conv(const struct onednn_choice *choice, dnnl_prop_kind_t pass,
			  const struct onednn_conv *conv, dnnl_primitive_desc_t *ret_desc)
{
	struct descs descs = {0};
	dnnl_status_t status = conv_open(&descs, conv);

	if (status == dnnl_success)
		status = conv_create(choice, pass, conv, &descs, ret_desc);
	descs_close(&descs);
	return status;
}

dnnl_status_t onednn_pool(const struct onednn_choice *choice, dnnl_prop_kind_t pass,
			  const struct onednn_pool *pool, dnnl_primitive_desc_t *ret_desc)
{
	struct descs descs = {0};
	dnnl_status_t status = desc_open(&descs.x, &pool->x);

	if (status == dnnl_success)
		status = desc_open(&descs.y, &pool->y);
	if (status == dnnl_success)
		status = pool_create(choice, pass, pool, &descs, ret_desc);
	descs_close(&descs);
	return status;
}

/*
 * The memory descriptor of a primitive's argument, in the type of either version; NULL if there is
 * none.
 */
static const void *argument_desc(const_dnnl_primitive_desc_t primitive, int argument)
{
	return dnnl_primitive_desc_query_md(primitive, dnnl_query_exec_arg_md, argument);
}

dnnl_status_t onednn_reorder(const struct onednn_choice *choice, const struct onednn_tensor *tensor,
			     const_dnnl_primitive_desc_t primitive, int argument, bool back,
			     dnnl_primitive_desc_t *ret_desc)
{
	const void *other = argument_desc(primitive, argument);
	struct descs descs = {0};
	dnnl_status_t status = desc_open(&descs.x, tensor);

	if (status == dnnl_success)
		status = dnnl_reorder_primitive_desc_create(
			ret_desc, back ? other : desc_pointer(&descs.x), choice->engine,
			back ? desc_pointer(&descs.x) : other, choice->engine, choice->attributes);
	descs_close(&descs);
	return status;
}

dnnl_status_t onednn_append_tensor(dnnl_post_ops_t ops, const struct onednn_tensor *tensor)
{
	struct descs descs = {0};
	dnnl_status_t status = desc_open(&descs.x, tensor);

	if (status == dnnl_success)
		status = dnnl_post_ops_append_binary(ops, dnnl_binary_add, desc_pointer(&descs.x));
	descs_close(&descs);
	return status;
}

size_t onednn_bytes(const_dnnl_primitive_desc_t primitive, int argument)
{
	const void *desc = argument_desc(primitive, argument);

	return desc ? dnnl_memory_desc_get_size(desc) : 0;
}

dnnl_status_t onednn_memory(const_dnnl_primitive_desc_t primitive, int argument,
			    dnnl_engine_t engine, void *data, dnnl_memory_t *ret_memory)
{
	return dnnl_memory_create(ret_memory, argument_desc(primitive, argument), engine, data);
}

const char *onednn_name(const_dnnl_primitive_desc_t primitive)
{
	const char *name = "";

	if (primitive)
		dnnl_primitive_desc_query(primitive, dnnl_query_impl_info_str, 0, &name);
	return name;
}
