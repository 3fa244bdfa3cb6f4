#include "registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

int registry_init(struct registry *registry)
{
	*registry = (struct registry){.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	if (registry->event_fd < 0)
		return -errno;
	registry->bad = calloc(REGISTRY_BAD_MAX, sizeof *registry->bad);
	if (registry->bad == NULL) {
		close(registry->event_fd);
		return -ENOMEM;
	}
	pthread_mutex_init(&registry->mutex, NULL);
	return 0;
}

void registry_deinit(struct registry *registry)
{
	while (registry->entries != NULL) {
		struct registry_entry *entry = registry->entries;
		registry->entries = entry->next;
		dataset_free(entry->dataset);
		free(entry);
	}
	close(registry->event_fd);
	free(registry->bad);
	pthread_mutex_destroy(&registry->mutex);
}

/* What identifies a dataset's state: its first file, which for a set is not the path that was asked for. */
static int stat_dataset(const struct dataset *dataset, struct stat *ret_status)
{
	struct packimg_shard shard;
	int r = packimg_shard(dataset->image, 0, &shard);
	if (r < 0)
		return r;
	return fstat(shard.fd, ret_status) < 0 ? -errno : 0;
}

static bool still_current(const struct registry_entry *entry)
{
	struct packimg_shard shard;
	struct stat now;
	if (packimg_shard(entry->dataset->image, 0, &shard) < 0 || stat(shard.path, &now) < 0)
		return false;
	return now.st_dev == entry->device && now.st_ino == entry->inode &&
	       now.st_size == entry->size && now.st_mtim.tv_sec == entry->modified.tv_sec &&
	       now.st_mtim.tv_nsec == entry->modified.tv_nsec;
}

/* Under the mutex. */
static struct registry_entry *find(struct registry *registry, const char *path)
{
	for (struct registry_entry *entry = registry->entries; entry != NULL; entry = entry->next)
		if (strcmp(entry->dataset->path, path) == 0 && still_current(entry))
			return entry;
	return NULL;
}

static int open_entry(const char *path, struct registry_entry **ret_entry,
		      struct packimg_error *error)
{
	struct registry_entry *entry = calloc(1, sizeof *entry);
	if (entry == NULL)
		return -ENOMEM;
	struct stat status;
	int r = dataset_open(path, &entry->dataset, error);
	if (r == 0 && (r = stat_dataset(entry->dataset, &status)) < 0)
		dataset_free(entry->dataset);
	if (r < 0) {
		free(entry);
		return r;
	}
	entry->device = status.st_dev;
	entry->inode = status.st_ino;
	entry->size = status.st_size;
	entry->modified = status.st_mtim;
	entry->users = 1;
	*ret_entry = entry;
	return 0;
}

int registry_acquire(struct registry *registry, const char *path, struct dataset **ret_dataset,
		     struct packimg_error *error)
{
	pthread_mutex_lock(&registry->mutex);
	struct registry_entry *entry = find(registry, path);
	if (entry != NULL) {
		entry->users++;
		*ret_dataset = entry->dataset;
	}
	pthread_mutex_unlock(&registry->mutex);
	if (entry != NULL)
		return 0;

	/* Opened outside the lock: a slow disk holds up only those who wait for it. Two at once may open the same file twice, which is harmless. */
	int r = open_entry(path, &entry, error);
	if (r < 0)
		return r;
	pthread_mutex_lock(&registry->mutex);
	entry->next = registry->entries;
	registry->entries = entry;
	pthread_mutex_unlock(&registry->mutex);
	*ret_dataset = entry->dataset;
	return 0;
}

void registry_release(struct registry *registry, struct dataset *dataset)
{
	struct registry_entry *gone = NULL;
	pthread_mutex_lock(&registry->mutex);
	for (struct registry_entry **at = &registry->entries; *at != NULL; at = &(*at)->next) {
		if ((*at)->dataset != dataset)
			continue;
		if (--(*at)->users == 0) {
			gone = *at;
			*at = gone->next;
		}
		break;
	}
	pthread_mutex_unlock(&registry->mutex);
	if (gone != NULL) {
		dataset_free(gone->dataset);
		free(gone);
	}
}

static void copy_source(struct dataset *dataset, uint64_t index, char text[REGISTRY_TEXT_MAX])
{
	const char *name;
	size_t size;
	guard_enter(&dataset->guard);
	int r = packimg_source(dataset->image, index, &name, &size);
	if (r == 0)
		snprintf(text, REGISTRY_TEXT_MAX, "%.*s",
			 size < REGISTRY_TEXT_MAX ? (int)size : REGISTRY_TEXT_MAX - 1, name);
	else
		text[0] = '\0';
	if (guard_leave()) {
		atomic_store(&dataset->suspect, true);
		text[0] = '\0';
	}
}

/* Under the mutex. False when the sample has no record, or has lost it to newer ones. */
static bool count_again(struct registry *registry, const char *path, uint64_t index)
{
	uint64_t kept =
		registry->bad_total < REGISTRY_BAD_MAX ? registry->bad_total : REGISTRY_BAD_MAX;
	for (uint64_t i = 0; i < kept; i++) {
		struct registry_bad *bad = &registry->bad[i];
		if (bad->index == index &&
		    strncmp(bad->dataset, path, sizeof bad->dataset - 1) == 0) {
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
	/* A dataset opened again has forgotten what it reported; the record has not. */
	bool fresh = !count_again(registry, dataset->path, index) && first;
	if (fresh) {
		struct registry_bad *bad = &registry->bad[registry->bad_total++ % REGISTRY_BAD_MAX];
		memset(bad, 0, sizeof *bad);
		snprintf(bad->dataset, sizeof bad->dataset, "%s", dataset->path);
		snprintf(bad->text, sizeof bad->text, "%s", text);
		memcpy(bad->source, source, sizeof source);
		bad->index = index;
		bad->count = 1;
	}
	pthread_mutex_unlock(&registry->mutex);
	if (fresh) {
		uint64_t one = 1;
		ssize_t n = write(registry->event_fd, &one, sizeof one);
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

unsigned registry_list_bad(struct registry *registry, struct registry_bad *bad, unsigned room)
{
	unsigned count = 0;
	pthread_mutex_lock(&registry->mutex);
	uint64_t kept =
		registry->bad_total < REGISTRY_BAD_MAX ? registry->bad_total : REGISTRY_BAD_MAX;
	for (uint64_t i = 0; i < kept && count < room; i++)
		bad[count++] = registry->bad[(registry->bad_total - 1 - i) % REGISTRY_BAD_MAX];
	pthread_mutex_unlock(&registry->mutex);
	return count;
}
