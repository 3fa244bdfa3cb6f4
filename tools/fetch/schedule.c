#include "tools/fetch/schedule.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
	CONNECTION_BYTES = 3 << 16, /* of memory: libcurl's buffer, and what TLS needs */
	PROGRAM_BYTES = 16 << 20,   /* of memory, without requests */
	LOOK_MS = 50,               /* between two looks at the pages, at most */
	LOOK_ANNOUNCING_MS = 5,
	UNITS_AT_ONCE = 2048, /* that are sorted together, so that neighbours are found */
	UNITS_AHEAD_MIN = 16,
	/* As many again have been announced, among which a sample's neighbours are found. */
	UNITS_AHEAD_MAX = FILLING_AHEAD / 2,
	EXTRAS_MIN = 256,
	TRIES_MAX = 2,       /* of a sample whose checksum is wrong */
	CLEARANCES_MAX = 16, /* of a full disk, in a row, without a request that succeeds */
	OVERHEAD_MS = 1000,
};

/* A request has at most this many bytes. */
#define SPAN_MAX ((uint64_t)1 << 20)
/* Samples that are requested together have so many bytes: most such requests need not be cut. */
#define NEIGHBOURS_BYTES (SPAN_MAX / 4 * 3)
/* How long urgent samples may wait until the neighbours of those before them have come. */
#define NEIGHBOURS_S 2.0
/* Bytes between two samples that one request fetches: alignment, and small pieces of others. */
#define SPAN_GAP ((uint64_t)4096)
/* Bytes between the images of a sample. */
#define PART_GAP ((uint64_t)1 << 16)
/* Bytes of a full cache through which samples pass, at most. */
#define PASSING_MAX ((uint64_t)256 << 20)

/* A sample that is being fetched. */
struct need {
	struct fetcher *fetcher;
	struct remote_dataset *dataset;
	uint64_t sample;
	unsigned pending; /* parts that are not there yet */
	unsigned tries;
	bool lost; /* disk or memory had no room for a part */
};

/* A part of a need, while a batch is sorted into requests. */
struct piece {
	struct sample_part part;
	struct need *need;
	size_t order; /* in the batch; the lowest is wanted first */
};

/* A request: a range of a file, with the parts in it. */
struct span {
	struct fetcher *fetcher;
	struct remote_dataset *dataset;
	uint32_t file;
	uint64_t begin, at, end;
	unsigned clearances; /* fetcher->clearances when it began */
	uint8_t *buffer;     /* [end - begin], what has come; NULL: it is written as it comes */
	size_t order;        /* the lowest of its pieces */
	unsigned count;
	struct need *needs[]; /* [count]; one may be there several times */
};

/* Needs that are requested together. */
struct batch {
	struct fetcher *fetcher;
	struct remote_dataset *dataset;
	struct piece *pieces;
	size_t count, capacity;
	uint64_t bytes; /* of the pieces */
	bool urgent;
};

static void request_sample(struct batch *batch, uint64_t sample, unsigned tries);
static void submit_batch(struct batch *batch);

void schedule_init(struct fetcher *fetcher)
{
	const uint64_t memory = fetcher->memory - PROGRAM_BYTES;
	const uint64_t connections = memory / 2 / CONNECTION_BYTES;

	/* without buffers, replies are written as they come */
	(void)buffers_init(&fetcher->buffers, (unsigned)(memory / 2 / SPAN_MAX), SPAN_MAX);
	fetcher->connections =
		connections < STORE_CONNECTIONS_MAX ? (unsigned)connections : STORE_CONNECTIONS_MAX;
	rate_init(&fetcher->rate);
	fetcher->passing =
		fetcher->cache.limit / 4 < PASSING_MAX ? fetcher->cache.limit / 4 : PASSING_MAX;
}

void schedule_close(struct fetcher *fetcher)
{
	buffers_close(&fetcher->buffers);
}

/* Bytes on disk of a dataset that does not fit. */
static uint64_t used_bytes(const struct remote_dataset *dataset)
{
	return dataset->pages ? dataset->pages->used + dataset->overhead
			      : dataset_disk_bytes(dataset);
}

