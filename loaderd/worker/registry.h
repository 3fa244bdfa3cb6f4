/*
 * The open datasets, each mapped once however many feeds read it, and the list of samples that
 * could not be decoded. Two opens share a dataset if the path is equal and device, inode, size and
 * modification time of all files are. Every feed passes fds of all files, since permission to open
 * one shard does not imply permission to open the next. Any thread; opening may block and belongs
 * on a job thread.
 */
#pragma once

#include "loaderd/io/dataset.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum {
	REGISTRY_BAD_MAX = 256,  /* records kept */
	REGISTRY_TEXT_MAX = 256, /* bytes per text */
	REGISTRY_POISON_MAX = 64,
};

/* A sample that could not be decoded. */
struct registry_bad {
	char dataset[REGISTRY_TEXT_MAX];
	char source[REGISTRY_TEXT_MAX]; /* "" when not recorded */
	char text[REGISTRY_TEXT_MAX];
	uint64_t index;
	uint64_t count; /* occurrences */
};

/* Identity and version of a file. */
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
	uint32_t part_count;
	uint32_t *part_files; /* [part_count], owned: files of each part */
	unsigned users;
	struct registry_entry *next;
};

/* A sample that must not be decoded. */
struct registry_poison {
	uint8_t uuid[16];
	uint64_t sample;
};

/* A dataset that must not be opened. */
struct registry_ban {
	uint8_t uuid[16];
	unsigned faults; /* workers that its samples have crashed */
	uint64_t until_ns;
};

struct registry {
	pthread_mutex_t mutex;
	struct registry_poison poison[REGISTRY_POISON_MAX];
	unsigned poison_count;
	struct registry_ban bans[REGISTRY_POISON_MAX];
	unsigned ban_count;
	struct registry_entry *entries;
	struct registry_bad *bad; /* [REGISTRY_BAD_MAX], a ring buffer */
	/* records added so far; the next goes to bad_total % REGISTRY_BAD_MAX */
	uint64_t bad_total;
	uint64_t bad_logged; /* records returned by registry_next_bad() */
	int event_fd;        /* signalled when a record is added */
};

int registry_init(struct registry *registry);
void registry_deinit(struct registry *registry);
/*
 * Finds or opens the dataset in these files, joined if there is more than one part. Sets the fds
 * that it keeps to -1; the caller closes the rest, even after an error. filling: the files are
 * still being filled; then the dataset is opened for this caller alone, since what is known of its
 * samples depends on their turns. Returns errors as dataset_open() does, and -EBADMSG for a banned
 * dataset.
 */
int registry_acquire(struct registry *registry, const struct dataset_files *parts,
		     uint32_t part_count, bool filling, struct dataset **ret_dataset,
		     struct packimg_error *error);
/* Returns whether fds refer to the first `count` files of the dataset. */
bool registry_same_files(struct registry *registry, const struct dataset *dataset, const int *fds,
			 uint32_t count);
void registry_release(struct registry *registry, struct dataset *dataset);
/* Marks a sample bad in datasets of this UUID that are opened from now on. */
void registry_poison(struct registry *registry, const uint8_t uuid[16], uint64_t sample);
/* Refuses to open datasets of this UUID for `seconds`. */
void registry_ban(struct registry *registry, const uint8_t uuid[16], unsigned faults,
		  unsigned seconds);
/* Records a failure: the first of a sample adds a record, later ones increment its count. */
void registry_report(struct registry *registry, struct dataset *dataset, uint64_t index,
		     const char *text);
/*
 * Returns the next record to log, or false if there is none. *ret_lost: records overwritten before
 * they could be returned.
 */
bool registry_next_bad(struct registry *registry, struct registry_bad *ret_bad, uint64_t *ret_lost);
/* Copies up to `max` records, newest first, and returns their number. */
unsigned registry_list_bad(struct registry *registry, struct registry_bad *bad, unsigned max);
