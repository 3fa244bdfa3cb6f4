/*
 * Stages of a worker thread's time. The daemon's counters, its status, loaderctl and loaderbench
 * are generated from the rows of STAGES. To add a stage, add a row here, a field to FeedStatus in
 * feed.proto, and the code that measures it.
 *
 * Times are arrays of STAGE_COUNT elements indexed by enum stage, in nanoseconds unless stated
 * otherwise.
 */
#pragma once

#include <stdint.h>

/*
 * Rows are in the order in which a sample passes the stages, CPU work first. A row has: the
 * constant; the name (NAME_ns in FeedStatus and JSON, NAME_us in loaderbench's JSON); the enum
 * limit that applies if most time goes there; the position in loaderctl's JSON; the column title in
 * loaderbench; and what a thread waits for in that stage, NULL if it has the CPU.
 */
/* clang-format off */
#define STAGES(X)                                                                                  \
	X(READ, read, OTHER, 0, "read", NULL)         /* finding and verifying stored bytes */     \
	X(DECODE, decode, DECODE, 1, "decode", NULL)  /* decoding to pixels of the region */       \
	X(RESIZE, resize, AUGMENT, 2, "resize", NULL) /* resizing and flipping to rows */          \
	X(AUGMENT, augment, AUGMENT, 5, "augment", NULL) /* colour, blur, warping */               \
	X(STORE, store, AUGMENT, 4, "store", NULL)    /* normalising, casting, writing rows */     \
	X(OTHER, other, OTHER, 3, "other", NULL)      /* labels, fields, order, publishing */      \
	X(WAIT, wait, STORAGE, 6, "storage", "stored bytes") /* asleep until they arrive */        \
	X(QUEUED, queued, CPUS, 7, "cpu", "a CPU")    /* runnable but without a CPU */
/* clang-format on */

enum stage {
#define STAGE(constant, ...) STAGE_##constant,
	STAGES(STAGE) STAGE_COUNT,
#undef STAGE
	STAGE_WORK_COUNT = STAGE_WAIT /* the stages that are work come first */
};

enum limit {
	LIMIT_NONE, /* neither side waited, or both about equally */
	/* slots are full: the client takes batches more slowly than the daemon makes them */
	LIMIT_CONSUMER,
	LIMIT_STORAGE, /* threads sleep until stored bytes arrive */
	LIMIT_CPUS,    /* threads wait for CPUs longer than they run */
	LIMIT_DECODE,  /* the CPUs are busy, mostly with decoding, */
	LIMIT_AUGMENT, /* resizing, augmenting and storing, */
	LIMIT_OTHER,   /* or reading, verifying and publishing */
};

struct stage_row {
	const char *name, *key, *column, *waits_for;
	enum limit limit;
	unsigned field; /* offset in Loaderd__FeedStatus */
};

extern const struct stage_row stages[STAGE_COUNT];

struct Loaderd__FeedStatus;
/* Store the times in a status, and add a status's times to `times`. */
void stages_put(const uint64_t times[STAGE_COUNT], struct Loaderd__FeedStatus *status);
void stages_add(uint64_t times[STAGE_COUNT], const struct Loaderd__FeedStatus *status);
/* Returns the sum of the stages that are work: the CPU time. */
uint64_t stages_work(const uint64_t times[STAGE_COUNT]);
