#include "loaderd/worker/registry.h"

#include "format/base/system/clock.h"
#include "format/join.h"
#include "loaderd/worker/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void entry_free(struct registry_entry *entry)
{
	if (entry->dataset)
		dataset_free(entry->dataset);
	free(entry->files);
	free(entry->part_files);
	free(entry);
}

int registry_init(struct registry *registry)
{
	*registry = (struct registry){.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	if (registry->event_fd < 0)
		return -errno;
	registry->bad = calloc(REGISTRY_BAD_MAX, sizeof(*registry->bad));
	if (!registry->bad) {
		close(registry->event_fd);
		return -ENOMEM;
	}
	pthread_mutex_init(&registry->mutex, NULL);
	return 0;
}

void registry_deinit(struct registry *registry)
{
	while (registry->entries) {
		struct registry_entry *entry = registry->entries;
		registry->entries = entry->next;
		entry_free(entry);
	}
	close(registry->event_fd);
	free(registry->bad);
	pthread_mutex_destroy(&registry->mutex);
}

/*
 * Identifies the file of an fd. Returns -EBADF if it is not open for reading: a client that knows a
 * path but may not read the file must not share a dataset that another client has opened. Calls the
 * system call directly: glibc's fstat() uses newfstatat(), which also takes paths and is not
 * allowed in the sandbox.
 */
static int registry_file_of(int fd, struct registry_file *ret_file)
{
	struct stat status;
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || (flags & O_PATH) ||
	    ((flags & O_ACCMODE) != O_RDONLY && (flags & O_ACCMODE) != O_RDWR))
		return -EBADF;
	if (syscall(SYS_fstat, fd, &status) < 0)
		return -errno;
	*ret_file = (struct registry_file){status.st_dev, status.st_ino, status.st_size,
					   status.st_mtim};
	return 0;
}

static bool same_file(const struct registry_file *a, const struct registry_file *b)
{
	return a->device == b->device && a->inode == b->inode && a->size == b->size &&
	       a->modified.tv_sec == b->modified.tv_sec &&
	       a->modified.tv_nsec == b->modified.tv_nsec;
}

static bool same_entry(const struct registry_entry *entry, const struct registry_entry *wanted,
		       const struct dataset_files *parts)
{
	const struct dataset *dataset = entry->dataset;
	if (entry->file_count != wanted->file_count || entry->part_count != wanted->part_count)
		return false;
	for (uint32_t p = 0; p < entry->part_count; p++) {
		const char *path = dataset->part_paths ? dataset->part_paths[p] : dataset->path;
		if (entry->part_files[p] != wanted->part_files[p] ||
		    strcmp(path, parts[p].path) != 0)
			return false;
	}
	for (uint32_t i = 0; i < entry->file_count; i++)
		if (!same_file(&entry->files[i], &wanted->files[i]))
			return false;
	return true;
}

/* Call with the mutex held. */
static struct registry_entry *registry_find(struct registry *registry,
					    const struct registry_entry *wanted,
					    const struct dataset_files *parts)
{
	for (struct registry_entry *entry = registry->entries; entry; entry = entry->next)
		if (!entry->dataset->filling && same_entry(entry, wanted, parts))
			return entry;
	return NULL;
}

static int identify_files(const struct dataset_files *part, struct registry_file *ret_files,
			  struct packimg_error *error)
{
	for (uint32_t i = 0; i < part->count; i++) {
		int r = registry_file_of(part->fds[i], &ret_files[i]);
		if (r == -EBADF)
			snprintf(error->text, sizeof(error->text),
				 "%.300s: the descriptor of its file %u is not open for reading",
				 part->path, i);
		else if (r < 0)
			snprintf(error->text, sizeof(error->text),
				 "%.300s: the daemon may not access its file %u: %s; a private "
				 "daemon of the file's owner may",
				 part->path, i, strerror(-r));
		if (r < 0)
			return r;
	}
	return 0;
}

static int new_entry(const struct dataset_files *parts, uint32_t part_count,
		     struct registry_entry **ret_entry, struct packimg_error *error)
{
	struct registry_entry *entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->users = 1;
	entry->part_count = part_count;
	for (uint32_t p = 0; p < part_count; p++)
		entry->file_count += parts[p].count;
	entry->files = calloc(entry->file_count, sizeof(*entry->files));
	entry->part_files = calloc(part_count, sizeof(*entry->part_files));
	int r = entry->files && entry->part_files ? 0 : -ENOMEM;
	struct registry_file *files = entry->files;
	for (uint32_t p = 0; r == 0 && p < part_count; p++) {
		entry->part_files[p] = parts[p].count;
		r = identify_files(&parts[p], files, error);
		files += parts[p].count;
	}
	if (r < 0) {
		entry_free(entry);
		return r;
	}
	*ret_entry = entry;
	return 0;
}

