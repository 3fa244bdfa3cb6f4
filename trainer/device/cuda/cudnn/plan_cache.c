#include "trainer/device/cuda/cudnn/plan_cache.h"

#include "format/base/system/atomic_file.h"
#include "format/base/system/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER    "loaderd plans 1\n"
#define LINES_MAX 100000

static void plans_problem_key(const struct conv_problem *problem, bool tf32, char *ret_key,
			      size_t size)
{
	char name[160], extra[16] = "";

	conv_problem_name(problem, name, sizeof(name));
	if (problem->pad_extra)
		snprintf(extra, sizeof(extra), "+%u", problem->pad_extra);
	snprintf(ret_key, size, "%s pad%u%s%s%s", name, problem->pad, extra,
		 problem->deterministic ? " deterministic" : "",
		 tf32 && problem->element == CUDA_F32 ? " tf32" : "");
}

static struct plan_line *plans_find(const struct plan_cache *file, const char *device,
				    const char *problem)
{
	for (size_t i = 0; i < file->count; i++)
		if (strcmp(file->lines[i].problem, problem) == 0 &&
		    strcmp(file->lines[i].device, device) == 0)
			return &file->lines[i];
	return NULL;
}

/* Adds a line, or replaces the line with the same device and problem. */
static int plans_put(struct plan_cache *file, const struct plan_line *line)
{
	struct plan_line *old = plans_find(file, line->device, line->problem);

	if (!old && file->count == file->capacity) {
		size_t capacity = file->capacity ? 2 * file->capacity : 64;
		struct plan_line *lines = reallocarray(file->lines, capacity, sizeof(*lines));

		if (!lines)
			return -ENOMEM;
		file->lines = lines;
		file->capacity = capacity;
	}
	if (!old)
		old = &file->lines[file->count++];
	*old = *line;
	return 0;
}

/* Extracts a field terminated by `end` and advances the text past it. */
static bool plans_take(char **text, char end, char *ret_field, size_t size)
{
	char *stop = strchr(*text, end);
	size_t length = stop ? (size_t)(stop - *text) : 0;

	if (!length || length >= size)
		return false;
	memcpy(ret_field, *text, length);
	ret_field[length] = '\0';
	*text = stop + 1;
	return true;
}

static bool plans_parse(char *text, struct plan_line *ret_line)
{
	char ms[32], *end;

	memset(ret_line, 0, sizeof(*ret_line));
	if (!plans_take(&text, '\t', ret_line->device, sizeof(ret_line->device)) ||
	    !plans_take(&text, '\t', ret_line->problem, sizeof(ret_line->problem)) ||
	    !plans_take(&text, '\t', ret_line->tag, sizeof(ret_line->tag)) ||
	    !plans_take(&text, '\n', ms, sizeof(ms)) || *text)
		return false;
	ret_line->ms = strtof(ms, &end);
	return !*end && ret_line->ms > 0 && ret_line->ms < 1e6f;
}

/*
 * Parses all lines up to the end of the text and counts them in *number. -EBADMSG if line *number
 * is invalid.
 */
static int plans_parse_lines(struct plan_cache *file, FILE *from, size_t *number)
{
	/*
	 * large enough for a valid line with tabs and newline; a longer line is read in pieces,
	 * which are invalid
	 */
	char text[sizeof(struct plan_line) + 64];
	struct plan_line line;
	int r = 0;

	while (r == 0 && fgets(text, sizeof(text), from)) {
		++*number;
		if (*number > LINES_MAX || !plans_parse(text, &line))
			r = -EBADMSG;
		else
			r = plans_put(file, &line);
	}
	return r == 0 && ferror(from) ? -EIO : r;
}

static int plans_read_lines(struct plan_cache *file, FILE *from, char *error)
{
	char header[sizeof(HEADER)] = "";
	size_t number = 1;
	int r = -EBADMSG;

	if (fgets(header, sizeof(header), from) && strcmp(header, HEADER) == 0)
		r = plans_parse_lines(file, from, &number);
	if (r == -EBADMSG)
		snprintf(error, DEVICE_ERROR_MAX,
			 "%s, line %zu: not a line of tuned plans; the file is left out, and "
			 "tuning writes it anew",
			 file->path, number);
	return r;
}

