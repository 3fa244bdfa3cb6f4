/*
 * What status says of a feed's order: parts, shares in the stage of the feed's position, buckets
 * and packs. A subscription keeps copies of its request's choices for it, which do not change.
 */
#pragma once

#include "loaderd/io/dataset.h"
#include "loaderd/order/order.h"
#include "proto/feed.pb-c.h"

enum {
	ORDER_STATUS_PARTS = 16,       /* parts shown */
	ORDER_STATUS_WHERE_MAX = 1024, /* bytes kept of a filter, with the NUL */
};

struct order_choices {
	Loaderd__Choice *choice[ORDER_STATUS_PARTS]; /* owned; NULL: all samples */
};

/* Copies the choices of the parts that are shown. -ENOMEM; the caller frees them in any case. */
int order_choices_keep(const Loaderd__OpenFeed *request, struct order_choices *ret_choices);
void order_choices_free(struct order_choices *choices); /* accepts zeros */
/*
 * Makes the message for a position, in one block that refers to its arguments; free() it. order has
 * a sampler. Returns NULL without memory.
 */
Loaderd__OrderStatus *order_status_new(const struct order *order, const struct dataset *dataset,
				       const struct order_choices *choices, uint64_t epoch,
				       uint64_t batch);
