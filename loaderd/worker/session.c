/* One connection, from its first request to its end. Control thread only. */
#include "format/base/system/clock.h"
#include "loaderd/worker/server_internal.h"

#include "loaderd/log.h"
#include "loaderd/reply.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	/*
	 * Frames read from one client before others get their turn; level-triggered epoll reports
	 * the rest again.
	 */
	FRAMES_PER_TURN = 16,
};

void session_watch(struct session *session)
{
	/*
	 * While a reply is queued, no request is read: a client that does not read its replies only
	 * stops itself.
	 */
	bool writes = send_queue_pending(&session->send_queue) || opening_waits_for_room(session);
	uint32_t events = writes                             ? EPOLLOUT | EPOLLRDHUP
			  : opening_blocks_requests(session) ? EPOLLRDHUP
							     : EPOLLIN | EPOLLRDHUP;
	struct epoll_event event = {.events = events, .data.ptr = &session->source};
	if (events == session->events || session->state != SESSION_OPEN)
		return;
	session->events = events;
	epoll_ctl(session->server->epoll_fd, EPOLL_CTL_MOD, session->source.fd, &event);
}

void session_send(struct session *session, const uint8_t *message, size_t size)
{
	if (session->state != SESSION_OPEN)
		return;
	int r = size > FRAME_SIZE_MAX ? -EMSGSIZE
				      : send_queue_send(&session->send_queue, message, size);
	if (r < 0)
		session_close(session, "the client does not read replies");
	else
		session_watch(session);
}

void session_reply(struct session *session, const Loaderd__Reply *reply)
{
	size_t size = loaderd__reply__get_packed_size(reply);
	uint8_t *message = malloc(size);
	if (!message) {
		session_close(session, "out of memory");
		return;
	}
	loaderd__reply__pack(reply, message);
	session_send(session, message, size);
	free(message);
}

void session_refuse(struct session *session, const struct refusal *refusal)
{
	Loaderd__Error error = reply_error(refusal->code, refusal->text);
	const Loaderd__Reply reply = REPLY(ERROR, error, &error);
	if (refusal->field)
		error.field = (char *)refusal->field;
	error.position = refusal->position;
	if (log_allowed(&session->server->refusal_log_ns))
		log_info("client pid %d refused: %s", (int)session->pid, refusal->text);
	session_reply(session, &reply);
}

void session_units_ready(void *user, struct batcher *batcher, uint64_t units)
{
	pool_ready(((struct session *)user)->server->pool, batcher, units);
}

void session_send_doorbell(void *user)
{
	struct session *session = user;
	send_queue_doorbell(&session->send_queue);
}

/* Frees a closed session after this round of events, if nothing refers to it any more. */
void session_free_if_done(struct session *session)
{
	struct server *server = session->server;
	if (session->state != SESSION_CLOSING || session->jobs > 0 || session->feed)
		return;
	session->state = SESSION_DEAD;
	*session->link = session->next;
	if (session->next)
		session->next->link = session->link;
	server->session_count--;
	session->next_dead = server->dead_sessions;
	server->dead_sessions = session;
}

void session_free(struct session *session)
{
	async_jobs_close(session->server->jobs, session->source.fd);
	frame_reader_deinit(&session->reader);
	send_queue_deinit(&session->send_queue);
	free(session);
}

static void feed_free_run(struct async_job *job)
{
	subscription_free(CONTAINER_OF(session, feed_job, job)->feed);
}

static void feed_free_done(struct async_job *job)
{
	struct session *session = CONTAINER_OF(session, feed_job, job);
	session->feed = NULL;
	session->feed_state = SESSION_FEED_NONE;
	session->jobs--;
	session_free_if_done(session);
}

void session_forget_feed(struct session *session)
{
	if (session->feed_state != SESSION_FEED_OPENING &&
	    session->feed_state != SESSION_FEED_SERVED)
		return;
	session->feed_state = SESSION_FEED_NONE;
	session->server->feed_count--;
}

/* A job, because unmapping gigabytes takes a while. */
static void free_feed(struct session *session)
{
	session_forget_feed(session);
	session->feed_state = SESSION_FEED_FREEING;
	session->feed_job = (struct async_job){.run = feed_free_run, .done = feed_free_done};
	session->jobs++;
	async_jobs_add(session->server->jobs, &session->feed_job);
}

