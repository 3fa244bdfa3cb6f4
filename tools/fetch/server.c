#include "tools/fetch/server.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "proto/fetch.pb-c.h"
#include "proto/framing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	CLIENTS_MAX = 512,
	FETCH_VERSION = 1,
	SEND_TIMEOUT_MS = 2000,
	SYNC_MS = 5000, /* between two syncs of a dataset */
	PROGRESS_MS = 1000,
	PROGRESS_MAX = 100,    /* messages that a client which does not read them has room for */
	REQUEST_MAX = 1 << 16, /* bytes of a request */
};

struct client {
	struct client *next;
	int fd;
	struct frame_reader reader;
	struct remote_dataset *dataset; /* NULL before FetchOpen */
	struct fetch_feed *feed;        /* NULL without one */
	bool told;                      /* of the dataset's failure */
	int64_t progress_ms;            /* when it was told last how far its first batch is */
	unsigned progress_count;
	bool gone;
};

/* A sync of a dataset, by a thread of its own. */
struct sync {
	struct remote_dataset *dataset; /* NULL: there is none */
	uint8_t *bits;
	pthread_t thread;
	_Atomic bool ended;
	int64_t started_ms;
};

struct server {
	struct fetcher *fetcher;
	int listen_fd;
	struct client *clients;
	unsigned client_count;
	int look_ms;   /* until schedule_run() is due */
	bool outdated; /* the sandbox: another fetcher has to go on */
	struct sync sync;
	bool (*stopped)(void);
};

int server_new(struct fetcher *fetcher, int listen_fd, struct server **ret_server)
{
	struct server *server = calloc(1, sizeof(*server));

	if (!server) {
		close(listen_fd);
		return -ENOMEM;
	}
	server->fetcher = fetcher;
	server->listen_fd = listen_fd;
	server->sync.started_ms = clock_ms(); /* not beside the first batches */
	*ret_server = server;
	return 0;
}

static void send_reply(struct client *client, const Loaderd__FetchReply *reply, const int *fds,
		       unsigned fd_count)
{
	size_t size = loaderd__fetch_reply__get_packed_size(reply);
	uint8_t *bytes = malloc(size);

	if (!bytes) {
		client->gone = true;
		return;
	}
	loaderd__fetch_reply__pack(reply, bytes);
	if (frame_send(client->fd, bytes, size, fds, fd_count, SEND_TIMEOUT_MS))
		client->gone = true;
	free(bytes);
}

/*
 * A file that has been replaced, such as that of the credentials, or a cache that was removed can
 * only be opened by another fetcher: libfeed starts one when this one ends, and repeats the
 * request.
 */
static void send_error(struct server *server, struct client *client, int status, const char *text)
{
	Loaderd__FetchError error = LOADERD__FETCH_ERROR__INIT;
	Loaderd__FetchReply reply = LOADERD__FETCH_REPLY__INIT;

	if (fetch_sandbox_outdated(&server->fetcher->sandbox)) {
		server->outdated = client->gone = true;
		return;
	}
	error.code = (uint32_t)-status;
	error.text = (char *)text;
	reply.kind_case = LOADERD__FETCH_REPLY__KIND_ERROR;
	reply.error = &error;
	send_reply(client, &reply, NULL, 0);
}

/* While a dataset is opened: tells its client how far it is, and serves the feeds of others. */
struct opening_client {
	struct server *server;
	struct client *client;
	int64_t told_ms;
};

static bool on_opening(void *context, uint64_t done, uint64_t total)
{
	struct opening_client *opening = context;
	Loaderd__FetchProgress progress = LOADERD__FETCH_PROGRESS__INIT;
	Loaderd__FetchReply reply = LOADERD__FETCH_REPLY__INIT;

	schedule_run(opening->server->fetcher);
	if (clock_ms() - opening->told_ms < PROGRESS_MS)
		return !opening->client->gone;
	opening->told_ms = clock_ms();
	progress.done = done;
	progress.total = total;
	reply.kind_case = LOADERD__FETCH_REPLY__KIND_PROGRESS;
	reply.progress = &progress;
	send_reply(opening->client, &reply, NULL, 0);
	return !opening->client->gone;
}

