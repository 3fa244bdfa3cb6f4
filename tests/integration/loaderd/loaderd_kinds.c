/*
 * Values of every kind (every_kind.h) do not depend on the delivery: numbers of threads, slots and
 * ranks, instruction set, batch size, two consecutive resumes with other world sizes, daemons that
 * are killed or stopped, and killed workers. The tests compare each section of each sample, by
 * epoch, sample and copy, with an undisturbed feed. LOADERD_TEST_LONG=1 combines all settings with
 * all orders of world sizes.
 */
#include "format/packimg.h"
#include "tests/integration/loaderd/every_kind.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <xxhash.h>

enum {
	SAMPLES = EVERY_KIND_SAMPLES,
	EPOCHS = 5,
	COPIES = 2,
	GLOBAL = 12, /* samples of a global batch; a multiple of every world size and of COPIES */
	SECTIONS_MAX = EVERY_KIND_VALUES_MAX,
};

/*
 * Pipelines and their values: with all values, with those that are allowed after random_iou_crop,
 * and with views, of as many as a feed has room for. `without` lists how the names of the others
 * begin.
 */
static const struct delivery {
	const char *pipeline, *without;
} deliveries[] = {
	{"random_resized_crop(20) hflip vflip(0.3) random_affine(10) "
	 "color_jitter(0.4, 0.4, 0.4, 0.1) mask_u8, mask_i32: fill(200) "
	 "raster_u16, raster_f32, alone: filter(bilinear) normalize(imagenet) to(f16) "
	 "random_erasing(0.25) xyxy: sanitize_boxes(min_size=3) clamp_boxes",
	 ""},
	{"xyxy: random_iou_crop resize(20x20) hflip xyxy: sanitize_boxes mask_u8, mask_i32: "
	 "to(i64) "
	 "raster_u8: to(i16) raster_u16, raster_i16: to(f32) raster_u16: filter(bilinear) "
	 "raster_i16: filter(bicubic)",
	 "right twin alone cxcywh"},
	{"hflip view large(2) { random_resized_crop(20) vflip(0.3) random_affine(10) "
	 "color_jitter(0.4, 0.4, 0.4, 0.1) mask_u8: fill(200) xyxy: sanitize_boxes(min_size=3) } "
	 "view small { random_resized_crop(12, scale=0.05:0.4) gaussian_blur(3, p=0.5) "
	 "raster_u16: filter(bilinear) }",
	 "right twin alone cxcywh list_ vector_ number_ tags bytes"},
};
enum { DELIVERIES = sizeof(deliveries) / sizeof(*deliveries) };
static const char *delivered[DELIVERIES][EVERY_KIND_VALUES_MAX];
static uint32_t delivered_count[DELIVERIES];
static uint32_t current; /* index in deliveries[] */

struct setting {
	const char *threads, *isa; /* isa: NULL for the best that this CPU has */
	uint32_t slots, world;
};

static char folder[FIXTURE_FOLDER_MAX], path[PATH_MAX];

/* Recorded from the undisturbed feeds: a hash of each section, and the samples of each epoch. */
static uint64_t known[DELIVERIES][EPOCHS][SAMPLES][COPIES][SECTIONS_MAX];
static uint64_t orders[COPIES][EPOCHS][SAMPLES * COPIES]; /* [repeats - 1] */

static uint64_t section_hash(struct feed *feed, const struct feed_batch *batch, uint32_t s,
			     uint32_t i)
{
	struct feed_section section = {.size = sizeof(section)};
	assert_int_equal(feed_section(feed, batch, s, &section), 0);
	size_t size = section.bytes / batch->count;
	const void *value = (const char *)section.data + i * size;
	if (section.kind == FEED_RAGGED) {
		int64_t rows = feed_rows(&section, i, &value);
		assert_true(rows >= 0);
		size = (size_t)rows * section.row;
	}
	return XXH3_64bits_withSeed(value, size, size);
}

/* A range of an epoch's positions: a global batch, or one rank's part of it. */
struct global_batch {
	uint64_t first; /* position in the epoch */
	uint32_t count;
};

static struct global_batch global_batch(uint32_t repeats, uint64_t batch)
{
	struct global_batch all = {batch * GLOBAL, GLOBAL};
	if (all.first + GLOBAL > (uint64_t)SAMPLES * repeats)
		all.count = (uint32_t)(SAMPLES * repeats - all.first);
	return all;
}

