/*
 * Wanted feeds. A sample has the same bytes in any batch as in a plain feed with the same seed and
 * epoch; its k-th occurrence in a batch has those of its k-th copy. The batches are the same for
 * all numbers of threads and slots, and after restarts of the daemon.
 */
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include "proto/framing.h"

#include <signal.h>

enum { SAMPLES = 200, BATCH = 16, TIMEOUT_MS = 60000, COPIES = 4 };

static const char pipeline[] = "random_resized_crop(24) hflip(0.5) color_jitter(0.4)";
static char dataset[PATH_MAX];

static struct feed_options wanted_options(const struct fixture *fixture)
{
	struct feed_options options = fixture_options(fixture, dataset, pipeline);
	options.shuffle = 0;
	options.batch_size = BATCH;
	options.wanted = 1;
	return options;
}

static struct feed_batch next(struct feed *feed)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	int r = feed_next(feed, TIMEOUT_MS, &batch);
	if (r != 0)
		fail_msg("feed_next: %d, %s", r, feed_error(feed));
	return batch;
}

static void want(struct feed *feed, uint64_t epoch, const uint64_t *samples, uint32_t count)
{
	int r = feed_want(feed, epoch, samples, count);
	if (r != 0)
		fail_msg("feed_want: %d, %s", r, feed_error(feed));
}

/* The images of one epoch of a plain feed, by sample and copy. */
struct images {
	uint8_t *bytes;
	size_t size; /* bytes of an image */
};

static struct images plain_images(const struct fixture *fixture, uint64_t epoch)
{
	struct feed_options options = wanted_options(fixture);
	struct images images = {0};
	unsigned copies[SAMPLES] = {0};
	options.wanted = 0;
	options.repeats = COPIES;
	options.last = FEED_LAST_SHORT;
	options.epoch = epoch;
	struct feed *feed = fixture_open(&options);
	for (bool last = false; !last;) {
		struct feed_batch batch = next(feed);
		images.size = batch.image_bytes / batch.count;
		if (!images.bytes)
			images.bytes = malloc(SAMPLES * COPIES * images.size);
		for (uint32_t i = 0; i < batch.count; i++) {
			uint64_t sample = batch.samples[i];
			memcpy(images.bytes + (sample * COPIES + copies[sample]++) * images.size,
			       (const uint8_t *)batch.images + i * images.size, images.size);
		}
		last = batch.last;
		feed_release(feed, &batch);
	}
	feed_close(feed);
	for (unsigned i = 0; i < SAMPLES; i++)
		assert_int_equal(copies[i], COPIES);
	return images;
}

/* Compares the batch for `samples` with the plain feed, and releases it. */
static void check(struct feed *feed, const struct images *images, uint64_t epoch,
		  const uint64_t *samples, uint32_t count)
{
	unsigned copies[SAMPLES] = {0};
	struct feed_batch batch = next(feed);
	assert_int_equal(batch.epoch, epoch);
	assert_int_equal(batch.count, count);
	assert_int_equal(batch.batch + 1, batch.number);
	assert_int_equal(batch.last, 0);
	assert_int_equal(batch.image_bytes, count * images->size);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(batch.samples[i], samples[i]);
		assert_int_equal(batch.labels[i], samples[i] % FIXTURE_CLASSES);
		unsigned copy = copies[samples[i]]++;
		assert_memory_equal((const uint8_t *)batch.images + i * images->size,
				    images->bytes + (samples[i] * COPIES + copy) * images->size,
				    images->size);
	}
	assert_int_equal(feed_release(feed, &batch), 0);
}

/*
 * Makes a list of samples that differs for each n, sometimes with duplicates. Returns its length.
 */
static uint32_t list(unsigned n, uint64_t samples[BATCH])
{
	uint32_t count = 1 + n * 7 % BATCH;
	for (uint32_t i = 0; i < count; i++)
		samples[i] =
			n % 3 == 0 ? (n + i / COPIES * 31) % SAMPLES : (n * 53 + i * 19) % SAMPLES;
	return count;
}

