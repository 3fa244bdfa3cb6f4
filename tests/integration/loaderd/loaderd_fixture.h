/*
 * What the daemon's integration tests share: datasets made on the spot in a temporary folder, a
 * daemon process on a socket there, and hashes of what a feed delivers. Failures end the test
 * through cmocka's assertions. The daemon's path is in LOADERD.
 */
#pragma once

#include "proto/client/feed.h"
#include "proto/feed.pb-c.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum fixture_kind { FIXTURE_JPEG, FIXTURE_RAW };

enum { FIXTURE_CLASSES = 10 };

struct fixture {
	char folder[PATH_MAX];
	char socket[PATH_MAX];
	pid_t daemon; /* the supervisor; 0: none */
	int log;      /* of the daemon: daemon_log.h */
	/* Set between fixture_init() and fixture_start(): */
	/* whom the daemon runs as, with no other group than its own; 0: the test's user */
	uid_t uid;
	bool logs_as_configured; /* else from warnings on */
	unsigned descriptors;    /* that it may have open; 0: as many as the test */
	unsigned processes;      /* RLIMIT_NPROC; 0: the test's */
	uint64_t file_bytes;     /* RLIMIT_FSIZE; 0: the test's */
	const char
		*group; /* cgroup.procs of the control group that it starts in; NULL: the test's */
};

void fixture_init(struct fixture *fixture);
/* Stops the daemon and removes the folder. */
void fixture_deinit(struct fixture *fixture);

/*
 * Writes NAME.pimg with count images: JPEGs of 40 to 120 pixels a side, or raw ones of `side`
 * squared. Label: index % 10; fields "number" (int64: the index), "half" (double: index / 2,
 * missing for every third), "word" (bytes: "sample INDEX"). Returns the path, static.
 */
const char *fixture_dataset(struct fixture *fixture, const char *name, uint64_t count,
			    enum fixture_kind kind, uint32_t side);
/* The same with other names for its FIXTURE_CLASSES classes. */
const char *fixture_dataset_of(struct fixture *fixture, const char *name, uint64_t count,
			       enum fixture_kind kind, uint32_t side, const char *const *classes);

/*
 * Starts the daemon with extra arguments, NULL at the end, and waits until it answers. environment:
 * "NAME=value" or NULL. LOADERD_TEST_IO is handed on as --io, with little room for read-ahead.
 */
void fixture_start(struct fixture *fixture, const char *environment, ...);
/* The process that serves this user, which is started if need be. */
pid_t fixture_worker(const struct fixture *fixture);
/* The process that serves a user, without starting it; 0: there is none. */
pid_t fixture_worker_of(const struct fixture *fixture, uid_t uid);
/*
 * Becomes this user for good, who is in no other group than that of the same number. Ends the
 * process when that is refused.
 */
void fixture_become(uid_t uid);
/* Sends the signal and waits; returns the wait status. */
int fixture_stop(struct fixture *fixture, int signal_number);

/* Options for a shuffled feed of this dataset: batch size 32, seed 5. */
struct feed_options fixture_options(const struct fixture *fixture, const char *dataset,
				    const char *pipeline);
struct feed *fixture_open(const struct feed_options *options);
/*
 * Takes the next batch and gives it back; its hash covers position, count, pixels, labels, numbers
 * and flags. FEED_END: returns 0.
 */
uint64_t fixture_hash_next(struct feed *feed);
/* Hashes of the next `count` batches folded into one. */
uint64_t fixture_hash(struct feed *feed, unsigned count);
/* Time that all threads of a process were ready to run in, while others had the CPUs. */
uint64_t fixture_queued_ns(pid_t pid);
/*
 * Open descriptors of a process, its mappings of files whose path has this in it, and those of
 * rings.
 */
unsigned fixture_descriptors(pid_t pid);
unsigned fixture_mappings(pid_t pid, const char *name);
unsigned fixture_ring_mappings(pid_t pid);

/* The bare protocol, for clients that misbehave. */
int fixture_connect(const struct fixture *fixture);
void fixture_send(int socket, const Loaderd__Request *request);
/* The same with descriptors, which stay the caller's. */
void fixture_send_with(int socket, const Loaderd__Request *request, const int *fds, unsigned count);
/* Answers NeedFiles with `total` files of which the one at path is the first that was asked for. */
void fixture_send_file(int socket, const char *path, const Loaderd__NeedFiles *need,
		       uint32_t total);
struct fixture_mapping {
	void *ring; /* NULL: not mapped */
	size_t size;
	void *ack; /* one page, to be written */
};
/*
 * Reads every page of a ring and its ack page, and sends RingMapped. The ring stays mapped until
 * the answer to that is there: the kernel may drop clean pages that nobody has mapped. False: it
 * cannot be mapped.
 */
bool fixture_map_ring(int socket, const int fds[2], struct fixture_mapping *ret_mapping);
/* Leaves the ack page mapped, which is the caller's. */
void fixture_unmap_ring(struct fixture_mapping *mapping);
/* The ack page of the ring that fixture_receive() has mapped last. */
void *fixture_last_ack(void);
/*
 * The next reply that is neither a doorbell nor a ring; NULL: the daemon hung up. A ring is mapped
 * and reported as such, and its descriptors are in fds (-1 where none came) unless NULL.
 */
Loaderd__Reply *fixture_receive(int socket, int fds[2]);
/* Connects and opens a feed with 4 slots, whose ring is reported as mapped; returns the socket. */
int fixture_open_bare(const struct fixture *fixture, const char *dataset, const char *pipeline,
		      int ret_fds[2]);
/* The daemon's status; free with loaderd__reply__free_unpacked(). */
Loaderd__Reply *fixture_status(const struct fixture *fixture);
/* Waits until so many slots of the one feed hold batches that its client may take. */
void fixture_wait_for_slots(const struct fixture *fixture, uint32_t ready);