static uint64_t batches_of_epoch(uint32_t repeats)
{
	return ((uint64_t)SAMPLES * repeats + GLOBAL - 1) / GLOBAL;
}

/* Returns a rank's part. Parts are as equal as possible; lower ranks get one more. */
static struct global_batch part_of(struct global_batch all, uint32_t rank, uint32_t world)
{
	uint32_t least = all.count / world, more = all.count % world;
	return (struct global_batch){all.first + (uint64_t)rank * least +
					     (rank < more ? rank : more),
				     least + (rank < more)};
}

/* Compares each section of sample i with the recorded one, or records it. */
static void check_sample(struct feed *feed, const struct feed_batch *batch, uint32_t i,
			 uint32_t copy, bool learn)
{
	struct feed_info info = {.size = sizeof(info)};
	uint32_t of_further_views = 0;
	assert_true(batch->epoch < EPOCHS && batch->samples[i] < SAMPLES);
	uint64_t *hashes = known[current][batch->epoch][batch->samples[i]][copy];
	feed_info(feed, &info);
	for (uint32_t s = 0; s < info.section_count; s++) {
		uint64_t hash = section_hash(feed, batch, s, i);
		struct feed_section section = {.size = sizeof(section)};
		feed_section(feed, NULL, s, &section);
		of_further_views += section.view > 0;
		if (learn)
			hashes[s] = hash;
		if (hash == hashes[s])
			continue;
		fail_msg("epoch %llu, batch %llu: \"%s\" of sample %llu, copy %u, view %u, is "
			 "another",
			 (unsigned long long)batch->epoch, (unsigned long long)batch->batch,
			 section.name, (unsigned long long)batch->samples[i], copy, section.view);
	}
	assert_int_equal(info.section_count, 4 + delivered_count[current] + of_further_views);
}

/* Checks a batch that contains this part of a global batch. */
static void check_batch(struct feed *feed, const struct feed_batch *batch, uint32_t repeats,
			struct global_batch all, struct global_batch part, bool learn)
{
	assert_int_equal(batch->count, part.count);
	assert_int_equal(batch->bad, 0);
	assert_true(batch->epoch < EPOCHS);
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t at = part.first + i;
		uint64_t *sample = &orders[repeats - 1][batch->epoch][at];
		if (learn)
			*sample = batch->samples[i];
		assert_int_equal(batch->samples[i], *sample);
		check_sample(feed, batch, i, (uint32_t)(at - all.first) / (all.count / repeats),
			     learn);
	}
}

static struct feed_options options_of(const struct fixture *fixture)
{
	struct feed_options options = fixture_options(fixture, path, deliveries[current].pipeline);
	options.values = delivered[current];
	options.value_count = delivered_count[current];
	options.last = FEED_LAST_SHORT;
	return options;
}

static void start(struct fixture *fixture, const struct setting *setting)
{
	fixture_start(fixture, setting->isa, "--threads", setting->threads, NULL);
}

struct position {
	uint64_t epoch, batch;
};

static void next_position(struct position *position, uint32_t repeats)
{
	if (++position->batch == batches_of_epoch(repeats))
		*position = (struct position){position->epoch + 1, 0};
}

/* Kills the worker; returns once another one serves this user. */
static void replace_worker(const struct fixture *fixture)
{
	const pid_t pid = fixture_worker(fixture);
	assert_int_equal(kill(pid, SIGKILL), 0);
	while (fixture_worker(fixture) == pid)
		usleep(1000);
}

/*
 * Takes one rank's parts of `batches` global batches from position `from` on. With `kill_worker`,
 * kills the worker after the first one: batches already in slots are still delivered, and the next
 * worker makes the following ones. Returns the feed's final position.
 */
