/*
 * What kinds of operations there are: OPERATION(kind, executor, name, reads, writes, may write,
 * further columns of struct cuda_operation ...) for each, with its meaning before it. Included,
 * with OPERATION defined, wherever something is made of all of them: enum cuda_op_kind, the table
 * of operations.c, and the functions cuda_execute_EXECUTOR() that queue them
 * (../execute/execute.h).
 *
 * Meanings are by operands. E: the program's element, F: fp32; K channels of the tensor at hand,
 * vectors [K] are F unless said otherwise; act is the node's activation. Optional operands in
 * brackets.
 */
/* clang-format off */

/*
 * Y [n][h][w][c padded] E = (batch - mean) / std, padded channels 0, flipped if the batch says
 * so; 1-byte or wider batches from the step's arguments
 */
OPERATION(INPUT, input, "input", 0, Y)
/*
 * conv.h, all three directions. Forward: X, W -> Y; data: DY, W -> DX; weights: X, DY -> DW.
 * Prologues: PRESCALE, PREBIAS, PRESCALE2, PREBIAS2, RESIDUAL, -> ACTIVATED. Epilogues: -> SUM,
 * SQUARES of CONV_STATISTICS; CHANNEL_BIAS, RESIDUAL of CONV_BIAS; RESIDUAL of CONV_ADD; RAW,
 * MEAN, DEVIATION, GAMMA, BETA [, RESIDUAL] [, SHORTCUT or RAW2, MEAN2 ..] -> DX (dz), SUM
 * (dbeta), SQUARES (dgamma), A, B, C [, SUM2 ..] of CONV_RELU_NORM. DW may be a parameter's
 * gradient itself: see ADDEND.
 */
OPERATION(CONV, conv, "conv", .product = true)
/* X E -> SUM, SQUARES: over n h w */
OPERATION(STATISTICS, norm, "statistics", X, SUMS, .sums = CUDA_BIT(CUDA_X))
/*
 * SUM, SQUARES, GAMMA, BETA -> MEAN, DEVIATION (1 / sqrt(biased variance + epsilon)), SCALE =
 * GAMMA DEVIATION, BIAS = BETA - MEAN SCALE, [SCALE16, BIAS16: the same in E]; RUNNING_MEAN,
 * RUNNING_VAR moved by the node's momentum (unbiased variance there). count: n h w
 */
OPERATION(NORM_FINALIZE, norm_finalize, "norm finalize", SUMS | GAMMA | BETA,
	  BATCH | AFFINE | RUNNING, AFFINE16, .moves = RUNNING, .minor = true, .across_ranks = true)
/*
 * evaluation, and norms that are fixed: RUNNING_MEAN, RUNNING_VAR, GAMMA, BETA -> SCALE, BIAS [,
 * SCALE16, BIAS16] [, MEAN, DEVIATION for the backward pass]
 */
OPERATION(NORM_RUNNING, norm, "norm running", RUNNING | GAMMA | BETA, AFFINE, AFFINE16 | BATCH,
	  .minor = true, .constant = true)
/*
 * evaluation: W (F master, value or EMA as the step says), GAMMA, BETA, RUNNING_MEAN,
 * RUNNING_VAR -> W16 E = W scale_k, BIAS = beta - mean scale; without GAMMA W16 = W. W16 may
 * have more input channels than W: they are 0.
 */
OPERATION(FOLD, fold, "fold", W, CUDA_BIT(CUDA_W16), CUDA_BIT(CUDA_BIAS), .constant = true)
/*
 * Y = act(SCALE X + BIAS [+ RESIDUAL | + SCALE2 RESIDUAL + BIAS2]); without SCALE: act(X [+
 * BIAS] [+ RESIDUAL]), with neither a copy
 */
OPERATION(APPLY, norm, "apply", X, Y, .elementwise = true)
/*
 * DZ = (DY [+ DY2]) act'(z): z > 0 from Y, or, without Y, z recomputed as APPLY does from X,
 * SCALE, BIAS [, RESIDUAL ...]
 */
