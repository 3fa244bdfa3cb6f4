#include "tools/fetch/cache.h"
#include "format/base/system/atomic_file.h"
#include "format/base/system/io.h"
#include "format/base/text/number.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

/* The file `present`: this header, then the bits. */
struct present_header {
	uint8_t magic[8];
	uint64_t id, samples;
	uint64_t xxh3; /* of the bits */
};

#define PRESENT_MAGIC "pimgpre1"
#define ENTRY_FIRST   "loaderd remote dataset 1"
/* Part of the free space that the cache takes without a limit of the user's. */
#define ROOM_SHARE 0.8

static int make_folders(const char *path)
{
	char part[4200];

	for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", slash ? (int)(slash - path) : 4199, path);
		if (mkdir(part, 0700) && errno != EEXIST)
			return -errno;
		if (!slash)
			return 0;
	}
}

static int find_folder(struct cache *cache, struct packimg_error *error)
{
	const char *own = getenv("LOADERD_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	int n;

	if (own && *own)
		n = snprintf(cache->folder, sizeof(cache->folder), "%s", own);
	else if (xdg && *xdg == '/')
		n = snprintf(cache->folder, sizeof(cache->folder), "%s/loaderd/remote", xdg);
	else if (home && *home == '/')
		n = snprintf(cache->folder, sizeof(cache->folder), "%s/.cache/loaderd/remote",
			     home);
	else
		return packimg_fail(error, -EINVAL,
				    "neither LOADERD_CACHE nor XDG_CACHE_HOME nor HOME names a "
				    "folder for the cache");
	if (n >= (int)sizeof(cache->folder) || cache->folder[0] != '/')
		return packimg_fail(error, -EINVAL,
				    "LOADERD_CACHE is not an absolute path of at most %zu bytes",
				    sizeof(cache->folder) - 1);
	int r = make_folders(cache->folder);
	return r ? packimg_fail(error, r, "%s: the cache's folder cannot be made: %s",
				cache->folder, strerror(-r))
		 : 0;
}

int cache_init(struct cache *cache, struct packimg_error *error)
{
	const char *limit = getenv("LOADERD_CACHE_SIZE");
	struct statvfs disk;
	int r = find_folder(cache, error);

	if (r)
		return r;
	if (limit && *limit) {
		if (number_bytes(limit, &cache->limit))
			return packimg_fail(
				error, -EINVAL,
				"LOADERD_CACHE_SIZE is \"%s\", which is not a size such "
				"as 200G",
				limit);
		return 0;
	}
	if (statvfs(cache->folder, &disk))
		return packimg_fail(error, -errno, "%s: %s", cache->folder, strerror(errno));
	cache->limit = (uint64_t)(ROOM_SHARE * ((double)disk.f_bavail * (double)disk.f_frsize +
						(double)cache_bytes(cache)));
	return 0;
}

/* Calls visit() for each folder of a dataset. */
static void each_entry(const struct cache *cache, void (*visit)(void *context, const char *folder),
		       void *context)
{
	char folder[4200];
	DIR *directory = opendir(cache->folder);
	struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		if (strlen(entry->d_name) != 32 || strspn(entry->d_name, "0123456789abcdef") != 32)
			continue;
		snprintf(folder, sizeof(folder), "%s/%.32s", cache->folder, entry->d_name);
		visit(context, folder);
	}
	if (directory)
		closedir(directory);
}

static uint64_t folder_bytes(const char *folder)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;
	struct stat status;
	uint64_t bytes = 0;

	while (directory && (entry = readdir(directory)))
		if (entry->d_name[0] != '.' &&
		    fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)status.st_blocks * 512;
	if (directory)
		closedir(directory);
	return bytes;
}

static void add_bytes(void *context, const char *folder)
{
	*(uint64_t *)context += folder_bytes(folder);
}

uint64_t cache_bytes(const struct cache *cache)
{
	uint64_t bytes = 0;

	each_entry(cache, add_bytes, &bytes);
	return bytes;
}

