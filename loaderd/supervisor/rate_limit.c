#include "loaderd/supervisor/rate_limit.h"

#define TOKEN_NS (UINT64_C(1000000000) / CONNECTS_PER_SECOND)

bool rate_limit_take(struct rate_limit *limit, uid_t uid, uint64_t now_ns)
{
	unsigned chosen = 0;
	for (unsigned i = 0; i < RATE_LIMIT_USERS; i++) {
		if (limit->users[i].full_ns != 0 && limit->users[i].uid == uid) {
			chosen = i;
			break;
		}
		if (limit->users[i].full_ns < limit->users[chosen].full_ns)
			chosen = i;
	}
	/*
	 * Keep the debt of the replaced entry: otherwise a user could shed debt by having its entry
	 * replaced.
	 */
	uint64_t full_ns = limit->users[chosen].full_ns;
	if (full_ns < now_ns)
		full_ns = now_ns;
	if (full_ns > now_ns + (CONNECTS_AT_ONCE - 1) * TOKEN_NS)
		return false;
	limit->users[chosen].uid = uid;
	limit->users[chosen].full_ns = full_ns + TOKEN_NS;
	return true;
}