OPERATION(ACTIVATION_BACKWARD, norm, "activation backward", DY, DZ, .elementwise = true)
/*
 * as ACTIVATION_BACKWARD (DZ is absent where NORM_BACKWARD_APPLY recomputes it), plus SUM = sum
 * DZ, SQUARES = sum DZ (X - MEAN) DEVIATION
 */
OPERATION(NORM_REDUCE, norm, "norm reduce", DY | X | BATCH, SUMS, DZ, .sums = DY,
	  .elementwise = true)
/*
 * SUM (sum dz), SQUARES (sum dz xhat), GAMMA, MEAN, DEVIATION -> gradients of GAMMA and BETA
 * (DGAMMA, DBETA, each absent when frozen), and [A, B, C of conv.h's CONV_RELU_NORM; of a fixed
 * norm B and C are 0]. Follows
 * CONV_RELU_NORM too, whose own sums cannot be added to a gradient.
 */
OPERATION(NORM_BACKWARD_FINALIZE, norm_backward_finalize, "norm backward finalize",
	  SUMS | GAMMA | BATCH, 0, CUDA_BIT(CUDA_DGAMMA) | CUDA_BIT(CUDA_DBETA) | ABC,
	  .minor = true, .across_ranks = true)
/* DX = A dz + B X + C; dz = DZ, or, with SCALE and BIAS, DZ act'(SCALE X + BIAS) */
OPERATION(NORM_BACKWARD_APPLY, norm, "norm backward apply", DZ | X | ABC, DX,
	  .elementwise = true)
/* X, GAMMA, BETA -> Y; training: [MEAN, DEVIATION F [n][h][w]] of each row of channels */
OPERATION(LAYER_NORM, norm, "layer norm", X | GAMMA | BETA, Y, BATCH,
	  .forward_of = DEVICE_NODE_LAYER_NORM)
/* -> [DX], and the gradients of GAMMA and BETA (DGAMMA, DBETA, each absent when frozen) */
OPERATION(LAYER_NORM_BACKWARD, norm, "layer norm backward", DY | X | BATCH | GAMMA,
	  0, DX | CUDA_BIT(CUDA_DGAMMA) | CUDA_BIT(CUDA_DBETA), .sums = DY,
	  .backward_of = DEVICE_NODE_LAYER_NORM)
/* X (qkv) -> Y; training: [LOG_SUM F [n][heads][h][w]] of a query's exponentials */
OPERATION(ATTENTION, attention, "attention", X, Y, CUDA_BIT(CUDA_LOG_SUM), .passes = 1,
	  .forward_of = DEVICE_NODE_ATTENTION)
OPERATION(ATTENTION_BACKWARD, attention, "attention backward",
	  DY | X | Y | CUDA_BIT(CUDA_LOG_SUM), DX, .passes = 2,
	  .backward_of = DEVICE_NODE_ATTENTION)
/* X, POSITIONS F [, CLASS_TOKEN F] -> Y: device_tokens() */
OPERATION(TOKENS, tokens, "tokens", X | CUDA_BIT(CUDA_POSITIONS), Y, .may_read = CUDA_BIT(CUDA_CLASS_TOKEN),
	  .forward_of = DEVICE_NODE_TOKENS)
/*
 * POSITIONS -> Y F: at the size of the node's x (positions.h), which TOKENS then takes; and back
 * from DY F, the gradient of that, to DPOSITIONS
 */
OPERATION(RESIZE_POSITIONS, resize_positions, "resize positions", CUDA_BIT(CUDA_POSITIONS), Y,
	  .constant = true)
OPERATION(RESIZE_POSITIONS_BACKWARD, resize_positions, "resize positions backward", DY,
	  CUDA_BIT(CUDA_DPOSITIONS))
/* -> [DX], and the gradients of positions and class token, each absent when frozen */
OPERATION(TOKENS_BACKWARD, tokens, "tokens backward", DY, 0,
	  DX | CUDA_BIT(CUDA_DPOSITIONS) | CUDA_BIT(CUDA_DCLASS_TOKEN),
	  .backward_of = DEVICE_NODE_TOKENS)
