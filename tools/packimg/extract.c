/*
 * packimg extract: writes images back to files. A sample's file is DIR/CLASS/NAME, where NAME is
 * the part of its source name below the class folder. A stored JPEG is written byte for byte,
 * pixels as PNG. The main thread chooses all names first, so that two samples with the same name
 * get two files, independently of the number of threads.
 */
#include "format/base/system/io.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/file_name.h"
#include "tools/packimg/common/name_table.h"
#include "tools/packimg/common/parallel_map.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/selection.h"
#include "tools/packimg/source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct extract {
	const char *path, *output;
	struct selection selection;
	unsigned jobs;
	bool force, quiet, manifest, raw_names;
	struct packimg *dataset;
	int folder; /* fd of DIR */
	uint64_t *samples;
	const char **paths; /* paths relative to DIR, by sample; NULL if the sample's index record
			       is damaged */
	uint64_t count;
	struct arena arena;
	struct progress progress;
	uint64_t done, bytes, bad; /* number and bytes of images written; number of images that
				      could not be written */
	uint64_t damaged;          /* number of intact images with damaged names or values */
	uint64_t numbered;         /* number of samples whose names are too long for file names */
};

#define AT(member) offsetof(struct extract, member)

static const struct options_row options[] = {
	{"output", 'o', "DIR", "folder to write to, created if missing", OPTIONS_TEXT, AT(output)},
	{"index", 'i', "LIST", "only samples with these indices, such as 0-9,15,100-", OPTIONS_TEXT,
	 AT(selection.indices)},
	{"class", 'c', "NAME", "only samples of this class (may be repeated)"},
	{"manifest", 'm', NULL, "also write DIR/manifest.csv with path, label, class and fields",
	 OPTIONS_FLAG, AT(manifest)},
	{"force", 'f', NULL, "replace existing files", OPTIONS_FLAG, AT(force)},
	{"raw-names", 0, NULL, "write names as recorded, without escapes", OPTIONS_FLAG,
	 AT(raw_names)},
	{"jobs", 'j', "N", "worker threads (default: all CPUs)", OPTIONS_UNSIGNED, AT(jobs), 1,
	 COMMAND_JOBS_MAX, .refusal = COMMAND_NO_JOBS},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{.argument = "FILE", .kind = OPTIONS_ARGUMENT, .at = AT(path)},
	{0},
};

