/*
 * What a worker thread spends its time on: one row for each stage, from which the daemon's
 * counters, its status, loaderctl and loaderbench take what they need. A new stage is a row here,
 * its field in feed.proto's FeedStatus, and the place that measures it.
 *
 * Times are arrays of STAGE_COUNT, by enum stage; nanoseconds unless they say otherwise.
 */
#pragma once

#include <stdint.h>

/*
 * Rows stand in the order in which a sample meets them, work first. A row is: the constant, the
 * name (NAME_ns in FeedStatus and JSON, NAME_us in loaderbench's JSON), what is the limit where
 * most time goes there (enum limit), its place among the stages in loaderctl's JSON, the title of
 * its column in loaderbench, and what a thread waits for there, NULL where it has the CPU.
 */
/* clang-format off */
#define STAGES(X)                                                                                  \
	X(READ, read, OTHER, 0, "read", NULL)         /* finding and verifying stored bytes */     \
	X(DECODE, decode, DECODE, 1, "decode", NULL)  /* those to pixels of the region wanted */   \
	X(RESIZE, resize, AUGMENT, 2, "resize", NULL) /* those to rows, resized and flipped */     \
	X(AUGMENT, augment, AUGMENT, 5, "augment", NULL) /* colour, blur, warping */               \
	X(STORE, store, AUGMENT, 4, "store", NULL)    /* normalising, casting, writing rows */     \
	X(OTHER, other, OTHER, 3, "other", NULL)      /* labels, fields, order, handing over */    \
	X(WAIT, wait, STORAGE, 6, "storage", "stored bytes") /* asleep until they came */          \
	X(QUEUED, queued, CPUS, 7, "cpu", "a CPU")    /* ready while others had the CPUs */
/* clang-format on */

enum stage {
#define STAGE(constant, ...) STAGE_##constant,
	STAGES(STAGE) STAGE_COUNT,
#undef STAGE
	STAGE_WORK_COUNT = STAGE_WAIT /* work stands first */
};

enum limit {
	LIMIT_NONE, /* nobody waited, or both sides alike */
	/* slots are full: the client takes batches more slowly than they are made */
	LIMIT_CONSUMER,
	LIMIT_STORAGE, /* threads sleep until stored bytes come */
	LIMIT_CPUS,    /* threads wait for CPUs that others use, more than they work */
	LIMIT_DECODE,  /* the CPUs are busy, most of all with decoding, */
	LIMIT_AUGMENT, /* resizing, augmenting and storing, */
	LIMIT_OTHER,   /* or verifying, collecting and handing over */
};

struct stage_row {
	const char *name, *key, *column, *waits_for;
	enum limit limit;
	unsigned field; /* offset in Loaderd__FeedStatus */
};

extern const struct stage_row stages[STAGE_COUNT];

struct Loaderd__FeedStatus;
/* Into the fields of a status, and added from them. */
void stages_put(const uint64_t times[STAGE_COUNT], struct Loaderd__FeedStatus *status);
void stages_add(uint64_t times[STAGE_COUNT], const struct Loaderd__FeedStatus *status);
/* CPU time. */
uint64_t stages_work(const uint64_t times[STAGE_COUNT]);
