/*
 * Batches that the daemon mixes: the partners, shares and boxes that the trainer draws, and the
 * same bytes at any position, for any number of threads and ranks and every instruction set.
 */
#include "format/augment/kernels/converter.h"
#include "format/base/half.h"
#include "format/packimg.h"
#include "proto/framing.h"
#include "tests/dataset.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"
#include "trainer/algorithms/mix.h"
#include "trainer/device/steps.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <xxhash.h>

enum { SAMPLES = 101, BATCH = 16, BATCHES = 7, EPOCHS = 2 };

static char folder[FIXTURE_FOLDER_MAX];

static const char *dataset(struct fixture *fixture)
{
	static char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "mix", SAMPLES, FIXTURE_JPEG, 0));
	return path;
}

static struct feed_options options_of(const struct fixture *fixture, const char *path,
				      const char *pipeline)
{
	struct feed_options options = fixture_options(fixture, path, pipeline);
	options.batch_size = BATCH;
	options.last = FEED_LAST_SHORT;
	options.epoch_end = EPOCHS;
	return options;
}

/* ---- the trainer's arithmetic, element by element ---- */

static size_t size_of(uint32_t element)
{
	return element == FEED_U8 ? 1 : element == FEED_F32 ? 4 : 2;
}

static float value_at(const uint8_t *image, uint32_t element, size_t i)
{
	uint16_t half;
	float value;
	if (element == FEED_U8)
		return image[i];
	memcpy(&half, image + 2 * i, sizeof(half));
	if (element != FEED_F32)
		return element == FEED_F16 ? half_to_float(half) : bfloat_to_float(half);
	memcpy(&value, image + 4 * i, sizeof(value));
	return value;
}

static void check_image(const struct feed_batch *plain, const struct feed_batch *mixed, uint32_t i,
			const struct device_blend *blend)
{
	const size_t bytes = plain->image_bytes / plain->count, size = size_of(plain->element);
	const uint8_t *own = (const uint8_t *)plain->images + i * bytes;
	const uint8_t *other = (const uint8_t *)plain->images + blend->partner * bytes;
	const uint8_t *got = (const uint8_t *)mixed->images + i * bytes;
	for (size_t k = 0; k < bytes / size; k++) {
		size_t pixel = plain->layout == FEED_NCHW ? k % (plain->height * plain->width)
							  : k / plain->channels;
		uint32_t y = (uint32_t)(pixel / plain->width), x = (uint32_t)(pixel % plain->width);
		float a = value_at(own, plain->element, k), b = value_at(other, plain->element, k);
		uint8_t expected[4];
		if (y >= blend->top && y < blend->bottom && x >= blend->left && x < blend->right)
			a = b;
		else if (blend->share < 1)
			a = blend->share * a + (1 - blend->share) * b;
		converter_element(expected, (enum pipeline_element)plain->element, a);
		assert_memory_equal(got + k * size, expected, size);
	}
}

/* smoothing: of dense targets; below 0 for pairs. */
static void check_target(struct feed *feed, const struct feed_batch *mixed, uint32_t i,
			 uint32_t partner, float share, float smoothing)
{
	struct feed_section target = fixture_section(feed, mixed, "target");
	const int32_t label = mixed->labels[i];
	const int32_t other = share < 1 ? mixed->labels[partner] : label;
	if (smoothing < 0) {
		struct feed_section shares = fixture_section(feed, mixed, "share");
		const int32_t *pair = (const int32_t *)target.data + 2 * i;
		assert_int_equal(pair[0], label);
		assert_int_equal(pair[1], other);
		assert_true(((const float *)shares.data)[i] == share);
		return;
	}
	assert_int_equal(target.element, FEED_F32);
	assert_int_equal(target.shape[0], FIXTURE_CLASSES);
	for (int32_t k = 0; k < FIXTURE_CLASSES; k++) {
		float expected = smoothing / FIXTURE_CLASSES, scale = 1 - smoothing;
		expected += k == label ? scale * share : 0;
		expected += k == other ? scale * (1 - share) : 0;
		assert_true(((const float *)target.data)[i * FIXTURE_CLASSES + k] == expected);
	}
}

