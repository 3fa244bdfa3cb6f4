/*
 * A buffer that grows as it is asked to, 128-byte aligned, with 128 readable bytes behind what was
 * asked for last. Contents are lost when it grows. The buffers of a decoder share a budget: what
 * one image may take of them all is limited, whatever images came before it; what those left goes
 * when it stands in the way, and what only a rare large one ever needed is given back. One budget
 * belongs to one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct scratch;

struct scratch_budget {
	uint64_t limit; /* bytes that one image may take; 0: any number */
	uint64_t image; /* number of the latest */
	uint64_t taken; /* bytes that it takes */
	/*
	 * bytes that it would have taken at least, had it not been for the limit; 0: there was no
	 * refusal
	 */
	uint64_t refused;
	uint64_t held; /* bytes of all buffers, needed or not */
	uint64_t peak; /* most that one of the latest few images took */
	struct scratch *first;
};

struct scratch {
	uint8_t *data;
	size_t size;
	struct scratch_budget *budget; /* NULL: of its own */
	struct scratch *next;          /* of the budget's */
	uint64_t image, taken;         /* that asked for it last, and for how many bytes */
};

/*
 * Makes an empty buffer one of the budget's, before its first use. Buffers that are all zero have
 * none.
 */
void scratch_init(struct scratch *scratch, struct scratch_budget *budget);
/*
 * 0, and data is there even if nothing was asked for; -ENOMEM or, beyond the limit, -E2BIG: the
 * buffer may be empty then.
 */
int scratch_reserve(struct scratch *scratch, size_t size);
/* Without its budget's leave: the budget ends with its buffers. */
void scratch_deinit(struct scratch *scratch);

/* The next image begins: no buffer is in use. */
void scratch_budget_next(struct scratch_budget *budget);
/* Counts bytes that the image has elsewhere; -E2BIG. budget NULL: anything goes. */
int scratch_budget_take(struct scratch_budget *budget, uint64_t size);
