#include "tools/packimg/common/remote.h"
#include "format/base/shard_set.h"
#include "format/base/system/io.h"
#include "format/base/text/text.h"
#include "format/error.h"
#include "format/header.h"
#include "format/set_file.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/progress.h"
#include "tools/store/set.h"
#include "tools/store/upload.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Between sections or samples that one request fetches together. */
#define GAP_MAX ((uint64_t)1 << 18)

enum { CONNECTIONS = 32 };

struct remote {
	struct store *store;
	struct store_set set;
	int *fds;                /* [set.count]: the sparse copies; the dataset's once it is open */
	bool is_set;             /* of shards, though it may be one */
	struct packimg *dataset; /* not owned; NULL before it is open */
	struct progress progress;
};

static bool on_waiting(void *context)
{
	(void)context;
	return !command_interrupted();
}

static bool on_bytes(void *context, uint64_t bytes)
{
	struct remote *remote = context;

	(void)bytes;
	progress_update(&remote->progress, 0, store_counters(remote->store).bytes);
	return true; /* options.stopped ends requests */
}

static bool on_section_bytes(void *context, uint64_t done, uint64_t total)
{
	struct remote *remote = context;

	remote->progress.total = total > remote->progress.total ? total : remote->progress.total;
	return on_bytes(context, done);
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
static int open_copy(const struct packimg_receiver *receiver, uint32_t shard,
		     struct packimg_error *error)
{
	if (!receiver)
		return open_temporary(error);
	int fd = fcntl(packimg_receiver_fd(receiver, shard), F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? packimg_fail(error, -errno, "%s", strerror(errno)) : fd;
}

/* Makes the sparse copy of an object, with its header. */
static int open_file(struct remote *remote, const struct packimg_receiver *receiver, uint32_t shard,
		     struct packimg_error *error)
{
	const struct store_object *object = &remote->set.objects[shard];
	struct pimg_header *header = &remote->set.headers[shard];
	size_t known = object->size < sizeof(*header) ? (size_t)object->size : sizeof(*header);
	int fd = open_copy(receiver, shard, error);

	if (fd < 0)
		return fd;
	remote->fds[shard] = fd;
	if (ftruncate(fd, (off_t)object->size))
		return packimg_fail(error, -EFBIG,
				    "%s has %" PRIu64 " bytes, too many for the file system of "
				    "its copy",
				    object->address.shown, object->size);
	int r = io_write_at(fd, header, known, 0);
	if (r)
		return packimg_fail(error, r, "%s: its copy: %s", object->address.shown,
				    strerror(-r));
	return header_read(fd, object->address.shown, header, error);
}

/* Fetches a part of each file. */
static int fetch(struct remote *remote, const struct store_source *sources,
		 struct packimg_error *error)
{
	for (uint32_t i = 0; i < remote->set.count; i++)
		for (uint64_t j = 0; j < sources[i].range_count; j++)
			remote->progress.total += sources[i].ranges[j].size;
	return store_copy(remote->store, sources, remote->set.count, on_bytes, remote, error);
}

uint32_t remote_shards(const struct remote *remote)
{
	return remote->is_set ? remote->set.count : 0;
}

int remote_connect(const char *address, bool unsealed, bool quiet, struct remote **ret_remote,
		   struct packimg_error *error)
{
	const struct store_options options = {.connections = CONNECTIONS,
					      .stopped = command_interrupted};
	const struct store_set_waiting waiting = {on_waiting, NULL};
	struct remote *remote = calloc(1, sizeof(*remote));
	char base[SHARD_SET_PATH_MAX];
	struct shard_name name;

	if (!remote)
		return packimg_fail(error, -ENOMEM, "out of memory");
	progress_init_bytes(&remote->progress, "fetching", quiet);
	remote->is_set =
		shard_name_parse(address, &name) == 0 || shard_set_file_base(address, base) == 0;
	int r = store_open(&options, &remote->store, error);
	if (!r)
		r = store_set_open(remote->store, address, unsealed, &waiting, &remote->set, error);
	if (r)
		remote_close(remote, NULL);
	else
		*ret_remote = remote;
	return r;
}

int remote_receive(struct remote *remote, const struct packimg_receiver *receiver,
		   struct packimg **ret_dataset, struct packimg_error *error)
{
	struct store_set *set = &remote->set;
	int r = 0;

	remote->fds = malloc(set->count * sizeof(*remote->fds));
	if (!remote->fds)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < set->count; i++)
		remote->fds[i] = -1;
	for (uint32_t i = 0; !r && i < set->count; i++)
		r = open_file(remote, receiver, i, error);
	if (!r)
		r = store_set_fetch_sections(remote->store, set, remote->fds, on_section_bytes,
					     remote, error);
	progress_clear(&remote->progress);
	if (!r)
		r = packimg_open_fds(set->objects[0].address.shown, remote->fds, set->count,
				     ret_dataset, error);
	if (!r)
		remote->dataset = *ret_dataset;
	return r;
}

int remote_open(const char *path, bool quiet, struct packimg **ret_dataset,
		struct remote **ret_remote, struct packimg_error *error)
{
	*ret_remote = NULL;
	if (!text_is_address(path))
		return packimg_open(path, ret_dataset, error);
	int r = remote_connect(path, false, quiet, ret_remote, error);
	if (!r)
		r = remote_receive(*ret_remote, NULL, ret_dataset, error);
	if (r) {
		remote_close(*ret_remote, NULL);
		*ret_remote = NULL;
	}
	return r;
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

/* The samples' parts of each file; the caller frees both arrays. */
static int collect_sources(const struct remote *remote, const uint64_t *samples, uint64_t count,
			   struct store_range *ranges, struct store_source *sources)
{
	for (uint32_t i = 0; i < remote->set.count; i++) {
		uint64_t collected = collect_ranges(remote, i, samples, count, ranges);

		collected = store_ranges_merge(ranges, collected, GAP_MAX);
		struct store_range *own = malloc(collected * sizeof(*own) + 1);
		if (!own)
			return -ENOMEM;
		memcpy(own, ranges, collected * sizeof(*own));
		sources[i] = (struct store_source){&remote->set.objects[i], remote->fds[i], own,
						   collected};
	}
	return 0;
}

int remote_fetch_samples(struct remote *remote, const uint64_t *samples, uint64_t count,
			 struct packimg_error *error)
{
	if (!remote || !count)
		return 0;
	uint64_t images = 1 + (uint64_t)packimg_image_count(remote->dataset);
	struct store_range *ranges = calloc(count, 2 * images * sizeof(*ranges));
	struct store_source *sources = calloc(remote->set.count, sizeof(*sources));
	int r = ranges && sources ? collect_sources(remote, samples, count, ranges, sources)
				  : -ENOMEM;

	r = r ? packimg_fail(error, r, "out of memory") : fetch(remote, sources, error);
	progress_clear(&remote->progress);
	for (uint32_t i = 0; sources && i < remote->set.count; i++)
		free((void *)sources[i].ranges);
	free(sources);
	free(ranges);
	return r;
}

int remote_fetch_all(struct remote *remote, struct packimg_error *error)
{
	if (!remote)
		return 0;
	const uint32_t count = remote->set.count;
	struct store_range *ranges = calloc(count, sizeof(*ranges));
	struct store_source *sources = calloc(count, sizeof(*sources));
	int r = ranges && sources ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	for (uint32_t i = 0; !r && i < count; i++) {
		ranges[i] = (struct store_range){0, remote->set.objects[i].size};
		sources[i] = (struct store_source){&remote->set.objects[i], remote->fds[i],
						   &ranges[i], 1};
	}
	r = r ? r : fetch(remote, sources, error);
	r = r ? r : store_set_compare(&remote->set, remote->fds, error);
	progress_clear(&remote->progress);
	free(sources);
	free(ranges);
	return r;
}

/* A memory file of the bytes. */
static int make_memory_file(const void *bytes, size_t size, struct packimg_error *error)
{
	int fd = memfd_create("packimg-set", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : io_write(fd, bytes, size);

	if (!r)
		return fd;
	io_close(fd);
	return packimg_fail(error, r, "%s", strerror(-r));
}

static int upload_set_file(struct remote *remote, const char *address, const void *bytes,
			   size_t size, struct packimg_error *error)
{
	struct store_object object;
	int r = store_object_init(&object, address, error);

	if (r)
		return r;
	int fd = make_memory_file(bytes, size, error);
	r = fd < 0 ? fd : store_upload(remote->store, &object, fd, size, NULL, NULL, error);
	io_close(fd);
	store_object_deinit(&object);
	return r;
}

int remote_seal(struct remote *remote, char **ret_address, struct packimg_error *error)
{
	const struct store_set *set = &remote->set;
	struct set_file_entry *entries = calloc(set->count, sizeof(*entries));
	const size_t size = set_file_size(set->count);
	char path[SHARD_SET_PATH_MAX] = "";
	struct shard_name name;
	void *bytes = malloc(size);
	int r = 0;

	for (uint32_t i = 0; entries && i < set->count; i++)
		entries[i] = (struct set_file_entry){set->objects[i].size, set->headers[i]};
	if (entries && bytes)
		set_file_write(entries, set->count, bytes);
	if (shard_name_parse(set->objects[0].address.shown, &name) == 0)
		r = shard_set_file_path(name.base, path);
	if (!entries || !bytes)
		r = packimg_fail(error, -ENOMEM, "out of memory");
	else
		r = r ? packimg_fail(error, r, "%.200s is too long", name.base)
		      : upload_set_file(remote, path, bytes, size, error);
	free(entries);
	free(bytes);
	*ret_address = r ? NULL : strdup(path);
	return r || *ret_address ? r : packimg_fail(error, -ENOMEM, "out of memory");
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
	if (remote && !remote->dataset && remote->fds)
		for (uint32_t i = 0; i < remote->set.count; i++)
			io_close(remote->fds[i]);
	packimg_close(dataset);
	if (remote) {
		store_close(remote->store);
		store_set_deinit(&remote->set);
		free(remote->fds);
	}
	free(remote);
}