/* Finds an open dataset, or opens it. A dataset that has failed is opened again. */
static int get_dataset(struct server *server, struct client *client, const char *url,
		       struct packimg_error *error)
{
	struct opening_client opening = {server, client, clock_ms()};
	const struct dataset_progress progress = {on_opening, &opening};
	struct fetcher *fetcher = server->fetcher;
	struct remote_dataset *dataset = fetcher->datasets;

	while (dataset && (strcmp(dataset->url, url) != 0 || dataset->failed))
		dataset = dataset->next;
	if (!dataset) {
		int r = dataset_open(fetcher->store, &fetcher->cache, url, &progress, &dataset,
				     error);
		if (r)
			return r;
		schedule_share_room(fetcher, dataset);
		dataset->next = fetcher->datasets;
		fetcher->datasets = dataset;
	}
	dataset->users++;
	client->dataset = dataset;
	return 0;
}

static uint64_t cached_bytes(const struct remote_dataset *dataset)
{
	uint64_t bytes = dataset_disk_bytes(dataset);

	return bytes < dataset->bytes ? bytes : dataset->bytes;
}

/* The files as clients get them: they cannot write what others read. */
static int open_for_reading(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Sends the descriptors of map, page and files, as many with a frame as it takes. */
static void send_files(struct client *client, Loaderd__FetchReply *reply)
{
	const struct remote_dataset *dataset = client->dataset;
	Loaderd__FetchFiles files = LOADERD__FETCH_FILES__INIT;
	int fds[FRAME_FDS_MAX];
	unsigned count = 0, own = 0; /* the first `own` are not copies */

	if (client->feed) {
		fds[count++] = client->feed->map->fd;
		fds[count++] = client->feed->page_fd;
		own = count;
	}
	for (uint32_t i = 0; i < dataset->file_count && !client->gone; i++) {
		fds[count] = open_for_reading(dataset->entry.fds[i]);
		if (fds[count] < 0) {
			client->gone = true;
			break;
		}
		count++;
		if (count < FRAME_FDS_MAX && i + 1 < dataset->file_count)
			continue;
		send_reply(client, reply, fds, count);
		while (count > own)
			close(fds[--count]);
		count = own = 0;
		reply->kind_case = LOADERD__FETCH_REPLY__KIND_FILES;
		reply->files = &files;
	}
	while (count > own)
		close(fds[--count]);
}

static void send_opened(struct client *client)
{
	const struct remote_dataset *dataset = client->dataset;
	Loaderd__FetchOpened opened = LOADERD__FETCH_OPENED__INIT;
	Loaderd__FetchReply reply = LOADERD__FETCH_REPLY__INIT;

	opened.files = dataset->file_count;
	opened.bytes = dataset->bytes;
	opened.cached = cached_bytes(dataset);
	opened.kept = dataset->room >= dataset->bytes;
	reply.kind_case = LOADERD__FETCH_REPLY__KIND_OPENED;
	reply.opened = &opened;
	send_files(client, &reply);
}

static int make_feed(struct server *server, struct client *client, const struct feed_memory *memory,
		     struct packimg_error *error)
{
	const char *shown = client->dataset->objects[0].address.shown;
	int r = feed_new(client->dataset, memory, &client->feed);

	if (r == -ESTALE)
		return packimg_fail(error, r,
				    "%.200s: the cache was removed while the dataset was read",
				    shown);
	if (r)
		return packimg_fail(error, r, "%.200s: map and page: %s", shown, strerror(-r));
	client->progress_ms = clock_ms();
	client->feed->next = server->fetcher->feeds;
	server->fetcher->feeds = client->feed;
	/* not before: an earlier fetcher's map says what is there */
	if (client->dataset->room < client->dataset->bytes) {
		r = dataset_count_pages(client->dataset);
		if (r)
			return packimg_fail(error, r, "%.200s: its cache: %s", shown, strerror(-r));
	}
	return 0;
}

/* Whether the client has gone, for whom opening a dataset would keep others waiting. */
static bool has_hung_up(const struct client *client)
{
	struct pollfd p = {.fd = client->fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP));
}

/* Takes what FetchOpen says of the feed's memory, with its descriptors; -EPROTO. */
static int take_memory(struct client *client, const Loaderd__FetchOpen *open,
		       struct feed_memory *ret_memory)
{
	const unsigned count = frame_fd_count(&client->reader);

