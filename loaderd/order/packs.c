#include "loaderd/order/packs.h"

#include "format/base/random.h"
#include "loaderd/order/pack_template.h"
#include "loaderd/order/pack_tokens.h"
#include "loaderd/order/permutation.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* A key of the dictionary, and its number there. */
struct numbered_key {
	uint64_t key;
	uint32_t id;
};

static int compare_keys(const void *a, const void *b)
{
	uint64_t x = ((const struct numbered_key *)a)->key;
	uint64_t y = ((const struct numbered_key *)b)->key;
	return x < y ? -1 : x > y;
}

/* Sets the classes and groups of the keys, in ascending order. firsts: [key_count], of their ids.
 */
static void set_groups(struct packs *packs, const struct numbered_key *keys, uint32_t key_count,
		       uint64_t *firsts)
{
	uint64_t first = 0;
	for (uint32_t k = 0; k < key_count; k++) {
		uint32_t tokens = (uint32_t)(keys[k].key >> 32);
		uint64_t size = firsts[keys[k].id];
		packs->groups[k] = (struct pack_group){first, (uint32_t)keys[k].key};
		if (k == 0 || packs->classes[packs->class_count - 1].tokens != tokens)
			packs->classes[packs->class_count++] = (struct pack_class){first, tokens};
		firsts[keys[k].id] = first;
		first += size;
	}
	packs->group_count = key_count;
	packs->groups[key_count].first = first;
	packs->classes[packs->class_count].first = first;
}

/* A counting sort. Samples of a group stay in the order of the selection. */
static int sort_members(struct packs *packs, const struct selection *selection,
			const struct pack_tokens *tokens)
{
	uint32_t count = tokens->key_count;
	struct numbered_key *keys = malloc((count + 1) * sizeof(*keys));
	uint64_t *firsts = calloc((size_t)count + 1, sizeof(*firsts));
	packs->groups = calloc((size_t)count + 1, sizeof(*packs->groups));
	packs->classes = calloc((size_t)count + 1, sizeof(*packs->classes));
	int r = keys && firsts && packs->groups && packs->classes
			? selection_init_list(&packs->members, selection->samples, selection->count)
			: -ENOMEM;
	for (uint64_t i = 0; r == 0 && i < selection->count; i++)
		firsts[tokens->ids[i]]++;
	if (r == 0) {
		for (uint32_t k = 0; k < count; k++)
			keys[k] = (struct numbered_key){tokens->keys[k], k};
		qsort(keys, count, sizeof(*keys), compare_keys);
		set_groups(packs, keys, count, firsts);
	}
	for (uint64_t i = 0; r == 0 && i < selection->count; i++)
		selection_set(&packs->members, firsts[tokens->ids[i]]++,
			      selection_at(selection, i));
	free(keys);
	free(firsts);
	return r;
}

/* Bytes of what sort_members() makes. */
static uint64_t sorted_bytes(const struct packs *packs)
{
	return selection_bytes(&packs->members) + packs->class_count * sizeof(*packs->classes) +
	       packs->group_count * sizeof(*packs->groups);
}

int packs_init(struct packs *packs, const struct selection *selection,
	       const struct pack_tokens *tokens, uint64_t seed, uint32_t tokens_max,
	       uint32_t batch_size, uint64_t bytes_max)
{
	struct packs result = {.tokens_max = tokens_max, .batch_size = batch_size};
	assert(tokens->count == selection->count && tokens_max > 0 && batch_size > 0);
	int r = sort_members(&result, selection, tokens);
	uint64_t sorted = sorted_bytes(&result);
	if (r == 0)
		r = sorted > bytes_max ? -EDQUOT
				       : pack_templates_make(&result, seed, bytes_max - sorted);
	if (r < 0)
		packs_deinit(&result);
	else
		*packs = result;
	return r;
}

/* A template, and which of its packs is meant. */
struct found_pack {
	const struct pack_template *from;
	uint64_t number;
};

static struct found_pack find_pack(const struct packs *packs, uint64_t seed, bool shuffle,
				   uint64_t epoch, uint64_t pack)
{
	uint64_t low = 0, high = packs->template_count;
	assert(pack < packs->count);
	if (shuffle) {
		struct permutation permutation;
		permutation_init(&permutation, packs->count, seed, epoch, 0, RANDOM_PACKS);
		pack = permutation_at(&permutation, pack);
	}
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;
		if (packs->templates[middle].first <= pack)
			low = middle;
		else
			high = middle;
	}
	return (struct found_pack){&packs->templates[low], pack - packs->templates[low].first};
}

uint32_t packs_size(const struct packs *packs, uint64_t seed, bool shuffle, uint64_t epoch,
		    uint64_t pack)
{
	struct found_pack found = find_pack(packs, seed, shuffle, epoch, pack);
	return (uint32_t)(found.from[1].slot - found.from->slot);
}

/* Returns the group of a member. */
static uint32_t group_of(const struct packs *packs, uint64_t member)
{
	uint32_t low = 0, high = packs->group_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (packs->groups[middle].first <= member)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Returns the member at a position, and sets its class. */
static uint64_t member_at(const struct packs *packs, uint64_t seed, bool shuffle, uint64_t epoch,
			  uint64_t position, uint32_t *ret_class)
{
	struct found_pack found =
		find_pack(packs, seed, shuffle, epoch, position / packs->batch_size);
	uint64_t at = found.from->slot + position % packs->batch_size;
	assert(at < found.from[1].slot);
	const struct pack_slot *slot = &packs->slots[at];
	const struct pack_class *class = &packs->classes[slot->class_number];
	uint64_t place = slot->first + found.number * slot->step;
	if (shuffle) {
		struct permutation permutation;
		permutation_init(&permutation, class[1].first - class->first, seed, epoch,
				 slot->class_number, RANDOM_MEMBERS);
		place = permutation_at(&permutation, place);
	}
	*ret_class = slot->class_number;
	return class->first + place;
}

struct pack_draw packs_at(const struct packs *packs, uint64_t seed, bool shuffle, uint64_t epoch,
			  uint64_t position)
{
	uint32_t class_number;
	uint64_t member = member_at(packs, seed, shuffle, epoch, position, &class_number);
	return (struct pack_draw){selection_at(&packs->members, member),
				  packs->groups[group_of(packs, member)].patches,
				  packs->classes[class_number].tokens};
}

struct pack_draw packs_other(const struct packs *packs, uint64_t seed, bool shuffle, uint64_t epoch,
			     uint64_t position, uint64_t bits)
{
	uint32_t class_number;
	uint64_t member = member_at(packs, seed, shuffle, epoch, position, &class_number);
	const struct pack_group *group = &packs->groups[group_of(packs, member)];
	uint64_t first = group[1].first - group->first > 1 ? group->first : 0;
	uint64_t count = group[1].first - first;
	member = first + (uint64_t)((unsigned __int128)bits * count >> 64);
	return (struct pack_draw){selection_at(&packs->members, member),
				  packs->groups[group_of(packs, member)].patches,
				  packs->classes[class_number].tokens};
}

uint64_t packs_bytes(const struct packs *packs)
{
	if (packs->count == 0)
		return 0;
	return sorted_bytes(packs) + packs->template_count * sizeof(*packs->templates) +
	       packs->templates[packs->template_count].slot * sizeof(*packs->slots);
}

void packs_deinit(struct packs *packs)
{
	selection_deinit(&packs->members);
	free(packs->classes);
	free(packs->groups);
	free(packs->templates);
	free(packs->slots);
	*packs = (struct packs){0};
}