static bool passes_through(const struct remote_dataset *dataset)
{
	return dataset->pages != NULL;
}

/* Whether samples whose units are over have to go. */
static bool is_over_full(const struct remote_dataset *dataset)
{
	return passes_through(dataset) && used_bytes(dataset) > dataset->keep;
}

static void set_room(const struct fetcher *fetcher, struct remote_dataset *dataset, uint64_t room)
{
	dataset->room = room;
	dataset->keep = room > fetcher->passing ? room - fetcher->passing : 0;
}

/* The dataset that does not fit and has most room; NULL without one. */
static struct remote_dataset *find_largest(const struct fetcher *fetcher)
{
	struct remote_dataset *largest = NULL;

	for (struct remote_dataset *at = fetcher->datasets; at; at = at->next)
		if (at->room < at->bytes && !at->failed && (!largest || at->room > largest->room))
			largest = at;
	return largest;
}

/* Marks the samples that feeds wait for now; the caller frees the array. NULL if memory is out. */
static bool *mark_needed(const struct fetcher *fetcher, const struct remote_dataset *dataset)
{
	bool *needed = calloc(dataset->samples, sizeof(*needed));

	for (const struct fetch_feed *feed = fetcher->feeds; needed && feed; feed = feed->next)
		for (uint64_t unit = feed->done; feed->dataset == dataset && unit < feed->cursor &&
						 unit < feed_needed(feed, FEED_BATCHES);
		     unit++) {
			uint64_t sample = feed->window[unit % FILLING_AHEAD];

			if (sample)
				needed[sample - 1] = true;
		}
	return needed;
}

/* Takes samples away that no feed waits for now, until the dataset has what it may keep. */
static bool give_back(const struct fetcher *fetcher, struct remote_dataset *dataset)
{
	bool *needed = mark_needed(fetcher, dataset);

	for (uint64_t i = 0; needed && i < dataset->samples && is_over_full(dataset); i++)
		if (dataset->states[i] == SAMPLE_PRESENT && !needed[i])
			dataset_evict(dataset, i);
	free(needed);
	return needed != NULL;
}

void schedule_share_room(struct fetcher *fetcher, struct remote_dataset *dataset)
{
	uint64_t disk = dataset_disk_bytes(dataset), promised = 0;
	uint64_t missing = disk < dataset->bytes ? dataset->bytes - disk : 0;

	for (const struct remote_dataset *at = fetcher->datasets; at; at = at->next) {
		uint64_t room = at->room < at->bytes ? at->room : at->bytes, has = used_bytes(at);

		promised += !at->failed && has < room ? room - has : 0;
	}
	uint64_t left = cache_make_room(&fetcher->cache, missing + promised);
	left = left > promised ? left - promised : 0;
	struct remote_dataset *largest = left < missing ? find_largest(fetcher) : NULL;
	if (largest && largest->room / 2 > left) {
		left += largest->room / 2;
		set_room(fetcher, largest, largest->room / 2);
		give_back(fetcher, largest);
	}
	if (left >= missing)
		dataset->room = dataset->bytes;
	else
		set_room(fetcher, dataset, disk + left);
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
		if (feed->dataset == dataset && feed_is_next(feed, sample))
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

	if (*oldest && is_over_full(dataset) && dataset->states[*oldest - 1] == SAMPLE_PRESENT &&
	    !is_announced(fetcher, dataset, *oldest - 1))
		dataset_evict(dataset, *oldest - 1);
	*oldest = 0;
	dataset->extras[dataset->extra_next++ % DATASET_EXTRAS] = sample + 1;
}

/* A sample has come. */
static void keep_sample(struct fetcher *fetcher, struct remote_dataset *dataset, uint64_t sample)
{
	dataset_set_present(dataset, sample);
	if (passes_through(dataset) && !is_announced(fetcher, dataset, sample))
		keep_extra(fetcher, dataset, sample);
	wake_feeds(fetcher, dataset, sample);
}