/* Opens a file of an entry for reading. A FIFO would block, and a device would have no end. */
static int open_regular(const char *folder, const char *name)
{
	char path[4300];
	struct stat status;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		return fd;
	io_close(fd);
	return -1;
}

/* The text of an entry, which the caller closes; NULL if it has none. */
static FILE *open_text(const char *folder)
{
	int fd = open_regular(folder, "entry");
	FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (!file)
		io_close(fd);
	return file;
}

/* Locks an entry. Returns the descriptor, or -EWOULDBLOCK while another fetcher has it. */
static int lock_entry(const char *folder)
{
	char path[4300];

	snprintf(path, sizeof(path), "%s/lock", folder);
	return io_lock(path);
}

/*
 * Removes the files of an entry, the lock last. The caller holds the lock. False if the lock cannot
 * be removed.
 */
static bool remove_entry(const char *folder)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;
	bool removed = false;

	while (directory && (entry = readdir(directory)))
		if (strcmp(entry->d_name, "lock") != 0)
			unlinkat(dirfd(directory), entry->d_name, 0); /* fails for . and .. */
	if (directory) {
		removed = unlinkat(dirfd(directory), "lock", 0) == 0;
		closedir(directory);
	}
	rmdir(folder);
	return removed;
}

/* The entry that was used longest ago and is not open. */
struct oldest {
	char folder[4200];
	struct timespec used;
	int lock;
};

static void offer_oldest(void *context, const char *folder)
{
	struct oldest *oldest = context;
	char path[4300];
	struct stat status;

	snprintf(path, sizeof(path), "%s/lock", folder);
	if (stat(path, &status))
		return;
	if (oldest->lock >= 0 && (status.st_mtim.tv_sec > oldest->used.tv_sec ||
				  (status.st_mtim.tv_sec == oldest->used.tv_sec &&
				   status.st_mtim.tv_nsec >= oldest->used.tv_nsec)))
		return;
	int lock = lock_entry(folder);
	if (lock < 0)
		return;
	io_close(oldest->lock);
	oldest->lock = lock;
	oldest->used = status.st_mtim;
	snprintf(oldest->folder, sizeof(oldest->folder), "%s", folder);
}

uint64_t cache_make_room(const struct cache *cache, uint64_t bytes)
{
	for (bool removed = true;;) {
		struct oldest oldest = {.lock = -1};
		uint64_t used = cache_bytes(cache);
		uint64_t left = used < cache->limit ? cache->limit - used : 0;

		if (bytes <= left)
			return bytes;
		if (removed)
			each_entry(cache, offer_oldest, &oldest);
		if (oldest.lock < 0) /* or one that cannot be removed would be the oldest again */
			return left;
		removed = remove_entry(oldest.folder);
		close(oldest.lock);
	}
}

/* A list that grows. */
struct listing {
	struct cache_item *items;
	size_t count;
};

static void list_entry(void *context, const char *folder)
{
	struct listing *listing = context;
	struct cache_item *items =
		realloc(listing->items, (listing->count + 1) * sizeof(*listing->items));

	if (!items)
		return;
	listing->items = items;
	struct cache_item *item = &items[listing->count];
	FILE *file = open_text(folder);
	/* the second line is the address */
	bool known = file && fgets(item->url, sizeof(item->url), file) &&
		     fgets(item->url, sizeof(item->url), file);
	if (file)
		fclose(file);
	if (!known)
		return;
	item->url[strcspn(item->url, "\n")] = '\0';
	item->bytes = folder_bytes(folder);
	int lock = lock_entry(folder);
	item->open = lock == -EWOULDBLOCK;
	io_close(lock < 0 ? -1 : lock);
	listing->count++;
}

struct cache_item *cache_list(const struct cache *cache, size_t *ret_count)
{
	struct listing listing = {0};

	each_entry(cache, list_entry, &listing);
	*ret_count = listing.count;
	return listing.items;
}

