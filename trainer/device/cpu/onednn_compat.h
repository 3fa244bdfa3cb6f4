/*
 * Calls of oneDNN's C API that differ between its versions 2 and 3. Version 2 describes an
 * operation before it creates a primitive descriptor, version 3 does both in one call; memory
 * descriptors are plain structures in version 2 and allocated objects in version 3. Callers see
 * neither: they describe tensors by struct onednn_tensor and name other layouts by a primitive's
 * argument (DNNL_ARG_SRC etc.). Only onednn_compat.c tests the version.
 *
 * The caller destroys the returned primitive descriptors and memory objects. On failure outputs
 * stay unchanged.
 */
#pragma once

#include <dnnl.h>
#include <stdbool.h>
#include <stddef.h>

struct onednn_tensor {
	int rank;
	dnnl_dims_t dims; /* [rank], in oneDNN's logical order: N, C, H, W for every layout */
	dnnl_data_type_t type;
	dnnl_format_tag_t tag; /* dnnl_format_tag_any leaves the layout to the primitive */
};

/* Height first, then width. */
struct onednn_window {
	dnnl_dims_t kernel; /* of pools */
	dnnl_dims_t strides, padding, padding_end;
};

struct onednn_conv {
	struct onednn_tensor x, weight, y; /* or their gradients */
	struct onednn_tensor bias;         /* rank 0 if there is none; of the forward pass only */
	struct onednn_window window;
};

struct onednn_pool {
	dnnl_alg_kind_t kind;
	struct onednn_tensor x, y;
	struct onednn_window window;
};

/* Selects the implementation of a primitive. */
struct onednn_choice {
	dnnl_engine_t engine;
	const_dnnl_primitive_attr_t attributes; /* NULL for the defaults */
	const_dnnl_primitive_desc_t forward;    /* of a gradient's forward pass, else NULL */
	const char *avoided; /* name prefix of implementations to skip, or NULL */
};

/*
 * pass: dnnl_forward_training, dnnl_forward_inference, dnnl_backward_data, for convolutions also
 * dnnl_backward_weights. dnnl_unimplemented if there is no implementation, or all are avoided.
 */
dnnl_status_t onednn_conv(const struct onednn_choice *choice, dnnl_prop_kind_t pass,
			  const struct onednn_conv *conv, dnnl_primitive_desc_t *ret_desc);
dnnl_status_t onednn_pool(const struct onednn_choice *choice, dnnl_prop_kind_t pass,
			  const struct onednn_pool *pool, dnnl_primitive_desc_t *ret_desc);

/* Converts `tensor` to the layout of the primitive's argument, or with `back` that to `tensor`. */
dnnl_status_t onednn_reorder(const struct onednn_choice *choice, const struct onednn_tensor *tensor,
			     const_dnnl_primitive_desc_t primitive, int argument, bool back,
			     dnnl_primitive_desc_t *ret_desc);

/* Operations after a primitive: adds a tensor, applies an activation, adds to what dst has. */
dnnl_status_t onednn_append_tensor(dnnl_post_ops_t ops, const struct onednn_tensor *tensor);
dnnl_status_t onednn_append_activation(dnnl_post_ops_t ops, dnnl_alg_kind_t kind);
dnnl_status_t onednn_append_sum(dnnl_post_ops_t ops);

/* Size of the primitive's argument; 0 if it has none. */
size_t onednn_bytes(const_dnnl_primitive_desc_t primitive, int argument);
/* data: onednn_bytes(), owned by the caller. */
dnnl_status_t onednn_memory(const_dnnl_primitive_desc_t primitive, int argument,
			    dnnl_engine_t engine, void *data, dnnl_memory_t *ret_memory);
/* "" if primitive is NULL; valid as long as it. */
const char *onednn_name(const_dnnl_primitive_desc_t primitive);
