#include "tests/unit/loaderd/fake_batcher.h"

#include "tests/test.h"
#include "tests/unit/proto/fake_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct dataset *own_dataset(const char *path)
{
	struct packimg_error error;
	struct dataset *dataset;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (dataset_open(&(struct dataset_files){path, &fd, 1}, 1, true, &dataset, &error) < 0)
		fail_msg("dataset_open: %s", error.text);
	return dataset;
}

int opposite_file(const struct dataset *dataset)
{
	struct packimg_shard shard;
	uint8_t block[4096];
	int fd = memfd_create("opposite", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(packimg_shard(dataset->image, 0, &shard), 0);
	for (uint64_t at = 0; at < shard.size; at += sizeof(block)) {
		size_t size = shard.size - at < sizeof(block) ? shard.size - at : sizeof(block);
		for (size_t i = 0; i < size; i++)
			block[i] = (uint8_t)~shard.map[at + i];
		assert_int_equal(pwrite(fd, block, size, (off_t)at), size);
	}
	return fd;
}

struct batcher *fake_batcher(struct batcher_options *options)
{
	struct ring_geometry geometry;
	struct batcher *batcher;
	values_init(&options->values, options->pipeline);
	assert_int_equal(batcher_geometry(options, &geometry), 0);
	assert_int_equal(own_memory_new(ring_size(&geometry) - RING_ACK_SIZE, &options->ring_fd),
			 0);
	assert_int_equal(own_memory_new(RING_ACK_SIZE, &options->ack_fd), 0);
	assert_int_equal(batcher_new(options, &batcher), 0);
	return batcher;
}