void registry_poison(struct registry *registry, const uint8_t uuid[16], uint64_t sample)
{
	pthread_mutex_lock(&registry->mutex);
	if (registry->poison_count < REGISTRY_POISON_MAX) {
		struct registry_poison *poison = &registry->poison[registry->poison_count++];
		memcpy(poison->uuid, uuid, sizeof(poison->uuid));
		poison->sample = sample;
	}
	pthread_mutex_unlock(&registry->mutex);
}

/* Call with the mutex held. */
static void avoid_poison(const struct registry *registry, struct dataset *dataset)
{
	for (uint32_t p = 0; p < packimg_part_count(dataset->image); p++) {
		const struct packimg *part = packimg_part(dataset->image, p);
		uint64_t first = packimg_part_first(dataset->image, p);
		for (unsigned i = 0; i < registry->poison_count; i++)
			if (memcmp(registry->poison[i].uuid, packimg_uuid(part), 16) == 0 &&
			    registry->poison[i].sample < packimg_count(part))
				dataset_condemn(dataset, first + registry->poison[i].sample);
	}
}

void registry_ban(struct registry *registry, const uint8_t uuid[16], unsigned faults,
		  unsigned seconds)
{
	pthread_mutex_lock(&registry->mutex);
	if (registry->ban_count < REGISTRY_POISON_MAX) {
		struct registry_ban *ban = &registry->bans[registry->ban_count++];
		memcpy(ban->uuid, uuid, sizeof(ban->uuid));
		ban->faults = faults;
		ban->until_ns = clock_ns(CLOCK_MONOTONIC) + seconds * UINT64_C(1000000000);
	}
	pthread_mutex_unlock(&registry->mutex);
}

/* Call with the mutex held. Checks one part, named by path. */
static int check_ban(const struct registry *registry, const struct packimg *part, const char *path,
		     struct packimg_error *error)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < registry->ban_count; i++) {
		const struct registry_ban *ban = &registry->bans[i];
		if (ban->until_ns <= now_ns ||
		    memcmp(ban->uuid, packimg_uuid(part), sizeof(ban->uuid)) != 0)
			continue;
		snprintf(error->text, sizeof(error->text),
			 "%.200s: decoding its samples has crashed %u workers, and with them all "
			 "feeds of this user; it is refused for another %llu minutes; check it "
			 "with packimg verify, pack it again from images that you trust, and "
			 "report a bug in loaderd if it is intact",
			 path, ban->faults,
			 (unsigned long long)((ban->until_ns - now_ns) / UINT64_C(60000000000)) +
				 1);
		return -EBADMSG;
	}
	return 0;
}

static int check_bans(const struct registry *registry, const struct dataset *dataset,
		      const struct dataset_files *parts, struct packimg_error *error)
{
	int r = 0;
	for (uint32_t p = 0; r == 0 && p < packimg_part_count(dataset->image); p++)
		r = check_ban(registry, packimg_part(dataset->image, p), parts[p].path, error);
	return r;
}

/* Files are mapped only if those of all parts may be. */
static int choose_storage(const struct dataset_files *parts, uint32_t part_count, bool *ret_mapped,
			  struct packimg_error *error)
{
	bool mapped = true;
	int r = 0;
	for (uint32_t p = 0; r == 0 && p < part_count; p++) {
		bool part_mapped;
		r = storage_choose(parts[p].path, parts[p].fds, parts[p].count, &part_mapped,
				   error);
		mapped = mapped && r == 0 && part_mapped;
	}
	*ret_mapped = mapped;
	return r;
}

int registry_acquire(struct registry *registry, const struct dataset_files *parts,
		     uint32_t part_count, bool filling, struct dataset **ret_dataset,
		     struct packimg_error *error)
{
	struct registry_entry *entry;
	bool mapped;
	int r = choose_storage(parts, part_count, &mapped, error);
	if (r < 0)
		return r;
	r = new_entry(parts, part_count, &entry, error);
	if (r < 0)
		return r;
	pthread_mutex_lock(&registry->mutex);
	struct registry_entry *there = filling ? NULL : registry_find(registry, entry, parts);
	if (there) {
		there->users++;
		*ret_dataset = there->dataset;
	}
	pthread_mutex_unlock(&registry->mutex);
	/*
	 * Open outside the lock, so that a slow disk only delays those who need this dataset. Two
	 * callers may open the same files twice, which is harmless.
	 */
	if (!there)
		r = dataset_open(parts, part_count, mapped, &entry->dataset, error);
	if (there || r < 0) {
		entry_free(entry);
		return r;
	}
	pthread_mutex_lock(&registry->mutex);
	r = check_bans(registry, entry->dataset, parts, error);
	if (r < 0) {
		pthread_mutex_unlock(&registry->mutex);
		entry_free(entry);
		return r;
	}
	avoid_poison(registry, entry->dataset);
	entry->dataset->filling = filling;
	entry->next = registry->entries;
	registry->entries = entry;
	pthread_mutex_unlock(&registry->mutex);
	*ret_dataset = entry->dataset;
	return 0;
}

