#include "loaderd/order/selection.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static uint64_t word_count(uint64_t samples)
{
	return samples / 64 + (samples % 64 != 0);
}

static uint64_t block_count(uint64_t samples)
{
	return (word_count(samples) + SELECTION_BLOCK - 1) / SELECTION_BLOCK;
}

void selection_init_all(struct selection *selection, uint64_t samples)
{
	*selection = (struct selection){.count = samples, .samples = samples};
}

int selection_init_bits(struct selection *selection, uint64_t samples, uint64_t *bits)
{
	uint64_t words = word_count(samples), blocks = block_count(samples), count = 0;
	uint64_t *ranks = malloc((blocks + 1) * sizeof(*ranks));
	if (!ranks)
		return -ENOMEM;
	if (samples % 64 != 0)
		bits[words - 1] &= (UINT64_C(1) << samples % 64) - 1;
	for (uint64_t i = 0; i < words; i++) {
		if (i % SELECTION_BLOCK == 0)
			ranks[i / SELECTION_BLOCK] = count;
		count += (uint64_t)__builtin_popcountll(bits[i]);
	}
	ranks[blocks] = count;
	*selection = (struct selection){
		.count = count, .samples = samples, .bits = bits, .ranks = ranks};
	return 0;
}

int selection_init_list(struct selection *selection, uint64_t samples, uint64_t count)
{
	struct selection result = {.count = count, .samples = samples};
	if (samples <= UINT64_C(1) << 32)
		result.short_list = calloc(count + 1, sizeof(*result.short_list));
	else
		result.list = calloc(count + 1, sizeof(*result.list));
	if (!result.short_list && !result.list)
		return -ENOMEM;
	*selection = result;
	return 0;
}

int selection_set(struct selection *selection, uint64_t i, uint64_t sample)
{
	assert(i < selection->count);
	if (sample >= selection->samples)
		return -ERANGE;
	if (selection->short_list)
		selection->short_list[i] = (uint32_t)sample;
	else
		selection->list[i] = sample;
	return 0;
}

/* Gives back the memory of the entries from `count` on, which selection_bytes() does not count. */
static void shorten_list(struct selection *selection, uint64_t count)
{
	void *list = selection->short_list ? (void *)selection->short_list : selection->list;
	size_t entry =
		selection->short_list ? sizeof(*selection->short_list) : sizeof(*selection->list);
	void *shorter = realloc(list, (count + 1) * entry);
	selection->count = count;
	if (!shorter)
		return; /* the longer one serves as well */
	if (selection->short_list)
		selection->short_list = shorter;
	else
		selection->list = shorter;
}

int selection_finish_list(struct selection *selection, uint64_t count)
{
	assert(count <= selection->count);
	uint64_t *seen = calloc(word_count(selection->samples) + 1, sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	if (count < selection->count)
		shorten_list(selection, count);
	for (uint64_t i = 0; i < count && !selection->duplicates; i++) {
		uint64_t sample = selection_at(selection, i);
		uint64_t mask = UINT64_C(1) << sample % 64;
		selection->duplicates = seen[sample / 64] & mask;
		seen[sample / 64] |= mask;
	}
	free(seen);
	return 0;
}

/* Returns the position of bit number `rank` of those set in a word, which has more. */
static unsigned word_select(uint64_t word, unsigned rank)
{
	for (unsigned i = 0; i < rank; i++)
		word &= word - 1;
	return (unsigned)__builtin_ctzll(word);
}

static uint64_t bits_select(const struct selection *selection, uint64_t rank)
{
	const uint64_t *ranks = selection->ranks;
	uint64_t low = 0, high = block_count(selection->samples);
	/* Invariant: ranks[low] <= rank < ranks[high]. */
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;
		if (ranks[middle] <= rank)
			low = middle;
		else
			high = middle;
	}
	uint64_t word = low * SELECTION_BLOCK, left = rank - ranks[low];
	for (;; word++) {
		unsigned set = (unsigned)__builtin_popcountll(selection->bits[word]);
		if (left < set)
			return word * 64 + word_select(selection->bits[word], (unsigned)left);
		left -= set;
	}
}

uint64_t selection_at(const struct selection *selection, uint64_t i)
{
	assert(i < selection->count);
	if (selection->bits)
		return bits_select(selection, i);
	if (selection->short_list)
		return selection->short_list[i];
	return selection->list ? selection->list[i] : i;
}

uint64_t selection_bytes(const struct selection *selection)
{
	uint64_t bytes = 0;
	if (selection->bits)
		bytes += (word_count(selection->samples) + block_count(selection->samples)) * 8;
	if (selection->short_list)
		bytes += selection->count * sizeof(*selection->short_list);
	if (selection->list)
		bytes += selection->count * sizeof(*selection->list);
	return bytes;
}

void selection_deinit(struct selection *selection)
{
	free(selection->bits);
	free(selection->ranks);
	free(selection->short_list);
	free(selection->list);
	*selection = (struct selection){0};
}
