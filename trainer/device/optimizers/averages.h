/*
 * Averages that follow the values from update to update, a row each, from which slots, memory,
 * checkpoints and --plan take what they need. Beside them is DEVICE_EMA, which the update itself
 * moves.
 *
 * slow: the slow weights of Lookahead (Zhang, Lucas, Ba, Hinton, NeurIPS 2019, arXiv:1907.08610,
 * algorithm 1), from which the values go on; they begin as the first values are. swa: stochastic
 * weight averaging (Izmailov, Podoprikhin, Garipov, Vetrov, Wilson, UAI 2018, arXiv:1803.05407,
 * algorithm 1), the mean of all weights that were told it: the n-th moves it by 1/n.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_AVERAGES_H
#define TRAINER_DEVICE_AVERAGES_H

/*
 * A row is: the slot (DEVICE_SLOW), the name of its fields in struct device_optimizer_spec and
 * device_hyper, what checkpoints put before names of tensors, whether running statistics have it
 * too, so that it can be evaluated, and whether values go on from it, where it moves.
 */
/* clang-format off */
#define DEVICE_AVERAGES(X)                                                                         \
	X(SLOW, slow, "lookahead.", false, true)                                                   \
	X(SWA, swa, "swa.", true, false)
/* clang-format on */

#endif
