/*
 * Inside of a writer: writer.c takes samples in, publish.c ends shards and publishes the dataset,
 * facts.c holds what is said once per dataset. Memory is bounded: one write buffer, one block per
 * stream, a few hundred bytes per shard, and the facts themselves. Owned by its creator, used by
 * one thread.
 */
#pragma once

#include "format/layout.h"
#include "format/packimg.h"
#include "format/write/column.h"
#include "format/write/output.h"
#include "format/write/partial.h"
#include "format/write/spool.h"

#include <xxhash.h>

struct metadata_entry {
	char *key;
	char *value; /* as stored: line feeds and backslashes escaped */
};

/* What is said once per dataset and stored in every shard. */
struct facts {
	char *classes; /* section bytes */
	size_t classes_size;
	uint32_t class_count;
	struct metadata_entry *metadata; /* sorted by key */
	size_t metadata_count;
	bool has_statistics;
	double mean[3], std[3];
};

/* A shard whose samples are written; its header is not. */
struct shard_done {
	uint64_t sample_first, sample_count;
	uint64_t size; /* bytes so far */
	struct pimg_section sections[PIMG_SECTION_KNOWN_MAX];
	uint32_t section_count;
	struct pimg_column *columns; /* of the fields known when the shard ended */
	uint32_t column_count;
};

struct packimg_writer {
	char path[SET_PATH_MAX];
	uint64_t shard_size; /* 0: one file */
	bool alone;          /* as the option of that name */
	bool has_uuid;
	uint8_t uuid[16];
	XXH3_state_t *identity; /* of the samples so far, for the UUID */
	struct partial partial;

	uint8_t *buffer;
	struct output output; /* the current shard; fd -1 between shards */
	struct spool spool;
	struct spool_stream index, source_offsets, sources;
	bool has_sources;
	uint64_t source_longest;             /* bytes, of all shards so far */
	uint64_t sample_first, sample_count; /* of the current shard */
	int32_t label_max;

	struct column *columns; /* PACKIMG_FIELDS_MAX */
	uint32_t column_count;
	struct facts facts;

	struct shard_done *shards;
	uint32_t shard_count;
	uint64_t shards_size; /* bytes of the shards that ended */

	int failed; /* the first failure to write: the writer is of no use any more */
	bool finished;
};

int facts_classes(struct facts *facts, const char *const *names, uint32_t class_count,
		  struct packimg_error *error);
int facts_metadata(struct facts *facts, const char *key, const char *value,
		   struct packimg_error *error);
/* The metadata section, terminated, which the caller frees. Without any nothing is written. */
int facts_metadata_build(const struct facts *facts, void **ret_text, size_t *ret_size);
void facts_deinit(struct facts *facts);

/* Opens the next shard. */
int shard_begin(struct packimg_writer *writer);
/* Writes the sections of the current shard's samples and closes it. */
int shard_end(struct packimg_writer *writer);