static void want_list(struct feed *feed, uint64_t epoch, unsigned n)
{
	uint64_t samples[BATCH];
	uint32_t count = list(n, samples);
	want(feed, epoch, samples, count);
}

static void check_list(struct feed *feed, const struct images *images, uint64_t epoch, unsigned n)
{
	uint64_t samples[BATCH];
	uint32_t count = list(n, samples);
	check(feed, images, epoch, samples, count);
}

TEST(samples_are_those_of_a_plain_feed)
{
	struct fixture *fixture = *state;
	static const uint64_t epochs[] = {0, 3, UINT64_MAX};
	fixture_start(fixture, NULL, "--threads", "3", NULL);
	for (unsigned e = 0; e < 2; e++) {
		struct images images = plain_images(fixture, epochs[e]);
		struct feed_options options = wanted_options(fixture);
		struct feed *feed = fixture_open(&options);
		for (unsigned n = 0; n < 5; n++)
			want_list(feed, epochs[e], n);
		for (unsigned n = 0; n < 100; n++) {
			want_list(feed, epochs[e], n + 5);
			check_list(feed, &images, epochs[e], n);
		}
		feed_close(feed);
		free(images.bytes);
	}
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

static uint64_t hash_with(struct fixture *fixture, const char *environment, const char *threads,
			  uint32_t slots)
{
	struct feed_options options = wanted_options(fixture);
	uint64_t hash = 0;
	options.slots = slots;
	fixture_start(fixture, environment, "--threads", threads, NULL);
	struct feed *feed = fixture_open(&options);
	for (unsigned n = 0; n < 60; n++) {
		want_list(feed, n % 2 ? UINT64_MAX : n, n);
		if (n < 2)
			continue;
		hash = hash * 31 + fixture_hash_next(feed);
	}
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	return hash;
}

TEST(threads_slots_and_instruction_sets)
{
	uint64_t hash = hash_with(*state, NULL, "1", 0);
	assert_int_equal(hash_with(*state, NULL, "5", 2), hash);
	assert_int_equal(hash_with(*state, "LOADERD_ISA=c", "2", 7), hash);
	assert_int_equal(hash_with(*state, "LOADERD_ISA=avx2", "2", 3), hash);
}

TEST(invalid_wants_and_options)
{
	struct fixture *fixture = *state;
	struct feed_batch batch = {.size = sizeof(batch)};
	uint64_t samples[BATCH + 1] = {0};
	fixture_start(fixture, NULL, NULL);
	struct feed_options options = wanted_options(fixture);
	options.slots = 3;
	struct feed *feed = fixture_open(&options);
	struct feed_info info = {.size = sizeof(info)};
	feed_info(feed, &info);
	assert_int_equal(info.batches_per_epoch, 0);
	assert_int_equal(info.samples, SAMPLES);

	assert_int_equal(feed_next(feed, TIMEOUT_MS, &batch), -EINVAL);
	assert_non_null(strstr(feed_error(feed), "feed_want()"));
	assert_int_equal(feed_want(feed, 0, samples, 0), -EINVAL);
	assert_int_equal(feed_want(feed, 0, samples, BATCH + 1), -EINVAL);
	samples[1] = SAMPLES;
	assert_int_equal(feed_want(feed, 0, samples, 2), -EINVAL);
	assert_non_null(strstr(feed_error(feed), "200 samples"));
	for (unsigned i = 0; i < 3 + FEED_WANTS_AHEAD; i++)
		want(feed, i, samples, 1);
	assert_int_equal(feed_want(feed, 0, samples, 1), -EAGAIN);
	for (unsigned i = 0; i < 3 + FEED_WANTS_AHEAD; i++) {
		batch = next(feed);
		assert_int_equal(batch.epoch, i);
		feed_release(feed, &batch);
	}
	feed_close(feed);

	options.wanted = 0;
	feed = fixture_open(&options);
	assert_int_equal(feed_want(feed, 0, samples, 1), -EINVAL);
	assert_int_equal(feed_forget(feed), -EINVAL);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

static void assert_refused(const struct feed_options *options, const char *field)
{
	char error[FEED_ERROR_MAX] = "";
	struct feed *feed;
	assert_int_equal(feed_open(options, &feed, error), -EINVAL);
	if (!strstr(error, field))
		fail_msg("%s does not name %s", error, field);
}

TEST(options_of_an_order_are_refused)
{
	struct fixture *fixture = *state;
	fixture_start(fixture, NULL, "--set", "limits.batch_size=70000", NULL);
	const struct feed_options options = wanted_options(fixture);
	struct feed_options wrong = options;
	wrong.shuffle = 1;
	assert_refused(&wrong, "shuffle");
	wrong = options;
	wrong.epoch = 1;
	assert_refused(&wrong, "epoch");
	wrong = options;
	wrong.batch = 1;
	assert_refused(&wrong, "batch");
	wrong = options;
	wrong.epoch_end = 1;
	assert_refused(&wrong, "epoch_end");
	wrong = options;
	wrong.world = 2;
	assert_refused(&wrong, "world");
	wrong = options;
	wrong.last = FEED_LAST_SHORT;
	assert_refused(&wrong, "last");
	wrong = options;
	wrong.repeats = 2;
	assert_refused(&wrong, "repeats");
	wrong = options;
	wrong.batch_size = 65537;
	assert_refused(&wrong, "batch_size");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(forgotten_batches_are_not_delivered)
{
	struct fixture *fixture = *state;
	struct feed_batch batch = {.size = sizeof(batch)};
	fixture_start(fixture, NULL, "--threads", "2", NULL);
	struct images images = plain_images(fixture, 0);
	struct feed_options options = wanted_options(fixture);
	options.slots = 3;
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_forget(feed), 0);
	for (unsigned round = 0; round < 40; round++) {
		unsigned taken = round % 5;
		for (unsigned n = 0; n < 3 + FEED_WANTS_AHEAD; n++)
			want_list(feed, 0, round + n);
		for (unsigned n = 0; n < taken; n++)
			check_list(feed, &images, 0, round + n);
		assert_int_equal(feed_forget(feed), 0);
		if (round % 3 == 0)
			assert_int_equal(feed_next(feed, TIMEOUT_MS, &batch), -EINVAL);
	}
	want_list(feed, 0, 7);
	check_list(feed, &images, 0, 7);
	feed_close(feed);
	free(images.bytes);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Kills the daemon while batches are wanted, held and forgotten. */
TEST(a_daemon_dies)
{
	struct fixture *fixture = *state;
	fixture_start(fixture, NULL, "--threads", "2", NULL);
	struct images images = plain_images(fixture, 1);
	struct feed_options options = wanted_options(fixture);
	struct feed *feed = fixture_open(&options);
	unsigned n = 0;
	for (unsigned life = 0; life < 8; life++) {
		if (life % 3 == 2) {
			for (unsigned i = 0; i < 10; i++)
				want_list(feed, 0, i);
			assert_int_equal(feed_forget(feed), 0);
		}
		for (unsigned i = 0; i < 10; i++)
			want_list(feed, 1, n + i);
		for (unsigned i = 0; i < life % 4; i++)
			check_list(feed, &images, 1, n + i);
		fixture_stop(fixture, SIGKILL);
		fixture_start(fixture, NULL, "--threads", "2", NULL);
		for (unsigned i = life % 4; i < 10; i++)
			check_list(feed, &images, 1, n + i);
		n += 10;
	}
	struct feed_info info = {.size = sizeof(info)};
	feed_info(feed, &info);
	assert_in_range(info.reconnects, 1, 8);
	feed_close(feed);
	free(images.bytes);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Opens a feed over the socket, with 4 slots and batches of up to 32 samples. Returns the socket.
 */
static int open_without_libfeed(const struct fixture *fixture, bool wanted)
{
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	int socket = fixture_connect(fixture);
	open.version = PROTO_VERSION_OLDEST;
	open.dataset = dataset;
	open.pipeline = (char *)pipeline;
	open.batch_size = 32;
	open.slots = 4;
	open.wanted = wanted;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	fixture_send(socket, &request);
	for (;;) {
		Loaderd__Reply *reply = fixture_receive(socket, NULL);
		assert_non_null(reply);
		if (reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES)
			fixture_send_file(socket, dataset, reply->need_files, 1);
		else
			assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_FEED_OPENED);
		bool opened = reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED;
		loaderd__reply__free_unpacked(reply, NULL);
		if (opened)
			return socket;
	}
}

static void send_want(int socket, uint64_t *samples, size_t count)
{
	Loaderd__Want want = LOADERD__WANT__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	uint8_t message[1024];
	want.samples = samples;
	want.n_samples = count;
	request.kind_case = LOADERD__REQUEST__KIND_WANT;
	request.want = &want;
	assert_true(loaderd__request__get_packed_size(&request) <= sizeof(message));
	size_t size = loaderd__request__pack(&request, message);
	int r = frame_send(socket, message, size, NULL, 0, 10000);
	/* The daemon may have refused an earlier one already. Its reply is still there to be read.
	 */
	if (r != -EPIPE && r != -ECONNRESET)
		assert_int_equal(r, 0);
}

/* Asserts that the daemon answers with this error and hangs up. */
static void expect_end(int socket, const char *text)
{
	Loaderd__Reply *reply = fixture_receive(socket, NULL);
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_ERROR);
	assert_int_equal(reply->error->code, EINVAL);
	if (!strstr(reply->error->text, text))
		fail_msg("\"%s\" does not contain \"%s\"", reply->error->text, text);
	loaderd__reply__free_unpacked(reply, NULL);
	assert_null(fixture_receive(socket, NULL));
	close(socket);
}

TEST(clients_that_break_the_protocol)
{
	struct fixture *fixture = *state;
	uint64_t samples[33] = {0};
	fixture_start(fixture, NULL, NULL);
	int socket = fixture_connect(fixture);
	send_want(socket, samples, 1);
	expect_end(socket, "needs a wanted feed");
	socket = open_without_libfeed(fixture, false);
	send_want(socket, samples, 1);
	expect_end(socket, "needs a wanted feed");
	socket = open_without_libfeed(fixture, true);
	send_want(socket, samples, 0);
	expect_end(socket, "lists 0 samples");
	socket = open_without_libfeed(fixture, true);
	send_want(socket, samples, 33);
	expect_end(socket, "lists 33 samples");
	socket = open_without_libfeed(fixture, true);
	samples[2] = UINT64_MAX;
	send_want(socket, samples, 3);
	expect_end(socket, "sample 18446744073709551615");
	samples[2] = 0;
	/* The daemon begins 4 batches, and 20 may wait. */
	socket = open_without_libfeed(fixture, true);
	for (unsigned i = 0; i < 4 + 4 + FEED_WANTS_AHEAD + 1; i++)
		send_want(socket, samples, 32);
	expect_end(socket, "more batches are wanted");
	pid_t worker = fixture_worker(fixture);
	struct feed_options options = wanted_options(fixture);
	struct feed *feed = fixture_open(&options);
	want(feed, 0, samples, 1);
	struct feed_batch batch = next(feed);
	assert_int_equal(batch.count, 1);
	feed_close(feed);
	assert_int_equal(fixture_worker(fixture), worker);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

static int setup(void **state)
{
	static struct fixture fixture;
	fixture_init(&fixture);
	strcpy(dataset, fixture_dataset(&fixture, "images", SAMPLES, FIXTURE_JPEG, 0));
	*state = &fixture;
	return 0;
}

static int teardown(void **state)
{
	fixture_deinit(*state);
	return 0;
}

TEST_MAIN(setup, teardown)