bool registry_same_files(struct registry *registry, const struct dataset *dataset, const int *fds,
			 uint32_t count)
{
	const struct registry_entry *entry;
	pthread_mutex_lock(&registry->mutex);
	for (entry = registry->entries; entry && entry->dataset != dataset;)
		entry = entry->next;
	pthread_mutex_unlock(&registry->mutex);
	/* The caller holds a reference to the dataset, which keeps the entry alive. */
	if (!entry || count > entry->file_count)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		struct registry_file file = {0};
		if (registry_file_of(fds[i], &file) < 0 || file.device != entry->files[i].device ||
		    file.inode != entry->files[i].inode)
			return false;
	}
	return true;
}

void registry_release(struct registry *registry, struct dataset *dataset)
{
	struct registry_entry *gone = NULL;
	pthread_mutex_lock(&registry->mutex);
	struct registry_entry **at = &registry->entries;
	while ((*at)->dataset != dataset)
		at = &(*at)->next;
	if (--(*at)->users == 0) {
		gone = *at;
		*at = gone->next;
	}
	pthread_mutex_unlock(&registry->mutex);
	if (gone)
		entry_free(gone);
}

static void copy_source(struct dataset *dataset, uint64_t index, char text[REGISTRY_TEXT_MAX])
{
	const char *name;
	size_t size;
	sigbus_guard_enter(&dataset->guard);
	int r = packimg_source(dataset->image, index, &name, &size);
	if (r < 0)
		size = 0;
	if (size >= REGISTRY_TEXT_MAX)
		size = REGISTRY_TEXT_MAX - 1;
	if (size > 0 && packimg_read(dataset->image, index, name, text, size) < 0)
		size = 0;
	text[strnlen(text, size)] = '\0';
	if (sigbus_guard_leave()) {
		atomic_store(&dataset->suspect, true);
		text[0] = '\0';
	}
}

/*
 * Counts another failure of a sample. Returns false if it has no record, or newer ones have
 * overwritten it. Call with the mutex held.
 */
static bool count_again(struct registry *registry, const char *path, uint64_t index)
{
	uint64_t kept =
		registry->bad_total < REGISTRY_BAD_MAX ? registry->bad_total : REGISTRY_BAD_MAX;
	for (uint64_t i = 0; i < kept; i++) {
		struct registry_bad *bad = &registry->bad[i];
		if (bad->index == index &&
		    strncmp(bad->dataset, path, sizeof(bad->dataset) - 1) == 0) {
			bad->count++;
			return true;
		}
	}
	return false;
}

void registry_report(struct registry *registry, struct dataset *dataset, uint64_t index,
		     const char *text)
{
	bool first = dataset_first_report(dataset, index);
	char source[REGISTRY_TEXT_MAX];
	if (first)
		copy_source(dataset, index, source);
	pthread_mutex_lock(&registry->mutex);
	/* A dataset that is reopened has lost track of what it reported; the records have not. */
	uint64_t number;
	const char *path = dataset_locate(dataset, index, &number);
	bool fresh = !count_again(registry, path, number) && first;
	if (fresh) {
		struct registry_bad *bad = &registry->bad[registry->bad_total++ % REGISTRY_BAD_MAX];
		memset(bad, 0, sizeof(*bad));
		snprintf(bad->dataset, sizeof(bad->dataset), "%s", path);
		snprintf(bad->text, sizeof(bad->text), "%s", text);
		memcpy(bad->source, source, sizeof(source));
		bad->index = number;
		bad->count = 1;
	}
	pthread_mutex_unlock(&registry->mutex);
	if (fresh) {
		uint64_t one = 1;
		ssize_t n = write(registry->event_fd, &one, sizeof(one));
		(void)n;
	}
}

bool registry_next_bad(struct registry *registry, struct registry_bad *ret_bad, uint64_t *ret_lost)
{
	bool found = false;
	uint64_t lost = 0;
	pthread_mutex_lock(&registry->mutex);
	if (registry->bad_total - registry->bad_logged > REGISTRY_BAD_MAX) {
		lost = registry->bad_total - registry->bad_logged - REGISTRY_BAD_MAX;
		registry->bad_logged += lost;
	}
	if (registry->bad_logged < registry->bad_total) {
		*ret_bad = registry->bad[registry->bad_logged++ % REGISTRY_BAD_MAX];
		found = true;
	}
	pthread_mutex_unlock(&registry->mutex);
	*ret_lost = lost;
	return found;
}

unsigned registry_list_bad(struct registry *registry, struct registry_bad *bad, unsigned max)
{
	unsigned count = 0;
	pthread_mutex_lock(&registry->mutex);
	uint64_t kept =
		registry->bad_total < REGISTRY_BAD_MAX ? registry->bad_total : REGISTRY_BAD_MAX;
	for (uint64_t i = 0; i < kept && count < max; i++)
		bad[count++] = registry->bad[(registry->bad_total - 1 - i) % REGISTRY_BAD_MAX];
	pthread_mutex_unlock(&registry->mutex);
	return count;
}
