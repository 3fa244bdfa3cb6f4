/*
 * A recipe: everything that decides what a training run does, read from an INI file and from
 * section.key=value overrides.
 *
 * One table (recipe_keys.inc) names every key with its type, bounds, default and meaning; fields,
 * parsing, printing, `--help-recipe` and the manual page all come from it. A recipe is filled by
 * one thread before the run and is read-only afterwards; it owns its texts. Mistakes are answered
 * with where (file:line or the argument), which key, what was expected, and the nearest key.
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
	RECIPE_ERROR_MAX = 1024,  /* bytes of an error text */
	RECIPE_TEXT_MAX = 4096,   /* bytes of one value */
	RECIPE_NUMBERS_MAX = 128, /* numbers in a list */
};

enum recipe_decay { RECIPE_COUPLED, RECIPE_DECOUPLED };
enum recipe_lr_base_scale { RECIPE_SCALE_LINEAR, RECIPE_SCALE_SQRT };
enum recipe_anneal { RECIPE_ANNEAL_LINEAR, RECIPE_ANNEAL_COSINE };
enum recipe_loss { RECIPE_LOSS_SOFTMAX, RECIPE_LOSS_SIGMOID, RECIPE_LOSS_KL };
enum recipe_mix_by { RECIPE_MIX_BY_BATCH, RECIPE_MIX_BY_PAIR, RECIPE_MIX_BY_SAMPLE };
enum recipe_metric { RECIPE_METRIC_LOSS, RECIPE_METRIC_TOP1 };
enum recipe_progress {
	RECIPE_PROGRESS_AUTO,
	RECIPE_PROGRESS_BAR,
	RECIPE_PROGRESS_PLAIN,
	RECIPE_PROGRESS_OFF
};
enum recipe_augment { RECIPE_AUGMENT_DAEMON, RECIPE_AUGMENT_DEVICE };
enum recipe_stem { RECIPE_STEM_AUTO, RECIPE_STEM_IMAGENET, RECIPE_STEM_CIFAR, RECIPE_STEM_DEEP };
enum recipe_stride_in { RECIPE_STRIDE_IN_3X3, RECIPE_STRIDE_IN_1X1 };
enum recipe_downsample { RECIPE_DOWNSAMPLE_CONV, RECIPE_DOWNSAMPLE_AVERAGE };
enum recipe_blur { RECIPE_BLUR_NONE, RECIPE_BLUR_CONVS, RECIPE_BLUR_ALL };
enum recipe_pool { RECIPE_POOL_CLASS, RECIPE_POOL_AVERAGE };
enum recipe_activation { RECIPE_ACTIVATION_RELU, RECIPE_ACTIVATION_GELU };

struct recipe_numbers {
	bool word; /* the key's, in place of numbers: of what the run is to find itself */
	unsigned count;
	double value[RECIPE_NUMBERS_MAX];
};

/*
 * struct recipe_data with the keys of section data, and so on. A word is its position among the
 * words, which enums above, of the device, or of schedules.h name.
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

/* What a change of a key means for a run that is resumed. */
enum recipe_resume {
	RECIPE_FREE,       /* may change: losses stay what they would have been */
	RECIPE_EVALUATION, /* the same, unless schedule.name = plateau follows evaluations */
	RECIPE_TRAJECTORY, /* changes the losses to come: refused unless asked for */
	RECIPE_FIXED,      /* the checkpoint cannot be continued under another value */
	RECIPE_WEIGHTS,    /* nor can its weights be evaluated */
};

enum recipe_type {
	RECIPE_TEXT,
	RECIPE_INTEGER,
	RECIPE_NUMBER,
	RECIPE_BOOLEAN,
	RECIPE_WORD,
	RECIPE_NUMBERS,
};

struct recipe_key {
	const char *section, *name;
	enum recipe_type type;
	size_t offset;        /* of the field in struct recipe */
	const char *fallback; /* value when nothing sets it, as text */
	double min, max;      /* integers, numbers and lists of them */
	/*
	 * "a|b|c". RECIPE_WORD: the value is the word's position; RECIPE_TEXT: it is one of them,
	 * NULL: any; RECIPE_INTEGER: one word, that 0 goes by, of what the run is to find itself,
	 * NULL: none; RECIPE_NUMBERS: the same in place of a list
	 */
	const char *words;
	enum recipe_resume resume;
	const char *help;
	unsigned step; /* RECIPE_INTEGER: min, min + step, ... up to max; 0: every whole number */
};

extern const struct recipe_key recipe_keys[];
extern const size_t recipe_keys_count; /* at most RECIPE_KEYS_MAX */
enum { RECIPE_KEYS_MAX = 256 };

/* One line about each section, in the order in which they are printed. */
struct recipe_section {
	const char *name, *help;
};
extern const struct recipe_section recipe_sections[];
extern const size_t recipe_sections_count;

/* Fills in the defaults. 0 or -ENOMEM. */
int recipe_init(struct recipe *recipe);
void recipe_deinit(struct recipe *recipe);

/*
 * All of these write a sentence to error (RECIPE_ERROR_MAX bytes) and return -EINVAL on a mistake,
 * other negative errno otherwise.
 */
int recipe_load(struct recipe *recipe, const char *path, char *error);
/* Reads the text of a recipe; name stands for the file in errors. */
int recipe_load_text(struct recipe *recipe, const char *name, const char *text, char *error);
/* One override "section.key=value". */
int recipe_override(struct recipe *recipe, const char *argument, char *error);
/* Checks what no key can be blamed for alone. trains: needs data.train. */
int recipe_check(const struct recipe *recipe, bool trains, char *error);

/* The value of a key as text that reads back to the same value. Returns size or -ENOSPC. */
int recipe_key_text(const struct recipe *recipe, const struct recipe_key *key, char *text,
		    size_t size);
/* Complete recipe, every key in it. */
int recipe_write(const struct recipe *recipe, FILE *file);
/* Every key with type, default and meaning, for a terminal. */
void recipe_help(FILE *file);
/* The same in scdoc, for the manual page. */
void recipe_help_scdoc(FILE *file);

/*
 * Micro-batches of each batch; 1 where they are yet to be found (train.accumulate = auto).
 */
uint32_t recipe_accumulate(const struct recipe *recipe);

/*
 * Compares a recipe with that of a checkpoint. 0 when the run may go on; -EINVAL with the first key
 * that forbids it. Keys may differ whose change means less than `least`: RECIPE_TRAJECTORY for an
 * unbroken run, RECIPE_FIXED where that is waived, RECIPE_WEIGHTS to evaluate. A number that is to
 * be found (auto) agrees with the one that was.
 */
int recipe_compare(const struct recipe *recipe, const struct recipe *saved,
		   enum recipe_resume least, char *error);
