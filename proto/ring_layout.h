/*
 * What the files of the ring share: the layout of a geometry, and the constant part of the header
 * in both versions. Pure functions, except for ring_has_all_pages() and ring_unmap().
 *
 * Memory ordering. Each direction is the store-buffer pattern: one side stores its update and then
 * loads the other's waiting word; the other side stores its waiting word and then loads the update.
 * All four accesses are memory_order_seq_cst. In their total order one of the two stores comes
 * first, so at least one of the two loads sees the other side's store: either the doorbell is sent,
 * or the check before the wait succeeds. The same stores are releases and the same loads acquires.
 * This makes the slot's bytes visible to the client, and orders the client's last read of them
 * before the daemon's next write.
 */
#pragma once

#include "proto/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the part of a header of this version that changes while the ring is in use. */
struct ring_control *ring_control_of(const void *header, uint32_t version);
/*
 * Places the sections of a geometry. Pictures come last and are page-aligned, which suits DMA.
 * Returns -EINVAL if the geometry exceeds a limit.
 */
int ring_lay_out(const struct ring_geometry *geometry, struct ring_geometry *ret_layout);
/* Bytes of the ring's memfd; 0 if they exceed off_t. */
uint64_t ring_bytes(uint64_t slots, uint64_t slot_size);

/* Writes the constant part of the header, in the layout's version, into a page of zeros. */
void ring_header_write(const struct ring_geometry *layout, void *header);
/*
 * Makes the layout from a private copy of the header page. Returns false if it is not sound, or not
 * that of a ring of file_size bytes.
 */
bool ring_header_read(const void *header, uint64_t file_size, struct ring_geometry *ret_layout);

/*
 * Returns true if all pages of the memfd of size bytes exist: the client, which must touch them
 * first, is then charged for them. Moves the fd's offset.
 */
bool ring_has_all_pages(int fd, uint64_t size);
/* Unmaps both; either may be NULL. size: bytes of the ring. */
void ring_unmap(const void *ring, uint64_t size, void *ack);
