/*
 * The laws of packs, against a slow model: each sample once in an epoch, never more tokens than a
 * batch has, the same packs at any world size, any position by itself; how full packs are, and that
 * they are not of one kind.
 */
#include "loaderd/order/packs.h"

#include "format/augment/pipeline.h"
#include "format/base/random.h"
#include "loaderd/order/order.h"
#include "loaderd/order/permutation.h"
#include "loaderd/order/sampler.h"
#include "tests/test.h"

#include <errno.h>
#include <math.h>

enum { SAMPLES = 2003, BATCH = 24, TOKENS = 400 };

/* Tokens and patches of the samples of a test. */
struct counts {
	uint64_t samples;
	uint32_t *tokens, *patches;
};

static uint32_t small_tokens[SAMPLES], small_patches[SAMPLES];
static const struct counts small = {SAMPLES, small_tokens, small_patches};

static void draw_counts(void)
{
	struct random_stream random;
	random_init(&random, 1, 2, 3, RANDOM_DRAW);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		small_patches[i] = 1 + random_below(&random, i % 9 ? 60 : 250);
		small_tokens[i] = small_patches[i] + (i % 4 ? random_below(&random, 20) : 0);
	}
}

static struct sampler make_sampler(const struct counts *counts, const struct selection *selection,
				   uint32_t tokens_max, uint32_t batch_size, bool shuffle)
{
	struct sampler sampler = {.seed = 5,
				  .shuffle = shuffle,
				  .global = batch_size,
				  .part_count = 1,
				  .stage_count = 1,
				  .parts = calloc(1, sizeof(*sampler.parts)),
				  .froms = calloc(1, sizeof(*sampler.froms))};
	struct sampler_error error;
	if (selection)
		sampler.parts->selection = *selection;
	else
		selection_init_all(&sampler.parts->selection, counts->samples);
	const struct selection *chosen = &sampler.parts->selection;
	struct pack_tokens *tokens = pack_tokens_new(chosen->count);
	assert_non_null(tokens);
	for (uint64_t i = 0; i < chosen->count; i++) {
		uint64_t sample = selection_at(chosen, i);
		assert_int_equal(
			pack_tokens_add(tokens, counts->tokens[sample], counts->patches[sample]),
			0);
	}
	assert_int_equal(sampler_set_packs(sampler.parts, tokens, sampler.seed, tokens_max,
					   batch_size, UINT64_MAX, &error),
			 0);
	pack_tokens_free(tokens);
	assert_int_equal(sampler_finish(&sampler, NULL, SAMPLER_ENDS_FIRST, 0, &error), 0);
	return sampler;
}

static struct order make_order(const struct sampler *sampler, uint32_t rank, uint32_t world,
			       bool last_short)
{
	struct order order = {
		.sampler = sampler,
		.samples = sampler->epoch_samples,
		.seed = sampler->seed,
		.batch_size = sampler_packs(sampler)->batch_size,
		.rank = rank,
		.world = world,
		.repeats = 1,
		.shuffle = sampler->shuffle,
		.last_short = last_short,
	};
	assert_int_equal(order_init(&order), 0);
	return order;
}

struct pack {
	uint32_t count;
	uint64_t samples[BATCH];
};

/*
 * The packs of an epoch, in order: all templates written out, then the packs and the members of
 * each class permuted.
 */
static struct pack *model_epoch(const struct sampler *sampler, uint64_t epoch)
{
	const struct packs *packs = sampler_packs(sampler);
	struct pack *made = calloc(packs->count, sizeof(*made));
	struct pack *epochs = calloc(packs->count, sizeof(*epochs));
	uint64_t number = 0;
	for (uint64_t t = 0; t < packs->template_count; t++)
		for (; number < packs->templates[t + 1].first; number++)
			for (uint64_t s = packs->templates[t].slot;
			     s < packs->templates[t + 1].slot; s++) {
				const struct pack_slot *slot = &packs->slots[s];
				const struct pack_class *class =
					&packs->classes[slot->class_number];
				uint64_t place = slot->first +
						 (number - packs->templates[t].first) * slot->step;
				struct permutation members;
				permutation_init(&members, class[1].first - class->first,
						 sampler->seed, epoch, slot->class_number,
						 RANDOM_MEMBERS);
				if (sampler->shuffle)
					place = permutation_at(&members, place);
				made[number].samples[made[number].count++] =
					selection_at(&packs->members, class->first + place);
			}
	assert_int_equal(number, packs->count);
	struct permutation order;
	permutation_init(&order, packs->count, sampler->seed, epoch, 0, RANDOM_PACKS);
	for (uint64_t p = 0; p < packs->count; p++)
		epochs[p] = made[sampler->shuffle ? permutation_at(&order, p) : p];
	free(made);
	return epochs;
}

