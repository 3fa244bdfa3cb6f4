#include "loaderd/worker/registry.h"

#include "format/base/system/clock.h"
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

/* Call with the mutex held. */
static struct registry_entry *registry_find(struct registry *registry,
					    const struct registry_entry *wanted, const char *path)
{
	for (struct registry_entry *entry = registry->entries; entry; entry = entry->next) {
		uint32_t same = 0;
		if (strcmp(entry->dataset->path, path) != 0 ||
		    entry->file_count != wanted->file_count)
			continue;
		while (same < entry->file_count &&
		       same_file(&entry->files[same], &wanted->files[same]))
			same++;
		if (same == entry->file_count)
			return entry;
	}
	return NULL;
}

static int new_entry(const char *path, const int *fds, uint32_t count,
		     struct registry_entry **ret_entry, struct packimg_error *error)
{
	struct registry_entry *entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->users = 1;
	entry->file_count = count;
	entry->files = calloc(count, sizeof(*entry->files));
	int r = entry->files ? 0 : -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		r = registry_file_of(fds[i], &entry->files[i]);
		if (r == -EBADF)
			snprintf(error->text, sizeof(error->text),
				 "%.300s: the descriptor of its file %u is not open for reading",
				 path, i);
		else if (r < 0)
			snprintf(error->text, sizeof(error->text),
				 "%.300s: the daemon may not access its file %u: %s; a private "
				 "daemon of the file's owner may",
				 path, i, strerror(-r));
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
	for (unsigned i = 0; i < registry->poison_count; i++)
		if (memcmp(registry->poison[i].uuid, packimg_uuid(dataset->image), 16) == 0 &&
		    registry->poison[i].sample < dataset->count)
			dataset_condemn(dataset, registry->poison[i].sample);
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

/* Call with the mutex held. */
static int check_ban(const struct registry *registry, const struct dataset *dataset,
		     struct packimg_error *error)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < registry->ban_count; i++) {
		const struct registry_ban *ban = &registry->bans[i];
		if (ban->until_ns <= now_ns ||
		    memcmp(ban->uuid, packimg_uuid(dataset->image), sizeof(ban->uuid)) != 0)
			continue;
		snprintf(error->text, sizeof(error->text),
			 "%.200s: decoding its samples has crashed %u workers, and with them all "
			 "feeds of this user; it is refused for another %llu minutes; check it "
			 "with packimg verify, pack it again from images that you trust, and "
			 "report a bug in loaderd if it is intact",
			 dataset->path, ban->faults,
			 (unsigned long long)((ban->until_ns - now_ns) / UINT64_C(60000000000)) +
				 1);
		return -EBADMSG;
	}
	return 0;
}

int registry_acquire(struct registry *registry, const char *path, int *fds, uint32_t count,
		     struct dataset **ret_dataset, struct packimg_error *error)
{
	struct registry_entry *entry;
	bool mapped;
	int r = storage_choose(path, fds, count, &mapped, error);
	if (r < 0)
		return r;
	r = new_entry(path, fds, count, &entry, error);
	if (r < 0)
		return r;
	pthread_mutex_lock(&registry->mutex);
	struct registry_entry *there = registry_find(registry, entry, path);
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
		r = dataset_open(path, fds, count, mapped, &entry->dataset, error);
	if (there || r < 0) {
		entry_free(entry);
		return r;
	}
	for (uint32_t i = 0; i < count; i++)
		fds[i] = -1;
	pthread_mutex_lock(&registry->mutex);
	r = check_ban(registry, entry->dataset, error);
	if (r < 0) {
		pthread_mutex_unlock(&registry->mutex);
		entry_free(entry);
		return r;
	}
	avoid_poison(registry, entry->dataset);
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
	bool fresh = !count_again(registry, dataset->path, index) && first;
	if (fresh) {
		struct registry_bad *bad = &registry->bad[registry->bad_total++ % REGISTRY_BAD_MAX];
		memset(bad, 0, sizeof(*bad));
		snprintf(bad->dataset, sizeof(bad->dataset), "%s", dataset->path);
		snprintf(bad->text, sizeof(bad->text), "%s", text);
		memcpy(bad->source, source, sizeof(source));
		bad->index = index;
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
