/*
 * Evaluations: of a run in its course, and by themselves (--evaluate). Written by evaluate.c and
 * predictions.c only.
 */
#pragma once

#include "trainer/checkpoint/weights.h"

#include <stdbool.h>

struct predictions;

struct evaluation {
	struct weights_metadata weights; /* of the weights to evaluate, with --evaluate */
	bool bytes;                      /* the last evaluated batch was u8 */
	struct predictions *predictions; /* with --predictions, else NULL */
};