static error_t extract_parse_option(int key, char *text, struct argp_state *state)
{
	struct extract *extract = state->input;

	if (key == 'c')
		return string_list_add(&extract->selection.classes, text) ? ENOMEM : 0;
	if (key == ARGP_KEY_END && !extract->output)
		argp_error(state, "no -o DIR given");
	return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

/*
 * Appends the safe components of a name: drops ".." and empty ones. Unless raw names are requested,
 * escapes components that a terminal or a script could misread.
 */
static int append_path(const struct extract *extract, struct buffer *path, const char *name,
		       size_t size)
{
	const char *end = name + size;

	while (name < end) {
		const char *slash = memchr(name, '/', (size_t)(end - name));
		size_t part = (size_t)((slash ? slash : end) - name);
		bool dots =
			(part == 1 && name[0] == '.') || (part == 2 && memcmp(name, "..", 2) == 0);
		/* no file name can contain a NUL */
		bool raw = extract->raw_names && !memchr(name, 0, part);

		if (part && !dots) {
			if (path->size && buffer_append(path, "/", 1))
				return -ENOMEM;
			if (raw ? buffer_append(path, name, part)
				: file_name_append(path, name, part))
				return -ENOMEM;
		}
		name += part + 1;
	}
	return 0;
}

/*
 * Returns true if each component of a path, from offset `first` on, is short enough for a file
 * system.
 */
static bool path_fits(const struct buffer *path, size_t first)
{
	const char *part = (const char *)path->data + first,
		   *end = (const char *)path->data + path->size;

	while (part < end) {
		const char *slash = memchr(part, '/', (size_t)(end - part));

		if ((slash ? slash : end) - part > FILE_NAME_MAX)
			return false;
		part = slash ? slash + 1 : end;
	}
	return true;
}

/*
 * Returns the part of a source name below its class folder; its last component if it has no class
 * folder.
 */
static const char *below_class(const char *name, size_t *size, const char *class)
{
	size_t class_size = class ? strlen(class) : 0;
	const char *end = name + *size, *rest = NULL, *base = name;

	for (const char *p = name; p < end;) {
		const char *slash = memchr(p, '/', (size_t)(end - p));

		if (!slash)
			break;
		if (class_size && !rest && (size_t)(slash - p) == class_size &&
		    memcmp(p, class, class_size) == 0)
			rest = slash + 1;
		p = base = slash + 1;
	}
	if (!rest)
		rest = base;
	*size = (size_t)(end - rest);
	return rest;
}

/* Sets the extension of the output format, but keeps the extension of a JPEG. */
static int fit_extension(struct buffer *path, const struct packimg_sample *sample)
{
	const char *wanted = sample->codec == PACKIMG_CODEC_JPEG ? ".jpg" : ".png";

	if (buffer_append(path, "", 1))
		return -ENOMEM;
	path->size--;
	const char *name = (const char *)path->data;
	enum image_kind kind = image_kind_of_name(name);
	if (sample->codec == PACKIMG_CODEC_JPEG && kind == IMAGE_JPEG)
		return 0;
	/* Replace only the extension of an image format: in "photo.2019" it is part of the name. */
	if (kind < IMAGE_KINDS)
		path->size -= strlen(strrchr(name, '.'));
	return buffer_append(path, wanted, strlen(wanted));
}

/* Appends the sample's number and an extension instead of a name. */
static int append_number(struct buffer *path, const struct packimg_sample *sample)
{
	char number[40];
	int n = snprintf(number, sizeof(number), "%s%08" PRIu64 ".%s", path->size ? "/" : "",
			 sample->index, sample->codec == PACKIMG_CODEC_JPEG ? "jpg" : "png");

	return buffer_append(path, number, (size_t)n);
}

/* Appends the sample's source name; nothing if it has none. */
static int append_source(struct extract *extract, const struct packimg_sample *sample,
			 const char *class, struct buffer *path)
{
	size_t size = 0, before = path->size;
	const char *name;

	if (packimg_source(extract->dataset, sample->index, &name, &size)) {
		extract->damaged++;
		command_fail("sample %" PRIu64
			     ": its source name is damaged; its file is named by its number",
			     sample->index);
		return 0;
	}
	name = below_class(name, &size, class);
	if (append_path(extract, path, name, size))
		return -ENOMEM;
	return path->size > before ? fit_extension(path, sample) : 0;
}

/* Builds the path of one sample, not null-terminated. */
static int make_path(struct extract *extract, const struct packimg_sample *sample,
		     struct buffer *path)
{
	const char *class = sample_class(extract->dataset, sample);
	char number[16];

	path->size = 0;
	if (class && append_path(extract, path, class, strlen(class)))
		return -ENOMEM;
	bool fits = path_fits(path, 0);
	if (!fits) {
		path->size = 0;
		int n = snprintf(number, sizeof(number), "%" PRId32, sample->label);
		if (buffer_append(path, number, (size_t)n))
			return -ENOMEM;
	}
	size_t before = path->size;
	if (append_source(extract, sample, class, path))
		return -ENOMEM;
	if (!path_fits(path, before + (before > 0))) {
		path->size = before;
		fits = false;
	}
	extract->numbered += !fits;
	return path->size > before ? 0 : append_number(path, sample);
}

/*
 * Makes a repeated file name unique: inserts the sample's number before the extension, or replaces
 * a name that is too long for that.
 */
static int make_unique(struct buffer *path, const struct packimg_sample *sample)
{
	char tail[64];
	size_t dot = path->size, base = path->size;

	while (path->data[dot - 1] != '.')
		dot--;
	while (base && path->data[base - 1] != '/')
		base--;
	int n = snprintf(tail, sizeof(tail), "-%" PRIu64 "%.8s", sample->index,
			 (const char *)path->data + dot - 1);
	path->size = dot - 1;
	if (path->size + (size_t)n - base <= FILE_NAME_MAX)
		return buffer_append(path, tail, (size_t)n + 1);
	path->size = base ? base - 1 : 0;
	return append_number(path, sample) || buffer_append(path, "", 1) ? -ENOMEM : 0;
}

/* Determines the unique path of one sample. */
static int name_file(struct extract *extract, const struct packimg_sample *sample,
		     struct name_table *names, struct buffer *path, const char **ret_path)
{
	uint32_t number;
	bool added;

	int r = make_path(extract, sample, path);
	if (r)
		return r;
	r = buffer_append(path, "", 1);
	if (r)
		return r;
	for (;;) {
		r = name_table_add(names, (const char *)path->data, &number, &added);
		if (r)
			return r;
		if (added)
			break;
		path->size--;
		r = make_unique(path, sample);
		if (r)
			return r;
	}
	*ret_path = names->names[number];
	return 0;
}

static int name_files(struct extract *extract)
{
	struct buffer path = {0};
	struct name_table names;
	int r = 0;

	name_table_init(&names, &extract->arena);
	extract->paths = calloc(extract->count + 1, sizeof(*extract->paths));
	if (!extract->paths)
		return -ENOMEM;
	for (uint64_t i = 0; !r && i < extract->count; i++) {
		struct packimg_sample sample;

		if (!packimg_sample(extract->dataset, extract->samples[i], &sample))
			r = name_file(extract, &sample, &names, &path, &extract->paths[i]);
	}
	name_table_deinit(&names);
	buffer_deinit(&path);
	return r;
}

/*
 * Opens a folder below DIR and creates it if missing. Each step must be a real folder inside the
 * previous one, because a symbolic link could lead out of DIR. Closes `folder`.
 */
static int open_step(int folder, const char *name, struct packimg_error *error)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(folder, name, flags);

	if (fd < 0 && errno == ENOENT && (!mkdirat(folder, name, 0777) || errno == EEXIST))
		fd = openat(folder, name, flags);
	int r = fd < 0 ? -errno : 0;
	close(folder);
	if (r == -ELOOP || r == -ENOTDIR)
		return packimg_fail(
			error, r,
			"%s is a symbolic link or a file; extract writes only to real folders",
			name);
	return r ? packimg_fail(error, r, "%s: %s", name, strerror(-r)) : fd;
}

