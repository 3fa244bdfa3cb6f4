/*
 * A conversion: sources are listed into a catalogue, workers render its samples in blocks, and the
 * main thread writes the blocks in order, so that the result does not depend on the number of
 * workers. Life: options from the command line, convert_list(), convert_plan(), convert_write(),
 * report. The worker pool lives inside convert_write() only.
 */
#pragma once

#include "tools/packimg/common/brace_expand.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/split_spec.h"
#include "tools/packimg/convert/class_names.h"
#include "tools/packimg/image/sample_encoder.h"
#include "tools/packimg/source/catalog.h"
#include "tools/packimg/source/ignored_files.h"

/* One dataset that is written: the whole, or a part of a split. */
struct convert_part {
	const char *name; /* of the part; NULL: the whole */
	double fraction;  /* 0: a folder */
	char *path;
	struct packimg_writer *writer;
	struct statistics statistics;
	uint64_t samples;
	uint64_t bytes; /* of the finished files */
};

struct convert_options {
	struct sample_encoder_options encoding;
	struct source_options source;
	struct filter filter;
	struct string_list *sources;
	const char *output;
	const char *classes_file;
	struct archive_limits limits;
	uint64_t shard_size;
	uint64_t seed, split_seed;
	uint64_t limit; /* 0: none */
	/* images to look at when bytes stay verbatim; UINT64_MAX: as many as are cheap */
	uint64_t statistics;
	unsigned jobs;
	bool split_folders; /* parts are the folders train, val ... */
	bool shuffle, force, fail_on_error, json, quiet;
};

struct convert_skip {
	const char *name, *reason; /* of the name PACKIMG_SOURCE_MAX bytes at most */
};

/* The longest value of a field. */
struct convert_longest {
	uint64_t size;      /* bytes */
	const char *sample; /* its name, in the catalogue's arena */
};

/*
 * A conversion, and what it tells at the end. Notes are sentences on what was decided and may have
 * been meant otherwise, each with the option that decides so.
 */
struct convert {
	struct convert_options options;
	struct convert_part parts[SPLIT_PARTS_MAX];
	uint32_t part_count;
	struct catalog catalog;
	struct ignored_files ignored;
	struct class_rule class_rule;
	/* What happened; arrays and texts are in the catalogue's arena. */
	struct convert_skip *skips;
	size_t skip_count, skip_capacity;
	struct string_list notes;
	uint32_t first_empty_class;  /* from which on class_names are those of empty folders */
	uint64_t *class_samples;     /* written, by label */
	uint64_t unlabelled;         /* samples written without a label */
	const char *unlabelled_name; /* the first of them */
	uint64_t lossy[IMAGE_KINDS]; /* of other kinds than JPEG that became JPEGs */
	uint64_t bytes_in;           /* of source images */
	/* samples, by enum image_kind and enum packimg_codec */
	uint64_t verbatim, transcoded, indexed, kinds[IMAGE_KINDS], codecs[4];
	struct unindexed_counts unindexed;
	/* by the catalogue's numbers of fields */
	struct convert_longest longest[PACKIMG_FIELDS_MAX];
	double list_s, write_s;
};

/*
 * Fills convert->options, and sources, which they refer to; what is wrong ends the process with a
 * sentence.
 */
void convert_parse(struct convert *convert, int argc, char **argv, struct string_list *sources);
int convert_list(struct convert *convert, struct packimg_error *error);
/* --split folders: names the parts. */
int convert_find_parts(struct convert *convert, struct packimg_error *error);
/* Order, limit, split, labels. */
int convert_plan(struct convert *convert, struct packimg_error *error);
/* 0, -EINTR when a signal asked to stop, or an error. On failure nothing is left behind. */
int convert_write(struct convert *convert, struct packimg_error *error);
/*
 * Makes classes of empty folders, between listing and numbering, and notes what folders without
 * images became. 0 or -ENOMEM.
 */
int convert_add_empty_classes(struct convert *convert);
/* Notes on what was listed, and on what came of it. 0 or -ENOMEM. */
int convert_note_listing(struct convert *convert);
int convert_note_writing(struct convert *convert);
/* The error that no image was left to convert, with the reason of the first that was skipped. */
int convert_nothing(const struct convert *convert, struct packimg_error *error);
int convert_skip(struct convert *convert, const char *name, const char *reason);
/*
 * Who wrote it, and mean, deviation and what they were taken from, unless there were no pixels.
 */
int convert_write_dataset_info(struct packimg_writer *writer, const struct statistics *statistics,
			       struct packimg_error *error);
/* Samples that were written. */
uint64_t convert_sample_count(const struct convert *convert);
int convert_report(struct convert *convert);
int convert_report_json(struct convert *convert);
