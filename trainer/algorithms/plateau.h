/*
 * schedule.name = plateau: the rate drops by schedule.gamma when evaluations stop improving, as
 * torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode "rel"; its min_lr is a share here,
 * schedule.final. A plain value, the same on all ranks, which goes into the checkpoint; zeros are
 * the start.
 */
#pragma once

#include "trainer/recipe/recipe.h"

struct plateau {
	uint64_t drops;
	uint64_t improved; /* evaluations that were the best so far */
	double best;       /* of the metric, once one has */
	uint64_t bad;      /* in a row that were not */
	uint64_t resting;  /* that schedule.cooldown still lets pass */
};

/* Takes an evaluation into account. top1: a share. */
void plateau_evaluated(struct plateau *plateau, const struct recipe_schedule *keys, double loss,
		       double top1);
