/*
 * Memory of a feed whose files are still being filled: by a process of the user that copies the
 * dataset from elsewhere, the fetcher, while the worker reads. SPEC.md, "Filling files".
 *
 * Each dataset of a feed that is being filled has a map, and all of them share a page. The map has
 * one byte for each sample, its turn: bit 0 is set while all stored bytes of the sample
 * are in the file. The fetcher adds 1 when they have come, and 1 again before it takes them away,
 * so that a reader sees by an equal byte that nothing happened meanwhile. The page carries the rest
 * in both directions. Both are memfds, sealed against resizing, which outlive their fetcher.
 *
 * Neither side believes the other. To the worker a turn is a hint when to read: samples are
 * verified by their checksums in any case. To the fetcher the page is the word of a worker that may
 * have been taken over: it checks each number, and fetches nothing but samples of this dataset.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FILLING_VERSION = 1, /* OpenFeed.filling */
	FILLING_WISHES = 64,
	FILLING_AHEAD = 32768,  /* units that the worker plans ahead */
	FILLING_DATASETS = 128, /* that a feed may have */
	FILLING_PAGE_SIZE = 4096 + 8 * FILLING_AHEAD,
	FILLING_PRESENT = 1,   /* bit of a turn */
	FILLING_WISH_TURN = 8, /* bits of a wish that hold a turn */
};

/* The page. The worker writes all but the words marked as the fetcher's. */
struct filling_page {
	_Atomic uint32_t opened;       /* incremented when a worker has set epoch and batch */
	_Atomic uint32_t calls;        /* futex: incremented for the fetcher */
	_Atomic uint32_t listening;    /* the fetcher's: it sleeps on `calls` */
	_Atomic uint32_t batch_units;  /* units of a batch */
	_Atomic uint64_t epoch, batch; /* position of unit 0 */
	_Atomic uint64_t begun;        /* end of the units that the feed has begun to make */
	_Atomic uint64_t done;         /* end of the units that are made and delivered */
	_Atomic uint64_t planned;      /* end of the units that have an entry in `ahead` */
	/* bit s % 64 is set if the worker waits for sample s */
	_Alignas(64) _Atomic uint64_t waiting;
	_Atomic uint32_t arrived; /* futex: incremented by the fetcher, for the worker */
	/*
	 * 0: none; else (sample + 1) << FILLING_WISH_TURN, and the turn in which its bytes have a
	 * wrong checksum, so that another one is wished for; 0 if they are not there
	 */
	_Alignas(64) _Atomic uint64_t wishes[FILLING_WISHES];
	/* by the number of the dataset: of its first sample; the samples of a feed are numbered
	 * through its parts */
	_Alignas(1024) _Atomic uint64_t firsts[FILLING_DATASETS];
	_Atomic uint64_t files[FILLING_DATASETS]; /* the fetcher's: which files it fills */
	/* unit u has entry u % FILLING_AHEAD: its sample + 1, or 0 if it has none */
	_Alignas(4096) _Atomic uint64_t ahead[FILLING_AHEAD];
};

_Static_assert(offsetof(struct filling_page, calls) == 4, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, listening) == 8, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, epoch) == 16, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, batch) == 24, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, begun) == 32, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, done) == 40, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, planned) == 48, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, firsts) == 1024, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, files) == 2048, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, ahead) == 4096, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, waiting) == 64, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, arrived) == 72, "SPEC.md, Filling files");
_Static_assert(offsetof(struct filling_page, wishes) == 128, "SPEC.md, Filling files");
_Static_assert(sizeof(struct filling_page) == FILLING_PAGE_SIZE, "the page holds it");
