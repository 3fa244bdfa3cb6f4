/*
 * Checkpoints: the complete state of a run in one safetensors file, or in a folder with a file of
 * each rank (sharded.h), written atomically.
 *
 * Tensors: the model's parameters under their names (torchvision's and timm's; convolutions as
 * [O][I][H][W]), "optimizer.momentum.NAME", "optimizer.variance.NAME", "ema.NAME". Metadata: the
 * recipe, the run's counters, and how images were normalised (struct checkpoint_about). No
 * generator state is saved: every random number is a function of (seed, epoch, sample) or (seed,
 * parameter).
 *
 * Files are named checkpoint-STEP.safetensors, folders checkpoint-STEP.sharded. best.safetensors
 * and model.safetensors contain only the evaluated weights. Call the functions from the thread that
 * owns the device.
 */
#pragma once

#include "format/base/uuid.h"
#include "trainer/algorithms/plateau.h"
#include "trainer/device/device.h"
#include "trainer/device/params.h"
#include "trainer/recipe/recipe.h"

#include <stdint.h>

enum {
	CHECKPOINT_ERROR_MAX = 1024,
	CHECKPOINT_PATH_MAX = 4096,
	CHECKPOINT_METRICS = 3,
	CHECKPOINT_ID_MAX = 33, /* with the NUL */
};

/* Sums over training steps, from which means are computed. */
struct checkpoint_totals {
	double loss; /* sum of mean loss times samples */
	uint64_t samples, top1, top5, steps;
};

/* The state of a run, apart from its tensors. */
struct checkpoint_state {
	uint64_t step;         /* number of steps made */
	uint64_t epoch, batch; /* feed position of the next batch */
	uint64_t batches_per_epoch;
	uint64_t dataset_samples;
	struct uuid dataset_uuid, val_uuid; /* datasets data.train and data.val */
	uint64_t order_hash; /* feed_info.order_hash; 0 if all samples of one dataset come */
	uint64_t teacher;    /* mark of train.teacher (teacher.h); 0 without a teacher */
	uint32_t classes;
	enum device_precision precision;
	uint32_t threads; /* CPU threads of rank 0's device; 0 if not applicable or not recorded */
	struct checkpoint_totals interval; /* totals since the last step line of the log */
	struct checkpoint_totals whole;    /* totals since the start of the epoch */
	uint64_t eval_step, eval_samples;  /* last evaluation; eval_samples is 0 before the first */
	double eval_loss;
	/* by kind of target, such as top-1 and top-5 as fractions (evaluate/metrics.h) */
	double eval_metric[CHECKPOINT_METRICS];
	double best_score; /* highest eval_metric[0]; -INFINITY before the first evaluation */
	uint64_t best_step;
	/* total time in training steps, and the part of it spent waiting for data */
	double train_seconds, wait_seconds;
	uint64_t images; /* images trained on */
	uint64_t bad;    /* substituted samples */
	/* device_hyper.begun + 1 by thaw number (freeze.h); 0 if the thaw is not done */
	uint64_t begun[DEVICE_STARTS_MAX];
	struct plateau plateau; /* with schedule.name = plateau */
	struct device_params_state device;
};

/* Metadata to store with weights, by key; NULL fields are omitted. */
struct checkpoint_about {
	const char *evaluation; /* "trainer.evaluation" */
	/* "trainer.mean", "trainer.std": normalisation of R, G, B in 0..255 */
	const double *mean, *std;
	const char *class_names; /* "trainer.class_names", from class_names_write() */
};

int checkpoint_save(const char *path, struct device_params *params, const struct recipe *recipe,
		    const struct checkpoint_state *state, const struct checkpoint_about *about,
		    char *error);

/*
 * A sharded checkpoint, in a folder of checkpoint_begin_folder(): after each rank has saved its
 * part, one of them saves the index, which has the metadata of a whole checkpoint. id: of
 * checkpoint_make_id(), the same for all; ties index and files together.
 */
int checkpoint_make_id(char *ret_id); /* CHECKPOINT_ID_MAX bytes */
int checkpoint_save_part(const char *folder, struct device_params *params, const char *id,
			 uint64_t step, char *error);