void session_released(struct session *session)
{
	free_feed(session);
	session_free_if_done(session);
}

void session_close(struct session *session, const char *why)
{
	struct server *server = session->server;
	if (session->state != SESSION_OPEN)
		return;
	session->state = SESSION_CLOSING;
	log_debug("client pid %d: connection closed: %s", (int)session->pid, why);
	if (session->feed)
		log_info("feed %llu closed (client pid %d): %s",
			 (unsigned long long)session->feed->id, (int)session->pid, why);
	event_source_remove(server->epoll_fd, &session->source);
	/*
	 * Keep the fd open until no pool thread can send a Doorbell on it: its number could be
	 * reused.
	 */
	shutdown(session->source.fd, SHUT_RDWR);
	opening_drop(session);
	if (session->feed_state == SESSION_FEED_SERVED)
		pool_remove(server->pool, session->feed->batcher);
	else if (session->feed)
		free_feed(session);
	session_free_if_done(session);
}

void session_serve(struct session *session, struct subscription *feed)
{
	struct server *server = session->server;
	session->feed = feed;
	if (pool_add(server->pool, feed->batcher) < 0) {
		session_close(session, "the pool is full");
		return;
	}
	session->feed_state = SESSION_FEED_SERVED;
	/* If the supervisor has died, no reason is due: the client sees that the connection ends.
	 */
	bool stops = server->phase != SERVER_RUNNING && server->phase != SERVER_ABANDONED;
	if (stops && batcher_drain(feed->batcher, RING_REASON_STOPPING))
		send_queue_doorbell(&session->send_queue);
}

static void refuse_shutdown(struct session *session)
{
	struct refusal refusal;
	refuse_request(&refusal, EPERM, NULL,
		       "only the administrator's socket can stop the daemon");
	session_refuse(session, &refusal);
}

/* Refuses a request that shows that the client does not follow the protocol, and closes. */
__attribute__((format(printf, 3, 4))) static void
refuse_and_close(struct session *session, const char *field, const char *format, ...)
{
	char text[SUBSCRIPTION_TEXT_MAX];
	struct refusal refusal;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	refuse_request(&refusal, EINVAL, field, "%s", text);
	session_refuse(session, &refusal);
	session_close(session, text);
}

static bool serves_wanted(const struct session *session)
{
	return session->feed_state == SESSION_FEED_SERVED && session->feed->batcher->wants;
}

static void session_want(struct session *session, const Loaderd__Want *want)
{
	if (!serves_wanted(session)) {
		refuse_and_close(session, NULL,
				 "Want needs a wanted feed: open it with wanted set, and wait for "
				 "FeedOpened");
		return;
	}
	struct batcher *batcher = session->feed->batcher;
	size_t position;
	switch (batcher_want(batcher, want->epoch, want->samples, want->n_samples, &position)) {
	case 0:
		pool_kick(session->server->pool, batcher);
		return;
	case -EINVAL:
		refuse_and_close(session, "samples",
				 "a Want lists %zu samples, but batches of this feed have 1 to %u",
				 want->n_samples, batcher->options.order.batch_size);
		return;
	case -ERANGE:
		refuse_and_close(session, "samples",
				 "a Want asks for sample %llu, but the dataset has %llu samples",
				 (unsigned long long)want->samples[position],
				 (unsigned long long)batcher->options.order.samples);
		return;
	default:
		refuse_and_close(session, NULL,
				 "more batches are wanted than the %u slots and %d more; take "
				 "batches before asking for others",
				 batcher->options.slots, WANTS_AHEAD);
	}
}

static void session_forget(struct session *session)
{
	if (serves_wanted(session))
		batcher_forget(session->feed->batcher);
	else
		refuse_and_close(session, NULL, "Forget needs a wanted feed");
}

