#include "proto/client/fetch.h"

#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "proto/fetch.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
	VERSION = 1,
	URL_MAX = 4096,            /* bytes of an address */
	FILES_MAX = 1 << 17,       /* of a dataset; shards have five digits */
	MEMORY_FILES = 2,          /* map and page */
	OPEN_STARTS_MAX = 3,       /* fetchers that may end while they open a dataset */
	FRUITLESS_MAX = 5,         /* that may end in a row before a batch comes */
	RESUME_TIMEOUT_MS = 10000, /* for the start of another fetcher */
	WAIT_FIRST_MS = 2000,      /* before a wait is explained */
	WAIT_NEXT_MS = 10000,      /* between two explanations */
};

/* ---- errors ---- */

/* Some codes have a meaning to feeds and their callers, which a fetcher must not give them. */
static int safe_code(int code)
{
	switch (code) {
	case -EAGAIN:
	case -ECHILD:
	case -ECONNRESET:
	case -EINTR:
	case -ENOBUFS:
	case -ENOTCONN:
	case -ETIMEDOUT:
		return -EIO;
	default:
		return code < 0 && code > -4096 ? code : -EIO;
	}
}

static int pass_error(const Loaderd__FetchError *message, char *error)
{
	char said[FEED_ERROR_MAX];
	sentence_write(said, sizeof(said), "%s", message->text);
	text_make_printable(said);
	int code = message->code < 4096 ? -(int)message->code : -EIO;
	return error_set(error, safe_code(code), "dataset: %s", said);
}

/* A descriptor that did not fit into the table makes a frame unreadable. */
static bool has_full_table(const struct fetched *fetched)
{
	int fd = fcntl(fetched->fd, F_DUPFD_CLOEXEC, 0);
	bool full = fd < 0 && errno == EMFILE;
	io_close(fd);
	return full;
}

static int protocol_error(const struct fetched *fetched, char *error)
{
	if (has_full_table(fetched))
		return error_set(error, -EMFILE,
				 "%.300s: the dataset has more files than this process may have "
				 "open; raise the limit (ulimit -n).",
				 fetched->shown);
	return error_set(
		error, -EPROTO,
		"%.300s: what the fetcher sends is not our protocol; install loaderd-fetch "
		"and library of one version.",
		fetched->shown);
}

/* ---- messages ---- */

/* `page` is sent without `resumed`; -1 for none. */
static int send_open(struct fetched *fetched, bool facts, bool resumed, int page,
		     int64_t deadline_ms)
{
	Loaderd__FetchOpen open = LOADERD__FETCH_OPEN__INIT;
	Loaderd__FetchRequest request = LOADERD__FETCH_REQUEST__INIT;
	uint8_t message[URL_MAX + 64];
	const int memory[MEMORY_FILES] = {fetched->filling.map, fetched->filling.page};
	unsigned count = resumed ? MEMORY_FILES : page >= 0;
	open.version = VERSION;
	open.url = fetched->url;
	open.facts = facts;
	open.resumed = resumed;
	open.dataset = fetched->number;
	open.datasets = fetched->datasets;
	request.kind_case = LOADERD__FETCH_REQUEST__KIND_OPEN;
	request.open = &open;
	size_t size = loaderd__fetch_request__pack(&request, message);
	return frame_send(fetched->fd, message, size,
			  resumed ? memory
			  : count ? &page
				  : NULL,
			  count, clock_left_ms(deadline_ms));
}

/*
 * Returns 1 with a reply, 0 if none is complete, or a negative errno; the reply's descriptors stay
 * in the reader.
 */
static int receive(struct fetched *fetched, Loaderd__FetchReply **ret_reply)
{
	const uint8_t *data;
	size_t size;
	int r = frame_receive(&fetched->reader, fetched->fd, &data, &size);
	if (r <= 0)
		return r;
	Loaderd__FetchReply *reply = loaderd__fetch_reply__unpack(NULL, size, data);
	if (!reply)
		return -EPROTO;
	*ret_reply = reply;
	return 1;
}

/* Takes the files' descriptors of the current frame, from `first` on. */
static int take_files(struct fetched *fetched, unsigned first)
{
	unsigned count = frame_fd_count(&fetched->reader);
	if (count < first || count - first > fetched->file_room - fetched->file_count)
		return -EPROTO;
	for (unsigned i = first; i < count; i++)
		fetched->files[fetched->file_count++] = frame_take_fd(&fetched->reader, i);
	return 0;
}

static int take_opened(struct fetched *fetched, const Loaderd__FetchOpened *opened, bool facts)
{
	unsigned first = facts ? 0 : MEMORY_FILES;
	if (fetched->files || opened->files == 0 || opened->files > FILES_MAX ||
	    frame_fd_count(&fetched->reader) < first)
		return -EPROTO;
	fetched->files = calloc(opened->files, sizeof(*fetched->files));
	if (!fetched->files)
		return -ENOMEM;
	fetched->file_room = opened->files;
	if (!facts) {
		fetched->filling.map = frame_take_fd(&fetched->reader, 0);
		fetched->filling.page = frame_take_fd(&fetched->reader, 1);
	}
	return take_files(fetched, first);
}