/* What ranks have of an epoch, as packs over all ranks. Returns how many. */
static uint64_t delivered(const struct sampler *sampler, uint64_t epoch, uint32_t world,
			  bool last_short, struct pack *packs)
{
	uint64_t count = 0;
	for (uint32_t rank = 0; rank < world; rank++) {
		struct order order = make_order(sampler, rank, world, last_short);
		for (uint64_t b = 0; b < order.batches; b++, count++) {
			struct pack *pack = &packs[b * world + rank];
			struct order_slice slice;
			order_slice_init(&slice, &order, epoch, b);
			assert_in_range(slice.count, 1, BATCH);
			assert_int_equal(slice.last, b + 1 == order.batches);
			pack->count = slice.count;
			for (uint32_t i = 0; i < slice.count; i++)
				pack->samples[i] = order_slice_at(&slice, i).sample;
		}
	}
	return count;
}

TEST(each_sample_once_at_any_world)
{
	static const uint32_t worlds[] = {1, 2, 3, 8};
	struct pack *packs = calloc(SAMPLES, sizeof(*packs));
	for (int variant = 0; variant < 4; variant++) {
		bool last_short = variant & 1, shuffle = variant & 2;
		struct sampler sampler = make_sampler(&small, NULL, TOKENS, BATCH, shuffle);
		for (uint64_t epoch = 0; epoch < 2; epoch++) {
			struct pack *model = model_epoch(&sampler, epoch);
			uint64_t all = sampler_packs(&sampler)->count;
			for (int w = 0; w < 4; w++) {
				memset(packs, 0, SAMPLES * sizeof(*packs));
				uint64_t count =
					delivered(&sampler, epoch, worlds[w], last_short, packs);
				assert_int_equal(count, last_short ? all : all - all % worlds[w]);
				assert_memory_equal(packs, model, count * sizeof(*packs));
			}
			free(model);
		}
		sampler_deinit(&sampler);
	}
	free(packs);
}

/* tokens_max and batch_size hold, and every sample is in one pack. */
static void check_laws(const struct counts *counts, uint32_t tokens_max, uint32_t batch_size)
{
	struct sampler sampler = make_sampler(counts, NULL, tokens_max, batch_size, true);
	const struct packs *packs = sampler_packs(&sampler);
	uint8_t *seen = calloc(counts->samples, 1);
	uint64_t samples = 0;
	for (uint64_t p = 0; p < packs->count; p++) {
		uint32_t size = sampler_pack_size(&sampler, 7, p), tokens = 0;
		assert_in_range(size, 1, batch_size);
		for (uint32_t i = 0; i < size; i++) {
			struct pack_draw draw = sampler_pack_at(&sampler, 7, p * batch_size + i);
			assert_int_equal(draw.tokens, counts->tokens[draw.sample]);
			assert_int_equal(draw.patches, counts->patches[draw.sample]);
			assert_int_equal(seen[draw.sample], 0);
			seen[draw.sample] = 1;
			tokens += draw.tokens;
		}
		assert_in_range(tokens, 0, tokens_max);
		samples += size;
	}
	assert_int_equal(samples, counts->samples);
	free(seen);
	sampler_deinit(&sampler);
}

TEST(budget)
{
	uint32_t none[] = {0, 0, 0, 0, 0}, one[] = {9};
	check_laws(&small, TOKENS, BATCH);
	check_laws(&small, 270, 1);
	check_laws(&small, 270, 3);
	check_laws(&small, 1 << 20, SAMPLES + 5);
	check_laws(&small, PACKS_TOKENS_MAX, 7);
	check_laws(&(struct counts){5, none, none}, 1, 2);
	check_laws(&(struct counts){1, one, one}, 9, 1);
}

