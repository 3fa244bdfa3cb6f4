/*
 * Prints replies on standard output, as text for people or as JSON for programs. Text from clients
 * and datasets is printed without terminal control characters. JSON keys are the names of
 * feed.proto. One thread.
 */
#pragma once

#include "proto/feed.pb-c.h"

#include <stdbool.h>

/*
 * before: an earlier status, so that rates cover the interval between the two; NULL for the time
 * since start. all: the status covers all users; it has no idle time, because each user's worker
 * has threads of its own.
 */
void render_status(const Loaderd__Status *status, const Loaderd__Status *before, bool all);
void render_bad_samples(const Loaderd__Status *status);
void render_dataset(const Loaderd__Dataset *dataset);

/* Each prints one line and returns 0 or -ENOMEM. */
int render_status_json(const Loaderd__Status *status);
int render_bad_json(const Loaderd__Status *status);
int render_dataset_json(const Loaderd__Dataset *dataset);
