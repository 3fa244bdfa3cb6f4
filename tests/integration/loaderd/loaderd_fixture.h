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
	pid_t daemon; /* pid of the supervisor; 0 if none runs */
	int log;      /* fd of the daemon's log, see daemon_log.h */
	/* Set the following between fixture_init() and fixture_start(). */
	/* uid of the daemon, which has no supplementary groups; 0 means the test's */
	uid_t uid;
	bool logs_as_configured; /* use the configured log level instead of "warning" */
	unsigned descriptors;    /* RLIMIT_NOFILE of the daemon; 0 keeps the test's */
	unsigned processes;      /* RLIMIT_NPROC; 0 keeps the test's */
	uint64_t file_bytes;     /* RLIMIT_FSIZE; 0 keeps the test's */
	const char *group; /* path of cgroup.procs of the cgroup in which the daemon starts; NULL
			      keeps the test's */
};

void fixture_init(struct fixture *fixture);
/* Stops the daemon and removes the directory. */
void fixture_deinit(struct fixture *fixture);
/*
 * For TEST_MAIN(): initialises one fixture, to which *state then points, and frees it.
 * fixture_teardown_running() first expects that the daemon still runs and ends without an error.
 */
int fixture_setup(void **state);
int fixture_teardown(void **state);
int fixture_teardown_running(void **state);
enum { FIXTURE_FOLDER_MAX = 64 };
/*
 * main() of tests whose datasets outlive a fixture: makes a folder for them, runs the tests with
 * fixture_setup(), and removes the folder. Returns the exit status.
 */
int fixture_main(const char *name, char folder[FIXTURE_FOLDER_MAX]);

/*
 * Writes NAME.pimg with `count` images: JPEGs with sides of 40 to 120 pixels, or raw images of
 * `side` x `side`. The label is index % 10. The fields are "number" (int64: the index), "half"
 * (double: index / 2, missing for every third sample) and "word" (bytes: "sample INDEX"). Returns
 * the path, in static storage.
 */
const char *fixture_dataset(struct fixture *fixture, const char *name, uint64_t count,
			    enum fixture_kind kind, uint32_t side);
/* Same, with other names for the FIXTURE_CLASSES classes. */
const char *fixture_dataset_of(struct fixture *fixture, const char *name, uint64_t count,
			       enum fixture_kind kind, uint32_t side, const char *const *classes);

struct pimg_section;
struct pimg_field_stats;
/* Changes a file's section of field statistics, and corrects the checksums. Returns the path. */
const char *fixture_patch_fields(const char *path, void (*change)(struct pimg_section *section,
								  struct pimg_field_stats *stats));
/* A change for fixture_patch_fields(): hides the section, as in a file of an earlier version. */
void fixture_hide_fields(struct pimg_section *section, struct pimg_field_stats *stats);

/*
 * Starts the daemon with extra arguments, terminated by NULL, and waits until it answers.
 * environment is "NAME=value" or NULL. Passes LOADERD_TEST_IO as --io, with little room for
 * read-ahead.
 */
void fixture_start(struct fixture *fixture, const char *environment, ...);
/* Returns the pid of the worker that serves this user; starts one if necessary. */
pid_t fixture_worker(const struct fixture *fixture);
/* Returns the pid of the worker that serves a user; 0 if there is none, which it does not start. */
pid_t fixture_worker_of(const struct fixture *fixture, uid_t uid);
/*
 * Permanently switches to this uid and the group of the same number, without supplementary groups.
 * Ends the process on failure.
 */
void fixture_become(uid_t uid);
/* Sends the signal to the daemon and waits for its end; returns the wait status. */
int fixture_stop(struct fixture *fixture, int signal_number);

/* Returns options for a shuffled feed of this dataset: batch size 32, seed 5. */
struct feed_options fixture_options(const struct fixture *fixture, const char *dataset,
				    const char *pipeline);
struct feed *fixture_open(const struct feed_options *options);
/* Returns a section of a batch. The test fails if the feed has none of that name. */
struct feed_section fixture_section(struct feed *feed, const struct feed_batch *batch,
				    const char *name);
/*
 * Takes and releases the next batch. Returns a hash of number, count, pixels, labels, field values
 * and flags; 0 on FEED_END.
 */
uint64_t fixture_hash_next(struct feed *feed);
/* Combines the hashes of the next `count` batches. */
uint64_t fixture_hash(struct feed *feed, unsigned count);
/* Returns how long threads of a process were runnable but had no CPU, summed over all threads. */
uint64_t fixture_queued_ns(pid_t pid);
/*
 * Count the open fds of a process, its mappings of files whose path contains `name`, and its ring
 * mappings.
 */
unsigned fixture_descriptors(pid_t pid);
unsigned fixture_mappings(pid_t pid, const char *name);
unsigned fixture_ring_mappings(pid_t pid);

/* Raw access to the protocol, for clients that misbehave. */
int fixture_connect(const struct fixture *fixture);
void fixture_send(int socket, const Loaderd__Request *request);
/* Same, with fds, which the caller keeps. */
void fixture_send_with(int socket, const Loaderd__Request *request, const int *fds, unsigned count);
/* Answers NeedFiles: announces `total` files, but sends only the first one, the file at path. */
void fixture_send_file(int socket, const char *path, const Loaderd__NeedFiles *need,
		       uint32_t total);
struct fixture_mapping {
	void *ring; /* NULL if the ring is not mapped */
	size_t size;
	void *ack; /* the ack page, mapped writable */
};
/*
 * Maps a ring and its ack page, reads every page of them and sends RingMapped. Keep the ring mapped
 * until the reply arrives: the kernel may drop clean pages that no process maps. Returns false if
 * the ring cannot be mapped.
 */
bool fixture_map_ring(int socket, const int fds[2], struct fixture_mapping *ret_mapping);
/* Unmaps the ring but not the ack page, which the caller owns. */
void fixture_unmap_ring(struct fixture_mapping *mapping);
/* Returns the ack page of the ring that fixture_receive() mapped last. */
void *fixture_last_ack(void);
/*
 * Returns the next reply that is neither a doorbell nor a ring; NULL if the daemon hung up. Maps a
 * ring and reports it as mapped. The ring's fds go to fds (-1 if no ring arrived) unless that is
 * NULL.
 */
Loaderd__Reply *fixture_receive(int socket, int fds[2]);
/* Connects, opens a feed with 4 slots, and reports its ring as mapped. Returns the socket. */
int fixture_open_bare(const struct fixture *fixture, const char *dataset, const char *pipeline,
		      int ret_fds[2]);
/* Returns the daemon's status; free it with loaderd__reply__free_unpacked(). */
Loaderd__Reply *fixture_status(const struct fixture *fixture);
/* Waits until `ready` slots of the only feed hold batches that its client can take. */
void fixture_wait_for_slots(const struct fixture *fixture, uint32_t ready);
/* Returns true in a build with a sanitizer, which distorts timing and memory use. */
bool sanitized(void);
