/*
 * A recipe: all settings of a training run, read from an INI file and from section.key=value
 * overrides.
 *
 * The table recipe_keys.inc defines every key with type, bounds, default and help; fields, parsing,
 * printing, `--help-recipe` and the manual page are generated from it. One thread fills a recipe
 * before the run; afterwards it is read-only. It owns its strings. Errors state the location
 * (file:line or argument), the key, the expected value, and the nearest key name.
 */
#pragma once

#include "trainer/algorithms/schedules.h"
#include "trainer/device/optimizers/optimizers.h"
#include "trainer/log/sinks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
	RECIPE_ERROR_MAX = 1024,        /* maximum size of an error string in bytes */
	RECIPE_TEXT_MAX = 4096,         /* maximum size of a value in bytes */
	RECIPE_EPOCHS_MAX = 100000,     /* largest epoch of a key */
	RECIPE_NUMBERS_MAX = 128,       /* maximum length of a list of numbers */
	RECIPE_STAGES_MAX = 64,         /* maximum number of stages of lists that change */
	RECIPE_STAGE_NUMBERS_MAX = 512, /* and of the numbers in all their lists together */
};

enum recipe_decay { RECIPE_COUPLED, RECIPE_DECOUPLED };
enum recipe_lr_base_scale { RECIPE_SCALE_LINEAR, RECIPE_SCALE_SQRT };
enum recipe_anneal { RECIPE_ANNEAL_LINEAR, RECIPE_ANNEAL_COSINE };
enum recipe_loss {
	RECIPE_LOSS_SOFTMAX,
	RECIPE_LOSS_SIGMOID,
	RECIPE_LOSS_KL,
	RECIPE_LOSS_SQUARED,
	RECIPE_LOSS_HUBER
};
enum recipe_mix_by { RECIPE_MIX_BY_BATCH, RECIPE_MIX_BY_PAIR, RECIPE_MIX_BY_SAMPLE };
enum recipe_metric { RECIPE_METRIC_LOSS, RECIPE_METRIC_TOP1, RECIPE_METRIC_SCORE };
enum recipe_progress {
	RECIPE_PROGRESS_AUTO,
	RECIPE_PROGRESS_BAR,
	RECIPE_PROGRESS_PLAIN,
	RECIPE_PROGRESS_OFF
};
enum recipe_checkpoint_format { RECIPE_CHECKPOINT_WHOLE, RECIPE_CHECKPOINT_SHARDED };
enum recipe_ends { RECIPE_ENDS_FIRST, RECIPE_ENDS_LAST };
enum recipe_augment { RECIPE_AUGMENT_DAEMON, RECIPE_AUGMENT_DEVICE };
enum recipe_shard {
	RECIPE_SHARD_NONE,
	RECIPE_SHARD_OPTIMIZER,
	RECIPE_SHARD_GRADIENTS,
	RECIPE_SHARD_PARAMETERS
};
enum recipe_stem { RECIPE_STEM_AUTO, RECIPE_STEM_IMAGENET, RECIPE_STEM_CIFAR, RECIPE_STEM_DEEP };
enum recipe_stride_in { RECIPE_STRIDE_IN_3X3, RECIPE_STRIDE_IN_1X1 };
enum recipe_downsample { RECIPE_DOWNSAMPLE_CONV, RECIPE_DOWNSAMPLE_AVERAGE };
enum recipe_blur { RECIPE_BLUR_NONE, RECIPE_BLUR_CONVS, RECIPE_BLUR_ALL };
enum recipe_pool { RECIPE_POOL_CLASS, RECIPE_POOL_AVERAGE };
enum recipe_activation { RECIPE_ACTIVATION_RELU, RECIPE_ACTIVATION_GELU };

struct recipe_numbers {
	bool word; /* no numbers, but the key's word: the run determines the numbers */
	unsigned count;
	double value[RECIPE_NUMBERS_MAX];
};

/* Lists of equally many numbers, each valid from an epoch on. */
struct recipe_stages {
	unsigned count;                         /* numbers in each list; 0: none */
	unsigned stages;                        /* lists; 0 if count is 0 */
	double from[RECIPE_STAGES_MAX];         /* [stages], in epochs, ascending from 0 */
	double value[RECIPE_STAGE_NUMBERS_MAX]; /* [stages][count] */
};

/*
 * Declares struct recipe_data with the keys of section data, and likewise the other sections. A
 * value of type RECIPE_WORD is stored as an index into the key's words; the enums above, in the
 * device's headers and in schedules.h name the indices.
 */
/* clang-format off */
#define SECTION(section) struct recipe_##section {
#define END() };
#define TEXT(section, name, ...) char *name;
#define ONE_OF(section, name, ...) char *name;
#define INTEGER(section, name, ...) uint64_t name;
#define STEPS(section, name, ...) uint64_t name;
#define OR_AUTO(section, name, ...) uint64_t name;
#define NUMBER(section, name, ...) double name;
#define BOOLEAN(section, name, ...) bool name;
#define WORD(section, name, ...) int name;
#define NUMBERS(section, name, ...) struct recipe_numbers name;
#define NUMBERS_OR(section, name, ...) struct recipe_numbers name;
#define STAGES(section, name, ...) struct recipe_stages name;
#define OPTIM_NUMBER(name, ...) double name;
#define OPTIM_BOOLEAN(name, ...) bool name;
#define OPTIM_COUNT(name, ...) uint64_t name;
#define LOG_BOOLEAN(name, ...) bool name;
/* clang-format on */
#include "trainer/recipe/recipe_keys.inc"

