#include "tools/store/set.h"
#include "format/base/shard_set.h"
#include "format/base/system/io.h"
#include "format/packimg.h"
#include "format/set_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	HEADERS_MAX = 32, /* requests for headers at once */
	POLL_MS = 100,
	/* of a set file whose number of shards is unknown, the first request: 1,016 shards */
	FIRST_BYTES = 1 << 20,
};

/* Between sections that one request fetches together. */
#define SECTION_GAP ((uint64_t)1 << 18)
#define READ_BYTES  ((uint64_t)1 << 20)

static int fail_memory(struct packimg_error *error)
{
	return packimg_fail(error, -ENOMEM, "out of memory");
}

static bool wait_once(struct store *store, const struct store_set_waiting *waiting)
{
	store_poll(store, NULL, 0, POLL_MS);
	return waiting->go_on(waiting->context);
}

void store_set_deinit(struct store_set *set)
{
	for (uint32_t i = 0; set->objects && i < set->count; i++)
		store_object_deinit(&set->objects[i]);
	free(set->objects);
	free(set->headers);
	free(set->set_file);
	*set = (struct store_set){0};
}

/* Pages of these arrays that nobody writes take no memory. */
static int allocate(struct store_set *set, uint32_t count, struct packimg_error *error)
{
	set->objects = calloc(count, sizeof(*set->objects));
	set->headers = calloc(count, sizeof(*set->headers));
	set->count = set->objects ? count : 0;
	return set->objects && set->headers ? 0 : fail_memory(error);
}

static int init_shard(struct store_set *set, const char *base, uint32_t shard,
		      struct packimg_error *error)
{
	char path[SHARD_SET_PATH_MAX];
	int r = shard_name_path(base, shard, set->count, path);

	return r ? packimg_fail(error, r, "%.200s is too long", base)
		 : store_object_init(&set->objects[shard], path, error);
}

/* ---- the set file ---- */

/* Bytes of a set file as they come. */
struct set_bytes {
	uint8_t *bytes;
	size_t size, room;
	bool ended;
	int status;
	struct packimg_error error;
};

static int set_bytes_take(void *context, const void *bytes, size_t size)
{
	struct set_bytes *read = context;

	if (size > read->room - read->size) {
		size_t room = 2 * (read->size + size);
		uint8_t *grown = realloc(read->bytes, room);

		if (!grown)
			return -ENOMEM;
		read->bytes = grown;
		read->room = room;
	}
	memcpy(read->bytes + read->size, bytes, size);
	read->size += size;
	return 0;
}

static void set_bytes_done(void *context, const struct store_result *result)
{
	struct set_bytes *read = context;

	read->ended = true;
	read->status = result->status;
	if (result->status)
		read->error = *result->error;
}

/* Reads at most `size` bytes more. */
static int set_bytes_read(struct store *store, struct store_object *object, uint64_t size,
			  const struct store_set_waiting *waiting, struct set_bytes *read)
{
	const struct store_request request = {
		.object = object,
		.offset = read->size,
		.size = size,
		.size_unknown = object->size == STORE_SIZE_UNKNOWN,
		.take = set_bytes_take,
		.done = set_bytes_done,
		.context = read,
	};
	bool go_on = true;

	read->ended = false;
	if (store_submit(store, &request))
		return fail_memory(&read->error);
	while (!read->ended)
		go_on &= wait_once(store, waiting);
	if (!read->status && !go_on)
		return packimg_fail(&read->error, -EINTR, "interrupted");
	return read->status;
}

/* Reads a set file whole. `count`: of shards; 0 if the file is to tell it. */
static int set_file_read(struct store *store, struct store_object *object, uint32_t count,
			 const struct store_set_waiting *waiting, struct set_bytes *read)
{
	int r = set_bytes_read(store, object, count ? set_file_size(count) : FIRST_BYTES, waiting,
			       read);

	if (r)
		return r;
	if (object->size > set_file_size(PACKIMG_SHARDS_MAX))
		return packimg_damaged(&read->error,
				       "%.200s: has %" PRIu64
				       " bytes, too many for a set file; write it again with "
				       "packimg seal",
				       object->address.shown, object->size);
	if (count && object->size != set_file_size(count))
		return packimg_fail(&read->error, -ESTALE,
				    "%.200s: has %" PRIu64 " bytes, and that of %" PRIu32
				    " shards has %zu; write it again with packimg seal",
				    object->address.shown, object->size, count,
				    set_file_size(count));
	if (read->size < object->size)
		r = set_bytes_read(store, object, object->size - read->size, waiting, read);
	return r;
}

