/* One connection: its requests, its feed, its end. Control thread only. */
#include "server_internal.h"

#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	/* Frames taken from one client before others get their turn; epoll is level-triggered and comes back. */
	FRAMES_PER_TURN = 16,
};

struct open_chore {
	struct chore chore;
	struct session *session;
	Loaderd__Request *request;
	uint64_t user_bytes_left;
	struct subscription *result;
	struct refusal refusal;
	int error;
};

struct feed_chore {
	struct chore chore;
	struct session *session;
	struct subscription *feed;
	int error;
};

unsigned session_count_of(const struct server *server, uid_t uid, unsigned *ret_feeds,
			  uint64_t *ret_bytes)
{
	unsigned count = 0, feeds = 0;
	uint64_t bytes = 0;
	for (const struct session *s = server->sessions; s != NULL; s = s->next) {
		if (s->peer.uid != uid)
			continue;
		count++;
		feeds += s->feed_asked;
		bytes += s->feed == NULL ? 0 : s->feed->bytes;
	}
	*ret_feeds = feeds;
	*ret_bytes = bytes;
	return count;
}

static void watch_output(struct session *session)
{
	bool wanted = outbox_pending(&session->outbox);
	if (wanted == session->wants_out || session->closing)
		return;
	session->wants_out = wanted;
	/* While a reply waits to be read no further request is taken: a client that asks and never reads stops itself. */
	struct epoll_event event = {
		.events = wanted ? EPOLLOUT | EPOLLRDHUP : EPOLLIN | EPOLLRDHUP,
		.data.ptr = &session->source,
	};
	epoll_ctl(session->server->epoll_fd, EPOLL_CTL_MOD, session->source.fd, &event);
}

static void send_packed(struct session *session, const uint8_t *message, size_t size,
			const int *fds, unsigned fd_count)
{
	if (session->closing)
		return;
	int r = size > FRAME_SIZE_MAX ? -EMSGSIZE
				      : outbox_send(&session->outbox, message, size, fds, fd_count);
	if (r < 0)
		session_close(session, "it does not take replies");
	else
		watch_output(session);
}

void session_send(struct session *session, const uint8_t *message, size_t size)
{
	send_packed(session, message, size, NULL, 0);
}

static void send_reply(struct session *session, const Loaderd__Reply *reply, const int *fds,
		       unsigned fd_count)
{
	size_t size = loaderd__reply__get_packed_size(reply);
	uint8_t *message = malloc(size);
	if (message == NULL) {
		session_close(session, "out of memory");
		return;
	}
	loaderd__reply__pack(reply, message);
	send_packed(session, message, size, fds, fd_count);
	free(message);
}

void session_reply(struct session *session, const Loaderd__Reply *reply)
{
	send_reply(session, reply, NULL, 0);
}

void session_refuse(struct session *session, const struct refusal *refusal)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	error.code = refusal->code;
	error.text = (char *)refusal->text;
	error.field = (char *)(refusal->field == NULL ? "" : refusal->field);
	error.position = refusal->position;
	reply.kind_case = LOADERD__REPLY__KIND_ERROR;
	reply.error = &error;
	if (server_may_log_refusal(session->server))
		log_info("client pid %d uid %u refused: %s", (int)session->peer.pid,
			 (unsigned)session->peer.uid, refusal->text);
	session_reply(session, &reply);
}

/* Any worker. */
static void ring_client(void *user)
{
	struct session *session = user;
	outbox_ring(&session->outbox);
}

/* Nothing refers to a closed session any more: free it after the current events. */
void session_bury_if_done(struct session *session)
{
	struct server *server = session->server;
	if (!session->closing || session->dead || session->chores > 0 || session->feed != NULL)
		return;
	session->dead = true;
	*session->link = session->next;
	if (session->next != NULL)
		session->next->link = session->link;
	server->session_count--;
	session->next_dead = server->dead_sessions;
	server->dead_sessions = session;
}

/* Has a chore done with the session's feed; false when out of memory. */
static bool add_feed_chore(struct session *session, void (*run)(struct chore *),
			   void (*done)(struct chore *))
{
	struct feed_chore *feed_chore = malloc(sizeof *feed_chore);
	if (feed_chore == NULL)
		return false;
	*feed_chore = (struct feed_chore){
		.chore = {.run = run, .done = done},
		.session = session,
		.feed = session->feed,
	};
	session->chores++;
	chores_add(session->server->chores, &feed_chore->chore);
	return true;
}

