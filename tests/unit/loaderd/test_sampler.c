/*
 * The laws of the orders that a sampler makes: each sample once per pass, exact shares in every
 * period, draws in proportion to weights, batches of distinct classes.
 */
#include "loaderd/order/order.h"
#include "loaderd/order/permutation.h"
#include "loaderd/order/sampler.h"
#include "tests/test.h"

#include <malloc.h>
#include <math.h>

/* A sampler of parts of these sizes, which are chosen whole. */
static struct sampler make_sampler(const uint64_t *sizes, uint32_t parts, uint64_t global,
				   const uint64_t *froms, uint32_t stages)
{
	struct sampler sampler = {.seed = 7,
				  .shuffle = true,
				  .global = global,
				  .part_count = parts,
				  .stage_count = stages};
	sampler.parts = calloc(parts, sizeof(*sampler.parts));
	sampler.froms = calloc(stages, sizeof(*sampler.froms));
	uint64_t first = 0;
	for (uint32_t p = 0; p < parts; p++) {
		selection_init_all(&sampler.parts[p].selection, sizes[p]);
		sampler.parts[p].first = first;
		first += sizes[p];
	}
	for (uint32_t s = 0; s < stages; s++)
		sampler.froms[s] = froms ? froms[s] : 0;
	return sampler;
}

static void finish(struct sampler *sampler, const uint32_t *shares, enum sampler_ends ends,
		   uint64_t epoch_samples)
{
	struct sampler_error error;
	if (sampler_finish(sampler, shares, ends, epoch_samples, &error) < 0)
		fail_msg("%s: %s", error.field, error.text);
}

static void refused(struct sampler *sampler, const uint32_t *shares, uint64_t epoch_samples,
		    const char *text)
{
	struct sampler_error error = {0};
	assert_int_equal(sampler_finish(sampler, shares, SAMPLER_ENDS_FIRST, epoch_samples, &error),
			 -EINVAL);
	if (!strstr(error.text, text))
		fail_msg("\"%s\" does not say \"%s\"", error.text, text);
	sampler_deinit(sampler);
}

/* The order of a feed that chooses every sample is the one without a choice. */
TEST(all_chosen_changes_nothing)
{
	uint64_t size = 1000;
	for (int listed = 0; listed < 2; listed++) {
		struct sampler sampler = make_sampler(&size, 1, 64, NULL, 1);
		struct order plain = {
			.samples = size, .seed = 7, .batch_size = 64, .world = 1, .shuffle = true};
		if (listed) {
			struct selection *selection = &sampler.parts[0].selection;
			assert_int_equal(selection_init_list(selection, size, size), 0);
			for (uint64_t i = 0; i < size; i++)
				selection_set(selection, i, i);
			assert_int_equal(selection_finish_list(selection, size), 0);
			assert_false(selection->duplicates);
		}
		finish(&sampler, NULL, SAMPLER_ENDS_FIRST, 0);
		struct order chosen = plain;
		chosen.sampler = &sampler;
		chosen.samples = sampler.epoch_samples;
		assert_int_equal(order_init(&plain), 0);
		assert_int_equal(order_init(&chosen), 0);
		for (uint64_t e = 0; e < 3; e++) {
			struct order_epoch a, b;
			order_epoch_init(&a, &plain, e);
			order_epoch_init(&b, &chosen, e);
			for (uint64_t i = 0; i < size; i++) {
				assert_int_equal(order_at(&a, i).sample, order_at(&b, i).sample);
				assert_int_equal(order_at(&b, i).copy, 0);
			}
		}
		sampler_deinit(&sampler);
	}
}

TEST(selection_of_bits)
{
	static const uint64_t sizes[] = {1, 63, 64, 65, 511, 512, 513, 5000};
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		for (uint64_t modulus = 1; modulus < 700; modulus = modulus * 3 + 1) {
			uint64_t *bits = calloc(sizes[s] / 64 + 1, sizeof(*bits)), count = 0;
			struct selection selection;
			/* Bits beyond the samples are ignored. */
			memset(bits, 0, (sizes[s] + 63) / 64 * 8);
			for (uint64_t i = 0; i < (sizes[s] + 63) / 64 * 64; i++)
				if (i % modulus == 0)
					bits[i / 64] |= UINT64_C(1) << i % 64;
			assert_int_equal(selection_init_bits(&selection, sizes[s], bits), 0);
			for (uint64_t i = 0; i < sizes[s]; i += modulus)
				assert_int_equal(selection_at(&selection, count++), i);
			assert_int_equal(selection.count, count);
			selection_deinit(&selection);
		}
	}
}

