#include "tools/fetch/schedule.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"

#include <stdlib.h>
#include <string.h>

enum {
	CONNECTIONS_MIN = 8,
	CONNECTIONS_MOST = 128,
	MEASURE_MS = 250,
	UNITS_AT_ONCE = 2048, /* that are sorted together, so that neighbours are found */
	UNITS_AHEAD_MIN = 16,
	EXTRAS_MIN = 256,
	TRIES_MAX = 2, /* of a sample whose checksum is wrong */
};

/* A request has at most this many bytes. */
#define SPAN_MAX ((uint64_t)1 << 20)
/* Bytes between two samples that one request fetches: alignment, and small pieces of others. */
#define SPAN_GAP ((uint64_t)4096)
/* Bytes between the images of a sample. */
#define PART_GAP ((uint64_t)1 << 16)
/* Bytes under way, at least: a first guess at rate times latency. */
#define UNDER_WAY_MIN ((uint64_t)16 << 20)
/* Bytes that pass through a full cache at a time, at most. */
#define PASSING_MAX ((uint64_t)256 << 20)

/* A sample that is being fetched. */
struct need {
	struct fetcher *fetcher;
	struct remote_dataset *dataset;
	uint64_t sample;
	unsigned pending; /* parts that are not there yet */
	unsigned tries;
};

/* A part of a need, while a batch is sorted into requests. */
struct piece {
	struct sample_part part;
	struct need *need;
};

/* A request: a range of a file, with the parts in it. */
struct span {
	struct fetcher *fetcher;
	struct remote_dataset *dataset;
	uint32_t file;
	uint64_t at, end;
	bool urgent;
	unsigned count;
	struct need *needs[]; /* [count]; one may be there several times */
};

/* Needs that are requested together. */
struct batch {
	struct fetcher *fetcher;
	struct remote_dataset *dataset;
	struct piece *pieces;
	size_t count, capacity;
	bool urgent;
};

static void request_sample(struct batch *batch, uint64_t sample, unsigned tries);
static void submit_batch(struct batch *batch);

void schedule_init(struct fetcher *fetcher)
{
	fetcher->connections = CONNECTIONS_MIN;
	fetcher->measured_ms = clock_ms();
	fetcher->passing =
		fetcher->cache.limit / 4 < PASSING_MAX ? fetcher->cache.limit / 4 : PASSING_MAX;
	store_set_connections(fetcher->store, fetcher->connections);
}

static void wake_feeds(struct fetcher *fetcher, const struct remote_dataset *dataset,
		       uint64_t sample)
{
	for (struct fetch_feed *feed = fetcher->feeds; feed; feed = feed->next)
		if (feed->dataset == dataset)
			feed_arrived(feed, sample);
}

/* Whether a feed has announced the sample, and it was requested or was there. */
static bool is_announced(const struct fetcher *fetcher, const struct remote_dataset *dataset,
			 uint64_t sample)
{
	for (const struct fetch_feed *feed = fetcher->feeds; feed; feed = feed->next)
		if (feed->dataset == dataset && feed_is_next(feed, sample, UINT64_MAX))
			return true;
	return false;
}

/*
 * Keeps a sample that came for a wish and that no feed has announced: nothing else would take it
 * away. Those before go from a full cache, the oldest first, as soon as the ring is full or their
 * share of what may pass through is used.
 */
static void keep_extra(struct fetcher *fetcher, struct remote_dataset *dataset, uint64_t sample)
{
	uint64_t average = dataset->bytes / dataset->samples + 1, kept = fetcher->passing / average;
	unsigned limit = kept < EXTRAS_MIN       ? EXTRAS_MIN
			 : kept < DATASET_EXTRAS ? (unsigned)kept
						 : DATASET_EXTRAS;
	uint64_t *oldest =
		&dataset->extras[(dataset->extra_next + DATASET_EXTRAS - limit) % DATASET_EXTRAS];

	if (*oldest && dataset->present_bytes > dataset->room &&
	    dataset->states[*oldest - 1] == SAMPLE_PRESENT &&
	    !is_announced(fetcher, dataset, *oldest - 1))
		dataset_evict(dataset, *oldest - 1);
	*oldest = 0;
	dataset->extras[dataset->extra_next++ % DATASET_EXTRAS] = sample + 1;
}

