/*
 * A buffer that grows on demand, 128-byte aligned, with 128 readable bytes after the requested
 * size. Growing discards its contents. The buffers of a decoder share a budget, which limits the
 * memory of one image regardless of earlier images: buffers left by those are freed if they are in
 * the way, and memory that only a rare large image needed is released later. A budget belongs to
 * one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct scratch;

struct scratch_budget {
	uint64_t limit; /* limit in bytes for one image, 0 if unlimited */
	uint64_t image; /* number of the current image */
	uint64_t taken; /* bytes that the current image takes */
	/* bytes that the image needs at least, if the limit refused it; 0 if not */
	uint64_t refused;
	uint64_t held; /* bytes of all buffers, in use or not */
	uint64_t peak; /* maximum that one of the last few images took */
	struct scratch *first;
};

struct scratch {
	uint8_t *data;
	size_t size;
	struct scratch_budget *budget; /* NULL if it has no shared budget */
	struct scratch *next;          /* next buffer of the budget */
	uint64_t image, taken;         /* last image that requested it, and the size it requested */
};

/* Adds an empty buffer to the budget, before its first use. A zeroed buffer has no budget. */
void scratch_init(struct scratch *scratch, struct scratch_budget *budget);
/*
 * Returns 0, with data not NULL even for size 0; -ENOMEM; or -E2BIG beyond the limit. On failure
 * the buffer may be empty.
 */
int scratch_reserve(struct scratch *scratch, size_t size);
/* Frees the buffer without updating its budget: deinit all buffers of a budget together. */
void scratch_deinit(struct scratch *scratch);

/* Starts the next image: no buffer is in use. */
void scratch_budget_next(struct scratch_budget *budget);
/*
 * Charges bytes that the image has elsewhere; -E2BIG beyond the limit. budget may be NULL (no
 * limit).
 */
int scratch_budget_take(struct scratch_budget *budget, uint64_t size);
