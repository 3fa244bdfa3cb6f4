/*
 * Limits how often each user may connect: one token bucket per uid. A user without an entry takes
 * over the entry with the fullest bucket and keeps its fill level. So no user exceeds its rate;
 * while more than RATE_LIMIT_USERS users connect within a second, a user may get less (the
 * space-saving algorithm: Metwally, Agrawal and El Abbadi, 2005). Supervisor thread only.
 * Zero-initialised.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	CONNECTS_AT_ONCE = 1024,    /* burst of one user */
	CONNECTS_PER_SECOND = 1000, /* sustained rate of one user */
	RATE_LIMIT_USERS = 256,
};

struct rate_limit {
	struct {
		uid_t uid;
		uint64_t full_ns; /* when the bucket is full again; 0 if the entry is unused */
	} users[RATE_LIMIT_USERS];
};

/* Takes a token from the user's bucket. Returns false if the bucket is empty. */
bool rate_limit_take(struct rate_limit *limit, uid_t uid, uint64_t now_ns);