/* A sample has come. */
static void keep_sample(struct fetcher *fetcher, struct remote_dataset *dataset, uint64_t sample)
{
	dataset_set_present(dataset, sample);
	if (dataset->room < dataset->bytes && !is_announced(fetcher, dataset, sample))
		keep_extra(fetcher, dataset, sample);
	wake_feeds(fetcher, dataset, sample);
}

/* All parts of a sample are there, or cannot be had. */
static void need_done(struct need *need)
{
	struct remote_dataset *dataset = need->dataset;
	struct batch batch = {.fetcher = need->fetcher, .dataset = dataset, .urgent = true};

	if (!dataset->failed && need->tries + 1 < TRIES_MAX &&
	    !dataset_sample_good(dataset, need->sample)) {
		request_sample(&batch, need->sample, need->tries + 1);
		submit_batch(&batch);
	} else if (dataset->failed) {
		dataset->states[need->sample] = SAMPLE_ABSENT;
	} else {
		/* if it is wrong twice, the daemon says so */
		keep_sample(need->fetcher, dataset, need->sample);
	}
	free(need);
}

static int span_take(void *context, const void *bytes, size_t size)
{
	struct span *span = context;
	int r = io_write_at(span->dataset->entry.fds[span->file], bytes, size, span->at);

	if (r)
		return r;
	span->at += size;
	span->fetcher->under_way -= size;
	span->dataset->fetched += size;
	return 0;
}

static void span_done(void *context, const struct store_result *result)
{
	struct span *span = context;
	struct packimg_error error;

	span->dataset->under_way--;
	span->fetcher->under_way -= span->end - span->at;
	span->dataset->requests++;
	if (result->status == -ENOSPC) {
		packimg_say(&error,
			    "%.200s: no space is left on the disk of the cache, %.100s: make room, "
			    "or name another folder in LOADERD_CACHE",
			    span->dataset->url, span->fetcher->cache.folder);
		dataset_fail(span->dataset, result->status, &error);
	} else if (result->status) {
		dataset_fail(span->dataset, result->status, result->error);
	}
	for (unsigned i = 0; i < span->count; i++)
		if (--span->needs[i]->pending == 0)
			need_done(span->needs[i]);
	free(span);
}

static bool add_piece(struct batch *batch, const struct sample_part *part, struct need *need)
{
	if (batch->count == batch->capacity) {
		size_t capacity = batch->capacity ? 2 * batch->capacity : 64;
		struct piece *pieces = realloc(batch->pieces, capacity * sizeof(*pieces));

		if (!pieces)
			return false;
		batch->pieces = pieces;
		batch->capacity = capacity;
	}
	batch->pieces[batch->count++] = (struct piece){*part, need};
	return true;
}

static void request_sample(struct batch *batch, uint64_t sample, unsigned tries)
{
	struct sample_part parts[SAMPLE_PARTS_MAX];
	unsigned count = dataset_parts(batch->dataset, sample, PART_GAP, parts);
	struct need *need = malloc(sizeof(*need));
	size_t before = batch->count;
	bool good = need;

	if (good)
		*need = (struct need){batch->fetcher, batch->dataset, sample, count, tries};
	for (unsigned i = 0; good && i < count; i++)
		good = add_piece(batch, &parts[i], need);
	if (!good) { /* out of memory: a wish will come again */
		batch->count = before;
		free(need);
		batch->dataset->states[sample] = SAMPLE_ABSENT;
		return;
	}
	batch->dataset->states[sample] = SAMPLE_UNDER_WAY;
	if (count == 0)
		need_done(need); /* the reader sees that its record is damaged */
}

static int compare_pieces(const void *left, const void *right)
{
	const struct sample_part *a = &((const struct piece *)left)->part;
	const struct sample_part *b = &((const struct piece *)right)->part;

	if (a->file != b->file)
		return a->file < b->file ? -1 : 1;
	return a->range.offset < b->range.offset ? -1 : a->range.offset > b->range.offset;
}

