/*
 * Source: a folder with all its subfolders, in bytewise order of names; or a single image file.
 * Skips entries that cannot be entered (a dangling or circular link, an unreadable folder) and
 * reports their names.
 */
#include "tools/packimg/common/text.h"
#include "tools/packimg/source/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	DEPTH_MAX = 64,     /* limit of nesting; also in the message of cannot_enter() */
	TEXT_FIRST = 4096,  /* initial capacity for names in bytes */
	KEPT_MAX = 1 << 20, /* larger buffers for names are not kept for the next folder */
};

/* One folder on the current path. Its arrays are in the store's arena. */
struct level {
	char *text; /* all names, null-terminated; those of folders and dangling links end in '/' */
	size_t text_size, text_capacity;
	size_t *names; /* offsets of the names in text, sorted by name */
	size_t count, capacity;
	size_t next;
	size_t path_size; /* length of the path up to this folder, including the '/' */
	dev_t device;
	ino_t inode;
};

struct source_folder {
	struct source source;
	uint32_t container;
	struct level levels[DEPTH_MAX];
	int depth; /* number of levels in use */
	struct buffer path;
};

/*
 * Empties a level. Keeps its arrays for the next folder at this depth unless text is larger than
 * kept_max.
 */
static void level_reset(struct level *level, struct arena *arena, size_t kept_max)
{
	level->text_size = level->count = level->next = 0;
	if (level->text_capacity <= kept_max)
		return;
	arena_release(arena, level->text);
	arena_release(arena, level->names);
	*level = (struct level){0};
}

static void folder_leave(struct source_folder *folder)
{
	level_reset(&folder->levels[--folder->depth], folder->source.blobs->arena, KEPT_MAX);
}

static void source_folder_close(struct source *source)
{
	struct source_folder *folder = (struct source_folder *)source;

	for (int i = 0; i < DEPTH_MAX; i++)
		level_reset(&folder->levels[i], source->blobs->arena, 0);
	buffer_deinit(&folder->path);
}

static int name_compare(const void *a, const void *b, void *text)
{
	return strcmp((const char *)text + *(const size_t *)a,
		      (const char *)text + *(const size_t *)b);
}

static int level_add(struct level *level, struct arena *arena, const char *name)
{
	const size_t size = strlen(name) + 1;

	if (!level->text) {
		level->text = arena_array(arena, TEXT_FIRST);
		level->text_capacity = level->text ? TEXT_FIRST : 0;
	}
	while (level->text_capacity - level->text_size < size)
		if (arena_reserve(arena, &level->text, level->text_capacity, &level->text_capacity,
				  1))
			return -ENOMEM;
	if (arena_reserve(arena, &level->names, level->count, &level->capacity,
			  sizeof(*level->names)))
		return -ENOMEM;
	memcpy(level->text + level->text_size, name, size);
	level->names[level->count++] = level->text_size;
	level->text_size += size;
	return 0;
}

/*
 * Returns true for a folder. A dangling link without a dot in its name counts as a folder, which
 * cannot be entered.
 */
static bool entry_is_folder(DIR *directory, const struct dirent *entry)
{
	struct stat status;

	if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
		return entry->d_type == DT_DIR;
	if (!fstatat(dirfd(directory), entry->d_name, &status, 0))
		return S_ISDIR(status.st_mode);
	return !strchr(entry->d_name, '.');
}

static int level_read(struct level *level, struct arena *arena, DIR *directory)
{
	struct dirent *entry;
	char name[sizeof(entry->d_name) + 1];

	for (;;) {
		errno = 0;
		entry = readdir(directory);
		if (!entry)
			break;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		bool is_folder = entry_is_folder(directory, entry);
		snprintf(name, sizeof(name), "%s%s", entry->d_name, is_folder ? "/" : "");
		if (level_add(level, arena, name))
			return -ENOMEM;
	}
	if (errno)
		return -errno;
	if (level->count)
		qsort_r(level->names, level->count, sizeof(*level->names), name_compare,
			level->text);
	return 0;
}

static int cannot_enter(int code, const char *reason, struct packimg_error *error)
{
	bool ours = code == -ENOMEM || code == -EMFILE || code == -ENFILE;

	return packimg_fail(error, ours ? code : SOURCE_SKIP, "cannot be entered: %s", reason);
}

/*
 * Enters the folder at folder->path (null-terminated, relative to the source; "" is the source
 * itself). Returns 0, SOURCE_SKIP or an error.
 */
