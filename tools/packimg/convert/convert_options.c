/* The command line of packimg convert. */
#include "format/base/options.h"
#include "tools/packimg/common/split_spec.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum option_key {
	KEY_JPEG = 256,
	KEY_MAX_SIDE,
	KEY_SHORT_SIDE,
	KEY_RAW,
	KEY_RAW_ZSTD,
	KEY_MIX,
	KEY_OTHER,
	KEY_CHECK,
	KEY_OPTIMISE,
	KEY_NO_INDEX,
	KEY_PROGRESSIVE,
	KEY_SHARD_SIZE,
	KEY_SHUFFLE,
	KEY_SPLIT,
	KEY_SPLIT_SEED,
	KEY_LIMIT,
	KEY_ON_ERROR,
	KEY_MAX_FILE,
	KEY_MAX_PIXELS,
	KEY_MAX_EXPANSION,
	KEY_JSON,
	KEY_FORCE,
	KEY_STATISTICS,
	KEY_FORMAT,
	KEY_CLASS_FROM,
	KEY_CLASSES,
	KEY_MANIFEST,
	KEY_ROOT,
	KEY_SEPARATOR,
	KEY_LABELS,
	KEY_INCLUDE,
	KEY_EXCLUDE,
};

enum {
	QUALITY_DEFAULT = 95, /* of JPEGs made where the rest stays verbatim */
	JOBS_MAX = 1024,
	PIXELS_DEFAULT = 1 << 27,
};

static const struct argp_option options[] = {
	{NULL, 0, NULL, 0, "Sources:", 1},
	{"format", KEY_FORMAT, "auto|folder|manifest|archive|webdataset", 0,
	 "auto, folder, manifest, archive or webdataset (default: auto)", 0},
	{"manifest", KEY_MANIFEST, "FILE", 0,
	 "table of the images in the SRC folder: path, label, fields", 0},
	{"root", KEY_ROOT, "DIR", 0,
	 "where a manifest's relative paths begin (default: its own folder)", 0},
	{"separator", KEY_SEPARATOR, "comma|tab|semicolon", 0,
	 "of a manifest: comma, tab, semicolon (default: found out)", 0},
	{"class-from", KEY_CLASS_FROM, "top|parent|archive|none", 0,
	 "top, parent (folder of the name), archive (its name) or none", 0},
	{"labels", KEY_LABELS, "auto|classes|field", 0,
	 "what labels in tables and shards are: auto (default: classes, but a field where they are "
	 "not whole numbers), classes or field",
	 0},
	{"classes", KEY_CLASSES, "FILE", 0, "class names in order, one per line (default: sorted)",
	 0},
	{"include", KEY_INCLUDE, "PATTERN", 0,
	 "convert only files whose names match, such as train or '*.png' (may be repeated)", 0},
	{"exclude", KEY_EXCLUDE, "PATTERN", 0,
	 "leave out files whose names match (may be repeated)", 0},
	{"limit", KEY_LIMIT, "N", 0, "convert only the first N samples (after --shuffle)", 0},
	{"on-error", KEY_ON_ERROR, "skip|fail", 0,
	 "skip (default) or fail at an image that cannot be used", 0},
	{"max-file", KEY_MAX_FILE, "BYTES", 0,
	 "of an image's file, or of an archive's member unpacked (default: 256M)", 0},
	{"max-pixels", KEY_MAX_PIXELS, "N", 0, "of an image (default: 134217728)", 0},
	{"max-expansion", KEY_MAX_EXPANSION, "N", 0,
	 "how many times its own size an archive may unpack to (default: 100), beyond 256M", 0},
	{NULL, 0, NULL, 0, "What is stored:", 2},
	{"jpeg", KEY_JPEG, "verbatim|quality=Q", 0,
	 "verbatim (default: bytes as they are) or quality=Q (1..100)", 0},
	{"max-side", KEY_MAX_SIDE, "PIXELS", 0, "shrink so that the longer side is at most this",
	 0},
	{"short-side", KEY_SHORT_SIDE, "PIXELS", 0,
	 "shrink so that the shorter side is at most this", 0},
	{"raw", KEY_RAW, NULL, 0, "store pixels", 0},
	{"raw-zstd", KEY_RAW_ZSTD, "LEVEL", OPTION_ARG_OPTIONAL,
	 "store pixels compressed by zstd (level 3)", 0},
	{"mix", KEY_MIX, "FRACTION", 0, "store this fraction raw and the rest as JPEG", 0},
	{"non-jpeg", KEY_OTHER, "jpeg|raw|zstd", 0,
	 "under --jpeg verbatim, what images of other kinds become: jpeg (default), raw or zstd",
	 0},
	{"optimise", KEY_OPTIMISE, NULL, 0, "optimal Huffman tables: 3 % smaller, slower to make",
	 0},
	{"no-index", KEY_NO_INDEX, NULL, 0, "no index beside JPEGs: feeds slower", 0},
	{"progressive", KEY_PROGRESSIVE, "keep|transcode", 0,
	 "keep (default), or transcode: progressive and other JPEGs that can have no index become "
	 "baseline, without loss",
	 0},
	{"check", KEY_CHECK, NULL, OPTION_HIDDEN, NULL, 0}, /* once: all images are checked now */
	{"statistics", KEY_STATISTICS, "N", 0,
	 "images to decode for mean and deviation under verbatim (default: 64 and one in 128, 0: "
	 "none)",
	 0},
	{NULL, 0, NULL, 0, "Output:", 3},
	{"output", 'o', "FILE", 0, "the dataset, NAME.pimg", 0},
	{"force", KEY_FORCE, NULL, 0, "replace a dataset of that name", 0},
	{"shard-size", KEY_SHARD_SIZE, "BYTES", 0, "begin a new file after this many (K, M, G)", 0},
	{"shuffle", KEY_SHUFFLE, "SEED", 0, "store in random order", 0},
	{"split", KEY_SPLIT, "NAME=F,...", 0,
	 "several datasets NAME-train.pimg ... in these fractions; or folders: one of each of the "
	 "folders train, val, test ...",
	 0},
	{"split-seed", KEY_SPLIT_SEED, "SEED", 0, "of the split's draw (default: 0)", 0},
	{NULL, 0, NULL, 0, "Running:", 4},
	{"jobs", 'j', "N", 0, "worker threads (default: all CPUs); never changes the result", 0},
	{"json", KEY_JSON, NULL, 0, "print the summary as JSON, with every skipped file", 0},
	{"quiet", 'q', NULL, 0, "no progress", 0},
	{0},
};