static struct position take_rank(struct fixture *fixture, const struct setting *setting,
				 uint32_t rank, uint32_t repeats, struct position from,
				 unsigned batches, bool kill_worker)
{
	struct feed_options options = options_of(fixture);
	struct position at = from;
	struct feed_info info = {.size = sizeof(info)};
	unsigned taken = 0;
	options.batch_size = GLOBAL / setting->world;
	options.slots = setting->slots;
	options.rank = rank;
	options.world = setting->world;
	options.repeats = repeats;
	options.epoch = from.epoch;
	options.batch = from.batch;
	struct feed *feed = fixture_open(&options);
	for (unsigned b = 0; b < batches; b++, next_position(&at, repeats)) {
		struct feed_batch batch = {.size = sizeof(batch)};
		struct global_batch all = global_batch(repeats, at.batch);
		struct global_batch part = part_of(all, rank, setting->world);
		if (part.count == 0)
			continue;
		int r = feed_next(feed, 60000, &batch);
		if (r != 0)
			fail_msg("feed_next: %d (%s)", r, feed_error(feed));
		assert_int_equal(batch.epoch, at.epoch);
		assert_int_equal(batch.batch, at.batch);
		check_batch(feed, &batch, repeats, all, part, false);
		feed_release(feed, &batch);
		if (taken++ == 0 && kill_worker)
			replace_worker(fixture);
	}
	feed_info(feed, &info);
	if (kill_worker && taken > 1 + setting->slots)
		assert_int_equal(info.reconnects, 1);
	feed_position(feed, &at.epoch, &at.batch);
	feed_close(feed);
	return at;
}

/* Takes the parts of all ranks of `batches` global batches. Returns the position after them. */
static struct position take(struct fixture *fixture, const struct setting *setting,
			    uint32_t repeats, struct position from, unsigned batches,
			    bool kill_worker)
{
	struct position behind = {0}, expected = from;
	for (unsigned b = 0; b < batches; b++)
		next_position(&expected, repeats);
	for (uint32_t rank = 0; rank < setting->world; rank++) {
		struct position said =
			take_rank(fixture, setting, rank, repeats, from, batches, kill_worker);
		if (rank == 0)
			behind = said;
	}
	assert_int_equal(behind.epoch, expected.epoch);
	assert_int_equal(behind.batch, expected.batch);
	return behind;
}

/* Records all epochs from one feed. */
static void learn(struct fixture *fixture, uint32_t repeats)
{
	struct feed_options options = options_of(fixture);
	options.batch_size = GLOBAL;
	options.repeats = repeats;
	options.epoch_end = EPOCHS;
	struct feed *feed = fixture_open(&options);
	struct feed_batch batch = {.size = sizeof(batch)};
	int r;
	while ((r = feed_next(feed, 60000, &batch)) == 0) {
		struct global_batch all = global_batch(repeats, batch.batch);
		check_batch(feed, &batch, repeats, all, all, true);
		feed_release(feed, &batch);
	}
	if (r != FEED_END)
		fail_msg("feed_next: %d (%s)", r, feed_error(feed));
	feed_close(feed);
}

/* Returns whether the name begins with a word of the list, which spaces separate. */
static bool begins_with_any(const char *name, const char *list)
{
	for (size_t length; *list; list += length + (list[length] == ' ')) {
		length = strcspn(list, " ");
		if (strncmp(name, list, length) == 0)
			return true;
	}
	return false;
}

/* Lists the values of a delivery. Values that refer to a further image require that image. */
static void list_values(uint32_t delivery)
{
	delivered_count[delivery] = 0;
	for (uint32_t v = 0; v < every_kind_count(); v++) {
		if (!begins_with_any(every_kind_names[v], deliveries[delivery].without))
			delivered[delivery][delivered_count[delivery]++] = every_kind_names[v];
	}
}

/* Returns the fixture. The first call writes the dataset and records its values. */
static struct fixture *prepare(void **state)
{
	static bool done;
	const struct setting setting = {.threads = "2"};
	current = 0;
	if (done)
		return *state;
	snprintf(path, sizeof(path), "%s/kinds.pimg", folder);
	every_kind_write(path);
	start(*state, &setting);
	for (current = DELIVERIES; current-- > 0;) {
		list_values(current);
		learn(*state, 1);
		learn(*state, COPIES);
	}
	current = 0;
	assert_int_equal(fixture_stop(*state, SIGTERM), 0);
	done = true;
	return *state;
}

