/*
 * Common code of the attacks. One service runs as an unprivileged user; ALICE attacks it, BOB is a
 * regular client at the same time. An attack is a function that runs in a process of ALICE for
 * attack_ms(); a failed assertion in it or in its check fails the row. The test creates no
 * accounts: users are only uids. Needs root, to switch to all these users.
 */
#pragma once

#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SERVICE = 64100,
	ALICE = 64201,
	BOB = 64202,
	CROWD = 64300, /* first of a range of uids, for attacks by many users */
};

enum dataset_kind {
	DATASET_JPEG,
	DATASET_INDEXED,
	DATASET_RAW,
	DATASET_ZSTD,
	DATASET_SET,       /* raw, in two files */
	DATASET_SMALL_SET, /* like DATASET_SET, with fewer images and classes */
};

struct stage {
	struct fixture fixture;
	char alices[PATH_MAX], bobs[PATH_MAX];        /* per-user directories, closed to others */
	char images[PATH_MAX], bobs_images[PATH_MAX]; /* one dataset for each user */
	struct feed_options alice, bob; /* options for feeds over their valid datasets */
};

struct attack {
	const char *name;
	void (*run)(const struct stage *stage);
	/*
	 * Hooks that run in the test's process, as root; may be NULL. prepare runs before the
	 * attack, while the control client is active; check runs after it.
	 */
	void (*prepare)(struct stage *stage);
	void (*check)(struct stage *stage);
	unsigned processes; /* number of processes that run() keeps busy at once; 0 means 1 */
	/*
	 * Makes the same system calls against a server on the stage's socket that only reads; NULL
	 * if there is none. Equal to run if run() needs no replies.
	 */
	void (*without_daemon)(const struct stage *stage);
};

extern const struct attack attacks_on_files[], attacks_with_descriptors[], attacks_by_numbers[],
	attacks_on_memory[]; /* each table ends with a row whose name is NULL */

/*
 * Writes 60 images with fields, classes and metadata to FOLDER/NAME.pimg, accessible to the owner
 * only. Returns the path, in static storage.
 */
const char *attack_dataset(const char *folder, const char *name, enum dataset_kind kind,
			   uid_t owner);

/*
 * Creates the directories and a valid dataset for both users. Does not start the service, which has
 * to run as SERVICE.
 */
void attack_stage(struct stage *stage);

unsigned attack_ms(void);
uint64_t attack_deadline(void);
uint64_t attack_now_ms(void);
uint64_t attack_random(void);

/*
 * Connects; returns the socket, or -1 on failure. A process that uses only this function stays
 * within the per-user connection rate limit.
 */
int attack_connect(const struct stage *stage);
/* Like attack_connect(), without the rate limit. */
int attack_connect_now(const struct stage *stage);
/*
 * Sends OpenFeed with 4 slots, or GetDataset if pipeline is NULL. Returns false if the peer does
 * not accept it.
 */
bool attack_ask(int socket, const char *dataset, const char *pipeline, unsigned batch_size);
/*
 * Waits up to 20 s for the next reply; NULL if the daemon hangs up. The caller frees it. Maps a
 * ring, reports it as mapped, and returns the reply that follows; the ring's fds go to fds unless
 * that is NULL.
 */
Loaderd__Reply *attack_reply(int socket, int fds[2]);
/* Like attack_reply(), but returns a ring as a reply instead of mapping it. */
Loaderd__Reply *attack_reply_bare(int socket, int fds[2]);
/*
 * Requests a feed of 4 slots of 16 images and takes the ring's fds without mapping them. Returns
 * the connection.
 */
int attack_take_ring(const struct stage *stage, int file, const char *pipeline, int fds[2]);
/* Sends RingMapped. */
void attack_send_mapped(int socket);
/* Sends Files. Returns false if the peer does not accept it. */
bool attack_files(int socket, uint32_t first, uint32_t total, bool direct, const int *fds,
		  unsigned count);
/*
 * Opens a feed with `file` as the only file of the dataset: answers NeedFiles with it. Returns 0 on
 * success, else the positive errno of the reply; ECONNRESET if the daemon hung up or the fd cannot
 * be passed. Waits if the user exceeds the connection rate limit. The caller keeps `file`; on
 * success it also owns ret_socket (unless NULL) and fds.
 */
int attack_open(const struct stage *stage, int file, const char *pipeline, int *ret_socket,
		int fds[2]);
/* Leaves a copy of fd in flight in a socket pair that is never read. The caller keeps fd. */
void attack_put_in_flight(int fd, int ret_pair[2]);
/* Like fixture_open(), but waits for room, since feeds just closed still count for a moment. */
struct feed *attack_open_feed(const struct feed_options *options);
/* test_run(), skipped for users other than root. */
int test_run_as_root(CMFixtureFunction setup, CMFixtureFunction teardown);
