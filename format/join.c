#include "format/base/uuid.h"
#include "format/error.h"
#include "format/join_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *join_path(const struct packimg *part)
{
	return part->name ? part->name : part->shards[0].path;
}

void join_free(struct join *join)
{
	for (uint32_t p = 0; p < join->part_count; p++) {
		packimg_close(join->parts[p].dataset);
		free(join->parts[p].labels);
	}
	free(join->parts);
	free(join->firsts);
	free(join->shard_firsts);
	free(join);
}

static int check_part(struct packimg *const *parts, uint32_t number, struct packimg_error *error)
{
	const struct packimg *part = parts[number];

	if (part->join)
		return packimg_fail(error, -EINVAL, "part %u is a joined dataset; join its parts",
				    number);
	if (part->open_count == 0)
		return packimg_fail(
			error, -EINVAL,
			"part %u was opened by packimg_open_info(), without samples; open it by "
			"packimg_open_fds()",
			number);
	if (part->unmapped != parts[0]->unmapped)
		return packimg_fail(error, -EINVAL, "%s is %s, but %s is not; open both alike",
				    join_path(part), part->unmapped ? "unmapped" : "mapped",
				    join_path(parts[0]));
	for (uint32_t p = 0; p < number; p++)
		if (parts[p] == part)
			return packimg_fail(
				error, -EINVAL,
				"%s: parts %u and %u are one open dataset; open it twice",
				join_path(part), p, number);
	return 0;
}

static int count_samples(struct packimg *joined, struct packimg_error *error)
{
	struct join *join = joined->join;

	for (uint32_t p = 0; p < join->part_count; p++) {
		const struct packimg *part = join->parts[p].dataset;

		join->firsts[p] = joined->sample_count;
		join->shard_firsts[p] = joined->shard_count;
		if (__builtin_add_overflow(joined->sample_count, part->sample_count,
					   &joined->sample_count) ||
		    __builtin_add_overflow(joined->shard_count, part->shard_count,
					   &joined->shard_count))
			return packimg_fail(error, -E2BIG,
					    "%s: the datasets up to this one have too many samples "
					    "or files to be joined; join fewer",
					    join_path(part));
	}
	join->firsts[join->part_count] = joined->sample_count;
	join->shard_firsts[join->part_count] = joined->shard_count;
	joined->open_count = joined->shard_count;
	joined->sample_end = joined->sample_count;
	return 0;
}

/* True if both record the same statistics, bit for bit. */
static bool statistics_equal(const struct packimg *a, const struct packimg *b)
{
	return memcmp(a->mean, b->mean, sizeof(a->mean)) == 0 &&
	       memcmp(a->std, b->std, sizeof(a->std)) == 0;
}

/*
 * Returns the first part with samples if all such parts record its statistics, NULL otherwise.
 * *ret_recorded is whether all of them record statistics.
 */
static const struct packimg *common_statistics(const struct join *join, bool *ret_recorded)
{
	const struct packimg *first = NULL;
	bool equal = true, recorded = true;

	for (uint32_t p = 0; p < join->part_count; p++) {
		const struct packimg *part = join->parts[p].dataset;

		if (part->sample_count == 0)
			continue;
		first = first ? first : part;
		recorded &= part->has_statistics;
		equal &= statistics_equal(part, first);
	}
	*ret_recorded = first && recorded;
	return first && recorded && equal ? first : NULL;
}

/*
 * Mean and variance of a mixture: E[X] = sum w m, Var[X] = sum w (s^2 + (m - E[X])^2), where w is
 * the fraction of the samples that a part has.
 */
