/*
 * Datasets in stores: what this user's loaderd-fetch does, and what its cache holds. Printed on
 * standard output, as text for people or as one line of JSON. One thread. Errors are a negative
 * errno, with a message in error (FEED_ERROR_MAX bytes).
 */
#pragma once

#include <stdbool.h>

int remote_status(bool json, char *error);
/* Removes the dataset of an address from the cache, or all with NULL; not those that are open. */
int remote_clear(const char *url, bool json, char *error);
