#include "tests/unit/proto/client/feed_test.h"

const char *binary;
struct feed_daemon *fake;
char error[FEED_ERROR_MAX];

int find_fake(void)
{
	binary = getenv("FAKE_LOADERD");
	if (!binary) {
		fputs("FAKE_LOADERD names no program\n", stderr);
		return 99;
	}
	/* the library starts the daemon directly, without an emulator */
	if (getenv("MESON_EXE_WRAPPER")) {
		fputs("Under an emulator no daemon can be started\n", stderr);
		return 77;
	}
	return 0;
}

int start_fake(void **state)
{
	int r = feed_daemon_start(binary, 0, &fake, error);
	if (r < 0)
		print_error("%s\n", error);
	return r;
}

int stop_fake(void **state)
{
	feed_daemon_stop(fake);
	fake = NULL;
	return 0;
}

struct feed_options options_for(const char *script)
{
	struct feed_options options;
	feed_options_init(&options);
	options.socket = feed_daemon_socket(fake);
	options.dataset = script;
	options.batch_size = 8;
	return options;
}

struct feed *open_script(const char *script)
{
	struct feed_options options = options_for(script);
	struct feed *feed = NULL;
	int r = feed_open(&options, &feed, error);
	if (r < 0)
		print_error("%s: %s\n", script, error);
	assert_int_equal(r, 0);
	assert_string_equal(error, "");
	return feed;
}

struct feed_batch next(struct feed *feed)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	int r = feed_next(feed, SOON_MS, &batch);
	if (r != 0)
		print_error("feed_next: %d, %s\n", r, feed_error(feed));
	assert_int_equal(r, 0);
	return batch;
}

void check_pixels(const struct feed_batch *batch)
{
	const uint8_t *pixels = batch->images;
	size_t each = FAKE_HEIGHT * FAKE_WIDTH * FAKE_CHANNELS;
	assert_int_equal(batch->image_bytes, each * batch->count);
	assert_int_equal((uintptr_t)pixels % 64, 0);
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t sample = fake_sample(batch->batch, 8, i);
		assert_int_equal(batch->samples[i], sample);
		assert_int_equal(batch->labels[i], sample % FAKE_CLASSES);
		for (size_t v = 0; v < each; v++)
			assert_int_equal(pixels[i * each + v], fake_pixel(batch->epoch, sample));
	}
}
