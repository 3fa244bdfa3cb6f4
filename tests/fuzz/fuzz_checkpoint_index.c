/*
 * Arbitrary bytes as the index of a sharded checkpoint, beside two sound files of ranks: reads
 * every tensor and parts of it, restores the checkpoint into a store, and joins it. What an index
 * that is accepted describes can be read, and the joined file has the same tensors.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/checkpoint_case.h"
#include "tests/fuzz/support/sharded_case.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/sharded.h"
#include "trainer/device/device.h"
#include "trainer/device/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct device *device;
static struct device_params *params;
static char folder[] = "/tmp/fuzz_index.XXXXXX";
static char index_path[128], joined_path[128];

static void remove_folder(void)
{
	static const char *const names[] = {"a.safetensors", "b.safetensors", "joined",
					    SHARDED_INDEX};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
	device_params_free(params);
	device_close(device);
}

static void open_case(void)
{
	if (checkpoint_case_open(&device, &params) < 0 || !mkdtemp(folder) ||
	    sharded_case_write(folder) < 0)
		abort();
	snprintf(index_path, sizeof(index_path), "%s/" SHARDED_INDEX, folder);
	snprintf(joined_path, sizeof(joined_path), "%s/joined", folder);
	atexit(remove_folder);
}

/* Reads the tensor whole and in two parts of a slice, which agree. */
static void read_parts(const struct safetensors *file, const struct safetensors_tensor *tensor,
		       const char *whole)
{
	char error[SAFETENSORS_ERROR_MAX];
	uint64_t count = tensor->size / sizeof(float);
	uint32_t slices = count % 2 ? 1 : 2;
	uint64_t each = count / slices, half = each / 2;
	float *values = malloc(tensor->size);

	if (!values)
		abort();
	for (uint32_t slice = 0; slice < slices; slice++) {
		struct device_part part = {slices, slice, 1, 0, half};

		/* in the whole tensor, each slice of one block begins after the one before */
		if (sharded_read_part(file, tensor, &part, values + slice * each, error) < 0)
			abort();
		part.first = half;
		part.count = each - half;
		if (sharded_read_part(file, tensor, &part, values + slice * each, error) < 0)
			abort();
	}
	/* convolutions have another order */
	if (tensor->rank != 4 && memcmp(values, whole, tensor->size) != 0)
		abort();
	free(values);
}

/* Compares each tensor with that of the joined file. */
static void compare_joined(const struct safetensors *file)
{
	char error[CHECKPOINT_ERROR_MAX];
	struct safetensors *joined;

	if (checkpoint_join(folder, joined_path, error) < 0 ||
	    safetensors_open(joined_path, &joined, error) < 0)
		abort();
	for (size_t i = 0; i < safetensors_count(file); i++) {
		const struct safetensors_tensor *tensor = safetensors_at(file, i);
		const struct safetensors_tensor *other = safetensors_find(joined, tensor->name);
		char *bytes = malloc(2 * tensor->size);

		if (!bytes || !other || other->size != tensor->size ||
		    safetensors_read(file, tensor, bytes, error) < 0 ||
		    safetensors_read(joined, other, bytes + tensor->size, error) < 0 ||
		    memcmp(bytes, bytes + tensor->size, tensor->size) != 0)
			abort();
		read_parts(file, tensor, bytes);
		free(bytes);
	}
	safetensors_close(joined);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[CHECKPOINT_ERROR_MAX];
	struct safetensors *file;
	struct checkpoint *checkpoint;

	if (!params)
		open_case();
	FILE *index = fopen(index_path, "wb");
	if (!index)
		abort();
	fwrite(data, 1, size, index);
	fclose(index);
	if (safetensors_open(folder, &file, error) == 0) {
		compare_joined(file);
		safetensors_close(file);
	}
	if (checkpoint_open(folder, &checkpoint, error) == 0) {
		checkpoint_restore(checkpoint, params, error);
		checkpoint_close(checkpoint);
	}
	return 0;
}
