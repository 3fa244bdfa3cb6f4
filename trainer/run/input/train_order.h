/*
 * The order of training samples: the datasets that data.train lists, and which of their samples
 * come how often, in the form that libfeed takes. Made from the recipe by data_open(), which fills
 * in what it finds out about the datasets; read-only afterwards. Owned by struct data.
 */
#pragma once

#include "format/base/uuid.h"
#include "proto/client/feed.h"
#include "trainer/recipe/recipe.h"

/* A dataset that data.train lists. */
struct train_dataset {
	const char *path;
	/*
	 * part of all samples that are drawn from it, over the whole run, if each stage of the
	 * shares lasts equally long; the sum over the datasets is 1
	 */
	double drawn;
	/* as the daemon reported them to data_open(); zeros before */
	struct uuid uuid;
	uint64_t samples;
};

struct train_order {
	struct train_dataset *datasets; /* [count] */
	uint32_t count;
	/* false: the feed is of one dataset with all its samples, and `feed` is not used */
	bool chooses;
	struct feed_order feed;
	/* what `feed` points to */
	struct recipe_paths paths;
	struct feed_part *parts;            /* [count] */
	const struct feed_part **part_list; /* [count] */
	uint32_t *share_list;               /* [stages][count] */
	float class_weights[RECIPE_NUMBERS_MAX];
	struct feed_stage
		stages[RECIPE_STAGES_MAX]; /* one, with equal shares, without data.shares */
};

/* The largest sum of shares that a feed takes (feed_stage.shares). */
enum { TRAIN_ORDER_SHARES_MAX = 65536 };

/* error: RECIPE_ERROR_MAX bytes. -EINVAL if the recipe is invalid, or -ENOMEM. */
int train_order_new(const struct recipe_data *recipe, struct train_order **ret_order, char *error);
void train_order_free(struct train_order *order); /* accepts NULL */
/*
 * Scales shares to the smallest whole numbers in the same proportion. If these sum to more than
 * TRAIN_ORDER_SHARES_MAX, takes the nearest that do not; a share above 0 stays above 0. shares:
 * [count], not all 0, of at most nine decimals; further ones are rounded.
 */
void train_order_whole_shares(const double *shares, unsigned count, uint32_t *ret_shares);
/* Samples of all datasets. */
uint64_t train_order_samples(const struct train_order *order);
/*
 * Identifies the content of all datasets, in their order: the dataset's UUID if there is one. Zeros
 * if a UUID is unknown.
 */
void train_order_uuid(const struct train_order *order, struct uuid *ret_uuid);