static void check_batch(struct feed *feed, const struct feed_batch *plain,
			const struct feed_batch *mixed, const struct recipe_train *recipe,
			float smoothing)
{
	const struct mix_batch batch = {.seed = 5,
					.step = plain->epoch * BATCHES + plain->batch + 1,
					.count = plain->count,
					.micro = plain->count,
					.height = plain->height,
					.width = plain->width};
	struct device_blend blends[BATCH];
	float shares[BATCH];
	mix_draw(recipe, &batch, blends, shares);
	assert_int_equal(mixed->count, plain->count);
	assert_memory_equal(mixed->labels, plain->labels, plain->count * sizeof(*plain->labels));
	for (uint32_t i = 0; i < plain->count; i++) {
		if (blends[i].partner >= plain->count) { /* the last of an odd number */
			blends[i] = (struct device_blend){.partner = i, .share = 1};
			shares[i] = 1;
		}
		check_image(plain, mixed, i, &blends[i]);
		check_target(feed, mixed, i, blends[i].partner, shares[i], smoothing);
	}
}

/* What a pipeline has, and the trainer's recipe for the same. */
struct method {
	const char *form, *steps;
	struct recipe_train recipe;
	float smoothing;
};

static void check_method(const struct fixture *fixture, const char *path,
			 const struct method *method)
{
	char text[256];
	snprintf(text, sizeof(text), "random_resized_crop(30x21) hflip %s", method->form);
	struct feed_options options = options_of(fixture, path, text);
	struct feed *plain_feed = fixture_open(&options);
	snprintf(text, sizeof(text), "random_resized_crop(30x21) hflip %s %s", method->form,
		 method->steps);
	struct feed *mixed_feed = fixture_open(&options);
	for (unsigned n = 0; n < EPOCHS * BATCHES; n++) {
		struct feed_batch plain = {.size = sizeof(plain)}, mixed = {.size = sizeof(mixed)};
		assert_int_equal(feed_next(plain_feed, 60000, &plain), 0);
		assert_int_equal(feed_next(mixed_feed, 60000, &mixed), 0);
		check_batch(mixed_feed, &plain, &mixed, &method->recipe, method->smoothing);
		feed_release(plain_feed, &plain);
		feed_release(mixed_feed, &mixed);
	}
	feed_close(plain_feed);
	feed_close(mixed_feed);
}

TEST(draws_are_the_trainers)
{
	static const struct method methods[] = {
		{"", "mixup(0.4)", {.mixup = 0.4, .mix_prob = 1}, 0},
		{"layout(nchw)", "cutmix", {.cutmix = 1, .mix_prob = 1}, 0},
		{"to(f16) normalize(imagenet) channels(4)",
		 "mixup(0.2) cutmix(1) targets(label_smoothing=0.1)",
		 {.mixup = 0.2, .cutmix = 1, .mix_prob = 1, .mix_switch = 0.5},
		 0.1f},
		{"to(bf16) layout(nchw) normalize(imagenet)",
		 "targets(pairs) cutmix(0.5, p=0.25) mixup(p=0.5)",
		 {.mixup = 1, .cutmix = 0.5, .mix_prob = 0.75, .mix_switch = 0.25 / 0.75},
		 -1},
		{"to(f32)", "mixup(8, p=0.5)", {.mixup = 8, .mix_prob = 0.5}, 0},
		{"to(f32)", "targets(label_smoothing=0.3)", {.mix_prob = 0}, 0.3f},
	};
	struct fixture *fixture = *state;
	const char *path = dataset(fixture);
	fixture_start(fixture, NULL, "--threads", "3", NULL);
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
		check_method(fixture, path, &methods[i]);
}

/* ---- the same bytes ---- */

