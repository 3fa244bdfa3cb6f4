/* Counts the images of each class in one epoch: example DATASET. */
#include <feed.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	char error[FEED_ERROR_MAX];
	struct feed_daemon *daemon = NULL;
	struct feed_options options;
	struct feed *feed;
	unsigned long counts[1000] = {0};
	int r;

	feed_options_init(&options);
	options.dataset = argc > 1 ? argv[1] : NULL;
	options.pipeline = "random_resized_crop(224) hflip(0.5)";
	options.batch_size = 256;
	options.shuffle = 1;
	options.epoch_end = 1;
	options.last = FEED_LAST_SHORT;
	if (feed_daemon_start(NULL, 0, &daemon, error) < 0) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	options.socket = feed_daemon_socket(daemon);
	if (feed_open(&options, &feed, error) < 0) {
		fprintf(stderr, "%s\n", error);
		feed_daemon_stop(daemon);
		return 1;
	}
	struct feed_batch batch = {.size = sizeof(batch)};
	while ((r = feed_next(feed, -1, &batch)) == 0) {
		for (uint32_t i = 0; i < batch.count; i++) /* pixels: batch.images */
			if (batch.labels[i] >= 0 && batch.labels[i] < 1000)
				counts[batch.labels[i]]++;
		feed_release(feed, &batch);
	}
	if (r < 0)
		fprintf(stderr, "%s\n", feed_error(feed));
	feed_close(feed);
	feed_daemon_stop(daemon);
	for (int i = 0; i < 1000; i++)
		if (counts[i] > 0)
			printf("%d %lu\n", i, counts[i]);
	return r < 0;
}