/* What a filter leaves out of a list takes no memory, since selection_bytes() does not count it. */
TEST(shortened_lists_give_memory_back)
{
	enum { ENTRIES = 1 << 22 };
	struct selection selection;
	assert_int_equal(selection_init_list(&selection, ENTRIES, ENTRIES), 0);
	for (uint64_t i = 0; i < ENTRIES; i++)
		assert_int_equal(selection_set(&selection, i, ENTRIES - 1 - i), 0);
	assert_int_equal(selection_finish_list(&selection, 3), 0);
	assert_true(malloc_usable_size(selection.short_list) < ENTRIES);
	assert_int_equal(selection.count, 3);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(selection_at(&selection, i), ENTRIES - 1 - i);
	selection_deinit(&selection);
}

TEST(duplicates_of_a_list_have_copies)
{
	uint64_t size = 10;
	struct sampler sampler = make_sampler(&size, 1, 4, NULL, 1);
	struct selection *selection = &sampler.parts[0].selection;
	static const uint64_t list[] = {3, 3, 9, 3};
	assert_int_equal(selection_init_list(selection, size, 4), 0);
	assert_int_equal(selection_set(selection, 0, 10), -ERANGE);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(selection_set(selection, i, list[i]), 0);
	assert_int_equal(selection_finish_list(selection, 4), 0);
	assert_true(selection->duplicates);
	finish(&sampler, NULL, SAMPLER_ENDS_FIRST, 0);
	for (uint64_t e = 0; e < 50; e++) {
		uint64_t copies = 0, threes = 0;
		for (uint64_t i = 0; i < 4; i++) {
			struct sampler_draw draw = sampler_at(&sampler, e, i);
			if (draw.sample != 3)
				continue;
			threes++;
			assert_true(draw.copy < 4);
			copies |= UINT64_C(1) << draw.copy;
		}
		assert_int_equal(threes, 3);
		assert_int_equal(__builtin_popcountll(copies), 3);
	}
	sampler_deinit(&sampler);
}

/* Checks shares in each period, and that each pass of each part has each sample once. */
static void check_mixture(struct sampler *sampler, const uint64_t *sizes, const uint32_t *shares,
			  uint64_t draws)
{
	uint32_t parts = sampler->part_count;
	uint64_t unit = sampler->by_batch ? sampler->global : 1, period = 0;
	uint64_t *drawn = calloc(parts, sizeof(*drawn));
	uint8_t **times = calloc(parts, sizeof(*times));
	for (uint32_t p = 0; p < parts; p++) {
		times[p] = calloc(sizes[p], 1);
		period += shares[p] * unit;
	}
	for (uint64_t i = 0; i < draws; i++) {
		struct sampler_draw draw =
			sampler_at(sampler, i / sampler->epoch_samples, i % sampler->epoch_samples);
		uint32_t p = parts - 1;
		while (draw.sample < sampler->parts[p].first)
			p--;
		drawn[p]++;
		times[p][draw.sample - sampler->parts[p].first]++;
		if ((i + 1) % period != 0)
			continue;
		for (p = 0; p < parts; p++) {
			uint64_t expected = (i + 1) / period * shares[p] * unit;
			assert_int_equal(drawn[p], expected);
			for (uint64_t k = 0; k < sizes[p]; k++) {
				uint64_t passes = expected / sizes[p];
				assert_in_range(times[p][k], passes, passes + 1);
			}
		}
	}
	for (uint32_t p = 0; p < parts; p++)
		free(times[p]);
	free(times);
	free(drawn);
}