static void drop_pieces(const struct piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (--pieces[i].need->pending == 0) {
			pieces[i].need->dataset->states[pieces[i].need->sample] = SAMPLE_ABSENT;
			free(pieces[i].need);
		}
}

/* Submits a request for pieces that follow each other. */
static void submit_span(struct batch *batch, const struct piece *pieces, size_t count, uint64_t end)
{
	struct remote_dataset *dataset = batch->dataset;
	struct span *span = malloc(sizeof(*span) + count * sizeof(struct need *));

	if (!span) {
		drop_pieces(pieces, count);
		return;
	}
	*span = (struct span){.fetcher = batch->fetcher,
			      .dataset = dataset,
			      .file = pieces[0].part.file,
			      .at = pieces[0].part.range.offset,
			      .end = end,
			      .count = (unsigned)count};
	for (size_t i = 0; i < count; i++)
		span->needs[i] = pieces[i].need;
	const struct store_request request = {
		.object = &dataset->objects[span->file],
		.offset = span->at,
		.size = end - span->at,
		.urgent = batch->urgent,
		.take = span_take,
		.done = span_done,
		.context = span,
	};
	if (store_submit(batch->fetcher->store, &request)) {
		drop_pieces(pieces, count);
		free(span);
		return;
	}
	dataset->under_way++;
	batch->fetcher->under_way += request.size;
}

/* Sorts the pieces, and makes requests of neighbours. */
static void submit_batch(struct batch *batch)
{
	size_t first = 0;

	if (batch->count)
		qsort(batch->pieces, batch->count, sizeof(*batch->pieces), compare_pieces);
	while (first < batch->count) {
		const struct sample_part *begin = &batch->pieces[first].part;
		uint64_t end = begin->range.offset + begin->range.size;
		size_t next = first + 1;

		for (; next < batch->count; next++) {
			const struct sample_part *part = &batch->pieces[next].part;
			uint64_t part_end = part->range.offset + part->range.size;

			if (part->file != begin->file || part->range.offset > end + SPAN_GAP ||
			    (part_end > end && part_end - begin->range.offset > SPAN_MAX))
				break;
			end = part_end > end ? part_end : end;
		}
		submit_span(batch, batch->pieces + first, next - first, end);
		first = next;
	}
	free(batch->pieces);
	batch->pieces = NULL;
	batch->count = batch->capacity = 0;
}

/* The rate of the last quarter of a second, and how many connections keep the link busy. */
static void measure(struct fetcher *fetcher)
{
	struct store_counters counters = store_counters(fetcher->store);
	int64_t now_ms = clock_ms(), passed_ms = now_ms - fetcher->measured_ms;

	if (passed_ms < MEASURE_MS)
		return;
	uint64_t bytes = counters.bytes - fetcher->measured_bytes;
	uint64_t requests = counters.requests - fetcher->measured_requests;
	fetcher->rate = (double)bytes * 1000 / (double)passed_ms;
	fetcher->measured_ms = now_ms;
	fetcher->measured_bytes = counters.bytes;
	fetcher->measured_requests = counters.requests;
	if (!bytes || !requests)
		return;
	/*
	 * Requests that are on their way while one waits for its first byte, half as many more, so
	 * that the rate grows as long as the link lets it, and some that are being received.
	 */
	double wanted = 1.5 * fetcher->rate * counters.latency_ms / 1000 /
				((double)bytes / (double)requests) +
			CONNECTIONS_MIN;
	fetcher->connections = wanted < CONNECTIONS_MOST ? (unsigned)wanted : CONNECTIONS_MOST;
	store_set_connections(fetcher->store, fetcher->connections);
}

/* Bytes that may be under way: what the store delivers in two round trips. */
static uint64_t under_way_target(const struct fetcher *fetcher)
{
	double target = 2 * fetcher->rate * store_counters(fetcher->store).latency_ms / 1000;

	return target > (double)UNDER_WAY_MIN ? (uint64_t)target : UNDER_WAY_MIN;
}

/* Whose units are over. */
struct passing {
	const struct fetcher *fetcher;
	struct remote_dataset *dataset;
};