static int folder_enter(struct source_folder *folder, size_t path_size, struct packimg_error *error)
{
	const struct container *container = &folder->source.blobs->containers[folder->container];
	const char *path = path_size ? (const char *)folder->path.data : ".";
	struct level *level = &folder->levels[folder->depth];
	struct stat status;
	int r;

	if (folder->depth == DEPTH_MAX)
		return cannot_enter(-ELOOP, "folders nested more than 64 deep", error);
	int fd = openat(container->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return cannot_enter(-errno, strerror(errno), error);
	if (fstat(fd, &status)) {
		r = errno;
		close(fd);
		return cannot_enter(-r, strerror(r), error);
	}
	for (int i = 0; i < folder->depth; i++) {
		if (folder->levels[i].device == status.st_dev &&
		    folder->levels[i].inode == status.st_ino) {
			close(fd);
			return cannot_enter(-ELOOP, "it links back to a folder above it", error);
		}
	}
	DIR *directory = fdopendir(fd);
	if (!directory) {
		close(fd);
		return packimg_fail(error, -ENOMEM, "out of memory");
	}
	level->path_size = path_size;
	level->device = status.st_dev;
	level->inode = status.st_ino;
	folder->depth++;
	r = level_read(level, folder->source.blobs->arena, directory);
	closedir(directory);
	if (r)
		folder_leave(folder);
	return r ? cannot_enter(r, strerror(-r), error) : 0;
}

/*
 * Returns the verdict for the folder at path, which ends in '/'. Its parent folder has been
 * accepted.
 */
static enum filter_verdict folder_verdict(struct source_folder *folder, const char *path,
					  size_t parent_size)
{
	if (path[parent_size] == '.')
		return FILTER_HIDDEN;
	return filter_excludes_folder(folder->source.options->filter, path) ? FILTER_EXCLUDED
									    : FILTER_TAKE;
}

static int source_folder_next(struct source *source, struct source_item *ret_item,
			      struct packimg_error *error)
{
	struct source_folder *folder = (struct source_folder *)source;

	while (folder->depth) {
		struct level *level = &folder->levels[folder->depth - 1];

		if (level->next == level->count) {
			folder_leave(folder);
			continue;
		}
		const char *name = level->text + level->names[level->next++];
		folder->path.size = level->path_size;
		if (buffer_append(&folder->path, name, strlen(name) + 1))
			return packimg_fail(error, -ENOMEM, "out of memory");
		ret_item->name = (const char *)folder->path.data;
		if (folder->path.data[folder->path.size - 2] == '/') {
			ret_item->verdict =
				folder_verdict(folder, ret_item->name, level->path_size);
			if (ret_item->verdict)
				return SOURCE_IGNORED;
			int r = folder_enter(folder, folder->path.size - 1, error);
			if (r)
				return r;
			ret_item->verdict =
				filter_folder(folder->source.options->filter, ret_item->name);
			if (ret_item->verdict == FILTER_FOLDER)
				return SOURCE_IGNORED;
			continue;
		}
		ret_item->verdict = filter_file(folder->source.options->filter, ret_item->name);
		if (ret_item->verdict)
			return SOURCE_IGNORED;
		ret_item->class_of_name = true;
		ret_item->location = (struct blob_location){
			.kind = LOCATION_FILE,
			.container = folder->container,
			.path = ret_item->name,
		};
		return 0;
	}
	return SOURCE_END;
}

/* Opens a single image file: its folder is the container, and only its name is listed. */
static int open_single(struct source_folder *folder, const char *path, struct packimg_error *error)
{
	const char *slash = strrchr(path, '/');
	char *parent = slash ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");

	if (!parent)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = blob_store_add(folder->source.blobs, parent, true, &folder->container, error);
	free(parent);
	if (r)
		return r;
	folder->depth = 1;
	if (level_add(&folder->levels[0], folder->source.blobs->arena, slash ? slash + 1 : path))
		return packimg_fail(error, -ENOMEM, "out of memory");
	return 0;
}

static int source_folder_open(struct source *source, const char *path, struct packimg_error *error)
{
	struct source_folder *folder = (struct source_folder *)source;
	struct stat status;

	if (!stat(path, &status) && S_ISREG(status.st_mode))
		return open_single(folder, path, error);
	int r = blob_store_add(source->blobs, path, true, &folder->container, error);
	if (r)
		return r;
	r = folder_enter(folder, 0, error);
	return r == SOURCE_SKIP ? text_error_prefix(error, -EIO, "%s", path) : r;
}

const struct source_ops source_folder_ops = {sizeof(struct source_folder), source_folder_open,
					     source_folder_next, source_folder_close};
