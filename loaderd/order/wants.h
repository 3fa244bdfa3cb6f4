/*
 * The batches that the client of a wanted feed has asked for with Want messages (proto/SPEC.md),
 * numbered from 0. The control thread, and no other, adds and forgets them; pool threads take them
 * in order and read their lists while they make the batches; the read-ahead thread looks samples
 * up.
 *
 * An entry is reused once `slots` later batches have been taken: by then the ring has published
 * the batch. At most slots + WANTS_AHEAD batches may wait to be taken.
 */
#pragma once

#include "loaderd/order/order.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/* batches that a client may ask for beyond the ring's slots (SPEC.md, "Wanted batches") */
	WANTS_AHEAD = 16,
	/* samples per batch of a wanted feed, so that a Want fits a frame */
	WANTS_BATCH_MAX = 65536,
};

struct wants;

/* Bytes that wants_new() allocates, for the user's limits. */
uint64_t wants_bytes(uint32_t slots, uint32_t batch_size);
/* samples: number of samples in the dataset. Returns NULL if out of memory. */
struct wants *wants_new(uint32_t slots, uint32_t batch_size, uint64_t samples);
/* Accepts NULL. */
void wants_free(struct wants *wants);

/*
 * Adds a batch; copies the list. Returns -EINVAL if count is 0 or above batch_size, -ERANGE if a
 * sample number is not in the dataset, -ENOBUFS if too many batches wait. *ret_position: the
 * list's first wrong number, after -ERANGE.
 */
int wants_add(struct wants *wants, uint64_t epoch, const uint64_t *samples, size_t count,
	      size_t *ret_position);
/*
 * Empties the batches that wait to be taken. They are still taken, and published without samples,
 * so that the client can count them.
 */
void wants_forget(struct wants *wants);
/* Number of batches added. */
uint64_t wants_added(struct wants *wants);
bool wants_waiting(struct wants *wants);
/*
 * Takes the next batch, which must be waiting. Sets *ret_slice, whose lists stay valid until the
 * ring has reused the batch's slot. Returns the batch's epoch.
 */
uint64_t wants_take(struct wants *wants, struct order_slice *ret_slice);
/* Returns the epoch of batch `number`, or of the last one added if there is none such; 0 if none.
 */
uint64_t wants_epoch(struct wants *wants, uint64_t number);
/*
 * Returns 1 and sets *ret_sample to a sample of batch `number`, which has been added; 0 if there is
 * no sample at this position, or if the entry has been reused.
 */
int wants_sample(struct wants *wants, uint64_t number, uint32_t position, uint64_t *ret_sample);
