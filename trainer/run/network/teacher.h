/*
 * Knowledge distillation (Hinton, Vinyals, Dean 2015: "Distilling the Knowledge in a Neural
 * Network", arXiv:1503.02531, section 2): a trained network, the teacher, sees each batch as the
 * model does, blended, thinned out and resized; its logits become targets in addition to the labels
 * (struct device_loss_spec). It has its own parameters and evaluation graph on the run's device.
 * Checkpoints only contain a mark that identifies it.
 *
 * Its logits are computed once per update. They stay in device memory if that is separate, and pass
 * through the host otherwise; perturbed passes (train.sam) reuse them.
 *
 * All zeros but for the pointers, and the functions no-ops, without train.teacher. Written by these
 * functions only.
 */
#pragma once

#include "trainer/checkpoint/weights.h"
#include "trainer/run/network/network.h"

struct teacher {
	struct run_context *ctx;
	const struct data *data;
	const struct network *student;
	struct recipe recipe; /* only the network's keys matter */
	struct weights_metadata metadata;
	uint64_t mark; /* identifies weights file and network; never 0 */
	struct device_params *params;
	struct model *model;
	struct run_graph graph; /* evaluation graph of the student's training size */
	/* [data_train_share()][classes] of the batch. on_device: before logit_scale */
	float *logits;
	bool on_device; /* logits are in device memory */
};

/* Rank 0, before the checkpoint is used: reads the teacher's network and metadata. */
int teacher_find(struct teacher *teacher);
/* Refuses a checkpoint of a run with another teacher, whose mark it has. */
int teacher_check_mark(const struct teacher *teacher, uint64_t mark);
/* Create the parameters (all ranks), read them (rank 0), broadcast them (all ranks). */
int teacher_init(struct teacher *teacher);
int teacher_load(struct teacher *teacher);
int teacher_share(struct teacher *teacher);
void teacher_deinit(struct teacher *teacher);
/*
 * Plans its graph for the student's training images, which are u8 or floats, and allocates its
 * logits.
 */
int teacher_plan(struct teacher *teacher, enum device_element element);
void teacher_drop_graph(struct teacher *teacher);
/*
 * Runs the teacher on the whole batch, after augmentation, and adds its logits to the batch. Waits
 * for them unless they stay on the device. Returns the device's code.
 */
int teacher_forward(struct teacher *teacher, struct device_batch *batch);
/* Adds arbitrary logits, for a pass whose loss is not used. */
void teacher_attach_logits(const struct teacher *teacher, struct device_batch *batch);
/*
 * Explains a non-finite loss: describes non-finite teacher logits kept on the device, or "" if
 * there are none. Looks at the batch queued last, so it only catches a teacher that often has such
 * logits.
 */
enum { TEACHER_DIAGNOSIS_MAX = 128 };
void teacher_diagnose(const struct teacher *teacher, char ret_text[TEACHER_DIAGNOSIS_MAX]);
