/*
 * Evaluation with data.target: the outputs and targets of all samples, from which the metrics are
 * computed at the end. The ranks gather them and sort them by sample, so that the metrics do not
 * depend on the number of ranks. Keeps 8 bytes per output and sample of data.val in host memory.
 */
#pragma once

#include "trainer/device/ops.h"
#include "trainer/run/context.h"
#include "trainer/run/evaluate/metrics.h"
#include "trainer/run/input/targets.h"

#include <stdio.h>

extern const struct metrics metrics_of_labels, metrics_of_numbers;

struct target_scores {
	uint32_t outputs;
	size_t count, capacity; /* samples */
	char *records;          /* [count]: uint64_t sample, float outputs[], targets[] */
	/* after target_scores_compute(): of each output, numbers in the order of struct metrics */
	double (*each)[CHECKPOINT_METRICS];
};

/* What an evaluation gives. */
struct target_result {
	double loss; /* mean */
	uint64_t samples;
	double metric[CHECKPOINT_METRICS];
};

void target_scores_init(struct target_scores *scores, uint32_t outputs);
void target_scores_deinit(struct target_scores *scores);
/*
 * Adds the samples of a batch that have a target. samples: [count], may be in a feed's memory;
 * logits, targets: [count][outputs]; scale: the model's logit_scale. -ENOMEM.
 */
int target_scores_add(struct target_scores *scores, const uint64_t *samples, uint32_t count,
		      const float *logits, double scale, const float *targets);
/* Gathers the samples of all ranks on all ranks. Returns -ENOMEM or an error of the ranks. */
int target_scores_gather(struct target_scores *scores, struct comm *comm);
/*
 * Writes a line of CSV for each sample, in the order of the dataset: its number, targets, and
 * outputs before a sigmoid. Call after target_scores_compute().
 */
void target_scores_print(const struct target_scores *scores, FILE *file);
/* Computes loss and metrics of the samples, of which there is at least one. -ENOMEM. */
int target_scores_compute(struct target_scores *scores, enum target_kind kind,
			  enum device_loss_kind loss, struct target_result *ret_result);