	*ret_memory = (struct feed_memory){.map_fd = -1,
					   .page_fd = -1,
					   .resumed = open->resumed,
					   .number = open->dataset,
					   .datasets = open->datasets ? open->datasets : 1};
	if (ret_memory->datasets > FILLING_DATASETS || open->dataset >= ret_memory->datasets ||
	    (open->resumed && count != 2) || count > 2)
		return -EPROTO;
	if (open->resumed) {
		ret_memory->map_fd = frame_take_fd(&client->reader, 0);
		ret_memory->page_fd = frame_take_fd(&client->reader, 1);
	} else if (ret_memory->datasets > 1 && count == 1) {
		ret_memory->page_fd = frame_take_fd(&client->reader, 0);
	}
	return 0;
}

static void handle_open(struct server *server, struct client *client,
			const Loaderd__FetchOpen *open)
{
	struct packimg_error error = {{0}};
	struct feed_memory memory;
	int r = take_memory(client, open, &memory);

	if (open->version != FETCH_VERSION)
		r = packimg_fail(&error, -EPROTO,
				 "loaderd-fetch speaks version %d of its protocol, libfeed %u: "
				 "install the same version of both",
				 FETCH_VERSION, open->version);
	else if (client->dataset || r)
		r = packimg_fail(&error, -EPROTO, "FetchOpen is wrong");
	else if (has_hung_up(client))
		r = packimg_fail(&error, -EINTR, "the client has gone");
	if (!r)
		r = get_dataset(server, client, open->url, &error);
	if (!r && !open->facts) {
		r = make_feed(server, client, &memory, &error);
		memory.map_fd = memory.page_fd = -1;
	}
	io_close(memory.map_fd);
	io_close(memory.page_fd);
	if (r) {
		send_error(server, client, r, error.text);
		client->gone = true;
	} else {
		send_opened(client);
	}
}

/* Fills in what is in the cache; the caller frees the three. */
struct cached_rows {
	struct cache_item *items;
	Loaderd__FetchStatus__Cached *rows, **pointers;
};

static void list_cached(const struct cache *cache, Loaderd__FetchStatus *status,
			struct cached_rows *ret_rows)
{
	size_t count = 0;

	ret_rows->items = cache_list(cache, &count);
	ret_rows->rows = calloc(count + 1, sizeof(*ret_rows->rows));
	ret_rows->pointers = calloc(count + 1, sizeof(*ret_rows->pointers));
	if (!ret_rows->rows || !ret_rows->pointers)
		return;
	for (size_t i = 0; i < count; i++) {
		Loaderd__FetchStatus__Cached *row = &ret_rows->rows[i];

		loaderd__fetch_status__cached__init(row);
		row->url = ret_rows->items[i].url;
		row->bytes = ret_rows->items[i].bytes;
		row->open = ret_rows->items[i].open;
		ret_rows->pointers[i] = row;
	}
	status->n_cached = count;
	status->cached = ret_rows->pointers;
}

static void handle_status(struct server *server, struct client *client)
{
	const struct fetcher *fetcher = server->fetcher;
	Loaderd__FetchStatus__Dataset rows[64], *pointers[64];
	struct cached_rows cached = {0};
	Loaderd__FetchStatus status = LOADERD__FETCH_STATUS__INIT;
	Loaderd__FetchReply reply = LOADERD__FETCH_REPLY__INIT;
	struct store_counters counters = store_counters(fetcher->store);

	for (const struct remote_dataset *dataset = fetcher->datasets;
	     dataset && status.n_datasets < 64; dataset = dataset->next) {
		Loaderd__FetchStatus__Dataset *row = &rows[status.n_datasets];

		loaderd__fetch_status__dataset__init(row);
		row->url = dataset->objects[0].address.shown;
		row->bytes = dataset->bytes;
		row->cached = cached_bytes(dataset);
		row->feeds = dataset->users;
		row->requests = dataset->requests;
		row->retries = counters.retries;
		row->hedges = counters.hedges;
		row->fetched = dataset->fetched;
		row->hits = dataset->hits;
		row->misses = dataset->misses;
		row->evicted = dataset->evicted;
		row->error = (char *)dataset->error.text;
		row->under_way = dataset->under_way;
		row->rate = fetcher->rate.now;
		row->latency_ms = counters.latency_ms;
		pointers[status.n_datasets++] = row;
	}
	status.datasets = pointers;
	list_cached(&fetcher->cache, &status, &cached);
	status.cache_bytes = cache_bytes(&fetcher->cache);
	status.cache_limit = fetcher->cache.limit;
	status.cache = (char *)fetcher->cache.folder;
	status.pid = (uint32_t)getpid();
	status.sandbox = (char *)fetcher->sandbox.text;
	reply.kind_case = LOADERD__FETCH_REPLY__KIND_STATUS;
	reply.status = &status;
	send_reply(client, &reply, NULL, 0);
	free(cached.items);
	free(cached.rows);
	free(cached.pointers);
}