/* The command line as it is read; `convert` is what it becomes. */
struct command_line {
	struct convert *convert;
	struct word_list *sources;
	bool quality_given;
};

static void parse_split(struct convert *convert, char *text, struct argp_state *state)
{
	struct split_part parts[SPLIT_PARTS_MAX];
	struct packimg_error error;

	convert->options.split_folders = strcmp(text, "folders") == 0;
	if (convert->options.split_folders)
		return;
	if (split_parse(text, parts, &convert->part_count, &error))
		argp_error(state, "--split: %s", error.text);
	for (uint32_t i = 0; i < convert->part_count; i++) {
		convert->parts[i].name = parts[i].name;
		convert->parts[i].fraction = parts[i].fraction;
	}
}

static void parse_jpeg(struct command_line *line, const char *text, struct argp_state *state)
{
	struct render_options *render = &line->convert->options.render;
	uint64_t quality = QUALITY_DEFAULT;

	if (strcmp(text, "verbatim") == 0) {
		render->verbatim = true;
		render->quality = QUALITY_DEFAULT;
		return;
	}
	if (strncmp(text, "quality=", 8) != 0 || text_parse_u64(text + 8, 1, 100, &quality))
		argp_error(state, "--jpeg: \"%s\" is neither verbatim nor quality=1..100", text);
	render->verbatim = false;
	render->quality = (int)quality;
}

/* Index of text among the words, or an error that names them. */
static int parse_word(const char *option, const char *text, const char *const *words,
		      struct argp_state *state)
{
	char known[256] = "";

	for (int i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) == 0)
			return i;
		strcat(strcat(known, i ? ", " : ""), words[i]);
	}
	argp_error(state, "--%s: \"%s\" is none of %s", option, text, known);
	return 0;
}

static uint64_t parse_number(const char *option, const char *text, uint64_t low, uint64_t high,
			     struct argp_state *state)
{
	uint64_t value = low;

