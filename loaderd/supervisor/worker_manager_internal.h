/*
 * Internal to the manager: users and sweeps (worker_manager.c), the lifecycle of worker processes
 * (worker_process.c), their records and logs (worker_input.c), and connections queued for them
 * (connections.c). Supervisor thread only.
 */
#pragma once

#include "loaderd/supervisor/worker_manager.h"

enum {
	RECORDS_PER_TURN = 64,
	/* records read from one worker; many feeds that open and close at once stay below this */
	RECORDS_PER_SECOND = 2000,
	WORKERS_PER_USER = 4,            /* one that serves, and others that are exiting */
	RETIRE_MS = 2000,                /* from IPC_RETIRE to SIGKILL */
	UNRESPONSIVE_MS = 10000,         /* a worker whose socket stays full for longer is killed */
	STARTS_AT_ONCE = 20,             /* burst of spawns of one user's workers */
	STARTS_PER_SECOND = 2,           /* sustained rate of spawns */
	LOG_BYTES_PER_SECOND = 64 << 10, /* per worker */
	LOG_LINE_COST = 64,              /* charged per line, for the prefix */
	LOG_BYTES_PER_TURN = 1024,
	LAST_LOG_TURNS = 16, /* reads from the log of a worker that has exited */
	LOG_LINE_MAX = 2048,
	PENDING_MAX = 256, /* connections queued for one worker */
	PENDING_MIN = 16,
	/*
	 * Queued connections may use 1/PENDING_SHARE of the fds; as many again may be in flight to
	 * workers.
	 */
	PENDING_SHARE = 8,
	SUSPECTS_MAX = 64, /* suspect samples remembered per user, and as many datasets */
	REMEMBER_S = 3600,
	FAULTS_MAX = 2,         /* crashes after which a sample is not decoded again */
	DATASET_FAULTS_MAX = 8, /* crashes after which a dataset is refused */
	FDS_PER_WORKER = 6, /* a connection and the supervisor's ends of the worker's channels */
	FDS_SPARE = 8,      /* to create a ring, with a margin */
	/*
	 * Connections without a ring or with unread replies may use 1/CONNECTIONS_SHARE of the fds.
	 */
	CONNECTIONS_SHARE = 4,
	RINGS_SHARE = 4, /* 1/RINGS_SHARE of the free rings per user */
};
#define SECOND_NS     UINT64_C(1000000000)
#define MS_NS         UINT64_C(1000000)
#define START_COST_NS (SECOND_NS / STARTS_PER_SECOND)
#define SWEEP_SOON_NS (SECOND_NS / 10)
/* after ETOOMANYREFS: too many fds in flight */
#define PENDING_RETRY_NS (SECOND_NS / 100)
#define SWEEP_LATER_NS   (5 * SECOND_NS)
/*
 * A sweep queries the kernel about each ring, and any user can trigger one. The next sweep starts
 * at the earliest after SWEEP_AGAIN_NS, and after SWEEP_REST times the duration of the last one.
 */
#define SWEEP_AGAIN_NS (SECOND_NS / 100)
#define SWEEP_REST     19

/* A connection queued for a worker. */
struct pending_connection {
	uint64_t id;
	int fd;
	pid_t pid;
};

/* A worker as the supervisor sees it. worker_process.c has the table of transitions. */
enum worker_state {
	WORKER_NEW,      /* no process yet */
	WORKER_STARTING, /* spawned; connections wait in its socket */
	WORKER_SERVING,  /* has sent IPC_READY */
	WORKER_RETIRING, /* was sent IPC_RETIRE; must exit by end_due_ns */
	WORKER_KILLED,   /* was sent SIGKILL; may stay while one of its threads hangs in storage */
	WORKER_GONE,     /* has exited; freed after this round of events */
	WORKER_STATES,
};

enum worker_event {
	WORKER_SPAWNED,
	WORKER_READY,        /* the worker sent IPC_READY */
	WORKER_IDLE,         /* the worker sent IPC_IDLE and has received no connection since */
	WORKER_UNRESPONSIVE, /* socket shut by the worker, or full for UNRESPONSIVE_MS */
	WORKER_KILL,         /* the worker has not exited in time, or the daemon stops at once */
	WORKER_ENDED,        /* the worker has exited, could not be spawned, or is abandoned */
	WORKER_EVENTS,
};

