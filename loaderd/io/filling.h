/*
 * One feed's view of files that are still being filled (proto/filling.h, proto/SPEC.md, "Filling
 * files"). Samples of parts whose files are complete are always there, in one turn.
 *
 * No pool thread waits for a sample. A thread that comes to a sample which is not there postpones
 * its units and goes on with others, of this feed or of another one. A thread of the feed, the
 * watcher, wishes for the postponed samples, waits for all of them at once, and makes the units
 * ready again, which pool threads then claim before new ones. So a sample that comes late delays
 * its own batch, and those behind it once all slots are in use, but no other feed; and closing a
 * feed has nobody to wait for.
 *
 * A sample counts as made only if its turn is the same before its first byte was read and after
 * its last one was used; otherwise its units are postponed, too. The time for it is bounded, from
 * the first time that it was not there: then it is bad. Its replacement gets as much time, once.
 *
 * The turns and the page are shared with processes of the user and may change in any way at any
 * time. All that is stored there is a hint; decisions are made by copies. Turns are read by
 * pread(), as a mapping would allocate a page wherever the client has made a hole, which is charged
 * to the daemon and stays for as long as the client keeps the file. The page is mapped, since the
 * worker writes to it; its memory is removed when the feed ends.
 *
 * The subscription creates and frees it; the batcher starts and joins the watcher. Any thread may
 * call the functions for making samples.
 */
#pragma once

#include "format/packimg.h"
#include "loaderd/io/dataset.h"
#include "loaderd/order/order.h"
#include "proto/filling.h"

#include <stdbool.h>
#include <stdint.h>

struct filling;

enum {
	FILLING_POSTPONED_MAX = 1024, /* with more, the feed begins no further units */
	FILLING_CLAIM_MAX = 16,       /* units of a claim */
};
#define FILLING_NONE UINT64_MAX

/* A dataset whose files are being filled: all of it, or a part of a joined one. */
struct filling_part {
	uint64_t first, count; /* its samples */
	int map_fd;            /* of a memory file with a byte for each of them */
};

struct filling_options {
	struct dataset *dataset;
	struct filling_part *parts; /* [part_count], by their numbers in the page; ascending */
	uint32_t part_count;        /* 1 .. FILLING_DATASETS */
	struct filling_page *page;  /* mapped */
	uint64_t epoch, batch;      /* position of unit 0 */
	uint64_t timeout_ms;        /* longest wait for a sample */
	unsigned thread_indices;    /* of the pool: bounds the units under way */
};

/* The first of two samples that are made together, if it was made before the other was there. */
struct filling_first {
	bool there; /* the others are valid */
	bool made;
	int32_t label;
};

/* The units of one or two samples, and how making them has gone so far. */
struct filling_units {
	uint64_t unit; /* the first */
	struct filling_first first;
	uint64_t missing; /* the sample that they wait for */
	uint8_t wrong;    /* the turn in which `missing` had a wrong checksum; 0: it is not there */
	uint64_t late;    /* a sample that did not come in time; FILLING_NONE if all did */
	bool all_late;    /* a second one did not: wait for no more */
	int64_t until_ms; /* end of the wait, clock_ms(); 0 before the first */
};

/* Closes the maps. Accepts NULL. */
void filling_parts_free(struct filling_part *parts, uint32_t count);
/* Bytes of memory that a feed needs for it. */
uint64_t filling_bytes(uint64_t samples, unsigned thread_indices);
/* Takes over the parts, their maps, and the page, even on failure. -ENOMEM. */
int filling_new(const struct filling_options *options, struct filling **ret_filling);
/* Joins the watcher, and frees the page. On a job thread. Accepts NULL. */
void filling_free(struct filling *filling);
/*
 * Resets the page and starts the watcher, which tells the fetcher the order of the walk ahead of
 * the units. It calls ready() when units can be made again. Returns 0, or the error of creating the
 * thread.
 */
int filling_start(struct filling *filling, const struct order_walk *walk,
		  void (*ready)(void *user, uint64_t units), void *user);
/* The wanted feed's client has added a batch. */
void filling_wanted(struct filling *filling);
/* Makes the watcher end, without waiting for it. Any thread. */
void filling_stop(struct filling *filling);
/* Waits for the watcher's end, so that ready() is not called any more. */
void filling_join(struct filling *filling);

/* Tells the fetcher which units have begun, and which are done. The caller holds a lock. */
void filling_begun(struct filling *filling, uint64_t limit);
void filling_done(struct filling *filling, uint64_t limit);

/* Returns true if the sample is there now, for read-ahead. */
bool filling_has(const struct filling *filling, uint64_t index);
/* Returns the sample's turn now, for what is read before filling_look(). */
uint8_t filling_turn(const struct filling *filling, uint64_t index);

/* For a claim of new units, the first one `unit`. */
void filling_units_init(struct filling_units *units, uint64_t unit);
/*
 * Call it before any byte of the sample is read. Returns 0 with the turn; -EAGAIN if the units are
 * to be postponed; -ETIMEDOUT with error->text set if the sample is bad.
 */
int filling_look(struct filling *filling, struct filling_units *units, uint64_t index,
		 uint8_t *ret_turn, struct packimg_error *error);
/*
 * Verifies the checksum of a sample, once in each turn. -EUCLEAN with error->text set if it is
 * wrong.
 */
int filling_verify(struct filling *filling, const struct packimg_sample *sample, uint8_t turn,
		   struct packimg_error *error);
/*
 * Call it when the sample has been made, with the result r. Returns r if its bytes were there all
 * the time; else as filling_look(). -EUCLEAN, of filling_verify() or dataset_verify_image(),
 * becomes -EAGAIN the first time, so that the sample is fetched again, and then -EBADMSG.
 */
int filling_check(struct filling *filling, struct filling_units *units, uint64_t index,
		  uint8_t turn, int r, struct packimg_error *error);

/* Puts units away until the missing sample comes, or its time is over. */
void filling_postpone(struct filling *filling, const struct filling_units *units);
/* Takes units that are ready to be made again. Returns false if there are none. */
bool filling_take(struct filling *filling, struct filling_units *ret_units);
bool filling_has_ready(const struct filling *filling);
/* Returns true if too many units are postponed for new ones to begin. */
bool filling_is_full(const struct filling *filling);
/* Time for which the watcher has slept while units were postponed. */
uint64_t filling_wait_ns(const struct filling *filling);
