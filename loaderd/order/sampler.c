#include "loaderd/order/sampler.h"

#include "format/base/random.h"
#include "loaderd/order/permutation.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static int refuse(struct sampler_error *error,
							const char *field, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	error->field = field;
	return -EINVAL;
}

/* One draw from a part: the number of a pass and the place in it. */
struct place {
	uint64_t pass, place;
	uint64_t passes; /* passes of the part that this epoch has begun before this one */
	uint32_t stage;
};

static uint64_t random_u64(uint64_t seed, uint64_t epoch, uint64_t sample,
			   enum random_purpose purpose)
{
	struct random_stream stream;
	random_init(&stream, seed, epoch, sample, purpose);
	uint64_t high = random_u32(&stream);
	return high << 32 | random_u32(&stream);
}

/* Returns an integer below `bound`. The bias of 2^-64 * bound is not measurable. */
static uint64_t scale(uint64_t bits, uint64_t bound)
{
	return (uint64_t)((unsigned __int128)bits * bound >> 64);
}

static uint64_t part_seed(const struct sampler *sampler, uint32_t part)
{
	return part == 0 ? sampler->seed : random_u64(sampler->seed, part, 0, RANDOM_PART);
}

static uint64_t block_place(const struct sampler *sampler, const struct sampler_part *part,
			    uint64_t seed, const struct place *at)
{
	struct block_order order;
	block_order_init(&order, &sampler->blocks, part->selection.count, seed, at->pass);
	return block_order_at(&order, at->place);
}

/* Returns the sample of the part that a draw chooses. */
static uint64_t draw_sample(const struct sampler *sampler, const struct sampler_part *part,
			    const struct place *at)
{
	uint64_t seed = part_seed(sampler, (uint32_t)(part - sampler->parts));
	if (part->kind == SAMPLER_ONCE) {
		struct permutation permutation;
		if (!sampler->shuffle)
			return selection_at(&part->selection, at->place);
		if (sampler->blocks.samples > 0)
			return selection_at(&part->selection, block_place(sampler, part, seed, at));
		permutation_init(&permutation, part->selection.count, seed, at->pass, 0,
				 RANDOM_ORDER);
		return selection_at(&part->selection, permutation_at(&permutation, at->place));
	}
	uint32_t stage = part->weight_stages == 1 ? 0 : at->stage;
	uint64_t bits = random_u64(seed, at->pass, at->place, RANDOM_DRAW);
	if (part->kind == SAMPLER_WEIGHTS)
		return selection_at(&part->selection, weight_sums_draw(&part->sums[stage], bits));
	uint32_t class_number = weight_alias_draw(&part->aliases[stage], bits);
	/* A second number: the first has been used up to its last bit. */
	uint64_t member = random_u64(seed, at->pass, at->place, RANDOM_MEMBERS);
	return class_index_member(&part->classes, class_number,
				  scale(member, class_index_size(&part->classes, class_number)));
}

static struct sampler_draw part_draw(const struct sampler *sampler, const struct sampler_part *part,
				     const struct place *at)
{
	/* The same sample may come twice in a pass: then copies differ by their place, too. */
	bool once = part->kind == SAMPLER_ONCE && !part->selection.duplicates;
	uint64_t copy = once ? at->passes : at->passes * part->selection.count + at->place;
	return (struct sampler_draw){part->first + draw_sample(sampler, part, at), (uint32_t)copy};
}

/*
 * Class batches: each global batch takes the next classes of a permutation of all of them, which
 * begins anew when it is used up, and from each class the next samples of a permutation of its own.
 */
static struct sampler_draw class_batch_draw(const struct sampler *sampler,
					    const struct sampler_part *part, uint64_t batch,
					    uint64_t place)
{
	uint64_t each = sampler->global / part->classes_per_batch, i = place % each;
	uint64_t turn = batch * part->classes_per_batch + place / each;
	uint64_t cycle = turn / part->present_count;
	struct permutation classes, members;
	permutation_init(&classes, part->present_count, sampler->seed, cycle, 0, RANDOM_CLASSES);
	uint32_t class_number = part->present[permutation_at(&classes, turn % part->present_count)];
	uint64_t size = class_index_size(&part->classes, class_number);
	uint64_t number = cycle * each + i;
	permutation_init(&members, size, sampler->seed, number / size, class_number,
			 RANDOM_MEMBERS);
	uint64_t member = permutation_at(&members, number % size);
	return (struct sampler_draw){
		part->first + class_index_member(&part->classes, class_number, member),
		(uint32_t)(number / size)};
}

