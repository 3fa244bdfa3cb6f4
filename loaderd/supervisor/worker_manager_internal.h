/*
 * Internal to the manager: users and sweeps (worker_manager.c), the life of a worker process, its
 * records and log (worker_process.c), and connections on their way to it (connections.c). Used by
 * the supervisor's thread alone.
 */
#pragma once

#include "loaderd/supervisor/worker_manager.h"

enum {
	RECORDS_PER_TURN = 64,
	/* of one worker; many feeds opening and closing at once stay below it */
	RECORDS_PER_SECOND = 2000,
	WORKERS_PER_USER = 4,    /* one that serves, others that are ending */
	RETIRE_MS = 2000,        /* for an idle worker to exit after IPC_RETIRE, before SIGKILL */
	UNRESPONSIVE_MS = 10000, /* a worker that receives nothing for longer is killed */
	STARTS_AT_ONCE = 20,     /* spawns of one user's worker in a burst, */
	STARTS_PER_SECOND = 2,   /* and then at this rate */
	LOG_BYTES_PER_SECOND = 64 << 10, /* of one worker; */
	LOG_LINE_COST = 64,              /* what the log's prefix counts for */
	LOG_BYTES_PER_TURN = 1024,
	LAST_LOG_TURNS = 16, /* reads of a dead worker's log */
	LOG_LINE_MAX = 2048,
	PENDING_MAX = 256, /* connections queued for one worker */
	PENDING_MIN = 16,
	/* They may use one descriptor in so many; as many again may be in flight to the worker. */
	PENDING_SHARE = 8,
	SUSPECTS_MAX = 64, /* samples remembered for a user, and as many datasets */
	REMEMBER_S = 3600,
	FAULTS_MAX = 2,         /* of a sample, and it is not decoded again */
	DATASET_FAULTS_MAX = 8, /* of all samples of a dataset, and it is refused */
	FDS_PER_WORKER = 6,     /* a connection and the supervisor's ends of pipes and sockets */
	FDS_SPARE = 8,          /* for creating a ring, with a margin */
	/* Connections without a ring or with unread replies may use one descriptor in so many. */
	CONNECTIONS_SHARE = 4,
	RINGS_SHARE =
		4, /* a user's part of the rings that descriptors suffice for and nobody has */
};
#define SECOND_NS     UINT64_C(1000000000)
#define MS_NS         UINT64_C(1000000)
#define START_COST_NS (SECOND_NS / STARTS_PER_SECOND)
#define SWEEP_SOON_NS (SECOND_NS / 10)
/* after ETOOMANYREFS: too many descriptors in flight */
#define PENDING_RETRY_NS (SECOND_NS / 100)
#define SWEEP_LATER_NS   (5 * SECOND_NS)
/*
 * A sweep asks the kernel about each ring, and any user can cause one: the next starts after
 * SWEEP_AGAIN_NS at the earliest, and after SWEEP_REST times what the last one took.
 */
#define SWEEP_AGAIN_NS (SECOND_NS / 100)
#define SWEEP_REST     19

/* A connection on its way to a worker. */
struct pending_connection {
	uint64_t id;
	int fd;
	pid_t pid;
};

struct worker {
	struct event_source end, pipe, log; /* pidfd, records, log */
	struct event_source writable;       /* the socket, while connections are queued for it */
	struct pending_connection pending[PENDING_MAX];
	unsigned pending_count;
	struct clients clients;
	struct worker_manager *manager;
	struct user *user;
	struct worker *next;
	uint64_t id;
	pid_t pid;
	int socket;
	struct status_page *page;
	uint64_t connections_passed; /* over the worker's life */
	bool ready;                  /* has sent IPC_READY */
	bool retired;                /* gets no more connections */
	char line[LOG_LINE_MAX];
	size_t line_size;
	size_t log_left;                /* bytes of log in this second, */
	unsigned records_left;          /* and records */
	uint64_t end_due_ns;            /* when a retired one is killed; 0: not yet, or no more */
	uint64_t unresponsive_since_ns; /* since when it has taken nothing of what is sent; 0: it
					   does */
};

/* A sample at whose decoding a worker ended; or a dataset, and its sample is IPC_WHOLE_DATASET. */
struct suspect {
	uint8_t uuid[16];
	uint64_t sample;
	unsigned faults;
	uint64_t last_ns; /* when it did so last */
};

/* Those of a user. Where there are more, the one is forgotten that has been there longest. */
struct suspects {
	struct suspect all[SUSPECTS_MAX];
	unsigned count;
};

struct user {
	struct user *next;
	struct suspects samples, datasets;
	uid_t uid;
	struct worker *workers; /* the first gets new connections unless it is retired */
	struct ring_usage ring_usage;
	uint64_t start_debt_ns;     /* until when starts so far use up the allowance */
	uint64_t remember_until_ns; /* until when suspects outlive workers */
};

/* manager.c */
/* Connections of all users that have no ring, or have been closed and have unread replies. */
unsigned manager_loose_connections(const struct worker_manager *manager);
/*
 * Sweeps the quota, unless it has been a moment ago. False: it has. ret_soon: of
 * ring_quota_sweep(), unless NULL.
 */
bool manager_sweep(struct worker_manager *manager, bool *ret_soon);
/* False: the kernel has no memory for it now. */
bool manager_rewatch(const struct worker_manager *manager, struct event_source *source,
		     uint32_t events);
int manager_watch(struct worker_manager *manager, struct event_source *source, int fd,
		  void (*ready)(struct event_source *, uint32_t));
void manager_unwatch(struct worker_manager *manager, struct event_source *source);
/* NULL: there are as many users as may be, and none is away; or no memory. */
struct user *manager_get_user(struct worker_manager *manager, uid_t uid);
void manager_forget_user_if_idle(struct worker_manager *manager, struct user *user);

/* manager_workers.c */
int manager_start_worker(struct worker_manager *manager, struct user *user);
void manager_remove_worker(struct worker *worker);
void manager_kill_worker(struct worker *worker);
/* A retired worker ends at once, unless it is not itself any more. Is there one that still may? */
bool manager_kill_retired(const struct worker_manager *manager, uint64_t now_ns);

/* "user N: ", where there are several. */
void manager_log_prefix(const struct worker *worker, char who[32]);
void manager_renew_allowances(struct worker_manager *manager);
bool manager_any_allowance_used(const struct worker_manager *manager);

/* manager_arrivals.c */
/* Sends an Error to all connections of a worker that could not start. r: negative errno. */
void manager_refuse_pending(struct worker *worker, int r);
/* The user's worker, which is started if need be; errors of manager_start_worker(), -EUSERS. */
int manager_get_worker(struct worker_manager *manager, uid_t uid, struct worker **ret_worker);
void manager_wait_until_writable(struct worker *worker);
