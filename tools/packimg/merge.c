/* packimg merge: several datasets into one. */
#include "format/base/number.h"
#include "format/base/options.h"
#include "format/base/printable.h"
#include "tools/packimg/common/brace.h"
#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"
#include "tools/packimg/copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct merge_options {
	struct word_list inputs;
	const char *output;
	uint64_t shard_size, seed;
	bool shuffle, force, skip, json, quiet;
};

enum { KEY_SHUFFLE = 256 };

#define AT(member) offsetof(struct merge_options, member)

static const struct options_row options[] = {
	{"output", 'o', "FILE", "the new dataset, NAME.pimg", OPTIONS_TEXT, AT(output)},
	{"force", 'f', NULL, "replace a dataset of that name", OPTIONS_FLAG, AT(force)},
	{"shard-size", 0, "BYTES", "begin a new file after this many (K, M, G)", OPTIONS_BYTES,
	 AT(shard_size), COMMAND_SHARD_MIN, UINT64_MAX, .refusal = COMMAND_NO_SHARD},
	{"shuffle", KEY_SHUFFLE, "SEED", "store in random order"},
	{"on-error", 0, "skip|fail", "fail (default) at a damaged sample, or skip it",
	 OPTIONS_SECOND, AT(skip), .words = command_on_error, .refusal = COMMAND_NO_ON_ERROR},
	{"json", 'J', NULL, "print the summary as JSON", OPTIONS_FLAG, AT(json)},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{0},
};

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct merge_options *merge = state->input;
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
			argp_error(state, "FILE... and -o FILE are needed");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Which sample comes n-th. */
static uint64_t *make_order(const struct merge_options *merge, uint64_t count)
{
	uint64_t *order = calloc(count + 1, sizeof(*order));

	for (uint64_t i = 0; order && i < count; i++)
		order[i] = i;
	if (order && merge->shuffle)
		shuffle_permute(order, count, merge->seed);
	return order;
}

static int write_facts(const struct copy_set *set, struct packimg_writer *writer,
		       struct packimg_error *error)
{
	struct statistics statistics = {0};
	struct packimg_error ignored;
	struct buffer names = {0};
	double mean[3], std[3];

	copy_statistics(set, &statistics);
	int r = convert_write_statistics(writer, &statistics, error);
	/* Of one dataset to the last bit: batches are normalized with them. */
	if (!r && set->count == 1 && !packimg_statistics(set->inputs[0].dataset, mean, std))
		packimg_writer_statistics(writer, mean, std);
	if (!r)
		r = packimg_writer_metadata(writer, "producer", "packimg " PACKIMG_TOOL_VERSION,
					    error);
	for (uint32_t i = 0; !r && i < set->count && i < 100; i++)
		if ((i && buffer_append(&names, "\n", 1)) ||
		    buffer_append(&names, set->inputs[i].path, strlen(set->inputs[i].path)))
			r = packimg_fail(error, -ENOMEM, "out of memory");
	if (!r && buffer_append(&names, "", 1))
		r = packimg_fail(error, -ENOMEM, "out of memory");
	/* A path that is not UTF-8 is not worth failing for. */
	if (!r)
		packimg_writer_metadata(writer, "packimg.merged", (const char *)names.data,
					&ignored);
	buffer_deinit(&names);
	return r;
}

static int copy_all(const struct merge_options *merge, const struct copy_set *set,
		    struct packimg_writer *writer, uint64_t *skipped, struct packimg_error *error)
{
	struct copy_course course = {.skip = merge->skip};
	uint64_t *order = make_order(merge, set->samples);
	int r = order ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	progress_init(&course.progress, "merging", set->samples, merge->quiet);
	for (uint64_t i = 0; r >= 0 && i < set->samples; i++) {
		r = copy_next(set, order[i], writer, &course, error);
		progress_update(&course.progress, i + 1, packimg_writer_bytes(writer));
	}
	progress_clear(&course.progress);
	free(order);
	*skipped = course.skipped;
	return r < 0 ? r : 0;
}

static int report(const struct merge_options *merge, const struct copy_set *set, uint64_t skipped,
		  uint64_t bytes)
{
	struct text_buffer count, size;

	if (merge->json)
		return command_print_json(json_pack(
			"{sosIsIsIsIsI}", "path",
			command_json_text(merge->output, strlen(merge->output)), "samples",
			(json_int_t)(set->samples - skipped), "skipped", (json_int_t)skipped,
			"classes", (json_int_t)set->classes.count, "fields",
			(json_int_t)set->fields.count, "bytes", (json_int_t)bytes));
	printable_put(stdout, merge->output, strlen(merge->output));
	printf(": %s sample%s, %s, ", text_count(&count, set->samples - skipped),
	       text_plural(set->samples - skipped), text_bytes(&size, bytes));
	printf("%s class%s, %u field%s\n", text_count(&count, set->classes.count),
	       set->classes.count == 1 ? "" : "es", set->fields.count,
	       text_plural(set->fields.count));
	if (skipped)
		printf("  skipped   %s damaged sample%s\n", text_count(&count, skipped),
		       text_plural(skipped));
	return 0;
}

/*
 * In other shards: checkpoints name it by its UUID, which an earlier version may have derived in
 * another way.
 */
static bool is_same_dataset(const struct merge_options *merge, const struct copy_set *set)
{
	return set->count == 1 && !merge->shuffle && !merge->skip;
}

static int run(const struct merge_options *merge, const struct copy_set *set,
	       struct packimg_error *error)
{
	const struct packimg_writer_options writer_options = {
		.shard_size = merge->shard_size,
		.uuid = is_same_dataset(merge, set) ? packimg_uuid(set->inputs[0].dataset) : NULL,
	};
	struct packimg_writer *writer = NULL;
	uint64_t skipped = 0, bytes = 0;

	int r = command_check_output(merge->output, merge->force, error);
	if (!r)
		r = packimg_writer_new(merge->output, &writer_options, &writer, error);
	if (!r)
		r = copy_begin(set, writer, error);
	if (!r)
		r = copy_all(merge, set, writer, &skipped, error);
	if (!r)
		r = write_facts(set, writer, error);
	if (!r)
		r = packimg_writer_finish(writer, error);
	if (!r)
		bytes = packimg_writer_bytes(writer);
	packimg_writer_free(writer);
	if (r)
		return r == -EINTR ? COMMAND_FAILED : command_fail("%s", error->text);
	r = report(merge, set, skipped, bytes);
	return r ? r : skipped ? COMMAND_SKIPPED : COMMAND_OK;
}

int command_merge(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse,
		.args_doc = "FILE... -o FILE",
		.doc = "Several datasets into one. Classes are united by name: those of the first "
		       "dataset keep "
		       "their numbers, new ones follow. Fields are united by name, too.",
	};
	struct merge_options merge = {0};
	struct packimg_error error = {{0}};
	struct copy_set set;
	int status;

	options_read(options, &argp, argc, argv, &merge);
	command_catch_interrupts();
	if (copy_set_init(&set, (const char *const *)merge.inputs.words,
			  (uint32_t)merge.inputs.count, &error)) {
		status = command_fail("%s", error.text);
	} else {
		status = run(&merge, &set, &error);
		copy_set_deinit(&set);
	}
	word_list_deinit(&merge.inputs);
	command_die_of_interrupt();
	return status;
}
