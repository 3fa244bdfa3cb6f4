/*
 * What the attacks share. One service, run by an unprivileged user of its own; ALICE attacks, BOB
 * is served beside it. An attack is a function that runs in a process of ALICE's for attack_ms(); a
 * failed assertion there, or one in its check, fails the row. No accounts are made: users are
 * numbers. Needs root, to be all of these users in turn.
 */
#pragma once

#include "tests/integration/loaderd/loaderd_fixture.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SERVICE = 64100,
	ALICE = 64201,
	BOB = 64202,
	CROWD = 64300, /* and following: users who come in numbers */
};

enum dataset_kind {
	DATASET_JPEG,
	DATASET_INDEXED,
	DATASET_RAW,
	DATASET_ZSTD,
	DATASET_SET,       /* raw, in two files */
	DATASET_SMALL_SET, /* the same with fewer images and classes */
};

struct stage {
	struct fixture fixture;
	char alices[PATH_MAX], bobs[PATH_MAX];        /* folders of theirs, closed to others */
	char images[PATH_MAX], bobs_images[PATH_MAX]; /* a dataset of each */
	struct feed_options alice, bob;               /* for feeds over good datasets of theirs */
};

struct attack {
	const char *name;
	void (*run)(const struct stage *stage);
	/*
	 * In the test's own process, as root; NULL: nothing. Before, while the control client goes
	 * on; and afterwards.
	 */
	void (*prepare)(struct stage *stage);
	void (*check)(struct stage *stage);
	unsigned processes; /* that run() keeps busy at once; 0: one */
	/*
	 * The same system calls against a server that only reads, at the stage's socket. It is
	 * run() itself where run() needs no replies; NULL: there is none.
	 */
	void (*without_daemon)(const struct stage *stage);
};

extern const struct attack attacks_on_files[], attacks_with_descriptors[], attacks_by_numbers[],
	attacks_on_memory[]; /* each ends with a row without a name */

/*
 * Writes 60 images with fields, classes and metadata to FOLDER/NAME.pimg, which is the owner's
 * alone. Returns the path, static.
 */
const char *attack_dataset(const char *folder, const char *name, enum dataset_kind kind,
			   uid_t owner);

/*
 * Makes the folders and a good dataset for each of the two. The service, which is to run as
 * SERVICE, is not started.
 */
void attack_stage(struct stage *stage);

unsigned attack_ms(void);
uint64_t attack_deadline(void);
uint64_t attack_now_ms(void);
uint64_t attack_random(void);

/*
 * A connection, or -1 where none is to be had. A process that uses only this one connects no more
 * often than a user may.
 */
int attack_connect(const struct stage *stage);
/* The same as fast as it goes. */
int attack_connect_now(const struct stage *stage);
/* Sends OpenFeed with 4 slots; GetDataset when pipeline is NULL. False when nobody takes it. */
bool attack_ask(int socket, const char *dataset, const char *pipeline, unsigned batch_size);
/*
 * The next reply, for which it waits up to 20 s; NULL: hung up. Free as usual. A ring is mapped and
 * reported as such, and the reply is the next one; its descriptors are in fds unless NULL.
 */
Loaderd__Reply *attack_reply(int socket, int fds[2]);
/* The same without mapping: a ring is a reply. */
Loaderd__Reply *attack_reply_bare(int socket, int fds[2]);
/*
 * Asks for a feed of 4 slots of 16 images, and takes the ring's descriptors without mapping them.
 * Returns the connection.
 */
int attack_take_ring(const struct stage *stage, int file, const char *pipeline, int fds[2]);
/* Sends RingMapped. */
void attack_send_mapped(int socket);
/* Sends Files. False when nobody takes it. */
bool attack_files(int socket, uint32_t first, uint32_t total, bool direct, const int *fds,
		  unsigned count);
/*
 * Asks, answers NeedFiles with this descriptor, and returns the positive errno of the answer; 0:
 * served; ECONNRESET: hung up, or the descriptor cannot be passed. Waits while the user has
 * connected too often. The descriptor stays the caller's. When served, ret_socket (unless NULL) and
 * fds are the caller's to close.
 */
int attack_open(const struct stage *stage, int file, const char *pipeline, int *ret_socket,
		int fds[2]);
/* Sends a descriptor, which stays the caller's, to an end that nobody reads from. */
void attack_put_in_flight(int fd, int ret_pair[2]);
/* As fixture_open(). Feeds that were closed just now still count for a moment: waits for room. */
struct feed *attack_open_feed(const struct feed_options *options);
