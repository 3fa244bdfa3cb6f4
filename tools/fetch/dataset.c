#include "tools/fetch/dataset.h"
#include "format/base/shard_set.h"
#include "format/base/system/io.h"
#include "format/header.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { VERSION_NAME = 32 };
/* Bytes that are read into memory to be checked, at most: the memory of a fetcher is bounded. */
#define CHECKED_MAX ((uint64_t)8 << 20)
enum { MAP_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* Names of a query's values that change with each signing. */
static const char *const signatures[] = {"X-Amz-Signature=", "Signature=", "sig="};

/* A set has the address of its set file, whichever shard is named. */
static const char *key_address(const char *url, char path[SHARD_SET_PATH_MAX])
{
	struct shard_name name;

	return shard_name_parse(url, &name) == 0 && shard_set_file_path(name.base, path) == 0 ? path
											      : url;
}

char *dataset_key(const char *url)
{
	const char *query = strchr(url, '?'), *endpoint = getenv("AWS_ENDPOINT_URL_S3");
	size_t length = strlen(url);
	char path[SHARD_SET_PATH_MAX], *key;

	for (size_t i = 0; query && i < sizeof(signatures) / sizeof(signatures[0]); i++)
		if (strstr(query, signatures[i]))
			length = (size_t)(query - url);
	if (!endpoint || !*endpoint)
		endpoint = getenv("AWS_ENDPOINT_URL");
	if (!query) {
		url = key_address(url, path);
		length = strlen(url);
	}
	if (asprintf(&key, "%.*s\n%s", (int)length, url, endpoint ? endpoint : "") < 0)
		return NULL;
	return key;
}

/* Opening, in steps. */
struct opening {
	struct remote_dataset *dataset;
	const struct dataset_progress *progress;
};

static bool on_waiting(void *context)
{
	const struct dataset_progress *progress = context;

	return progress->on_bytes(progress->context, 0, 0);
}

static int read_headers(struct opening *opening, const char *url, struct packimg_error *error)
{
	const struct store_set_waiting waiting = {on_waiting, (void *)opening->progress};
	struct remote_dataset *dataset = opening->dataset;
	int r = store_set_open(dataset->store, url, false, &waiting, &dataset->set, error);

	if (r)
		return r;
	dataset->file_count = dataset->set.count;
	dataset->objects = dataset->set.objects;
	for (uint32_t i = 0; i < dataset->file_count; i++)
		dataset->bytes += dataset->objects[i].size;
	dataset->key = dataset_key(url);
	return dataset->key ? 0 : packimg_fail(error, -ENOMEM, "out of memory");
}

/*
 * A shard is known by its header, which has the checksums of its sections, and these those of its
 * samples: with a set file no ETag is known yet.
 */
static void name_version(const struct store_set *set, uint32_t file, char name[VERSION_NAME])
{
	snprintf(name, VERSION_NAME, "header-%016" PRIx64,
		 XXH3_64bits(&set->headers[file], sizeof(set->headers[file])));
}

static int open_entry(struct remote_dataset *dataset, const struct cache *cache,
		      struct packimg_error *error)
{
	const bool is_set = dataset->set.set_file || dataset->file_count > 1;
	struct cache_version *versions = calloc(dataset->file_count, sizeof(*versions));
	char(*names)[VERSION_NAME] = calloc(dataset->file_count, sizeof(*names));
	int r = versions && names ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	for (uint32_t i = 0; !r && i < dataset->file_count; i++) {
		const struct store_object *object = &dataset->objects[i];

		name_version(&dataset->set, i, names[i]);
		versions[i] = (struct cache_version){object->size, is_set ? names[i] : object->etag,
						     is_set ? "" : object->modified};
	}
	if (!r)
		r = cache_open(cache, dataset->key, dataset->objects[0].address.shown, versions,
			       dataset->file_count, &dataset->entry, error);
	free(versions);
	free(names);
	return r;
}

static int open_cache(struct opening *opening, const struct cache *cache,
		      struct packimg_error *error)
{
	struct remote_dataset *dataset = opening->dataset;
	struct pimg_header *headers = dataset->set.headers;
	int r = open_entry(dataset, cache, error);

