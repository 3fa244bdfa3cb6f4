/*
 * Damage to any byte gives an error or has no effect on the contents. A truncated file, and shards
 * that do not belong together, give an error.
 */
#include "tests/dataset.h"
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <sys/mman.h>

#include <xxhash.h>

static uint8_t *golden;
static size_t golden_size;
static int file;
static char file_path[64];

static int setup(void **state)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/good/full.pimg", getenv("PIMG_GOLDEN"));
	golden = image_file_read(path, &golden_size);
	file = memfd_create("damaged", MFD_CLOEXEC);
	snprintf(file_path, sizeof(file_path), "/proc/self/fd/%d", file);
	return file < 0;
}

static int teardown(void **state)
{
	free(golden);
	close(file);
	return 0;
}

static void put_file(const uint8_t *data, size_t size)
{
	assert_int_equal(ftruncate(file, 0), 0);
	assert_int_equal(pwrite(file, data, size, 0), size);
}

static void digest_sample(XXH3_state_t *state, const struct packimg *dataset, uint64_t i)
{
	struct packimg_sample sample;
	struct packimg_value value;
	const char *name;
	size_t size;

	assert_int_equal(packimg_sample(dataset, i, &sample), 0);
	int32_t numbers[] = {(int32_t)sample.width, (int32_t)sample.height, sample.label,
			     sample.codec,          sample.channels,        sample.orientation};
	XXH3_64bits_update(state, numbers, sizeof(numbers));
	XXH3_64bits_update(state, sample.data, sample.data_size);
	if (sample.side)
		XXH3_64bits_update(state, sample.side, sample.side_size);
	assert_int_equal(packimg_source(dataset, i, &name, &size), 0);
	XXH3_64bits_update(state, name, size);
	for (uint32_t f = 0; f < packimg_field_count(dataset); f++) {
		assert_int_equal(packimg_value(dataset, i, f, &value), 0);
		XXH3_64bits_update(state, &value.present, sizeof(value.present));
		XXH3_64bits_update(state, &value.int64, sizeof(value.int64));
		XXH3_64bits_update(state, &value.float64, sizeof(value.float64));
		if (value.bytes)
			XXH3_64bits_update(state, value.bytes, value.size);
	}
}

/* Returns a hash of everything that a dataset returns; 0 if any check fails. */
static uint64_t digest(void)
{
	struct packimg *dataset;
	struct packimg_sample sample;
	struct packimg_field field;
	uint64_t result = 0;
	double numbers[6] = {0};

	if (packimg_open(file_path, &dataset, &error) < 0)
		return 0;
	if (packimg_check(dataset, &error) < 0)
		goto out;
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		if (packimg_sample(dataset, i, &sample) < 0 || packimg_sample_check(&sample) < 0)
			goto out;
	}
	XXH3_state_t *state = XXH3_createState();
	XXH3_64bits_reset(state);
	for (uint64_t i = 0; i < packimg_count(dataset); i++)
		digest_sample(state, dataset, i);
	for (uint32_t i = 0; i < packimg_class_count(dataset); i++)
		XXH3_64bits_update(state, packimg_class_name(dataset, i),
				   strlen(packimg_class_name(dataset, i)));
	for (uint32_t i = 0; i < packimg_field_count(dataset); i++) {
		assert_int_equal(packimg_field(dataset, i, &field), 0);
		XXH3_64bits_update(state, field.name, strlen(field.name));
		XXH3_64bits_update(state, &field.type, sizeof(field.type));
	}
	XXH3_64bits_update(state, packimg_metadata(dataset), strlen(packimg_metadata(dataset)));
	packimg_statistics(dataset, numbers, numbers + 3);
	XXH3_64bits_update(state, numbers, sizeof(numbers));
	XXH3_64bits_update(state, packimg_uuid(dataset), 16);
	result = XXH3_64bits_digest(state);
	XXH3_freeState(state);
out:
	packimg_close(dataset);
	return result;
}