/* Replaces the plans by those of the file, or by none if it cannot be read. */
static int plans_read_file(struct plan_cache *file, char *error)
{
	int fd = io_open_regular(file->path);
	FILE *from = fd < 0 ? NULL : fdopen(fd, "r");

	file->count = 0;
	if (fd == -ENOENT)
		return 0;
	int r = fd < 0 ? fd : from ? 0 : -errno;
	if (r == 0)
		r = plans_read_lines(file, from, error);
	if (from)
		fclose(from);
	else
		io_close(fd);
	if (r < 0)
		file->count = 0;
	if (r < 0 && r != -EBADMSG)
		snprintf(error, DEVICE_ERROR_MAX, "%s cannot be read: %s; there are no tuned plans",
			 file->path, r == -EBADF ? "is not a regular file" : strerror(-r));
	return r;
}

/* Returns NULL if out of memory or if there is no home directory. */
static char *plans_default_path(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *path = NULL;

	/* the XDG specification declares relative paths invalid */
	if (cache && cache[0] == '/') {
		if (asprintf(&path, "%s/loaderd/cudnn-plans", cache) < 0)
			return NULL;
	} else if (home && home[0] == '/') {
		if (asprintf(&path, "%s/.cache/loaderd/cudnn-plans", home) < 0)
			return NULL;
	}
	return path;
}

int plan_cache_init(struct plan_cache *file, const char *path, const char *device, char *error)
{
	memset(file, 0, sizeof(*file));
	error[0] = '\0';
	snprintf(file->device, sizeof(file->device), "%s", device);
	if (path && !path[0])
		return 0;
	file->path = path ? strdup(path) : plans_default_path();
	if (!file->path)
		return path ? -ENOMEM : 0;
	return plans_read_file(file, error);
}

void plan_cache_deinit(struct plan_cache *file)
{
	free(file->lines);
	free(file->path);
	memset(file, 0, sizeof(*file));
}

const struct plan_line *plan_cache_find(const struct plan_cache *file,
					const struct conv_problem *problem, bool tf32)
{
	char key[sizeof(((struct plan_line *)0)->problem)];

	plans_problem_key(problem, tf32, key, sizeof(key));
	return plans_find(file, file->device, key);
}

/* Creates the parent folders of a path. */
static int plans_make_folders(const char *path)
{
	char *copy = strdup(path);
	int r = 0;

	if (!copy)
		return -ENOMEM;
	for (char *slash = strchr(copy + 1, '/'); slash && r == 0; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(copy, 0755) < 0 && errno != EEXIST)
			r = -errno;
		*slash = '/';
	}
	free(copy);
	return r;
}

/* Formats the lines of a device, or of all devices if it is NULL. The caller frees *ret_text. */
static int plans_write_lines(const struct plan_cache *file, const char *header, const char *device,
			     char **ret_text, size_t *ret_size)
{
	char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);

	if (!to)
		return -ENOMEM;
	fputs(header, to);
	for (size_t i = 0; i < file->count; i++) {
		const struct plan_line *line = &file->lines[i];

		if (!device || strcmp(line->device, device) == 0)
			fprintf(to, "%s\t%s\t%s\t%.6g\n", line->device, line->problem, line->tag,
				(double)line->ms);
	}
	int r = ferror(to) ? -ENOMEM : 0;
	if (fclose(to) == EOF && r == 0)
		r = -errno;
	if (r < 0) {
		free(text);
		return r;
	}
	*ret_text = text;
	*ret_size = size;
	return 0;
}

static int plans_write_file(const struct plan_cache *file)
{
	char *text;
	size_t size;
	int r = plans_write_lines(file, HEADER, NULL, &text, &size);

	if (r < 0)
		return r;
	r = atomic_file_put(file->path, text, size);
	free(text);
	return r;
}