struct worker {
	enum worker_state state;
	struct event_source end, pipe, log; /* pidfd, records, log */
	struct event_source socket;         /* in epoll while connections are queued */
	struct pending_connection pending[PENDING_MAX];
	unsigned pending_count;
	struct clients clients;
	struct worker_manager *manager;
	struct user *user;
	struct worker *next;
	uint64_t id;
	pid_t pid;
	struct status_page *page;
	uint64_t connections_passed; /* since the worker started */
	char line[LOG_LINE_MAX];
	size_t line_size;
	size_t log_left;               /* log bytes left in this second */
	unsigned records_left;         /* records left in this second */
	uint64_t end_due_ns;           /* WORKER_RETIRING: when to kill it */
	uint64_t socket_full_since_ns; /* 0 if its socket has room */
};

/* A sample whose decoding has crashed a worker, or a dataset (sample is IPC_WHOLE_DATASET). */
struct suspect {
	uint8_t uuid[16];
	uint64_t sample;
	unsigned faults;
	uint64_t last_ns; /* time of the last crash */
};

/* The suspects of a user. When full, the one with the oldest last crash is replaced. */
struct suspects {
	struct suspect all[SUSPECTS_MAX];
	unsigned count;
};

struct user {
	struct user *next;
	struct suspects samples, datasets;
	uid_t uid;
	struct worker *
		workers; /* newest first; the first receives new connections unless it is retired */
	struct ring_usage ring_usage;
	uint64_t start_debt_ns;     /* when past starts no longer count (STARTS_PER_SECOND) */
	uint64_t remember_until_ns; /* when to forget the suspects, if no worker is left */
};

/* worker_manager.c */
/*
 * Returns the number of connections of all users that have no ring or are closed with unread
 * replies.
 */
unsigned manager_loose_connections(const struct worker_manager *manager);
/*
 * Sweeps the ring quota. Returns false without sweeping if the last sweep was too recent. ret_soon:
 * result of ring_quota_sweep(); may be NULL.
 */
bool manager_sweep(struct worker_manager *manager, bool *ret_soon);
/* Puts a source back into epoll. Returns false if the kernel is out of memory. */
bool manager_rewatch(const struct worker_manager *manager, struct event_source *source,
		     uint32_t events);
int manager_watch(struct worker_manager *manager, struct event_source *source, int fd,
		  void (*ready)(struct event_source *, uint32_t));
void manager_unwatch(struct worker_manager *manager, struct event_source *source);
/*
 * Finds or creates a user. Returns NULL if [limits] users is reached and no idle user can be
 * forgotten, or if memory is short.
 */
struct user *manager_get_user(struct worker_manager *manager, uid_t uid);
void manager_forget_user_if_idle(struct worker_manager *manager, struct user *user);

/* worker_process.c */
int manager_start_worker(struct worker_manager *manager, struct user *user);
/* Changes the state. The event must be possible in the current state. */
void worker_on(struct worker *worker, enum worker_event event);
/* Returns false for workers that are ending: the next connection starts another one. */
bool worker_takes_connections(const struct worker *worker);
/*
 * Kills retired workers that have not exited within RETIRE_MS. Returns whether any may still exit.
 */
bool manager_kill_retired(const struct worker_manager *manager, uint64_t now_ns);

/* worker_input.c */
/* ready() of the records pipe and of the log. */
void manager_on_records(struct event_source *source, uint32_t events);
void manager_on_log(struct event_source *source, uint32_t events);
/* Relays what is left in the log of a worker that has exited. */
void manager_drain_log(struct worker *worker);
/* Writes "user N: ", or "" in a private daemon. */
void manager_log_prefix(const struct worker *worker, char who[32]);
void manager_renew_allowances(struct worker_manager *manager);
bool manager_any_allowance_used(const struct worker_manager *manager);

/* connections.c */
/* Sends an Error to all connections of a worker that could not start. r: a negative errno. */
void manager_refuse_pending(struct worker *worker, int r);
/*
 * Finds a user's worker, spawning it if needed. Returns 0, -EUSERS, or an error of
 * manager_start_worker().
 */
int manager_get_worker(struct worker_manager *manager, uid_t uid, struct worker **ret_worker);
/* Watches the worker's socket if connections are queued for it. */
void manager_wait_until_writable(struct worker *worker);
/* ready() of the socket: passes queued connections. */
void manager_on_writable(struct event_source *source, uint32_t events);