/* Returns the chore's session, which it no longer keeps alive. */
static struct session *end_feed_chore(struct chore *chore)
{
	struct feed_chore *feed_chore = (struct feed_chore *)chore;
	struct session *session = feed_chore->session;
	free(feed_chore);
	session->chores--;
	return session;
}

static void run_close(struct chore *chore)
{
	subscription_free(((struct feed_chore *)chore)->feed);
}

static void done_close(struct chore *chore)
{
	session_bury_if_done(end_feed_chore(chore));
}

/* Unmapping gigabytes takes a while: not here. */
static void free_feed(struct session *session)
{
	if (session->feed_asked) {
		session->feed_asked = false;
		session->server->feed_count--;
	}
	if (!add_feed_chore(session, run_close, done_close))
		subscription_free(session->feed);
	session->feed = NULL;
}

void session_released(struct session *session)
{
	session->in_pool = false;
	free_feed(session);
	session_bury_if_done(session);
}

void session_close(struct session *session, const char *why)
{
	struct server *server = session->server;
	if (session->closing)
		return;
	session->closing = true;
	log_debug("client pid %d: connection closed: %s", (int)session->peer.pid, why);
	if (session->feed != NULL)
		log_info("feed %llu closed (client pid %d): %s",
			 (unsigned long long)session->feed->id, (int)session->peer.pid, why);
	epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, session->source.fd, NULL);
	/* The descriptor stays until no worker can ring on it, so that its number cannot become someone else's. */
	shutdown(session->source.fd, SHUT_RDWR);
	if (session->in_pool)
		pool_remove(server->pool, session->feed->batcher);
	else if (session->feed != NULL && !session->sealing)
		free_feed(session);
	session_bury_if_done(session);
}

static void start_feed(struct session *session)
{
	struct server *server = session->server;
	struct batcher *batcher = session->feed->batcher;
	if (pool_add(server->pool, batcher) < 0) {
		session_close(session, "the pool is full");
		return;
	}
	session->in_pool = true;
	if (server->phase != SERVER_RUNNING && batcher_drain(batcher, RING_REASON_STOPPING))
		outbox_ring(&session->outbox);
}

static void run_seal(struct chore *chore)
{
	struct feed_chore *feed_chore = (struct feed_chore *)chore;
	feed_chore->error = ring_producer_seal(&feed_chore->feed->batcher->ring);
}

static void done_seal(struct chore *chore)
{
	int r = ((struct feed_chore *)chore)->error;
	struct session *session = end_feed_chore(chore);
	session->sealing = false;
	if (session->closing)
		free_feed(session);
	else if (r < 0)
		session_close(session, "its ring cannot be sealed");
	else
		start_feed(session);
	session_bury_if_done(session);
}

/* The client has mapped its writable ring: from now on there is no way in but that mapping. Putting pages back may take a while: not here. */
static void ring_mapped(struct session *session)
{
	if (!session->unmapped) {
		session_close(session, "it had no ring to map");
		return;
	}
	session->unmapped = false;
	session->sealing = add_feed_chore(session, run_seal, done_seal);
	if (!session->sealing)
		session_close(session, "out of memory");
}

static void run_open(struct chore *chore)
{
	struct open_chore *open_chore = (struct open_chore *)chore;
	struct server *server = open_chore->session->server;
	struct subscription_context context = {
		.config = server->config,
		.registry = &server->registry,
		.account = &server->account,
		.peer = &open_chore->session->peer,
		.user_bytes_left = open_chore->user_bytes_left,
		.workers = pool_workers(server->pool),
		.doorbell = ring_client,
		.user = open_chore->session,
	};
	open_chore->error = subscription_new(open_chore->request->open_feed, &context,
					     &open_chore->result, &open_chore->refusal);
}

static void serve_feed(struct session *session, const Loaderd__OpenFeed *request)
{
	struct subscription *feed = session->feed;
	Loaderd__FeedOpened opened = LOADERD__FEED_OPENED__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	opened.feed_id = feed->id;
	opened.samples = feed->dataset->count;
	opened.batches_per_epoch = feed->batcher->options.order.batches;
	opened.classes = packimg_class_count(feed->dataset->image);
	opened.slots = feed->batcher->options.slots;
	opened.writable = feed->batcher->options.writable;
	opened.dataset_uuid =
		(ProtobufCBinaryData){16, (uint8_t *)packimg_uuid(feed->dataset->image)};
	reply.kind_case = LOADERD__REPLY__KIND_FEED_OPENED;
	reply.feed_opened = &opened;
	int fds[2] = {feed->batcher->ring.ring_fd, feed->batcher->ring.ack_fd};
	log_info("feed %llu opened: client pid %d uid %u, %s, batch size %u, rank %u of %u, from "
		 "epoch %llu batch %llu, read by %s%s, \"%s\"",
		 (unsigned long long)feed->id, (int)session->peer.pid, (unsigned)session->peer.uid,
		 feed->dataset->path, feed->batch_size, request->rank,
		 request->world == 0 ? 1 : request->world, (unsigned long long)request->epoch,
		 (unsigned long long)request->batch,
		 io_mode_of(feed->batcher->io) == IO_URING ? "io_uring" : "mmap",
		 opened.writable ? ", ring writable" : "", feed->pipeline);
	session->unmapped = opened.writable;
	send_reply(session, &reply, fds, 2);
	if (!session->closing && !session->unmapped)
		start_feed(session);
}