/* All parts of a sample are there, or cannot be had; `bytes` are those of the last one, or NULL. */
static void need_done(struct need *need, const struct file_bytes *bytes)
{
	struct remote_dataset *dataset = need->dataset;
	struct batch batch = {.fetcher = need->fetcher, .dataset = dataset, .urgent = true};

	if (dataset->failed || need->lost) {
		dataset_set_state(dataset, need->sample, SAMPLE_ABSENT);
	} else if (need->tries + 1 < TRIES_MAX &&
		   !dataset_sample_good(dataset, need->sample, bytes)) {
		request_sample(&batch, need->sample, need->tries + 1);
		submit_batch(&batch);
	} else {
		/* if it is wrong twice, the daemon says so */
		keep_sample(need->fetcher, dataset, need->sample);
	}
	free(need);
}

/*
 * Collects the reply, so that it is written at once, and samples are checked while the processor
 * has them in its cache: small writes to a sparse file cost several times as much.
 */
static void span_add_buffer(struct span *span)
{
	if (span->end - span->begin <= SPAN_MAX)
		span->buffer = buffers_take(&span->fetcher->buffers);
}

static void span_free(struct span *span)
{
	buffers_give(&span->fetcher->buffers, span->buffer);
	free(span);
}

static int span_take(void *context, const void *bytes, size_t size)
{
	struct span *span = context;
	int r = 0;

	if (span->at == span->begin && !span->buffer)
		span_add_buffer(span);
	if (span->buffer)
		memcpy(span->buffer + (span->at - span->begin), bytes, size);
	else
		r = io_write_at(span->dataset->entry.fds[span->file], bytes, size, span->at);
	if (r)
		return r;
	span->at += size;
	span->fetcher->under_way -= size;
	span->dataset->fetched += size;
	return 0;
}

/*
 * The disk is full, whatever the limit says: what the dataset has is all that it gets. Gives back
 * samples until some more can pass through. False if none can.
 */
static bool clear_space(struct fetcher *fetcher, struct remote_dataset *dataset)
{
	uint64_t most = dataset_disk_bytes(dataset);

	fetcher->clearances++;
	if (++dataset->clearances > CLEARANCES_MAX || dataset_count_pages(dataset))
		return false;
	if (fetcher->passing > most / 4)
		fetcher->passing = most / 4;
	set_room(fetcher, dataset, most < dataset->room ? most : dataset->room);
	return give_back(fetcher, dataset);
}

/* The samples of a span whose bytes could not be written are fetched again when they are wanted. */
static void lose_span(struct span *span)
{
	struct remote_dataset *dataset = span->dataset;
	struct packimg_error error;

	for (unsigned i = 0; i < span->count; i++)
		span->needs[i]->lost = true;
	for (struct fetch_feed *feed = span->fetcher->feeds; feed; feed = feed->next)
		atomic_store(&feed->changed, true); /* its wishes are looked at again */
	if (span->clearances != span->fetcher->clearances || clear_space(span->fetcher, dataset))
		return;
	dataset_say_full(dataset, &span->fetcher->cache, &error);
	dataset_fail(dataset, -ENOSPC, &error);
}

/* Writes what was collected. */
static int span_write(const struct span *span)
{
	int fd = span->dataset->entry.fds[span->file];
	uint64_t size = span->end - span->begin;

	/* One extent costs less than a block at a time. What fails here is said by the write. */
	(void)fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)span->begin, (off_t)size);
	return io_write_at(fd, span->buffer, size, span->begin);
}

/* Says why a request has failed; those that the disk had no space for are fetched again. */
static void span_judge(struct span *span, const struct store_result *result)
{
	struct remote_dataset *dataset = span->dataset;
	int status = result->status;
	struct packimg_error error;

	if (!status && span->buffer)
		status = span_write(span);
	if (dataset_disk_full(status)) {
		lose_span(span);
	} else if (status && !result->status) {
		packimg_say(&error, "%.200s: %s", dataset->objects[0].address.shown,
			    strerror(-status));
		dataset_fail(dataset, status, &error);
	} else if (status) {
		dataset_fail(dataset, status, result->error);
	} else {
		dataset->clearances = 0;
	}
}

