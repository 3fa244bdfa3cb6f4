#include "tools/store/copy.h"
#include "format/base/system/io.h"

#include <stdlib.h>
#include <string.h>

struct copy {
	struct store *store;
	struct store_object *object;
	int fd;
	unsigned parts; /* under way */
	uint64_t bytes; /* written */
	int status;     /* of the first part that has failed */
	struct packimg_error *error;
};

struct copy_part {
	struct copy *copy;
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
	int r = io_write_at(part->copy->fd, bytes, size, part->at);

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

static int copy_submit(struct copy *copy, uint64_t offset, uint64_t size)
{
	struct copy_part *part = malloc(sizeof(*part));
	const struct store_request request = {
		.object = copy->object,
		.offset = offset,
		.size = size,
		.take = take_bytes,
		.done = part_done,
		.context = part,
	};

	if (part) {
		*part = (struct copy_part){.copy = copy, .at = offset};
		if (!store_submit(copy->store, &request)) {
			copy->parts++;
			return 0;
		}
	}
	free(part);
	return packimg_fail(copy->error, -ENOMEM, "out of memory");
}

int store_copy(struct store *store, struct store_object *object, const struct store_range *ranges,
	       uint64_t count, int fd, void (*on_bytes)(void *context, uint64_t bytes),
	       void *context, struct packimg_error *error)
{
	struct copy copy = {.store = store, .object = object, .fd = fd, .error = error};
	uint64_t range = 0, done = 0; /* of ranges[range] */

	while (copy.parts || (range < count && !copy.status)) {
		while (!copy.status && range < count && copy.parts < STORE_CONNECTIONS_MAX) {
			uint64_t left = ranges[range].size - done;
			uint64_t size = left < STORE_COPY_PART ? left : STORE_COPY_PART;

			copy.status = copy_submit(&copy, ranges[range].offset + done, size);
			done += size;
			if (done == ranges[range].size) {
				range++;
				done = 0;
			}
		}
		store_run(store, 100);
		if (on_bytes)
			on_bytes(context, copy.bytes);
	}
	return copy.status;
}