/* Hashes images and targets of `count` samples of a batch, from sample `first` on. */
static uint64_t hash_samples(struct feed *feed, const struct feed_batch *batch, uint32_t first,
			     uint32_t count)
{
	const size_t bytes = batch->image_bytes / batch->count;
	struct feed_section target = fixture_section(feed, batch, "target");
	const size_t row = target.bytes / batch->count;
	uint64_t images = XXH3_64bits((const char *)batch->images + first * bytes, count * bytes);
	return XXH3_64bits_withSeed((const char *)target.data + first * row, count * row, images);
}

/* Hashes each batch of a feed, in two halves if they are full. Returns the number of hashes. */
static unsigned hash_feed(const struct feed_options *options, uint64_t *ret_hashes)
{
	struct feed *feed = fixture_open(options);
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned count = 0;
	for (int r; (r = feed_next(feed, 60000, &batch)) != FEED_END;) {
		assert_int_equal(r, 0);
		ret_hashes[count++] = hash_samples(feed, &batch, 0, batch.count);
		feed_release(feed, &batch);
	}
	feed_close(feed);
	return count;
}

static const char mixing[] = "random_resized_crop(64) hflip to(f16) mixup(0.4) cutmix";

TEST(bytes_follow_from_the_position)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset(fixture), mixing);
	uint64_t first[EPOCHS * BATCHES], again[EPOCHS * BATCHES];
	fixture_start(fixture, "LOADERD_ISA=c", "--threads", "1", NULL);
	assert_int_equal(hash_feed(&options, first), EPOCHS * BATCHES);
	fixture_stop(fixture, SIGTERM);
	fixture_start(fixture, NULL, "--threads", "5", NULL);
	assert_int_equal(hash_feed(&options, again), EPOCHS * BATCHES);
	assert_memory_equal(first, again, sizeof(first));
	options.epoch = 1;
	options.batch = 2;
	assert_int_equal(hash_feed(&options, again), BATCHES - 2);
	assert_memory_equal(first + BATCHES + 2, again, (BATCHES - 2) * sizeof(*first));
}

TEST(ranks_divide_mixed_batches)
{
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset(fixture), mixing);
	struct feed_batch whole = {.size = sizeof(whole)}, part = {.size = sizeof(part)};
	fixture_start(fixture, NULL, "--threads", "2", NULL);
	struct feed *all = fixture_open(&options), *ranks[2];
	options.world = 2;
	options.batch_size = BATCH / 2;
	for (uint32_t rank = 0; rank < 2; rank++) {
		options.rank = rank;
		ranks[rank] = fixture_open(&options);
	}
	for (unsigned n = 0; n < BATCHES - 1; n++) {
		assert_int_equal(feed_next(all, 60000, &whole), 0);
		for (uint32_t rank = 0; rank < 2; rank++) {
			assert_int_equal(feed_next(ranks[rank], 60000, &part), 0);
			assert_true(hash_samples(ranks[rank], &part, 0, part.count) ==
				    hash_samples(all, &whole, rank * BATCH / 2, BATCH / 2));
			feed_release(ranks[rank], &part);
		}
		feed_release(all, &whole);
	}
	feed_close(all);
	feed_close(ranks[0]);
	feed_close(ranks[1]);
}

static uint64_t hash_wanted(struct feed *feed, uint64_t epoch, uint64_t first, uint32_t count)
{
	uint64_t samples[BATCH];
	struct feed_batch batch = {.size = sizeof(batch)};
	for (uint32_t i = 0; i < count; i++)
		samples[i] = first + i;
	assert_int_equal(feed_want(feed, epoch, samples, count), 0);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	assert_int_equal(batch.count, count);
	uint64_t hash = hash_samples(feed, &batch, 0, count);
	feed_release(feed, &batch);
	return hash;
}

TEST(wanted_batches_do_not_depend_on_earlier_ones)
{
	struct fixture *fixture = *state;
	struct feed_options options = fixture_options(fixture, dataset(fixture), mixing);
	fixture_start(fixture, NULL, "--threads", "2", NULL);
	options.wanted = 1;
	options.shuffle = 0;
	options.batch_size = BATCH - 1; /* of a wanted feed, the most samples of a batch */
	struct feed *feed = fixture_open(&options);
	uint64_t hash = hash_wanted(feed, 3, 10, BATCH - 1);
	hash_wanted(feed, 3, 20, 1);
	assert_true(hash_wanted(feed, 4, 10, BATCH - 1) != hash);
	assert_true(hash_wanted(feed, 3, 10, BATCH - 1) == hash);
	feed_close(feed);
}