/* Takes the headers out of a set file. */
static int set_file_take(struct store_set *set, const struct set_bytes *read, const char *base,
			 const struct store_object *object, struct packimg_error *error)
{
	uint32_t count;
	int r = set_file_check(read->bytes, read->size, object->address.shown, &count, error);

	r = r ? r : allocate(set, count, error);
	if (r)
		return r;
	set->set_file = strdup(object->address.shown);
	if (!set->set_file)
		return fail_memory(error);
	for (uint32_t i = 0; !r && i < count; i++) {
		struct set_file_entry entry;

		r = init_shard(set, base, i, error);
		set_file_get(read->bytes, i, &entry);
		set->headers[i] = entry.header;
		set->objects[i].size = entry.bytes;
		set->objects[i].described_by = set->set_file;
		memcpy(set->objects[i].region, object->region, sizeof(object->region));
	}
	return r;
}

/* Returns 1 if there is no set file, or the store does not tell. */
static int open_sealed(struct store *store, const char *base, uint32_t count,
		       const struct store_set_waiting *waiting, struct store_set *set,
		       struct packimg_error *error)
{
	char path[SHARD_SET_PATH_MAX];
	struct set_bytes read = {0};
	struct store_object object;
	int r = shard_set_file_path(base, path);

	if (r)
		return packimg_fail(error, r, "%.200s is too long", base);
	r = store_object_init(&object, path, error);
	if (r)
		return r;
	r = set_file_read(store, &object, count, waiting, &read);
	/* S3 answers 403 to those who may not list a bucket */
	if (count && (r == -ENOENT || r == -EACCES))
		r = 1;
	else if (r && error)
		*error = read.error;
	if (!r)
		r = set_file_take(set, &read, base, &object, error);
	store_object_deinit(&object);
	free(read.bytes);
	return r;
}

/* ---- headers by themselves ---- */

/* Headers that are being read. */
struct headers {
	struct store *store;
	struct store_set *set;
	uint32_t next, under_way;
	uint32_t failed; /* the first shard that has, if status is not 0 */
	int status;
	struct packimg_error *error;
};

struct header_part {
	struct headers *headers;
	uint32_t shard;
	size_t size; /* bytes that have come */
};

static int header_take(void *context, const void *bytes, size_t size)
{
	struct header_part *part = context;

	memcpy((uint8_t *)&part->headers->set->headers[part->shard] + part->size, bytes, size);
	part->size += size;
	return 0;
}

static void headers_fail(struct headers *headers, uint32_t shard, int status,
			 const struct packimg_error *error)
{
	if (headers->status && shard > headers->failed)
		return;
	headers->status = status;
	headers->failed = shard;
	if (headers->error)
		*headers->error = *error;
}

static void header_done(void *context, const struct store_result *result)
{
	struct header_part *part = context;

	part->headers->under_way--;
	if (result->status)
		headers_fail(part->headers, part->shard, result->status, result->error);
	free(part);
}

static int header_submit(struct headers *headers, uint32_t shard)
{
	struct header_part *part = malloc(sizeof(*part));
	const struct store_request request = {
		.object = &headers->set->objects[shard],
		.size = sizeof(struct pimg_header),
		.size_unknown = true,
		.take = header_take,
		.done = header_done,
		.context = part,
	};

	if (part)
		*part = (struct header_part){.headers = headers, .shard = shard};
	if (!part || store_submit(headers->store, &request)) {
		free(part);
		return -ENOMEM;
	}
	headers->under_way++;
	return 0;
}