static struct sampler_draw bucket_draw(const struct sampler *sampler,
				       const struct sampler_part *part, uint64_t epoch,
				       uint64_t position)
{
	uint64_t sample =
		buckets_at(&part->buckets, sampler->seed, sampler->shuffle, epoch, position).sample;
	uint64_t copy = part->selection.duplicates ? position : 0;
	return (struct sampler_draw){part->first + sample, (uint32_t)copy};
}

const struct buckets *sampler_buckets(const struct sampler *sampler)
{
	const struct sampler_part *part = sampler->parts;
	return part->kind == SAMPLER_BUCKETS ? &part->buckets : NULL;
}

const struct packs *sampler_packs(const struct sampler *sampler)
{
	const struct sampler_part *part = sampler->parts;
	return part->kind == SAMPLER_PACKS ? &part->packs : NULL;
}

uint32_t sampler_pack_size(const struct sampler *sampler, uint64_t epoch, uint64_t pack)
{
	return packs_size(&sampler->parts->packs, sampler->seed, sampler->shuffle, epoch, pack);
}

struct pack_draw sampler_pack_at(const struct sampler *sampler, uint64_t epoch, uint64_t position)
{
	return packs_at(&sampler->parts->packs, sampler->seed, sampler->shuffle, epoch, position);
}

struct pack_draw sampler_pack_other(const struct sampler *sampler, uint64_t epoch,
				    uint64_t position, uint64_t bits)
{
	return packs_other(&sampler->parts->packs, sampler->seed, sampler->shuffle, epoch, position,
			   bits);
}

uint32_t sampler_bucket_at(const struct sampler *sampler, uint64_t epoch, uint64_t position)
{
	return buckets_at(&sampler->parts->buckets, sampler->seed, sampler->shuffle, epoch,
			  position)
		.bucket;
}

static uint32_t stage_of(const struct sampler *sampler, uint64_t batch)
{
	uint32_t low = 0, high = sampler->stage_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (sampler->froms[middle] <= batch)
			low = middle;
		else
			high = middle;
	}
	return low;
}

uint32_t sampler_stage(const struct sampler *sampler, uint64_t epoch, uint64_t batch)
{
	uint64_t draw = epoch * sampler->epoch_samples + batch * sampler->global;
	if (sampler->part_count > 1)
		return mixture_stage(&sampler->mixture,
				     draw / (sampler->by_batch ? sampler->global : 1));
	return stage_of(sampler, draw / sampler->global);
}

/* The draw of a part with this number, counted through all epochs. */
static struct sampler_draw continued_draw(const struct sampler *sampler, uint64_t epoch,
					  uint64_t position)
{
	uint64_t draw = epoch * sampler->epoch_samples + position, before = draw - position;
	uint64_t number = draw;
	const struct sampler_part *part = sampler->parts;
	if (sampler->part_count > 1) {
		uint64_t unit = sampler->by_batch ? sampler->global : 1;
		struct mixture_unit at = mixture_at(&sampler->mixture, draw / unit);
		part += at.part;
		number = at.number * unit + draw % unit;
		before = mixture_before(&sampler->mixture, before / unit, at.part) * unit;
	}
	uint64_t pass = part->selection.count;
	const struct place at = {
		.pass = number / pass,
		.place = number % pass,
		.passes = number / pass - before / pass,
		.stage = stage_of(sampler, draw / sampler->global),
	};
	return part_draw(sampler, part, &at);
}

