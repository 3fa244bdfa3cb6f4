/*
 * Common code of the attacks. One service runs as an unprivileged user. ALICE attacks it while BOB
 * is a regular client. An attack is a function that runs in a process of ALICE for attack_ms(); a
 * failed assertion in the attack or in its check fails the row. Users are only uids: the test
 * creates no accounts. Needs root, to switch to all these users.
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
	CROWD = 64300, /* first uid of a range, for attacks by many users */
};

enum dataset_kind {
	DATASET_JPEG,
	DATASET_INDEXED,
	DATASET_RAW,
	DATASET_ZSTD,
	DATASET_SET,       /* raw samples, in two files */
	DATASET_SMALL_SET, /* like DATASET_SET, with fewer images and classes */
};

struct stage {
	struct fixture fixture;
	char alice_folder[PATH_MAX],
		bob_folder[PATH_MAX];                 /* per-user directories, closed to others */
	char images[PATH_MAX], bobs_images[PATH_MAX]; /* per user: path of one dataset */
	struct feed_options alice, bob; /* per user: options for feeds of a valid dataset */
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
	unsigned processes; /* number of processes that run() keeps busy at the same time; 0 means 1
			     */
	/*
	 * Makes the same system calls on the stage's socket while the peer is a server that only
	 * reads; NULL if there is no such variant. Equal to run if run() needs no replies.
	 */
	void (*without_daemon)(const struct stage *stage);
};

extern const struct attack attacks_on_files[], attacks_with_descriptors[], attacks_by_numbers[],
	attacks_on_memory[], attacks_by_orders[],
	attacks_on_filling[]; /* each table ends with a row whose name is NULL */

/*
 * Writes 60 images with fields, classes and metadata to FOLDER/NAME.pimg. Only the owner may access
 * the file. Returns the path, in static storage.
 */
const char *attack_dataset(const char *folder, const char *name, enum dataset_kind kind,
			   uid_t owner);

/*
 * Creates the directories and a valid dataset for both users. Does not start the service, which
 * must run as SERVICE.
 */
void attack_stage(struct stage *stage);

unsigned attack_ms(void);
uint64_t attack_deadline(void);
uint64_t attack_now_ms(void);
uint64_t attack_random(void);

/*
 * Connects; returns the socket, or -1 on failure. Waits if necessary, so that a process that
 * connects only in this way stays within the per-user connection rate limit.
 */
int attack_connect(const struct stage *stage);
/* Like attack_connect(), but does not wait for the rate limit. */
int attack_connect_now(const struct stage *stage);
/* Sends a request of up to 8,192 bytes. Returns false if the daemon has hung up. */
bool attack_send(int socket, const Loaderd__Request *request, const int *fds, unsigned count);
/*
 * Sends OpenFeed with 4 slots, or GetDataset if pipeline is NULL. Returns false if the send fails.
 */
bool attack_ask(int socket, const char *dataset, const char *pipeline, unsigned batch_size);
/*
 * Waits up to 20 s for the next reply; NULL if the daemon hangs up. The caller frees it. If a ring
 * arrives, maps it, reports it as mapped and returns the reply after it; the ring's fds go to fds
 * unless that is NULL.
 */
Loaderd__Reply *attack_reply(int socket, int fds[2]);
/* Like attack_reply(), but returns the reply that carries a ring instead of mapping the ring. */
Loaderd__Reply *attack_reply_bare(int socket, int fds[2]);
/*
 * Requests a feed with 4 slots of 16 images and takes the ring's fds without mapping them. Returns
 * the connection.
 */
int attack_take_ring(const struct stage *stage, int file, const char *pipeline, int fds[2]);
/* Sends RingMapped. */
void attack_send_mapped(int socket);
/* Sends OpenFeed, of any size. Returns false if the send fails. */
bool attack_send_open(int socket, const Loaderd__OpenFeed *open);
/* Sends Files. Returns false if the send fails. */
bool attack_files(int socket, uint32_t first, uint32_t total, bool direct, const int *fds,
		  unsigned count);
/*
 * Sends Files with the one file that NeedFiles asks for. Returns false if the send fails: the
 * kernel refuses to pass some kinds of fds.
 */
bool attack_part_file(int socket, const Loaderd__NeedFiles *need, int fd);
/*
 * Opens a feed of a dataset with the single file `file`, which it sends in reply to NeedFiles.
 * Returns 0 on success, else the positive errno of the reply; ECONNRESET if the daemon hung up or
 * the fd cannot be passed. Waits if the user exceeds the connection rate limit. The caller keeps
 * `file`; on success it also owns *ret_socket (unless NULL) and fds.
 */
int attack_open(const struct stage *stage, int file, const char *pipeline, int *ret_socket,
		int fds[2]);
/* Same for any feed. lists: [6] the file to send for each PartFile, 4 for a feed of complete files.
 */
int attack_open_order(const struct stage *stage, const Loaderd__OpenFeed *open, const int *lists,
		      int *ret_socket);
/* Leaves a copy of fd in flight in a socket pair that is never read. The caller keeps fd. */
void attack_put_in_flight(int fd, int ret_pair[2]);
/*
 * Like fixture_open(), but retries while the limit is reached: a closed feed counts for a moment
 * longer.
 */
struct feed *attack_open_feed(const struct feed_options *options);
/* Like test_run(), but skips all tests unless run by root. */
int test_run_as_root(CMFixtureFunction setup, CMFixtureFunction teardown);