static void handle_clear(struct server *server, struct client *client,
			 const Loaderd__FetchClear *clear)
{
	Loaderd__FetchCleared cleared = LOADERD__FETCH_CLEARED__INIT;
	Loaderd__FetchReply reply = LOADERD__FETCH_REPLY__INIT;
	char *key = clear->url[0] ? dataset_key(clear->url) : NULL;

	cache_clear(&server->fetcher->cache, key, &cleared.bytes, &cleared.datasets, &cleared.busy);
	free(key);
	reply.kind_case = LOADERD__FETCH_REPLY__KIND_CLEARED;
	reply.cleared = &cleared;
	send_reply(client, &reply, NULL, 0);
}

static void handle_frame(struct server *server, struct client *client, const uint8_t *bytes,
			 size_t size)
{
	Loaderd__FetchRequest *request =
		size <= REQUEST_MAX ? loaderd__fetch_request__unpack(NULL, size, bytes) : NULL;

	if (!request) {
		client->gone = true;
		return;
	}
	switch (request->kind_case) {
	case LOADERD__FETCH_REQUEST__KIND_OPEN:
		handle_open(server, client, request->open);
		break;
	case LOADERD__FETCH_REQUEST__KIND_GET_STATUS:
		handle_status(server, client);
		break;
	case LOADERD__FETCH_REQUEST__KIND_CLEAR:
		handle_clear(server, client, request->clear);
		break;
	default:
		client->gone = true;
	}
	loaderd__fetch_request__free_unpacked(request, NULL);
}

static void receive(struct server *server, struct client *client)
{
	const uint8_t *bytes;
	size_t size;
	int r;

	while (!client->gone && (r = frame_receive(&client->reader, client->fd, &bytes, &size))) {
		if (r < 0)
			client->gone = true;
		else
			handle_frame(server, client, bytes, size);
	}
}

