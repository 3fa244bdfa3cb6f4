/*
 * Checkpoints: everything that a run needs to go on, in one safetensors file that appears whole or
 * not at all.
 *
 * Tensors: the model under its own names (as torchvision's and timm's, convolutions [O][I][H][W]),
 * "optimizer.momentum.NAME" (and "optimizer.variance.NAME"), "ema.NAME". Metadata: the recipe, the
 * run's counters, and what its images were (struct checkpoint_about). There is no state of random
 * generators to keep: every random number is a function of (seed, epoch, sample) or
 * (seed, parameter). Files are named checkpoint-STEP.safetensors. best.safetensors and
 * model.safetensors hold the evaluated weights alone. Functions belong to the thread that owns the
 * device.
 */
#pragma once

#include "format/base/uuid.h"
#include "trainer/algorithms/plateau.h"
#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

#include <stdint.h>

enum { CHECKPOINT_ERROR_MAX = 1024, CHECKPOINT_PATH_MAX = 4096 };

/* Sums over training steps, from which means are made. */
struct checkpoint_totals {
	double loss; /* times samples */
	uint64_t samples, top1, top5, steps;
};

/* The run's counters. */
struct checkpoint_state {
	uint64_t step;         /* steps made */
	uint64_t epoch, batch; /* position of the feed: the next batch */
	uint64_t batches_per_epoch;
	uint64_t dataset_samples;
	struct uuid dataset_uuid, val_uuid; /* of data.train and data.val */
	uint64_t teacher; /* a mark of what train.teacher was; 0: there was none */
	uint32_t classes;
	enum device_precision precision;
	uint32_t threads; /* of rank 0's device; 0: it has none, or the checkpoint does not tell */
	struct checkpoint_totals interval;      /* since the last step line of the log */
	struct checkpoint_totals whole;         /* since the start of the epoch */
	uint64_t eval_step, eval_samples;       /* last evaluation; samples 0: none yet */
	double eval_loss, eval_top1, eval_top5; /* shares of samples */
	double best_top1;                       /* share; -1 before the first evaluation */
	uint64_t best_step;
	double train_seconds, wait_seconds; /* in training steps; of those, waiting for data */
	uint64_t images;                    /* trained on */
	uint64_t bad;                       /* samples that were substituted */
	/* by start (device_hyper), and 1: of parameters that train.freeze has let go */
	uint64_t begun[DEVICE_STARTS_MAX];
	struct plateau plateau; /* of evaluations, where the schedule follows them */
	struct device_params_state device;
};

/* What goes with weights, as metadata. Any of it may be NULL. */
struct checkpoint_about {
	const char *evaluation; /* "trainer.evaluation" */
	/*
	 * "trainer.mean", "trainer.std": of R, G, B in 0..255, that images are normalised by; NULL:
	 * by none
	 */
	const double *mean, *std;
	const char *class_names; /* "trainer.class_names", of class_names_write() */
};

int checkpoint_save(const char *path, struct device_params *params, const struct recipe *recipe,
		    const struct checkpoint_state *state, const struct checkpoint_about *about,
		    char *error);

/* Weights alone: of slot DEVICE_VALUE or DEVICE_EMA. */
int checkpoint_export(const char *path, struct device_params *params, enum device_slot slot,
		      const struct checkpoint_about *about, char *error);

/* One that is open; to be read. */
struct checkpoint {
	struct safetensors *file;
	struct recipe recipe;
	struct checkpoint_state state;
	char *path;
};

/*
 * Opens and validates a file, reads recipe and counters. Tensors are checked and restored by
 * checkpoint_restore, which leaves nothing unset: a tensor that is missing, has another shape or
 * type is an error. -EBADMSG with a sentence.
 */
int checkpoint_open(const char *path, struct checkpoint **ret_checkpoint, char *error);
void checkpoint_close(struct checkpoint *checkpoint); /* accepts NULL */
int checkpoint_restore(const struct checkpoint *checkpoint, struct device_params *params,
		       char *error);

/* What else there was to a file of weights. */
struct checkpoint_rest {
	bool head_kept;     /* its last layer is not of the model's classes, whose stays as it is */
	bool resized;       /* its position embeddings are of another size than the model's */
	const char *layout; /* whose names its tensors have (names.h); NULL: the model's */
	uint32_t
		strangers; /* its tensors that are none of the model's, which another network has */
	char stranger[DEVICE_NAME_MAX]; /* the first of them */
};

/*
 * Takes weights from any safetensors file with the model's names or others that are known
 * (names.h), in F32, F16 or BF16. What training alone needs (BatchNorm's num_batches_tracked;
 * optimizer and average of a checkpoint) is no stranger. class_names are those that the model is to
 * learn, of class_names_write(); NULL: whatever the file's are.
 */
int checkpoint_import(const char *path, const char *class_names, struct device_params *params,
		      struct checkpoint_rest *ret_rest, char *error);

/*
 * Newest checkpoint of a folder by its step, below `before`. -ENOENT: none. ret_path has
 * CHECKPOINT_PATH_MAX bytes.
 */
int checkpoint_newest(const char *folder, uint64_t before, uint64_t *ret_step, char *ret_path);
/* Path of a step's checkpoint. -ENAMETOOLONG. */
int checkpoint_path(const char *folder, uint64_t step, char *ret_path);
/*
 * Takes the checkpoints of this step and later ones out of a folder; with set_aside they get names
 * that end in .unreadable. A folder that is not there has none.
 */
int checkpoint_clear(const char *folder, uint64_t step, bool set_aside);
/* Removes all but the newest `keep` checkpoints, and temporary files that a killed run left. */
int checkpoint_prune(const char *folder, uint64_t keep);
