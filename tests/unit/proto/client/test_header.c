/* Compiles feed.h as C99 and as C++ without other headers, and uses only what it declares. */
#include "proto/client/feed.h"

int main(void)
{
	struct feed_options options;
	struct feed_batch batch;
	feed_options_init(&options);
	batch.size = sizeof(batch);
	feed_daemon_stop(0);
	feed_close(0);
	return options.size == sizeof(struct feed_options) && FEED_BF16 == 3 && batch.size != 0 ? 0
												: 1;
}