static void span_done(void *context, const struct store_result *result)
{
	struct span *span = context;
	struct remote_dataset *dataset = span->dataset;
	const struct file_bytes bytes = {
		span->buffer, span->file, {span->begin, span->end - span->begin}};

	dataset->under_way--;
	span->fetcher->under_way -= span->end - span->at;
	dataset->requests++;
	span_judge(span, result);
	for (unsigned i = 0; i < span->count; i++)
		if (--span->needs[i]->pending == 0)
			need_done(span->needs[i], span->buffer ? &bytes : NULL);
	if (dataset->pages) /* what lay between samples */
		pages_trim(dataset, span->file, span->begin, span->end);
	span_free(span);
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
	batch->pieces[batch->count] = (struct piece){*part, need, batch->count};
	batch->count++;
	batch->bytes += part->range.size;
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
		*need = (struct need){batch->fetcher, batch->dataset, sample, count, tries, false};
	for (unsigned i = 0; good && i < count; i++)
		good = add_piece(batch, &parts[i], need);
	if (!good) { /* out of memory: a wish will come again */
		batch->count = before;
		free(need);
		dataset_set_state(batch->dataset, sample, SAMPLE_ABSENT);
		return;
	}
	dataset_set_state(batch->dataset, sample, SAMPLE_UNDER_WAY);
	if (count == 0)
		need_done(need, NULL); /* the reader sees that its record is damaged */
}

static int compare_pieces(const void *left, const void *right)
{
	const struct sample_part *a = &((const struct piece *)left)->part;
	const struct sample_part *b = &((const struct piece *)right)->part;

	if (a->file != b->file)
		return a->file < b->file ? -1 : 1;
	return a->range.offset < b->range.offset ? -1 : a->range.offset > b->range.offset;
}

/* Gives a part up if memory is out: a wish for its sample will come again. */
static void drop_part(struct need *need)
{
	need->lost = true;
	if (--need->pending == 0)
		need_done(need, NULL);
}

/* A request for pieces that follow each other; NULL if memory is out. */
static struct span *span_new(const struct batch *batch, const struct piece *pieces, size_t count,
			     uint64_t end)
{
	struct span *span = malloc(sizeof(*span) + count * sizeof(struct need *));

	if (!span) {
		for (size_t i = 0; i < count; i++)
			drop_part(pieces[i].need);
		return NULL;
	}
	*span = (struct span){.fetcher = batch->fetcher,
			      .dataset = batch->dataset,
			      .file = pieces[0].part.file,
			      .begin = pieces[0].part.range.offset,
			      .at = pieces[0].part.range.offset,
			      .end = end,
			      .clearances = batch->fetcher->clearances,
			      .order = pieces[0].order,
			      .count = (unsigned)count};
	for (size_t i = 0; i < count; i++) {
		span->needs[i] = pieces[i].need;
		if (pieces[i].order < span->order)
			span->order = pieces[i].order;
	}
	return span;
}

static void submit_span(const struct batch *batch, struct span *span)
{
	struct fetcher *fetcher = batch->fetcher;
	struct remote_dataset *dataset = batch->dataset;
	const struct store_request request = {
		.object = &dataset->objects[span->file],
		.offset = span->begin,
		.size = span->end - span->begin,
		.urgent = batch->urgent,
		.take = span_take,
		.done = span_done,
		.context = span,
	};

	if (store_submit(fetcher->store, &request)) {
		for (unsigned i = 0; i < span->count; i++)
			drop_part(span->needs[i]);
		free(span);
		return;
	}
	dataset->under_way++;
	fetcher->under_way += request.size;
}

/* Makes spans of pieces that are neighbours. Returns how many. */
static size_t make_spans(struct batch *batch, struct span **spans)
{
	size_t first = 0, count = 0;

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
		spans[count] = span_new(batch, batch->pieces + first, next - first, end);
		count += spans[count] != NULL;
		first = next;
	}
	return count;
}

static int compare_spans(const void *left, const void *right)
{
	const struct span *a = *(const struct span *const *)left;
	const struct span *b = *(const struct span *const *)right;

	return a->order < b->order ? -1 : a->order > b->order;
}