static void done_open(struct chore *chore)
{
	struct open_chore *open_chore = (struct open_chore *)chore;
	struct session *session = open_chore->session;
	session->chores--;
	session->feed = open_chore->error == 0 ? open_chore->result : NULL;
	if (open_chore->error < 0) {
		session->feed_asked = false;
		session->server->feed_count--;
		session_refuse(session, &open_chore->refusal);
	} else if (session->closing) {
		free_feed(session);
	} else {
		session->feed->id = ++session->server->feed_id;
		serve_feed(session, open_chore->request->open_feed);
	}
	loaderd__request__free_unpacked(open_chore->request, NULL);
	free(open_chore);
	session_bury_if_done(session);
}

/* Limits that only the control thread can count. */
static int admit_feed(struct session *session, struct refusal *refusal,
		      uint64_t *ret_user_bytes_left)
{
	struct server *server = session->server;
	const struct config *config = server->config;
	unsigned feeds;
	uint64_t bytes;
	if (server->phase != SERVER_RUNNING)
		return refuse_request(refusal, ESHUTDOWN, NULL, "the daemon is shutting down");
	if (session->feed_asked)
		return refuse_request(
			refusal, EBUSY, NULL,
			"this connection has a feed already; open another connection");
	if (server->feed_count >= config->feeds)
		return refuse_request(refusal, EDQUOT, NULL,
				      "the daemon serves %u feed%s, its limit ([limits] feeds)",
				      server->feed_count, server->feed_count == 1 ? "" : "s");
	session_count_of(server, session->peer.uid, &feeds, &bytes);
	if (session->peer.uid != 0 && feeds >= config->feeds_per_user)
		return refuse_request(
			refusal, EDQUOT, NULL,
			"user %u has %u feed%s, the limit for one user ([limits] feeds_per_user)",
			(unsigned)session->peer.uid, feeds, feeds == 1 ? "" : "s");
	uint64_t limit = config->shared_memory_per_user;
	*ret_user_bytes_left = limit == 0 ? UINT64_MAX : bytes >= limit ? 0 : limit - bytes;
	return 0;
}

/* Takes over request. */
static void open_feed(struct session *session, Loaderd__Request *request)
{
	struct refusal refusal;
	uint64_t user_bytes_left = 0;
	struct open_chore *open_chore = NULL;
	int r = admit_feed(session, &refusal, &user_bytes_left);
	if (r == 0) {
		open_chore = calloc(1, sizeof *open_chore);
		if (open_chore == NULL)
			r = refuse_request(&refusal, ENOMEM, NULL, "the daemon is out of memory");
	}
	if (r < 0) {
		session_refuse(session, &refusal);
		loaderd__request__free_unpacked(request, NULL);
		return;
	}
	open_chore->chore = (struct chore){.run = run_open, .done = done_open};
	open_chore->session = session;
	open_chore->request = request;
	open_chore->user_bytes_left = user_bytes_left;
	session->feed_asked = true;
	session->server->feed_count++;
	session->chores++;
	chores_add(session->server->chores, &open_chore->chore);
}

static void shut_down(struct session *session)
{
	if (access_is_own(&session->peer)) {
		Loaderd__ShuttingDown shutting_down = LOADERD__SHUTTING_DOWN__INIT;
		Loaderd__Reply reply = LOADERD__REPLY__INIT;
		reply.kind_case = LOADERD__REPLY__KIND_SHUTTING_DOWN;
		reply.shutting_down = &shutting_down;
		log_info("client pid %d asks the daemon to stop", (int)session->peer.pid);
		struct server *server = session->server;
		session_reply(session, &reply);
		server_stop(server);
		return;
	}
	struct refusal refusal;
	refuse_request(&refusal, EPERM, NULL, "only the daemon's own user may stop it");
	session_refuse(session, &refusal);
}

