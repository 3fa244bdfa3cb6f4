/*
 * Writing to a disk with short writes, interrupted calls and write errors: the file contains
 * exactly what was written. The linker redirects the system calls to this test.
 */
#include "format/base/system/io.h"
#include "format/write/output.h"
#include "tests/test.h"

enum { SIZE = 1000, PLACE = 77 };

static unsigned calls, taken_max;

ssize_t __real_pwrite64(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset);

/* Interrupts every third call. */
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset)
{
	if (++calls % 3 == 0) {
		errno = EINTR;
		return -1;
	}
	return taken_max ? __real_pwrite64(fd, data, size > taken_max ? taken_max : size, offset)
			 : 0;
}

static void fill(uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(i * i >> 3 ^ i);
}

static void expect(int fd, const uint8_t *bytes, size_t size, off_t place)
{
	uint8_t *read = malloc(size + 1);

	assert_non_null(read);
	assert_int_equal(pread(fd, read, size + 1, place), size);
	assert_memory_equal(read, bytes, size);
	free(read);
}

TEST(little_by_little)
{
	static const unsigned limits[] = {1, 7, SIZE - 1, SIZE};
	uint8_t bytes[SIZE];

	fill(bytes, SIZE);
	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
		FILE *file = tmpfile();

		assert_non_null(file);
		calls = 0;
		taken_max = limits[i];
		assert_int_equal(io_write_at(fileno(file), bytes, SIZE, PLACE), 0);
		expect(fileno(file), bytes, SIZE, PLACE);
		fclose(file);
	}
}

TEST(through_the_buffer)
{
	enum { MORE = OUTPUT_BUFFER_SIZE + OUTPUT_BUFFER_SIZE / 2 };
	uint8_t *buffer = malloc(OUTPUT_BUFFER_SIZE), *bytes = malloc(MORE);
	struct output output;
	FILE *file = tmpfile();

	assert_non_null(file);
	assert_non_null(buffer);
	assert_non_null(bytes);
	fill(bytes, MORE);
	calls = 0;
	taken_max = OUTPUT_BUFFER_SIZE / 5;
	output_init(&output, dup(fileno(file)), buffer);
	assert_int_equal(output_write(&output, bytes, SIZE), 0);
	assert_int_equal(output_write(&output, bytes + SIZE, MORE - SIZE), 0);
	assert_int_equal(output_flush(&output), 0);
	output_deinit(&output);
	expect(fileno(file), bytes, MORE, 0);
	fclose(file);
	free(bytes);
	free(buffer);
}

TEST(nothing_taken)
{
	FILE *file = tmpfile();

	assert_non_null(file);
	calls = 0;
	taken_max = 0;
	assert_int_equal(io_write_at(fileno(file), "bytes", 5, 0), -EIO);
	assert_int_equal(io_write_at(-1, "", 0, 0), 0);
	fclose(file);
}