struct sampler_draw sampler_at(const struct sampler *sampler, uint64_t epoch, uint64_t position)
{
	const struct sampler_part *part = sampler->parts;
	if (part->kind == SAMPLER_CLASS_BATCHES) {
		uint64_t batches = sampler->epoch_samples / sampler->global;
		return class_batch_draw(sampler, part, epoch * batches + position / sampler->global,
					position % sampler->global);
	}
	if (part->kind == SAMPLER_BUCKETS)
		return bucket_draw(sampler, part, epoch, position);
	if (part->kind == SAMPLER_PACKS)
		return (struct sampler_draw){sampler_pack_at(sampler, epoch, position).sample,
					     (uint32_t)(part->selection.duplicates ? position : 0)};
	if (sampler->continues)
		return continued_draw(sampler, epoch, position);
	const struct place at = {.pass = epoch, .place = position};
	return part_draw(sampler, part, &at);
}

uint64_t sampler_other(const struct sampler *sampler, uint64_t sample, uint64_t bits)
{
	const struct sampler_part *part = sampler->parts + sampler->part_count - 1;
	while (sample < part->first)
		part--;
	return part->first + selection_at(&part->selection, scale(bits, part->selection.count));
}

/* Returns the units of an epoch of a mixture with one stage, or 0 if it would have none. */
static uint64_t mixture_epoch(const struct sampler *sampler, uint64_t unit, enum sampler_ends ends,
			      struct sampler_error *error)
{
	uint64_t result = 0;
	for (uint32_t p = 0; p < sampler->part_count; p++) {
		uint64_t share = (uint64_t)mixture_share(&sampler->mixture, 0, p) * unit;
		uint64_t count = sampler->parts[p].selection.count;
		if (share == 0)
			continue;
		uint64_t periods =
			ends == SAMPLER_ENDS_LAST ? (count - 1) / share + 1 : count / share;
		if (ends == SAMPLER_ENDS_LAST ? periods > result : result == 0 || periods < result)
			result = periods;
		if (periods > 0)
			continue;
		error->part = p;
		refuse(error, "parts",
		       "it has %llu samples, fewer than the %llu that it gives to each period of "
		       "the mixture: use smaller shares, end with the last part, or give the "
		       "samples of an epoch",
		       (unsigned long long)count, (unsigned long long)share);
		return 0;
	}
	return result * sampler->mixture.stages[0].period;
}

static int finish_mixture(struct sampler *sampler, const uint32_t *shares, enum sampler_ends ends,
			  uint64_t epoch_samples, struct sampler_error *error)
{
	uint64_t unit = sampler->by_batch ? sampler->global : 1, global = sampler->global;
	uint64_t per_batch = global / unit;
	uint32_t stage = 0;
	uint64_t *froms = calloc(sampler->stage_count, sizeof(*froms));
	if (!froms)
		return -ENOMEM;
	for (uint32_t i = 0; i < sampler->stage_count; i++)
		froms[i] = sampler->froms[i] * per_batch;
	int r = mixture_init(&sampler->mixture, sampler->seed, sampler->shuffle,
			     sampler->part_count, sampler->stage_count, froms, shares, &stage);
	free(froms);
	if (r == -ERANGE)
		return refuse(error, "stages",
			      "stage %u begins at batch %llu, before a period of the shares of the "
			      "stage before has been delivered: begin it later, or use smaller "
			      "shares",
			      stage, (unsigned long long)sampler->froms[stage]);
	if (r == -EINVAL)
		return refuse(error, "parts",
			      "the shares of stage %u must not all be 0, and sum to at most %d",
			      stage, MIXTURE_SHARES_MAX);
	if (r < 0)
		return r;
	if (epoch_samples == 0 && sampler->stage_count > 1)
		return refuse(error, "epoch_samples",
			      "shares that change in training need the number of samples of an "
			      "epoch");
	sampler->epoch_samples = epoch_samples;
	if (epoch_samples > 0)
		return 0;
	uint64_t units = mixture_epoch(sampler, unit, ends, error), samples;
	if (units == 0)
		return -EINVAL;
	if (__builtin_mul_overflow(units, unit, &samples) || samples > UINT64_MAX - global)
		return refuse(error, "parts", "an epoch would have more than 2^64 samples");
	/* Whole global batches, so that no sample is dropped at the end of an epoch. */
	sampler->epoch_samples = ends == SAMPLER_ENDS_LAST
					 ? (samples + global - 1) / global * global
					 : samples / global * global;
	if (sampler->epoch_samples == 0)
		return refuse(error, "batch_size",
			      "an epoch of the mixture has %llu samples, fewer than batch_size "
			      "times world, %llu",
			      (unsigned long long)samples, (unsigned long long)global);
	return 0;
}