	/* header_read() checks the copy that is in the file */
	for (uint32_t i = 0; !r && i < dataset->file_count; i++) {
		uint64_t size = dataset->objects[i].size;
		size_t known = size < sizeof(*headers) ? size : sizeof(*headers);

		r = io_write_at(dataset->entry.fds[i], &headers[i], known, 0);
		if (r)
			return packimg_fail(error, r, "%s: %s", dataset->entry.folder,
					    strerror(-r));
		r = header_read(dataset->entry.fds[i], dataset->objects[i].address.shown,
				&headers[i], error);
	}
	return r;
}

/* Sections come whole, whatever the limit: a header that lies would fill the disk. */
static int check_sections(const struct opening *opening, uint64_t limit,
			  struct packimg_error *error)
{
	const struct remote_dataset *dataset = opening->dataset;
	uint64_t bytes = 0; /* no sum overflows: each is of a file, and all files have INT64_MAX */

	for (uint32_t i = 0; i < dataset->file_count; i++)
		for (int j = 0; j < PIMG_SECTIONS_MAX; j++)
			bytes += dataset->set.headers[i].sections[j].size;
	if (bytes <= limit)
		return 0;
	return packimg_fail(error, -EFBIG,
			    "%.200s: its sections have %" PRIu64
			    " bytes, the cache at most %" PRIu64 "; set LOADERD_CACHE_SIZE to more",
			    dataset->objects[0].address.shown, bytes, limit);
}

static bool on_section_bytes(void *context, uint64_t done, uint64_t total)
{
	const struct dataset_progress *progress = context;

	return progress->on_bytes(progress->context, done, total);
}

static int fetch_sections(struct opening *opening, struct packimg_error *error)
{
	struct remote_dataset *dataset = opening->dataset;

	return store_set_fetch_sections(dataset->store, &dataset->set, dataset->entry.fds,
					on_section_bytes, (void *)opening->progress, error);
}

static int open_packimg(struct remote_dataset *dataset, struct packimg_error *error)
{
	int *fds = malloc(dataset->file_count * sizeof(*fds));
	int r = fds ? 0 : -ENOMEM;

	for (uint32_t i = 0; !r && i < dataset->file_count; i++) {
		fds[i] = fcntl(dataset->entry.fds[i], F_DUPFD_CLOEXEC, 3);
		if (fds[i] >= 0)
			continue;
		r = -errno;
		while (i-- > 0)
			close(fds[i]);
		break;
	}
	if (r) {
		free(fds);
		return packimg_fail(error, r, "%s", strerror(-r));
	}
	r = packimg_open_fds(dataset->objects[0].address.shown, fds, dataset->file_count,
			     &dataset->packimg, error);
	for (uint32_t i = 0; r && i < dataset->file_count; i++)
		close(fds[i]);
	free(fds);
	return r;
}

uint64_t dataset_sample_bytes(const struct remote_dataset *dataset, uint64_t sample)
{
	struct sample_part parts[SAMPLE_PARTS_MAX];
	unsigned count = dataset_parts(dataset, sample, 0, parts);
	uint64_t bytes = 0;

	for (unsigned i = 0; i < count; i++)
		bytes += parts[i].range.size;
	return bytes;
}

static int find_present(struct remote_dataset *dataset, struct packimg_error *error)
{
	dataset->samples = packimg_count(dataset->packimg);
	uint8_t *bits = malloc((dataset->samples + 7) / 8);

	dataset->states = calloc(dataset->samples, 1);
	dataset->extras = calloc(DATASET_EXTRAS, sizeof(*dataset->extras));
	if (!bits || !dataset->states || !dataset->extras) {
		free(bits);
		return packimg_fail(error, -ENOMEM, "out of memory");
	}
	cache_read_present(&dataset->entry, dataset->samples, bits);
	for (uint64_t i = 0; i < dataset->samples; i++)
		if (bits[i / 8] >> i % 8 & 1)
			dataset_set_state(dataset, i, SAMPLE_PRESENT);
	free(bits);
	return 0;
}

bool dataset_disk_full(int status)
{
	return status == -ENOSPC || status == -EDQUOT;
}

void dataset_say_full(const struct remote_dataset *dataset, const struct cache *cache,
		      struct packimg_error *error)
{
	packimg_say(error,
		    "%.200s: no space is left on the disk of the cache, %.100s: make room, or name "
		    "another folder in LOADERD_CACHE",
		    dataset->objects[0].address.shown, cache->folder);
}

int dataset_open(struct store *store, const struct cache *cache, const char *url,
		 const struct dataset_progress *progress, struct remote_dataset **ret_dataset,
		 struct packimg_error *error)
{
	struct remote_dataset *dataset = calloc(1, sizeof(*dataset));
	struct opening opening = {.dataset = dataset, .progress = progress};

