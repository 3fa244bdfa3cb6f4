/*
 * data.augment = device: the daemon leaves the last transforms to the device and sends the random
 * parameters that it drew for each sample. The memory is untrusted: the parameters are copied, then
 * checked, and only the copy is used.
 */
#include "format/augment/deferred.h"
#include "trainer/run/input/feeds.h"

#include <errno.h>
#include <string.h>

#define defer_fail(error, code, ...) sentence_fail(error, DATA_ERROR_MAX, code, __VA_ARGS__)

/* Returns the payload size of a FEED_BYTES record; 0 if its length exceeds the field. */
static size_t defer_size(const struct feed_field *field, const char *record)
{
	uint32_t size;
	memcpy(&size, record, sizeof(size));
	return size <= field->stride - sizeof(size) ? size : 0;
}

int run_feed_take_deferred(const struct data *data, struct run_feed *feed, struct feed_batch *batch,
			   char *error)
{
	struct feed_field field;
	if (!feed->deferred)
		return 0;
	int r = feed_field(feed->feed, batch, 0, &field);
	if (r < 0)
		return defer_fail(error, r,
				  "the daemon does not defer transforms to the device: %s",
				  strerror(-r));
	if (batch->count > data_train_share(data) || field.type != FEED_BYTES ||
	    field.stride < sizeof(uint32_t) || batch->element != FEED_U8 ||
	    batch->height > DEFERRED_SIDE_MAX || batch->width > DEFERRED_SIDE_MAX)
		return defer_fail(error, -EBADMSG,
				  "the daemon sent no valid list of deferred transforms");
	for (uint32_t i = 0; i < batch->count; i++) {
		const char *record = (const char *)field.values + i * field.stride;
		struct deferred *deferred = &feed->deferred[i];
		const char *wrong =
			deferred_read(record + sizeof(uint32_t), defer_size(&field, record),
				      batch->width, batch->height, deferred);
		if (!wrong && (deferred->width != feed->deferred[0].width ||
			       deferred->height != feed->deferred[0].height))
			wrong = "width or height differ within the batch";
		if (wrong)
			return defer_fail(error, -EBADMSG,
					  "the daemon sent invalid deferred transforms for sample "
					  "%llu: %s; it "
					  "may be of another version: set data.augment=daemon",
					  (unsigned long long)batch->samples[i], wrong);
	}
	feed->delivered_height = batch->height;
	feed->delivered_width = batch->width;
	batch->height = feed->deferred[0].height;
	batch->width = feed->deferred[0].width;
	return 0;
}
