/*
 * Running a planned graph: batches and their upload, steps, evaluation, and their results. Nothing
 * is allocated, and a backend may capture the whole step (copy-in, forward, backward, optimizer,
 * EMA, loss scale) and replay it.
 */
#ifndef TRAINER_DEVICE_STEPS_H
#define TRAINER_DEVICE_STEPS_H

#include "format/augment/deferred.h"
#include "trainer/device/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_RESULTS_MAX 64 /* steps of a graph whose results are kept */

/* Same values as enum feed_element. */
enum device_element {
	DEVICE_ELEMENT_U8 = 1,
	DEVICE_ELEMENT_F16 = 2,
	DEVICE_ELEMENT_BF16 = 3,
	DEVICE_ELEMENT_F32 = 4
};
size_t device_element_size(enum device_element element); /* bytes */

struct device;
struct device_graph;
struct device_value;

/* A span of device work on CLOCK_MONOTONIC. Strings are valid during the callback. */
struct device_span {
	const char *name; /* name of the operation, or of other work such as "update" */
	const char *kind; /* part of the operation, or "" */
	const char *pass; /* "forward", "backward", "update" or "evaluation" */
	uint64_t begin_ns, end_ns;
};
typedef void device_watch(void *of, const struct device_span *span);
/*
 * From the next step on, calls watch for every span of device work; NULL stops the calls. Spans are
 * in order, do not overlap, and are reported before the call that queued the work returns. Results
 * are bitwise the same, but each operation is launched separately and steps are synchronous.
 */
void device_watch_steps(struct device *device, device_watch *watch, void *of);

/* Outcomes of device_register_host */
#define DEVICE_STAGED         1
#define DEVICE_WANTS_WRITABLE 2

/*
 * Registers host memory that batches will be uploaded from, such as a feed's ring, so that the
 * device can pin its pages and copy by DMA. The device only reads it; `writable` describes the
 * mapping. Batches from other memory work too. Returns 0 if batches are copied directly;
 * DEVICE_STAGED if they are first copied to the device's pinned memory (device_error() says why);
 * DEVICE_WANTS_WRITABLE: as DEVICE_STAGED, but registering a writable mapping may allow direct
 * copies. -EEXIST if it overlaps registered memory.
 */
int device_register_host(struct device *device, const void *memory, size_t bytes, bool writable);
/*
 * Undoes device_register_host(); call before unmapping. Waits for copies that still read the
 * memory. Accepts NULL and memory that was never registered.
 */
void device_unregister_host(struct device *device, const void *memory);

#define DEVICE_SHRINK_MAX 4 /* limit on image size / input size, in each dimension */

/*
 * Blend of a sample with a partner from its batch: the partner's pixels inside a box, a weighted
 * mean of both elsewhere.
 */
struct device_blend {
	uint32_t partner; /* its index in the batch; may be the sample itself */
	/* weight of the sample outside the box, 0..1; the partner's is 1 - share */
	float share;
	/* box in the input: rows top to bottom - 1, columns left to right - 1; may be empty */
	uint32_t top, bottom, left, right;
};

/*
 * Inputs of the random draws of a training step, in addition to the layer. Draws are equal on every
 * device.
 */
struct device_draws {
	uint64_t seed;
	/* number of the update that the batch contributes to; the same for all micro-batches */
	uint64_t step;
	uint32_t first; /* index in the global batch of the first sample */
};

/*
 * A batch to upload. Images and labels may be in memory that other processes can change, such as a
 * feed's ring: each label is read once and checked in the copy. All other arrays must be private.
 */
struct device_batch {
	const void *images;    /* [count][h][w][channels], dense; `element` is the type */
	const int32_t *labels; /* [count], -1 for none; NULL if no sample has one */
	/* samples; a training graph needs exactly its n, an evaluation graph accepts fewer */
	uint32_t count;
	uint32_t channels; /* at least the input's; excess channels are ignored */
	/* DEVICE_ELEMENT_U8 is normalised, other types are used as they are */
	enum device_element element;
	bool flip; /* mirror left to right (test-time augmentation) */
	/*
	 * [count], for u8 images of 3 or 4 channels: operations to apply first, which turn images
	 * of delivered_height x delivered_width into height x width (both set); NULL for none.
	 * deferred_read() must have validated them
	 */
	const struct deferred *deferred;
	uint32_t delivered_height, delivered_width;
	/*
	 * DEVICE_TWO_LABELS: [count] each: the second label (-1 for none), and the weight of the
	 * first label, 0..1; both NULL if every sample has one label
	 */
	const int32_t *labels2;
	const float *shares;
	/*
	 * DEVICE_DENSE: [count][classes], finite, and except for regression at least 0. A sample
	 * whose targets are all NaN has none, like one with label -1 elsewhere. Labels only serve
	 * to count correct predictions; for a sample without one, the class with the largest target
	 * counts
	 */
	const float *targets;
	/*
	 * with teacher_weight: the teacher's logits [count][classes], finite; else NULL. With
	 * teacher_kept they are in memory that device_logits_keep() wrote (before logit_scale) and
	 * are not checked for finiteness. teacher_scale multiplies them; 0 counts as 1
	 */
	const float *teacher;
	bool teacher_kept;
	float teacher_scale;
	/*
	 * The following need device_input_spec.resamples. Arithmetic is fp32; blending normalised
	 * pixels is equivalent to blending bytes.
	 *
	 * Size of the images, 0 for the input's. Other sizes are resized bilinearly with
	 * antialiasing, as torchvision resizes float images.
	 */
	uint32_t height, width;
	/*
	 * [h], [w] of the input: rows and columns to pick from the images instead of resizing in
	 * that dimension; NULL for none
	 */
	const uint32_t *rows, *columns;
	const struct device_blend *blends; /* [count], applied after resizing; NULL for none */
	struct device_draws draws;         /* for training graphs with random operations */
};