TEST(memory_is_limited)
{
	struct selection selection;
	struct packs packs;
	struct pack_tokens *tokens = pack_tokens_new(PACKS_GROUPS_MAX + 1);
	assert_non_null(tokens);
	for (uint32_t i = 0; i < PACKS_GROUPS_MAX; i++)
		assert_int_equal(pack_tokens_add(tokens, i / 1024, i % 1024), 0);
	assert_int_equal(pack_tokens_add(tokens, 5, 2000), -E2BIG);
	assert_int_equal(pack_tokens_add(tokens, 5, 7), 0);
	selection_init_all(&selection, PACKS_GROUPS_MAX + 1);
	assert_int_equal(packs_init(&packs, &selection, tokens, 1, 8192, 64, 1000), -EDQUOT);
	assert_int_equal(packs_init(&packs, &selection, tokens, 1, 8192, 64, 1 << 26), 0);
	assert_true(packs.count > 0);
	uint64_t bytes = packs_bytes(&packs);
	packs_deinit(&packs);
	/* the limit is that of all that packs keep */
	assert_int_equal(packs_init(&packs, &selection, tokens, 1, 8192, 64, bytes / 4 * 3),
			 -EDQUOT);
	assert_int_equal(packs_init(&packs, &selection, tokens, 1, 8192, 64, bytes), 0);
	packs_deinit(&packs);
	pack_tokens_free(tokens);
}

TEST(epochs_differ)
{
	struct sampler sampler = make_sampler(&small, NULL, TOKENS, BATCH, true);
	struct pack *a = model_epoch(&sampler, 0), *b = model_epoch(&sampler, 1);
	uint64_t same = 0, count = sampler_packs(&sampler)->count;
	for (uint64_t p = 0; p < count; p++)
		for (uint32_t i = 0; i < a[p].count && i < b[p].count; i++)
			same += a[p].samples[i] == b[p].samples[i];
	assert_true(count > 100);
	assert_true(same < 30);
	free(a);
	free(b);
	sampler_deinit(&sampler);
}

/* A sample in place of another has the same tokens and patches, or if there is none, no more. */
TEST(substitutes)
{
	struct sampler sampler = make_sampler(&small, NULL, TOKENS, BATCH, true);
	const struct packs *packs = sampler_packs(&sampler);
	uint64_t others = 0, lonely = 0;
	for (uint64_t p = 0; p < packs->count; p++) {
		struct pack_draw missing = sampler_pack_at(&sampler, 3, p * BATCH);
		uint64_t alike = 0;
		for (uint32_t i = 0; i < SAMPLES; i++)
			alike += small_tokens[i] == missing.tokens &&
				 small_patches[i] == missing.patches;
		for (uint64_t bits = 1; bits < UINT64_MAX / 3; bits *= 5) {
			struct pack_draw draw = sampler_pack_other(&sampler, 3, p * BATCH, bits);
			assert_int_equal(draw.patches, small_patches[draw.sample]);
			assert_true(small_tokens[draw.sample] <= missing.tokens);
			if (alike > 1)
				assert_int_equal(draw.patches, missing.patches);
			others += draw.sample != missing.sample;
		}
		lonely += alike == 1;
	}
	assert_true(others > 1000);
	assert_true(lonely > 0);
	sampler_deinit(&sampler);
}

/* A list's samples come as often as they are listed, with copies of their own. */
TEST(listed)
{
	enum { COUNT = 60 };
	struct selection selection;
	uint32_t times[SAMPLES] = {0}, copies[SAMPLES][2];
	assert_int_equal(selection_init_list(&selection, SAMPLES, COUNT), 0);
	for (uint64_t i = 0; i < COUNT; i++)
		selection_set(&selection, i, i / 2 * 5);
	assert_int_equal(selection_finish_list(&selection, COUNT), 0);
	struct sampler sampler = make_sampler(&small, &selection, TOKENS, BATCH, true);
	struct order order = make_order(&sampler, 0, 1, true);
	for (uint64_t b = 0; b < order.batches; b++) {
		struct order_slice slice;
		order_slice_init(&slice, &order, 0, b);
		for (uint32_t i = 0; i < slice.count; i++) {
			struct order_item item = order_slice_at(&slice, i);
			assert_true(times[item.sample] < 2);
			copies[item.sample][times[item.sample]++] = item.copy;
		}
	}
	for (uint32_t i = 0; i < SAMPLES; i++) {
		assert_int_equal(times[i], i % 5 == 0 && i / 5 < COUNT / 2 ? 2 : 0);
		assert_true(times[i] == 0 || copies[i][0] != copies[i][1]);
	}
	assert_true(sampler_bytes(&sampler) >= COUNT * 2 * sizeof(uint32_t));
	sampler_deinit(&sampler);
}

