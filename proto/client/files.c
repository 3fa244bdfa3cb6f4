#include "proto/client/files.h"

#include "format/base/shard_set.h"
#include "format/base/system/clock.h"
#include "proto/client/order.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct dataset_files {
	const struct fetched *fetched; /* has the files; NULL: they are opened by path */
	char path[SHARD_SET_PATH_MAX]; /* the single file, or the base name of a shard set */
	uint32_t total;                /* number of files */
	bool is_set;
	uint32_t next; /* the next file that the daemon may ask for */
	bool direct;   /* the current pass opens with O_DIRECT; the first does not */
};

static int resolve_files(const struct file_source *source, struct dataset_files *ret_files,
			 char *error)
{
	char why[SHARD_SET_ERROR_MAX];
	struct shard_name name;
	const char *path = source->path;
	ret_files->fetched = source->fetched;
	if (source->fetched) {
		ret_files->total = source->fetched->file_count;
		return 0;
	}
	int r = shard_set_resolve(path, ret_files->path, why);
	if (r < 0)
		return error_set(error, r, "dataset: %s.", why);
	ret_files->is_set = shard_name_parse(ret_files->path, &name) == 0;
	ret_files->total = 1;
	if (ret_files->is_set) {
		memcpy(ret_files->path, name.base, sizeof(ret_files->path));
		ret_files->total = name.shard_count;
	}
	return 0;
}

/* O_NONBLOCK: opening a FIFO must not block before fstat() finds out its type. */
static int open_one(const char *path, bool direct)
{
	enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
	int fd = direct ? open(path, FLAGS | O_DIRECT) : -1;
	/*
	 * Some file systems do not support O_DIRECT; the daemon then reads through the page cache.
	 */
	if (fd < 0 && (!direct || errno == EINVAL))
		fd = open(path, FLAGS);
	return fd < 0 ? -errno : fd;
}

/* Returns the path of a file, which may be in the buffer; NULL if it is too long. */
static const char *path_of(const struct dataset_files *files, uint32_t number,
			   char buffer[SHARD_SET_PATH_MAX])
{
	if (!files->is_set)
		return files->path;
	return shard_name_path(files->path, number, files->total, buffer) < 0 ? NULL : buffer;
}

/* Fetched files have been opened by the fetcher, with the user's credentials. */
static int copy_file(const struct fetched *fetched, uint32_t number, bool direct, char *error)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fetched->files[number]);
	int fd = direct ? open_one(path, true) : -1;
	if (fd < 0)
		fd = fcntl(fetched->files[number], F_DUPFD_CLOEXEC, 0);
	return fd >= 0 ? fd
		       : error_set(error, -errno, "dataset: %.500s: cannot open file %u: %s.",
				   fetched->url, number, strerror(errno));
}