/* Reads the headers of set->objects; with `base` they are made on the way, from the names. */
static int read_headers(struct store *store, struct store_set *set, const char *base,
			const struct store_set_waiting *waiting, struct packimg_error *error)
{
	struct headers headers = {.store = store, .set = set, .error = error};
	struct packimg_error fault = {"out of memory"};

	while (headers.under_way || (headers.next < set->count && !headers.status)) {
		while (!headers.status && headers.next < set->count &&
		       headers.under_way < HEADERS_MAX) {
			uint32_t shard = headers.next++;
			int r = base ? init_shard(set, base, shard, &fault) : 0;

			r = r ? r : header_submit(&headers, shard);
			if (r)
				headers_fail(&headers, shard, r, &fault);
		}
		if (!wait_once(store, waiting) && !headers.status) {
			packimg_say(&fault, "interrupted");
			headers_fail(&headers, set->count, -EINTR, &fault);
		}
	}
	return headers.status;
}

static int check_sizes(const struct store_set *set, struct packimg_error *error)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < set->count; i++) {
		if (set->objects[i].size > INT64_MAX / 2)
			return packimg_fail(error, -EFBIG, "%.200s: %" PRIu64 " bytes are too many",
					    set->objects[i].address.shown, set->objects[i].size);
		bytes += set->objects[i].size;
		if (bytes > INT64_MAX)
			return packimg_fail(error, -EFBIG, "%.200s: the set has too many bytes",
					    set->objects[i].address.shown);
	}
	return 0;
}

static int open_set(struct store *store, const char *address, bool unsealed,
		    const struct store_set_waiting *waiting, struct store_set *set,
		    struct packimg_error *error)
{
	char base[SHARD_SET_PATH_MAX];
	struct shard_name name;

	if (shard_set_file_base(address, base) == 0)
		return open_sealed(store, base, 0, waiting, set, error);
	bool is_set = shard_name_parse(address, &name) == 0;
	int r = is_set && !unsealed
			? open_sealed(store, name.base, name.shard_count, waiting, set, error)
			: 1;
	if (r != 1)
		return r;
	r = allocate(set, is_set ? name.shard_count : 1, error);
	if (!r && !is_set)
		r = store_object_init(&set->objects[0], address, error);
	return r ? r : read_headers(store, set, is_set ? name.base : NULL, waiting, error);
}

int store_set_open(struct store *store, const char *address, bool unsealed,
		   const struct store_set_waiting *waiting, struct store_set *ret_set,
		   struct packimg_error *error)
{
	struct store_set set = {0};
	int r = open_set(store, address, unsealed, waiting, &set, error);

	r = r ? r : check_sizes(&set, error);
	if (r)
		store_set_deinit(&set);
	else
		*ret_set = set;
	return r;
}

/* ---- sections ---- */

/*
 * Whether a copy has a section already. What is a hole has not been fetched. Reads it, since a
 * mapping would fault if the file becomes shorter meanwhile.
 */
static bool section_good(int fd, const struct pimg_section *section)
{
	off_t hole = section->size ? lseek(fd, (off_t)section->offset, SEEK_HOLE) : 0;
	uint64_t at = 0;

	if (section->size == 0)
		return true;
	if (hole < 0 || (uint64_t)hole < section->offset + section->size)
		return false;
	XXH3_state_t *state = XXH3_createState();
	uint8_t *bytes = malloc(section->size < READ_BYTES ? section->size : READ_BYTES);
	if (state && bytes)
		XXH3_64bits_reset(state);
	while (state && bytes && at < section->size) {
		uint64_t left = section->size - at, size = left < READ_BYTES ? left : READ_BYTES;

		if (io_read_at(fd, bytes, size, section->offset + at) != (int64_t)size)
			break;
		XXH3_64bits_update(state, bytes, size);
		at += size;
	}
	bool good = at == section->size && XXH3_64bits_digest(state) == section->xxh3;
	free(bytes);
	XXH3_freeState(state);
	return good;
}

/* Collects the sections that a copy lacks. */
static uint64_t missing_sections(const struct pimg_header *header, int fd,
				 struct store_range ranges[PIMG_SECTIONS_MAX])
{
	uint64_t count = 0;

