/* packimg split: splits a dataset into several, by fractions or by class. */
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/common/split_spec.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"
#include "tools/packimg/copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One output dataset. */
struct part {
	const char *name, *path;
	struct packimg_writer *writer;
	uint64_t samples;
	bool complete; /* committed under its name */
};

struct split {
	const char *input, *output;
	struct split_part fractions[SPLIT_PARTS_MAX];
	uint32_t fraction_count;
	uint64_t shard_size, seed;
	bool by_class, force, quiet;
	struct copy_set set;
	struct part *parts;
	uint32_t part_count;
	uint32_t *part_of; /* part of each sample; UINT32_MAX if it is in no part */
	struct arena arena;
	struct name_table paths; /* output paths of the parts */
	bool *alone;             /* by part: see packimg_writer_options */
	/*
	 * Parts are written in groups of SPLIT_PARTS_MAX, because more would need too many fds. The
	 * samples of group g are order[first[g]] .. order[first[g + 1] - 1], in stored order.
	 */
	uint64_t *order, *first;
	uint32_t complete; /* number of completed parts */
	struct copy_progress copying;
};

enum { KEY_INTO = 256 };

#define AT(member) offsetof(struct split, member)

static const struct options_row options[] = {
	{"into", KEY_INTO, "NAME=F,...", "parts and their fractions, such as train=0.9,val=0.1"},
	{"by-class", 0, NULL, "one part per class", OPTIONS_FLAG, AT(by_class)},
	{"seed", 0, "SEED", "seed of the split (default: 0)", OPTIONS_U64, AT(seed), 0, UINT64_MAX,
	 .refusal = "is not a whole number"},
	{"output", 'o', "FILE", "NAME.pimg gives NAME-PART.pimg (default: the input's name)",
	 OPTIONS_TEXT, AT(output)},
	{"force", 'f', NULL, "replace existing datasets", OPTIONS_FLAG, AT(force)},
	{"shard-size", 0, "BYTES", "start a new file after this many bytes (K, M, G)",
	 OPTIONS_BYTES, AT(shard_size), COMMAND_SHARD_MIN, UINT64_MAX, .refusal = COMMAND_NO_SHARD},
	{"on-error", 0, "skip|fail", "fail (default) at a damaged sample, or skip it",
	 OPTIONS_SECOND, AT(copying.skip), .words = command_on_error,
	 .refusal = COMMAND_NO_ON_ERROR},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{.argument = "FILE", .kind = OPTIONS_ARGUMENT, .at = AT(input)},
	{0},
};

