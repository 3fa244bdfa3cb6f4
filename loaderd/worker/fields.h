/*
 * Which extra fields a feed delivers, and what room their values get: the names of a request held
 * against the dataset, what it records of their lengths, and the daemon's limits.
 */
#pragma once

#include "loaderd/worker/subscription.h"

/* Negative errno with the refusal filled in. */
int fields_choose(const Loaderd__OpenFeed *request, const struct config *config,
		  const struct dataset *dataset, struct value_columns *ret_columns,
		  struct refusal *refusal);
