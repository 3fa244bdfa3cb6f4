/*
 * Table of operation kinds: OPERATION(kind, executor, name, reads, writes, may write, further
 * columns of struct cuda_op_def ...), each preceded by its meaning. Include it with OPERATION
 * defined to generate code for all kinds: enum cuda_op_kind, the table in ops.c, and the
 * functions cuda_execute_EXECUTOR() that queue them (../execute/execute.h).
 *
 * Meanings are formulas over operands: inputs -> outputs, optional operands in brackets. E is the
 * program's element type, F is fp32, K the channels of the tensor at hand. Vectors [K] are F unless
 * noted. act is the node's activation.
 */
/* clang-format off */

/*
 * Y [n][h][w][c padded] E = the batch in the step's arguments; u8 batches are normalized, (batch -
 * mean) / std, wider ones are not. Padding channels are 0. Flipped horizontally if the batch says
 * so.
 */
OPERATION(INPUT, input, "input", 0, Y)
/*
 * All three directions of conv.h. Forward: X, W -> Y; data: DY, W -> DX; weights: X, DY -> DW.
 * Prologues: PRESCALE, PREBIAS, PRESCALE2, PREBIAS2, RESIDUAL -> ACTIVATED. Epilogues:
 * CONV_STATISTICS -> SUM, SQUARES; CONV_BIAS: CHANNEL_BIAS, RESIDUAL; CONV_ADD: RESIDUAL;
 * CONV_RELU_NORM: RAW, MEAN, DEVIATION, GAMMA, BETA [, RESIDUAL] [, SHORTCUT or RAW2, MEAN2 ..] ->
 * DX (dz), SUM (dbeta), SQUARES (dgamma), A, B, C [, SUM2 ..]. DW may be a parameter's gradient
 * itself: see ADDEND.
 */
OPERATION(CONV, conv, "conv", .product = true)
/* X E -> SUM, SQUARES over n h w */
OPERATION(STATISTICS, norm, "statistics", X, SUMS, .sums = CUDA_BIT(CUDA_X))
/*
 * SUM, SQUARES, GAMMA, BETA -> MEAN, DEVIATION (1 / sqrt(biased variance + epsilon)), SCALE = GAMMA
 * DEVIATION, BIAS = BETA - MEAN SCALE [, SCALE16, BIAS16: the same in E]. Updates RUNNING_MEAN and
 * RUNNING_VAR with the node's momentum (unbiased variance). `count` is n h w.
 */
OPERATION(NORM_FINALIZE, norm_finalize, "norm finalize", SUMS | GAMMA | BETA,
	  BATCH | AFFINE | RUNNING, AFFINE16, .moves = RUNNING, .minor = true, .across_ranks = true)
/*
 * For evaluation, and for fixed norms: RUNNING_MEAN, RUNNING_VAR, GAMMA, BETA -> SCALE, BIAS [,
 * SCALE16, BIAS16] [, MEAN, DEVIATION for the backward pass]
 */
OPERATION(NORM_RUNNING, norm, "norm running", RUNNING | GAMMA | BETA, AFFINE, AFFINE16 | BATCH,
	  .minor = true, .constant = true)
/*
 * For evaluation: W (F master, value or EMA as the step selects), GAMMA, BETA, RUNNING_MEAN,
 * RUNNING_VAR -> W16 E = W scale_k, BIAS = beta - mean scale. Without GAMMA, W16 = W. W16 may have
 * more input channels than W; the extra ones are 0.
 */
OPERATION(FOLD, fold, "fold", W, CUDA_BIT(CUDA_W16), CUDA_BIT(CUDA_BIAS), .constant = true)
/*
 * Y = act(SCALE X + BIAS [+ RESIDUAL | + SCALE2 RESIDUAL + BIAS2]). Without SCALE: act(X [+ BIAS]
 * [+ RESIDUAL]); without any of these, a copy.
 */
OPERATION(APPLY, norm, "apply", X, Y, .elementwise = true)
/*
 * DZ = (DY [+ DY2]) act'(z). z > 0 is taken from Y; without Y, z is recomputed as in APPLY from X,
 * SCALE, BIAS [, RESIDUAL ...].
 */
