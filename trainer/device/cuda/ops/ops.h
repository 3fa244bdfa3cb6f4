/*
 * The kinds of operations of a program (program.h), with the name of their definition:
 * cuda_NAME_op, in the file of this folder that the operation has. That file contains what the CUDA
 * backend does for the operation, except for its kernels: the definition, the lowering of the node
 * (struct node_lowering of lowering/lower.h) and the execution.
 *
 * Above each definition stands its meaning as a formula over operands: inputs -> outputs, optional
 * operands in brackets. E is the program's element type, F is fp32, K the channels of the tensor at
 * hand. Vectors [K] are F unless noted. act is the node's activation.
 */
#pragma once

/* clang-format off */
#define CUDA_OPS(X)                                                                                \
	X(INPUT, input)                                                                            \
	X(CONV, conv)                                                                              \
	X(MATMUL, matmul)                                                                          \
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
