/*
 * digest: one hash over the batches of a feed, to show that what is delivered depends on nothing
 * but the request.
 *
 * Hashed are, batch by batch, epoch, number, shape, images, labels, sample numbers and flags. On
 * the way the feed may be closed and opened again at its position, and a private daemon killed and
 * started again; the hash must not notice.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bench/measure/point.h"

struct digest_plan {
	uint64_t batches;
	const unsigned *
		/* after so many batches: close and open at the position reached; ascending */
		reopen;
	size_t reopen_count;
	const unsigned *kill; /* after so many batches: kill the daemon, start another; ascending */
	size_t kill_count;
};

/* text has room for 33 bytes: 32 hexadecimal digits of an XXH3-128. */
int digest_measure(const struct settings *settings, const struct point *point,
		   const struct digest_plan *plan, char *ret_text, char *error);