	if (!dataset)
		return packimg_fail(error, -ENOMEM, "out of memory");
	dataset->store = store;
	dataset->entry.lock = -1;
	dataset->url = strdup(url);
	int r = dataset->url ? read_headers(&opening, url, error)
			     : packimg_fail(error, -ENOMEM, "out of memory");
	if (!r)
		r = open_cache(&opening, cache, error);
	if (!r)
		r = check_sections(&opening, cache->limit, error);
	if (!r)
		r = fetch_sections(&opening, error);
	if (!r)
		r = open_packimg(dataset, error);
	if (!r)
		r = find_present(dataset, error);
	free(dataset->set.headers);
	dataset->set.headers = NULL;
	if (dataset_disk_full(r))
		dataset_say_full(dataset, cache, error);
	if (r)
		dataset_close(dataset);
	else
		*ret_dataset = dataset;
	return r;
}

void dataset_close(struct remote_dataset *dataset)
{
	bool changed = dataset->dirty || dataset->evicted;
	uint8_t *bits = changed ? dataset_present_bits(dataset) : NULL;

	if (bits)
		cache_sync(&dataset->entry, bits, dataset->samples);
	free(bits);
	while (dataset->maps)
		dataset_remove_map(dataset, dataset->maps);
	packimg_close(dataset->packimg);
	cache_close(&dataset->entry);
	pages_free(dataset->pages);
	free(dataset->states);
	free(dataset->extras);
	store_set_deinit(&dataset->set);
	free(dataset->key);
	free(dataset->url);
	free(dataset);
}

static unsigned add_part(struct sample_part *parts, unsigned count, uint32_t file, uint64_t offset,
			 uint64_t size, uint64_t gap)
{
	struct sample_part *last = count ? &parts[count - 1] : NULL;

	if (!size)
		return count;
	if (last && last->file == file && offset >= last->range.offset + last->range.size &&
	    offset - (last->range.offset + last->range.size) <= gap) {
		last->range.size = offset + size - last->range.offset;
		return count;
	}
	parts[count] = (struct sample_part){file, {offset, size}};
	return count + 1;
}

static unsigned add_image(const struct remote_dataset *dataset, const struct packimg_sample *image,
			  struct sample_part *parts, unsigned count, uint64_t gap)
{
	struct packimg_shard shard;

	count = add_part(parts, count, image->shard, image->data_offset, image->data_size, gap);
	if (image->side && !packimg_shard(dataset->packimg, image->shard, &shard))
		count = add_part(parts, count, image->shard, (uint64_t)(image->side - shard.map),
				 image->side_size, gap);
	return count;
}

unsigned dataset_parts(const struct remote_dataset *dataset, uint64_t sample, uint64_t gap,
		       struct sample_part parts[SAMPLE_PARTS_MAX])
{
	struct packimg_sample image;
	unsigned count = 0;