/* ---- samples without a partner or a label ---- */

static void damage(const char *path, uint64_t index)
{
	struct packimg *file;
	struct packimg_sample sample;
	uint8_t byte;
	assert_int_equal(packimg_open(path, &file, NULL), 0);
	assert_int_equal(packimg_sample(file, index, &sample), 0);
	off_t offset = (off_t)(sample.data_offset + sample.data_size / 2);
	packimg_close(file);
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, offset), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
	close(fd);
}

TEST(neighbour_of_a_skipped_sample_stays)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "damaged", BATCH, FIXTURE_JPEG, 0));
	damage(path, 4);
	fixture_start(fixture, NULL, "--threads", "2", NULL);
	struct feed_options options =
		options_of(fixture, path, "resize(40x30) mixup(8) targets(pairs)");
	struct feed_batch mixed = {.size = sizeof(mixed)}, plain = {.size = sizeof(plain)};
	options.bad = FEED_BAD_SKIP;
	options.shuffle = 0;
	struct feed *feed = fixture_open(&options);
	options.pipeline = "resize(40x30)";
	struct feed *unmixed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &mixed), 0);
	assert_int_equal(feed_next(unmixed, 60000, &plain), 0);
	assert_int_equal(mixed.count, BATCH - 1);
	struct feed_section target = fixture_section(feed, &mixed, "target");
	struct feed_section share = fixture_section(feed, &mixed, "share");
	const int32_t *pairs = target.data;
	for (uint32_t i = 0; i < mixed.count; i++) {
		uint64_t sample = mixed.samples[i];
		bool alone = sample == 5;
		assert_int_equal(sample, i < 4 ? i : i + 1);
		assert_int_equal(pairs[2 * i], sample % 10);
		assert_int_equal(pairs[2 * i + 1], (alone ? sample : sample ^ 1) % 10);
		assert_true((((const float *)share.data)[i] == 1) == alone);
	}
	const size_t bytes = mixed.image_bytes / mixed.count;
	assert_memory_equal((const char *)mixed.images + 4 * bytes,
			    (const char *)plain.images + 4 * bytes, bytes);
	assert_memory_not_equal(mixed.images, plain.images, bytes);
	feed_close(feed);
	feed_close(unmixed);
}

/* Writes raw images of which sample i has the label labels[i]. */
static const char *labelled(const char *name, const int32_t *labels, uint32_t count)
{
	static char path[PATH_MAX];
	struct test_dataset data;
	snprintf(path, sizeof(path), "%s/%s.pimg", folder, name);
	test_dataset_begin(&data, path, 0);
	for (uint32_t i = 0; i < count; i++) {
		uint8_t pixels[8 * 8 * 3];
		memset(pixels, 10 * (int)i, sizeof(pixels));
		struct packimg_item item = test_item(pixels, 8, 8);
		item.label = labels[i];
		test_dataset_add(&data, &item);
	}
	test_dataset_finish(&data);
	return path;
}

TEST(unlabelled_samples_have_no_target)
{
	static const int32_t labels[] = {2, -1, -1, -1, 0, 0, 1, 2};
	struct fixture *fixture = *state;
	struct feed_options options =
		options_of(fixture, labelled("unlabelled", labels, 8),
			   "mixup(8) targets(num_classes=3, label_smoothing=0.3)");
	struct feed_batch batch = {.size = sizeof(batch)};
	fixture_start(fixture, NULL, "--threads", "1", NULL);
	options.batch_size = 8;
	options.shuffle = 0;
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	struct feed_section section = fixture_section(feed, &batch, "target");
	const float(*targets)[3] = section.data;
	assert_string_equal(section.schema, "target: value f32[3]");
	for (uint32_t i = 0; i < 8; i++) {
		float sum = targets[i][0] + targets[i][1] + targets[i][2];
		assert_true(labels[i] < 0 ? sum == 0 : fabsf(sum - 1) < 1e-6f);
	}
	/* its neighbour has no label */
	assert_true(fabsf(targets[0][2] - 0.8f) < 1e-6f && fabsf(targets[0][0] - 0.1f) < 1e-6f);
	/* both have the same */
	assert_true(fabsf(targets[4][0] - 0.8f) < 1e-6f);
	assert_true(targets[6][1] > 0.11f && targets[6][2] > 0.11f);
	assert_true(((const uint8_t *)batch.images)[0] != 0); /* the images are blended */
	feed_release(feed, &batch);
	feed_close(feed);
}

