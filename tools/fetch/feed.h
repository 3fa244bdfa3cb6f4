/*
 * A feed that reads a dataset while it is fetched: its page (proto/filling.h), and how far the
 * samples that it announces have been requested. A feed of several datasets is several of these,
 * which share a page, and pass over each other's samples. Main thread only; a thread of its own
 * waits for the page to change, and wakes the store's loop.
 *
 * What the page says is the word of a worker that may have been taken over: every number is copied
 * once and checked.
 */
#pragma once

#include "proto/filling.h"
#include "tools/fetch/dataset.h"

#include <pthread.h>

enum feed_mark {
	FEED_ANNOUNCED = 1, /* of a unit that has been seen and is not over */
	FEED_EARLY = 2,     /* was requested with a neighbour, before its unit */
};

struct fetch_feed {
	struct fetch_feed *next; /* of the fetcher */
	struct remote_dataset *dataset;
	struct turn_map *map;
	int page_fd;
	struct filling_page *page;
	uint32_t number;  /* of the dataset in the page */
	bool shares_page; /* with other datasets */
	uint64_t first;   /* of the dataset's samples in the page's numbering; as of `opened` */
	pthread_t watcher;
	_Atomic bool changed; /* by the watcher: the page is worth a look */
	_Atomic bool stopping;
	/* wishes for other bytes that may be granted, and when one was added last */
	unsigned replacements;
	int64_t replacements_ms;
	uint32_t opened; /* page->opened when it was looked at last */
	/* units below them are over; have been requested; have been read from the page */
	uint64_t done, cursor, seen;
	bool announced;             /* feed_is_announcing() has ended */
	int64_t opened_ms, seen_ms; /* when the worker began; when it announced last, before that */
	/* samples of the units from `done` to `seen`, by unit % FILLING_AHEAD; + 1, 0: none */
	uint64_t window[FILLING_AHEAD];
	uint8_t *marks;  /* [samples], enum feed_mark */
	uint16_t *units; /* [samples], how many of the units from `done` to `cursor` have it */
};

/* The memory files of a feed. */
struct feed_memory {
	int map_fd, page_fd;       /* -1: to be made */
	bool resumed;              /* both are those of an earlier fetcher */
	uint32_t number, datasets; /* of the dataset in the page, of datasets; number < datasets */
};

/*
 * Makes a feed. The descriptors are taken over in any case. -ESTALE: the earlier fetcher filled
 * other files; -EINVAL; -ENOMEM.
 */
int feed_new(struct remote_dataset *dataset, const struct feed_memory *memory,
	     struct fetch_feed **ret_feed);
void feed_free(struct fetch_feed *feed);
/*
 * Copies what the page has announced. Returns true while a worker that has just begun announces its
 * first thousands of units: which samples are neighbours is known afterwards.
 */
bool feed_is_announcing(struct fetch_feed *feed);
/* Returns the sample of the next unit + 1, 0 if it has none; -ENODATA if none is known yet. */
int feed_next_unit(struct fetch_feed *feed, uint64_t *ret_sample);
/* Batches whose samples must be there for the feed to go on: the one that is due, and the next. */
enum { FEED_BATCHES = 2 };
/* Returns the end of the units of so many batches, at most FEED_BATCHES. */
uint64_t feed_needed(const struct fetch_feed *feed, unsigned batches);
/*
 * Whether the first batch since the worker has opened the feed is not made yet; then how many bytes
 * of its samples are there, of how many. Samples that are not requested yet count as average ones.
 */
bool feed_first_batch(const struct fetch_feed *feed, uint64_t *ret_done, uint64_t *ret_total);
/* Whether the sample is that of a unit that has been requested and is not over. */
bool feed_is_next(const struct fetch_feed *feed, uint64_t sample);
/* Whether the sample is that of such a unit of the batches that feed_needed() has the end of. */
bool feed_is_needed(const struct fetch_feed *feed, uint64_t sample);
/*
 * Whether the sample is that of a unit below `end` that the worker has begun to make, and that has
 * not been requested.
 */
bool feed_is_begun(const struct fetch_feed *feed, uint64_t sample, uint64_t end);
/*
 * Copies the wishes: numbers of samples, and the turns in which their bytes are wrong, or 0.
 * Returns their number.
 */
struct wish {
	uint64_t sample;
	uint8_t turn;
};
unsigned feed_wishes(const struct fetch_feed *feed, struct wish wishes[FILLING_WISHES]);
/*
 * Whether a wish for other bytes may be granted: FILLING_WISHES at once, and one more each 20 ms. A
 * worker that finds fault with all bytes does not have the dataset fetched without end.
 */
bool feed_may_replace(struct fetch_feed *feed);
/* Sees whether a worker has begun anew, and how far it is. Calls over() with each unit's sample. */
void feed_look(struct fetch_feed *feed, void (*over)(void *context, uint64_t sample),
	       void *context);
/* Wakes the worker if it waits for the sample, whose turn has changed. */
void feed_arrived(const struct fetch_feed *feed, uint64_t sample);
