/*
 * What tensors of published weights are called, beside the names that parameters have (timm's): a
 * row of NAMES for each rule, from ours to theirs, with the layout it is of. `#` is a number, the
 * same on both sides in order, and `*` at the end the rest. Several rows may have the same name of
 * ours: the first whose tensor is in the file is taken, so layouts are recognised by themselves.
 */
#pragma once

#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/device.h"

#include <stdbool.h>

/* clang-format off */
/* torchvision's ConvNeXt has stages at odd places of `features`, and between them what halves. */
#define NAMES_STAGE(X, stage, place)                                                               \
	X("torchvision", "stages." stage ".blocks.#.conv_dw.*", "features." place ".#.block.0.*")  \
	X("torchvision", "stages." stage ".blocks.#.norm.*", "features." place ".#.block.2.*")     \
	X("torchvision", "stages." stage ".blocks.#.mlp.fc1.*", "features." place ".#.block.3.*")  \
	X("torchvision", "stages." stage ".blocks.#.mlp.fc2.*", "features." place ".#.block.5.*")  \
	X("torchvision", "stages." stage ".blocks.#.gamma", "features." place ".#.layer_scale")

#define NAMES_ENCODER(X, ours, theirs)                                                             \
	X("torchvision", "blocks.#." ours, "encoder.layers.encoder_layer_#." theirs)

#define NAMES(X)                                                                                   \
	/* vision transformers; published files have the linear layers' first names */             \
	X("torchvision", "cls_token", "class_token")                                               \
	X("torchvision", "pos_embed", "encoder.pos_embedding")                                     \
	X("torchvision", "patch_embed.proj.*", "conv_proj.*")                                      \
	NAMES_ENCODER(X, "norm1.*", "ln_1.*")                                                      \
	NAMES_ENCODER(X, "attn.qkv.weight", "self_attention.in_proj_weight")                       \
	NAMES_ENCODER(X, "attn.qkv.bias", "self_attention.in_proj_bias")                           \
	NAMES_ENCODER(X, "attn.proj.*", "self_attention.out_proj.*")                               \
	NAMES_ENCODER(X, "norm2.*", "ln_2.*")                                                      \
	NAMES_ENCODER(X, "mlp.fc1.*", "mlp.0.*")                                                   \
	NAMES_ENCODER(X, "mlp.fc2.*", "mlp.3.*")                                                   \
	NAMES_ENCODER(X, "mlp.fc1.*", "mlp.linear_1.*")                                            \
	NAMES_ENCODER(X, "mlp.fc2.*", "mlp.linear_2.*")                                            \
	X("torchvision", "norm.*", "encoder.ln.*")                                                 \
	X("torchvision", "head.*", "heads.head.*")                                                 \
	/* ConvNeXt */                                                                             \
	X("torchvision", "stem.#.*", "features.0.#.*")                                             \
	NAMES_STAGE(X, "0", "1")                                                                   \
	NAMES_STAGE(X, "1", "3")                                                                   \
	NAMES_STAGE(X, "2", "5")                                                                   \
	NAMES_STAGE(X, "3", "7")                                                                   \
	X("torchvision", "stages.1.downsample.#.*", "features.2.#.*")                              \
	X("torchvision", "stages.2.downsample.#.*", "features.4.#.*")                              \
	X("torchvision", "stages.3.downsample.#.*", "features.6.#.*")                              \
	X("torchvision", "head.norm.*", "classifier.0.*")                                          \
	X("torchvision", "head.fc.*", "classifier.2.*")                                            \
	/* its authors' */                                                                         \
	X("facebookresearch", "stem.#.*", "downsample_layers.0.#.*")                               \
	X("facebookresearch", "stages.#.downsample.#.*", "downsample_layers.#.#.*")                \
	X("facebookresearch", "stages.#.blocks.#.conv_dw.*", "stages.#.#.dwconv.*")                \
	X("facebookresearch", "stages.#.blocks.#.norm.*", "stages.#.#.norm.*")                     \
	X("facebookresearch", "stages.#.blocks.#.mlp.fc1.*", "stages.#.#.pwconv1.*")               \
	X("facebookresearch", "stages.#.blocks.#.mlp.fc2.*", "stages.#.#.pwconv2.*")               \
	X("facebookresearch", "stages.#.blocks.#.gamma", "stages.#.#.gamma")                       \
	X("facebookresearch", "head.norm.*", "norm.*")                                             \
	X("facebookresearch", "head.fc.*", "head.*")
/* clang-format on */

/*
 * The tensor of a parameter: of its own name, or as a row says. *ret_layout, which may be NULL:
 * NULL of its own name. NULL: there is none.
 */
const struct safetensors_tensor *names_find(const struct safetensors *source, const char *name,
					    const char **ret_layout);

/* Whether the tensor is what names_find() takes for one of the parameters. */
bool names_know(const struct device_params *params, const struct safetensors *source,
		const char *tensor);

/* Whether a parameter is of the last layer, whose outputs are the classes. */
bool names_head(const char *name);

/* Classes of the last layer in a file, whatever its layout. 0: there is none. */
uint32_t names_classes(const struct safetensors *source);
