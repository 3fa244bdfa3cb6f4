/*
 * Tensor names of published weights whose naming scheme differs from the model's (timm's). A table
 * of rules: layout, the model's name, the name in that layout. `#` matches a number, which is
 * copied to the other name in order; a final `*` matches any rest. Several rules may have the same
 * model name: the first one whose tensor is in the file applies, so the layout need not be
 * detected.
 */
#pragma once

#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/params.h"

#include <stdbool.h>

/* clang-format off */
/* torchvision's ConvNeXt: stages at odd indices of `features`, downsampling layers between them. */
#define NAMES_STAGE(X, stage, place)                                                               \
	X("torchvision", "stages." stage ".blocks.#.conv_dw.*", "features." place ".#.block.0.*")  \
	X("torchvision", "stages." stage ".blocks.#.norm.*", "features." place ".#.block.2.*")     \
	X("torchvision", "stages." stage ".blocks.#.mlp.fc1.*", "features." place ".#.block.3.*")  \
	X("torchvision", "stages." stage ".blocks.#.mlp.fc2.*", "features." place ".#.block.5.*")  \
	X("torchvision", "stages." stage ".blocks.#.gamma", "features." place ".#.layer_scale")

#define NAMES_ENCODER(X, ours, theirs)                                                             \
	X("torchvision", "blocks.#." ours, "encoder.layers.encoder_layer_#." theirs)

#define NAMES(X)                                                                                   \
	/* vision transformers; published files call the linear layers linear_1, linear_2 */       \
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
	/* ConvNeXt, with torchvision's names */                                                   \
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
	/* ConvNeXt, with its authors' names */                                                    \
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
 * Finds the tensor of a parameter, by the parameter's name or by a rule; NULL if there is none.
 * Sets *ret_layout to the rule's layout, or NULL if the parameter's name matched. ret_layout may be
 * NULL.
 */
const struct safetensors_tensor *name_map_find(const struct safetensors *source, const char *name,
					       const char **ret_layout);

/* True if name_map_find() returns this tensor for any parameter. */
bool name_map_knows(const struct device_params *params, const struct safetensors *source,
		    const char *tensor);

/* True for parameters of the last layer, which has one output per class. */
bool name_map_is_head(const char *name);

/* Number of outputs of the last layer in a file of any layout; 0 if the file has no such layer. */
uint32_t name_map_classes(const struct safetensors *source);
