/*
 * Open datasets, each mapped once however many feeds read it, and the list of samples that could
 * not be decoded. A dataset is the same one when path and, of all its files, device, inode, size
 * and modification time agree: every feed shows all of them, since a client that can open one shard
 * need not be allowed the next. Any thread; opening may take long and belongs on a job thread.
 */
#pragma once

#include "loaderd/io/dataset.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum {
	REGISTRY_BAD_MAX = 256,  /* records kept */
	REGISTRY_TEXT_MAX = 256, /* bytes of each text */
	REGISTRY_POISON_MAX = 64,
};

/* A sample that could not be used. */
struct registry_bad {
	char dataset[REGISTRY_TEXT_MAX];
	char source[REGISTRY_TEXT_MAX]; /* "" when not recorded */
	char text[REGISTRY_TEXT_MAX];
	uint64_t index;
	uint64_t count; /* times met */
};

/* What tells a file, in the state that it is in, from others. */
struct registry_file {
	dev_t device;
	ino_t inode;
	off_t size;
	struct timespec modified;
};

struct registry_entry {
	struct dataset *dataset;
	struct registry_file *files; /* [file_count], owned */
	uint32_t file_count;
	unsigned users;
	struct registry_entry *next;
};

/* A sample that is not to be decoded. */
struct registry_poison {
	uint8_t uuid[16];
	uint64_t sample;
};

/* A dataset that is not to be opened. */
struct registry_ban {
	uint8_t uuid[16];
	unsigned faults; /* workers that decoding its samples has ended */
	uint64_t until_ns;
};

struct registry {
	pthread_mutex_t mutex;
	struct registry_poison poison[REGISTRY_POISON_MAX];
	unsigned poison_count;
	struct registry_ban bans[REGISTRY_POISON_MAX];
	unsigned ban_count;
	struct registry_entry *entries;
	struct registry_bad *bad; /* [REGISTRY_BAD_MAX], the oldest is overwritten */
	/* records ever added; the next goes to bad_total % REGISTRY_BAD_MAX */
	uint64_t bad_total;
	uint64_t bad_logged; /* records handed to registry_next_bad */
	int event_fd;        /* rung when a record was added */
};

int registry_init(struct registry *registry);
void registry_deinit(struct registry *registry);
/*
 * The dataset whose files are fds. Those that it keeps are set to -1; the caller closes the rest,
 * whatever is returned. Errors as dataset_open(); -EBADMSG also for one that is refused.
 */
int registry_acquire(struct registry *registry, const char *path, int *fds, uint32_t count,
		     struct dataset **ret_dataset, struct packimg_error *error);
/* Are these the first `count` files of the dataset, opened once more? */
bool registry_same_files(struct registry *registry, const struct dataset *dataset, const int *fds,
			 uint32_t count);
void registry_release(struct registry *registry, struct dataset *dataset);
/* Datasets of this UUID that are opened from now on have a bad sample. */
void registry_poison(struct registry *registry, const uint8_t uuid[16], uint64_t sample);
/* Datasets of this UUID are refused for this long. */
void registry_ban(struct registry *registry, const uint8_t uuid[16], unsigned faults,
		  unsigned seconds);
/* Notes a failure: the first of a sample makes a record, later ones count. */
void registry_report(struct registry *registry, struct dataset *dataset, uint64_t index,
		     const char *text);
/* The next record not yet logged. *ret_lost: records that were overwritten before that. */
bool registry_next_bad(struct registry *registry, struct registry_bad *ret_bad, uint64_t *ret_lost);
/* Copies up to `room` of the newest records, newest first. */
unsigned registry_list_bad(struct registry *registry, struct registry_bad *bad, unsigned room);
