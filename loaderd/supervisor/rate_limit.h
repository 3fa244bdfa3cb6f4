/*
 * How often each user may connect: a token bucket for each uid. Users who are not in the table have
 * a full bucket; the one with the fullest gives way to a newcomer. The supervisor's thread alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	CONNECTS_AT_ONCE = 1024,    /* of one user, */
	CONNECTS_PER_SECOND = 1000, /* and from then on */
	RATE_LIMIT_USERS = 256,
};

struct rate_limit {
	struct {
		uid_t uid;
		uint64_t full_ns; /* when its bucket is full again; 0: no user's */
	} users[RATE_LIMIT_USERS];
};

/* Takes a token of this user's. False: there is none. */
bool rate_limit_take(struct rate_limit *limit, uid_t uid, uint64_t now_ns);