struct recipe {
	struct recipe_data data;
	struct recipe_model model;
	struct recipe_optim optim;
	struct recipe_schedule schedule;
	struct recipe_train train;
	struct recipe_log log;
	struct recipe_checkpoint checkpoint;
};

/* Effect of changing a key when a run is resumed. */
enum recipe_resume {
	RECIPE_FREE, /* no effect on losses */
	/* affects only evaluations; treated as RECIPE_TRAJECTORY with schedule.name = plateau */
	RECIPE_EVALUATION,
	RECIPE_TRAJECTORY, /* changes later losses; refused unless the user allows changes */
	RECIPE_FIXED,      /* the checkpoint cannot be resumed with another value */
	/* as RECIPE_FIXED; also, the weights cannot be evaluated with another value */
	RECIPE_WEIGHTS,
};

enum recipe_type {
	RECIPE_TEXT,
	RECIPE_INTEGER,
	RECIPE_NUMBER,
	RECIPE_BOOLEAN,
	RECIPE_WORD,
	RECIPE_NUMBERS,
	RECIPE_STAGES,
};

struct recipe_key {
	const char *section, *name;
	enum recipe_type type;
	size_t offset;        /* offset of the field in struct recipe */
	const char *fallback; /* default value, as text */
	double min, max;      /* bounds of integers, numbers and numbers in lists */
	/*
	 * "a|b|c", or NULL. The meaning depends on the type:
	 * - RECIPE_WORD: the value is the word's index
	 * - RECIPE_TEXT: the allowed values; NULL allows any
	 * - RECIPE_INTEGER: a single word, stored as 0: the run determines the value
	 * - RECIPE_NUMBERS: a single word instead of a list: the run determines the numbers
	 */
	const char *words;
	enum recipe_resume resume;
	const char *help;
	/* RECIPE_INTEGER: allowed values are min, min + step, ... up to max; 0 allows all */
	unsigned step;
};

extern const struct recipe_key recipe_keys[];
extern const size_t recipe_keys_count; /* at most RECIPE_KEYS_MAX */
enum { RECIPE_KEYS_MAX = 256 };

/* Sections in printing order, each with a line of help. */
struct recipe_section {
	const char *name, *help;
};
extern const struct recipe_section recipe_sections[];
extern const size_t recipe_sections_count;

/* Sets all defaults. 0 or -ENOMEM. */
int recipe_init(struct recipe *recipe);
void recipe_deinit(struct recipe *recipe);

/*
 * The following functions return -EINVAL for an invalid recipe, or another negative errno, with a
 * sentence in error (RECIPE_ERROR_MAX bytes).
 */
int recipe_load(struct recipe *recipe, const char *path, char *error);
/* Reads a recipe from a string. name: file name to print in errors. */
int recipe_load_text(struct recipe *recipe, const char *name, const char *text, char *error);
/* Applies one override "section.key=value". */
int recipe_override(struct recipe *recipe, const char *argument, char *error);
/* The datasets that data.train lists; recipe_paths_free() frees them. */
struct recipe_paths {
	const char **path; /* [count] */
	unsigned count;    /* at least 1; an unset data.train is one empty path */
	char *text;        /* storage of the paths */
};
int recipe_train_paths(const struct recipe_data *data, struct recipe_paths *ret_paths, char *error);
void recipe_paths_free(struct recipe_paths *paths);
/*
 * With data.epoch_samples: batches of an epoch, and the first batch of a stage of data.shares,
 * counted from the start of the run. They are batches of all ranks.
 */
uint64_t recipe_epoch_batches(const struct recipe_data *data);
uint64_t recipe_stage_batch(const struct recipe_data *data, unsigned stage);
/* Checks constraints between keys. With `trains`, also requires data.train. */
int recipe_check(const struct recipe *recipe, bool trains, char *error);

/* Formats a key's value so that it reads back unchanged. Returns the length or -ENOSPC. */
int recipe_key_text(const struct recipe *recipe, const struct recipe_key *key, char *text,
		    size_t size);
/* Writes every key. */
int recipe_write(const struct recipe *recipe, FILE *file);
/* Prints every key with type, default and meaning, for a terminal. */
void recipe_help(FILE *file);
/* Prints the same in scdoc format, for the manual page. */
void recipe_help_scdoc(FILE *file);

/* Number of micro-batches per batch; 1 while train.accumulate = auto is not resolved. */
uint32_t recipe_accumulate(const struct recipe *recipe);

/*
 * Compares a recipe with a checkpoint's. Returns 0 if the run may resume, or -EINVAL naming the
 * first key that prevents it. Keys whose `resume` is below `fixed` may differ. fixed:
 * - RECIPE_TRAJECTORY for losses equal to those of an uninterrupted run
 * - RECIPE_FIXED if changes of losses are allowed
 * - RECIPE_WEIGHTS to evaluate
 *
 * An auto value matches any saved number.
 */
int recipe_compare(const struct recipe *recipe, const struct recipe *saved,
		   enum recipe_resume fixed, char *error);