/*
 * Takes the lock that serializes writers; it is held until *ret_fd is closed. The lock is a
 * separate file because writers replace the file of plans. Its mode is 0600, because any process
 * that can open it could hold the lock forever. On a file system without locks, concurrent writers
 * may lose plans, which are then tuned again.
 */
static int plans_lock(const char *path, int *ret_fd)
{
	char *name;

	if (asprintf(&name, "%s.lock", path) < 0)
		return -ENOMEM;
	int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = fd < 0 ? -errno : 0;
	free(name);
	if (r == 0)
		(void)fchmod(fd, 0600); /* earlier versions created it world-readable */
	while (r == 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR)
		;
	*ret_fd = fd;
	return r;
}

/*
 * Writes the plans of the file, those that only this process knows, and `line`, which replaces an
 * earlier line for its problem.
 */
static int plans_merge(const struct plan_cache *file, const struct plan_line *line)
{
	struct plan_cache disk = {.path = file->path};
	char ignored[DEVICE_ERROR_MAX];
	int r = plans_read_file(&disk, ignored);

	/* a damaged file is replaced; one that cannot be read is not */
	if (r == -EBADMSG)
		r = 0;
	for (size_t i = 0; i < file->count && r == 0; i++)
		r = plans_find(&disk, file->lines[i].device, file->lines[i].problem)
			    ? 0
			    : plans_put(&disk, &file->lines[i]);
	if (r == 0)
		r = plans_put(&disk, line);
	if (r == 0)
		r = plans_write_file(&disk);
	free(disk.lines);
	return r;
}

int plan_cache_store(struct plan_cache *file, const struct conv_problem *problem, bool tf32,
		     const char *tag, float ms)
{
	struct plan_line line = {.ms = ms};
	int held = -1;

	snprintf(line.device, sizeof(line.device), "%s", file->device);
	snprintf(line.tag, sizeof(line.tag), "%s", tag);
	plans_problem_key(problem, tf32, line.problem, sizeof(line.problem));
	int r = plans_put(file, &line);
	if (r < 0 || !file->path)
		return r;
	r = plans_make_folders(file->path);
	if (r == 0)
		r = plans_lock(file->path, &held);
	if (r == 0)
		r = plans_merge(file, &line);
	if (held >= 0)
		close(held);
	file->cache_error[0] = '\0';
	if (r < 0)
		snprintf(file->cache_error, sizeof(file->cache_error),
			 "%s cannot be written: %s; the tuned plans are lost with this process. "
			 "XDG_CACHE_HOME names another folder for them",
			 file->path, strerror(-r));
	return 0;
}

/* ---- between processes ---- */

int plan_cache_write(const struct plan_cache *file, char **ret_text, size_t *ret_size)
{
	return plans_write_lines(file, "", file->device, ret_text, ret_size);
}

/*
 * Drops the PLAN_UNFUSED lines of this device that `received` lacks, as if their problems had never
 * been tuned.
 */
static void plans_forget_unfused(struct plan_cache *file, const struct plan_cache *received)
{
	size_t kept = 0;

	for (size_t i = 0; i < file->count; i++) {
		const struct plan_line *line = &file->lines[i];

		if (strcmp(line->tag, PLAN_UNFUSED) != 0 ||
		    strcmp(line->device, file->device) != 0 ||
		    plans_find(received, line->device, line->problem))
			file->lines[kept++] = *line;
	}
	file->count = kept;
}

int plan_cache_merge(struct plan_cache *file, const char *text, size_t size)
{
	struct plan_cache received = {0};
	size_t number = 0;
	FILE *from = size ? fmemopen((char *)(uintptr_t)text, size, "r") : NULL;
	int r = size && !from ? -ENOMEM : 0;

	if (from) {
		r = plans_parse_lines(&received, from, &number);
		fclose(from);
	}
	if (r == 0)
		plans_forget_unfused(file, &received);
	for (size_t i = 0; i < received.count && r == 0; i++)
		r = plans_put(file, &received.lines[i]);
	free(received.lines);
	return r;
}