static int check_weights(const struct sampler_part *part, struct sampler_error *error)
{
	for (uint32_t s = 0; s < part->weight_stages; s++)
		if (!(weight_sums_total(&part->sums[s]) > 0))
			return refuse(error, "weights", "the weights of all %llu samples are 0",
				      (unsigned long long)part->selection.count);
	return 0;
}

static int check_parts(const struct sampler *sampler, struct sampler_error *error)
{
	for (uint32_t p = 0; p < sampler->part_count; p++) {
		const struct sampler_part *part = &sampler->parts[p];
		error->part = p;
		if (part->selection.count == 0)
			return refuse(error, "choice", "no sample is chosen");
		if (part->kind == SAMPLER_BUCKETS && sampler->part_count > 1) {
			error->part = SAMPLER_NO_PART;
			return refuse(error, "buckets",
				      "a mixture of %u parts has no buckets: give one part",
				      sampler->part_count);
		}
		if (part->kind == SAMPLER_PACKS && sampler->part_count > 1) {
			error->part = SAMPLER_NO_PART;
			return refuse(
				error, "batch_tokens",
				"a mixture of %u parts is not packed by tokens: give one part",
				sampler->part_count);
		}
		if (part->kind == SAMPLER_WEIGHTS && check_weights(part, error) < 0)
			return -EINVAL;
		if (part->kind != SAMPLER_CLASS_BATCHES)
			continue;
		if (sampler->part_count > 1)
			return refuse(error, "choice",
				      "batches of classes cannot be parts of a mixture");
		if (sampler->global % part->classes_per_batch)
			return refuse(error, "choice",
				      "%u classes per batch do not divide the %llu samples of a "
				      "batch over all ranks",
				      part->classes_per_batch, (unsigned long long)sampler->global);
	}
	/* What follows concerns the mixture, unless it names a part. */
	error->part = sampler->part_count > 1 ? SAMPLER_NO_PART : 0;
	return 0;
}

static int check_froms(const struct sampler *sampler, struct sampler_error *error)
{
	for (uint32_t i = 0; i < sampler->stage_count; i++) {
		uint64_t from = sampler->froms[i], position;
		if (i == 0 ? from != 0 : from <= sampler->froms[i - 1])
			return refuse(error, "stages",
				      "stages begin at ascending batches, the first at 0; stage %u "
				      "begins at %llu",
				      i, (unsigned long long)from);
		/* A stage begins where the period ends in which its first batch lies. */
		if (__builtin_add_overflow(from, MIXTURE_SHARES_MAX, &position) ||
		    __builtin_mul_overflow(position, sampler->global, &position))
			return refuse(error, "stages", "batch %llu is out of range",
				      (unsigned long long)from);
	}
	return 0;
}

/* An epoch has each sample once: it cannot go on in the middle of a pass. */
static int finish_divided(struct sampler *sampler, uint64_t epoch_samples,
			  struct sampler_error *error)
{
	struct sampler_part *part = sampler->parts;
	const char *what = part->kind == SAMPLER_PACKS ? "batch_tokens" : "buckets";
	if (epoch_samples > 0)
		return refuse(error, "epoch_samples",
			      "an epoch of a feed with %s has each sample once: leave "
			      "epoch_samples unset, not %llu",
			      what, (unsigned long long)epoch_samples);
	if (sampler->stage_count > 1)
		return refuse(error, "stages",
			      "a feed with %s has one stage, not %u: nothing in its order "
			      "changes with the stages",
			      what, sampler->stage_count);
	sampler->epoch_samples = part->selection.count;
	return part->kind == SAMPLER_PACKS ? 0 : buckets_cut(&part->buckets, sampler->global);
}

