#include "loaderd/order/pack_template.h"

#include "format/base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_TRIES = 32 }; /* draws for the last but one sample of a pack */

/*
 * What is left of the classes while packs are made, and the pack that is being made. sums is a
 * Fenwick tree of `left` (Fenwick 1994): entry i, from 1, sums those of the i & -i classes up to
 * it.
 */
struct packing {
	struct packs *packs;
	uint32_t class_count, top; /* top: the highest power of 2 that is no larger */
	uint64_t *left, *sums;     /* [class_count], [class_count + 1] */
	uint64_t *used;            /* [class_count]: places in packs so far */
	uint32_t *taken;           /* [class_count]: slots of the pack */
	uint64_t samples;          /* sum of `left` */
	uint32_t *pack;            /* [batch_size]: the classes of its slots */
	uint32_t size, room;       /* slots, and tokens that are left */
	uint64_t slot_room, template_room;
	uint64_t bytes_max; /* of both */
	struct random_stream random;
};

static void add_left(struct packing *at, uint32_t class_number, int64_t count)
{
	at->left[class_number] += (uint64_t)count;
	at->samples += (uint64_t)count;
	for (uint32_t i = class_number + 1; i <= at->class_count; i += i & -i)
		at->sums[i] += (uint64_t)count;
}

/* Returns the class of the sample with this number among those that are left. */
static uint32_t class_of(const struct packing *at, uint64_t number)
{
	uint32_t found = 0;
	for (uint32_t step = at->top; step > 0; step /= 2)
		if (found + step <= at->class_count && at->sums[found + step] <= number) {
			found += step;
			number -= at->sums[found];
		}
	return found;
}

/* Returns how many samples are left of the first `count` classes. */
static uint64_t left_before(const struct packing *at, uint32_t count)
{
	uint64_t sum = 0;
	for (uint32_t i = count; i > 0; i -= i & -i)
		sum += at->sums[i];
	return sum;
}

static uint32_t tokens_of(const struct packing *at, uint32_t class_number)
{
	return at->packs->classes[class_number].tokens;
}

/* Draws a class in proportion to what is left of each. Something is left. */
static uint32_t draw_class(struct packing *at)
{
	uint64_t high = random_u32(&at->random), bits = high << 32 | random_u32(&at->random);
	return class_of(at, (uint64_t)((unsigned __int128)bits * at->samples >> 64));
}

/* Finds the largest class with samples left that has at most `room` tokens. */
static bool find_largest(const struct packing *at, uint32_t room, uint32_t *ret_class)
{
	uint32_t low = 0, high = at->class_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (tokens_of(at, middle) <= room)
			low = middle + 1;
		else
			high = middle;
	}
	uint64_t before = left_before(at, low);
	if (before == 0)
		return false;
	*ret_class = class_of(at, before - 1);
	return true;
}

static void take(struct packing *at, uint32_t class_number)
{
	at->pack[at->size++] = class_number;
	at->room -= tokens_of(at, class_number);
	add_left(at, class_number, -1);
}

static void put_back(struct packing *at)
{
	uint32_t class_number = at->pack[--at->size];
	at->room += tokens_of(at, class_number);
	add_left(at, class_number, 1);
}

/*
 * Takes the two samples, one of which is drawn, that fill the room best: of several draws, or of
 * the class `drawn`.
 */
static void take_last_two(struct packing *at, uint32_t drawn)
{
	uint32_t best = drawn, best_tokens = 0;
	for (unsigned i = 0; i < LAST_TRIES && best_tokens < at->room; i++) {
		uint32_t first = i == 0 ? drawn : draw_class(at), second, tokens;
		if (tokens_of(at, first) > at->room)
			continue;
		take(at, first);
		tokens = tokens_of(at, first);
		if (at->size < at->packs->batch_size && find_largest(at, at->room, &second))
			tokens += tokens_of(at, second);
		put_back(at);
		if (tokens > best_tokens) {
			best = first;
			best_tokens = tokens;
		}
	}
	take(at, best);
}

/* Makes a pack of what is left. */
static void make_pack(struct packing *at)
{
	const uint32_t batch_size = at->packs->batch_size;
	uint32_t class_number;
	at->size = 0;
	at->room = at->packs->tokens_max;
	while (at->size < batch_size && at->samples > 0) {
		class_number = draw_class(at);
		if (tokens_of(at, class_number) > at->room)
			break;
		take(at, class_number);
	}
	if (at->size > 0 && at->size < batch_size && at->samples > 0) {
		class_number = at->pack[at->size - 1];
		put_back(at);
		take_last_two(at, class_number);
	}
	while (at->size < batch_size && find_largest(at, at->room, &class_number))
		take(at, class_number);
}