/* Requests the pieces, neighbours together, in the order in which the first of each is wanted. */
static void submit_batch(struct batch *batch)
{
	struct span **spans = batch->count ? malloc(batch->count * sizeof(struct span *)) : NULL;
	size_t count = spans ? make_spans(batch, spans) : 0;

	for (size_t i = 0; !spans && i < batch->count; i++)
		drop_part(batch->pieces[i].need);
	if (spans)
		qsort(spans, count, sizeof(struct span *), compare_spans);
	for (size_t i = 0; i < count; i++)
		submit_span(batch, spans[i]);
	free(spans);
	free(batch->pieces);
	batch->pieces = NULL;
	batch->count = batch->capacity = batch->bytes = 0;
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

	if (is_over_full(dataset) && dataset->states[sample] == SAMPLE_PRESENT &&
	    !is_announced(passing->fetcher, dataset, sample))
		dataset_evict(dataset, sample);
}

static bool is_kept(const struct remote_dataset *dataset)
{
	return dataset->room >= dataset->bytes;
}

/*
 * How many units beyond its position a feed's samples are requested: as many as may pass through a
 * full cache. Those that are there are not taken away before.
 */
static uint64_t units_ahead(const struct fetcher *fetcher, const struct remote_dataset *dataset)
{
	uint64_t sample = dataset->bytes / dataset->samples + PAGE_BYTES;
	uint64_t units = fetcher->passing / sample;

	if (!passes_through(dataset) || units > UNITS_AHEAD_MAX)
		return UNITS_AHEAD_MAX;
	return units < UNITS_AHEAD_MIN ? UNITS_AHEAD_MIN : units;
}

/* Whether the cache has room for more samples of the dataset. */
static bool has_room(const struct remote_dataset *dataset)
{
	return !passes_through(dataset) || used_bytes(dataset) < dataset->room;
}

/*
 * Whether the sample is going to be requested when its unit's turn comes, in order and with its
 * neighbours. A wish for it says only that the worker is ahead; granting it makes requests smaller.
 * Not so if the worker has not begun that unit: it needs the sample for another one, such as that
 * of a mosaic, and the turn may not come before that one is done.
 */
static bool will_follow(const struct fetcher *fetcher, const struct fetch_feed *feed,
			uint64_t sample)
{
	const struct remote_dataset *dataset = feed->dataset;

	return is_kept(dataset) && (feed->marks[sample] & FEED_ANNOUNCED) &&
	       !feed_is_next(feed, sample) &&
	       feed_is_begun(feed, sample, feed->done + units_ahead(fetcher, dataset));
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
		    !will_follow(fetcher, feed, sample) &&
		    (has_room(dataset) || !feed_is_next(feed, sample) ||
		     feed_is_needed(feed, sample)))
			request_sample(&batch, sample, 0);
		else if (dataset->states[sample] == SAMPLE_PRESENT)
			feed_arrived(feed, sample);
	}
	submit_batch(&batch);
}

/* Whether the feed has announced a sample that nobody has requested. */
static bool is_wanted(const struct fetch_feed *feed, uint64_t sample)
{
	return (feed->marks[sample] & FEED_ANNOUNCED) &&
	       feed->dataset->states[sample] == SAMPLE_ABSENT;
}

/* Requests a sample that a feed has announced, unless it is there. */
static void follow_sample(struct batch *batch, struct fetch_feed *feed, uint64_t sample,
			  uint8_t mark)
{
	batch->dataset->misses++;
	feed->marks[sample] |= mark;
	request_sample(batch, sample, 0);
}

/*
 * Requests the neighbours of a sample that are announced, too: one request for many samples costs
 * both sides less than one for each. Neighbours are cut at fixed places, so that no few are left
 * between two requests.
 */
static void follow_neighbours(struct batch *batch, struct fetch_feed *feed, uint64_t sample)
{
	const struct remote_dataset *dataset = batch->dataset;
	const uint64_t fitting = NEIGHBOURS_BYTES / (dataset->bytes / dataset->samples + 1);

	if (fitting < 2)
		return;
	uint64_t first = sample - sample % fitting;
	for (uint64_t i = first; i < first + fitting && i < dataset->samples; i++)
		if (is_wanted(feed, i))
			follow_sample(batch, feed, i, FEED_EARLY);
}