/* Sets the samples of an epoch of a feed of one part. */
static int finish_single(struct sampler *sampler, uint64_t epoch_samples,
			 struct sampler_error *error)
{
	const struct sampler_part *part = sampler->parts;
	if (part->kind == SAMPLER_BUCKETS || part->kind == SAMPLER_PACKS)
		return finish_divided(sampler, epoch_samples, error);
	bool class_batches = part->kind == SAMPLER_CLASS_BATCHES;
	uint64_t samples =
		class_batches ? class_index_count(&part->classes) : part->selection.count;
	sampler->continues = epoch_samples > 0 || sampler->stage_count > 1;
	sampler->epoch_samples = epoch_samples ?: samples;
	if (!class_batches)
		return 0;
	/* Class batches are whole. */
	sampler->epoch_samples -= sampler->epoch_samples % sampler->global;
	if (sampler->epoch_samples == 0)
		return refuse(error, "batch_size",
			      "an epoch of %llu samples is shorter than a batch over all ranks, "
			      "%llu samples",
			      (unsigned long long)(epoch_samples ?: samples),
			      (unsigned long long)sampler->global);
	return 0;
}

int sampler_finish(struct sampler *sampler, const uint32_t *shares, enum sampler_ends ends,
		   uint64_t epoch_samples, struct sampler_error *error)
{
	int r = check_parts(sampler, error);
	r = r ?: check_froms(sampler, error);
	if (r < 0)
		return r;
	if (sampler->part_count == 1)
		return finish_single(sampler, epoch_samples, error);
	sampler->continues = true;
	return finish_mixture(sampler, shares, ends, epoch_samples, error);
}

int sampler_set_weights(struct sampler_part *part, uint32_t stages)
{
	int r = 0;
	part->kind = SAMPLER_WEIGHTS;
	part->sums = calloc(stages, sizeof(*part->sums));
	if (!part->sums)
		return -ENOMEM;
	for (; r == 0 && part->weight_stages < stages; part->weight_stages++)
		r = weight_sums_init(&part->sums[part->weight_stages], part->selection.count);
	return r;
}

static int index_classes(struct sampler_part *part, const struct packimg *dataset,
			 const char *field, struct sampler_error *error)
{
	int r = class_index_init(&part->classes, dataset, &part->selection);
	if (r == -EINVAL)
		return refuse(error, field, "the dataset has no classes");
	if (r < 0)
		return r;
	if (class_index_count(&part->classes) == 0)
		return refuse(error, field, "none of the chosen samples has a label");
	return 0;
}

/* Sets the alias table of a stage: the weights of the classes, over all their samples. */
static int alias_of_classes(const struct class_index *classes, const float *weights,
			    struct weight_alias *alias, struct sampler_error *error)
{
	uint32_t count = classes->class_count, wrong;
	double *totals = malloc(count * sizeof(*totals));
	if (!totals)
		return -ENOMEM;
	for (uint32_t c = 0; c < count; c++) {
		uint64_t size = class_index_size(classes, c);
		/* A class without samples cannot be drawn; but a wrong weight is still wrong. */
		if (!weights)
			totals[c] = size > 0;
		else
			totals[c] = size > 0 || !isfinite(weights[c]) || weights[c] < 0
					    ? (double)weights[c] * (double)(size ?: 1)
					    : 0;
	}
	int r = weight_alias_init(alias, totals, count, &wrong);
	free(totals);
	if (r == -EINVAL && wrong < count)
		return refuse(error, "class_weights",
			      "the weight of class %u is %g: weights are finite and not negative",
			      wrong, weights ? (double)weights[wrong] : 0.0);
	if (r == -EINVAL)
		return refuse(error, "class_weights",
			      "all classes that have samples have the weight 0");
	return r;
}

int sampler_set_class_weights(struct sampler_part *part, const struct packimg *dataset,
			      const float *weights, uint32_t stages, struct sampler_error *error)
{
	int r = index_classes(part, dataset, "class_weights", error);
	if (r < 0)
		return r;
	part->kind = SAMPLER_CLASS_WEIGHTS;
	part->aliases = calloc(stages, sizeof(*part->aliases));
	if (!part->aliases)
		return -ENOMEM;
	for (; r == 0 && part->weight_stages < stages; part->weight_stages++) {
		const float *row =
			weights ? weights + (size_t)part->weight_stages * part->classes.class_count
				: NULL;
		r = alias_of_classes(&part->classes, row, &part->aliases[part->weight_stages],
				     error);
	}
	return r;
}