/* Copies and epochs differ where the pipeline is random, so the comparisons are meaningful. */
TEST(draws_differ)
{
	struct feed_section section;
	struct fixture *fixture = prepare(state);
	const struct setting setting = {.threads = "1"};
	start(fixture, &setting);
	struct feed_options options = options_of(fixture);
	struct feed *feed = fixture_open(&options);
	static const char *const drawn[] = {"image",      "twin", "mask_i32", "raster_f32", "alone",
					    "raster_u16", "xyxy", "cxcywh",   "points"};
	for (size_t k = 0; k < sizeof(drawn) / sizeof(*drawn); k++) {
		section = fixture_section(feed, NULL, drawn[k]);
		assert_string_equal(section.name, drawn[k]);
		uint32_t s = (uint32_t)feed_section_find(feed, drawn[k]);
		unsigned epochs = 0, copies = 0;
		for (uint32_t i = 0; i < SAMPLES; i++) {
			epochs += known[0][0][i][0][s] != known[0][1][i][0][s];
			copies += known[0][0][i][0][s] != known[0][0][i][1][s];
		}
		assert_in_range(epochs, SAMPLES / 2, SAMPLES);
		assert_in_range(copies, SAMPLES / 2, SAMPLES);
	}
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Continues twice from the position of the previous feeds, each time with another setting. */
static void resume_twice(struct fixture *fixture, const struct setting settings[3],
			 uint32_t repeats, struct position at, unsigned batches)
{
	for (unsigned k = 0; k < 3; k++) {
		start(fixture, &settings[k]);
		at = take(fixture, &settings[k], repeats, at, batches, k == 1);
		fixture_stop(fixture, k % 2 == 0 ? SIGKILL : SIGTERM);
	}
}

TEST(two_resumes_at_other_world_sizes)
{
	static const struct setting settings[][3] = {
		{{"1", NULL, 3, 1}, {"2", "LOADERD_ISA=c", 2, 2}, {"5", "LOADERD_ISA=avx2", 3, 3}},
		{{"5", "LOADERD_ISA=c", 3, 3}, {"1", NULL, 2, 2}, {"2", "LOADERD_ISA=avx2", 3, 1}},
	};
	struct fixture *fixture = prepare(state);
	/*
	 * These runs cross the end of an epoch, whose last batch is too small to give every rank a
	 * part.
	 */
	for (current = DELIVERIES; current-- > 0;) {
		resume_twice(fixture, settings[0], 1, (struct position){0, 0}, 4);
		resume_twice(fixture, settings[1], COPIES, (struct position){1, 4}, 4);
	}
}

/* Ranks can resume at each batch of an epoch, including the last one, and at its end. */
TEST(ranks_resume_at_every_batch)
{
	static const struct setting setting = {"2", NULL, 2, 3};
	struct fixture *fixture = prepare(state);
	start(fixture, &setting);
	for (uint64_t batch = 0; batch < batches_of_epoch(1); batch++)
		take(fixture, &setting, 1, (struct position){0, batch}, 2, false);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* A sample has the same values in a batch of one as in a larger batch. */
TEST(batches_of_one_have_the_same_values)
{
	struct fixture *fixture = prepare(state);
	const struct setting setting = {.threads = "2", .isa = "LOADERD_ISA=c"};
	start(fixture, &setting);
	struct feed_options options = options_of(fixture);
	options.batch_size = 1;
	struct feed *feed = fixture_open(&options);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		struct feed_batch batch = {.size = sizeof(batch)};
		assert_int_equal(feed_next(feed, 60000, &batch), 0);
		assert_int_equal(batch.samples[0], orders[0][0][i]);
		check_sample(feed, &batch, 0, 0, false);
		feed_release(feed, &batch);
	}
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * Images are the same without other values, and with fields, for which clients use the previous
 * version of the protocol.
 */
TEST(images_alone_are_the_same)
{
	static const char images[] = "random_resized_crop(20) hflip vflip(0.3) random_affine(10) "
				     "color_jitter(0.4, 0.4, 0.4, 0.1) normalize(imagenet) to(f16) "
				     "random_erasing(0.25)";
	static const char *const fields[] = {"number_i64", "text"};
	struct fixture *fixture = prepare(state);
	const struct setting setting = {.threads = "2"};
	start(fixture, &setting);
	for (uint32_t field_count = 0; field_count <= 2; field_count += 2) {
		struct feed_options options = options_of(fixture);
		struct feed_info info = {.size = sizeof(info)};
		struct feed_batch batch = {.size = sizeof(batch)};
		options.pipeline = images;
		options.value_count = 0;
		options.fields = fields;
		options.field_count = field_count;
		struct feed *feed = fixture_open(&options);
		feed_info(feed, &info);
		assert_int_equal(info.section_count == 0, field_count > 0);
		assert_int_equal(feed_next(feed, 60000, &batch), 0);
		for (uint32_t i = 0; i < batch.count; i++) {
			size_t size = batch.image_bytes / batch.count;
			const char *image = (const char *)batch.images + i * size;
			assert_int_equal(XXH3_64bits_withSeed(image, size, size),
					 known[0][0][batch.samples[i]][0][0]);
		}
		feed_close(feed);
	}
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * Samples in batches that the client lists have the same bytes as in an ordered feed; a duplicate
 * has those of the sample's next copy.
 */
TEST(wanted_samples_are_the_same)
{
	static const uint64_t lists[2][5] = {{7, 3, 7, 49, 3}, {0, 0, 7, 1, 2}};
	static const uint32_t copies[2][5] = {{0, 0, 1, 0, 1}, {0, 1, 0, 0, 0}};
	struct fixture *fixture = prepare(state);
	const struct setting settings[2] = {{.threads = "1"}, {"5", "LOADERD_ISA=c", 0, 0}};
	struct feed_options options = options_of(fixture);
	options.shuffle = options.last = 0;
	options.wanted = 1;
	options.batch_size = 8;
	start(fixture, &settings[0]);
	struct feed *feed = fixture_open(&options);
	for (unsigned b = 0; b < 4; b++)
		assert_int_equal(feed_want(feed, 1 + b / 2, lists[b % 2], 5), 0);
	for (unsigned b = 0; b < 4; b++) {
		struct feed_batch batch = {.size = sizeof(batch)};
		if (b == 1) {
			fixture_stop(fixture, SIGKILL);
			start(fixture, &settings[1]);
		}
		assert_int_equal(feed_next(feed, 60000, &batch), 0);
		assert_int_equal(batch.count, 5);
		for (uint32_t i = 0; i < 5; i++) {
			assert_int_equal(batch.samples[i], lists[b % 2][i]);
			check_sample(feed, &batch, i, copies[b % 2][i], false);
		}
		feed_release(feed, &batch);
	}
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(all_settings_and_orders_of_world_sizes)
{
	enum { ALL = 3 * 2 * 4 * 6 };
	static const char *const threads[] = {"1", "2", "5"};
	static const char *const isas[] = {"LOADERD_ISA=c", "LOADERD_ISA=avx2",
					   "LOADERD_ISA=avx512bw", NULL};
	static const uint32_t worlds[][3] = {{1, 2, 3}, {1, 3, 2}, {2, 1, 3},
					     {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};
	struct fixture *fixture = prepare(state);
	if (!getenv("LOADERD_TEST_LONG"))
		skip();
	for (unsigned k = 0; k < ALL; k++) {
		const uint32_t *world = worlds[k % 6], repeats = 1 + (k / 6 + k / 24) % COPIES;
		struct setting settings[3];
		for (unsigned j = 0; j < 3; j++)
			settings[j] =
				(struct setting){threads[(k / 48 + j) % 3], isas[(k / 6 + j) % 4],
						 2 + (k / 24 + j) % 2, world[j]};
		struct position at = {k % 2, k % batches_of_epoch(repeats)};
		current = k % 7 % DELIVERIES;
		resume_twice(fixture, settings, repeats, at, 2 + k % 3);
	}
}

TEST(damaged_images_make_bad_samples_where_they_are_delivered)
{
	static const char *const one[] = {"mask_u8", "right"};
	struct packimg_sample right;
	struct packimg *dataset;
	char damaged[PATH_MAX];
	snprintf(damaged, sizeof(damaged), "%s/damaged.pimg", folder);
	every_kind_write(damaged);
	assert_int_equal(packimg_open(damaged, &dataset, NULL), 0);
	assert_int_equal(packimg_image(dataset, 7, 0, &right), 0);
	int fd = open(damaged, O_WRONLY | O_CLOEXEC);
	uint8_t byte = (uint8_t)~right.data[0];
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)right.data_offset), 1);
	close(fd);
	packimg_close(dataset);
	fixture_start(*state, NULL, NULL);
	struct feed_options options = fixture_options(*state, damaged, "resize(20x20)");
	options.value_count = options.epoch_end = 1;
	options.last = FEED_LAST_SHORT;
	for (unsigned k = 0; k < 2; k++) {
		struct feed_batch batch = {.size = sizeof(batch)};
		unsigned bad = 0;
		options.values = &one[k];
		struct feed *feed = fixture_open(&options);
		for (; feed_next(feed, 60000, &batch) == 0; feed_release(feed, &batch))
			bad += batch.bad;
		assert_int_equal(bad, k);
		feed_close(feed);
	}
	assert_int_equal(fixture_stop(*state, SIGTERM), 0);
}

int main(void)
{
	return fixture_main("kinds", folder);
}
