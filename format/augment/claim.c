#include "format/augment/claim.h"

#include "format/packimg.h"

#include <sys/param.h>

enum {
	/*
	 * Target duration of a claim: long enough that the overhead of claiming and accounting is
	 * negligible, short enough that feeds alternate often and the workers of a batch finish at
	 * nearly the same time.
	 */
	CLAIM_NS = 100 * 1000,
	CLAIM_MAX = 256,
	/* Maximum duration if samples are decoded together and no other feed waits. */
	CLAIM_TOGETHER_NS = 4 * 1000 * 1000,
};

uint32_t claim_size(const struct claim_options *claim, uint64_t cost_ns, bool together)
{
	uint64_t size = cost_ns == 0 ? 1 : CLAIM_NS / cost_ns;

	if (size < PACKIMG_AHEAD_MAX && cost_ns != 0 && claim->alone && together)
		size = MIN(CLAIM_TOGETHER_NS / cost_ns, PACKIMG_AHEAD_MAX);
	size = MIN(MIN(size, claim->batch_size / claim->workers), CLAIM_MAX);
	return size < 1 ? 1 : (uint32_t)size;
}

bool claim_together(uint32_t gain, uint32_t count)
{
	return gain > 1 || gain == count;
}
