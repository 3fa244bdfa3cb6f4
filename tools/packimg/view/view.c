/*
 * packimg view: pictures of a dataset's samples, with their annotations, as a contact sheet and as
 * an HTML page. Processes one sample at a time, so only the sheet's memory depends on their number.
 */
#include "format/base/system/atomic_file.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/remote.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/view/choice.h"
#include "tools/packimg/view/page.h"
#include "tools/packimg/view/panel.h"
#include "tools/packimg/view/sample_text.h"
#include "tools/packimg/view/sheet.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SAMPLES_DEFAULT = 64,
	SAMPLES_MAX = 1024,
	PICTURES_DEFAULT = 256, /* by default, samples with more pictures are fewer */
	SIDE_DEFAULT = 256,     /* pixels */
	SIDE_MIN = 32,
	SIDE_MAX = 1024,
};

struct view {
	const char *path, *output;
	struct choice choice;
	unsigned side;
	bool force;
	struct panel_pipeline pipeline; /* text is NULL: as stored only */
	struct packimg *dataset;
	struct remote *remote;
	uint64_t *samples, count, found;
	char *page_path, *sheet_path; /* NULL: not written */
	struct panel_maker maker;
	struct panel panel;
	struct page page;
	struct sheet sheet;
	uint64_t damaged; /* samples with a picture or a value that could not be shown */
};

#define AT(member) offsetof(struct view, member)

static const struct options_row options[] = {
	{"output", 'o', "PATH",
	 "write only this file, a page if it ends in .html, a sheet if it ends in .png (default: "
	 "both, with the dataset's name, in the current folder)",
	 OPTIONS_TEXT, AT(output)},
	{"pipeline", 'p', "TEXT", "also show samples as a feed with this pipeline delivers them",
	 OPTIONS_TEXT, AT(pipeline.text)},
	{"seed", 's', "N", "seed of the pipeline (default: 0)", OPTIONS_U64, AT(pipeline.seed), 0,
	 UINT64_MAX},
	{"epoch", 'e', "N", "epoch of the pipeline (default: 0)", OPTIONS_U64, AT(pipeline.epoch),
	 0, UINT64_MAX},
	{"samples", 'n', "N",
	 "show at most N samples, spread over the dataset (default: 64, or fewer if they have "
	 "more than 256 pictures)",
	 OPTIONS_U64, AT(choice.count_max), 1, SAMPLES_MAX},
	{"index", 'i', "LIST", "only samples with these indices, such as 0-9,15,100-", OPTIONS_TEXT,
	 AT(choice.selection.indices)},
	{"class", 'c', "NAME", "only samples of this class (may be repeated)"},
	SELECTION_WHERE(AT(choice.selection)),
	{"field", 'F', "NAME=VALUE",
	 "only samples whose field has this value, as packimg list prints it (may be repeated)"},
	{"size", 0, "N",
	 "pixels of the longer side of pictures as stored, and on the sheet (default: 256)",
	 OPTIONS_UNSIGNED, AT(side), SIDE_MIN, SIDE_MAX},
	{"force", 'f', NULL, "replace existing files", OPTIONS_FLAG, AT(force)},
	{0},
};

static error_t view_take_argument(struct view *view, const char *text, struct argp_state *state)
{
	if (!view->path) {
		view->path = text;
		return 0;
	}
	if (view->choice.keys.count == SAMPLES_MAX)
		argp_error(state, "more than %d keys", SAMPLES_MAX);
	return string_list_add(&view->choice.keys, text) ? ENOMEM : 0;
}

