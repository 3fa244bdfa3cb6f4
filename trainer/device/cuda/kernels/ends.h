/*
 * The two ends of a graph: the batch as it came from the feed, and the loss. Both read struct
 * step_arguments in device memory, which are stored here too.
 */
#ifndef TRAINER_DEVICE_CUDA_ENDS_H
#define TRAINER_DEVICE_CUDA_ENDS_H

#include "trainer/device/cuda/kernels/columns.h"
#include "trainer/device/cuda/kernels/divide.h"
#include "trainer/device/cuda/step.h"

/*
 * *to = arguments, passed by value with the launch: a copy from host memory would queue in the copy
 * engine behind the batch that is on its way to the device, and delay the step.
 */
struct step_store {
	struct step_arguments arguments;
	struct step_arguments *to; /* in device memory */
};
int step_store(const struct kernel_device *device, const struct step_store *arguments);

/*
 * y [n][h][w][padded] E = the batch's images: bytes as (x - mean) / std, other elements as they
 * are; the batch's channels from `channels` on are ignored, y's are 0; images from step->count on
 * are 0; mirrored if the step says so. Reads the batch once, writes y once.
 */
struct input_normalize {
	const struct step_arguments *step; /* in device memory */
	void *y;
	uint32_t n, h, w;  /* n h w below 2^31 */
	uint32_t channels; /* of the input; at most 4 for bytes */
	uint32_t padded;   /* of y, at least channels */
	enum cuda_element element;
	float mean[4], std[4];   /* for bytes */
	float scale[4], bias[4]; /* filled in by the launcher, here and below */
	struct divider by_h, by_w;
};
int input_normalize(const struct kernel_device *device, const struct input_normalize *arguments);

/*
 * Softmax cross-entropy as device_softmax_loss() has it. Writes all of *results for a step without
 * an update (update_decide() sets the rest later), and, with dlogits, the gradient of mean loss
 * times loss scale: 0 for samples without a label (outside 0..classes-1).
 */
struct loss_softmax {
	const struct step_arguments *step;       /* labels, number of the step; in device memory */
	const struct device_params_state *state; /* its loss scale; in device memory; NULL: 1 */
	const void *logits; /* [n][stride] of logits_element, before logit_scale */
	/* [n][dlogits_stride] of dlogits_element, or NULL; channels from classes on become 0 */
	void *dlogits;
	struct device_results *results; /* in device memory */
	void *workspace;                /* loss_workspace() bytes */
	uint32_t n, classes;
	uint32_t logits_stride, dlogits_stride; /* at least classes */
	enum cuda_element logits_element, dlogits_element;
	float smoothing;
	float logit_scale;          /* 0 counts as 1 */
	struct loss_totals *totals; /* in device memory; NULL: this rank is alone */
};
/*
 * With several ranks, one per graph: loss_count() counts this rank's labels and `samples` is summed
 * over ranks, as the gradient is divided by the sum; after loss_softmax() the other members are
 * summed, and loss_share() corrects what it has written to *results.
 */
struct loss_totals {
	double samples;          /* that have a label */
	double loss, top1, top5; /* sums over them */
};
/* The workspace: one for each sample. */
struct loss_record {
	double loss;
	uint32_t samples, top1, top5; /* 0 or 1 */
};
uint64_t loss_workspace(uint32_t n);
int loss_softmax(const struct kernel_device *device, const struct loss_softmax *arguments);
/* Writes totals->samples: of this rank. */
int loss_count(const struct kernel_device *device, const struct loss_softmax *arguments);
/*
 * Sets samples, loss and the counts of *results from *totals, and leaves the rest of *results
 * alone.
 */
int loss_share(const struct kernel_device *device, const struct loss_softmax *arguments);

#endif
