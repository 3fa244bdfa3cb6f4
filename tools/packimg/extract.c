/*
 * packimg extract: writes images back to files. A sample's file is DIR/CLASS/NAME, where NAME is
 * the part of its source name below the class folder. Its further images are next to it, with the
 * name of their value before the extension. A stored JPEG is written byte for byte, pixels as PNG
 * or .npy. The main thread chooses all names first, so that two samples with the same name get two
 * files, independently of the number of threads.
 */
#include "format/base/schema.h"
#include "format/base/system/io.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/file_name.h"
#include "tools/packimg/common/name_table.h"
#include "tools/packimg/common/parallel_map.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/remote.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/extract_manifest.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/image/raster_file.h"
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
	struct remote *remote;
	int folder; /* fd of DIR */
	uint64_t *samples;
	const struct schema *schema;
	uint32_t files; /* per sample: 1 + the number of further images */
	/*
	 * paths relative to DIR, `files` for each sample; NULL for an image that the sample lacks
	 * or whose record is damaged
	 */
	const char **paths;
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
	SELECTION_WHERE(AT(selection)),
	{"manifest", 'm', NULL,
	 "also write DIR/manifest.csv with path, label, class, further images and fields",
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

/* Returns the schema's value that is in file number `file` of a sample. */
static const struct schema_value *value_of_file(const struct extract *extract, uint32_t file)
{
	int index = file == 0 ? schema_stored(extract->schema, SCHEMA_IN_INDEX, 0)
			      : schema_stored(extract->schema, SCHEMA_IN_IMAGES, file - 1);

	return &extract->schema->values[index];
}

/* Looks up file number `file` of a sample; errors as packimg_image(). */
static int find_file(const struct extract *extract, uint64_t index, uint32_t file,
		     struct packimg_sample *ret_image)
{
	return file == 0 ? packimg_sample(extract->dataset, index, ret_image)
			 : packimg_image(extract->dataset, index, file - 1, ret_image);
}

static const char *ending_of(const struct schema_value *value, const struct packimg_sample *image)
{
	if (image->codec == PACKIMG_CODEC_JPEG)
		return ".jpg";
	if (schema_is_rgb(value))
		return ".png";
	return raster_file_ending((enum packimg_element)value->element, image->channels);
}

/* Sets the extension of the output format, but keeps the extension of a JPEG. */
static int fit_extension(const struct extract *extract, struct buffer *path,
			 const struct packimg_sample *sample)
{
	const char *wanted = ending_of(value_of_file(extract, 0), sample);

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
static int append_number(struct buffer *path, const struct packimg_sample *sample,
			 const char *ending)
{
	char number[40];
	int n = snprintf(number, sizeof(number), "%s%08" PRIu64 "%s", path->size ? "/" : "",
			 sample->index, ending);

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
	return path->size > before ? fit_extension(extract, path, sample) : 0;
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
	return path->size > before
		       ? 0
		       : append_number(path, sample, ending_of(value_of_file(extract, 0), sample));
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
	return append_number(path, sample, strrchr(tail, '.')) || buffer_append(path, "", 1)
		       ? -ENOMEM
		       : 0;
}

/* Enters a path into the table, changed if another file has it. */
static int enter_path(struct name_table *names, const struct packimg_sample *sample,
		      struct buffer *path, const char **ret_path)
{
	uint32_t number;
	bool added;

	int r = buffer_append(path, "", 1);
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

/* Builds the path of a further image: NAME.VALUE.EXTENSION next to the sample's file. */
static int make_image_path(const struct extract *extract, const char *main_path, uint32_t file,
			   const struct packimg_sample *image, struct buffer *path)
{
	const struct schema_value *value = value_of_file(extract, file);
	const char *ending = ending_of(value, image), *slash = strrchr(main_path, '/');
	size_t stem = (size_t)(strrchr(main_path, '.') - main_path);

	path->size = 0;
	if (buffer_append(path, main_path, stem) || buffer_append(path, ".", 1) ||
	    file_name_append(path, value->name, strlen(value->name)) ||
	    buffer_append(path, ending, strlen(ending)))
		return -ENOMEM;
	if (path_fits(path, 0))
		return 0;
	path->size = slash ? (size_t)(slash - main_path) : 0;
	return append_number(path, image, ending);
}

/* Determines the unique paths of a sample's files. */
static int name_sample(struct extract *extract, const struct packimg_sample *sample,
		       struct name_table *names, struct buffer *path, const char **ret_paths)
{
	int r = make_path(extract, sample, path);

	r = r ?: enter_path(names, sample, path, &ret_paths[0]);
	for (uint32_t file = 1; !r && file < extract->files; file++) {
		struct packimg_sample image;

		if (find_file(extract, sample->index, file, &image))
			continue;
		r = make_image_path(extract, ret_paths[0], file, &image, path);
		r = r ?: enter_path(names, &image, path, &ret_paths[file]);
	}
	return r;
}

static int name_files(struct extract *extract)
{
	struct buffer path = {0};
	struct name_table names;
	int r = 0;

	name_table_init(&names, &extract->arena);
	extract->paths = calloc(extract->count + 1, extract->files * sizeof(*extract->paths));
	if (!extract->paths)
		return -ENOMEM;
	for (uint64_t i = 0; !r && i < extract->count; i++) {
		struct packimg_sample sample;

		if (!packimg_sample(extract->dataset, extract->samples[i], &sample))
			r = name_sample(extract, &sample, &names, &path,
					&extract->paths[i * extract->files]);
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

static int write_raster(const struct extract *extract, struct image_reader *reader,
			struct buffer *file, const struct packimg_sample *image, const char *path,
			struct packimg_error *error)
{
	struct packimg_region region = {.width = image->width, .height = image->height};
	struct packimg_raster raster;

	int r = packimg_decode_raster(reader->decoder, image, &region, &raster, error);
	if (!r)
		r = raster_file_write(&raster, file, error);
	return r ? r : write_file(extract, path, file->data, file->size, error);
}

struct verdict {
	int status;
	uint64_t size;
	struct packimg_error error;
};

/* Writes file number `file` of a sample. */
static int extract_file(const struct extract *extract, struct image_reader *reader,
			struct buffer *buffer, uint64_t number, uint32_t file,
			struct verdict *verdict)
{
	const char *path = extract->paths[number * extract->files + file];
	struct packimg_sample image;

	int r = find_file(extract, extract->samples[number], file, &image);
	if (r == -ENODATA)
		return 0;
	if (r || !path)
		return packimg_fail(&verdict->error, -EBADMSG, "its %s record is damaged",
				    file == 0 ? "index" : value_of_file(extract, file)->name);
	verdict->size += image.data_size;
	if (packimg_sample_check(&image))
		return packimg_fail(&verdict->error, -EBADMSG,
				    "its %sbytes do not match their checksum",
				    file == 0 ? "" : "further image's ");
	if (image.codec == PACKIMG_CODEC_JPEG)
		return write_file(extract, path, image.data, image.data_size, &verdict->error);
	return schema_is_rgb(value_of_file(extract, file))
		       ? write_png(extract, reader, buffer, &image, path, &verdict->error)
		       : write_raster(extract, reader, buffer, &image, path, &verdict->error);
}

static int extract_sample(const struct extract *extract, struct image_reader *reader,
			  struct buffer *buffer, uint64_t number, struct verdict *verdict)
{
	int r = 0;

	for (uint32_t file = 0; !r && file < extract->files; file++)
		r = extract_file(extract, reader, buffer, number, file, verdict);
	return r;
}

static void extract_run_sample(void *context, void *worker, struct work_block *block,
			       uint32_t number)
{
	struct verdict *verdict = (struct verdict *)block->results + number;

	*verdict = (struct verdict){0};
	verdict->status =
		extract_sample(context, worker, &block->bytes, block->first + number, verdict);
}

static int write_manifest(struct extract *extract)
{
	struct extract_manifest manifest = {
		.dataset = extract->dataset,
		.samples = extract->samples,
		.count = extract->count,
		.files = extract->files,
		.paths = extract->paths,
	};
	struct packimg_error error;
	int fd = create_file(extract, "manifest.csv", &error);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (!file)
		return command_fail("%s/manifest.csv: %s", extract->output,
				    fd < 0 ? error.text : strerror(errno));
	extract_manifest_write(&manifest, file);
	extract->damaged += manifest.damaged;
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

	extract->schema = packimg_schema(extract->dataset);
	extract->files = 1 + packimg_image_count(extract->dataset);
	if (selection_resolve(&extract->selection, extract->dataset, &extract->samples,
			      &extract->count, &error))
		return command_fail("%s", error.text);
	int skipped = selection_report(&extract->selection);
	if (remote_fetch_samples(extract->remote, extract->samples, extract->count, &error))
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
	r = r ? r : write_images(extract);
	return r ? r : skipped;
}

int command_extract(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = extract_parse_option,
		.args_doc = "FILE -o DIR",
		.doc = "Write images back to files DIR/CLASS/NAME. Stored JPEGs come back byte for "
		       "byte; pixels become PNG. Masks and other further images are written next "
		       "to their "
		       "sample as NAME.VALUE.png, or .npy if PNG cannot hold them.",
	};
	struct extract extract = {.jobs = command_cpu_count(), .folder = -1};
	struct packimg_error error;

	options_read(options, &argp, argc, argv, &extract);
	command_catch_interrupts();
	int status =
		remote_open(extract.path, extract.quiet, &extract.dataset, &extract.remote, &error)
			? command_fail("%s", error.text)
			: extract_run(&extract);
	remote_close(extract.remote, extract.dataset);
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