/* ---- refusals ---- */

static void refused(const struct feed_options *options, int expected, const char *part)
{
	char error[FEED_ERROR_MAX] = "";
	struct feed *feed;
	int r = feed_open(options, &feed, error);
	if (r != expected || !strstr(error, part))
		fail_msg("expected %d and \"%s\", got %d and \"%s\"", expected, part, r, error);
}

TEST(refusals_say_what_to_do)
{
	static const int32_t labels[] = {0, 7};
	static const char *const fields[] = {"number"}, *const deferred[] = {FEED_DEFERRED};
	static const char *const offsets[] = {"__crop_top_left__"};
	struct fixture *fixture = *state;
	struct feed_options options = options_of(fixture, dataset(fixture), mixing);
	fixture_start(fixture, NULL, "--threads", "1", "--set", "limits.field_bytes=4000", NULL);
	options.batch_size = 15;
	refused(&options, -EINVAL, "batch_size 15 is odd; ask for 16");
	options.batch_size = 16;
	options.values = offsets;
	options.value_count = 1;
	refused(&options, -EINVAL, "value \"__crop_top_left__\" belongs to the pixels");
	options.value_count = 0;
	options.fields = fields;
	options.field_count = 1;
	refused(&options, -EINVAL, "ask for values instead of fields");
	options.fields = deferred;
	options.pipeline = "resize(8x8) mixup";
	refused(&options, -EINVAL, "leave nothing to the client, since they come last");
	options.field_count = 0;
	options.pipeline = "resize(8x8) mixup targets(num_classes=1001)";
	refused(&options, -EDQUOT,
		"targets of 1001 classes take 4004 bytes a sample, but the "
		"daemon's limit is 4000 ([limits] field_bytes); use "
		"targets(pairs)");
	options.pipeline = "resize(8x8) mixup targets(num_classes=7)";
	options.batch_size = 2;
	options.dataset = labelled("seven", labels, 2);
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), -EBADMSG);
	assert_non_null(strstr(feed_error(feed), "sample 1: its label is 7, and its target has the "
						 "classes 0 to 6"));
	feed_close(feed);
	options.pipeline = "resize(8x8) mixup";
	refused(&options, -EINVAL, "the dataset has no classes; give their number");
}

/* A client of the same version that does not know sections of targets. */
TEST(earlier_clients_are_refused)
{
	struct fixture *fixture = *state;
	const char *path = dataset(fixture);
	Loaderd__OpenFeed open_feed = LOADERD__OPEN_FEED__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	fixture_start(fixture, NULL, "--threads", "1", NULL);
	open_feed.version = PROTO_VERSION;
	open_feed.dataset = (char *)path;
	open_feed.pipeline = (char *)mixing;
	open_feed.batch_size = 2;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open_feed;
	int socket = fixture_connect(fixture);
	fixture_send(socket, &request);
	Loaderd__Reply *reply = fixture_receive(socket, NULL);
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_NEED_FILES);
	fixture_send_file(socket, path, reply->need_files, 1);
	loaderd__reply__free_unpacked(reply, NULL);
	reply = fixture_receive(socket, NULL);
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_ERROR);
	assert_int_equal(reply->error->code, EINVAL);
	assert_non_null(strstr(reply->error->text, "which this program does not know"));
	loaderd__reply__free_unpacked(reply, NULL);
	close(socket);
}

int main(void)
{
	return fixture_main("mix", folder);
}