/* Returns how many packs get the classes of the one that has been made, itself included. */
static uint64_t count_packs(struct packing *at)
{
	uint64_t most = 1 + at->samples / at->size / PACKS_TEMPLATES;
	for (uint32_t s = 0; s < at->size; s++) {
		uint32_t class_number = at->pack[s];
		uint64_t fits = 1 + at->left[class_number] / at->taken[class_number];
		most = fits < most ? fits : most;
	}
	return most;
}

static int reserve(void **list, uint64_t *room, uint64_t count, size_t element)
{
	if (count <= *room)
		return 0;
	uint64_t larger = count + *room / 2;
	void *grown = realloc(*list, larger * element);
	if (!grown)
		return -ENOMEM;
	*list = grown;
	*room = larger;
	return 0;
}

/* Adds a template of the pack that has been made, and takes the samples of its further packs. */
static int add_template(struct packing *at)
{
	struct packs *packs = at->packs;
	uint64_t slot =
		packs->template_count > 0 ? packs->templates[packs->template_count].slot : 0;
	uint64_t bytes = (slot + at->size) * sizeof(*packs->slots) +
			 packs->template_count * sizeof(*packs->templates);
	if (bytes > at->bytes_max)
		return -EDQUOT;
	int r = reserve((void **)&packs->templates, &at->template_room, packs->template_count + 2,
			sizeof(*packs->templates));
	r = r
		    ?: reserve((void **)&packs->slots, &at->slot_room, slot + at->size,
			       sizeof(*packs->slots));
	if (r < 0)
		return r;
	for (uint32_t s = 0; s < at->size; s++) {
		uint32_t class_number = at->pack[s];
		packs->slots[slot + s] = (struct pack_slot){
			at->used[class_number] + at->taken[class_number]++, class_number, 0};
	}
	uint64_t count = count_packs(at);
	for (uint32_t s = 0; s < at->size; s++)
		packs->slots[slot + s].step = at->taken[at->pack[s]];
	for (uint32_t s = 0; s < at->size; s++) {
		uint32_t class_number = at->pack[s], each = at->taken[class_number];
		at->taken[class_number] = 0;
		at->used[class_number] += each * count;
		if (each > 0 && count > 1)
			add_left(at, class_number, -(int64_t)(each * (count - 1)));
	}
	packs->templates[packs->template_count++] = (struct pack_template){packs->count, slot};
	packs->count += count;
	packs->templates[packs->template_count] =
		(struct pack_template){packs->count, slot + at->size};
	return 0;
}

static void shorten(struct packs *packs)
{
	const struct pack_template *end = &packs->templates[packs->template_count];
	struct pack_slot *slots = realloc(packs->slots, end->slot * sizeof(*slots));
	struct pack_template *templates =
		realloc(packs->templates, (packs->template_count + 1) * sizeof(*templates));
	/* the longer ones serve as well */
	packs->slots = slots ? slots : packs->slots;
	packs->templates = templates ? templates : packs->templates;
}

int pack_templates_make(struct packs *packs, uint64_t seed, uint64_t bytes_max)
{
	uint32_t count = packs->class_count;
	struct packing at = {
		.packs = packs, .class_count = count, .top = 1, .bytes_max = bytes_max};
	at.left = calloc(count, sizeof(*at.left));
	at.sums = calloc((size_t)count + 1, sizeof(*at.sums));
	at.used = calloc(count, sizeof(*at.used));
	at.taken = calloc(count, sizeof(*at.taken));
	at.pack = malloc(packs->batch_size * sizeof(*at.pack));
	int r = at.left && at.sums && at.used && at.taken && at.pack ? 0 : -ENOMEM;
	while (at.top <= count / 2)
		at.top *= 2;
	for (uint32_t c = 0; r == 0 && c < count; c++)
		add_left(&at, c, (int64_t)(packs->classes[c + 1].first - packs->classes[c].first));
	random_init(&at.random, seed, 0, 0, RANDOM_PACKING);
	while (r == 0 && at.samples > 0) {
		make_pack(&at);
		r = add_template(&at);
	}
	if (r == 0)
		shorten(packs);
	free(at.left);
	free(at.sums);
	free(at.used);
	free(at.taken);
	free(at.pack);
	return r;
}
