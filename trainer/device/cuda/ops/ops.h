/*
 * The kinds of operations of a program (program.h). The second column names the definition,
 * cuda_NAME_op, and usually the file in this folder. That file contains all that the CUDA backend
 * does for an operation except its kernels: the lowering of the node (struct node_lowering of
 * lowering/lower.h), the definition, and the execution.
 *
 * The comment above each definition gives its formula: inputs -> outputs, with optional operands in
 * brackets. E is the program's element type, F is fp32, K is the number of channels of the tensor
 * in question. Vectors [K] are F unless noted otherwise. act is the node's activation.
 */
#pragma once

/* clang-format off */
#define CUDA_OPS(X)                                                                                \
	X(INPUT, input)                                                                            \
	X(CONV, conv)                                                                              \
	X(MATMUL, matmul)                                                                          \
	X(GATHER, gather)                                                                          \
	X(PAD, pad)                                                                                \
	X(FOLD, fold)                                                                              \
	X(WEIGHT_GRADIENT, weight_gradient)                                                        \
	X(BIAS_GRADIENT, bias_gradient)                                                            \
	X(STATISTICS, statistics)                                                                  \
	X(NORM_FINALIZE, norm_finalize)                                                            \
	X(NORM_RUNNING, norm_running)                                                              \
	X(APPLY, apply)                                                                            \
	X(ACTIVATION_BACKWARD, activation_backward)                                                \
	X(NORM_REDUCE, norm_reduce)                                                                \
	X(NORM_BACKWARD_FINALIZE, norm_backward_finalize)                                          \
	X(NORM_BACKWARD_APPLY, norm_backward_apply)                                                \
	X(LAYER_NORM, layer_norm)                                                                  \
	X(LAYER_NORM_BACKWARD, layer_norm_backward)                                                \
	X(ATTENTION, attention)                                                                    \
	X(ATTENTION_BACKWARD, attention_backward)                                                  \
	X(POS_EMBED, pos_embed)                                                                    \
	X(POS_EMBED_BACKWARD, pos_embed_backward)                                                  \
	X(RESIZE_POSITIONS, resize_positions)                                                      \
	X(RESIZE_POSITIONS_BACKWARD, resize_positions_backward)                                    \
	X(SELECT_TOKEN, select_token)                                                              \
	X(SELECT_TOKEN_BACKWARD, select_token_backward)                                            \
	X(SCALE_ADD, scale_add)                                                                    \
	X(SCALE_ADD_BACKWARD, scale_add_backward)                                                  \
	X(ADD, add)                                                                                \
	X(MAX_POOL, max_pool)                                                                      \
	X(MAX_POOL_BACKWARD, max_pool_backward)                                                    \
	X(MAX_POOL_NORM_REDUCE, max_pool_norm_reduce)                                              \
	X(MAX_POOL_NORM_APPLY, max_pool_norm_apply)                                                \
	X(AVERAGE_POOL, average_pool)                                                              \
	X(AVERAGE_POOL_BACKWARD, average_pool_backward)                                            \
	X(GLOBAL_AVERAGE, global_average)                                                          \
	X(GLOBAL_AVERAGE_BACKWARD, global_average_backward)                                        \
	X(GLOBAL_MAX, global_max)                                                                  \
	X(GLOBAL_MAX_BACKWARD, global_max_backward)                                                \
	X(LOSS, loss)
/* clang-format on */
