/*
 * Answers as text for people and as JSON for programs, on standard output. Text that a client or a
 * dataset supplied is shown without characters that a terminal would obey. JSON has the names of
 * feed.proto. One thread.
 */
#pragma once

#include "proto/feed.pb-c.h"

#include <stdbool.h>

/*
 * before is an earlier status for rates over the time between the two, or NULL. all: of all users,
 * whose workers' threads have no common time to be idle in.
 */
void render_status(const Loaderd__Status *status, const Loaderd__Status *before, bool all);
void render_bad_samples(const Loaderd__Status *status);
void render_dataset(const Loaderd__Dataset *dataset);

/* One line each. Return 0 or -ENOMEM. */
int render_status_json(const Loaderd__Status *status);
int render_bad_json(const Loaderd__Status *status);
int render_dataset_json(const Loaderd__Dataset *dataset);
