/*
 * What the network predicts (data.target): the samples' class, or a value of the dataset's schema.
 * A list of classes, or a vector of 0 and 1 with train.loss = sigmoid, makes a multi-label network;
 * other numbers of a fixed shape are regression. Stateless functions.
 */
#pragma once

#include "format/base/uuid.h"
#include "proto/client/feed.h"
#include "trainer/recipe/recipe.h"

#include <stdbool.h>

enum target_kind { TARGET_CLASS, TARGET_MULTILABEL, TARGET_REGRESSION };

/* Plain data; all zeros for the samples' class. */
struct target {
	enum target_kind kind;
	bool list;        /* the value is a list of class numbers, else of numbers */
	uint32_t outputs; /* numbers per sample: the classes, or the elements of the value */
};

/*
 * Finds the target that the recipe names in the schema of the dataset at `path`, the value of
 * `key`. Reads the schema in this process, since the daemon reports none, and checks that the
 * daemon opened the same dataset, whose UUID is `found`. classes: of the dataset. -EINVAL if there
 * is no such value, or if no network can learn it. error: DATA_ERROR_MAX bytes.
 */
int target_find(const struct recipe *recipe, const char *key, const char *path,
		const struct uuid *found, uint32_t classes, struct target *ret_target, char *error);
/*
 * Copies the targets of a batch from a feed opened with the value `name`: ret_values
 * [count][outputs], 1 for the classes of a list and 0 for the others, or the numbers. NaN for a
 * sample without the value. The memory is untrusted: each number is copied once, then checked.
 * -EBADMSG if a number is not finite, for multi-label not 0 or 1, or no class. outputs: of the
 * network, at least the target's. error: DATA_ERROR_MAX bytes.
 */
int target_read(const struct target *target, const char *name, uint32_t outputs,
		const struct feed *feed, const struct feed_batch *batch, float *ret_values,
		char *error);
