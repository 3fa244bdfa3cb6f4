/*
 * Internals of joined datasets: join.c joins and delegates look-ups, join_classes.c joins class
 * names, join_schema.c schemas and fields. Immutable after packimg_join().
 */
#pragma once

#include "format/join.h"
#include "format/reader.h"

/* One dataset of a joined one, and how its numbers follow from the joined ones. */
struct join_part {
	struct packimg *dataset; /* owned */
	/* joined number of each of the part's classes; NULL if they are the same */
	int32_t *labels;
	bool unnamed; /* has no class names, though another part has */
	/* numbers in the part of the joined fields and images */
	uint16_t fields[PACKIMG_FIELDS_MAX];
	uint16_t images[SCHEMA_IMAGES_MAX];
};

struct join {
	uint32_t part_count;
	struct join_part *parts;
	/* number of the first sample and the first shard of each part, then the total */
	uint64_t *firsts, *shard_firsts;
};

/* Frees the join and closes its parts. */
void join_free(struct join *join);
/* Returns the path of a dataset that is not joined, for messages. */
const char *join_path(const struct packimg *part);

/* Sets classes, class_count and the parts' labels. Errors as packimg_join(). */
int join_classes(struct packimg *joined, struct packimg_error *error);
/*
 * Sets schema, fields, image_count, source_longest and the parts' fields and images, after
 * join_classes(). Errors as packimg_join().
 */
int join_schema(struct packimg *joined, struct packimg_error *error);

/*
 * The functions of packimg.h for a joined dataset. The callers have checked index, field, image and
 * shard.
 */
int join_sample(const struct packimg *joined, uint64_t index, struct packimg_sample *ret_sample);
int join_image(const struct packimg *joined, uint64_t index, uint32_t image,
	       struct packimg_sample *ret_image);
int join_source(const struct packimg *joined, uint64_t index, const char **ret_name,
		size_t *ret_size);
int join_value(const struct packimg *joined, uint64_t index, uint32_t field,
	       struct packimg_value *ret_value);
int join_read(const struct packimg *joined, uint64_t index, const void *at, void *bytes,
	      size_t size);
int join_shard(const struct packimg *joined, uint32_t shard, struct packimg_shard *ret_shard);
int join_check(const struct packimg *joined, struct packimg_error *error);