/*
 * Creates a new file below DIR. Replaces an existing one if requested, but never writes to it,
 * because it may be a link or a FIFO.
 */
static int create_file(const struct extract *extract, const char *path, struct packimg_error *error)
{
	int folder = fcntl(extract->folder, F_DUPFD_CLOEXEC, 3);
	const char *slash;

	for (; folder >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
		char *name = strndup(path, (size_t)(slash - path));

		if (!name) {
			close(folder);
			return packimg_fail(error, -ENOMEM, "out of memory");
		}
		folder = open_step(folder, name, error);
		free(name);
		if (folder < 0)
			return folder;
	}
	if (folder < 0)
		return packimg_fail(error, -errno, "%s", strerror(errno));
	if (extract->force)
		unlinkat(folder, path, 0);
	int fd = openat(folder, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	int r = fd < 0 ? -errno : 0;
	close(folder);
	return r ? packimg_fail(error, r, "%s%s", strerror(-r),
				r == -EEXIST ? "; --force replaces it" : "")
		 : fd;
}

static int write_file(const struct extract *extract, const char *path, const uint8_t *data,
		      size_t size, struct packimg_error *error)
{
	int fd = create_file(extract, path, error);

	if (fd < 0)
		return text_error_prefix(error, fd, "%s/%s", extract->output, path);
	int r = io_write(fd, data, size);
	if (close(fd) && !r)
		r = -errno;
	return r ? packimg_fail(error, r, "%s/%s: %s", extract->output, path, strerror(-r)) : 0;
}

static int write_png(const struct extract *extract, struct image_reader *reader, struct buffer *png,
		     const struct packimg_sample *sample, const char *path,
		     struct packimg_error *error)
{
	struct resize_picture pixels;

	int r = image_read_sample(reader, sample, 0, 0, &pixels, error);
	if (r)
		return r;
	r = image_write_png(&pixels, png, error);
	return r ? r : write_file(extract, path, png->data, png->size, error);
}

struct verdict {
	int status;
	uint32_t size;
	struct packimg_error error;
};

static int extract_sample(const struct extract *extract, struct image_reader *reader,
			  struct buffer *png, uint64_t number, struct verdict *verdict)
{
	struct packimg_sample sample;

	int r = packimg_sample(extract->dataset, extract->samples[number], &sample);
	if (r || !extract->paths[number])
		return packimg_fail(&verdict->error, -EBADMSG, "its index record is damaged");
	verdict->size = sample.data_size;
	if (packimg_sample_check(&sample))
		return packimg_fail(&verdict->error, -EBADMSG,
				    "its bytes do not match their checksum");
	if (sample.codec == PACKIMG_CODEC_JPEG)
		return write_file(extract, extract->paths[number], sample.data, sample.data_size,
				  &verdict->error);
	return write_png(extract, reader, png, &sample, extract->paths[number], &verdict->error);
}

static void extract_run_sample(void *context, void *worker, struct work_block *block,
			       uint32_t number)
{
	struct verdict *verdict = (struct verdict *)block->results + number;

	*verdict = (struct verdict){0};
	verdict->status =
		extract_sample(context, worker, &block->bytes, block->first + number, verdict);
}

/* Writes a cell of the manifest, quoted if necessary. */
static void write_cell(FILE *file, const char *bytes, size_t size)
{
	bool quote = size && (strchr(" \t", bytes[0]) || strchr(" \t", bytes[size - 1]));

	for (size_t i = 0; i < size; i++)
		quote |= strchr(",\"\r\n", bytes[i]) && bytes[i];
	if (quote)
		fputc('"', file);
	for (size_t i = 0; i < size; i++) {
		if (bytes[i] == '"')
			fputc('"', file);
		fputc(bytes[i], file);
	}
	if (quote)
		fputc('"', file);
}

static void write_fields(struct extract *extract, FILE *file, uint64_t index)
{
	for (uint32_t f = 0; f < packimg_field_count(extract->dataset); f++) {
		struct packimg_field field;
		struct packimg_value value;

		fputc(',', file);
		packimg_field(extract->dataset, f, &field);
		if (packimg_value(extract->dataset, index, f, &value)) {
			extract->damaged++;
			command_fail("sample %" PRIu64 ": its value of field %s is damaged; the "
				     "manifest has none",
				     index, field.name);
			continue;
		}
		if (!value.present)
			continue;
		if (field.type == PACKIMG_FIELD_INT64)
			fprintf(file, "%" PRId64, value.int64);
		else if (field.type == PACKIMG_FIELD_FLOAT64)
			fprintf(file, "%.17g", value.float64);
		else
			write_cell(file, value.bytes, value.size);
	}
}

static int write_manifest(struct extract *extract)
{
	const struct packimg *dataset = extract->dataset;
	struct packimg_error error;
	int fd = create_file(extract, "manifest.csv", &error);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	struct packimg_sample sample;
	struct packimg_field field;

	if (!file)
		return command_fail("%s/manifest.csv: %s", extract->output,
				    fd < 0 ? error.text : strerror(errno));
	fputs("path,label,class", file);
	for (uint32_t f = 0; f < packimg_field_count(dataset); f++) {
		fputc(',', file);
		if (!packimg_field(dataset, f, &field))
			write_cell(file, field.name, strlen(field.name));
	}
	fputc('\n', file);
	for (uint64_t i = 0; i < extract->count; i++) {
		if (!extract->paths[i] || packimg_sample(dataset, extract->samples[i], &sample))
			continue;
		write_cell(file, extract->paths[i], strlen(extract->paths[i]));
		fputc(',', file);
		if (sample.label >= 0)
			fprintf(file, "%" PRId32, sample.label);
		fputc(',', file);
		const char *class = sample_class(dataset, &sample);
		if (class)
			write_cell(file, class, strlen(class));
		write_fields(extract, file, sample.index);
		fputc('\n', file);
	}
	bool bad = ferror(file);
	if (fclose(file) || bad)
		return command_fail("%s/manifest.csv: %s", extract->output, strerror(errno));
	return 0;
}

static int extract_take_sample(void *context, const struct work_block *block, uint32_t number)
{
	const struct verdict *verdict = (const struct verdict *)block->results + number;
	struct extract *extract = context;

	extract->bytes += verdict->size;
	extract->done++;
	if (!verdict->status)
		return 0;
	progress_clear(&extract->progress);
	extract->bad++;
	command_fail("sample %" PRIu64 ": %s", extract->samples[block->first + number],
		     text_after_sample(verdict->error.text));
	return 0;
}

static int write_images(struct extract *extract)
{
	const struct parallel_map_options setup = {
		.jobs = extract->jobs,
		.total = extract->count,
		.block = 8,
		.result_size = sizeof(struct verdict),
		.bytes_max = UINT64_MAX,
		.context = extract,
		.worker_size = sizeof(struct image_reader),
		.worker_init = image_worker_init,
		.worker_deinit = image_worker_deinit,
		.run = extract_run_sample,
		.take = extract_take_sample,
		.stopped = command_interrupted,
		.progress = &extract->progress,
		.bytes = &extract->bytes,
	};
	int fault;

	progress_init(&extract->progress, "extracting", extract->count, extract->quiet);
	parallel_map(&setup, &fault);
	if (fault)
		return command_fail("starting threads: %s", strerror(-fault));
	printable_line(stdout, "%s: %s of %s image%s, %s, %s", extract->output,
		       text_count(TEXT, extract->done - extract->bad),
		       text_count(TEXT, extract->count), text_plural(extract->count),
		       text_bytes(TEXT, extract->bytes),
		       text_duration(TEXT, progress_elapsed_s(&extract->progress)));
	if (extract->numbered)
		printf("  note      %s file%s named by the sample's number: the name is longer "
		       "than %d bytes\n",
		       text_count(TEXT, extract->numbered),
		       extract->numbered == 1 ? " is" : "s are", FILE_NAME_MAX);
	if (!extract->bad)
		return extract->damaged ? COMMAND_SKIPPED : COMMAND_OK;
	return extract->bad == extract->count ? COMMAND_FAILED : COMMAND_SKIPPED;
}

static int extract_run(struct extract *extract)
{
	struct packimg_error error;

	if (selection_resolve(&extract->selection, extract->dataset, &extract->samples,
			      &extract->count, &error))
		return command_fail("%s", error.text);
	int r = name_files(extract);
	if (r)
		return command_fail("%s", strerror(-r));
	if (mkdir(extract->output, 0777) && errno != EEXIST)
		return command_fail("%s: %s", extract->output, strerror(errno));
	extract->folder = open(extract->output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (extract->folder < 0)
		return command_fail("%s: %s", extract->output, strerror(errno));
	r = extract->manifest ? write_manifest(extract) : 0;
	return r ? r : write_images(extract);
}

int command_extract(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = extract_parse_option,
		.args_doc = "FILE -o DIR",
		.doc = "Write images back to files DIR/CLASS/NAME. Stored JPEGs come back byte for "
		       "byte; pixels become PNG.",
	};
	struct extract extract = {.jobs = command_cpu_count(), .folder = -1};
	struct packimg_error error;

	options_read(options, &argp, argc, argv, &extract);
	command_catch_interrupts();
	int status = packimg_open(extract.path, &extract.dataset, &error)
			     ? command_fail("%s", error.text)
			     : extract_run(&extract);
	packimg_close(extract.dataset);
	if (extract.folder >= 0)
		close(extract.folder);
	free(extract.samples);
	free(extract.paths);
	arena_deinit(&extract.arena);
	selection_deinit(&extract.selection);
	command_die_of_interrupt(extract.done > extract.bad ? "images that were written stay"
							    : COMMAND_NOTHING_WRITTEN);
	return status;
}