	if (packimg_sample(dataset->packimg, sample, &image))
		return 0;
	count = add_image(dataset, &image, parts, count, gap);
	for (uint32_t i = 0; i < packimg_image_count(dataset->packimg); i++)
		if (!packimg_image(dataset->packimg, sample, i, &image))
			count = add_image(dataset, &image, parts, count, gap);
	return count;
}

/*
 * Sets *at, the address of `size` bytes of a mapped file, to that of the same bytes in the copy,
 * or, if it does not have all of them, in memory of their own, which is returned: what is read in
 * the mapping stays in this process's memory. NULL if the copy has them, if they are so many that
 * the mapping is better, or if memory is out.
 */
static uint8_t *use_copy(const struct remote_dataset *dataset, const struct file_bytes *copy,
			 uint32_t file, struct store_range part, const uint8_t **at)
{
	if (copy && copy->file == file && part.offset >= copy->range.offset &&
	    part.size <= copy->range.size &&
	    part.offset - copy->range.offset <= copy->range.size - part.size) {
		*at = copy->bytes + (part.offset - copy->range.offset);
		return NULL;
	}
	uint8_t *bytes = part.size <= CHECKED_MAX ? malloc(part.size) : NULL;
	if (bytes && io_read_at(dataset->entry.fds[file], bytes, part.size, part.offset) ==
			     (int64_t)part.size)
		*at = bytes;
	return bytes;
}

static bool image_good(const struct remote_dataset *dataset, struct packimg_sample *image,
		       const struct file_bytes *copy)
{
	struct packimg_shard shard;
	uint8_t *data = NULL, *side = NULL;

	if (!packimg_shard(dataset->packimg, image->shard, &shard)) {
		const struct store_range range = {image->data_offset, image->data_size};

		data = use_copy(dataset, copy, image->shard, range, &image->data);
		if (image->side) {
			const struct store_range side_range = {(uint64_t)(image->side - shard.map),
							       image->side_size};

			side = use_copy(dataset, copy, image->shard, side_range, &image->side);
		}
	}
	bool good = packimg_sample_check(image) == 0;
	free(data);
	free(side);
	return good;
}

bool dataset_sample_good(const struct remote_dataset *dataset, uint64_t sample,
			 const struct file_bytes *copy)
{
	struct packimg_sample image;

	if (packimg_sample(dataset->packimg, sample, &image))
		return true; /* the reader sees what is wrong with it */
	if (!image_good(dataset, &image, copy))
		return false;
	for (uint32_t i = 0; i < packimg_image_count(dataset->packimg); i++)
		if (!packimg_image(dataset->packimg, sample, i, &image) &&
		    !image_good(dataset, &image, copy))
			return false;
	return true;
}

void dataset_set_state(struct remote_dataset *dataset, uint64_t sample, enum sample_state state)
{
	bool was = dataset->states[sample] != SAMPLE_ABSENT, is = state != SAMPLE_ABSENT;

	if (dataset->states[sample] == SAMPLE_PRESENT)
		atomic_fetch_sub(&dataset->present, 1);
	if (state == SAMPLE_PRESENT)
		atomic_fetch_add(&dataset->present, 1);
	dataset->states[sample] = (uint8_t)state;
	if (dataset->pages && is && !was)
		pages_add(dataset, sample);
	else if (dataset->pages && was && !is)
		pages_remove(dataset, sample);
}

bool dataset_is_present(const struct remote_dataset *dataset)
{
	return atomic_load(&dataset->present) == dataset->samples;
}

int dataset_count_pages(struct remote_dataset *dataset)
{
	return dataset->pages ? 0 : pages_new(dataset);
}

uint64_t dataset_disk_bytes(const struct remote_dataset *dataset)
{
	uint64_t bytes = 0;
	struct stat status;

	for (uint32_t i = 0; i < dataset->file_count; i++)
		if (fstat(dataset->entry.fds[i], &status) == 0)
			bytes += (uint64_t)status.st_blocks * 512;
	return bytes;
}

void dataset_set_present(struct remote_dataset *dataset, uint64_t sample)
{
	if (dataset->states[sample] == SAMPLE_PRESENT)
		return; /* adopted while it was under way */
	dataset_set_state(dataset, sample, SAMPLE_PRESENT);
	dataset->dirty = !dataset->evicted;
	for (struct turn_map *map = dataset->maps; map; map = map->next)
		if (!(atomic_load(&map->turns[sample]) & 1))
			atomic_fetch_add(&map->turns[sample], 1);
}

void dataset_evict(struct remote_dataset *dataset, uint64_t sample)
{
	if (!dataset->evicted++)
		cache_forget_present(&dataset->entry);
	dataset->dirty = false;
	/* readers see the turn change before the bytes do */
	for (struct turn_map *map = dataset->maps; map; map = map->next)
		if (atomic_load(&map->turns[sample]) & 1)
			atomic_fetch_add(&map->turns[sample], 1);
	dataset_set_state(dataset, sample, SAMPLE_ABSENT);
}

static int make_map_file(uint64_t samples)
{
	int fd = memfd_create("loaderd-turns", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)samples) || fcntl(fd, F_ADD_SEALS, MAP_SEALS)) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