OPERATION(ACTIVATION_BACKWARD, norm, "activation backward", DY, DZ, .elementwise = true)
/*
 * As ACTIVATION_BACKWARD, plus SUM = sum DZ and SQUARES = sum DZ (X - MEAN) DEVIATION. DZ is absent
 * if NORM_BACKWARD_APPLY recomputes it.
 */
OPERATION(NORM_REDUCE, norm, "norm reduce", DY | X | BATCH, SUMS, DZ, .sums = DY,
	  .elementwise = true)
/*
 * SUM (sum dz), SQUARES (sum dz xhat), GAMMA, MEAN, DEVIATION -> gradients of GAMMA and BETA
 * (DGAMMA, DBETA, each absent if frozen) [, A, B, C as in conv.h's CONV_RELU_NORM; B and C are 0
 * for a fixed norm]. Also follows CONV_RELU_NORM, which cannot add its sums to a gradient itself.
 */
OPERATION(NORM_BACKWARD_FINALIZE, norm_backward_finalize, "norm backward finalize",
	  SUMS | GAMMA | BATCH, 0, CUDA_BIT(CUDA_DGAMMA) | CUDA_BIT(CUDA_DBETA) | ABC,
	  .minor = true, .across_ranks = true)
/* DX = A dz + B X + C, where dz is DZ, or DZ act'(SCALE X + BIAS) if SCALE and BIAS are given */
OPERATION(NORM_BACKWARD_APPLY, norm, "norm backward apply", DZ | X | ABC, DX,
	  .elementwise = true)
/* X, GAMMA, BETA -> Y. Training: [MEAN, DEVIATION F [n][h][w]], one per row of channels. */
OPERATION(LAYER_NORM, norm, "layer norm", X | GAMMA | BETA, Y, BATCH,
	  .forward_of = DEVICE_NODE_LAYER_NORM)
/*
 * DY, X, MEAN, DEVIATION, GAMMA -> [DX] and the gradients of GAMMA and BETA (DGAMMA, DBETA, each
 * absent if frozen)
 */
OPERATION(LAYER_NORM_BACKWARD, norm, "layer norm backward", DY | X | BATCH | GAMMA,
	  0, DX | CUDA_BIT(CUDA_DGAMMA) | CUDA_BIT(CUDA_DBETA), .sums = DY,
	  .backward_of = DEVICE_NODE_LAYER_NORM)
/*
 * X (qkv) -> Y. Training: [LOG_SUM F [n][heads][h][w]], the logarithm of each query's sum of
 * exponentials.
 */
OPERATION(ATTENTION, attention, "attention", X, Y, CUDA_BIT(CUDA_LOG_SUM), .passes = 1,
	  .forward_of = DEVICE_NODE_ATTENTION)
OPERATION(ATTENTION_BACKWARD, attention, "attention backward",
	  DY | X | Y | CUDA_BIT(CUDA_LOG_SUM), DX, .passes = 2,
	  .backward_of = DEVICE_NODE_ATTENTION)
/* X, POSITIONS F [, CLASS_TOKEN F] -> Y, see device_tokens() */
OPERATION(TOKENS, tokens, "tokens", X | CUDA_BIT(CUDA_POSITIONS), Y, .may_read = CUDA_BIT(CUDA_CLASS_TOKEN),
	  .forward_of = DEVICE_NODE_TOKENS)
/*
 * POSITIONS -> Y F, resized to the node's x (positions.h) for TOKENS. The backward operation maps
 * DY F, the gradient of Y, to DPOSITIONS.
 */
OPERATION(RESIZE_POSITIONS, resize_positions, "resize positions", CUDA_BIT(CUDA_POSITIONS), Y,
	  .constant = true)
OPERATION(RESIZE_POSITIONS_BACKWARD, resize_positions, "resize positions backward", DY,
	  CUDA_BIT(CUDA_DPOSITIONS))
/* DY -> [DX] and the gradients of positions and class token, each absent if frozen */
OPERATION(TOKENS_BACKWARD, tokens, "tokens backward", DY, 0,
	  DX | CUDA_BIT(CUDA_DPOSITIONS) | CUDA_BIT(CUDA_DCLASS_TOKEN),
	  .backward_of = DEVICE_NODE_TOKENS)
/*
 * X -> Y, the token at the node's position. Backward writes all of DX, with 0 at the other
 * positions.
 */