/* A unit is over: its sample goes if the cache is full. */
static void pass_sample(void *context, uint64_t sample)
{
	const struct passing *passing = context;
	struct remote_dataset *dataset = passing->dataset;

	if (dataset->present_bytes > dataset->room && dataset->states[sample] == SAMPLE_PRESENT &&
	    !is_announced(passing->fetcher, dataset, sample))
		dataset_evict(dataset, sample);
}

/*
 * How many units beyond its position a feed's samples are requested: as many as may pass through a
 * full cache. Those that are there are not taken away before.
 */
static uint64_t units_ahead(const struct fetcher *fetcher, const struct remote_dataset *dataset)
{
	uint64_t sample = dataset->bytes / dataset->samples + 1;
	uint64_t units = fetcher->passing / sample;

	if (dataset->room >= dataset->bytes || units > FILLING_AHEAD)
		return FILLING_AHEAD;
	return units < UNITS_AHEAD_MIN ? UNITS_AHEAD_MIN : units;
}

/* Whether the cache has room for more samples of the dataset, or they may pass through. */
static bool has_room(const struct fetcher *fetcher, const struct remote_dataset *dataset)
{
	return dataset->present_bytes + fetcher->under_way <= dataset->room + fetcher->passing;
}

static void grant_wishes(struct fetcher *fetcher, struct fetch_feed *feed)
{
	struct remote_dataset *dataset = feed->dataset;
	struct batch batch = {.fetcher = fetcher, .dataset = dataset, .urgent = true};
	struct wish wishes[FILLING_WISHES];
	unsigned count = feed_wishes(feed, wishes);

	for (unsigned i = 0; i < count; i++) {
		uint64_t sample = wishes[i].sample;

		if (wishes[i].turn && dataset->states[sample] == SAMPLE_PRESENT &&
		    atomic_load(&feed->map->turns[sample]) == wishes[i].turn) {
			if (!feed_may_replace(feed))
				continue;
			dataset_evict(dataset, sample);
		}
		if (dataset->states[sample] == SAMPLE_ABSENT &&
		    (has_room(fetcher, dataset) || !feed_is_next(feed, sample, UINT64_MAX) ||
		     feed_is_next(feed, sample, feed_needed(feed))))
			request_sample(&batch, sample, 0);
		else if (dataset->states[sample] == SAMPLE_PRESENT)
			feed_arrived(feed, sample);
	}
	submit_batch(&batch);
}

/* Requests what a feed announces. */
static void follow_feed(struct fetcher *fetcher, struct fetch_feed *feed)
{
	struct remote_dataset *dataset = feed->dataset;
	struct batch batch = {.fetcher = fetcher, .dataset = dataset};
	const uint64_t target = under_way_target(fetcher), ahead = units_ahead(fetcher, dataset);
	const uint64_t needed = feed_needed(feed);
	uint64_t sample, bytes = 0;

	for (unsigned i = 0; i < UNITS_AT_ONCE; i++) {
		bool must = feed->cursor < needed;

		if (!must && (fetcher->under_way + bytes >= target || !has_room(fetcher, dataset) ||
			      feed->cursor >= feed->done + ahead))
			break;
		if (feed_next_unit(feed, &sample))
			break;
		if (!sample)
			continue;
		if (dataset->states[sample - 1] != SAMPLE_ABSENT) {
			dataset->hits++;
			continue;
		}
		size_t before = batch.count;
		dataset->misses++;
		request_sample(&batch, sample - 1, 0);
		for (; before < batch.count; before++)
			bytes += batch.pieces[before].part.range.size;
	}
	submit_batch(&batch);
}

void schedule_run(struct fetcher *fetcher)
{
	measure(fetcher);
	for (struct fetch_feed *feed = fetcher->feeds; feed; feed = feed->next) {
		struct passing passing = {fetcher, feed->dataset};

		if (feed->dataset->failed)
			continue;
		if (atomic_exchange(&feed->changed, false)) {
			feed_look(feed, pass_sample, &passing);
			grant_wishes(fetcher, feed);
		}
		follow_feed(fetcher, feed);
	}
}
