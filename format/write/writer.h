/*
 * Internals of a writer. writer.c appends samples, commit.c ends shards and commits the dataset,
 * dataset_info.c holds the data that is stored once per dataset. Memory is bounded: one write
 * buffer, one block per stream, a few hundred bytes per shard, and the classes and metadata. Owned
 * by its creator, used by one thread.
 */
#pragma once

#include "format/base/schema.h"
#include "format/layout.h"
#include "format/packimg.h"
#include "format/reader.h"
#include "format/write/column.h"
#include "format/write/output.h"
#include "format/write/spool.h"
#include "format/write/temp_files.h"

#include <xxhash.h>

struct metadata_entry {
	char *key;
	char *value; /* as stored: line feeds and backslashes escaped */
};

/* Data set once per dataset and stored in every shard. */
struct dataset_info {
	char *classes; /* bytes of the classes section */
	size_t classes_size;
	uint32_t class_count;
	struct metadata_entry *metadata; /* sorted by key */
	size_t metadata_count;
	bool has_statistics;
	double mean[3], std[3];
};

/* A shard whose samples are written, but not its header. */
struct shard_done {
	uint64_t sample_first, sample_count;
	uint64_t size; /* bytes written so far */
	struct pimg_section sections[PIMG_SECTION_KNOWN_MAX];
	uint32_t section_count;
	struct pimg_column *columns; /* columns of the fields declared before the shard ended */
	uint32_t column_count;
};

struct packimg_writer {
	char path[SHARD_SET_PATH_MAX];
	uint64_t shard_size; /* 0 for one file */
	bool alone;          /* see packimg_writer_options */
	bool has_uuid;
	uint8_t uuid[16];
	XXH3_state_t *identity; /* hash of the samples so far, for the UUID */
	struct temp_files temp_files;

	uint8_t *buffer;
	struct output output; /* file of the current shard; fd is -1 between shards */
	struct spool spool;
	struct spool_stream index, source_offsets, sources;
	bool has_sources;
	uint64_t source_longest; /* bytes of the longest source name in all shards so far */
	uint64_t sample_first, sample_count; /* of the shard being written */
	int32_t label_max;

	struct column *columns; /* array of PACKIMG_FIELDS_MAX columns */
	uint32_t column_count;
	struct dataset_info info;

	/* NULL without one; its largest sizes are those of the samples so far */
	struct schema *schema;
	int64_t class_max; /* largest class number in values of role class */
	uint32_t image_count;
	struct spool_stream images;
	bool has_raster;

	/* The sample added last, until it is complete. */
	bool sample_open;
	uint64_t rows[SCHEMA_VALUES_MAX]; /* of each value */
	struct sample_records last;       /* images are absent until they are set */

	struct shard_done *shards;
	uint32_t shard_count;
	uint64_t shards_size; /* bytes of the finished shards */

	int failed;   /* errno of the first write failure, negative; all later calls return it */
	bool renamed; /* all shards have their final names */
	bool finished;
};

int dataset_info_classes(struct dataset_info *info, const char *const *names, uint32_t class_count,
			 struct packimg_error *error);
int dataset_info_metadata(struct dataset_info *info, const char *key, const char *value,
			  struct packimg_error *error);
/*
 * Serialises the metadata section, terminated; the caller frees it. Leaves the outputs unchanged if
 * there is no metadata.
 */
int dataset_info_build_metadata(const struct dataset_info *info, void **ret_text, size_t *ret_size);
void dataset_info_deinit(struct dataset_info *info);

int writer_check(const struct packimg_writer *writer, struct packimg_error *error);
/* Marks the writer as failed; the error message names the target. */
int writer_fail(struct packimg_writer *writer, int r, struct packimg_error *error);
/*
 * Returns the reason why an item is invalid, as the end of a sentence; NULL if it is valid. The
 * reason may be stored in `room`.
 */
const char *writer_item_fault(const struct packimg_item *item, struct packimg_error *room);
/* Writes data and side data, and sets all of the record but the label. */
int writer_put_stored(struct packimg_writer *writer, const struct packimg_item *item,
		      struct pimg_record *ret_record);

/*
 * Schema; each function does nothing without one. writer_schema_check_value() returns -EINVAL if a
 * value contradicts the schema. writer_schema_end_sample() writes the records of the last sample,
 * or returns -EINVAL if the sample is incomplete; the caller may then complete it.
 * writer_schema_item_fault() returns the end of a sentence, or NULL. The note functions collect the
 * largest sizes.
 */
int writer_schema_check_value(struct packimg_writer *writer, uint32_t field,
			      const struct packimg_value *stored, struct packimg_error *error);
void writer_schema_note_value(struct packimg_writer *writer, uint32_t field,
			      const struct packimg_value *stored);
int writer_schema_end_sample(struct packimg_writer *writer, struct packimg_error *error);
const char *writer_schema_item_fault(const struct packimg_writer *writer,
				     const struct packimg_item *item);
void writer_schema_note_item(struct packimg_writer *writer, const struct pimg_record *record);
/*
 * Serialises the section, with the lengths of the samples so far; the caller frees it. Leaves the
 * outputs unchanged without a schema.
 */
int writer_schema_pack(struct packimg_writer *writer, void **ret_bytes, size_t *ret_size);
int writer_schema_hash(const struct packimg_writer *writer, XXH3_state_t *state);

/* Opens the next shard. */
int shard_begin(struct packimg_writer *writer);
/* Writes the per-sample sections of the current shard and closes its file. */
int shard_end(struct packimg_writer *writer);
