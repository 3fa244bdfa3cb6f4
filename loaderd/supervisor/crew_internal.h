/*
 * Inside of the crew: its users and their workers (crew.c), how these are started and end, what
 * they ask for and what they log (crew_workers.c), and connections on their way to them
 * (crew_arrivals.c). The supervisor's thread alone.
 */
#pragma once

#include "loaderd/supervisor/crew.h"

enum {
	RECORDS_PER_TURN = 64,
	/* of one worker: more than many feeds that open and close at once */
	RECORDS_PER_SECOND = 2000,
	WORKERS_PER_USER = 4,  /* one that serves, and some on their way out */
	RETIRE_MS = 2000,      /* for one that has been told to end because nobody is there */
	DEAF_MS = 10000,       /* so long a worker that takes nothing may still be busy */
	STARTS_AT_ONCE = 20,   /* of one user's worker, */
	STARTS_PER_SECOND = 2, /* and from then on */
	LOG_BYTES_PER_SECOND = 64 << 10, /* of one worker, */
	LOG_LINE_COST = 64,              /* and what is written before each line counts */
	LOG_BYTES_PER_TURN = 1024,
	LAST_LOG_TURNS = 16, /* when a worker has ended */
	LOG_LINE_MAX = 2048,
	ARRIVALS_MAX = 256, /* connections that wait for one worker, */
	ARRIVALS_LEAST = 16,
	/* and the part of all descriptors that they may be; as many again are on their way to it */
	ARRIVALS_SHARE = 8,
	SUSPECTS_MAX = 64, /* of a user, and as many datasets */
	REMEMBER_S = 3600,
	FAULTS_MOST = 2,         /* of one, and it is not tried again */
	DATASET_FAULTS_MOST = 8, /* of a dataset, whatever the samples, and it is refused */
	DESCRIPTORS_FIRST = 6,   /* a connection, and the supervisor's ends to its worker */
	DESCRIPTORS_SPARE = 8,   /* what making a ring takes for a moment, and some */
	/* the part of all descriptors that connections without a ring, and unread ones, may take */
	CONNECTIONS_SHARE = 4,
	RINGS_SHARE =
		4, /* a user's part of the rings that descriptors suffice for and nobody has */
};
#define SECOND_NS     UINT64_C(1000000000)
#define MS_NS         UINT64_C(1000000)
#define START_COST_NS (SECOND_NS / STARTS_PER_SECOND)
#define SWEEP_SOON_NS (SECOND_NS / 10)
/* where the kernel refuses more descriptors on their way */
#define ROOM_AGAIN_NS  (SECOND_NS / 100)
#define SWEEP_LATER_NS (5 * SECOND_NS)
/*
 * The ledger is swept again at the earliest after so long, and after so many times as long as it
 * took: it asks the kernel about each ring of all users, and any of them can cause it.
 */
#define SWEEP_AGAIN_NS (SECOND_NS / 100)
#define SWEEP_REST     19

/* A connection on its way to a worker. */
struct arrival {
	uint64_t id;
	int fd;
	pid_t pid;
};

struct worker {
	struct watched end, pipe, log; /* the process, its records, its log */
	struct watched room;           /* the socket, while arrivals wait for room in it */
	struct arrival waiting[ARRIVALS_MAX];
	unsigned waiting_count;
	struct guests guests;
	struct crew *crew;
	struct crew_user *user;
	struct worker *next;
	uint64_t id;
	pid_t pid;
	int socket;
	struct link_page *page;
	uint64_t clients; /* handed over */
	bool ready;       /* has said that it serves */
	bool retired;     /* gets no more */
	char line[LOG_LINE_MAX];
	size_t line_size;
	size_t log_left;        /* bytes of log in this second, */
	unsigned records_left;  /* and records */
	uint64_t end_due_ns;    /* when a retired one is killed; 0: not yet, or no more */
	uint64_t deaf_since_ns; /* since when it has taken nothing of what is sent; 0: it does */
};

/* A sample at whose decoding a worker ended; or a dataset, and its sample is LINK_WHOLE_DATASET. */
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

struct crew_user {
	struct crew_user *next;
	struct suspects samples, datasets;
	uid_t uid;
	struct worker *workers; /* the first gets new connections unless it is retired */
	struct ledger_account account;
	uint64_t start_debt_ns;     /* until when starts so far use up the allowance */
	uint64_t remember_until_ns; /* until when suspects outlive workers */
};

/* crew.c */
/* Connections of all users that have no ring, or have been closed and have unread replies. */
unsigned crew_connections(const struct crew *crew);
/*
 * Sweeps the ledger, unless it has been a moment ago. False: it has. ret_soon: of ledger_sweep(),
 * unless NULL.
 */
bool crew_sweep(struct crew *crew, bool *ret_soon);
/* False: the kernel has no memory for it now. */
bool crew_look_again(const struct crew *crew, struct watched *watched, uint32_t events);
int crew_watch(struct crew *crew, struct watched *watched, int fd,
	       void (*ready)(struct watched *, uint32_t));
void crew_unwatch(struct crew *crew, struct watched *watched);
/* NULL: there are as many users as may be, and none is away; or no memory. */
struct crew_user *crew_user_of(struct crew *crew, uid_t uid);
void crew_forget_if_done(struct crew *crew, struct crew_user *user);

/* crew_workers.c */
int crew_start_worker(struct crew *crew, struct crew_user *user);
void crew_dismiss(struct worker *worker);
void crew_end_worker(struct worker *worker);
/* A retired worker ends at once, unless it is not itself any more. Is there one that still may? */
bool crew_end_retired(const struct crew *crew, uint64_t now_ns);

/* "user N: ", where there are several. */
void crew_whose(const struct worker *worker, char who[32]);
void crew_renew_allowances(struct crew *crew);
bool crew_any_allowance_used(const struct crew *crew);

/* crew_arrivals.c */
/* Sends an Error to all connections of a worker that could not start. r: negative errno. */
void crew_refuse_all(struct worker *worker, int r);
/* The user's worker, which is started if need be; errors of crew_start_worker(), -EUSERS. */
int crew_worker_of(struct crew *crew, uid_t uid, struct worker **ret_worker);
void crew_look_for_room(struct worker *worker);