static error_t view_parse_option(int key, char *text, struct argp_state *state)
{
	struct view *view = state->input;

	switch (key) {
	case 'c':
		return string_list_add(&view->choice.selection.classes, text) ? ENOMEM : 0;
	case 'F':
		return string_list_add(&view->choice.fields, text) ? ENOMEM : 0;
	case ARGP_KEY_ARG:
		return view_take_argument(view, text, state);
	case ARGP_KEY_END:
		if (!view->path)
			argp_error(state, "no FILE given");
		if (view->output && !text_ends_with(view->output, ".html") &&
		    !text_ends_with(view->output, ".png"))
			argp_error(state, "--output %s: the name ends in neither .html nor .png",
				   view->output);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Sets the output paths: the given one, or two with the dataset's name. -ENOMEM. */
static int name_outputs(struct view *view)
{
	char *path = strdup(view->path);
	const char *slash;
	int r = 0;

	if (!path)
		return -ENOMEM;
	while (strlen(path) > 1 && path[strlen(path) - 1] == '/')
		path[strlen(path) - 1] = '\0';
	if (text_ends_with(path, ".pimg"))
		path[strlen(path) - strlen(".pimg")] = '\0';
	slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(path, "/") == 0)
		name = "dataset";
	if (view->output && text_ends_with(view->output, ".html"))
		view->page_path = strdup(view->output);
	else if (view->output)
		view->sheet_path = strdup(view->output);
	else if (asprintf(&view->page_path, "%s.html", name) < 0 ||
		 asprintf(&view->sheet_path, "%s.png", name) < 0)
		r = -ENOMEM;
	free(path);
	return r || (!view->page_path && !view->sheet_path) ? -ENOMEM : 0;
}

/* Fails before the work begins if the output exists or cannot be replaced. */
static int check_output(const struct view *view, const char *path)
{
	if (!path)
		return 0;
	if (!view->force && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return command_fail("%s exists; --force replaces it", path);
	int r = atomic_file_check(path);
	return r ? command_fail("%s: %s", path, strerror(-r)) : 0;
}

/*
 * Makes a picture of a sample, as stored or as delivered, and adds it to the outputs. Returns 0, 1
 * if the sample is damaged, which it reports, or an error with a message.
 */
static int add_picture(struct view *view, const struct packimg_sample *sample, unsigned number,
		       bool delivered, struct packimg_error *error)
{
	const bool pairs = view->pipeline.text != NULL;
	const unsigned value = view->maker.values[number];
	struct panel *panel = &view->panel;
	int damaged = delivered ? panel_delivered(&view->maker, sample, value, panel)
				: panel_stored(&view->maker, sample, value, panel);

	if (damaged < 0)
		return packimg_fail(error, damaged, "out of memory");
	if (damaged)
		command_fail("sample %" PRIu64 ": %s", sample->index, panel->fault);
	int r = view->page_path ? page_add_picture(&view->page, panel, sample->index, error) : 0;
	if (!r && view->sheet_path &&
	    sheet_add_picture(&view->sheet, panel, pairs ? delivered : number, pairs ? number : 0))
		r = packimg_fail(error, -ENOMEM, "out of memory");
	return r ? r : damaged;
}

/* Adds the pictures of a sample. Returns as add_picture(). */
static int add_pictures(struct view *view, const struct packimg_sample *sample,
			struct packimg_error *error)
{
	int damaged = 0;

	for (unsigned i = 0; i < view->maker.value_count; i++) {
		int stored = add_picture(view, sample, i, false, error);
		int delivered = stored >= 0 && view->pipeline.text
					? add_picture(view, sample, i, true, error)
					: 0;

		if (stored < 0 || delivered < 0)
			return stored < 0 ? stored : delivered;
		damaged = damaged || stored || delivered;
	}
	return damaged;
}

/* Adds a sample to the outputs. Returns as add_picture(). */
static int add_sample(struct view *view, const struct packimg_sample *sample,
		      const struct sample_texts *texts, struct packimg_error *error)
{
	char title[SAMPLE_TEXT_MAX + 40];
	const bool has_key = texts->count > 0 && texts->list[0].field == SAMPLE_TEXT_KEY;

	snprintf(title, sizeof(title), "#%" PRIu64 " %s", sample->index, texts->class);
	if (view->page_path)
		page_begin_sample(&view->page, sample);
	int damaged = add_pictures(view, sample, error);
	if (damaged < 0)
		return damaged;
	if (view->sheet_path)
		sheet_end_sample(&view->sheet, title, has_key ? texts->list[0].text : "");
	int r = view->page_path ? page_end_sample(&view->page, title, texts, error) : 0;
	return r ? r : damaged;
}

static int view_sample(struct view *view, uint64_t index, struct packimg_error *error)
{
	struct sample_texts texts = {0};
	struct packimg_sample sample;

	if (packimg_sample(view->dataset, index, &sample)) {
		view->damaged++;
		command_fail("sample %" PRIu64 ": its index record is damaged; it is left out",
			     index);
		return 0;
	}
	int r = sample_texts_make(view->dataset, &sample, &texts);
	r = r ? packimg_fail(error, r, "out of memory") : add_sample(view, &sample, &texts, error);
	view->damaged += r > 0 || texts.damaged;
	if (texts.damaged)
		command_fail("sample %" PRIu64 ": its value \"%s\" is damaged", index,
			     texts.damaged);
	sample_texts_free(&texts);
	return r < 0 ? r : 0;
}

static int write_sheet(struct view *view, struct packimg_error *error)
{
	struct buffer png = {0};
	int r = sheet_write(&view->sheet, &png, error);

	if (!r) {
		r = atomic_file_put(view->sheet_path, (const char *)png.data, png.size);
		r = r ? packimg_fail(error, r, "%s: %s", view->sheet_path, strerror(-r)) : 0;
	}
	buffer_deinit(&png);
	return r;
}

static int view_samples(struct view *view, struct packimg_error *error)
{
	int r = 0;

	for (uint64_t i = 0; !r && i < view->count; i++)
		r = command_interrupted() ? -EINTR : view_sample(view, view->samples[i], error);
	return r;
}

static int open_outputs(struct view *view, struct packimg_error *error)
{
	const unsigned values = view->maker.value_count;
	/* With a pipeline, each value has a row: as stored, as delivered. */
	const struct sheet_cell cell = {
		.columns = view->pipeline.text ? 2 : values,
		.rows = view->pipeline.text ? values : 1,
		.labels = values > 1,
	};
	const struct page_head head = {
		.name = view->path,
		.pipeline = view->pipeline.text ? &view->pipeline : NULL,
		.samples = view->samples,
		.count = view->count,
		.found = view->found,
		.several = values > 1,
	};
	int r = 0;

	if (view->sheet_path)
		r = sheet_init(&view->sheet, view->dataset, view->count, &cell, view->side, error);
	if (!r && view->page_path)
		r = page_open(&view->page, view->dataset, view->page_path, &head, error);
	return r;
}

static void print_outcome(const struct view *view)
{
	const char *paths[] = {view->page_path, view->sheet_path};

	for (unsigned i = 0; i < 2; i++)
		if (paths[i])
			printable_line(stdout, "%s: %s of %s sample%s", paths[i],
				       text_count(TEXT, view->count), text_count(TEXT, view->found),
				       text_plural(view->found));
	if (view->pipeline.text && view->pipeline.refusal[0])
		printable_line(stdout, "  note      not drawn as delivered: %s",
			       view->pipeline.refusal);
}

/* Sets the number of samples unless the user did. */
static void limit_samples(struct view *view)
{
	unsigned pictures = view->maker.value_count * (view->pipeline.text ? 2 : 1);

	if (view->choice.count_max == 0)
		view->choice.count_max = view->choice.keys.count ? SAMPLES_MAX
					 : pictures > PICTURES_DEFAULT / SAMPLES_DEFAULT
						 ? PICTURES_DEFAULT / pictures
						 : SAMPLES_DEFAULT;
}

/* Prepares the pictures, and chooses the samples. */
static int prepare(struct view *view, struct packimg_error *error)
{
	if (panel_maker_init(&view->maker, view->dataset, view->side,
			     view->pipeline.text ? &view->pipeline : NULL))
		return packimg_fail(error, -ENOMEM, "out of memory");
	limit_samples(view);
	int r = choice_resolve(&view->choice, view->dataset, &view->samples, &view->count,
			       &view->found, error);
	if (!r)
		r = remote_fetch_samples(view->remote, view->samples, view->count, error);
	return r || !view->pipeline.text
		       ? r
		       : panel_pipeline_open(&view->pipeline, view->dataset, error);
}

/* Makes and writes the pictures. The page is complete or removed on return. */
static int view_run(struct view *view)
{
	struct packimg_error error = {.text = ""};
	int r = prepare(view, &error);

	if (r)
		return command_fail("%s: %s", view->path, error.text);
	r = open_outputs(view, &error);
	r = r ?: view_samples(view, &error);
	if (!r && view->sheet_path)
		r = write_sheet(view, &error);
	if (view->page_path)
		r = page_close(&view->page, r, &error);
	if (r == -EINTR)
		return COMMAND_FAILED;
	if (r)
		return command_fail("%s", error.text);
	print_outcome(view);
	int skipped = selection_report(&view->choice.selection);
	return view->damaged ? COMMAND_SKIPPED : skipped;
}

static int view_open_and_run(struct view *view)
{
	struct packimg_error error;

	if (name_outputs(view))
		return command_fail("out of memory");
	int status = check_output(view, view->page_path);
	status = status ? status : check_output(view, view->sheet_path);
	if (status)
		return status;
	if (remote_open(view->path, false, &view->dataset, &view->remote, &error))
		return command_fail("%s", error.text);
	return view_run(view);
}

static void view_deinit(struct view *view)
{
	panel_deinit(&view->panel);
	panel_maker_deinit(&view->maker);
	panel_pipeline_close(&view->pipeline);
	sheet_deinit(&view->sheet);
	choice_deinit(&view->choice);
	remote_close(view->remote, view->dataset);
	free(view->samples);
	free(view->page_path);
	free(view->sheet_path);
}

int command_view(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = view_parse_option,
		.args_doc = "FILE [KEY...]",
		.doc = "Show samples, with further images and rasters, boxes, masks, keypoints and "
		       "polygons: as a page FILE.html, and as a contact sheet FILE.png. KEYs name "
		       "samples by the names "
		       "of their sources, as packimg list prints them.",
	};
	struct view *view = calloc(1, sizeof(*view));

	if (!view)
		return command_fail("out of memory");
	view->side = SIDE_DEFAULT;
	options_read(options, &argp, argc, argv, view);
	command_catch_interrupts();
	int status = view_open_and_run(view);
	view_deinit(view);
	free(view);
	command_die_of_interrupt(status == COMMAND_FAILED ? COMMAND_NOTHING_WRITTEN
							  : "the files are complete");
	return status;
}
