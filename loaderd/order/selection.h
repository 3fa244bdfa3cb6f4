/*
 * The samples of one dataset from which a feed draws, numbered 0 .. count - 1: all of them, those
 * with a bit, or a list, which may hold a sample several times. Immutable once initialised; any
 * thread may read it.
 *
 * Memory: nothing for all samples; 1.125 bits per sample of the dataset for bits; 4 bytes per entry
 * of a list, 8 if the dataset has more than 2^32 samples.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct selection {
	uint64_t count;
	uint64_t samples;     /* in the dataset */
	uint64_t *bits;       /* owned; one per sample, bit i % 64 of word i / 64 */
	uint64_t *ranks;      /* owned; bits set before each block of SELECTION_BLOCK words */
	uint32_t *short_list; /* owned; used if samples <= 2^32 */
	uint64_t *list;       /* owned */
	bool duplicates;      /* the list holds a sample several times */
};

enum { SELECTION_BLOCK = 8 };

void selection_init_all(struct selection *selection, uint64_t samples);
/*
 * Takes ownership of `bits`, (samples + 63) / 64 words from malloc(); clears bits beyond `samples`.
 * -ENOMEM, without taking them.
 */
int selection_init_bits(struct selection *selection, uint64_t samples, uint64_t *bits);
/*
 * Allocates a list of `count` entries, which selection_set() fills in. -ENOMEM.
 */
int selection_init_list(struct selection *selection, uint64_t samples, uint64_t count);
/* Sets entry i of a list; -ERANGE if there is no such sample. */
int selection_set(struct selection *selection, uint64_t i, uint64_t sample);
/*
 * Completes a list of which the first `count` entries have been set; finds duplicates. -ENOMEM.
 */
int selection_finish_list(struct selection *selection, uint64_t count);
/* Returns the number of sample i; i < count. */
uint64_t selection_at(const struct selection *selection, uint64_t i);
/* Bytes of memory that lists and bits take. */
uint64_t selection_bytes(const struct selection *selection);
void selection_deinit(struct selection *selection);
