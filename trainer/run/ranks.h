/*
 * What the ranks of a run owe each other beside gradients: one recipe, one build, the same weights,
 * one outcome. Functions are called by all ranks at the same point; with one rank they do nothing
 * and return 0. Errors are sentences in error, RANKS_ERROR_MAX bytes.
 */
#pragma once

#include "trainer/device/comm/comm.h"
#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

enum { RANKS_ERROR_MAX = 2048, RANKS_COMPARED_MAX = 64 };

/*
 * Every rank's outcome of what they have just done each for itself. 0 if all succeeded; else the
 * code of the first that failed, and error is its sentence on every rank, with that rank's name
 * before it unless it is rank 0.
 */
int ranks_agree(struct comm *comm, int outcome, char *error);

/*
 * The first rank whose `size` bytes, at most RANKS_COMPARED_MAX, are not rank 0's; the world if
 * there is none.
 */
int ranks_compare(struct comm *comm, const void *mine, size_t size, unsigned *ret_rank,
		  char *error);
/* -EINVAL: the ranks do not all run the same program. */
int ranks_check_build(struct comm *comm, char *error);
/* Rank 0's recipe becomes everybody's. */
int ranks_share_recipe(struct comm *comm, struct recipe *recipe, char *error);
/* Rank 0's parameters become everybody's: all slots, or the running statistics alone. */
int ranks_share_params(struct comm *comm, struct device_params *params, bool buffers_alone,
		       char *error);
/*
 * -EDOM: a rank's weights are not rank 0's, bit for bit, though they have made the same updates.
 * Running statistics may differ.
 */
int ranks_check_params(struct comm *comm, const struct device_params *params, char *error);
