/*
 * Frozen parameters: train.freeze, a list of glob patterns of parameter names. Each pattern applies
 * to the whole run or until an epoch (gradual unfreezing: Howard and Ruder 2018, arXiv:1801.06146,
 * section 3.3). Frozen layers before the first trained one need no backward pass. A norm with
 * frozen running statistics normalises by them, as in evaluation.
 *
 * When a pattern ends, its parameters thaw and the training graph is planned again. A thawed
 * parameter starts with zero optimizer state. Adam's bias correction counts its updates from there,
 * as PyTorch's does for a parameter that had no gradient before.
 */
#pragma once

#include "trainer/device/params.h"
#include "trainer/recipe/recipe.h"

#include <stdbool.h>

enum { FREEZE_PATTERNS_MAX = 64, FREEZE_PATTERN_MAX = 128, FREEZE_ERROR_MAX = 1024 };

struct freeze {
	struct freeze_pattern {
		char text[FREEZE_PATTERN_MAX];
		double epochs; /* epoch at which the freeze ends; 0 for the whole run */
	} patterns[FREEZE_PATTERNS_MAX];
	unsigned count;
	/* epochs of the thaws, ascending; thaw number k, from 1, is at thaws[k - 1] */
	double thaws[DEVICE_STARTS_MAX];
	unsigned thaw_count;
	unsigned thawed; /* number of thaws already done */
	/*
	 * [parameters]: number of the thaw that ends the parameter's freeze, from 1; 0 if there is
	 * none
	 */
	uint8_t *start;
};

/*
 * Reads train.freeze and freezes the matching parameters of a store that is not yet allocated.
 * -EINVAL with a sentence (FREEZE_ERROR_MAX bytes) if a pattern matches nothing or nothing is left
 * to train.
 */
int freeze_init(struct freeze *freeze, const struct recipe *recipe, struct device_params *params,
		char *error);
void freeze_deinit(struct freeze *freeze);

/* True if a thaw is due before step `step` (from 0) and freeze_thaw() has not applied it. */
bool freeze_is_due(const struct freeze *freeze, uint64_t step, uint64_t batches_per_epoch);
/*
 * Applies the thaws that are due; plan training graphs again afterwards. begun:
 * [DEVICE_STARTS_MAX], by thaw number. Sets the entry of an applied thaw to updates + 1, unless a
 * checkpoint has already set it, and the entries of later thaws to 0.
 */
void freeze_thaw(struct freeze *freeze, struct device_params *params, uint64_t step,
		 uint64_t batches_per_epoch, uint64_t updates, uint64_t *begun);
