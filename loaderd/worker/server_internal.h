/* What server.c, session.c, opening.c, subscription.c and status.c share. */
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

/* From OPENING to the end of SERVED the feed counts in server->feed_count. */
enum session_feed_state {
	SESSION_FEED_NONE,    /* OpenFeed is accepted */
	SESSION_FEED_OPENING, /* session->opening has it */
	SESSION_FEED_SERVED,  /* session->feed is in the pool, or on its way out of it */
	SESSION_FEED_FREEING, /* a job frees session->feed */
};

struct session {
	struct event_source source; /* its socket */
	struct server *server;
	struct session *next, **link; /* in server->sessions */
	struct session *next_dead;
	pid_t pid;       /* of the client, as the supervisor saw it, */
	uint64_t client; /* and the number that it gave the connection */
	struct frame_reader reader;
	struct send_queue send_queue;
	struct opening *opening;   /* a request whose files are coming */
	struct subscription *feed; /* in the pool, or on its way out of it */
	unsigned jobs;             /* running for this session, */
	struct async_job feed_job; /* one of them at most with its feed */
	enum session_state state;
	enum session_feed_state feed_state;
	uint32_t events; /* that epoll is asked for */
	uint64_t opened_ns;
};

enum server_phase { SERVER_RUNNING, SERVER_DRAINING, SERVER_DONE };

struct server {
	/*
	 * The control thread changes it under the lock and reads it without; others read the copy
	 * that server_copy_config() makes.
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
	uint64_t clients;       /* that the supervisor has handed over */
	uint64_t idle_since_ns; /* 0: it has been said */
	bool was_busy;
	uid_t uid; /* of the clients */
	uint64_t page_due_ns, watch_due_ns;
	bool supervisor_gone; /* the supervisor has gone */
	struct session *sessions, *dead_sessions;
	unsigned session_count, feed_count;
	uint64_t fds_max; /* that this process may have */
	uint64_t feed_id; /* last one given */
	enum server_phase phase;
	uint64_t drain_deadline_ns;
	uint64_t start_ns;
	uint64_t refusal_log_ns;                /* log_allowed() */
	uint64_t bad_log_count, bad_log_end_ns; /* lines in the current second; 0: none */
};

/*
 * Takes over fd. pid and client: the client's process and the connection's number, as the
 * supervisor says.
 */
void session_new(struct server *server, int fd, pid_t pid, uint64_t client);
/* Hang-up: frees all the client had, at once where no worker is busy with it. */
void session_close(struct session *session, const char *why);
/* Puts a feed into the pool. Takes it over. */
void session_serve(struct session *session, struct subscription *feed);
/* The pool has let go of the session's batcher. */
void session_released(struct session *session);
/* Call when session->jobs has been lowered: a closed session ends with its last job. */
void session_free_if_done(struct session *session);
/* A dead one, when no event can name it any more. */
void session_free(struct session *session);
/* Sends a reply; closes the session when it cannot be sent. */
void session_reply(struct session *session, const Loaderd__Reply *reply);
/* Updates the epoll mask; call it when the state of the session or its opening changes. */
void session_watch(struct session *session);
/* The same for a reply that is packed already. */
void session_send(struct session *session, const uint8_t *message, size_t size);
void session_refuse(struct session *session, const struct refusal *refusal);
/* Rings the client's bell; from any thread. user: the session. */
void session_ring(void *user);
/* The session's one feed is not to be. */
void session_forget_feed(struct session *session);

/* The configuration as it is now; from any thread. */
void server_copy_config(struct server *server, struct config *ret_config);

void status_reply(struct session *session);
/* Brings the page up to date that the supervisor reads. */
void status_publish(struct server *server);

/*
 * Requests that need a dataset's files, OpenFeed and GetDataset: the files are asked for, come part
 * by part, and are read on a job thread. One at a time per connection. Control thread only.
 */
/* Takes over the request. */
void opening_begin(struct session *session, Loaderd__Request *request);
/* A part of the files has come, with the frame that the session's reader holds. */
void opening_files(struct session *session, const Loaderd__Files *part);
/* Replies that waited have left. */
void opening_flushed(struct session *session);
/* The client says that it has mapped its ring. */
void opening_mapped(struct session *session);
/* The session closes: frees the request, after its running job if there is one. */
void opening_drop(struct session *session);
/*
 * True while the supervisor may send the ring on this connection: no request is read then, as its
 * reply could end up in the middle of the ring's frame.
 */
bool opening_blocks_requests(const struct session *session);
