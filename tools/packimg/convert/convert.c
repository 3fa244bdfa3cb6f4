/* packimg convert, from its command line to its summary. */
#include "tools/packimg/convert/convert.h"
#include "format/base/text/text.h"
#include "tools/packimg/common/remote_output.h"
#include "tools/packimg/common/split_spec.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Refuses to replace a dataset unasked, and determines the path to write to. */
static int prepare_output(struct convert_part *part, bool force, struct packimg_error *error)
{
	if (text_is_address(part->path))
		return remote_output_new(part->path, force, &part->remote, &part->written, error);
	part->written = part->path;
	return command_check_output(part->path, force, error);
}

/*
 * Determines the output path of each part: FILE itself, or FILE with the part's name before its
 * extension.
 */
static int convert_name_parts(struct convert *convert, struct packimg_error *error)
{
	const char *output = convert->options.output;
	size_t stem = strlen(output) > 5 ? strlen(output) - 5 : 0;

	if (!stem || strcmp(output + stem, ".pimg") != 0)
		return packimg_fail(error, -EINVAL, "%s: the name of a dataset ends in .pimg",
				    output);
	if (!convert->part_count) {
		convert->part_count = 1;
		convert->parts[0].fraction = 1;
	}
	for (uint32_t i = 0; i < convert->part_count; i++) {
		struct convert_part *part = &convert->parts[i];

		part->path = part->name ? split_path(output, part->name) : strdup(output);
		if (!part->path)
			return packimg_fail(error, -ENOMEM, "out of memory");
		int r = prepare_output(part, convert->options.force, error);
		if (r)
			return r;
	}
	return 0;
}

/* Sends parts whose paths are addresses. */
static int convert_send_parts(struct convert *convert, struct packimg_error *error)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < convert->part_count; i++)
		if (convert->parts[i].remote)
			r = remote_output_send(convert->parts[i].remote, convert->options.quiet,
					       error);
	return r;
}

static void convert_deinit(struct convert *convert)
{
	for (uint32_t i = 0; i < convert->part_count; i++) {
		packimg_writer_free(convert->parts[i].writer);
		remote_output_free(convert->parts[i].remote);
		free(convert->parts[i].path);
	}
	string_list_deinit(&convert->notes);
	ignored_files_deinit(&convert->ignored);
	filter_deinit(&convert->options.filter);
	catalog_deinit(&convert->catalog);
}

static int convert_out_of_space(const struct arena *arena)
{
	return command_fail(
		"names and values of the samples need more than %s of memory, and a temporary file "
		"for the rest cannot be created in %s: %s; set TMPDIR to a folder with space",
		text_bytes(TEXT, ARENA_MEMORY), temporary_folder(), strerror(-arena->fault));
}

static int convert_list_and_write(struct convert *convert, struct packimg_error *error)
{
	int r;

	/*
	 * With --split folders, listing finds the parts; without it, report an unusable path before
	 * listing.
	 */
	if (!convert->options.split_folders) {
		r = convert_name_parts(convert, error);
		if (r)
			return r;
	}
	r = convert_list(convert, error);
	if (r)
		return r;
	if (convert->options.split_folders) {
		r = convert_find_parts(convert, error);
		if (r)
			return r;
		r = convert_name_parts(convert, error);
		if (r)
			return r;
	}
	r = convert_assign(convert, error);
	r = r ? r : convert_write(convert, error);
	return r ? r : convert_send_parts(convert, error);
}

static int convert_run(struct convert *convert)
{
	struct packimg_error error = {{0}};

	command_catch_interrupts();
	catalog_init(&convert->catalog);
	ignored_files_init(&convert->ignored, &convert->catalog.arena);
	convert->annotations.arena = &convert->catalog.arena;
	convert->catalog.blobs.limits = convert->options.limits;
	convert->options.source.filter = &convert->options.filter;
	int r = convert_list_and_write(convert, &error);
	if (r == -EINTR)
		return COMMAND_FAILED;
	if (r == -ENOMEM && convert->catalog.arena.fault)
		return convert_out_of_space(&convert->catalog.arena);
	if (r)
		return command_fail("%s", error.text[0] ? error.text : strerror(-r));
	if (convert_note_writing(convert))
		return command_fail("out of memory");
	r = convert->options.json ? convert_report_json(convert) : convert_report(convert);
	if (r)
		return COMMAND_FAILED;
	return convert->skip_count ? COMMAND_SKIPPED : COMMAND_OK;
}

int command_convert(int argc, char **argv)
{
	struct convert *convert = calloc(1, sizeof(*convert));
	struct string_list sources = {0};

	if (!convert)
		return command_fail("out of memory");
	convert_parse(convert, argc, argv, &sources);
	int status = convert_run(convert);
	convert_deinit(convert);
	free(convert);
	string_list_deinit(&sources);
	command_die_of_interrupt(COMMAND_NOTHING_WRITTEN);
	return status;
}