/* Sizes like ImageNet's: most have a long side of 500, a third have any. */
static struct counts photographs(uint64_t samples, const char *pipeline_text)
{
	static const uint32_t common[][2] = {{500, 375}, {500, 375}, {500, 333}, {375, 500},
					     {500, 334}, {333, 500}, {640, 480}};
	struct counts counts = {samples, calloc(samples, sizeof(*counts.tokens)), NULL};
	struct pipeline *pipeline;
	struct pipeline_error error;
	struct random_stream random;
	assert_int_equal(pipeline_parse_views(pipeline_text, &pipeline, &error), 0);
	random_init(&random, 1, 2, 4, RANDOM_DRAW);
	for (uint64_t i = 0; i < samples; i++) {
		uint32_t number = random_below(&random, 10);
		uint32_t width = 60 + random_below(&random, 700);
		uint32_t height = 60 + random_below(&random, 700);
		struct pipeline_grid grid =
			number < 7 ? pipeline_patch_grid(pipeline, common[number][0],
							 common[number][1])
				   : pipeline_patch_grid(pipeline, width, height);
		counts.tokens[i] = grid.rows * grid.columns;
	}
	counts.patches = counts.tokens;
	pipeline_free(pipeline);
	return counts;
}

struct filling {
	double mean;     /* of the budget */
	double spread;   /* standard deviation of the packs' mean tokens per sample */
	double expected; /* the same if samples were drawn at random */
	uint64_t bytes;  /* of the templates */
};

static struct filling measure(const struct counts *counts, uint32_t tokens_max, uint32_t batch_size)
{
	struct sampler sampler = make_sampler(counts, NULL, tokens_max, batch_size, true);
	const struct packs *packs = sampler_packs(&sampler);
	double sum = 0, squares = 0, means = 0, mean_squares = 0, inverse_sizes = 0;
	for (uint64_t t = 0; t < packs->template_count; t++) {
		const struct pack_template *from = &packs->templates[t];
		double size = (double)(from[1].slot - from->slot), tokens = 0;
		double times = (double)(from[1].first - from->first);
		for (uint64_t s = from->slot; s < from[1].slot; s++) {
			double here = packs->classes[packs->slots[s].class_number].tokens;
			tokens += here;
			squares += times * here * here;
		}
		sum += times * tokens;
		means += times * tokens / size;
		mean_squares += times * tokens / size * tokens / size;
		inverse_sizes += times / size;
	}
	double samples = (double)counts->samples, all = (double)packs->count;
	double variance = squares / samples - sum / samples * sum / samples;
	struct filling result = {
		.mean = sum / all / tokens_max,
		.spread = sqrt(mean_squares / all - means / all * means / all),
		.expected = sqrt(variance * inverse_sizes / all),
		.bytes = packs_bytes(packs) - selection_bytes(&packs->members),
	};
	sampler_deinit(&sampler);
	return result;
}

TEST(packs_are_full_and_of_all_kinds)
{
	static const struct {
		const char *pipeline;
		uint64_t samples;
		uint32_t tokens, batch_size;
		double least;
	} cases[] = {
		{"patch_resize(16, max_tokens=256)", 200000, 8192, 256, 0.995},
		{"patch_resize(16, max_tokens=1024)", 200000, 8192, 256, 0.995},
		{"patch_resize(16, max_tokens=1024)", 20000, 4096, 256, 0.98},
		{"patch_resize(14, max_tokens=576)", 2000, 16384, 256, 0.98},
		/* eight of the most frequent size leave 1.6 % */
		{"patch_resize(14, max_tokens=256)", 200000, 2048, 64, 0.975},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct counts counts = photographs(cases[i].samples, cases[i].pipeline);
		struct filling filling = measure(&counts, cases[i].tokens, cases[i].batch_size);
		printf("%s, %u tokens, %llu samples: %.2f %% full, spread %.2f (random %.2f), "
		       "%.2f bytes a sample\n",
		       cases[i].pipeline, cases[i].tokens, (unsigned long long)cases[i].samples,
		       filling.mean * 100, filling.spread, filling.expected,
		       (double)filling.bytes / (double)cases[i].samples);
		assert_true(filling.mean >= cases[i].least);
		assert_true(filling.spread < 2 * filling.expected);
		free(counts.tokens);
	}
}

static int setup(void **state)
{
	draw_counts();
	return 0;
}

TEST_MAIN(setup, NULL)