/*
 * Whether an urgent sample brings its neighbours: not that of a feed's first batches, nor over a
 * slow link, where a batch with all neighbours would take longer than a worker waits for a sample.
 */
static bool has_time(const struct fetcher *fetcher, const struct fetch_feed *feed, uint64_t bytes)
{
	return feed->done && (double)bytes < NEIGHBOURS_S * fetcher->rate.peak;
}

/*
 * Requests the sample of a feed's next unit, and its neighbours. bytes: that are to come before
 * them.
 */
static void follow_unit(struct batch *batch, struct fetch_feed *feed, uint64_t sample,
			uint64_t bytes)
{
	uint8_t early = feed->marks[sample] & FEED_EARLY;

	feed->marks[sample] &= (uint8_t)~FEED_EARLY;
	if (feed->dataset->states[sample] != SAMPLE_ABSENT) {
		feed->dataset->hits += !early;
		return;
	}
	follow_sample(batch, feed, sample, 0);
	if (is_kept(feed->dataset) && (!batch->urgent || has_time(batch->fetcher, feed, bytes)))
		follow_neighbours(batch, feed, sample);
}

/*
 * Requests what a feed announces: the batch that is due, the next one, and, after them, what comes
 * later.
 */
static void follow_feed(struct fetcher *fetcher, struct fetch_feed *feed)
{
	struct remote_dataset *dataset = feed->dataset;
	struct batch soon = {.fetcher = fetcher, .dataset = dataset, .urgent = true};
	struct batch later = {.fetcher = fetcher, .dataset = dataset};
	const uint64_t target = rate_under_way(&fetcher->rate, fetcher->store),
		       ahead = units_ahead(fetcher, dataset);
	const uint64_t due = feed_needed(feed, 1), needed = feed_needed(feed, FEED_BATCHES);
	const bool announcing = feed_is_announcing(feed);
	uint64_t sample;

	for (unsigned i = 0; i < UNITS_AT_ONCE; i++) {
		bool must = feed->cursor < needed;
		uint64_t bytes = fetcher->under_way + soon.bytes + later.bytes;
		bool full = bytes >= target;

		if (full)
			rate_note_full(&fetcher->rate);
		if (!must && (announcing || full || !has_room(dataset) ||
			      feed->cursor >= feed->done + ahead))
			break;
		if (feed->cursor == due)
			submit_batch(&soon);
		if (feed_next_unit(feed, &sample))
			break;
		if (sample)
			follow_unit(must ? &soon : &later, feed, sample - 1, bytes);
	}
	submit_batch(&soon);
	submit_batch(&later);
}

/* Sees whether the file system takes more than the pages that are counted, as with large blocks. */
static void measure_disk(struct fetcher *fetcher)
{
	if (clock_ms() - fetcher->disk_measured_ms < OVERHEAD_MS)
		return;
	fetcher->disk_measured_ms = clock_ms();
	for (struct remote_dataset *at = fetcher->datasets; at; at = at->next) {
		uint64_t disk = passes_through(at) ? dataset_disk_bytes(at) : 0;

		at->overhead =
			passes_through(at) && disk > at->pages->used ? disk - at->pages->used : 0;
	}
}

int schedule_run(struct fetcher *fetcher)
{
	int look_ms = LOOK_MS;

	rate_measure(&fetcher->rate, fetcher->store);
	rate_set_limits(&fetcher->rate, fetcher->store, fetcher->connections);
	measure_disk(fetcher);
	for (struct fetch_feed *feed = fetcher->feeds; feed; feed = feed->next) {
		struct passing passing = {fetcher, feed->dataset};

		if (feed->dataset->failed)
			continue;
		bool changed = atomic_exchange(&feed->changed, false);

		if (changed)
			feed_look(feed, pass_sample, &passing);
		/* in order first: wishes are in the order in which threads came to the samples */
		follow_feed(fetcher, feed);
		if (!feed->announced)
			look_ms = LOOK_ANNOUNCING_MS;
		if (changed)
			grant_wishes(fetcher, feed);
	}
	return look_ms;
}