static void session_handle(struct session *session, const uint8_t *data, size_t size)
{
	Loaderd__Request *request = loaderd__request__unpack(NULL, size, data);
	if (!request) {
		session_close(session, "the client sent a frame that is not a request");
		return;
	}
	switch (request->kind_case) {
	case LOADERD__REQUEST__KIND_OPEN_FEED:
	case LOADERD__REQUEST__KIND_GET_DATASET:
		opening_begin(session, request);
		return;
	case LOADERD__REQUEST__KIND_FILES:
		opening_files(session, request->files);
		break;
	case LOADERD__REQUEST__KIND_DOORBELL:
		if (session->feed_state == SESSION_FEED_SERVED)
			pool_kick(session->server->pool, session->feed->batcher);
		break;
	case LOADERD__REQUEST__KIND_GET_STATUS:
		status_reply(session);
		break;
	case LOADERD__REQUEST__KIND_SHUTDOWN:
		refuse_shutdown(session);
		break;
	case LOADERD__REQUEST__KIND_RING_MAPPED:
		opening_mapped(session);
		break;
	case LOADERD__REQUEST__KIND_WANT:
		session_want(session, request->want);
		break;
	case LOADERD__REQUEST__KIND_FORGET:
		session_forget(session);
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

static void session_ready(struct event_source *source, uint32_t events)
{
	struct session *session = (struct session *)source;
	if (session->state != SESSION_OPEN)
		return;
	if (events & EPOLLOUT) {
		bool pending = send_queue_pending(&session->send_queue);
		if (send_queue_flush(&session->send_queue) < 0) {
			session_close(session, "the client is gone");
			return;
		}
		session_watch(session);
		/* What was just flushed may have filled the socket again. */
		if (!pending)
			opening_writable(session);
	}
	for (unsigned i = 0;
	     (events & EPOLLIN) && i < FRAMES_PER_TURN && session->state == SESSION_OPEN; i++) {
		const uint8_t *data;
		size_t size;
		if (!(session->events & EPOLLIN))
			break;
		int r = frame_receive(&session->reader, source->fd, &data, &size);
		if (r == 0)
			return;
		if (r < 0) {
			session_close(session, r == -ECONNRESET ? "the client hung up"
					       : r == -EPROTO   ? "the client sent an invalid frame"
								: strerror(-r));
			return;
		}
		session_handle(session, data, size);
	}
	/* A half-closed connection counts as closed: the client could not read a reply. */
	if (session->state == SESSION_OPEN && (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) &&
	    !(events & EPOLLIN))
		session_close(session, "the client hung up");
}

static void reject_connection(struct server *server, int fd, const char *why)
{
	Loaderd__Error error = reply_error(EDQUOT, why);
	const Loaderd__Reply reply = REPLY(ERROR, error, &error);
	uint8_t message[512];
	struct send_queue send_queue;
	send_queue_init(&send_queue, fd);
	if (loaderd__reply__get_packed_size(&reply) <= sizeof(message))
		(void)send_queue_send(&send_queue, message, loaderd__reply__pack(&reply, message));
	send_queue_deinit(&send_queue);
	/* Hang up now: the supervisor still has an fd of the connection. */
	shutdown(fd, SHUT_RDWR);
	async_jobs_close(server->jobs, fd);
}

static void session_discard(void *user, int fd)
{
	async_jobs_close(((struct session *)user)->server->jobs, fd);
}

void session_new(struct server *server, int fd, pid_t pid, uint64_t client)
{
	const char *why = NULL;
	if (server->session_count >= server->config->connections_per_user)
		why = "this user has reached the limit of connections ([limits] "
		      "connections_per_user)";
	struct session *session = why ? NULL : calloc(1, sizeof(*session));
	if (!session) {
		if (log_allowed(&server->refusal_log_ns))
			log_warning("client pid %d rejected: %s", (int)pid,
				    why ? why : "out of memory");
		reject_connection(server, fd, why ? why : "the daemon is out of memory");
		return;
	}
	session->source = (struct event_source){.fd = fd, .ready = session_ready};
	session->server = server;
	session->pid = pid;
	session->client = client;
	session->opened_ns = clock_ns(CLOCK_MONOTONIC);
	frame_reader_init(&session->reader);
	session->reader.discard = session_discard;
	session->reader.user = session;
	send_queue_init(&session->send_queue, fd);
	session->next = server->sessions;
	session->link = &server->sessions;
	if (session->next)
		session->next->link = &session->next;
	server->sessions = session;
	server->session_count++;
	session->events = EPOLLIN | EPOLLRDHUP;
	if (event_source_add(server->epoll_fd, &session->source, session->events) < 0)
		session_close(session, "epoll cannot watch it");
}