static int open_file(const struct dataset_files *files, uint32_t number, bool direct, char *error)
{
	if (files->fetched)
		return copy_file(files->fetched, number, direct, error);
	char buffer[SHARD_SET_PATH_MAX];
	struct stat status;
	const char *path = path_of(files, number, buffer);
	if (!path)
		return error_set(error, -ENAMETOOLONG, "dataset: %.300s...: the path is too long.",
				 files->path);
	int fd = open_one(path, direct);
	if (fd == -ENOENT && files->is_set)
		return error_set(error, -ENOENT,
				 "dataset: %.500s: this shard of the set is missing.", path);
	if (fd < 0)
		return error_set(
			error, fd, "dataset: %.500s: cannot open: %s%s.", path, strerror(-fd),
			fd == -EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		return fd;
	close(fd);
	return error_set(error, -EINVAL, "dataset: %.500s: not a regular file.", path);
}

/* Opens as many files from need->first on as fit into one message. */
static int open_part(const struct dataset_files *files, const Loaderd__NeedFiles *need,
		     int fds[FRAME_FDS_MAX], unsigned *ret_count, char *error)
{
	uint32_t left = files->total - need->first;
	uint32_t most = need->most < FRAME_FDS_MAX ? need->most : FRAME_FDS_MAX;
	*ret_count = 0;
	for (uint32_t i = 0; i < most && i < left; i++) {
		int fd = open_file(files, need->first + i, need->direct, error);
		if (fd < 0)
			return fd;
		fds[(*ret_count)++] = fd;
	}
	return 0;
}

static int send_files(struct connection *connection, uint32_t total, const Loaderd__NeedFiles *need,
		      const int *fds, unsigned count, int64_t deadline_ms, char *error)
{
	Loaderd__Files part = LOADERD__FILES__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	uint8_t message[64]; /* five numbers with their tags */
	part.first = need->first;
	part.total = total;
	part.direct = need->direct;
	part.part = need->part;
	part.file = need->file;
	request.kind_case = LOADERD__REQUEST__KIND_FILES;
	request.files = &part;
	size_t size = loaderd__request__pack(&request, message);
	int r;
	/* The user may have too many fds in flight; the daemon receives them as fast as it can. */
	while ((r = frame_send(connection->fd, message, size, fds, count,
			       clock_left_ms(deadline_ms))) == -ETOOMANYREFS &&
	       clock_left_ms(deadline_ms) > 0)
		usleep(1000);
	if (r == -EPIPE || r == -ECONNRESET)
		return 0; /* the daemon's last message tells why it hung up */
	return r == 0 ? 0
		      : error_set(error, r,
				  "Cannot send the dataset's files to the daemon on %s: %s.",
				  connection->socket, strerror(-r));
}

static int answer_need_files(struct connection *connection, struct dataset_files *files,
			     const Loaderd__NeedFiles *need, int64_t deadline_ms, char *error)
{
	int fds[FRAME_FDS_MAX];
	unsigned count;
	/*
	 * The daemon asks for the files in order. It may ask for all of them a second time, to read
	 * them with O_DIRECT, but not a third time.
	 */
	if (need->direct && !files->direct) {
		files->direct = true;
		files->next = 0;
	}
	if (need->direct != files->direct || need->first != files->next ||
	    need->first >= files->total || need->most == 0)
		return daemon_error(connection, error, -EPROTO,
				    "asks for file %u of a dataset that has %u, where %u is next.",
				    need->first, files->total, files->next);
	int r = open_part(files, need, fds, &count, error);
	r = r ?: send_files(connection, files->total, need, fds, count, deadline_ms, error);
	files->next += count;
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	return r;
}

/* One more than the highest Loaderd__PartFile. */
enum { MEMORY_FILES = LOADERD__PART_FILE__PART_FILLING_PAGE + 1 };

/* What the daemon has asked for of a part. */
struct part_state {
	struct dataset_files *files; /* owned; NULL before the first one */
	bool sent[MEMORY_FILES];     /* by Loaderd__PartFile */
};

struct transfer {
	struct connection *connection;
	const struct file_source *sources;
	struct part_state *parts; /* [count] */
	uint32_t count;
	int64_t *deadline_ms;
	uint64_t done; /* of the last Progress */
};

/* The descriptor of a list, or of what fills the files; -1 if there is none. */
static int memory_file(const struct file_source *source, unsigned file)
{
	if (source->filling && file == LOADERD__PART_FILE__PART_FILLING_MAP)
		return source->filling->map;
	if (source->filling && file == LOADERD__PART_FILE__PART_FILLING_PAGE)
		return source->filling->page;
	return source->lists && file < ORDER_FILES ? source->lists[file] : -1;
}

static int answer_need_list(struct transfer *transfer, const Loaderd__NeedFiles *need, char *error)
{
	struct part_state *part = &transfer->parts[need->part];
	int fd = memory_file(&transfer->sources[need->part], (unsigned)need->file);
	if (fd < 0 || need->first != 0 || need->most == 0 || need->direct)
		return daemon_error(transfer->connection, error, -EPROTO,
				    "asks for list %d of part %u, which has no such list.",
				    (int)need->file, need->part);
	if (part->sent[need->file])
		return daemon_error(transfer->connection, error, -EPROTO,
				    "asks for list %d of part %u again.", (int)need->file,
				    need->part);
	part->sent[need->file] = true;
	return send_files(transfer->connection, 1, need, &fd, 1, *transfer->deadline_ms, error);
}

static int answer(struct transfer *transfer, const Loaderd__NeedFiles *need, char *error)
{
	if (need->part >= transfer->count)
		return daemon_error(transfer->connection, error, -EPROTO,
				    "asks for files of part %u, but the request has %u.",
				    need->part, transfer->count);
	if (need->file != LOADERD__PART_FILE__PART_DATASET)
		return answer_need_list(transfer, need, error);
	struct part_state *part = &transfer->parts[need->part];
	int r = 0;
	if (!part->files) {
		part->files = calloc(1, sizeof(*part->files));
		r = !part->files
			    ? error_set(error, -ENOMEM, "Out of memory.")
			    : resolve_files(&transfer->sources[need->part], part->files, error);
	}
	return r
		       ?: answer_need_files(transfer->connection, part->files, need,
					    *transfer->deadline_ms, error);
}

/* Waits on while the daemon makes progress. */
static int take_progress(struct transfer *transfer, const Loaderd__Progress *progress, char *error)
{
	struct connection *connection = transfer->connection;
	int64_t later_ms = clock_ms() + CONNECTION_TIMEOUT_MS;
	if (progress->done > transfer->done && later_ms > *transfer->deadline_ms)
		*transfer->deadline_ms = later_ms;
	transfer->done = progress->done;
	int r = connection->progress ? connection->progress(connection->progress_user,
							    progress->done, progress->total)
				     : 0;
	return r < 0 ? error_set(error, r, "The program has given up opening the feed.") : 0;
}

int files_request(struct connection *connection, const Loaderd__Request *request, const char *text,
		  const struct file_source *sources, uint32_t count, int64_t *deadline_ms,
		  Loaderd__Reply **ret_reply, char *error)
{
	struct transfer transfer = {.connection = connection,
				    .sources = sources,
				    .parts = calloc(count + 1, sizeof(struct part_state)),
				    .count = count,
				    .deadline_ms = deadline_ms};
	Loaderd__Reply *reply;
	int r = transfer.parts
			? connection_request(connection, request, text, *deadline_ms, &reply, error)
			: error_set(error, -ENOMEM, "Out of memory.");
	while (r == 0 && (reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES ||
			  reply->kind_case == LOADERD__REPLY__KIND_PROGRESS)) {
		r = reply->kind_case == LOADERD__REPLY__KIND_PROGRESS
			    ? take_progress(&transfer, reply->progress, error)
			    : answer(&transfer, reply->need_files, error);
		loaderd__reply__free_unpacked(reply, NULL);
		r = r ?: connection_reply(connection, text, *deadline_ms, &reply, error);
	}
	for (uint32_t p = 0; transfer.parts && p < count; p++)
		free(transfer.parts[p].files);
	free(transfer.parts);
	if (r == 0)
		*ret_reply = reply;
	return r;
}

uint64_t files_bytes(const char *path)
{
	char buffer[SHARD_SET_PATH_MAX], error[FEED_ERROR_MAX];
	struct dataset_files files = {0};
	uint64_t bytes = 0;
	const struct file_source source = {.path = path};
	if (resolve_files(&source, &files, error) < 0)
		return 0;
	for (uint32_t i = 0; i < files.total; i++) {
		struct stat status;
		const char *file = path_of(&files, i, buffer);
		if (!file || stat(file, &status) < 0)
			return 0;
		bytes += (uint64_t)status.st_size;
	}
	return bytes;
}
