/*
 * A libfeed client that checks what it receives: `feed_recount SOCKET DATASET PIPELINE BATCH-SIZE
 * BATCHES` takes BATCHES batches, shuffled with seed 1. It prints the same hash of them as
 * loaderbench --hash, and reports each reconnect in a line on standard error. The exit status is 0
 * only if each epoch had each of its samples once and none was bad.
 */
#include "proto/client/feed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { TIMEOUT_MS = 120000 };

struct recount {
	struct feed *feed;
	XXH3_state_t *hash;
	uint8_t *seen; /* [samples]: seen in this epoch */
	uint64_t samples, reconnects;
};

static void add(struct recount *recount, const struct feed_batch *batch)
{
	const uint64_t head[] = {batch->epoch,   batch->batch,  batch->count,
				 batch->height,  batch->width,  batch->channels,
				 batch->element, batch->layout, batch->last};
	XXH3_128bits_update(recount->hash, head, sizeof(head));
	XXH3_128bits_update(recount->hash, batch->images, batch->image_bytes);
	XXH3_128bits_update(recount->hash, batch->labels, batch->count * sizeof(*batch->labels));
	XXH3_128bits_update(recount->hash, batch->samples, batch->count * sizeof(*batch->samples));
	XXH3_128bits_update(recount->hash, batch->flags, batch->count * sizeof(*batch->flags));
}

/* Returns 0 if no sample of the batch is flagged or was seen before in its epoch, else -1. */
static int check(struct recount *recount, const struct feed_batch *batch)
{
	if (batch->batch == 0)
		memset(recount->seen, 0, recount->samples);
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t sample = batch->samples[i];
		if (sample < recount->samples && recount->seen[sample]++ == 0 &&
		    batch->flags[i] == 0)
			continue;
		fprintf(stderr,
			"epoch %" PRIu64 ", batch %" PRIu64 ": sample %" PRIu64
			" comes again, or is bad\n",
			batch->epoch, batch->batch, sample);
		return -1;
	}
	return batch->bad == 0 ? 0 : -1;
}

static int take(struct recount *recount)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	if (feed_next(recount->feed, TIMEOUT_MS, &batch) != 0) {
		fprintf(stderr, "%s\n", feed_error(recount->feed));
		return -1;
	}
	if (batch.reconnects != recount->reconnects)
		fprintf(stderr, "%s\n", feed_reconnect_text(recount->feed));
	recount->reconnects = batch.reconnects;
	add(recount, &batch);
	int r = check(recount, &batch);
	feed_release(recount->feed, &batch);
	return r;
}

static int start(struct recount *recount, char **arguments)
{
	struct feed_options options;
	struct feed_info info = {.size = sizeof(info)};
	char error[FEED_ERROR_MAX];
	feed_options_init(&options);
	options.socket = arguments[0];
	options.dataset = arguments[1];
	options.pipeline = arguments[2];
	options.batch_size = (uint32_t)strtoul(arguments[3], NULL, 10);
	options.shuffle = 1;
	options.seed = 1;
	if (feed_open(&options, &recount->feed, error) < 0) {
		fprintf(stderr, "%s\n", error);
		return -1;
	}
	feed_info(recount->feed, &info);
	recount->samples = info.samples;
	recount->seen = calloc(info.samples, 1);
	recount->hash = XXH3_createState();
	if (!recount->seen || !recount->hash)
		return -1;
	XXH3_128bits_reset(recount->hash);
	return 0;
}

int main(int argc, char **argv)
{
	struct recount recount = {0};
	if (argc != 6)
		return 2;
	int r = start(&recount, argv + 1);
	for (unsigned long left = strtoul(argv[5], NULL, 10); left > 0 && r == 0; left--)
		r = take(&recount);
	feed_close(recount.feed);
	if (r == 0) {
		XXH128_hash_t hash = XXH3_128bits_digest(recount.hash);
		printf("%016" PRIx64 "%016" PRIx64 "\n", (uint64_t)hash.high64,
		       (uint64_t)hash.low64);
	}
	XXH3_freeState(recount.hash);
	free(recount.seen);
	return r < 0;
}