/* Bytes of one image of the batch, whose size fields must be set. */
size_t device_batch_image(const struct device_batch *batch);

/*
 * Queues the copy of the next step's batch. One batch may be uploaded while the previous step still
 * runs. Keep the batch's memory until device_upload_done() releases it; ret_ticket identifies the
 * copy. -EINVAL if it does not fit the graph; -EBUSY if the previously uploaded batch is unused.
 */
int device_upload(struct device_graph *graph, const struct device_batch *batch,
		  uint64_t *ret_ticket);
/* 0 if the ticket's memory may be released; -EAGAIN if not yet (never with wait). */
int device_upload_done(struct device_graph *graph, uint64_t ticket, bool wait);

/*
 * Queues forward and backward on the batch uploaded last and adds to the gradients (the first step
 * after an update overwrites them); with hyper also the update: optimizer, EMA, loss scale. hyper
 * NULL: a micro-batch that only adds this rank's gradients. Before an update gradients are summed
 * over ranks, bucket by bucket as backward completes them, so norm, clipping and update see the
 * sum. An update with a non-finite gradient is skipped and counted. Steps are numbered from 1.
 * -EINVAL if nothing was uploaded or the graph is not for training; -EDOM: see detect_anomaly.
 */
int device_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step);
/*
 * Queues only the forward pass of a training graph, with batch statistics, to compute the loss.
 * With moves_statistics it also updates the running statistics. Summed gradients do not change.
 */
int device_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
/*
 * Computes the gradients of the batch uploaded last as a step does, then discards them and all
 * gradients summed since the last update. Nothing else changes and no rank waits for another. This
 * triggers the allocations that libraries and drivers make outside the plan in a graph's first
 * steps (some only in a second warm-up), so that -ENOMEM occurs before training starts. Waits.
 */
int device_warmup(struct device_graph *graph);
/*
 * Queues forward with running statistics and the given weights (DEVICE_VALUE, DEVICE_EMA or an
 * average that has buffers); only for evaluation graphs.
 */
int device_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step);

/* Results of a step: over all ranks for a training step, of this rank only for an evaluation. */
struct device_results {
	uint64_t step;
	uint32_t samples;    /* samples with a label */
	uint32_t top1, top5; /* labelled samples whose label is among the 1 and 5 largest logits */
	double loss;         /* mean over the labelled samples */
	/* global L2 norm after grad_scale, before clipping; 0 without an update */
	double grad_norm;
	double loss_scale; /* value used in the step */
	bool updated;      /* an update was made */
	bool skipped;      /* an update was due, but a gradient was not finite */
};
/*
 * Returns a step's results, which arrive asynchronously. -EAGAIN if not ready (never with wait, and
 * all ranks get the same answer); -ERANGE if the step is more than DEVICE_RESULTS_MAX steps old or
 * not queued.
 */
int device_results(struct device_graph *graph, uint64_t step, bool wait,
		   struct device_results *ret_results);
/* Logits of the last step, before logit_scale: [n][classes]. Waits. */
int device_logits(struct device_graph *graph, float *ret_logits);
/*
 * Allocates zero-filled device memory for logits that other graphs' batches will use. -ENOTSUP if
 * device memory is host memory: use device_logits() then.
 */
int device_memory_new(struct device *device, size_t count, float **ret_memory);
/* Waits for queued work. Accepts NULL. */
void device_memory_free(struct device *device, float *memory);
int device_memory_read(struct device *device, const float *memory, size_t count, float *ret_values);
/*
 * Queues a copy of the last step's logits, before logit_scale, to memory from device_memory_new().
 * Steps queued later can use it.
 */
int device_logits_keep(struct device_graph *graph, float *memory);
/*
 * Per-sample loss of the last step on this rank, [n]; 0 without a target. With class weights the
 * values are weighted but not divided by the sum of the weights (so a teacher's term is multiplied
 * by the mean weight). Waits. -EINVAL if the graph has no loss.
 */
int device_losses(struct device_graph *graph, float *ret_losses);

/*
 * Copies a whole value or its gradient as dense fp32 [n][h][w][c] after a step; waits. With
 * keep_all every value is available, otherwise only results that no operation consumes. Only the
 * DEVICE_GRAD of such results can be written, in a training graph without a loss. -ENOENT if not
 * kept.
 */
int device_value_read(struct device_graph *graph, const struct device_value *value,
		      enum device_slot slot, float *ret_values);
int device_value_write(struct device_graph *graph, const struct device_value *value,
		       enum device_slot slot, const float *values);

#endif
