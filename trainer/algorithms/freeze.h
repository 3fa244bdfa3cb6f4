/*
 * Layers that are not trained: train.freeze, patterns of parameters' names (glob), each for the
 * whole run or until an epoch (gradual unfreezing: Howard and Ruder 2018, arXiv:1801.06146, section
 * 3.3). What is frozen costs no backward pass down to the first layer that is not; norms whose
 * running statistics are frozen normalise by these, as frozen batch norms of detectors do, and then
 * those layers run as in evaluation.
 *
 * When patterns end, the training graph is planned anew, and that is all that a schedule costs. A
 * parameter that thaws starts its optimizer's state from zero, and Adam's corrections count from
 * there, as PyTorch's do for a parameter that had no gradient before.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

#include <stdbool.h>

enum { FREEZE_PATTERNS_MAX = 64, FREEZE_PATTERN_MAX = 128, FREEZE_ERROR_MAX = 1024 };

struct freeze {
	struct freeze_pattern {
		char text[FREEZE_PATTERN_MAX];
		double epochs; /* 0: the whole run */
	} patterns[FREEZE_PATTERNS_MAX];
	unsigned count;
	/* rising: when something thaws; parameters have the index of theirs, from 1, as `start` */
	double thaws[DEVICE_STARTS_MAX];
	unsigned thaw_count;
	unsigned thawed; /* of them have */
	/* [parameters] of those that are frozen by a pattern the index of their thaw; 0: others */
	uint8_t *start;
};

/*
 * Reads train.freeze and freezes what it names, in a store that is not allocated yet. -EINVAL with
 * a sentence (FREEZE_ERROR_MAX bytes): a pattern that names nothing, or nothing is left to train.
 */
int freeze_init(struct freeze *freeze, const struct recipe *recipe, struct device_params *params,
		char *error);
void freeze_deinit(struct freeze *freeze);

/*
 * Whether something thaws before step `step` (from 0) of so many to an epoch that has not yet.
 */
bool freeze_is_due(const struct freeze *freeze, uint64_t step, uint64_t batches_per_epoch);
/*
 * Thaws it, and notes in begun[DEVICE_STARTS_MAX] for each the updates made so far, and 1, where it
 * has none from an earlier life of the run; what is not due gets 0. Training graphs are to be
 * planned anew.
 */
void freeze_thaw(struct freeze *freeze, struct device_params *params, uint64_t step,
		 uint64_t batches_per_epoch, uint64_t updates, uint64_t *begun);