	if (text_parse_u64(text, low, high, &value))
		argp_error(state, "--%s: \"%s\" is not a whole number from %llu to %llu", option,
			   text, (unsigned long long)low, (unsigned long long)high);
	return value;
}

static int parse_storage(int key, char *text, struct argp_state *state)
{
	static const char *const codecs[] = {"jpeg", "raw", "zstd", NULL};
	static const char *const progressive[] = {"keep", "transcode", NULL};
	struct command_line *line = state->input;
	struct render_options *render = &line->convert->options.render;

	switch (key) {
	case KEY_JPEG:
		parse_jpeg(line, text, state);
		return 0;
	case KEY_MAX_SIDE:
		render->max_side =
			(uint32_t)parse_number("max-side", text, 1, PACKIMG_SIDE_MAX, state);
		return 0;
	case KEY_SHORT_SIDE:
		render->short_side =
			(uint32_t)parse_number("short-side", text, 1, PACKIMG_SIDE_MAX, state);
		return 0;
	case KEY_RAW:
		render->raw_fraction = 1;
		return 0;
	case KEY_RAW_ZSTD:
		render->raw_zstd = true;
		if (text)
			render->zstd_level = (int)parse_number("raw-zstd", text, 1, 19, state);
		return 0;
	case KEY_MIX:
		if (text_parse_double(text, &render->raw_fraction) ||
		    !(render->raw_fraction >= 0 && render->raw_fraction <= 1))
			argp_error(state, "--mix: \"%s\" is not a fraction from 0 to 1", text);
		return 0;
	case KEY_OTHER:
		render->other =
			(enum packimg_codec)(parse_word("non-jpeg", text, codecs, state) + 1);
		return 0;
	case KEY_OPTIMISE:
		render->optimise = true;
		return 0;
	case KEY_NO_INDEX:
		render->index = false;
		return 0;
	case KEY_PROGRESSIVE:
		render->transcode = parse_word("progressive", text, progressive, state) == 1;
		return 0;
	case KEY_CHECK:
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static char parse_separator(const char *text, struct argp_state *state)
{
	static const char *const names[] = {"comma", "tab", "semicolon", "space", NULL};

	if (strlen(text) == 1 && *text != '"' && *text != '\n')
		return *text;
	return ",\t; "[parse_word("separator", text, names, state)];
}

static int parse_source(int key, char *text, struct argp_state *state)
{
	static const char *const kinds[] = {"auto",    "folder",     "manifest",
					    "archive", "webdataset", NULL};
	static const char *const class_from[] = {"auto", "top", "parent", "archive", "none", NULL};
	static const char *const labels[] = {"auto", "classes", "field", NULL};
	static const char *const on_error[] = {"skip", "fail", NULL};
	struct command_line *line = state->input;
	struct convert_options *convert = &line->convert->options;

	switch (key) {
	case KEY_FORMAT:
		convert->source.kind = (enum source_kind)parse_word("format", text, kinds, state);
		return 0;
	case KEY_MANIFEST:
		convert->source.manifest = text;
		return 0;
	case KEY_ROOT:
		convert->source.root = text;
		return 0;
	case KEY_SEPARATOR:
		convert->source.separator = parse_separator(text, state);
		return 0;
	case KEY_CLASS_FROM:
		convert->source.class_from =
			(enum class_from)parse_word("class-from", text, class_from, state);
		return 0;
	case KEY_INCLUDE:
	case KEY_EXCLUDE:
		return filter_add(&convert->filter, text, key == KEY_EXCLUDE) ? ENOMEM : 0;
	case KEY_LABELS:
		convert->source.labels = (enum label_use)parse_word("labels", text, labels, state);
		return 0;
	case KEY_CLASSES:
		convert->classes_file = text;
		return 0;
	case KEY_LIMIT:
		convert->limit = parse_number("limit", text, 1, INT64_MAX, state);
		return 0;
	case KEY_MAX_FILE:
		if (text_parse_bytes(text, &convert->limits.file_max) ||
		    !convert->limits.file_max || convert->limits.file_max > UINT32_MAX)
			argp_error(state, "--max-file: \"%s\" is not a size below 4G, such as 512M",
				   text);
		return 0;
	case KEY_MAX_PIXELS:
		convert->render.pixels_max =
			parse_number("max-pixels", text, 1, IMAGE_PIXELS_MAX, state);
		return 0;
	case KEY_MAX_EXPANSION:
		convert->limits.expansion_max =
			(uint32_t)parse_number("max-expansion", text, 1, UINT32_MAX, state);
		return 0;
	case KEY_ON_ERROR:
		convert->fail_on_error = parse_word("on-error", text, on_error, state) == 1;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int parse_output(int key, char *text, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct convert_options *convert = &line->convert->options;

	switch (key) {
	case 'o':
		convert->output = text;
		return 0;
	case KEY_FORCE:
		convert->force = true;
		return 0;
	case KEY_SHARD_SIZE:
		if (text_parse_bytes(text, &convert->shard_size) || convert->shard_size < 1 << 16)
			argp_error(
				state,
				"--shard-size: \"%s\" is not a size of at least 64K, such as 512M",
				text);
		return 0;
	case KEY_SHUFFLE:
		convert->seed = parse_number("shuffle", text, 0, UINT64_MAX, state);
		convert->shuffle = convert->source.random_access = true;
		return 0;
	case KEY_SPLIT:
		parse_split(line->convert, text, state);
		return 0;
	case KEY_SPLIT_SEED:
		convert->split_seed = parse_number("split-seed", text, 0, UINT64_MAX, state);
		return 0;
	case KEY_STATISTICS:
		convert->statistics = parse_number("statistics", text, 0, INT64_MAX, state);
		return 0;
	case 'j':
		convert->jobs = (unsigned)parse_number("jobs", text, 1, JOBS_MAX, state);
		return 0;
	case KEY_JSON:
		convert->json = true;
		return 0;
	case 'q':
		convert->quiet = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Braces are expanded only where no file has that very name. */
static void add_source(struct command_line *line, const char *text, struct argp_state *state)
{
	struct packimg_error error;
	int r;

	if (access(text, F_OK) && strcmp(text, "-") != 0)
		r = brace_expand(text, line->sources, &error);
	else
		r = word_list_add(line->sources, text);
	if (r)
		argp_error(state, "%s", r == -ENOMEM ? "out of memory" : error.text);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct command_line *line = state->input;
	const struct render_options *render = &line->convert->options.render;
	int r;

	switch (key) {
	case ARGP_KEY_ARG:
		add_source(line, text, state);
		return 0;
	case ARGP_KEY_END:
		if (!line->sources->count)
			argp_error(state, "no SRC given");
		if (!line->convert->options.output)
			argp_error(state, "no -o FILE given");
		if (render->raw_fraction >= 1 && !render->verbatim)
			argp_error(state,
				   "--jpeg quality=%d has no image left where all are stored as "
				   "pixels: leave it or --raw out, or say with --mix FRACTION "
				   "how many are pixels",
				   render->quality);
		return 0;
	default:
		break;
	}
	r = parse_storage(key, text, state);
	if (r == ARGP_ERR_UNKNOWN)
		r = parse_source(key, text, state);
	if (r == ARGP_ERR_UNKNOWN)
		r = parse_output(key, text, state);
	return r;
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "SRC... -o FILE",
	.doc = "Pack images into one dataset.\v"
	       "SRC is a folder of class folders, a CSV or TSV manifest, a tar or zip archive, a "
	       "WebDataset "
	       "shard (braces such as shard-{000..012}.tar are expanded), an image, or - for an "
	       "archive "
	       "on standard input. Exit status: 0; 1 when images were skipped; 2 when nothing was "
	       "written.",
};

void convert_parse(struct convert *convert, int argc, char **argv, struct word_list *sources)
{
	struct command_line line = {.convert = convert, .sources = sources};

	convert->options = (struct convert_options){
		.render = {.verbatim = true,
			   .index = true,
			   .quality = QUALITY_DEFAULT,
			   .zstd_level = 3,
			   .pixels_max = PIXELS_DEFAULT,
			   .other = PACKIMG_CODEC_JPEG},
		.limits = {ARCHIVE_FILE_MAX, ARCHIVE_EXPANSION_MAX},
		.sources = sources,
		.statistics = UINT64_MAX,
		.jobs = command_cpu_count(),
	};
	options_parse(&argp, argc, argv, &line);
	/* --raw-zstd alone means everything; with --mix it says how that fraction is stored. */
	if (convert->options.render.raw_zstd && convert->options.render.raw_fraction == 0)
		convert->options.render.raw_fraction = 1;
}
