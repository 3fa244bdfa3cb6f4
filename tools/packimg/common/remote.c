#include "tools/packimg/common/remote.h"
#include "format/base/shard_set.h"
#include "format/base/system/io.h"
#include "format/base/text/text.h"
#include "format/error.h"
#include "format/header.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/progress.h"
#include "tools/store/copy.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Between sections or samples that one request fetches together. */
#define GAP_MAX ((uint64_t)1 << 18)

struct remote_file {
	struct store_object object;
	int fd; /* the sparse copy; the dataset's once that is open */
	struct pimg_header header;
};

struct remote {
	struct store *store;
	const struct packimg_receiver *receiver; /* NULL for temporary files */
	struct packimg *dataset;                 /* not owned */
	struct progress progress;
	uint32_t count;
	struct remote_file files[]; /* [count], in the order of shards */
};

static void on_bytes(void *context, uint64_t bytes)
{
	struct remote *remote = context;

	(void)bytes;
	progress_update(&remote->progress, 0, store_counters(remote->store).bytes);
}

static int open_temporary(struct packimg_error *error)
{
	const char *folder = getenv("TMPDIR");

	if (!folder || !*folder)
		folder = "/var/tmp";
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return packimg_fail(error, -errno,
				    "%s: no temporary file can be made: %s; name another folder in "
				    "TMPDIR",
				    folder, strerror(errno));
	return fd;
}

/* Returns a descriptor for the copy of a file, which the caller closes. */
static int open_copy(const struct remote *remote, uint32_t shard, struct packimg_error *error)
{
	if (!remote->receiver)
		return open_temporary(error);
	int fd = fcntl(packimg_receiver_fd(remote->receiver, shard), F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? packimg_fail(error, -errno, "%s", strerror(errno)) : fd;
}

static int fetch(struct remote *remote, struct remote_file *file, struct store_range *ranges,
		 uint64_t count, struct packimg_error *error)
{
	count = store_ranges_merge(ranges, count, GAP_MAX);
	for (uint64_t i = 0; i < count; i++)
		remote->progress.total += ranges[i].size;
	return store_copy(remote->store, &file->object, ranges, count, file->fd, on_bytes, remote,
			  error);
}

static int fetch_sections(struct remote *remote, struct remote_file *file,
			  struct packimg_error *error)
{
	struct store_range ranges[PIMG_SECTIONS_MAX];

	for (int i = 0; i < PIMG_SECTIONS_MAX; i++)
		ranges[i] = (struct store_range){file->header.sections[i].offset,
						 file->header.sections[i].size};
	return fetch(remote, file, ranges, PIMG_SECTIONS_MAX, error);
}

/* Makes the sparse copy of an object, with its header and sections. */
static int open_file(struct remote *remote, struct remote_file *file, const char *address,
		     struct packimg_error *error)
{
	char first[sizeof(struct pimg_header)];
	size_t size;
	int r = store_object_init(&file->object, address, error);

	if (!r)
		r = store_read_first(remote->store, &file->object, first, sizeof(first), &size,
				     error);
	if (r)
		return r;
	file->fd = open_copy(remote, (uint32_t)(file - remote->files), error);
	if (file->fd < 0)
		return file->fd;
	if (file->object.size > INT64_MAX || ftruncate(file->fd, (off_t)file->object.size))
		return packimg_fail(error, -EFBIG,
				    "%s has %" PRIu64 " bytes, too many for the file system of "
				    "its copy",
				    file->object.address.shown, file->object.size);
	r = io_write_at(file->fd, first, size, 0);
	if (r)
		return packimg_fail(error, r, "%s: its copy: %s", file->object.address.shown,
				    strerror(-r));
	r = header_read(file->fd, file->object.address.shown, &file->header, error);
	return r ? r : fetch_sections(remote, file, error);
}

/* Makes sparse copies of all shards of the set that the address names a shard of. */
static int open_files(struct remote *remote, const char *address, struct packimg_error *error)
{
	char path[SHARD_SET_PATH_MAX];
	struct shard_name name;
	int r = shard_name_parse(address, &name);

	if (r)
		return open_file(remote, &remote->files[0], address, error);
	for (uint32_t i = 0; !r && i < remote->count; i++) {
		r = shard_name_path(name.base, i, remote->count, path);
		r = r ? packimg_fail(error, r, "%s is too long", address)
		      : open_file(remote, &remote->files[i], path, error);
	}
	return r;
}

static int open_dataset(struct remote *remote, struct packimg **ret_dataset,
			struct packimg_error *error)
{
	int *fds = malloc(remote->count * sizeof(*fds));
	int r;

	if (!fds)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < remote->count; i++)
		fds[i] = remote->files[i].fd;
	r = packimg_open_fds(remote->files[0].object.address.shown, fds, remote->count, ret_dataset,
			     error);
	free(fds);
	if (!r)
		remote->dataset = *ret_dataset;
	return r;
}

