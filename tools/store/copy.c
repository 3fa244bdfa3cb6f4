#include "tools/store/copy.h"
#include "format/base/system/io.h"

#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 100 };

struct copy {
	struct store *store;
	const struct store_source *sources;
	uint32_t count, source; /* sources; the one that is being requested */
	uint64_t range, done;   /* of that source; bytes of that range */
	unsigned parts;         /* under way */
	uint64_t bytes;         /* written */
	int status;             /* of the first part that has failed */
	struct packimg_error *error;
};

struct copy_part {
	struct copy *copy;
	int fd;
	uint64_t at; /* offset of the next byte */
};

static int compare_ranges(const void *left, const void *right)
{
	const struct store_range *a = left, *b = right;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

uint64_t store_ranges_merge(struct store_range *ranges, uint64_t count, uint64_t gap)
{
	uint64_t kept = 0;

	if (count)
		qsort(ranges, count, sizeof(*ranges), compare_ranges);
	for (uint64_t i = 0; i < count; i++) {
		struct store_range *last = kept ? &ranges[kept - 1] : NULL;
		uint64_t end = ranges[i].offset + ranges[i].size;

		if (!ranges[i].size)
			continue;
		if (!last || ranges[i].offset > last->offset + last->size + gap)
			ranges[kept++] = ranges[i];
		else if (end > last->offset + last->size)
			last->size = end - last->offset;
	}
	return kept;
}

static int take_bytes(void *context, const void *bytes, size_t size)
{
	struct copy_part *part = context;
	int r = io_write_at(part->fd, bytes, size, part->at);

	if (!r) {
		part->at += size;
		part->copy->bytes += size;
	}
	return r;
}

static void part_done(void *context, const struct store_result *result)
{
	struct copy_part *part = context;
	struct copy *copy = part->copy;

	copy->parts--;
	if (result->status && !copy->status) {
		copy->status = result->status;
		if (copy->error)
			*copy->error = *result->error;
	}
	free(part);
}

static int copy_submit(struct copy *copy, const struct store_source *source, uint64_t offset,
		       uint64_t size)
{
	struct copy_part *part = malloc(sizeof(*part));
	const struct store_request request = {
		.object = source->object,
		.offset = offset,
		.size = size,
		.take = take_bytes,
		.done = part_done,
		.context = part,
	};

	if (part) {
		*part = (struct copy_part){.copy = copy, .fd = source->fd, .at = offset};
		if (!store_submit(copy->store, &request)) {
			copy->parts++;
			return 0;
		}
	}
	free(part);
	return packimg_fail(copy->error, -ENOMEM, "out of memory");
}

/* Submits the next part. Returns false if there is none. */
static bool copy_next(struct copy *copy)
{
	while (copy->source < copy->count) {
		const struct store_source *source = &copy->sources[copy->source];

		if (copy->range == source->range_count) {
			copy->source++;
			copy->range = 0;
			continue;
		}
		const struct store_range *range = &source->ranges[copy->range];
		uint64_t left = range->size - copy->done;
		uint64_t size = left < STORE_COPY_PART ? left : STORE_COPY_PART;

		copy->status = copy_submit(copy, source, range->offset + copy->done, size);
		copy->done += size;
		if (copy->done == range->size) {
			copy->range++;
			copy->done = 0;
		}
		return true;
	}
	return false;
}

int store_copy(struct store *store, const struct store_source *sources, uint32_t count,
	       bool (*on_bytes)(void *context, uint64_t bytes), void *context,
	       struct packimg_error *error)
{
	struct copy copy = {.store = store, .sources = sources, .count = count, .error = error};
	bool more = true;

	while (copy.parts || (more && !copy.status)) {
		while (more && !copy.status && copy.parts < STORE_CONNECTIONS_MAX)
			more = copy_next(&copy);
		if (copy.parts)
			store_poll(store, NULL, 0, POLL_MS);
		if (on_bytes && !on_bytes(context, copy.bytes) && !copy.status)
			copy.status = packimg_fail(error, -EINTR, "interrupted");
	}
	return copy.status;
}