static void handle(struct session *session, const uint8_t *data, size_t size)
{
	Loaderd__Request *request = loaderd__request__unpack(NULL, size, data);
	if (request == NULL) {
		session_close(session, "it sent a frame that is no request");
		return;
	}
	switch (request->kind_case) {
	case LOADERD__REQUEST__KIND_OPEN_FEED:
		open_feed(session, request);
		return;
	case LOADERD__REQUEST__KIND_DOORBELL:
		if (session->in_pool)
			pool_kick(session->server->pool, session->feed->batcher);
		break;
	case LOADERD__REQUEST__KIND_GET_STATUS:
		status_reply(session);
		break;
	case LOADERD__REQUEST__KIND_GET_DATASET:
		dataset_reply(session, request->get_dataset->path);
		break;
	case LOADERD__REQUEST__KIND_SHUTDOWN:
		shut_down(session);
		break;
	case LOADERD__REQUEST__KIND_RING_MAPPED:
		ring_mapped(session);
		break;
	default: {
		struct refusal refusal;
		refuse_request(
			&refusal, EPROTO, NULL,
			"the daemon does not know this request; it may be older than the client");
		session_refuse(session, &refusal);
		break;
	}
	}
	loaderd__request__free_unpacked(request, NULL);
}

static void session_ready(struct source *source, uint32_t events)
{
	struct session *session = (struct session *)source;
	if (session->closing)
		return;
	if (events & EPOLLOUT) {
		if (outbox_flush(&session->outbox) < 0) {
			session_close(session, "the client has gone");
			return;
		}
		watch_output(session);
	}
	for (unsigned i = 0; (events & EPOLLIN) && i < FRAMES_PER_TURN && !session->closing; i++) {
		const uint8_t *data;
		size_t size;
		if (session->wants_out)
			break;
		int r = frame_receive(&session->reader, source->fd, &data, &size);
		if (r == 0)
			return;
		if (r < 0) {
			session_close(session, r == -ECONNRESET ? "the client hung up"
					       : r == -EPROTO	? "it broke the framing"
								: strerror(-r));
			return;
		}
		handle(session, data, size);
	}
	/* A half-closed connection counts as closed: no answer could be read. */
	if (!session->closing && (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) &&
	    !(events & EPOLLIN))
		session_close(session, "the client hung up");
}

/* 0, or why not. */
static const char *admit(const struct server *server, const struct access_peer *peer)
{
	unsigned feeds;
	uint64_t bytes;
	if (server->private_only && peer->uid != geteuid())
		return "this daemon is private to another user";
	if (server->session_count >= server->config->connections)
		return "the daemon has as many connections as it may ([limits] connections)";
	if (peer->uid != 0 && session_count_of(server, peer->uid, &feeds, &bytes) >=
				      server->config->connections_per_user)
		return "the user has as many connections as one may ([limits] "
		       "connections_per_user)";
	return NULL;
}

static void turn_away(int fd, const char *why)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	error.code = EDQUOT;
	error.text = (char *)why;
	error.position = -1;
	reply.kind_case = LOADERD__REPLY__KIND_ERROR;
	reply.error = &error;
	uint8_t message[512];
	if (loaderd__reply__get_packed_size(&reply) <= sizeof message)
		(void)frame_send(fd, message, loaderd__reply__pack(&reply, message), NULL, 0, 0);
	close(fd);
}

void session_new(struct server *server, int fd)
{
	struct access_peer peer;
	if (access_peer_init(&peer, fd) < 0) {
		close(fd);
		return;
	}
	const char *why = admit(server, &peer);
	struct session *session = why != NULL ? NULL : calloc(1, sizeof *session);
	if (session == NULL) {
		if (server_may_log_refusal(server))
			log_warning("client pid %d uid %u turned away: %s", (int)peer.pid,
				    (unsigned)peer.uid, why != NULL ? why : "out of memory");
		turn_away(fd, why != NULL ? why : "the daemon is out of memory");
		return;
	}
	session->source = (struct source){.fd = fd, .ready = session_ready};
	session->server = server;
	session->peer = peer;
	session->opened_ns = server_now_ns();
	frame_reader_init(&session->reader);
	outbox_init(&session->outbox, fd);
	session->next = server->sessions;
	session->link = &server->sessions;
	if (session->next != NULL)
		session->next->link = &session->next;
	server->sessions = session;
	server->session_count++;
	if (server_watch(server, &session->source, EPOLLIN | EPOLLRDHUP) < 0)
		session_close(session, "epoll refuses it");
}