/* the node's position of X -> Y; backward all of DX, which is 0 elsewhere */
OPERATION(TAKE, tokens, "take", X, Y, .forward_of = DEVICE_NODE_TAKE)
OPERATION(TAKE_BACKWARD, tokens, "take backward", DY, DX, .backward_of = DEVICE_NODE_TAKE)
/*
 * Y = act([RESIDUAL +] s X), s the product of [GAMMA], [GATE E [n][1][1][K]] and, in training, the
 * node's draws
 */
OPERATION(SCALE_ADD, scale_add, "scale add", X, Y)
/*
 * DY [+ DY2], Y of a ReLU -> [DZ: the residual's gradient], [DX]; with X: [DGATE], [DGAMMA]
 */
OPERATION(SCALE_ADD_BACKWARD, scale_add_backward, "scale add backward", DY,
	  0, DX | DZ | CUDA_BIT(CUDA_DGATE) | CUDA_BIT(CUDA_DGAMMA))
/* Y = X + RESIDUAL, both E; also of gradients with several consumers */
OPERATION(ADD, add, "add", X | CUDA_BIT(CUDA_RESIDUAL), Y, .elementwise = true)
/* DY [rows][K] -> DBIAS, added or stored */
OPERATION(BIAS_GRADIENT, bias_gradient, "bias gradient", DY, CUDA_BIT(CUDA_DBIAS), .sums = DY,
	  .minor = true)
/*
 * X (E or F, perhaps with further channels) -> DW: gradient slot of the parameter, added or
 * stored; several are one launch
 */
OPERATION(WEIGHT_GRADIENT, weight_gradient, "weight gradient", X, DW, .minor = true)
/*
 * X -> Y [, INDEX u8 [n][p][q][c]: position in the window, row by row]; with SCALE, BIAS: of
 * act(SCALE X + BIAS). Windows up to 16 x 16
 */
OPERATION(MAX_POOL, pool, "max pool", X, Y, INDEX)
/* DY [+ DY2], INDEX -> DX; so the two below */
OPERATION(MAX_POOL_BACKWARD, pool, "max pool backward", DY | INDEX, DX)
/*
 * MAX_POOL with SCALE, backward: DY, INDEX, X, MEAN, DEVIATION, SCALE, BIAS -> SUM, SQUARES;
 * then DY, INDEX, X, SCALE, BIAS, A, B, C -> DX; dz is never stored
 */
OPERATION(MAX_POOL_NORM_REDUCE, pool, "max pool norm reduce",
	  DY | INDEX | X | BATCH | AFFINE, SUMS, .sums = DY)
OPERATION(MAX_POOL_NORM_APPLY, pool, "max pool norm apply",
	  DY | INDEX | X | AFFINE | ABC, DX)
OPERATION(AVERAGE_POOL, pool, "average pool", X, Y, .forward_of = DEVICE_NODE_AVERAGE_POOL)
/* counts only what lies inside */
OPERATION(AVERAGE_POOL_BACKWARD, pool, "average pool backward", DY, DX,
	  .backward_of = DEVICE_NODE_AVERAGE_POOL)
OPERATION(GLOBAL_AVERAGE, global, "global average", X, Y,
	  .forward_of = DEVICE_NODE_GLOBAL_AVERAGE_POOL)
OPERATION(GLOBAL_AVERAGE_BACKWARD, global, "global average backward", DY, DX,
	  .backward_of = DEVICE_NODE_GLOBAL_AVERAGE_POOL)
OPERATION(GLOBAL_MAX, global, "global max", X, Y, INDEX, .forward_of = DEVICE_NODE_GLOBAL_MAX_POOL)
/* [INDEX u32 [n][c]: position] */
OPERATION(GLOBAL_MAX_BACKWARD, global, "global max backward", DY | INDEX, DX,
	  .backward_of = DEVICE_NODE_GLOBAL_MAX_POOL)
/* linear layers: X, W, [CHANNEL_BIAS], [RESIDUAL] -> Y; DY, W -> DX; DY, X -> DW as of CONV */
OPERATION(MATMUL, matmul, "matmul", .product = true)
/*
 * X: logits F (of a linear layer) or E -> results of the step; training: [DX E], scaled by loss
 * scale / labelled samples
 */
OPERATION(LOSS, loss, "loss", X, 0, DX)

/* clang-format on */
