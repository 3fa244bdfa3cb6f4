/* Loss kernels. They read the labels through struct step_arguments in device memory. */
#ifndef TRAINER_DEVICE_CUDA_LOSS_H
#define TRAINER_DEVICE_CUDA_LOSS_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/ops.h"
#include "trainer/device/steps.h"

/*
 * The loss defined by device_loss(). Writes every field of *results as for a step without an update
 * (update_decide() later sets the others). With dlogits, also writes the gradient of mean loss
 * times loss scale; it is 0 for samples without a label (outside 0..classes-1).
 */
struct loss_arguments {
	/*
	 * in device memory; contains the step number and the targets, laid out as in struct
	 * device_target_arrays
	 */
	const struct step_arguments *step;
	/* source of the loss scale, in device memory; NULL for a loss scale of 1 */
	const struct device_params_state *state;
	const void *logits; /* [n][stride] of logits_element, before logit_scale */
	/*
	 * [n][dlogits_stride] of dlogits_element, or NULL; channels from `classes` on are set to 0
	 */
	void *dlogits;
	struct device_results *results; /* in device memory */
	void *workspace;                /* loss_workspace() bytes */
	uint32_t n, classes;
	uint32_t logits_stride, dlogits_stride; /* at least classes */
	enum cuda_element logits_element, dlogits_element;
	enum device_loss_kind kind;
	enum device_targets targets;
	bool plain; /* device_loss_is_plain(): selects the kernel for it */
	float smoothing;
	float logit_scale, temperature; /* 0 means 1 */
	/* 0 without a teacher; otherwise step->teacher points to its logits */
	float teacher_weight, teacher_temperature;
	const float *class_weights; /* [classes] in device memory, or NULL */
	float *losses;              /* loss per sample [n], in device memory, or NULL */
	struct loss_totals *totals; /* in device memory; NULL for a single rank */
};
/*
 * Totals over ranks; NULL with a single rank, otherwise one per graph. loss_count() writes this
 * rank's `samples` and `divisor`, which are all-reduced before loss_forward(); loss_forward()
 * divides the gradient by `divisor`. It also writes `loss`, `top1` and `top5`, which are all-
 * reduced after it. loss_share() then replaces this rank's numbers in *results by the totals.
 */
struct loss_totals {
	double samples;          /* labelled samples */
	double divisor;          /* samples, or the sum of the class weights of their labels */
	double loss, top1, top5; /* sums over labelled samples */
};
/* One record per sample in the workspace. */
struct loss_record {
	double loss;
	double weight;                /* weight of the sample's labels in a weighted loss */
	uint32_t samples, top1, top5; /* 0 or 1 */
};
uint64_t loss_workspace(uint32_t n);
int loss_forward(const struct kernel_device *device, const struct loss_arguments *arguments);
/* Writes `samples` and `divisor` of *totals for this rank. */
int loss_count(const struct kernel_device *device, const struct loss_arguments *arguments);
/* Sets samples, loss, top1 and top5 of *results from *totals and leaves the rest unchanged. */
int loss_share(const struct kernel_device *device, const struct loss_arguments *arguments);

#endif
