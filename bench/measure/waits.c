#include "bench/measure/waits.h"

#include <errno.h>
#include <stdio.h>

#include "format/base/system/clock.h"
#include "format/base/text/printable.h"

enum {
	OPENING_FIRST_MS = 2000,
	OPENING_NEXT_MS = 10000,
	BATCH_TIMEOUT_MS = 60000,
	SLICE_MS = 500, /* between two questions for a line */
};

void opening_wait_init(struct opening_wait *wait, const char *dataset)
{
	*wait = (struct opening_wait){dataset, clock_ms() + OPENING_FIRST_MS};
}

int opening_wait_tell(void *user, uint64_t done, uint64_t total)
{
	struct opening_wait *wait = user;

	if (clock_left_ms(wait->tell_ms) > 0)
		return 0;
	wait->tell_ms = clock_ms() + OPENING_NEXT_MS;
	if (total == 0)
		printable_line(stderr, "loaderbench: opening %s: its header is not there yet",
			       wait->dataset);
	else
		printable_line(stderr,
			       "loaderbench: opening %s: %.1f of %.1f MB of its index are there",
			       wait->dataset, (double)done / 1e6, (double)total / 1e6);
	return 0;
}

int waits_next(struct feed *feed, struct feed_batch *batch)
{
	const int64_t deadline_ms = clock_ms() + BATCH_TIMEOUT_MS;

	for (;;) {
		int left_ms = clock_left_ms(deadline_ms);
		int r = feed_next(feed, left_ms < SLICE_MS ? left_ms : SLICE_MS, batch);

		if (r != -ETIMEDOUT || clock_left_ms(deadline_ms) == 0)
			return r;
		const char *text = feed_wait_text(feed);
		if (*text)
			printable_line(stderr, "loaderbench: %s", text);
	}
}

const char *waits_error(const struct feed *feed, int r)
{
	return r == FEED_END     ? "the feed has ended"
	       : r == -ETIMEDOUT ? "none came within a minute"
				 : feed_error(feed);
}
