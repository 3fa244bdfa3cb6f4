/*
 * The choice of values that a feed delivers: what its files share. Called once for each feed, on a
 * job thread.
 */
#pragma once

#include "format/base/schema.h"
#include "loaderd/worker/delivery.h"

/* The name of a field for the transforms left to the client. */
#define DEFERRED "__deferred__"

/*
 * For rings of version 1: adds fields of the dataset by name, with a limited capacity. Returns
 * -EINVAL or -EDQUOT with the refusal filled in.
 */
int delivery_choose_fields(const Loaderd__OpenFeed *request, const struct config *config,
			   const struct batcher_options *options, struct value_table *values,
			   struct refusal *refusal);
/* Adds a value to the table. Fails if that is full. */
int delivery_append(struct value_table *values, const struct value *value, struct refusal *refusal);
/* Returns true if each view has the value for itself: what is in a frame, or goes with boxes. */
bool delivery_is_of_views(const struct schema *schema, unsigned number);
/*
 * Returns the word if no value of the schema has it as its name, else the first unused name made of
 * it, in `name`.
 */
const char *delivery_own_name(const struct schema *schema, const char *word,
			      char name[VALUE_OWN_NAME_SIZE]);

/*
 * Adds the sections of the targets that the pipeline makes, after all values. Returns -EINVAL or
 * -EDQUOT with the refusal filled in.
 */
int targets_choose(const Loaderd__OpenFeed *request, const struct config *config,
		   struct batcher_options *options, struct refusal *refusal);
/* Returns the number of sections of targets, which are the last. */
uint32_t targets_count(const struct value_table *values);
/* Writes the line that a schema with this value of targets would have. */
void targets_print(const struct value *value, char *line, size_t size);

/*
 * Says which of the chosen values a pipeline's mosaic joins, and refuses those that it cannot join.
 * Does nothing for other pipelines.
 */
int mosaics_choose(struct batcher_options *options, struct refusal *refusal);
/*
 * Finds among the chosen values what tells the pixels of the objects that a pipeline's copy_paste
 * pastes, and says which values follow them. Refuses a feed without such values, and what cannot be
 * pasted. Does nothing for other pipelines.
 */
int pastes_choose(struct batcher_options *options, struct refusal *refusal);
