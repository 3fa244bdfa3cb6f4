/* packimg merge: combines several datasets into one. */
#include "format/base/text/json_text.h"
#include "format/base/text/number.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/brace_expand.h"
#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"
#include "tools/packimg/copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct merge {
	struct string_list inputs;
	const char *output;
	uint64_t shard_size, seed;
	bool shuffle, force, json, quiet;
	struct copy_set set;
	struct copy_progress copying;
	struct packimg_writer *writer;
};

enum { KEY_SHUFFLE = 256 };

#define AT(member) offsetof(struct merge, member)

static const struct options_row options[] = {
	{"output", 'o', "FILE", "dataset to write, NAME.pimg", OPTIONS_TEXT, AT(output)},
	{"force", 'f', NULL, "replace an existing dataset", OPTIONS_FLAG, AT(force)},
	{"shard-size", 0, "BYTES", "start a new file after this many bytes (K, M, G)",
	 OPTIONS_BYTES, AT(shard_size), COMMAND_SHARD_MIN, UINT64_MAX, .refusal = COMMAND_NO_SHARD},
	{"shuffle", KEY_SHUFFLE, "SEED", "store in random order"},
	{"on-error", 0, "skip|fail", "fail (default) at a damaged sample, or skip it",
	 OPTIONS_SECOND, AT(copying.skip), .words = command_on_error,
	 .refusal = COMMAND_NO_ON_ERROR},
	{"json", 'J', NULL, "print the summary as JSON", OPTIONS_FLAG, AT(json)},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{0},
};

static error_t merge_parse_option(int key, char *text, struct argp_state *state)
{
	struct merge *merge = state->input;
	struct packimg_error error;

	switch (key) {
	case KEY_SHUFFLE:
		if (number_u64(text, 0, UINT64_MAX, &merge->seed))
			argp_error(state, "--shuffle: \"%s\" is not a seed (a whole number)", text);
		merge->shuffle = true;
		return 0;
	case ARGP_KEY_ARG:
		if (brace_expand(text, &merge->inputs, &error))
			argp_error(state, "%s", error.text);
		return 0;
	case ARGP_KEY_END:
		if (!merge->inputs.count || !merge->output)
			argp_error(state, "FILE... and -o FILE are required");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Returns the order in which samples are written. */
static uint64_t *merge_make_order(const struct merge *merge, uint64_t count)
{
	uint64_t *order = calloc(count + 1, sizeof(*order));

	for (uint64_t i = 0; order && i < count; i++)
		order[i] = i;
	if (order && merge->shuffle)
		shuffle_permute(order, count, merge->seed);
	return order;
}

static int write_dataset_info(const struct merge *merge, struct packimg_error *error)
{
	const struct copy_set *set = &merge->set;
	struct statistics statistics = {0};
	struct packimg_error ignored;
	double mean[3], std[3];
	char *names = NULL;
	size_t size;

	copy_statistics(set, &statistics);
	int r = convert_write_dataset_info(merge->writer, &statistics, error);
	if (r)
		return r;
	/* A single input: copy its statistics exactly, because batches are normalised with them. */
	if (set->count == 1 && !packimg_statistics(set->inputs[0].dataset, mean, std))
		packimg_writer_statistics(merge->writer, mean, std);
	FILE *file = open_memstream(&names, &size);
	for (uint32_t i = 0; file && i < set->count && i < 100; i++)
		fprintf(file, "%s%s", i ? "\n" : "", set->inputs[i].path);
	if (!file || fclose(file))
		r = packimg_fail(error, -ENOMEM, "out of memory");
	else /* A path that is not UTF-8 is no error. */
		packimg_writer_metadata(merge->writer, "packimg.merged", names, &ignored);
	free(names);
	return r;
}

static int merge_copy(struct merge *merge, struct packimg_error *error)
{
	const uint64_t count = merge->set.samples;
	uint64_t *order = merge_make_order(merge, count);
	int r = order ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	progress_init(&merge->copying.progress, "merging", count, merge->quiet);
	for (uint64_t i = 0; r >= 0 && i < count; i++) {
		r = copy_next(&merge->set, order[i], merge->writer, &merge->copying, error);
		progress_update(&merge->copying.progress, i + 1,
				packimg_writer_bytes(merge->writer));
	}
	progress_clear(&merge->copying.progress);
	free(order);
	return r < 0 ? r : 0;
}

static int merge_report(const struct merge *merge, uint64_t bytes)
{
	const struct copy_set *set = &merge->set;
	uint64_t skipped = merge->copying.skipped, samples = set->samples - skipped;

	if (merge->json)
		return command_print_json(json_pack(
			"{sosIsIsIsIsI}", "path", json_text(merge->output, strlen(merge->output)),
			"samples", (json_int_t)samples, "skipped", (json_int_t)skipped, "classes",
			(json_int_t)set->classes.count, "fields", (json_int_t)set->fields.count,
			"bytes", (json_int_t)bytes));
	printable_line(stdout, "%s: %s sample%s, %s, %s class%s, %u field%s", merge->output,
		       text_count(TEXT, samples), text_plural(samples), text_bytes(TEXT, bytes),
		       text_count(TEXT, set->classes.count), set->classes.count == 1 ? "" : "es",
		       set->fields.count, text_plural(set->fields.count));
	if (skipped)
		printf("  skipped   %s damaged sample%s\n", text_count(TEXT, skipped),
		       text_plural(skipped));
	return 0;
}

static int merge_write(struct merge *merge, struct packimg_error *error)
{
	/*
	 * A single input divided into other shards stays the same dataset. Checkpoints identify it
	 * by its UUID, which an earlier version may have derived differently.
	 */
	bool same = merge->set.count == 1 && !merge->shuffle && !merge->copying.skip;
	const struct packimg_writer_options writer_options = {
		.shard_size = merge->shard_size,
		.uuid = same ? packimg_uuid(merge->set.inputs[0].dataset) : NULL,
	};

	int r = command_check_output(merge->output, merge->force, error);
	if (r)
		return r;
	r = copy_begin(&merge->set, merge->output, &writer_options, &merge->writer, error);
	if (r)
		return r;
	r = merge_copy(merge, error);
	if (r)
		return r;
	r = write_dataset_info(merge, error);
	return r ? r : packimg_writer_finish(merge->writer, error);
}

static int merge_run(struct merge *merge, struct packimg_error *error)
{
	int r = merge_write(merge, error);
	uint64_t bytes = r ? 0 : packimg_writer_bytes(merge->writer);

	packimg_writer_free(merge->writer);
	if (r)
		return r == -EINTR ? COMMAND_FAILED : command_fail("%s", error->text);
	r = merge_report(merge, bytes);
	return r ? r : merge->copying.skipped ? COMMAND_SKIPPED : COMMAND_OK;
}

int command_merge(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = merge_parse_option,
		.args_doc = "FILE... -o FILE",
		.doc = "Merge several datasets into one. Classes are matched by name: those of the "
		       "first dataset keep their numbers, new ones follow. Fields are matched by "
		       "name, too.",
	};
	struct merge merge = {0};
	struct packimg_error error = {{0}};
	int status;

	options_read(options, &argp, argc, argv, &merge);
	command_catch_interrupts();
	if (copy_set_init(&merge.set, (const char *const *)merge.inputs.strings,
			  (uint32_t)merge.inputs.count, &error)) {
		status = command_fail("%s", error.text);
	} else {
		status = merge_run(&merge, &error);
		copy_set_deinit(&merge.set);
	}
	string_list_deinit(&merge.inputs);
	command_die_of_interrupt(COMMAND_NOTHING_WRITTEN);
	return status;
}