TEST(mixture_has_exact_shares)
{
	static const uint64_t sizes[] = {100, 7, 33};
	static const uint32_t shares[] = {3, 1, 2};
	for (int by_batch = 0; by_batch < 2; by_batch++)
		for (int shuffle = 0; shuffle < 2; shuffle++) {
			struct sampler sampler = make_sampler(sizes, 3, 4, NULL, 1);
			sampler.by_batch = by_batch;
			sampler.shuffle = shuffle;
			finish(&sampler, shares, SAMPLER_ENDS_LAST, 0);
			check_mixture(&sampler, sizes, shares, 6 * 4 * 60);
			sampler_deinit(&sampler);
		}
}

TEST(mixture_ends)
{
	static const uint64_t sizes[] = {100, 7};
	static const uint32_t shares[] = {6, 2}; /* as 3 and 1 */
	struct sampler first = make_sampler(sizes, 2, 5, NULL, 1);
	finish(&first, shares, SAMPLER_ENDS_FIRST, 0);
	/* Seven periods of four, in whole batches of five. */
	assert_int_equal(first.epoch_samples, 25);
	sampler_deinit(&first);
	struct sampler last = make_sampler(sizes, 2, 5, NULL, 1);
	finish(&last, shares, SAMPLER_ENDS_LAST, 0);
	/* 34 periods of four. */
	assert_int_equal(last.epoch_samples, 140);
	/* Every sample has come by the end of the first epoch; the next goes on in the parts. */
	uint8_t seen[107] = {0};
	for (uint64_t i = 0; i < last.epoch_samples; i++)
		seen[sampler_at(&last, 0, i).sample]++;
	for (int i = 0; i < 107; i++)
		assert_true(seen[i] > 0);
	sampler_deinit(&last);
	struct sampler given = make_sampler(sizes, 2, 5, NULL, 1);
	finish(&given, shares, SAMPLER_ENDS_FIRST, 11);
	assert_int_equal(given.epoch_samples, 11);
	sampler_deinit(&given);
}

/* A sample that comes several times in an epoch has as many copies. */
TEST(copies_of_a_mixture_differ)
{
	static const uint64_t sizes[] = {1000, 3};
	static const uint32_t shares[] = {1, 1};
	struct sampler sampler = make_sampler(sizes, 2, 10, NULL, 1);
	finish(&sampler, shares, SAMPLER_ENDS_LAST, 0);
	for (uint64_t e = 0; e < 3; e++) {
		uint8_t seen[3][1024] = {0};
		for (uint64_t i = 0; i < sampler.epoch_samples; i++) {
			struct sampler_draw draw = sampler_at(&sampler, e, i);
			if (draw.sample < 1000)
				continue;
			assert_true(draw.copy < 1024);
			assert_int_equal(seen[draw.sample - 1000][draw.copy]++, 0);
		}
	}
	sampler_deinit(&sampler);
}

TEST(shares_change_in_stages)
{
	static const uint64_t sizes[] = {50, 60};
	static const uint64_t froms[] = {0, 3, 10};
	static const uint32_t shares[] = {4, 3, 1, 0, 0, 1};
	struct sampler sampler = make_sampler(sizes, 2, 5, froms, 3);
	finish(&sampler, shares, SAMPLER_ENDS_FIRST, 40);
	/* Stage 1 begins at draw 21, where a period of seven ends, not at 15. */
	uint32_t drawn[2] = {0}, times[110] = {0};
	for (uint64_t i = 0; i < 100; i++) {
		uint64_t sample = sampler_at(&sampler, i / 40, i % 40).sample;
		times[sample]++;
		drawn[sample >= 50]++;
		if (i == 20)
			assert_true(drawn[0] == 12 && drawn[1] == 9);
		if (i == 49)
			assert_true(drawn[0] == 41 && drawn[1] == 9);
	}
	assert_true(drawn[0] == 41 && drawn[1] == 59);
	/* Each part goes on where it was: no sample has come twice. */
	for (int i = 0; i < 110; i++)
		assert_true(times[i] <= 1);
	sampler_deinit(&sampler);
}