static void mix_statistics(struct packimg *joined)
{
	const struct join *join = joined->join;

	for (int c = 0; c < 3; c++) {
		double mean = 0, variance = 0;

		for (uint32_t p = 0; p < join->part_count; p++) {
			const struct packimg *part = join->parts[p].dataset;
			mean += (double)part->sample_count / (double)joined->sample_count *
				part->mean[c];
		}
		for (uint32_t p = 0; p < join->part_count; p++) {
			const struct packimg *part = join->parts[p].dataset;
			double away = part->mean[c] - mean;
			variance += (double)part->sample_count / (double)joined->sample_count *
				    (part->std[c] * part->std[c] + away * away);
		}
		joined->mean[c] = mean;
		joined->std[c] = sqrt(variance);
	}
}

static void join_statistics(struct packimg *joined)
{
	const struct packimg *common = common_statistics(joined->join, &joined->has_statistics);

	if (common) {
		memcpy(joined->mean, common->mean, sizeof(joined->mean));
		memcpy(joined->std, common->std, sizeof(joined->std));
	} else if (joined->has_statistics) {
		mix_statistics(joined);
	}
}

static int join_metadata(struct packimg *joined, struct packimg_error *error)
{
	const struct join *join = joined->join;
	const char *text = packimg_metadata(join->parts[0].dataset);

	for (uint32_t p = 1; p < join->part_count; p++)
		if (strcmp(packimg_metadata(join->parts[p].dataset), text) != 0)
			return 0;
	char *copy = strdup(text);
	if (!copy)
		return packimg_fail(error, -ENOMEM, "out of memory");
	joined->metadata = (struct section_view){.data = (uint8_t *)copy, .size = strlen(copy) + 1};
	return 0;
}

static void join_uuid(struct packimg *joined)
{
	uint8_t uuids[PACKIMG_PARTS_MAX][UUID_SIZE];
	const struct join *join = joined->join;

	for (uint32_t p = 0; p < join->part_count; p++)
		memcpy(uuids[p], join->parts[p].dataset->uuid, UUID_SIZE);
	uuid_from_hash(XXH3_128bits(uuids, join->part_count * sizeof(uuids[0])), joined->uuid);
}

static int join_fill(struct packimg *joined, struct packimg *const *parts, uint32_t count,
		     struct packimg_error *error)
{
	struct join *join = joined->join = calloc(1, sizeof(*join));

	if (!join)
		return packimg_fail(error, -ENOMEM, "out of memory");
	join->parts = calloc(count, sizeof(*join->parts));
	join->firsts = calloc(count + 1, sizeof(*join->firsts));
	join->shard_firsts = calloc(count + 1, sizeof(*join->shard_firsts));
	if (!join->parts || !join->firsts || !join->shard_firsts)
		return packimg_fail(error, -ENOMEM, "out of memory");
	join->part_count = count;
	for (uint32_t p = 0; p < count; p++)
		join->parts[p].dataset = parts[p];
	joined->unmapped = parts[0]->unmapped;
	int r = count_samples(joined, error);
	r = r ?: join_classes(joined, error);
	r = r ?: join_schema(joined, error);
	r = r ?: join_metadata(joined, error);
	if (r < 0)
		return r;
	join_statistics(joined);
	join_uuid(joined);
	return 0;
}

int packimg_join(struct packimg *const *parts, uint32_t count, struct packimg **ret_dataset,
		 struct packimg_error *error)
{
	if (count == 0 || count > PACKIMG_PARTS_MAX)
		return packimg_fail(error, -EINVAL, "%u datasets; 1 to %d can be joined", count,
				    PACKIMG_PARTS_MAX);
	for (uint32_t p = 0; p < count; p++) {
		int r = check_part(parts, p, error);
		if (r < 0)
			return r;
	}
	if (count == 1) {
		*ret_dataset = parts[0];
		return 0;
	}
	struct packimg *joined = calloc(1, sizeof(*joined));
	if (!joined)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = join_fill(joined, parts, count, error);
	if (r < 0) {
		/* The parts stay the caller's. */
		for (uint32_t p = 0; joined->join && p < joined->join->part_count; p++)
			joined->join->parts[p].dataset = NULL;
		packimg_close(joined);
		return r;
	}
	*ret_dataset = joined;
	return 0;
}

