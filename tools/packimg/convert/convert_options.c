/* The command line of packimg convert. */
#include "format/base/text/number.h"
#include "format/base/text/options.h"
#include "tools/packimg/common/split_spec.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum option_key {
	KEY_JPEG = 256,
	KEY_RAW,
	KEY_RAW_ZSTD,
	KEY_OTHER,
	KEY_CHECK,
	KEY_SHUFFLE,
	KEY_SPLIT,
	KEY_SEPARATOR,
	KEY_LABEL_SEPARATOR,
	KEY_INCLUDE,
	KEY_EXCLUDE,
	KEY_FOREIGN, /* the first key of FOREIGN_OPTIONS */
};

/* Names of options in other programs, with the corresponding option of packimg. */
#define FOREIGN_OPTIONS(X)                                                                         \
	X(0, "resize",                                                                             \
	  "--short-side=N for a shorter, or --max-side=N for a longer side of at most N")          \
	X(1, "quality", "--jpeg=quality=Q")                                                        \
	X(2, "workers", "--jobs=N")                                                                \
	X(3, "threads", "--jobs=N")

enum {
	QUALITY_DEFAULT = 95, /* quality of JPEGs encoded while other samples stay verbatim */
	PIXELS_DEFAULT = 1 << 27,
};

static const char *const words_kind[] = {"auto",    "folder",     "manifest",
					 "archive", "webdataset", NULL};
static const char *const words_class_from[] = {"auto", "top", "parent", "archive", "none", NULL};
static const char *const words_labels[] = {"auto", "classes", "field", NULL};
static const char *const words_on_error[] = {"skip", "fail", NULL};
static const char *const words_progressive[] = {"keep", "transcode", NULL};

#define AT(member) offsetof(struct convert, options.member)

