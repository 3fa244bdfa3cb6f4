/*
 * Hashes the batches of a feed, to show that they depend on the request only.
 *
 * For each batch the hash covers epoch, number, shape, images, labels, sample numbers and flags.
 * The plan may close the feed and reopen it at its position, and kill and restart a private daemon;
 * the hash must not change.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bench/measure/point.h"

struct digest_schedule {
	uint64_t batches;
	const unsigned *
		/*
		 * numbers of batches, ascending, after which to close the feed and reopen it at its
		 * position
		 */
		reopen;
	size_t reopen_count;
	/* numbers of batches, ascending, after which to kill the daemon and start another */
	const unsigned *kill;
	size_t kill_count;
};

/* ret_text holds 33 bytes: 32 hexadecimal digits of an XXH3-128 hash, and the terminator. */
int digest_measure(const struct settings *settings, const struct point *point,
		   const struct digest_schedule *schedule, char *ret_text, char *error);