TEST(flip_header)
{
	for (size_t i = 0; i < 1024; i++)
		for (int bit = 0; bit < 8; bit++) {
			struct packimg *dataset;
			golden[i] ^= (uint8_t)(1 << bit);
			put_file(golden, golden_size);
			golden[i] ^= (uint8_t)(1 << bit);
			int r = packimg_open(file_path, &dataset, &error);
			if (r != -EBADMSG && r != -ENOTSUP)
				fail_msg("header byte %zu bit %d: %d", i, bit, r);
		}
}

TEST(flip_all)
{
	unsigned errors = 0, unchanged = 0;

	put_file(golden, golden_size);
	uint64_t expected = digest();
	assert_true(expected != 0);
	for (size_t i = 1024; i < golden_size; i++) {
		uint8_t flip = (uint8_t)(1u << i % 8);
		golden[i] ^= flip;
		put_file(golden, golden_size);
		golden[i] ^= flip;
		uint64_t got = digest();
		if (got == 0)
			errors++;
		else if (got == expected)
			unchanged++;
		else
			fail_msg("byte %zu flipped: other content, no error", i);
	}
	/* no checksum covers gaps, and only gaps */
	assert_true(errors > golden_size / 2);
	assert_true(unchanged > 0 && unchanged < golden_size / 3);
}

TEST(truncate)
{
	for (size_t size = 0; size < golden_size; size++) {
		struct packimg *dataset;
		put_file(golden, size);
		int r = packimg_open(file_path, &dataset, &error);
		if (r != -EBADMSG)
			fail_msg("%zu of %zu bytes: %d", size, golden_size, r);
	}
}

/* Writes a dataset of raw 4x4 images with two per shard. */
static void write_set(const char *path, uint64_t count, uint8_t value)
{
	uint8_t pixels[48];
	struct test_dataset data;

	memset(pixels, value, sizeof(pixels));
	struct packimg_item item = test_item(pixels, 4, 4);
	item.label = -1;
	test_dataset_begin(&data, path, 1150);
	for (uint64_t i = 0; i < count; i++)
		test_dataset_add(&data, &item);
	test_dataset_finish(&data);
}

TEST(foreign_shards)
{
	char *folder = image_directory(), a[4200], b[4200], c[4200];

	snprintf(a, sizeof(a), "%s/a.pimg", folder);
	snprintf(b, sizeof(b), "%s/b.pimg", folder);
	write_set(a, 8, 1);
	write_set(b, 8, 2);
	assert_int_equal(try_open(a), 0);
	assert_int_equal(try_open(b), 0);
	assert_int_equal(try_open(folder), -EEXIST);

	/* a shard of another set under the expected name */
	snprintf(a, sizeof(a), "%s/a-00001-of-00004.pimg", folder);
	snprintf(b, sizeof(b), "%s/b-00001-of-00004.pimg", folder);
	snprintf(c, sizeof(c), "%s/kept", folder);
	assert_int_equal(access(a, F_OK), 0);
	assert_int_equal(rename(a, c), 0);
	assert_int_equal(link(b, a), 0);
	assert_int_equal(try_open(a), -EBADMSG);
	assert_non_null(strstr(error.text, "another set"));
	assert_int_equal(remove(a), 0);
	assert_int_equal(rename(c, a), 0);
	assert_int_equal(try_open(a), 0);

	/* two shards swapped */
	snprintf(b, sizeof(b), "%s/a-00002-of-00004.pimg", folder);
	assert_int_equal(rename(a, c), 0);
	assert_int_equal(rename(b, a), 0);
	assert_int_equal(rename(c, b), 0);
	assert_int_equal(try_open(a), -EBADMSG);
	assert_non_null(strstr(error.text, "renamed"));

	/* a shard under an invalid name */
	assert_int_equal(rename(a, c), 0);
	assert_int_equal(try_open(c), -EBADMSG);
	assert_non_null(strstr(error.text, "NAME-00000-of-00004.pimg"));
	image_directory_remove(folder);
}

TEST_MAIN(setup, teardown)