/* Only processes of the same user may ask: the folder keeps others out, too. */
static bool same_user(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

static void accept_client(struct server *server)
{
	int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *client = fd >= 0 ? calloc(1, sizeof(*client)) : NULL;

	if (!client || server->client_count == CLIENTS_MAX || !same_user(fd)) {
		free(client);
		io_close(fd);
		return;
	}
	client->fd = fd;
	frame_reader_init(&client->reader);
	client->next = server->clients;
	server->clients = client;
	server->client_count++;
}

static void client_free(struct server *server, struct client *client)
{
	struct fetch_feed **link = &server->fetcher->feeds;

	if (client->feed) {
		while (*link != client->feed)
			link = &(*link)->next;
		*link = client->feed->next;
		feed_free(client->feed);
	}
	if (client->dataset)
		client->dataset->users--;
	frame_reader_deinit(&client->reader);
	close(client->fd);
	free(client);
	server->client_count--;
}

static void drop_clients(struct server *server)
{
	for (struct client **link = &server->clients; *link;) {
		struct client *client = *link;

		if (client->dataset && client->dataset->failed && !client->told) {
			client->told = true;
			send_error(server, client, client->dataset->failed,
				   client->dataset->error.text);
		}
		if (client->gone) {
			*link = client->next;
			client_free(server, client);
		} else {
			link = &client->next;
		}
	}
}

/* Tells clients how far their first batches are. */
static void tell_progress(struct server *server)
{
	const int64_t now_ms = clock_ms();

	for (struct client *client = server->clients; client; client = client->next) {
		Loaderd__FetchProgress progress = LOADERD__FETCH_PROGRESS__INIT;
		Loaderd__FetchReply reply = LOADERD__FETCH_REPLY__INIT;

		if (!client->feed || client->gone || client->progress_count == PROGRESS_MAX ||
		    now_ms - client->progress_ms < PROGRESS_MS ||
		    !feed_first_batch(client->feed, &progress.done, &progress.total))
			continue;
		client->progress_ms = now_ms;
		client->progress_count++;
		progress.rate = server->fetcher->rate.now;
		progress.latency_ms = store_counters(server->fetcher->store).latency_ms;
		reply.kind_case = LOADERD__FETCH_REPLY__KIND_PROGRESS;
		reply.progress = &progress;
		send_reply(client, &reply, NULL, 0);
	}
}

/* Closes datasets that nobody uses, once their requests have ended. */
static void close_datasets(struct server *server)
{
	for (struct remote_dataset **link = &server->fetcher->datasets; *link;) {
		struct remote_dataset *dataset = *link;

		if (dataset->users || dataset->under_way || server->sync.dataset == dataset) {
			link = &dataset->next;
		} else {
			*link = dataset->next;
			dataset_close(dataset);
		}
	}
}

static void *sync_main(void *argument)
{
	struct sync *sync = argument;

	cache_sync(&sync->dataset->entry, sync->bits, sync->dataset->samples);
	atomic_store(&sync->ended, true);
	return NULL;
}

/* Ends a sync that is ready, or begins one that is due. */
static void sync_datasets(struct server *server)
{
	struct sync *sync = &server->sync;

	if (sync->dataset) {
		if (!atomic_load(&sync->ended))
			return;
		pthread_join(sync->thread, NULL);
		free(sync->bits);
		if (sync->dataset->evicted) /* meanwhile */
			cache_forget_present(&sync->dataset->entry);
		sync->dataset = NULL;
	}
	if (clock_ms() - sync->started_ms < SYNC_MS)
		return;
	struct remote_dataset *dataset = server->fetcher->datasets;
	while (dataset && !dataset->dirty)
		dataset = dataset->next;
	sync->bits = dataset ? dataset_present_bits(dataset) : NULL;
	if (!sync->bits)
		return;
	sync->started_ms = clock_ms();
	atomic_store(&sync->ended, false);
	sync->dataset = dataset;
	dataset->dirty = false;
	if (pthread_create(&sync->thread, NULL, sync_main, sync)) {
		free(sync->bits);
		sync->dataset = NULL;
		dataset->dirty = true;
	}
}

static int poll_once(struct server *server)
{
	struct pollfd *fds = calloc(server->client_count + 1, sizeof(*fds));
	unsigned count = 0;

	if (!fds)
		return -ENOMEM;
	fds[count++].fd = server->listen_fd;
	for (struct client *client = server->clients; client; client = client->next)
		fds[count++].fd = client->fd;
	store_poll(server->fetcher->store, fds, count, server->look_ms);
	count = 1;
	for (struct client *client = server->clients; client; client = client->next)
		if (fds[count++].revents)
			receive(server, client);
	if (fds[0].revents)
		accept_client(server);
	free(fds);
	return 0;
}

int server_run(struct server *server, unsigned idle_s, bool (*stopped)(void))
{
	int64_t idle_since_ms = clock_ms();
	int r = 0;

	while (!r && !stopped() && !server->outdated) {
		if (server->clients)
			idle_since_ms = clock_ms();
		else if (clock_ms() - idle_since_ms > (int64_t)idle_s * 1000)
			break;
		r = poll_once(server);
		server->look_ms = schedule_run(server->fetcher);
		tell_progress(server);
		drop_clients(server);
		sync_datasets(server);
		close_datasets(server);
	}
	return r;
}

void server_free(struct server *server)
{
	struct sync *sync = &server->sync;

	if (sync->dataset) {
		pthread_join(sync->thread, NULL);
		free(sync->bits);
	}
	while (server->clients) {
		struct client *client = server->clients;

		server->clients = client->next;
		client_free(server, client);
	}
	close(server->listen_fd);
	free(server);
}