uint32_t remote_shards(const char *address)
{
	struct shard_name name;

	return shard_name_parse(address, &name) ? 0 : name.shard_count;
}

int remote_receive(const char *address, bool quiet, struct packimg_receiver *receiver,
		   struct packimg **ret_dataset, struct remote **ret_remote,
		   struct packimg_error *error)
{
	const struct store_options options = {.stopped = command_interrupted};
	uint32_t shards = remote_shards(address), count = shards ? shards : 1;
	struct remote *remote = calloc(1, sizeof(*remote) + count * sizeof(remote->files[0]));

	if (!remote)
		return packimg_fail(error, -ENOMEM, "out of memory");
	remote->receiver = receiver;
	remote->count = count;
	for (uint32_t i = 0; i < remote->count; i++)
		remote->files[i].fd = -1;
	progress_init_bytes(&remote->progress, "fetching", quiet);
	int r = store_open(&options, &remote->store, error);
	if (!r)
		r = open_files(remote, address, error);
	if (!r)
		r = open_dataset(remote, ret_dataset, error);
	progress_clear(&remote->progress);
	if (r)
		remote_close(remote, NULL);
	else
		*ret_remote = remote;
	return r;
}

int remote_open(const char *path, bool quiet, struct packimg **ret_dataset,
		struct remote **ret_remote, struct packimg_error *error)
{
	*ret_remote = NULL;
	if (text_is_address(path))
		return remote_receive(path, quiet, NULL, ret_dataset, ret_remote, error);
	return packimg_open(path, ret_dataset, error);
}

/* Appends the data and the side data of an image. */
static void add_image(const struct remote *remote, const struct packimg_sample *image,
		      struct store_range *ranges, uint64_t *count)
{
	struct packimg_shard shard;

	if (packimg_shard(remote->dataset, image->shard, &shard))
		return;
	/* readers may load up to PIMG_TAIL bytes behind the data, but these need not be right */
	ranges[(*count)++] = (struct store_range){image->data_offset, image->data_size};
	if (image->side)
		ranges[(*count)++] =
			(struct store_range){(uint64_t)(image->side - shard.map), image->side_size};
}

/* Collects what the samples of one file need; damaged records need nothing. */
static uint64_t collect_ranges(const struct remote *remote, uint32_t file, const uint64_t *samples,
			       uint64_t count, struct store_range *ranges)
{
	struct packimg_sample image;
	uint64_t collected = 0;

	for (uint64_t i = 0; i < count; i++) {
		if (packimg_sample(remote->dataset, samples[i], &image) || image.shard != file)
			continue;
		add_image(remote, &image, ranges, &collected);
		for (uint32_t number = 0; number < packimg_image_count(remote->dataset); number++)
			if (!packimg_image(remote->dataset, samples[i], number, &image))
				add_image(remote, &image, ranges, &collected);
	}
	return collected;
}

int remote_fetch_samples(struct remote *remote, const uint64_t *samples, uint64_t count,
			 struct packimg_error *error)
{
	int r = 0;

	if (!remote || !count)
		return 0;
	uint64_t images = 1 + (uint64_t)packimg_image_count(remote->dataset);
	struct store_range *ranges = calloc(count, 2 * images * sizeof(*ranges));
	if (!ranges)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (uint32_t i = 0; !r && i < remote->count; i++) {
		uint64_t collected = collect_ranges(remote, i, samples, count, ranges);

		r = fetch(remote, &remote->files[i], ranges, collected, error);
	}
	progress_clear(&remote->progress);
	free(ranges);
	return r;
}

int remote_fetch_all(struct remote *remote, struct packimg_error *error)
{
	int r = 0;

	for (uint32_t i = 0; remote && !r && i < remote->count; i++) {
		struct store_range all = {0, remote->files[i].object.size};

		r = fetch(remote, &remote->files[i], &all, 1, error);
	}
	if (remote)
		progress_clear(&remote->progress);
	return r;
}

struct remote_counters remote_counters(const struct remote *remote)
{
	if (!remote)
		return (struct remote_counters){0};
	struct store_counters counters = store_counters(remote->store);
	return (struct remote_counters){counters.requests, counters.retries, counters.bytes};
}

void remote_close(struct remote *remote, struct packimg *dataset)
{
	if (!dataset && remote)
		for (uint32_t i = 0; i < remote->count; i++)
			io_close(remote->files[i].fd);
	packimg_close(dataset);
	if (remote)
		store_close(remote->store);
	free(remote);
}