/* A fetcher that knows no feeds of several datasets makes a page for each. */
static int check_page(const struct fetched *fetched, const struct fetch_options *options,
		      char *error)
{
	struct stat given, got;
	if (options->facts || options->datasets <= 1 || options->page < 0 ||
	    (fstat(options->page, &given) == 0 && fstat(fetched->filling.page, &got) == 0 &&
	     given.st_dev == got.st_dev && given.st_ino == got.st_ino))
		return 0;
	return error_set(error, -ENOTSUP,
			 "%.300s: the fetcher does not know of feeds of several parts: install "
			 "loaderd-fetch and library of one version, or fetch the dataset first, "
			 "with packimg fetch.",
			 fetched->url);
}

static int take_progress(const struct fetch_options *options,
			 const Loaderd__FetchProgress *progress, char *error)
{
	int r = options->progress
			? options->progress(options->progress_user, progress->done, progress->total)
			: 0;
	return r < 0 ? error_set(error, r, "The program has given up opening the feed.") : 0;
}

/* Returns 1 once all files are there. */
static int take_answer(struct fetched *fetched, const struct fetch_options *options,
		       const Loaderd__FetchReply *reply, char *error)
{
	int r = 0;
	switch (reply->kind_case) {
	case LOADERD__FETCH_REPLY__KIND_ERROR:
		return pass_error(reply->error, error);
	case LOADERD__FETCH_REPLY__KIND_PROGRESS:
		return take_progress(options, reply->progress, error);
	case LOADERD__FETCH_REPLY__KIND_OPENED:
		r = take_opened(fetched, reply->opened, options->facts);
		if (r == 0 && check_page(fetched, options, error) < 0)
			return -ENOTSUP;
		break;
	case LOADERD__FETCH_REPLY__KIND_FILES:
		r = take_files(fetched, 0);
		break;
	default: /* from a newer fetcher */
		break;
	}
	if (r == -ENOMEM)
		return error_set(error, r, "Out of memory.");
	if (r < 0)
		return protocol_error(fetched, error);
	return fetched->files && fetched->file_count == fetched->file_room;
}

/* ---- opening ---- */

static void disconnect(struct fetched *fetched)
{
	int fd = fetched->fd;
	fetched->fd = -1;
	io_close(fd);
	frame_reader_deinit(&fetched->reader);
}

static int connect_fetched(struct fetched *fetched, int64_t deadline_ms, char *error)
{
	int fd = fetcher_connect(fetched->shown, deadline_ms, error);
	if (fd < 0)
		return fd;
	frame_reader_init(&fetched->reader);
	fetched->fd = fd;
	fetched->answered = false;
	fetched->connects++;
	return 0;
}

/* Closes what a fetcher that ended too early has sent. */
static void forget_files(struct fetched *fetched)
{
	for (uint32_t i = 0; i < fetched->file_count; i++)
		io_close(fetched->files[i]);
	io_close(fetched->filling.map);
	io_close(fetched->filling.page);
	free(fetched->files);
	fetched->files = NULL;
	fetched->file_count = fetched->file_room = 0;
	fetched->filling = (struct feed_filling){sizeof(fetched->filling), -1, -1};
}

static int await_opened(struct fetched *fetched, const struct fetch_options *options, char *error)
{
	uint32_t timeout_ms =
		options->timeout_ms != 0 ? options->timeout_ms : CONNECTION_TIMEOUT_MS;
	int64_t deadline_ms = clock_ms() + timeout_ms;
	for (;;) {
		Loaderd__FetchReply *reply;
		int r = receive(fetched, &reply);
		if (r == 1) {
			r = take_answer(fetched, options, reply, error);
			loaderd__fetch_reply__free_unpacked(reply, NULL);
			if (r != 0)
				return r;
			deadline_ms = clock_ms() + timeout_ms;
			continue;
		}
		if (r < 0)
			return r == -EPROTO ? protocol_error(fetched, error)
					    : error_set(error, r,
							"%.300s: the fetcher ended before it had "
							"opened the dataset.",
							fetched->shown);
		if (clock_left_ms(deadline_ms) == 0)
			return error_set(error, -ETIMEDOUT,
					 "%.300s: the fetcher did not answer in time.",
					 fetched->shown);
		struct pollfd p = {.fd = fetched->fd, .events = POLLIN};
		poll(&p, 1, clock_left_ms(deadline_ms));
	}
}

static int open_fetched(struct fetched *fetched, const struct fetch_options *options, char *error)
{
	int r = 0;
	for (unsigned starts = 0; starts < OPEN_STARTS_MAX; starts++) {
		int64_t deadline_ms = clock_ms() + CONNECTION_TIMEOUT_MS;
		r = connect_fetched(fetched, deadline_ms, error);
		if (r < 0)
			return r;
		send_open(fetched, options->facts, false,
			  options->datasets > 1 ? options->page : -1,
			  deadline_ms); /* its end is seen next */
		r = await_opened(fetched, options, error);
		if (r != -ECONNRESET)
			break;
		disconnect(fetched);
		forget_files(fetched);
	}
	fetched->answered = true;
	return r < 0 ? r : 0;
}