static void name_entry(const struct cache *cache, const char *key, char *folder, size_t size)
{
	XXH128_hash_t hash = XXH3_128bits(key, strlen(key));

	snprintf(folder, size, "%s/%016" PRIx64 "%016" PRIx64, cache->folder, (uint64_t)hash.high64,
		 (uint64_t)hash.low64);
}

struct clearing {
	uint64_t bytes;
	uint32_t removed, busy;
};

static void clear_entry(void *context, const char *folder)
{
	struct clearing *clearing = context;
	struct stat status;

	if (stat(folder, &status))
		return;
	int lock = lock_entry(folder);
	if (lock < 0) {
		clearing->busy++;
		return;
	}
	clearing->bytes += folder_bytes(folder);
	clearing->removed++;
	remove_entry(folder);
	close(lock);
}

void cache_clear(const struct cache *cache, const char *key, uint64_t *ret_bytes,
		 uint32_t *ret_removed, uint32_t *ret_busy)
{
	struct clearing clearing = {0};
	char folder[4200];

	if (key) {
		name_entry(cache, key, folder, sizeof(folder));
		clear_entry(&clearing, folder);
	} else {
		each_entry(cache, clear_entry, &clearing);
	}
	*ret_bytes = clearing.bytes;
	*ret_removed = clearing.removed;
	*ret_busy = clearing.busy;
}

/* The text of `entry`; the caller frees it. */
static char *describe(const char *shown, uint64_t id, const struct cache_version *versions,
		      uint32_t count)
{
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	if (!stream)
		return NULL;
	fprintf(stream, "%s\n%s\nid %016" PRIx64 "\n", ENTRY_FIRST, shown, id);
	for (uint32_t i = 0; i < count; i++)
		fprintf(stream, "file %" PRIu64 " %s %s\n", versions[i].size, versions[i].etag,
			versions[i].modified);
	if (fclose(stream)) {
		free(text);
		return NULL;
	}
	return text;
}

/* Reads the id of an entry whose text is otherwise the same. Returns false if it is another one. */
static bool entry_matches(const struct cache_entry *entry, const char *shown,
			  const struct cache_version *versions, uint64_t *ret_id)
{
	char *text = NULL, *expected;
	size_t size = 0;
	bool matches = false;
	FILE *file = open_text(entry->folder);

	if (!file)
		return false;
	ssize_t length = getdelim(&text, &size, '\0', file);
	fclose(file);
	const char *id = length > 0 ? strstr(text, "\nid ") : NULL;
	if (id && sscanf(id, "\nid %16" SCNx64, ret_id) == 1) {
		expected = describe(shown, *ret_id, versions, entry->count);
		matches = expected && strcmp(expected, text) == 0;
		free(expected);
	}
	free(text);
	return matches;
}

static int open_file(const struct cache_entry *entry, uint32_t number, uint64_t size)
{
	char path[4300];
	struct stat status;
	int fd;

	if (entry->temporary) {
		fd = open(entry->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	} else {
		snprintf(path, sizeof(path), "%s/%" PRIu32 ".pimg", entry->folder, number);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) || (status.st_size != (off_t)size && ftruncate(fd, (off_t)size))) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

/* Empties an entry that is new, or of another version. */
static int start_anew(struct cache_entry *entry, const char *shown,
		      const struct cache_version *versions)
{
	static const char *const names[] = {"present", "entry"};
	char path[4300];
	int r = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", entry->folder, names[i]);
		unlink(path);
	}
	for (uint32_t i = 0; i < entry->count; i++) {
		snprintf(path, sizeof(path), "%s/%" PRIu32 ".pimg", entry->folder, i);
		unlink(path);
	}
	if (getrandom(&entry->id, sizeof(entry->id), 0) != sizeof(entry->id))
		return -errno;
	char *text = describe(shown, entry->id, versions, entry->count);
	if (!text)
		return -ENOMEM;
	snprintf(path, sizeof(path), "%s/entry", entry->folder);
	r = atomic_file_put(path, text, strlen(text));
	free(text);
	return r;
}