TEST(impossible_orders_are_refused)
{
	static const uint64_t sizes[] = {50, 2};
	static const uint32_t shares[] = {1, 3, 1, 3};
	static const uint64_t froms[] = {0, 0}, close[] = {0, 1};
	static const uint32_t zero[] = {0, 0}, large[] = {65536, 1};
	static const uint32_t changing[] = {10, 3, 1, 1};
	struct sampler sampler = make_sampler(sizes, 2, 5, NULL, 1);
	refused(&sampler, shares, 0, "has 2 samples, fewer than the 3");
	sampler = make_sampler(sizes, 2, 5, NULL, 1);
	refused(&sampler, zero, 0, "must not all be 0");
	sampler = make_sampler(sizes, 2, 5, NULL, 1);
	refused(&sampler, large, 0, "sum to at most 65536");
	sampler = make_sampler(sizes, 2, 5, froms, 2);
	refused(&sampler, shares, 100, "ascending");
	sampler = make_sampler(sizes, 2, 5, close, 2);
	refused(&sampler, changing, 0, "number of samples of an epoch");
	static const uint64_t soon[] = {0, 1, 2};
	static const uint32_t slow[] = {10, 3, 1, 1, 1, 2};
	sampler = make_sampler(sizes, 2, 5, soon, 3);
	refused(&sampler, slow, 100, "stage 2 begins at batch 2");
	/* The period in which the last batch lies would end past 2^64. */
	static const uint64_t late[] = {0, UINT64_MAX / 5};
	sampler = make_sampler(sizes, 2, 5, late, 2);
	refused(&sampler, slow, 100, "batch 3689348814741910323 is out of range");
	uint64_t none = 0;
	sampler = make_sampler(&none, 1, 5, NULL, 1);
	refused(&sampler, NULL, 0, "no sample is chosen");
}

/* Draws in proportion to weights, within five standard deviations, and never at weight 0. */
static void check_draws(const uint64_t *drawn, const double *weights, unsigned count,
			uint64_t total)
{
	double sum = 0;
	for (unsigned i = 0; i < count; i++)
		sum += weights[i];
	for (unsigned i = 0; i < count; i++) {
		double p = weights[i] / sum, expected = p * (double)total;
		if (weights[i] == 0)
			assert_int_equal(drawn[i], 0);
		assert_true(fabs((double)drawn[i] - expected) <= 5 * sqrt(expected * (1 - p)) + 1);
	}
}

static void set_weights(struct sampler_part *part, const float *weights, uint32_t stages)
{
	assert_int_equal(sampler_set_weights(part, stages), 0);
	for (uint32_t s = 0; s < stages; s++)
		for (uint64_t i = 0; i < part->selection.count; i++)
			weight_sums_add(&part->sums[s], weights[s * part->selection.count + i]);
}

TEST(draws_by_weights)
{
	enum { SAMPLES = 7, DRAWS = 70000 };
	static const float weights[2 * SAMPLES] = {0, 1, 0.5F, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 1};
	static const uint64_t froms[] = {0, DRAWS / 7};
	uint64_t size = SAMPLES;
	struct sampler sampler = make_sampler(&size, 1, 7, froms, 2);
	set_weights(&sampler.parts[0], weights, 2);
	finish(&sampler, NULL, SAMPLER_ENDS_FIRST, 0);
	for (int stage = 0; stage < 2; stage++) {
		uint64_t drawn[SAMPLES] = {0};
		double expected[SAMPLES];
		for (uint64_t i = 0; i < DRAWS; i++) {
			uint64_t at = (uint64_t)stage * DRAWS + i;
			drawn[sampler_at(&sampler, at / size, at % size).sample]++;
		}
		for (int i = 0; i < SAMPLES; i++)
			expected[i] = (double)weights[stage * SAMPLES + i];
		check_draws(drawn, expected, SAMPLES, DRAWS);
	}
	sampler_deinit(&sampler);
}

TEST(weights_of_zero_are_refused)
{
	static const float weights[] = {1, 0, 0, 0, 0, 0};
	static const uint64_t froms[] = {0, 3};
	uint64_t size = 3;
	struct sampler sampler = make_sampler(&size, 1, 1, froms, 2);
	struct sampler_error error;
	set_weights(&sampler.parts[0], weights, 2);
	assert_int_equal(sampler_finish(&sampler, NULL, SAMPLER_ENDS_FIRST, 0, &error), -EINVAL);
	assert_string_equal(error.field, "weights");
	assert_non_null(strstr(error.text, "all 3 samples are 0"));
	sampler_deinit(&sampler);
}