static const struct options_row options[] = {
	{.help = "Sources:", .group = 1},
	{"format", 0, "auto|folder|manifest|archive|webdataset",
	 "auto, folder, manifest, archive or webdataset (default: auto)", OPTIONS_WORD,
	 AT(source.kind), .words = words_kind},
	{"manifest", 0, "FILE", "table of the images in the SRC folder: path, label, fields",
	 OPTIONS_TEXT, AT(source.manifest)},
	{"root", 0, "DIR", "base folder of a manifest's relative paths (default: its own folder)",
	 OPTIONS_TEXT, AT(source.root)},
	{"separator", KEY_SEPARATOR, "comma|tab|semicolon|space",
	 "delimiter of a manifest: comma, tab, semicolon, space (default: detected)"},
	{"path-column", 0, "NAME|N",
	 "column of a manifest that names the images (default: path, file, image ...)",
	 OPTIONS_TEXT, AT(source.path_column)},
	{"path-suffix", 0, "TEXT", "suffix to add to a manifest's names, such as .jpg",
	 OPTIONS_TEXT, AT(source.path_suffix)},
	{"label-column", 0, "NAME|N",
	 "column of a manifest that holds the label (default: label, target, class ...)",
	 OPTIONS_TEXT, AT(source.label_column)},
	{"label-separator", KEY_LABEL_SEPARATOR, "none|comma|semicolon|bar|space|brackets",
	 "what separates several labels in a cell of a manifest: none (each cell is one), comma, "
	 "semicolon, bar, space, brackets (a list of Python) (default: where that is plain)"},
	{"class-from", 0, "top|parent|archive|none",
	 "source of the class: top or parent (folder of the name), archive (its name) or none",
	 OPTIONS_WORD, AT(source.class_from), .words = words_class_from},
	{"labels", 0, "auto|classes|field",
	 "treat labels in tables and shards as auto (default: classes, or a field if they are not "
	 "whole numbers), classes or field",
	 OPTIONS_WORD, AT(source.labels), .words = words_labels},
	{"classes", 0, "FILE", "class names in order, one per line (default: sorted)", OPTIONS_TEXT,
	 AT(classes_file)},
	{"include", KEY_INCLUDE, "PATTERN",
	 "convert only files whose names match, such as train or '*.png' (may be repeated)"},
	{"exclude", KEY_EXCLUDE, "PATTERN", "leave out files whose names match (may be repeated)"},
	{"limit", 0, "N", "convert only the first N samples (after --shuffle)", OPTIONS_U64,
	 AT(limit), 1, INT64_MAX},
	{"on-error", 0, "skip|fail", "skip (default) or fail at an image that cannot be used",
	 OPTIONS_SECOND, AT(fail_on_error), .words = words_on_error},
	{"max-file", 0, "BYTES",
	 "maximum size of an image file or an unpacked archive member (default: 256M)",
	 OPTIONS_BYTES, AT(limits.file_max), 1, UINT32_MAX,
	 .refusal = "is not a size below 4G, such as 512M"},
	{"max-pixels", 0, "N", "maximum number of pixels of an image (default: 134217728)",
	 OPTIONS_U64, AT(encoding.pixels_max), 1, IMAGE_PIXELS_MAX},
	{"max-expansion", 0, "N",
	 "maximum ratio of an archive's unpacked size to its own, beyond 256M (default: 100)",
	 OPTIONS_UNSIGNED, AT(limits.expansion_max), 1, UINT32_MAX},
	{.help = "Storage:", .group = 2},
	{"jpeg", KEY_JPEG, "verbatim|quality=Q",
	 "verbatim (default: bytes as they are) or quality=Q (1..100)"},
	{"max-side", 0, "PIXELS", "shrink so that the longer side is at most this",
	 OPTIONS_UNSIGNED, AT(encoding.max_side), 1, PACKIMG_SIDE_MAX},
	{"short-side", 0, "PIXELS", "shrink so that the shorter side is at most this",
	 OPTIONS_UNSIGNED, AT(encoding.short_side), 1, PACKIMG_SIDE_MAX},
	{"raw", KEY_RAW, NULL, "store pixels"},
	{"raw-zstd", KEY_RAW_ZSTD, "LEVEL", "store pixels compressed by zstd (level 3)",
	 .flags = OPTION_ARG_OPTIONAL},
	{"mix", 0, "FRACTION", "store this fraction raw and the rest as JPEG", OPTIONS_DOUBLE,
	 AT(encoding.raw_fraction), .max = 1, .refusal = "is not a fraction from 0 to 1"},
	{"non-jpeg", KEY_OTHER, "jpeg|raw|zstd",
	 "with --jpeg verbatim, store images of other formats as jpeg (default), raw or zstd"},
	{"optimise", 0, NULL, "optimize Huffman tables: 3 % smaller, slower to encode",
	 OPTIONS_FLAG, AT(encoding.optimise)},
	{"no-index", 0, NULL, "store JPEGs without an index: feeds slower", OPTIONS_FLAG,
	 AT(encoding.no_index)},
	{"progressive", 0, "keep|transcode",
	 "keep (default), or transcode progressive and other JPEGs that cannot have an index to "
	 "baseline, without loss",
	 OPTIONS_SECOND, AT(encoding.transcode), .words = words_progressive},
	{"check", KEY_CHECK, .flags = OPTION_HIDDEN}, /* obsolete: all images are always checked */
	{"statistics", 0, "N",
	 "images to decode for mean and deviation with --jpeg verbatim (default: 64 plus one in "
	 "128; 0: none)",
	 OPTIONS_U64, AT(statistics), 0, INT64_MAX},
	{.help = "Output:", .group = 3},
	{"output", 'o', "FILE", "dataset to write, NAME.pimg", OPTIONS_TEXT, AT(output)},
	{"force", 0, NULL, "replace an existing dataset", OPTIONS_FLAG, AT(force)},
	{"shard-size", 0, "BYTES", "start a new file after this many bytes (K, M, G)",
	 OPTIONS_BYTES, AT(shard_size), COMMAND_SHARD_MIN, UINT64_MAX, .refusal = COMMAND_NO_SHARD},
	{"shuffle", KEY_SHUFFLE, "SEED", "store in random order"},
	{"split", KEY_SPLIT, "NAME=F,...",
	 "write several datasets NAME-train.pimg ... with these fractions; or folders: one for "
	 "each of the folders train, val, test ..."},
	{"split-seed", 0, "SEED", "seed of the split (default: 0)", OPTIONS_U64, AT(split_seed), 0,
	 UINT64_MAX},
	{.help = "Running:", .group = 4},
	{"jobs", 'j', "N", "worker threads (default: all CPUs); never changes the result",
	 OPTIONS_UNSIGNED, AT(jobs), 1, COMMAND_JOBS_MAX},
	{"json", 0, NULL, "print the summary as JSON, including every skipped file", OPTIONS_FLAG,
	 AT(json)},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
#define ROW(number, name, here)                                                                    \
	{name, KEY_FOREIGN + (number), "N", .flags = OPTION_HIDDEN | OPTION_ARG_OPTIONAL},
	FOREIGN_OPTIONS(ROW)
#undef ROW
		{0},
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

static void parse_jpeg(struct sample_encoder_options *encoding, const char *text,
		       struct argp_state *state)
{
	uint64_t quality = QUALITY_DEFAULT;

	encoding->verbatim = strcmp(text, "verbatim") == 0;
	if (!encoding->verbatim &&
	    (strncmp(text, "quality=", 8) != 0 || number_u64(text + 8, 1, 100, &quality)))
		argp_error(state, "--jpeg: \"%s\" is neither verbatim nor quality=1..100", text);
	encoding->quality = (int)quality;
}

static char parse_separator(const char *text, struct argp_state *state)
{
	static const char *const names[] = {"comma", "tab", "semicolon", "space", NULL};

	if (strlen(text) == 1 && *text != '"' && *text != '\n')
		return *text;
	return ",\t; "[options_word("separator", text, names, state)];
}

static char parse_label_separator(const char *text, struct argp_state *state)
{
	static const char *const names[] = {"comma", "semicolon", "bar", "space",
					    "none",  "brackets",  NULL};
	static const char separators[] = {',', ';', '|', ' ', LABEL_SEPARATOR_NONE, '['};

	if (strlen(text) == 1 && *text != '"' && *text != '\n' && *text != '[')
		return *text;
	return separators[options_word("label-separator", text, names, state)];
}

/* Expands braces unless a file with that exact name exists. */
static void add_source(struct string_list *sources, const char *text, struct argp_state *state)
{
	struct packimg_error error;
	int r;

	if (access(text, F_OK) && strcmp(text, "-") != 0)
		r = brace_expand(text, sources, &error);
	else
		r = string_list_add(sources, text);
	if (r)
		argp_error(state, "%s", r == -ENOMEM ? "out of memory" : error.text);
}

/* Rejects contradictory options. */
static void convert_check_options(const struct convert_options *convert, struct argp_state *state)
{
	if (!convert->sources->count)
		argp_error(state, "no SRC given");
	if (!convert->output)
		argp_error(state, "no -o FILE given");
	if (convert->encoding.raw_fraction >= 1 && !convert->encoding.verbatim)
		argp_error(state,
			   "--jpeg quality=%d has no effect, because all images are stored as "
			   "pixels: omit it or --raw, or set the fraction stored as pixels with "
			   "--mix FRACTION",
			   convert->encoding.quality);
}

static error_t convert_parse_option(int key, char *text, struct argp_state *state)
{
	static const char *const codecs[] = {"jpeg", "raw", "zstd", NULL};
	struct convert *whole = state->input;
	struct convert_options *convert = &whole->options;
	struct sample_encoder_options *encoding = &convert->encoding;

	switch (key) {
	case KEY_JPEG:
		parse_jpeg(encoding, text, state);
		return 0;
	case KEY_RAW:
		encoding->raw_fraction = 1;
		return 0;
	case KEY_RAW_ZSTD:
		encoding->raw_zstd = true;
		if (text)
			encoding->zstd_level = (int)options_u64("raw-zstd", text, 1, 19, state);
		return 0;
	case KEY_OTHER:
		encoding->other =
			(enum packimg_codec)(options_word("non-jpeg", text, codecs, state) + 1);
		return 0;
	case KEY_CHECK:
		return 0;
	case KEY_SEPARATOR:
		convert->source.separator = parse_separator(text, state);
		return 0;
	case KEY_LABEL_SEPARATOR:
		convert->source.label_separator = parse_label_separator(text, state);
		return 0;
	case KEY_INCLUDE:
	case KEY_EXCLUDE:
		return filter_add(&convert->filter, text, key == KEY_EXCLUDE) ? ENOMEM : 0;
	case KEY_SHUFFLE:
		convert->seed = options_u64("shuffle", text, 0, UINT64_MAX, state);
		convert->shuffle = convert->source.random_access = true;
		return 0;
	case KEY_SPLIT:
		parse_split(whole, text, state);
		return 0;
	case ARGP_KEY_ARG:
		add_source(convert->sources, text, state);
		return 0;
	case ARGP_KEY_END:
		convert_check_options(convert, state);
		return 0;
#define CASE(number, name, here)                                                                   \
	case KEY_FOREIGN + (number):                                                               \
		argp_error(state, "unknown option --" name "; use " here);                         \
		return EINVAL;
		FOREIGN_OPTIONS(CASE)
#undef CASE
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.parser = convert_parse_option,
	.args_doc = "SRC... -o FILE",
	.doc = "Pack images into one dataset.\v"
	       "SRC is a folder of class folders, a CSV or TSV manifest, a tar or zip archive, a "
	       "WebDataset "
	       "shard (braces such as shard-{000..012}.tar are expanded), an image, or - for an "
	       "archive "
	       "on standard input. Exit status: 0; 1 when images were skipped; 2 when nothing was "
	       "written.",
};

void convert_parse(struct convert *convert, int argc, char **argv, struct string_list *sources)
{
	convert->options = (struct convert_options){
		.encoding = {.verbatim = true,
			     .quality = QUALITY_DEFAULT,
			     .zstd_level = 3,
			     .pixels_max = PIXELS_DEFAULT,
			     .other = PACKIMG_CODEC_JPEG},
		.limits = {ARCHIVE_FILE_MAX, ARCHIVE_EXPANSION_MAX},
		.sources = sources,
		.source.notes = &convert->notes,
		.statistics = UINT64_MAX,
		.jobs = command_cpu_count(),
	};
	options_read(options, &argp, argc, argv, convert);
	/*
	 * Without --mix, --raw-zstd applies to all samples; with --mix it sets how the raw fraction
	 * is stored.
	 */
	if (convert->options.encoding.raw_zstd && convert->options.encoding.raw_fraction == 0)
		convert->options.encoding.raw_fraction = 1;
}
