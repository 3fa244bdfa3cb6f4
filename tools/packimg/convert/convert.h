/*
 * A conversion: lists sources into a catalogue. Workers encode its samples in blocks, and the main
 * thread writes the blocks in order, so that the result does not depend on the number of workers.
 * Sequence: parse options, convert_list(), convert_assign(), convert_write(), report. The worker
 * threads exist only inside convert_write().
 */
#pragma once

#include "tools/packimg/common/brace_expand.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/split_spec.h"
#include "tools/packimg/convert/annotations.h"
#include "tools/packimg/convert/class_names.h"
#include "tools/packimg/image/sample_encoder.h"
#include "tools/packimg/source/catalog.h"
#include "tools/packimg/source/ignored_files.h"

/* One dataset to write: all samples, or a part of a split. */
struct convert_part {
	const char *name;             /* name of the part; NULL for all samples */
	double fraction;              /* fraction of the samples; 0 if the part is a folder */
	char *path;                   /* as the user names it; may be an address */
	struct remote_output *remote; /* of an address, else NULL */
	const char *written;          /* the path to write to: that one, or remote's */
	struct packimg_writer *writer;
	struct statistics statistics;
	uint64_t samples;
	uint64_t bytes; /* size of the finished files in bytes */
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
	uint64_t limit; /* maximum number of samples to convert; 0 for no limit */
	/*
	 * images from which to compute statistics when bytes stay verbatim; UINT64_MAX for the
	 * default number
	 */
	uint64_t statistics;
	unsigned jobs;
	bool split_folders; /* the parts are the folders train, val and so on */
	bool shuffle, force, fail_on_error, json, quiet;
};

struct convert_skip {
	const char *name, *reason; /* name is at most PACKIMG_SOURCE_MAX bytes */
};

/* The longest value of a field. */
struct convert_longest {
	uint64_t size;      /* bytes */
	const char *sample; /* name of the sample, in the catalogue's arena */
};

/*
 * State of a conversion, and data for its report. Notes are messages about automatic decisions that
 * the user may not have intended; each names the option that overrides it.
 */
struct convert {
	struct convert_options options;
	struct convert_part parts[SPLIT_PARTS_MAX];
	uint32_t part_count;
	struct catalog catalog;
	struct ignored_files ignored;
	struct annotations annotations;
	struct class_rule class_rule;
	/* Results; arrays and strings are in the catalogue's arena. */
	struct convert_skip *skips;
	size_t skip_count, skip_capacity;
	struct string_list notes;
	/* class_names from this number on belong to empty folders */
	uint32_t first_empty_class;
	uint64_t *class_samples;     /* number of samples written, by label */
	uint64_t unlabelled;         /* number of samples written without a label */
	const char *unlabelled_name; /* name of the first sample written without a label */
	uint64_t lossy[IMAGE_KINDS]; /* number of non-JPEG images that became JPEGs, by kind */
	uint64_t bytes_in;           /* total size of the source images in bytes */
	/* numbers of samples; by enum image_kind and by enum packimg_codec */
	uint64_t verbatim, transcoded, indexed, kinds[IMAGE_KINDS], codecs[4];
	struct unindexed_counts unindexed;
	/* by the catalogue's field number */
	struct convert_longest longest[PACKIMG_FIELDS_MAX];
	double list_s, write_s;
};

/*
 * Fills convert->options, and the sources that they reference. Ends the process with a message if
 * the command line is invalid.
 */
void convert_parse(struct convert *convert, int argc, char **argv, struct string_list *sources);
int convert_list(struct convert *convert, struct packimg_error *error);
/* With --split folders, determines the parts. */
int convert_find_parts(struct convert *convert, struct packimg_error *error);
/* Determines the order, applies the limit, and assigns parts and labels. */
int convert_assign(struct convert *convert, struct packimg_error *error);
/* Returns 0, -EINTR after a signal, or an error. Leaves no files behind on failure. */
int convert_write(struct convert *convert, struct packimg_error *error);
/*
 * Turns empty folders into classes, after listing and before numbering, and adds notes on folders
 * without images. 0 or -ENOMEM.
 */
int convert_add_empty_classes(struct convert *convert);
/* Add notes on the listing and on the written samples. 0 or -ENOMEM. */
int convert_note_listing(struct convert *convert);
int convert_note_writing(struct convert *convert);
/*
 * Formats the error that no image remains to be converted, with the reason of the first skipped
 * one.
 */
int convert_nothing(const struct convert *convert, struct packimg_error *error);
int convert_skip(struct convert *convert, const char *name, const char *reason);
/*
 * Writes the producer. Unless there were no pixels, also writes mean and deviation, and the numbers
 * of images and pixels on which they are based.
 */
int convert_write_dataset_info(struct packimg_writer *writer, const struct statistics *statistics,
			       struct packimg_error *error);
/* Returns the number of samples written. */
uint64_t convert_sample_count(const struct convert *convert);
int convert_report(struct convert *convert);
int convert_report_json(struct convert *convert);