OPERATION(TAKE, tokens, "take", X, Y, .forward_of = DEVICE_NODE_TAKE)
OPERATION(TAKE_BACKWARD, tokens, "take backward", DY, DX, .backward_of = DEVICE_NODE_TAKE)
/*
 * Y = act([RESIDUAL +] s X). s is the product of [GAMMA], [GATE E [n][1][1][K]] and, in training,
 * the node's random factors (dropout, drop-path).
 */
OPERATION(SCALE_ADD, scale_add, "scale add", X, Y)
/*
 * DY [+ DY2] [, Y of a ReLU] -> [DZ, the residual's gradient], [DX]; with X also [DGATE], [DGAMMA]
 */
OPERATION(SCALE_ADD_BACKWARD, scale_add_backward, "scale add backward", DY,
	  0, DX | DZ | CUDA_BIT(CUDA_DGATE) | CUDA_BIT(CUDA_DGAMMA))
/* Y = X + RESIDUAL, both E. Also adds gradients of a value with several consumers. */
OPERATION(ADD, add, "add", X | CUDA_BIT(CUDA_RESIDUAL), Y, .elementwise = true)
/* DY [rows][K] -> DBIAS, accumulated or stored */
OPERATION(BIAS_GRADIENT, bias_gradient, "bias gradient", DY, CUDA_BIT(CUDA_DBIAS), .sums = DY,
	  .minor = true)
/*
 * X (E or F, possibly with padding channels) -> DW, the parameter's gradient slot, accumulated or
 * stored. One launch handles several.
 */
OPERATION(WEIGHT_GRADIENT, weight_gradient, "weight gradient", X, DW, .minor = true)
/*
 * X -> Y [, INDEX u8 [n][p][q][c]: row-major position in the window]. With SCALE, BIAS: maximum of
 * act(SCALE X + BIAS). Windows up to 16 x 16.
 */
OPERATION(MAX_POOL, pool, "max pool", X, Y, INDEX)
/* DY [+ DY2], INDEX -> DX. The two operations below also accept DY2. */
OPERATION(MAX_POOL_BACKWARD, pool, "max pool backward", DY | INDEX, DX)
/*
 * Backward pass of MAX_POOL with SCALE. First DY, INDEX, X, MEAN, DEVIATION, SCALE, BIAS -> SUM,
 * SQUARES; then DY, INDEX, X, SCALE, BIAS, A, B, C -> DX. dz is never stored.
 */
OPERATION(MAX_POOL_NORM_REDUCE, pool, "max pool norm reduce",
	  DY | INDEX | X | BATCH | AFFINE, SUMS, .sums = DY)
OPERATION(MAX_POOL_NORM_APPLY, pool, "max pool norm apply",
	  DY | INDEX | X | AFFINE | ABC, DX)
OPERATION(AVERAGE_POOL, pool, "average pool", X, Y, .forward_of = DEVICE_NODE_AVERAGE_POOL)
/* The mean counts only positions inside x */
OPERATION(AVERAGE_POOL_BACKWARD, pool, "average pool backward", DY, DX,
	  .backward_of = DEVICE_NODE_AVERAGE_POOL)
OPERATION(GLOBAL_AVERAGE, global, "global average", X, Y,
	  .forward_of = DEVICE_NODE_GLOBAL_AVERAGE_POOL)
OPERATION(GLOBAL_AVERAGE_BACKWARD, global, "global average backward", DY, DX,
	  .backward_of = DEVICE_NODE_GLOBAL_AVERAGE_POOL)
OPERATION(GLOBAL_MAX, global, "global max", X, Y, INDEX, .forward_of = DEVICE_NODE_GLOBAL_MAX_POOL)
/* INDEX u32 [n][c]: position of the maximum */
OPERATION(GLOBAL_MAX_BACKWARD, global, "global max backward", DY | INDEX, DX,
	  .backward_of = DEVICE_NODE_GLOBAL_MAX_POOL)
/* Linear layers: X, W, [CHANNEL_BIAS], [RESIDUAL] -> Y; DY, W -> DX; DY, X -> DW as in CONV */
OPERATION(MATMUL, matmul, "matmul", .product = true)
/*
 * X: logits, F (from a linear layer) or E -> results of the step. Training: [DX E], the gradient of
 * the mean loss times the loss scale.
 */
OPERATION(LOSS, loss, "loss", X, 0, DX)

/* clang-format on */
