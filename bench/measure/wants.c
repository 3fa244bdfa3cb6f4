#include "bench/measure/wants.h"

#include "format/base/random.h"

#include <errno.h>
#include <stdlib.h>

static void set_order(struct wants *wants, uint64_t epoch)
{
	struct random_stream stream;
	for (uint64_t i = 0; i < wants->samples; i++)
		wants->order[i] = i;
	wants->order_epoch = epoch;
	if (wants->stored_order)
		return;
	/* Fisher-Yates; the bias of the remainder does not matter here. */
	random_init(&stream, wants->seed, epoch, 0, RANDOM_ORDER);
	for (uint64_t i = wants->samples - 1; i > 0; i--) {
		uint64_t j = random_u32(&stream) % (i + 1), sample = wants->order[i];
		wants->order[i] = wants->order[j];
		wants->order[j] = sample;
	}
}

int wants_begin(struct wants *wants, const struct settings *settings, struct feed *feed)
{
	struct feed_info info = {.size = sizeof(info)};
	if (!settings->wanted)
		return 0;
	feed_info(feed, &info);
	wants->feed = feed;
	wants->seed = settings->seed;
	wants->stored_order = settings->stored_order;
	wants->samples = info.samples;
	wants->batch_size = info.batch_size;
	wants->asked = wants->taken;
	free(wants->order);
	wants->order = malloc(info.samples * sizeof(*wants->order));
	if (!wants->order)
		return -ENOMEM;
	set_order(wants, 0);
	return 0;
}

void wants_free(struct wants *wants)
{
	free(wants->order);
}

int wants_ask(struct wants *wants)
{
	int r = 0;
	while (wants->feed && r == 0) {
		uint64_t batches = (wants->samples - 1) / wants->batch_size + 1;
		uint64_t epoch = wants->asked / batches;
		uint64_t first = wants->asked % batches * wants->batch_size;
		uint64_t left = wants->samples - first;
		if (wants->order_epoch != epoch)
			set_order(wants, epoch);
		r = feed_want(wants->feed, epoch, wants->order + first,
			      left < wants->batch_size ? (uint32_t)left : wants->batch_size);
		wants->asked += r == 0;
	}
	return r == -EAGAIN ? 0 : r;
}

void wants_took(struct wants *wants)
{
	wants->taken++;
}
