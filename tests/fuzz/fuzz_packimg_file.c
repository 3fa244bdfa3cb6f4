/*
 * Arbitrary bytes as a .pimg file: opens and checks it, reads every record, name, class and value,
 * and decodes the first samples. Then recomputes all checksums (of samples, side data, columns,
 * sections and the header), which mutations would otherwise not get past, and repeats everything
 * with a dataset opened by fd. libFuzzer's mutations also repair the checksums, so the inputs that
 * it saves are valid files.
 */
#include "format/packimg.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/dataset_read.h"
#include "tests/fuzz/support/whole_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY_MAX = 64 << 20 };

static struct packimg_decoder *decoder;

static void read_and_close(struct packimg *dataset)
{
	dataset_read(decoder, dataset);
	packimg_close(dataset);
}

static int put_file(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return -1;
	}
	return fd;
}

static void open_by_path(const uint8_t *data, size_t size)
{
	struct packimg *dataset;
	struct packimg_error error;
	char path[64];

	int fd = put_file(data, size);
	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (packimg_open(path, &dataset, &error) == 0)
		read_and_close(dataset);
	close(fd);
}

static void open_by_descriptor(const uint8_t *data, size_t size)
{
	struct packimg_identity identity;
	struct packimg *dataset;
	struct packimg_error error;

	int fd = put_file(data, size);
	if (fd < 0)
		return;
	packimg_identify(fd, "fuzz", &identity, &error);
	if (packimg_open_fds("fuzz", &fd, 1, &dataset, &error) == 0)
		read_and_close(dataset);
	else
		close(fd);
	fd = put_file(data, size);
	if (fd < 0)
		return;
	if (packimg_open_info(fd, "fuzz", &dataset, &error) == 0)
		read_and_close(dataset);
	else
		close(fd);
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
	return whole_file_mutate(data, size, size_max, seed, LLVMFuzzerMutate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!decoder) {
		if (packimg_decoder_new(&decoder) < 0)
			return 0;
		packimg_decoder_limit(decoder, MEMORY_MAX);
	}
	open_by_path(data, size);
	uint8_t *copy = malloc(size + 1);
	memcpy(copy, data, size);
	whole_file_repair(copy, size);
	open_by_descriptor(copy, size);
	free(copy);
	return 0;
}
