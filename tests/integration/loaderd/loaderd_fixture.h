/*
 * Common code of the daemon's integration tests: datasets made in a temporary directory, a daemon
 * process on a socket there, and hashes of a feed's batches. A failure ends the test through
 * cmocka's assertions. The environment variable LOADERD names the daemon.
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
	pid_t daemon; /* the supervisor; 0 if none runs */
	int log;      /* of the daemon; see daemon_log.h */
	/* Set the following between fixture_init() and fixture_start(). */
	/* uid of the daemon, which has no other group than its own; 0 means the test's user */
	uid_t uid;
	bool logs_as_configured; /* use the configured log level instead of warnings */
	unsigned descriptors;    /* RLIMIT_NOFILE of the daemon; 0 keeps the test's */
	unsigned processes;      /* RLIMIT_NPROC; 0 keeps the test's */
	uint64_t file_bytes;     /* RLIMIT_FSIZE; 0 keeps the test's */
	const char
		*group; /* cgroup.procs of the cgroup in which it starts; NULL keeps the test's */
};

void fixture_init(struct fixture *fixture);
/* Stops the daemon and removes the directory. */
void fixture_deinit(struct fixture *fixture);

/*
 * Writes NAME.pimg with count images: JPEGs with sides of 40 to 120 pixels, or raw ones of `side`
 * by `side`. The label is index % 10; the fields are "number" (int64: the index), "half" (double:
 * index / 2, missing for every third), "word" (bytes: "sample INDEX"). Returns the path, in static
 * storage.
 */
const char *fixture_dataset(struct fixture *fixture, const char *name, uint64_t count,
			    enum fixture_kind kind, uint32_t side);
/* Same with other names for its FIXTURE_CLASSES classes. */
const char *fixture_dataset_of(struct fixture *fixture, const char *name, uint64_t count,
			       enum fixture_kind kind, uint32_t side, const char *const *classes);

/*
 * Starts the daemon with extra arguments, which end with NULL, and waits until it answers.
 * environment is "NAME=value" or NULL. Passes on LOADERD_TEST_IO as --io, with little room for
 * read-ahead.
 */
void fixture_start(struct fixture *fixture, const char *environment, ...);
/* Pid of the worker that serves this user; starts it if necessary. */
pid_t fixture_worker(const struct fixture *fixture);
/* Pid of the worker that serves a user; 0 if there is none. Does not start it. */
pid_t fixture_worker_of(const struct fixture *fixture, uid_t uid);
/*
 * Switches to this uid for good, with the group of the same number only. Ends the process on
 * failure.
 */
void fixture_become(uid_t uid);
/* Sends the signal and waits; returns the wait status. */
int fixture_stop(struct fixture *fixture, int signal_number);

/* Options for a shuffled feed of this dataset: batch size 32, seed 5. */
struct feed_options fixture_options(const struct fixture *fixture, const char *dataset,
				    const char *pipeline);
struct feed *fixture_open(const struct feed_options *options);
/*
 * Takes the next batch and releases it. The hash covers position, count, pixels, labels, numbers
 * and flags. Returns 0 on FEED_END.
 */
uint64_t fixture_hash_next(struct feed *feed);
/* Combines the hashes of the next `count` batches. */
uint64_t fixture_hash(struct feed *feed, unsigned count);
/* Time for which threads of a process were runnable but had no CPU, summed over all threads. */
uint64_t fixture_queued_ns(pid_t pid);
/*
 * Numbers of a process's open fds, of its file mappings whose path contains `name`, and of its ring
 * mappings.
 */
unsigned fixture_descriptors(pid_t pid);
unsigned fixture_mappings(pid_t pid, const char *name);
unsigned fixture_ring_mappings(pid_t pid);

/* Raw protocol access, for clients that misbehave. */
int fixture_connect(const struct fixture *fixture);
void fixture_send(int socket, const Loaderd__Request *request);
/* Same with fds, which remain the caller's. */
void fixture_send_with(int socket, const Loaderd__Request *request, const int *fds, unsigned count);
/* Answers NeedFiles with `total` files, the first requested of which is at path. */
void fixture_send_file(int socket, const char *path, const Loaderd__NeedFiles *need,
		       uint32_t total);
struct fixture_mapping {
	void *ring; /* NULL if not mapped */
	size_t size;
	void *ack; /* one page, writable */
};
/*
 * Reads every page of a ring and its ack page, and sends RingMapped. Keep the ring mapped until the
 * answer arrives: the kernel may drop clean pages that no process maps. Returns false if the ring
 * cannot be mapped.
 */
bool fixture_map_ring(int socket, const int fds[2], struct fixture_mapping *ret_mapping);
/* Unmaps the ring but not the ack page, which the caller owns. */
void fixture_unmap_ring(struct fixture_mapping *mapping);
/* Ack page of the ring that fixture_receive() mapped last. */
void *fixture_last_ack(void);
/*
 * Returns the next reply that is neither a doorbell nor a ring; NULL if the daemon hung up. Maps a
 * ring and reports it as mapped; the ring's fds go to fds (-1 if none came) unless that is NULL.
 */
Loaderd__Reply *fixture_receive(int socket, int fds[2]);
/* Connects, opens a feed with 4 slots and reports its ring as mapped; returns the socket. */
int fixture_open_bare(const struct fixture *fixture, const char *dataset, const char *pipeline,
		      int ret_fds[2]);
/* The daemon's status; free it with loaderd__reply__free_unpacked(). */
Loaderd__Reply *fixture_status(const struct fixture *fixture);
/* Waits until `ready` slots of the only feed hold batches that its client may take. */
void fixture_wait_for_slots(const struct fixture *fixture, uint32_t ready);