uint32_t packimg_part_count(const struct packimg *dataset)
{
	return dataset->join ? dataset->join->part_count : 1;
}

uint32_t packimg_part_of(const struct packimg *dataset, uint64_t index, uint64_t *ret_index)
{
	const struct join *join = dataset->join;
	uint32_t part = join ? firsts_find(join->firsts, join->part_count, index) : 0;

	*ret_index = index - packimg_part_first(dataset, part);
	return part;
}

const struct packimg *packimg_part(const struct packimg *dataset, uint32_t part)
{
	return dataset->join ? dataset->join->parts[part].dataset : dataset;
}

uint64_t packimg_part_first(const struct packimg *dataset, uint32_t part)
{
	return dataset->join ? dataset->join->firsts[part] : 0;
}

/* Look-ups */

static int translate_label(const struct join_part *part, int32_t *label)
{
	if (*label == PACKIMG_LABEL_NONE)
		return 0;
	if (part->unnamed)
		return -EBADMSG;
	/* packimg_sample() has checked the label against the part's classes. */
	if (part->labels)
		*label = part->labels[*label];
	return 0;
}

int join_sample(const struct packimg *joined, uint64_t index, struct packimg_sample *ret_sample)
{
	struct packimg_sample sample;
	uint64_t i;
	uint32_t number = packimg_part_of(joined, index, &i);
	const struct join_part *part = &joined->join->parts[number];

	int r = packimg_sample(part->dataset, i, &sample);
	r = r ?: translate_label(part, &sample.label);
	if (r < 0)
		return r;
	sample.index = index;
	sample.shard += (uint32_t)joined->join->shard_firsts[number];
	*ret_sample = sample;
	return 0;
}

int join_image(const struct packimg *joined, uint64_t index, uint32_t image,
	       struct packimg_sample *ret_image)
{
	uint64_t i;
	uint32_t number = packimg_part_of(joined, index, &i);
	const struct join_part *part = &joined->join->parts[number];

	int r = packimg_image(part->dataset, i, part->images[image], ret_image);
	if (r < 0)
		return r;
	ret_image->index = index;
	ret_image->shard += (uint32_t)joined->join->shard_firsts[number];
	return 0;
}

int join_source(const struct packimg *joined, uint64_t index, const char **ret_name,
		size_t *ret_size)
{
	uint64_t i;
	uint32_t number = packimg_part_of(joined, index, &i);

	return packimg_source(joined->join->parts[number].dataset, i, ret_name, ret_size);
}

int join_value(const struct packimg *joined, uint64_t index, uint32_t field,
	       struct packimg_value *ret_value)
{
	uint64_t i;
	uint32_t number = packimg_part_of(joined, index, &i);
	const struct join_part *part = &joined->join->parts[number];

	return packimg_value(part->dataset, i, part->fields[field], ret_value);
}

int join_read(const struct packimg *joined, uint64_t index, const void *at, void *bytes,
	      size_t size)
{
	uint64_t i;
	uint32_t number = packimg_part_of(joined, index, &i);

	return packimg_read(joined->join->parts[number].dataset, i, at, bytes, size);
}

int join_shard(const struct packimg *joined, uint32_t shard, struct packimg_shard *ret_shard)
{
	const struct join *join = joined->join;
	uint32_t number = firsts_find(join->shard_firsts, join->part_count, shard);

	int r = packimg_shard(join->parts[number].dataset,
			      shard - (uint32_t)join->shard_firsts[number], ret_shard);
	if (r == 0)
		ret_shard->sample_first += join->firsts[number];
	return r;
}

int join_check(const struct packimg *joined, struct packimg_error *error)
{
	int r = 0;

	for (uint32_t p = 0; r == 0 && p < joined->join->part_count; p++)
		r = packimg_check(joined->join->parts[p].dataset, error);
	return r;
}
