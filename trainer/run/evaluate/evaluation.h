/*
 * Evaluations, either during a run or without training (--evaluate). Only evaluate.c and
 * predictions.c write the struct.
 */
#pragma once

#include "trainer/checkpoint/weights.h"
#include "trainer/run/evaluate/target_scores.h"

#include <stdbool.h>

struct predictions;

struct evaluation {
	struct weights_metadata weights; /* metadata of the weights to evaluate, with --evaluate */
	bool bytes;                      /* the last evaluated batch contained u8 pixels */
	struct predictions *predictions; /* with --predictions, else NULL */
	struct target_scores scores;     /* with data.target: of the last evaluation */
};
