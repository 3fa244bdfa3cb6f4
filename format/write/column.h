/*
 * One extra field during writing (SPEC.md, "Columns"): presence bitmap, values and bytes for the
 * samples of the current shard, in streams of the writer's spool. A sample without a value costs
 * nothing until the next value, or the end of the shard, fills the gap. Owned by one writer, used
 * by one thread.
 */
#pragma once

#include "format/layout.h"
#include "format/packimg.h"
#include "format/write/spool.h"

struct column {
	char *name;
	enum packimg_field_type type;
	uint64_t longest;  /* bytes of the longest value, over all shards so far */
	uint64_t identity; /* hash of (sample, value) over all shards so far, for the UUID */
	struct spool_stream present;
	struct spool_stream values;
	struct spool_stream bytes;
	uint64_t filled; /* number of samples of the shard that have an entry */
	uint8_t bits;    /* presence bits of an incomplete byte */
	bool used;       /* at least one sample of the shard has a value */
};

/* Initialises a column. Copies the name. */
int column_init(struct column *column, const char *name, enum packimg_field_type type);
void column_deinit(struct column *column);
/* Sets the value of sample `sample` of the current shard; -EEXIST if it already has one. */
int column_set(struct column *column, struct spool *spool, uint64_t sample,
	       const struct packimg_value *value);
/*
 * Writes the column of a shard with sample_count samples and resets it for the next shard.
 * ret_column is all zero if no sample has a value.
 */
int column_finish(struct column *column, struct spool *spool, uint64_t sample_count,
		  struct output *output, struct pimg_column *ret_column);
