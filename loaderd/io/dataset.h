/*
 * One open dataset as the daemon sees it: the packed image files, what is known about their samples
 * (checksum verified, found damaged), and the guard over their mappings. Shared by all feeds that
 * read it; safe for any number of threads. The reference count is the owner's business (see
 * registry.h).
 */
#pragma once

#include "format/packimg.h"
#include "loaderd/io/sigbus_guard.h"

#include <stdbool.h>
#include <stdint.h>

struct dataset {
	struct packimg *image;
	bool mapped; /* false: its samples' bytes are copied with packimg_read() */
	char *path;  /* as the client named it */
	uint64_t count;
	uint64_t bytes; /* of all files */
	struct sigbus_guard_map guard;
	struct sigbus_guard_region *regions; /* owned; one per shard */
	_Atomic uint64_t *checked;           /* bit per sample: the checksum has been verified */
	/* bit per sample: it was wrong, or the file ended before it */
	_Atomic uint64_t *damaged;
	_Atomic uint64_t *reported; /* bit per sample: dataset_first_report() has been asked */
	/*
	 * Set by the first fault: pages may have been replaced under samples verified earlier, so
	 * all are verified at each use.
	 */
	_Atomic bool suspect;
};

/*
 * Opens a dataset whose files are fds, which it takes over on success; path is for texts. mapped:
 * by packimg_open_fds(), whose errors it has; else by packimg_open_unmapped(). The files are read
 * inside a guard: one that is cut while it is being opened is -EBADMSG.
 */
int dataset_open(const char *path, const int *fds, uint32_t count, bool mapped,
		 struct dataset **ret_dataset, struct packimg_error *error);
void dataset_free(struct dataset *dataset);

/*
 * The caller is inside sigbus_guard_enter(&dataset->guard). Looks up a sample and verifies its
 * checksum unless that is known to be right; data and side may afterwards be replaced by a copy
 * read otherwise, if verify is false and dataset_verify() is called on the copy. -EBADMSG: damaged,
 * with a sentence in error.
 */
int dataset_sample(struct dataset *dataset, uint64_t index, bool verify,
		   struct packimg_sample *ret_sample, struct packimg_error *error);
int dataset_verify(struct dataset *dataset, const struct packimg_sample *sample,
		   struct packimg_error *error);
/* 0, or -EBADMSG with a sentence: the sample was found damaged before. */
int dataset_known(struct dataset *dataset, uint64_t index, struct packimg_error *error);
/* Marks a sample as damaged for good. */
void dataset_condemn(struct dataset *dataset, uint64_t index);
/* True the first time it is called for a sample: the caller then reports it. */
bool dataset_first_report(struct dataset *dataset, uint64_t index);