int fetch_open(const char *url, const struct fetch_options *options, struct fetched **ret_fetched,
	       char *error)
{
	if (strlen(url) > URL_MAX)
		return error_set(error, -ENAMETOOLONG,
				 "dataset: %.*s...: the address has more than %d bytes.",
				 text_shown_length(url) < 100 ? (int)text_shown_length(url) : 100,
				 url, URL_MAX);
	struct fetched *fetched = calloc(1, sizeof(*fetched));
	if (!fetched)
		return error_set(error, -ENOMEM, "Out of memory.");
	fetched->fd = -1;
	fetched->wait.tell_ms = clock_ms() + WAIT_FIRST_MS;
	fetched->filling = (struct feed_filling){sizeof(fetched->filling), -1, -1};
	fetched->number = options->number;
	fetched->datasets = options->datasets;
	fork_guard_add(&fetched->guard, &fetched->fd);
	fetched->url = strdup(url);
	fetched->shown = strndup(url, text_shown_length(url));
	int r = !fetched->url || !fetched->shown ? error_set(error, -ENOMEM, "Out of memory.")
						 : open_fetched(fetched, options, error);
	if (r < 0) {
		fetch_close(fetched);
		return r;
	}
	*ret_fetched = fetched;
	return 0;
}

uint64_t fetch_bytes(const struct fetched *fetched)
{
	struct stat status;
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < fetched->file_count; i++)
		if (fstat(fetched->files[i], &status) == 0)
			bytes += (uint64_t)status.st_size;
	return bytes;
}

void fetch_close(struct fetched *fetched)
{
	if (!fetched)
		return;
	fork_guard_remove(&fetched->guard);
	disconnect(fetched);
	forget_files(fetched);
	free(fetched->url);
	free(fetched->shown);
	free(fetched);
}

/* ---- while a feed reads the dataset ---- */

/* Lets another fetcher go on with the same map and page. */
static int resume(struct fetched *fetched, char *error)
{
	int64_t deadline_ms = clock_ms() + RESUME_TIMEOUT_MS;
	disconnect(fetched);
	if (++fetched->fruitless > FRUITLESS_MAX)
		return error_set(error, -EIO,
				 "%.300s: the fetcher ended %d times in a row before a batch came.",
				 fetched->shown, FRUITLESS_MAX);
	int r = connect_fetched(fetched, deadline_ms, error);
	if (r < 0)
		return safe_code(r);
	send_open(fetched, false, true, -1, deadline_ms); /* its end is seen next */
	return 0;
}

/* Descriptors of files that the daemon already has stay in the reader, which closes them. */
static int take_notice(struct fetched *fetched, const Loaderd__FetchReply *reply, char *error)
{
	switch (reply->kind_case) {
	case LOADERD__FETCH_REPLY__KIND_ERROR:
		if (!fetched->answered && reply->error->code == ESTALE)
			return FETCH_STALE;
		return pass_error(reply->error, error);
	case LOADERD__FETCH_REPLY__KIND_OPENED:
		fetched->answered = true;
		return 0;
	case LOADERD__FETCH_REPLY__KIND_PROGRESS:
		fetched->wait.done = reply->progress->done;
		fetched->wait.total = reply->progress->total;
		fetched->wait.rate = reply->progress->rate;
		fetched->wait.latency_ms = reply->progress->latency_ms;
		return 0;
	default:
		return 0;
	}
}

const char *fetch_wait_text(struct fetched *fetched)
{
	struct fetch_wait *wait = &fetched->wait;
	if (fetched->delivered || clock_left_ms(wait->tell_ms) > 0)
		return "";
	wait->tell_ms = clock_ms() + WAIT_NEXT_MS;
	if (wait->total == 0)
		sentence_write(wait->text, sizeof(wait->text),
			       "%.400s: waiting for the first batch.", fetched->shown);
	else
		sentence_write(wait->text, sizeof(wait->text),
			       "%.400s: waiting for the first batch: %.1f of %.1f MB at %.1f MB/s, "
			       "%.0f ms a request.",
			       fetched->shown, (double)wait->done / 1e6, (double)wait->total / 1e6,
			       wait->rate / 1e6, wait->latency_ms);
	text_make_printable(wait->text);
	return wait->text;
}

int fetch_attend(struct fetched *fetched, char *error)
{
	int r = 0;
	while (fetched->fd >= 0 && r == 0) {
		Loaderd__FetchReply *reply;
		r = receive(fetched, &reply);
		if (r == 0)
			return 0;
		if (r == 1) {
			r = take_notice(fetched, reply, error);
			loaderd__fetch_reply__free_unpacked(reply, NULL);
		} else {
			r = r == -EPROTO ? protocol_error(fetched, error) : resume(fetched, error);
		}
	}
	if (r != 0)
		disconnect(fetched);
	return r;
}