/* Finds the map of a memory file. */
static struct turn_map *find_map(const struct remote_dataset *dataset, const struct stat *status)
{
	struct turn_map *map = dataset->maps;

	while (map && (map->device != status->st_dev || map->inode != status->st_ino))
		map = map->next;
	return map;
}

/*
 * Takes what the map of an earlier fetcher says, which has died: what is there has its bytes in the
 * file, and what is not may have lost them since the last sync.
 */
static void adopt_map(struct remote_dataset *dataset, const struct turn_map *map)
{
	for (uint64_t i = 0; i < dataset->samples; i++) {
		bool there = atomic_load(&map->turns[i]) & 1;

		if (there && dataset->states[i] != SAMPLE_PRESENT)
			dataset_set_present(dataset, i);
		else if (!there && dataset->states[i] == SAMPLE_PRESENT)
			dataset_set_state(dataset, i, SAMPLE_ABSENT);
	}
}

/* Tells a map what is there; it may have been made by the same fetcher as another feed's. */
static void align_map(struct remote_dataset *dataset, struct turn_map *map)
{
	for (uint64_t i = 0; i < dataset->samples; i++)
		if ((atomic_load(&map->turns[i]) & 1) != (dataset->states[i] == SAMPLE_PRESENT))
			atomic_fetch_add(&map->turns[i], 1);
}

int dataset_add_map(struct remote_dataset *dataset, int fd, struct turn_map **ret_map)
{
	struct turn_map *map = fd < 0 ? dataset->maps : NULL;
	const bool given = fd >= 0;
	struct stat status;

	if (map) { /* feeds of this fetcher share one */
		map->users++;
		*ret_map = map;
		return 0;
	}
	if (fd < 0)
		fd = make_map_file(dataset->samples);
	if (fd < 0)
		return fd;
	if (fstat(fd, &status) || status.st_size != (off_t)dataset->samples ||
	    (fcntl(fd, F_GET_SEALS) & MAP_SEALS) != MAP_SEALS) {
		close(fd);
		return -EINVAL;
	}
	map = find_map(dataset, &status);
	if (map) {
		close(fd);
		map->users++;
		*ret_map = map;
		return 0;
	}
	map = calloc(1, sizeof(*map));
	void *turns = mmap(NULL, dataset->samples, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!map || turns == MAP_FAILED) {
		int r = turns == MAP_FAILED ? -errno : -ENOMEM;

		if (turns != MAP_FAILED)
			munmap(turns, dataset->samples);
		free(map);
		close(fd);
		return r;
	}
	*map = (struct turn_map){.next = dataset->maps,
				 .fd = fd,
				 .device = status.st_dev,
				 .inode = status.st_ino,
				 .turns = turns,
				 .users = 1};
	if (given && !dataset->maps)
		adopt_map(dataset, map);
	dataset->maps = map;
	align_map(dataset, map);
	*ret_map = map;
	return 0;
}

void dataset_remove_map(struct remote_dataset *dataset, struct turn_map *map)
{
	struct turn_map **link = &dataset->maps;

	while (*link != map)
		link = &(*link)->next;
	*link = map->next;
	munmap((void *)map->turns, dataset->samples);
	close(map->fd);
	free(map);
}

uint8_t *dataset_present_bits(const struct remote_dataset *dataset)
{
	uint8_t *bits = calloc((dataset->samples + 7) / 8, 1);

	for (uint64_t i = 0; bits && i < dataset->samples; i++)
		if (dataset->states[i] == SAMPLE_PRESENT)
			bits[i / 8] |= (uint8_t)(1u << i % 8);
	return bits;
}

void dataset_fail(struct remote_dataset *dataset, int status, const struct packimg_error *error)
{
	if (dataset->failed)
		return;
	dataset->failed = status;
	dataset->error = *error;
}
