/*
 * Table of averages of the values over updates; slots, memory, checkpoints and --plan are derived
 * from it. DEVICE_EMA is separate, since the update itself computes it.
 *
 * slow: the slow weights of Lookahead (Zhang, Lucas, Ba, Hinton, NeurIPS 2019, arXiv:1907.08610,
 * algorithm 1), initialised to the first values; each time they are updated, the values are set to
 * them. swa: stochastic weight averaging (Izmailov, Podoprikhin, Garipov, Vetrov, Wilson, UAI 2018,
 * arXiv:1803.05407, algorithm 1), the mean of all included values: the n-th is included with weight
 * 1 / n.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_AVERAGES_H
#define TRAINER_DEVICE_AVERAGES_H

/*
 * Columns: the slot (DEVICE_SLOW); the field name in struct device_optimizer_spec and device_hyper;
 * the prefix of tensor names in checkpoints; whether running statistics are averaged too, so that
 * the average can be evaluated; whether the values are set to the average when it is updated.
 */
/* clang-format off */
#define DEVICE_AVERAGES(X)                                                                         \
	X(SLOW, slow, "lookahead.", false, true)                                                   \
	X(SWA, swa, "swa.", true, false)
/* clang-format on */

#endif
