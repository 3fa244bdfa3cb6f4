/*
 * A buffer that grows on demand, 128-byte aligned, with 128 readable bytes after the requested
 * size. Growing discards its contents. The buffers of a decoder share a budget, which limits the
 * memory of one image independently of earlier images: it frees their buffers if necessary, and
 * later also memory that only a rare large image needed. A budget belongs to one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct scratch;

struct scratch_budget {
	uint64_t limit; /* maximum bytes for one image, 0 if unlimited */
	uint64_t image; /* number of the current image */
	uint64_t taken; /* bytes charged for the current image */
	/* minimum bytes that the image needs, if the limit refused it; else 0 */
	uint64_t refused;
	uint64_t held; /* bytes of all buffers, in use or not */
	uint64_t peak; /* maximum of taken among the last few images */
	struct scratch *first;
};

struct scratch {
	uint8_t *data;
	size_t size;
	struct scratch_budget *budget; /* NULL if it has no shared budget */
	struct scratch *next;          /* next buffer of the budget */
	uint64_t image, taken;         /* image that used it last, and bytes charged for it */
};

/*
 * Adds an empty buffer to the budget. Call it before the buffer's first use. A zeroed buffer has no
 * budget.
 */
void scratch_init(struct scratch *scratch, struct scratch_budget *budget);
/*
 * Reserves size bytes. Returns 0 (data is then not NULL, even for size 0), -ENOMEM, or -E2BIG
 * beyond the limit. On failure the buffer may be empty.
 */
int scratch_reserve(struct scratch *scratch, size_t size);
/* Frees the buffer without updating its budget: deinitialise all buffers of a budget together. */
void scratch_deinit(struct scratch *scratch);

/* Starts the next image. No buffer is in use then. */
void scratch_budget_next(struct scratch_budget *budget);
/*
 * Charges memory that the image uses outside the buffers; -E2BIG beyond the limit. budget may be
 * NULL (no limit).
 */
int scratch_budget_take(struct scratch_budget *budget, uint64_t size);
