/*
 * What the ranks of a run must agree on or share, besides gradients: recipe, build, weights,
 * outcomes. All ranks call these functions at the same point; with one rank they do nothing and
 * return 0. Errors are sentences in error, RANKS_ERROR_MAX bytes.
 */
#pragma once

#include "trainer/checkpoint/weights.h"
#include "trainer/device/comm/comm.h"
#include "trainer/device/params.h"
#include "trainer/recipe/recipe.h"

enum { RANKS_ERROR_MAX = 2048, RANKS_COMPARED_MAX = 64 };

/*
 * Combines the ranks' outcomes of a local operation. Returns 0 if all ranks succeeded; otherwise,
 * on every rank, the code of the first rank that failed, with its sentence in error. Ranks other
 * than 0 are named at the beginning of the sentence.
 */
int ranks_agree(struct comm *comm, int outcome, char *error);

/*
 * Finds the first rank whose bytes differ from rank 0's and stores it in *ret_rank; the world size
 * if there is none. size: at most RANKS_COMPARED_MAX.
 */
int ranks_compare(struct comm *comm, const void *mine, size_t size, unsigned *ret_rank,
		  char *error);
/* -EINVAL if the ranks do not all run the same program. */
int ranks_check_build(struct comm *comm, char *error);
/* Replaces every rank's recipe with rank 0's. */
int ranks_share_recipe(struct comm *comm, struct recipe *recipe, char *error);
/* Replaces every rank's metadata of weights with rank 0's. Class names stay on rank 0. */
int ranks_share_metadata(struct comm *comm, struct weights_metadata *metadata, char *error);
/*
 * Replaces every rank's parameters with rank 0's: all slots, or only the running statistics.
 * Divided ones are there already, since ranks_lead() shares what rank 0 writes.
 */
int ranks_share_params(struct comm *comm, struct device_params *params, bool buffers_alone,
		       char *error);
/*
 * Calls lead(of) on rank 0, which may read and write all parameters, while the others contribute
 * and take their parts of divided ones.
 */
int ranks_lead(struct comm *comm, struct device_params *params, int (*lead)(void *of), void *of,
	       char *error);
/* -EDOM if a rank's weights differ from rank 0's in any bit. Running statistics may differ. */
int ranks_check_params(struct comm *comm, const struct device_params *params, char *error);