int checkpoint_save_index(const char *folder, struct device_params *params, const char *id,
			  const struct recipe *recipe, const struct checkpoint_state *state,
			  const struct checkpoint_about *about, char *error);
/*
 * Makes the whole checkpoint of a sharded one: the file that checkpoint_save() would have written.
 * Needs memory for the largest tensor.
 */
int checkpoint_join(const char *folder, const char *path, char *error);

/* Saves only weights, from one slot, such as DEVICE_VALUE, DEVICE_EMA or DEVICE_SWA. */
int checkpoint_export(const char *path, struct device_params *params, enum device_slot slot,
		      const struct checkpoint_about *about, char *error);

/* An open checkpoint, for reading. */
struct checkpoint {
	struct safetensors *file;
	struct recipe recipe;
	struct checkpoint_state state;
	char *path;
};

/*
 * Opens and validates a file and reads recipe and state. checkpoint_restore() later checks and
 * restores the tensors: it refuses a missing tensor or one of another shape or type, so no
 * parameter stays uninitialised. -EBADMSG with a sentence.
 */
int checkpoint_open(const char *path, struct checkpoint **ret_checkpoint, char *error);
void checkpoint_close(struct checkpoint *checkpoint); /* accepts NULL */
int checkpoint_restore(const struct checkpoint *checkpoint, struct device_params *params,
		       char *error);

bool checkpoint_is_sharded(const struct checkpoint *checkpoint);
/* The id of a sharded checkpoint; NULL for a whole one. */
const char *checkpoint_id(const struct checkpoint *checkpoint);
/*
 * Restores a sharded checkpoint on several ranks: one calls checkpoint_restore(), which fills what
 * this rank has of each slot, and the others this, which fills only divided slots. -ESTALE if the
 * folder has another checkpoint than `id`.
 */
int checkpoint_restore_part(const char *path, const char *id, struct device_params *params,
			    char *error);

/* What checkpoint_import() found in a weights file. */
struct checkpoint_import_result {
	/* the file's classes differ in number or names, so the model's head was kept */
	bool head_kept;
	bool resized;       /* the file's position embeddings were resized to the model's */
	const char *layout; /* naming scheme of the file (name_map.h); NULL for the model's */
	/* number of tensors that neither the model nor training uses */
	uint32_t unknown_count;
	char unknown[DEVICE_NAME_MAX]; /* name of the first of these tensors */
};

/*
 * Loads weights from any safetensors file in F32, F16 or BF16, with the model's or other known
 * names (name_map.h). unknown_count excludes tensors that only training uses: BatchNorm's
 * num_batches_tracked, and a checkpoint's optimizer state and averages. class_names: the model's
 * classes, from class_names_write(); NULL to accept the file's.
 */
int checkpoint_import(const char *path, const char *class_names, struct device_params *params,
		      struct checkpoint_import_result *ret_result, char *error);

/*
 * Finds the folder's newest checkpoint, whole or sharded, of a step below `before`. -ENOENT if
 * there is none. ret_path has CHECKPOINT_PATH_MAX bytes.
 */
int checkpoint_newest(const char *folder, uint64_t before, uint64_t *ret_step, char *ret_path);
/* True for the folder of a sharded checkpoint, by its index or its name. */
bool checkpoint_is_folder(const char *path);
/* Path of a step's whole or sharded checkpoint. -ENAMETOOLONG. */
int checkpoint_path(const char *folder, uint64_t step, bool sharded, char *ret_path);
/*
 * Removes a folder's checkpoints of `step` and later steps; if `set_aside`, renames them with the
 * suffix .unreadable instead. A missing folder is not an error.
 */
int checkpoint_clear(const char *folder, uint64_t step, bool set_aside);
/* Removes all but the newest `keep` checkpoints, and temporary files of killed runs. */
int checkpoint_prune(const char *folder, uint64_t keep);
/*
 * Makes the folder of a sharded checkpoint under a temporary name; path: its final name. ret_path
 * has CHECKPOINT_PATH_MAX bytes.
 */
int checkpoint_begin_folder(const char *path, char *ret_path);
/*
 * Call once for each folder made. r is the result of writing. If r is 0, renames the folder;
 * otherwise, or if that fails, removes it with what is in it. Returns r or the error.
 */
int checkpoint_end_folder(const char *temporary, const char *path, int r);