static int open_entry(struct cache_entry *entry, const char *shown,
		      const struct cache_version *versions)
{
	int r = make_folders(entry->folder);

	if (r)
		return r;
	entry->lock = lock_entry(entry->folder);
	if (entry->lock == -EWOULDBLOCK) {
		entry->temporary = true;
		if (getrandom(&entry->id, sizeof(entry->id), 0) != sizeof(entry->id))
			return -errno;
	} else if (entry->lock < 0) {
		return entry->lock;
	} else {
		futimens(entry->lock, NULL); /* the last use */
		if (!entry_matches(entry, shown, versions, &entry->id))
			r = start_anew(entry, shown, versions);
	}
	for (uint32_t i = 0; !r && i < entry->count; i++) {
		entry->fds[i] = open_file(entry, i, versions[i].size);
		r = entry->fds[i] < 0 ? entry->fds[i] : 0;
	}
	return r;
}

int cache_open(const struct cache *cache, const char *key, const char *shown,
	       const struct cache_version *versions, uint32_t count, struct cache_entry *ret_entry,
	       struct packimg_error *error)
{
	struct cache_entry entry = {.lock = -1, .count = count};

	name_entry(cache, key, entry.folder, sizeof(entry.folder));
	entry.fds = malloc(count * sizeof(*entry.fds));
	if (!entry.fds)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < count; i++)
		entry.fds[i] = -1;
	int r = open_entry(&entry, shown, versions);
	if (r) {
		packimg_say(error, "%.200s: the cache of %.200s: %s", entry.folder, shown,
			    strerror(-r));
		cache_close(&entry);
		return r;
	}
	*ret_entry = entry;
	return 0;
}

void cache_read_present(const struct cache_entry *entry, uint64_t samples, uint8_t *bits)
{
	uint64_t size = (samples + 7) / 8;
	struct present_header header;

	memset(bits, 0, size);
	if (entry->temporary)
		return;
	int fd = open_regular(entry->folder, "present");
	if (fd < 0)
		return;
	bool good = io_read_at(fd, &header, sizeof(header), 0) == sizeof(header) &&
		    memcmp(header.magic, PRESENT_MAGIC, 8) == 0 && header.id == entry->id &&
		    header.samples == samples &&
		    io_read_at(fd, bits, size, sizeof(header)) == (int64_t)size &&
		    XXH3_64bits(bits, size) == header.xxh3;
	if (!good)
		memset(bits, 0, size);
	close(fd);
}

void cache_forget_present(const struct cache_entry *entry)
{
	char path[4300];

	if (entry->temporary)
		return;
	snprintf(path, sizeof(path), "%s/present", entry->folder);
	unlink(path);
}

int cache_sync(const struct cache_entry *entry, const uint8_t *bits, uint64_t samples)
{
	uint64_t size = (samples + 7) / 8;
	struct present_header header = {
		.id = entry->id, .samples = samples, .xxh3 = XXH3_64bits(bits, size)};
	struct atomic_file file;
	char path[4300];

	if (entry->temporary)
		return 0;
	for (uint32_t i = 0; i < entry->count; i++)
		if (fdatasync(entry->fds[i]))
			return -errno;
	memcpy(header.magic, PRESENT_MAGIC, 8);
	snprintf(path, sizeof(path), "%s/present", entry->folder);
	int r = atomic_file_create(&file, path);
	if (r)
		return r;
	r = atomic_file_write(&file, &header, sizeof(header));
	if (!r)
		r = atomic_file_write(&file, bits, size);
	return atomic_file_close(&file, r);
}

void cache_close(struct cache_entry *entry)
{
	for (uint32_t i = 0; entry->fds && i < entry->count; i++)
		io_close(entry->fds[i]);
	free(entry->fds);
	io_close(entry->lock < 0 ? -1 : entry->lock);
	*entry = (struct cache_entry){.lock = -1};
}
