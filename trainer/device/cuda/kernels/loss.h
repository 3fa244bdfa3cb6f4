/* The loss. Reads the labels through struct step_arguments in device memory. */
#ifndef TRAINER_DEVICE_CUDA_LOSS_H
#define TRAINER_DEVICE_CUDA_LOSS_H

#include "trainer/device/cuda/kernels/columns.h"
#include "trainer/device/cuda/step.h"

/*
 * The loss as in device_loss(). Writes all of *results for a step without an update
 * (update_decide() sets the rest later), and, with dlogits, the gradient of mean loss times loss
 * scale: 0 for samples without a label (outside 0..classes-1).
 */
struct loss_arguments {
	/* step number, and targets as in struct device_target_arrays; in device memory */
	const struct step_arguments *step;
	/* provides the loss scale; in device memory; NULL for 1 */
	const struct device_params_state *state;
	const void *logits; /* [n][stride] of logits_element, before logit_scale */
	/* [n][dlogits_stride] of dlogits_element, or NULL; channels from classes on become 0 */
	void *dlogits;
	struct device_results *results; /* in device memory */
	void *workspace;                /* loss_workspace() bytes */
	uint32_t n, classes;
	uint32_t logits_stride, dlogits_stride; /* at least classes */
	enum cuda_element logits_element, dlogits_element;
	enum device_loss_kind kind;
	enum device_targets targets;
	float smoothing;
	float logit_scale, temperature; /* 0 counts as 1 */
	/* teacher_weight 0 for no teacher, else its logits are step->teacher */
	float teacher_weight, teacher_temperature;
	const float *class_weights; /* [classes] in device memory, or NULL */
	float *losses;              /* [n] by sample, in device memory, or NULL */
	struct loss_totals *totals; /* in device memory; NULL for a single rank */
};
/*
 * With several ranks, one per graph. loss_count() counts this rank's labels; the first two members
 * are then summed over ranks, since the gradient is divided by `divisor`. After loss_forward() the
 * other members are summed, and loss_share() corrects *results.
 */
struct loss_totals {
	double samples;          /* labelled samples */
	double divisor;          /* their number, or the sum of their labels' weights */
	double loss, top1, top5; /* sums over labelled samples */
};
/* Workspace: one record per sample. */
struct loss_record {
	double loss;
	double weight;                /* weighted loss: weight of the sample's labels */
	uint32_t samples, top1, top5; /* 0 or 1 */
};
uint64_t loss_workspace(uint32_t n);
int loss_forward(const struct kernel_device *device, const struct loss_arguments *arguments);
/* Writes the first two members of *totals, for this rank. */
int loss_count(const struct kernel_device *device, const struct loss_arguments *arguments);
/* Sets samples, loss and counts of *results from *totals; the rest of *results is unchanged. */
int loss_share(const struct kernel_device *device, const struct loss_arguments *arguments);

#endif
