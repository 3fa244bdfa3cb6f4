/*
 * One extra field while it is written: presence bits, values and bytes of the samples of the
 * current shard, in streams of the writer's spool (SPEC.md, "Columns"). Missing values are filled
 * in late, so that a sample pays only for the fields it has. Owned by one writer, used by one
 * thread.
 */
#pragma once

#include "format/layout.h"
#include "format/packimg.h"
#include "format/write/spool.h"

struct column {
	char *name;
	enum packimg_field_type type;
	uint64_t longest;  /* bytes, of the values of all shards so far */
	uint64_t identity; /* of the values of all shards so far, by their samples */
	struct spool_stream present;
	struct spool_stream values;
	struct spool_stream bytes;
	uint64_t filled; /* samples of the shard that have their entry */
	uint8_t bits;    /* presence of the samples since the last multiple of 8 */
	bool used;       /* the shard has a value */
};

/* The name is copied. */
int column_init(struct column *column, const char *name, enum packimg_field_type type);
void column_deinit(struct column *column);
/* Sets the value of sample number `sample` of the shard; -EEXIST when it has one already. */
int column_set(struct column *column, struct spool *spool, uint64_t sample,
	       const struct packimg_value *value);
/*
 * Writes the column of sample_count samples and starts it anew for the next shard. All zero when no
 * sample has a value.
 */
int column_finish(struct column *column, struct spool *spool, uint64_t sample_count,
		  struct output *output, struct pimg_column *ret_column);