int sampler_set_class_batches(struct sampler_part *part, const struct packimg *dataset,
			      uint32_t classes_per_batch, struct sampler_error *error)
{
	int r = index_classes(part, dataset, "classes_per_batch", error);
	if (r < 0)
		return r;
	part->kind = SAMPLER_CLASS_BATCHES;
	part->classes_per_batch = classes_per_batch;
	part->present = calloc(part->classes.class_count, sizeof(*part->present));
	if (!part->present)
		return -ENOMEM;
	for (uint32_t c = 0; c < part->classes.class_count; c++)
		if (class_index_size(&part->classes, c) > 0)
			part->present[part->present_count++] = c;
	if (classes_per_batch == 0 || classes_per_batch > part->present_count)
		return refuse(error, "classes_per_batch",
			      "a batch cannot have %u classes: %u have samples", classes_per_batch,
			      part->present_count);
	return 0;
}

int sampler_set_buckets(struct sampler_part *part, const struct packimg *dataset,
			const struct bucket_size *sizes, uint32_t count,
			struct sampler_error *error)
{
	if (part->kind != SAMPLER_ONCE)
		return refuse(error, "buckets",
			      "with buckets, each chosen sample comes once in an epoch: leave out "
			      "weights, class_weights, balanced and classes_per_batch");
	int r = buckets_init(&part->buckets, dataset, &part->selection, sizes, count);
	if (r == 0)
		part->kind = SAMPLER_BUCKETS;
	return r;
}

int sampler_set_packs(struct sampler_part *part, const struct pack_tokens *tokens, uint64_t seed,
		      uint32_t tokens_max, uint32_t batch_size, uint64_t bytes_max,
		      struct sampler_error *error)
{
	if (part->kind != SAMPLER_ONCE)
		return refuse(
			error, "batch_tokens",
			"with batch_tokens, each chosen sample comes once in an epoch: leave "
			"out weights, class_weights, balanced, classes_per_batch and buckets");
	uint64_t used = selection_bytes(&part->selection);
	int r = packs_init(&part->packs, &part->selection, tokens, seed, tokens_max, batch_size,
			   bytes_max > used ? bytes_max - used : 0);
	if (r == 0)
		part->kind = SAMPLER_PACKS;
	return r;
}

uint64_t sampler_bytes(const struct sampler *sampler)
{
	uint64_t bytes = mixture_bytes(&sampler->mixture);
	for (uint32_t p = 0; p < sampler->part_count; p++) {
		const struct sampler_part *part = &sampler->parts[p];
		bytes += sizeof(*part) + selection_bytes(&part->selection);
		if (part->kind == SAMPLER_WEIGHTS)
			bytes += part->weight_stages * part->selection.count * sizeof(double);
		if (part->classes.starts)
			bytes += class_index_bytes(&part->classes);
		if (part->present)
			bytes += part->classes.class_count * sizeof(*part->present);
		bytes += buckets_bytes(&part->buckets) + packs_bytes(&part->packs);
		if (part->kind == SAMPLER_CLASS_WEIGHTS)
			bytes += (uint64_t)part->weight_stages * part->classes.class_count *
				 (sizeof(double) + sizeof(uint32_t));
	}
	return bytes;
}

static void part_deinit(struct sampler_part *part)
{
	for (uint32_t i = 0; i < part->weight_stages; i++) {
		if (part->sums)
			weight_sums_deinit(&part->sums[i]);
		if (part->aliases)
			weight_alias_deinit(&part->aliases[i]);
	}
	free(part->sums);
	free(part->aliases);
	free(part->present);
	if (part->classes.starts)
		class_index_deinit(&part->classes);
	buckets_deinit(&part->buckets);
	packs_deinit(&part->packs);
	selection_deinit(&part->selection);
}

void sampler_deinit(struct sampler *sampler)
{
	for (uint32_t p = 0; p < sampler->part_count; p++)
		part_deinit(&sampler->parts[p]);
	free(sampler->parts);
	free(sampler->froms);
	if (sampler->mixture.stages)
		mixture_deinit(&sampler->mixture);
	*sampler = (struct sampler){0};
}