static error_t split_parse_option(int key, char *text, struct argp_state *state)
{
	struct split *split = state->input;
	struct packimg_error error;

	switch (key) {
	case KEY_INTO:
		if (split_parse(text, split->fractions, &split->fraction_count, &error))
			argp_error(state, "--into: %s", error.text);
		return 0;
	case ARGP_KEY_END:
		if (split->by_class == (split->fraction_count > 0))
			argp_error(state, "give either --into NAME=FRACTION,... or --by-class");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int draw_parts(struct split *split, int32_t *labels)
{
	double fractions[SPLIT_PARTS_MAX];

	for (uint32_t i = 0; i < split->part_count; i++)
		fractions[i] = split->fractions[i].fraction;
	for (uint64_t i = 0; i < split->set.samples; i++)
		labels[i] = copy_label(&split->set, i);
	return shuffle_split(labels, split->set.samples, fractions, split->part_count, split->seed,
			     split->part_of);
}

static int assign_by_fraction(struct split *split)
{
	int32_t *labels = calloc(split->set.samples + 1, sizeof(*labels));

	if (!labels)
		return -ENOMEM;
	split->part_count = split->fraction_count;
	int r = draw_parts(split, labels);
	free(labels);
	return r;
}

/* Samples without a class belong to no part. */
static void assign_by_class(struct split *split)
{
	split->part_count = split->set.classes.count;
	for (uint64_t i = 0; i < split->set.samples; i++) {
		int32_t label = copy_label(&split->set, i);

		split->part_of[i] = label < 0 ? UINT32_MAX : (uint32_t)label;
		split->copying.skipped += label < 0;
	}
}

static uint32_t group_count(const struct split *split)
{
	return (split->part_count + SPLIT_PARTS_MAX - 1) / SPLIT_PARTS_MAX;
}

static int order_samples(struct split *split)
{
	uint32_t groups = group_count(split);
	uint64_t count = split->set.samples;

	split->order = calloc(count + 1, sizeof(*split->order));
	split->first = calloc(groups + 2, sizeof(*split->first));
	if (!split->order || !split->first)
		return -ENOMEM;
	/*
	 * Counts are shifted by two: while groups are filled, first[g + 1] is the next position in
	 * group g.
	 */
	for (uint64_t i = 0; i < count; i++)
		if (split->part_of[i] != UINT32_MAX)
			split->first[split->part_of[i] / SPLIT_PARTS_MAX + 2]++;
	for (uint32_t g = 2; g < groups + 2; g++)
		split->first[g] += split->first[g - 1];
	for (uint64_t i = 0; i < count; i++)
		if (split->part_of[i] != UINT32_MAX)
			split->order[split->first[split->part_of[i] / SPLIT_PARTS_MAX + 1]++] = i;
	return 0;
}

static int name_part(struct split *split, struct part *part, struct packimg_error *error)
{
	char *path = split_path(split->output ? split->output : split->input, part->name);
	uint32_t number;
	bool added;

	int r = path ? name_table_add(&split->paths, path, &number, &added) : -ENOMEM;
	free(path);
	if (r)
		return packimg_fail(error, r, "out of memory");
	part->path = split->paths.names[number];
	if (!added)
		return packimg_fail(error, -EINVAL, "two parts would both be %s", part->path);
	return 0;
}

static int assign_samples(struct split *split, struct packimg_error *error)
{
	split->part_of = calloc(split->set.samples + 1, sizeof(*split->part_of));
	if (!split->part_of)
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (split->by_class)
		assign_by_class(split);
	else if (assign_by_fraction(split))
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (!split->part_count)
		return packimg_fail(error, -EINVAL, "%s has no named classes to split by",
				    split->input);
	return order_samples(split) ? packimg_fail(error, -ENOMEM, "out of memory") : 0;
}

static int split_prepare(struct split *split, struct packimg_error *error)
{
	int r = assign_samples(split, error);
	if (r)
		return r;
	split->parts = calloc(split->part_count + 1, sizeof(*split->parts));
	split->alone = calloc(split->part_count, sizeof(*split->alone));
	if (!split->parts || !split->alone)
		return packimg_fail(error, -ENOMEM, "out of memory");
	name_table_init(&split->paths, &split->arena);
	for (uint32_t i = 0; i < split->part_count; i++) {
		split->parts[i].name =
			split->by_class ? split->set.classes.names[i] : split->fractions[i].name;
		r = name_part(split, &split->parts[i], error);
		if (r)
			return r;
	}
	return command_check_outputs(&split->paths, split->force, split->alone, error);
}

/* Writes the input's metadata and the criterion of the split. */
static int write_dataset_info(const struct split *split, const struct part *part,
			      struct packimg_error *error)
{
	static const char *const kept[] = {"packimg.options", "packimg.sources", "packimg.merged",
					   NULL};
	const struct packimg *dataset = split->set.inputs[0].dataset;
	struct statistics statistics = {0};
	struct packimg_error ignored;
	char seed[64];

	copy_statistics(&split->set, &statistics);
	statistics_scale(&statistics, (double)part->samples / (double)split->set.samples);
	int r = convert_write_dataset_info(part->writer, &statistics, error);
	for (const char *const *key = kept; !r && *key; key++) {
		char *value = copy_metadata(dataset, *key);

		if (value)
			r = packimg_writer_metadata(part->writer, *key, value, error);
		free(value);
	}
	if (r)
		return r;
	packimg_writer_metadata(part->writer, "packimg.split", part->name, &ignored);
	if (split->by_class)
		return 0;
	snprintf(seed, sizeof(seed), "%" PRIu64, split->seed);
	return packimg_writer_metadata(part->writer, "packimg.split.seed", seed, error);
}

static int split_begin_part(struct split *split, struct part *part, struct packimg_error *error)
{
	const struct packimg_writer_options writer_options = {
		.shard_size = split->shard_size,
		/* a set that replaces a single file must find that file */
		.alone = split->alone[part - split->parts] && !(split->force && split->shard_size),
	};

	if (command_interrupted())
		return -EINTR;
	return copy_begin(&split->set, part->path, &writer_options, &part->writer, error);
}

static int split_finish_part(struct split *split, struct part *part, struct packimg_error *error)
{
	if (command_interrupted())
		return -EINTR;
	int r = write_dataset_info(split, part, error);
	if (r)
		return r;
	r = packimg_writer_finish(part->writer, error);
	if (r)
		return r;
	part->complete = true;
	split->complete++;
	return 0;
}

static int write_samples(struct split *split, uint32_t group, uint64_t *done,
			 struct packimg_error *error)
{
	for (uint64_t i = split->first[group]; i < split->first[group + 1]; i++) {
		uint64_t number = split->order[i];
		struct part *part = &split->parts[split->part_of[number]];
		int r = copy_next(&split->set, number, part->writer, &split->copying, error);

		if (r < 0)
			return r;
		part->samples += !r;
		progress_update(&split->copying.progress, ++*done, 0);
	}
	return 0;
}

static int write_parts(struct split *split, uint32_t group, uint32_t first, uint32_t end,
		       uint64_t *done, struct packimg_error *error)
{
	for (uint32_t i = first; i < end; i++) {
		int r = split_begin_part(split, &split->parts[i], error);
		if (r)
			return r;
	}
	int r = write_samples(split, group, done, error);
	for (uint32_t i = first; !r && i < end; i++)
		r = split_finish_part(split, &split->parts[i], error);
	return r;
}

static int write_group(struct split *split, uint32_t group, uint64_t *done,
		       struct packimg_error *error)
{
	uint32_t first = group * SPLIT_PARTS_MAX, end = first + SPLIT_PARTS_MAX;

	if (end > split->part_count)
		end = split->part_count;
	int r = write_parts(split, group, first, end, done, error);
	for (uint32_t i = first; i < end; i++)
		packimg_writer_free(split->parts[i].writer);
	return r;
}

static void remove_shards(const char *path)
{
	struct packimg_error error;
	struct packimg *dataset;
	struct packimg_shard shard;

	if (packimg_open(path, &dataset, &error))
		return;
	for (uint32_t i = 0; i < packimg_shard_count(dataset); i++)
		if (!packimg_shard(dataset, i, &shard))
			unlink(shard.path);
	packimg_close(dataset);
}

/*
 * Removes completed parts, so that either all parts exist or none. Keeps parts that may have
 * replaced other datasets, which cannot be restored.
 */
static void remove_complete(struct split *split)
{
	for (uint32_t i = 0; !split->force && i < split->part_count; i++) {
		const struct part *part = &split->parts[i];

		if (!part->complete)
			continue;
		if (split->shard_size)
			remove_shards(part->path);
		else
			unlink(part->path);
		split->complete--;
	}
}

static int split_run(struct split *split, struct packimg_error *error)
{
	uint64_t done = 0;

	int r = split_prepare(split, error);
	progress_init(&split->copying.progress, "splitting", split->set.samples, split->quiet);
	for (uint32_t group = 0; !r && group < group_count(split); group++)
		r = write_group(split, group, &done, error);
	progress_clear(&split->copying.progress);
	if (r && split->complete)
		remove_complete(split);
	if (r)
		return r == -EINTR ? COMMAND_FAILED : command_fail("%s", error->text);
	for (uint32_t i = 0; i < split->part_count; i++)
		printable_line(stdout, "%s: %s sample%s", split->parts[i].path,
			       text_count(TEXT, split->parts[i].samples),
			       text_plural(split->parts[i].samples));
	if (split->copying.skipped)
		printf("  left out  %s sample%s (damaged, or without a class)\n",
		       text_count(TEXT, split->copying.skipped),
		       text_plural(split->copying.skipped));
	return split->copying.skipped ? COMMAND_SKIPPED : COMMAND_OK;
}

int command_split(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = split_parse_option,
		.args_doc = "FILE",
		.doc = "Split one dataset into several, by fractions (every class in the same "
		       "proportion, drawn with the seed) or by class. Samples keep their order, "
		       "classes their numbers.",
	};
	struct split split = {0};
	struct packimg_error error = {{0}};
	int status;

	options_read(options, &argp, argc, argv, &split);
	command_catch_interrupts();
	if (copy_set_init(&split.set, &split.input, 1, &error)) {
		status = command_fail("%s", error.text);
	} else {
		status = split_run(&split, &error);
		copy_set_deinit(&split.set);
	}
	name_table_deinit(&split.paths);
	arena_deinit(&split.arena);
	free(split.parts);
	free(split.part_of);
	free(split.alone);
	free(split.order);
	free(split.first);
	command_die_of_interrupt(split.complete ? "datasets that are complete stay"
						: COMMAND_NOTHING_WRITTEN);
	return status;
}
