/*
 * Rate against bytes: a sample of images stored in one way or another, and how fast a pipeline makes finished samples of it. Ways are first
 * stored (all threads), then measured together: one thread, rounds in which each way has its turn, the CPU's own clock, medians, so that a busy
 * machine disturbs all alike and as little as can be. A way and what it holds belong to the caller; one thread calls.
 */
#pragma once

#include "memory.h"
#include "packimg.h"
#include "unindexed.h"

struct transform;

enum trial_kind {
	TRIAL_STORED,   /* as the dataset holds it */
	TRIAL_VERBATIM, /* JPEGs as they are, with an index */
	TRIAL_BARE,     /* JPEGs as they are, without */
	TRIAL_JPEG,     /* encoded again, with an index */
	TRIAL_RAW_ZSTD,
	TRIAL_RAW,
};

/* One image of the sample. */
struct trial_image {
	const char *name;
	const uint8_t *data; /* a JPEG, PNG or WebP file; 64 readable bytes follow */
	size_t size;
	const struct packimg_sample *stored; /* for TRIAL_STORED; may be NULL otherwise */
};

struct trial_way {
	enum trial_kind kind;
	uint32_t short_side; /* pixels at most; 0: as it is */
	int quality;         /* of TRIAL_JPEG */

	/* After trial_store(). */
	uint64_t images;     /* that could be stored */
	uint64_t bytes;      /* of all, indexes included */
	uint64_t index_bytes;
	struct unindexed_counts unindexed;
	struct packimg_error first_fault; /* of an image that could not; empty: none */
	struct packimg_sample *samples;
	uint8_t *memory;

	/* After trial_measure(). */
	double images_per_s; /* finished, by one core */
};

/* "originals, indexed", "short side 256, quality 90": into text, which is returned. */
const char *trial_name(const struct trial_way *way, char *text, size_t size);
/* 0, -EINTR, -ENOMEM. Images that cannot be used are left out and counted. */
int trial_store(struct trial_way *way, const struct trial_image *images, uint64_t count, unsigned jobs,
		struct packimg_error *error);
void trial_drop(struct trial_way *way);
/* Measures ways that hold images, seconds of CPU time for each. 0, -EINTR, or the fault of a sample that could not be decoded. */
int trial_measure(struct trial_way *ways, uint32_t count, const struct transform *transform, double seconds,
		  struct packimg_error *error);