	for (int i = 0; i < PIMG_SECTIONS_MAX; i++) {
		const struct pimg_section *section = &header->sections[i];

		if (!section_good(fd, section))
			ranges[count++] = (struct store_range){section->offset, section->size};
	}
	return store_ranges_merge(ranges, count, SECTION_GAP);
}

/* What opening fetches of each file. */
struct sections {
	struct store_range (*ranges)[PIMG_SECTIONS_MAX]; /* [count] */
	struct store_source *sources;                    /* [count] */
	uint64_t total;                                  /* bytes */
	bool (*on_bytes)(void *context, uint64_t done, uint64_t total);
	void *context;
};

static bool on_copied(void *context, uint64_t bytes)
{
	const struct sections *sections = context;

	return sections->on_bytes(sections->context, bytes, sections->total);
}

static const struct store_range header_range = {0, sizeof(struct pimg_header)};

/* A header that the copy already has is fetched to compare it. */
static bool fetches_header(const struct store_source *source)
{
	return source->ranges == &header_range;
}

static void choose_ranges(struct store_set *set, const int *fds, struct sections *sections)
{
	for (uint32_t i = 0; i < set->count; i++) {
		struct store_source *source = &sections->sources[i];

		*source = (struct store_source){.object = &set->objects[i], .fd = fds[i]};
		source->ranges = sections->ranges[i];
		source->range_count =
			missing_sections(&set->headers[i], fds[i], sections->ranges[i]);
		if (!source->range_count && set->set_file) {
			source->ranges = &header_range;
			source->range_count = 1;
		}
		for (uint64_t j = 0; j < source->range_count; j++)
			sections->total += source->ranges[j].size;
	}
}

static int compare_header(const struct store_set *set, uint32_t shard, int fd,
			  struct packimg_error *error)
{
	struct pimg_header header;

	if (io_read_at(fd, &header, sizeof(header), 0) == sizeof(header) &&
	    memcmp(&header, &set->headers[shard], sizeof(header)) == 0)
		return 0;
	return packimg_fail(error, -ESTALE,
			    "%.200s is not the shard that %.200s describes; write that again, with "
			    "packimg seal",
			    set->objects[shard].address.shown, set->set_file);
}

int store_set_compare(const struct store_set *set, const int *fds, struct packimg_error *error)
{
	int r = 0;

	for (uint32_t i = 0; !r && set->set_file && i < set->count; i++)
		r = compare_header(set, i, fds[i], error);
	return r;
}

/*
 * Sections that are right are those of the set file's header. Where they are not, either the shard
 * is another one, which its own header tells, or they are damaged, which the reader says.
 */
static int compare_with_set_file(struct store *store, struct store_set *set, const int *fds,
				 struct sections *sections, struct packimg_error *error)
{
	struct store_range ranges[PIMG_SECTIONS_MAX];
	uint32_t suspects = 0;

	for (uint32_t i = 0; i < set->count; i++) {
		if (fetches_header(&sections->sources[i]) ||
		    !missing_sections(&set->headers[i], fds[i], ranges))
			continue;
		sections->sources[suspects] = (struct store_source){
			.object = &set->objects[i],
			.fd = fds[i],
			.ranges = &header_range,
			.range_count = 1,
		};
		suspects++;
	}
	int r = suspects
			? store_copy(store, sections->sources, suspects, on_copied, sections, error)
			: 0;
	return r ? r : store_set_compare(set, fds, error);
}

int store_set_fetch_sections(struct store *store, struct store_set *set, const int *fds,
			     bool (*on_bytes)(void *context, uint64_t done, uint64_t total),
			     void *context, struct packimg_error *error)
{
	struct sections sections = {.ranges = calloc(set->count, sizeof(*sections.ranges)),
				    .sources = calloc(set->count, sizeof(*sections.sources)),
				    .on_bytes = on_bytes,
				    .context = context};
	int r = sections.ranges && sections.sources ? 0 : fail_memory(error);

	if (!r) {
		choose_ranges(set, fds, &sections);
		r = store_copy(store, sections.sources, set->count, on_copied, &sections, error);
	}
	if (!r && set->set_file)
		r = compare_with_set_file(store, set, fds, &sections, error);
	free(sections.ranges);
	free(sections.sources);
	return r;
}
