/*
 * Knowledge distillation (Hinton, Vinyals, Dean 2015: "Distilling the Knowledge in a Neural
 * Network", arXiv:1503.02531, section 2). A trained network, the teacher, gets the same augmented
 * and resized batches as the model; its logits are targets in addition to the labels (struct
 * device_loss_spec). The teacher has separate parameters and an evaluation graph on the run's
 * device. Checkpoints only contain a hash that identifies it.
 *
 * The teacher's logits are computed once per update and reused by perturbed passes (train.sam).
 * They stay in device memory if that is separate from host memory, and pass through the host
 * otherwise.
 *
 * Without train.teacher, the struct is all zeros except for the pointers, and the functions do
 * nothing. Only the functions below write the struct.
 */
#pragma once

#include "trainer/checkpoint/weights.h"
#include "trainer/device/steps.h"
#include "trainer/run/network/network.h"

struct teacher {
	struct run_context *ctx;
	const struct data *data;
	const struct network *student;
	struct recipe recipe; /* only the network's keys and the normalisation matter */
	struct weights_metadata metadata;
	uint64_t mark; /* hash of weights file and network; never 0 */
	struct device_params *params;
	struct model *model;
	/* evaluation graph for training batches of the student's size */
	struct run_graph graph;
	/* [data_train_share()][classes] for the current batch; before logit_scale if on_device */
	float *logits;
	bool on_device; /* logits are in device memory */
};

/* Rank 0, before a checkpoint is used: reads the teacher's recipe and metadata. */
int teacher_find(struct teacher *teacher);
/* Refuses a checkpoint of a run with another teacher. mark: of the checkpoint. */
int teacher_check_mark(const struct teacher *teacher, uint64_t mark);
/*
 * teacher_init() creates the parameters on all ranks, teacher_load() reads them on rank 0, and
 * teacher_share() broadcasts them to all ranks.
 */
int teacher_init(struct teacher *teacher);
int teacher_load(struct teacher *teacher);
int teacher_share(struct teacher *teacher);
void teacher_deinit(struct teacher *teacher);
/*
 * Plans the teacher's graph for the student's training images, whose pixels are u8 or floats, and
 * allocates its logits.
 */
int teacher_plan(struct teacher *teacher, enum device_element element);
void teacher_drop_graph(struct teacher *teacher);
/*
 * Runs the teacher on the whole augmented batch and attaches its logits to the batch. Waits for
 * them unless they stay on the device. Returns the device's error code.
 */
int teacher_forward(struct teacher *teacher, struct device_batch *batch);
/* Attaches logits of unspecified values, for a pass whose loss is not used. */
void teacher_attach_logits(const struct teacher *teacher, struct device_batch *batch);
/*
 * Helps to explain a non-finite loss: describes non-finite teacher logits kept on the device; "" if
 * there are none. Looks only at the batch queued last, so it may miss a teacher that rarely has
 * such logits.
 */
enum { TEACHER_DIAGNOSIS_MAX = 128 };
void teacher_diagnose(const struct teacher *teacher, char ret_text[TEACHER_DIAGNOSIS_MAX]);
