/* Internal to the server: shared by server.c, session.c, opening.c, subscription.c and status.c. */
#pragma once

#include "loaderd/event_source.h"
#include "loaderd/pool/pool.h"
#include "loaderd/worker/async_jobs.h"
#include "loaderd/worker/registry.h"
#include "loaderd/worker/ring_allocator.h"
#include "loaderd/worker/send_queue.h"
#include "loaderd/worker/server.h"
#include "loaderd/worker/subscription.h"
#include "loaderd/worker_ipc.h"
#include "proto/framing.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum session_state {
	SESSION_OPEN,    /* takes requests */
	SESSION_CLOSING, /* shut down; waits for its jobs and the pool */
	SESSION_DEAD,    /* freed after this round of events */
};

/* server->feed_count counts feeds in the states OPENING and SERVED. */
enum session_feed_state {
	SESSION_FEED_NONE,    /* OpenFeed is accepted */
	SESSION_FEED_OPENING, /* session->opening has it */
	SESSION_FEED_SERVED,  /* session->feed is in the pool, or is being removed from it */
	SESSION_FEED_FREEING, /* a job frees session->feed */
};

struct session {
	struct event_source source; /* its socket */
	struct server *server;
	struct session *next, **link; /* list server->sessions */
	struct session *next_dead;
	pid_t pid;       /* the client's pid in the supervisor's pid namespace */
	uint64_t client; /* the supervisor's id of the connection */
	struct frame_reader reader;
	struct send_queue send_queue;
	struct opening *opening;   /* the request in progress; NULL if none */
	struct subscription *feed; /* while feed_state is SERVED or FREEING */
	unsigned jobs;             /* jobs running for this session */
	struct async_job feed_job; /* frees the feed */
	enum session_state state;
	enum session_feed_state feed_state;
	uint32_t events; /* current epoll mask */
	uint64_t opened_ns;
};

enum server_phase {
	SERVER_RUNNING,
	SERVER_DRAINING,
	SERVER_DONE,
	SERVER_ABANDONED, /* the supervisor is gone: sessions end without ShuttingDown */
};

enum server_activity {
	SERVER_IDLE, /* no session since idle_since_ns */
	SERVER_IDLE_REPORTED,
	SERVER_BUSY,
};

struct server {
	/*
	 * The control thread changes it under the lock and reads it without; other threads call
	 * server_copy_config().
	 */
	struct config *config;
	pthread_mutex_t config_lock;
	struct pool *pool;
	struct async_jobs *jobs;
	struct registry registry;
	struct ring_allocator ring_allocator;
	struct status_page *page;
	int epoll_fd;
	struct event_source ipc, jobs_done, pool_quiet, bad_samples;
	uint64_t clients; /* connections received from the supervisor */
	enum server_activity activity;
	uint64_t idle_since_ns; /* since when the server is in SERVER_IDLE */
	uid_t uid;              /* uid of all clients */
	uint64_t page_due_ns, watch_due_ns;
	struct session *sessions, *dead_sessions;
	unsigned session_count, feed_count;
	uint64_t fds_max; /* RLIMIT_NOFILE of this process */
	uint64_t feed_id; /* last feed id assigned */
	enum server_phase phase;
	uint64_t drain_deadline_ns;
	uint64_t start_ns;
	uint64_t refusal_log_ns; /* log_allowed() */
	/* bad samples in the current one-second window, and its end; 0 if there is none */
	uint64_t bad_log_count, bad_log_end_ns;
};

/*
 * Begins a session and takes over fd. pid: the client's; client: the supervisor's id of the
 * connection.
 */
void session_new(struct server *server, int fd, pid_t pid, uint64_t client);
/* Closes the connection. Frees the session once no job or pool thread uses it. why: for the log. */
void session_close(struct session *session, const char *why);
/* Takes over a feed and adds its batcher to the pool. */
void session_serve(struct session *session, struct subscription *feed);
/* Call when the pool has released the session's batcher. */
void session_released(struct session *session);
/* Call after decrementing session->jobs: a closed session ends with its last job. */
void session_free_if_done(struct session *session);
/* Frees a dead session. Call it when no pending event points to it. */
void session_free(struct session *session);
/* Sends a reply; closes the session if that fails. */
void session_reply(struct session *session, const Loaderd__Reply *reply);
/* Updates the epoll mask; call it when the state of the session or its opening changes. */
void session_watch(struct session *session);
/* Sends a packed reply; closes the session if that fails. */
void session_send(struct session *session, const uint8_t *message, size_t size);
void session_refuse(struct session *session, const struct refusal *refusal);
/* Callback of the batcher: sends the client a Doorbell. user: the session. Any thread. */
void session_send_doorbell(void *user);
/* Callback of the batcher: threads can make units that were postponed. Any thread. */
void session_units_ready(void *user, struct batcher *batcher, uint64_t units);
/* Call when the session's feed ends or its opening fails: removes it from server->feed_count. */
void session_forget_feed(struct session *session);

/* Copies the current configuration. Any thread. */
void server_copy_config(struct server *server, struct config *ret_config);

void status_reply(struct session *session);
/* Updates the status page, which the supervisor reads. */
void status_publish(struct server *server);

/*
 * The functions opening_*() handle OpenFeed and GetDataset, the requests that need a dataset's
 * files: the worker asks for the files, receives them in parts, and reads them on a job thread. One
 * request at a time per connection. Control thread only.
 */
/* Takes over the request. */
void opening_begin(struct session *session, Loaderd__Request *request);
/* Handles Files, whose descriptors the session's reader holds. */
void opening_files(struct session *session, const Loaderd__Files *part);
/* Call when the socket is writable and no reply is queued. */
void opening_writable(struct session *session);
/* Handles RingMapped. */
void opening_mapped(struct session *session);
/* Call when the session closes: frees the request, after its running job if there is one. */
void opening_drop(struct session *session);
/* Tells the client how far its opening is, if a job examines samples for it. About once a second.
 */
void opening_tell_progress(struct session *session);
/*
 * Fills in the status of a feed that is being opened. It refers to the session's request and to
 * *ret_progress. Returns false unless a job examines samples for it.
 */
bool opening_status(const struct session *session, Loaderd__FeedStatus *ret_status,
		    Loaderd__Progress *ret_progress);
/*
 * Returns true while the supervisor may send the ring on this connection: no request is read then,
 * because its reply could end up in the middle of the ring's frame.
 */
bool opening_blocks_requests(const struct session *session);
/* Returns true while opening_writable() is due; no request is read until then. */
bool opening_waits_for_room(const struct session *session);
