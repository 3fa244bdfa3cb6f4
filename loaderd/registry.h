/*
 * Open datasets, each opened once however many feeds read it, and the list of samples that could not be decoded. A dataset is
 * the same one when path, device, inode, size and modification time agree, so that a file replaced by a new one is opened anew
 * while old feeds keep the old one. Any thread; opening may take long and belongs on a chores thread.
 */
#pragma once

#include "dataset.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum {
	REGISTRY_BAD_MAX = 256,  /* records kept */
	REGISTRY_TEXT_MAX = 256, /* bytes of each text */
};

/* A sample that could not be used. */
struct registry_bad {
	char dataset[REGISTRY_TEXT_MAX];
	char source[REGISTRY_TEXT_MAX]; /* "" when not recorded */
	char text[REGISTRY_TEXT_MAX];
	uint64_t index;
	uint64_t count; /* times met */
};

struct registry_entry {
	struct dataset *dataset;
	dev_t device;
	ino_t inode;
	off_t size;
	struct timespec modified;
	unsigned users;
	struct registry_entry *next;
};

struct registry {
	pthread_mutex_t mutex;
	struct registry_entry *entries;
	struct registry_bad *bad; /* [REGISTRY_BAD_MAX], the oldest is overwritten */
	uint64_t bad_total;       /* records ever added; the next goes to bad_total % REGISTRY_BAD_MAX */
	uint64_t bad_logged;      /* records handed to registry_next_bad */
	int event_fd;             /* rung when a record was added */
};

int registry_init(struct registry *registry);
void registry_deinit(struct registry *registry);
/* path must be canonical. Errors as dataset_open(). */
int registry_acquire(struct registry *registry, const char *path, struct dataset **ret_dataset,
		     struct packimg_error *error);
void registry_release(struct registry *registry, struct dataset *dataset);
/* Notes a failure: the first of a sample makes a record, later ones count. */
void registry_report(struct registry *registry, struct dataset *dataset, uint64_t index,
		     const char *text);
/* The next record not yet logged. *ret_lost: records that were overwritten before that. */
bool registry_next_bad(struct registry *registry, struct registry_bad *ret_bad, uint64_t *ret_lost);
/* Copies up to `room` of the newest records, newest first. */
unsigned registry_list_bad(struct registry *registry, struct registry_bad *bad, unsigned room);
