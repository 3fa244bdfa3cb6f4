/*
 * Arbitrary bytes as a safetensors file and as a checkpoint: reads every tensor and the run's
 * counters and recipe, restores the checkpoint into a store, and loads it as initial weights.
 * Repeats all of this with a corrected header length, which few mutations would preserve.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/checkpoint_case.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/weights.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct device *device;
static struct device_params *params;
static struct recipe defaults;
static volatile uint8_t sink;

/*
 * Truncates the file after opening it. Reading a tensor must fail if and only if it extends beyond
 * the new end.
 */
static void read_shrinking(int fd, const char *path, size_t size)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *file;

	if (safetensors_open(path, &file, error) < 0)
		return;
	if (ftruncate(fd, (off_t)(size / 2)) < 0)
		abort();
	for (size_t i = 0; i < safetensors_count(file); i++) {
		const struct safetensors_tensor *tensor = safetensors_at(file, i);
		uint8_t *bytes = malloc(tensor->size + 1);

		if (!bytes)
			abort();
		int r = safetensors_read(file, tensor, bytes, error);
		if ((r < 0) != (tensor->size && tensor->offset + tensor->size > size / 2))
			abort();
		free(bytes);
	}
	safetensors_close(file);
}

static void read_tensors(const char *path)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *file;

	if (safetensors_open(path, &file, error) < 0)
		return;
	for (size_t i = 0; i < safetensors_count(file); i++) {
		const struct safetensors_tensor *tensor = safetensors_at(file, i);
		uint8_t sum = 0, *bytes = malloc(tensor->size + 1);

		if (!bytes || safetensors_read(file, tensor, bytes, error) < 0)
			abort();
		for (uint64_t at = 0; at < tensor->size; at++)
			sum = (uint8_t)(sum + bytes[at]);
		sink = sum;
		free(bytes);
		if (safetensors_find(file, tensor->name) != tensor)
			abort();
	}
	safetensors_metadata(file, "trainer.format");
	safetensors_close(file);
}

static void read_checkpoint(const char *path)
{
	char error[CHECKPOINT_ERROR_MAX];
	struct checkpoint *checkpoint;
	struct weights_metadata metadata;
	struct checkpoint_import_result imported;

	if (weights_read(path, &metadata, error) == 0)
		weights_deinit(&metadata);
	checkpoint_import(path, "[\"a\",\"b\"]", params, &imported, error);
	if (checkpoint_open(path, &checkpoint, error) < 0)
		return;
	recipe_check(&checkpoint->recipe, true, error);
	recipe_compare(&defaults, &checkpoint->recipe, RECIPE_TRAJECTORY, error);
	checkpoint_restore(checkpoint, params, error);
	checkpoint_close(checkpoint);
}

static void open_bytes(int fd, const uint8_t *data, size_t size)
{
	char path[64];

	if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_tensors(path);
	read_checkpoint(path);
	read_shrinking(fd, path, size);
}

/* Sets the header length so that the header ends at the last brace. */
static void repair_length(uint8_t *data, size_t size)
{
	const uint8_t *end = memrchr(data + 8, '}', size - 8);
	uint64_t length = htole64(end ? (uint64_t)(end + 1 - data - 8) : 0);

	memcpy(data, &length, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!params && (checkpoint_case_open(&device, &params) < 0 || recipe_init(&defaults) < 0))
		abort();
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0)
		return 0;
	open_bytes(fd, data, size);
	if (size > 8) {
		uint8_t *copy = malloc(size);
		memcpy(copy, data, size);
		repair_length(copy, size);
		open_bytes(fd, copy, size);
		free(copy);
	}
	close(fd);
	return 0;
}