TEST(alias_table)
{
	enum { COUNT = 9, DRAWS = 90000 };
	static const double weights[COUNT] = {0, 1e-3, 5, 1, 1, 0, 100, 3, 0};
	struct weight_alias alias;
	uint32_t wrong;
	uint64_t drawn[COUNT] = {0};
	assert_int_equal(weight_alias_init(&alias, weights, COUNT, &wrong), 0);
	for (uint64_t i = 0; i < DRAWS; i++) {
		struct random_stream stream;
		random_init(&stream, 1, 2, i, RANDOM_DRAW);
		uint64_t high = random_u32(&stream);
		drawn[weight_alias_draw(&alias, high << 32 | random_u32(&stream))]++;
	}
	check_draws(drawn, weights, COUNT, DRAWS);
	assert_int_equal(weight_alias_draw(&alias, UINT64_MAX) < COUNT, 1);
	weight_alias_deinit(&alias);
}

/* Sets a part's classes as if samples 0 .. 3 were of class 0, 4 .. 5 of class 2, and so on. */
static void set_classes(struct sampler_part *part, const uint64_t *sizes, uint32_t count)
{
	struct class_index *index = &part->classes;
	index->class_count = count;
	index->starts = calloc(count + 1, sizeof(*index->starts));
	part->present = calloc(count, sizeof(*part->present));
	for (uint32_t c = 0; c < count; c++) {
		index->starts[c + 1] = index->starts[c] + sizes[c];
		if (sizes[c] > 0)
			part->present[part->present_count++] = c;
	}
	selection_init_all(&index->members, index->starts[count]);
}

TEST(class_batches)
{
	static const uint64_t sizes[] = {4, 0, 2, 9, 1, 5};
	uint64_t size = 25; /* the last four are unlabelled */
	struct sampler sampler = make_sampler(&size, 1, 6, NULL, 1);
	struct sampler_part *part = &sampler.parts[0];
	set_classes(part, sizes, 6);
	part->kind = SAMPLER_CLASS_BATCHES;
	part->classes_per_batch = 2;
	finish(&sampler, NULL, SAMPLER_ENDS_FIRST, 0);
	assert_int_equal(sampler.epoch_samples, 18);
	uint32_t batches[6] = {0}, times[21] = {0};
	for (uint64_t b = 0; b < 3 * 100; b++) {
		uint32_t of_class[6] = {0};
		for (uint64_t i = 0; i < 6; i++) {
			uint64_t at = b * 6 + i;
			uint64_t sample = sampler_at(&sampler, at / 18, at % 18).sample;
			uint32_t class_number = 0;
			while (sample >= part->classes.starts[class_number + 1])
				class_number++;
			of_class[class_number]++;
			times[sample]++;
		}
		for (int c = 0; c < 6; c++) {
			assert_true(of_class[c] % 3 == 0);
			batches[c] += of_class[c] / 3;
		}
	}
	/* 600 turns of five classes; each class goes through its samples evenly. */
	for (uint32_t c = 0; c < 6; c++) {
		assert_int_equal(batches[c], sizes[c] > 0 ? 120 : 0);
		for (uint64_t k = 0; k < sizes[c]; k++)
			assert_in_range(times[part->classes.starts[c] + k], 360 / sizes[c],
					360 / sizes[c] + 1);
	}
	sampler_deinit(&sampler);
}

TEST(other_is_of_the_same_part)
{
	static const uint64_t sizes[] = {10, 20, 30};
	static const uint32_t shares[] = {1, 1, 1};
	struct sampler sampler = make_sampler(sizes, 3, 3, NULL, 1);
	finish(&sampler, shares, SAMPLER_ENDS_FIRST, 0);
	for (uint64_t bits = 0; bits < 100; bits++) {
		uint64_t draw = bits * UINT64_C(0x028F5C28F5C28F5C);
		assert_in_range(sampler_other(&sampler, 10, draw), 10, 29);
		assert_in_range(sampler_other(&sampler, 29, draw), 10, 29);
		assert_in_range(sampler_other(&sampler, 59, draw), 30, 59);
	}
	sampler_deinit(&sampler);
}
