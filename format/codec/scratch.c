#include "format/codec/scratch.h"

#include "format/base/poison.h"

#include <errno.h>
#include <stdlib.h>

enum {
	/*
	 * alignment and slack: aligned_alloc() requires a size that is a multiple of the alignment
	 */
	SCRATCH_ALIGN = 128,
	SCRATCH_SLACK = 128,
	SCRATCH_STEP = 1 << 16,
	/*
	 * Memory that is always kept: in bytes, and as a multiple of the peak of the latest images.
	 */
	KEPT_MIN = 64 << 20,
	KEPT_TIMES = 4,
	LATEST = 32,
};

void scratch_init(struct scratch *scratch, struct scratch_budget *budget)
{
	*scratch = (struct scratch){.budget = budget, .next = budget->first};
	budget->first = scratch;
}

static void scratch_release(struct scratch *scratch)
{
	if (scratch->budget)
		scratch->budget->held -= scratch->size;
	free(scratch->data);
	scratch->data = NULL;
	scratch->size = 0;
}

/* Frees the buffers that the current image has not requested. */
static void scratch_release_others(struct scratch_budget *budget)
{
	for (struct scratch *scratch = budget->first; scratch; scratch = scratch->next)
		if (scratch->image != budget->image)
			scratch_release(scratch);
}

void scratch_budget_next(struct scratch_budget *budget)
{
	if (budget->taken > budget->peak)
		budget->peak = budget->taken;
	budget->image++;
	budget->taken = 0;
	budget->refused = 0;
	if (budget->image % LATEST != 0)
		return;
	if (budget->held > KEPT_MIN && budget->held / KEPT_TIMES > budget->peak)
		scratch_release_others(budget);
	budget->peak = 0;
}

int scratch_budget_take(struct scratch_budget *budget, uint64_t size)
{
	if (!budget)
		return 0;
	if (budget->limit &&
	    (budget->taken > budget->limit || size > budget->limit - budget->taken)) {
		/* Keep the minimum, because the caller may try another method after a refusal. */
		if (budget->refused == 0 || budget->taken + size < budget->refused)
			budget->refused = budget->taken + size;
		return -E2BIG;
	}
	budget->taken += size;
	return 0;
}

/*
 * Returns the size to allocate: a quarter more than requested, in whole steps, so that slowly
 * growing images do not reallocate each time.
 */
static size_t scratch_grow(size_t size)
{
	return (size + size / 4 + SCRATCH_STEP - 1) / SCRATCH_STEP * SCRATCH_STEP;
}

/* Charges the image for the buffer: the largest size that the image has requested. */
static int scratch_take(struct scratch *scratch, size_t size)
{
	struct scratch_budget *budget = scratch->budget;

	if (!budget)
		return 0;
	if (scratch->image != budget->image) {
		scratch->image = budget->image;
		scratch->taken = 0;
	}
	if (size <= scratch->taken)
		return 0;
	int r = scratch_budget_take(budget, size - scratch->taken);
	if (r == 0)
		scratch->taken = size;
	return r;
}

/*
 * Unpoisons the requested bytes and the slack. AddressSanitizer then reports accesses to the rest
 * of the buffer.
 */
static void scratch_unpoison(const struct scratch *scratch, size_t size)
{
	unpoison(scratch->data, scratch->size + SCRATCH_SLACK);
	poison(scratch->data + size + SCRATCH_SLACK, scratch->size - size);
}

int scratch_reserve(struct scratch *scratch, size_t size)
{
	struct scratch_budget *budget = scratch->budget;

	if (size > SIZE_MAX / 2)
		return -ENOMEM;
	int r = scratch_take(scratch, scratch_grow(size));
	if (r < 0)
		return r;
	if (scratch->data && size <= scratch->size) {
		scratch_unpoison(scratch, size);
		return 0;
	}
	scratch_release(scratch);
	if (budget && budget->limit && budget->held + scratch_grow(size) > budget->limit)
		scratch_release_others(budget);
	uint8_t *data = aligned_alloc(SCRATCH_ALIGN, scratch_grow(size) + SCRATCH_SLACK);
	if (!data)
		return -ENOMEM;
	scratch->data = data;
	scratch->size = scratch_grow(size);
	if (budget)
		budget->held += scratch->size;
	scratch_unpoison(scratch, size);
	return 0;
}

void scratch_deinit(struct scratch *scratch)
{
	free(scratch->data);
	*scratch = (struct scratch){0};
}
