/*
 * packimg index: adds scan indexes to the JPEGs of an existing dataset. Threads decode; the main
 * thread writes in file order.
 */
#include "format/base/system/clock.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/parallel_map.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/image/unindexed.h"
#include "tools/packimg/selection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	BYTES_IN_FLIGHT_MAX = 64 << 20, /* maximum bytes of indexes that wait for the writer */
};

struct index {
	const char *path;
	unsigned jobs;
	bool rebuild, json, quiet;
	struct packimg *dataset;
	struct packimg_rewriter *rewriter;
	const uint64_t *order;
	uint32_t files; /* per sample: 1 + the number of further images */
	struct progress progress;
	struct packimg_error *error;
	/* Results. */
	uint64_t jpegs, kept, made, damaged;
	/* total bytes of the JPEGs that got an index, and of their indexes */
	uint64_t jpeg_bytes, made_bytes;
	uint64_t bytes_before, bytes_after;
	struct unindexed_counts unindexed;
};

#define AT(member) offsetof(struct index, member)

static const struct options_row options[] = {
	{"rebuild", 'r', NULL, "also rebuild existing indexes", OPTIONS_FLAG, AT(rebuild)},
	{"jobs", 'j', "N", "worker threads (default: all CPUs); never changes the result",
	 OPTIONS_UNSIGNED, AT(jobs), 1, COMMAND_JOBS_MAX, .refusal = COMMAND_NO_JOBS},
	{"json", 'J', NULL, "print the summary as JSON", OPTIONS_FLAG, AT(json)},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{.argument = "FILE", .kind = OPTIONS_ARGUMENT, .at = AT(path)},
	{0},
};

enum action {
	ACTION_KEEP, /* leave the side data unchanged */
	ACTION_REPLACE,
	ACTION_DROP, /* remove the existing index, because the JPEG cannot have a valid one */
};

/*
 * Result of one image. A block has `files` results for each sample: its image, then its further
 * images. The bytes of the index are in the block.
 */
struct outcome {
	enum action action;
	int status; /* 0, -EBADMSG if damaged, or another error, which ends the command */
	bool jpeg, had;
	enum unindexed unindexed;
	size_t offset, size;
	uint32_t data_size;
};

/* Reads the headers. Returns false if they are unreadable or do not match the index record. */
static bool probe_sample(const struct packimg_sample *sample, struct packimg_jpeg_info *ret_info)
{
	bool sideways = sample->orientation >= 5;

	return !packimg_jpeg_probe(sample->data, sample->data_size, ret_info, NULL) &&
	       ret_info->width == (sideways ? sample->height : sample->width) &&
	       ret_info->height == (sideways ? sample->width : sample->height) &&
	       ret_info->components == sample->channels;
}

/* Looks up image number `file` of a sample. */
static int find_file(const struct index *index, uint64_t number, uint32_t file,
		     struct packimg_sample *ret_image)
{
	return file == 0 ? packimg_sample(index->dataset, number, ret_image)
			 : packimg_image(index->dataset, number, file - 1, ret_image);
}

static void index_file(const struct index *index, const struct image_reader *reader,
		       struct work_block *block, uint64_t number, uint32_t file,
		       struct outcome *outcome)
{
	struct packimg_sample sample;
	struct packimg_jpeg_info info;
	const uint8_t *side;
	size_t size;

	*outcome = (struct outcome){0};
	outcome->status = find_file(index, number, file, &sample);
	if (outcome->status == -ENODATA)
		outcome->status = 0;
	else if (!outcome->status)
		outcome->jpeg = sample.codec == PACKIMG_CODEC_JPEG;
	if (outcome->status || !outcome->jpeg)
		return;
	outcome->data_size = sample.data_size;
	outcome->had = packimg_sample_indexed(&sample);
	if (outcome->had && !index->rebuild)
		return;
	outcome->status = packimg_sample_check(&sample);
	outcome->unindexed = UNINDEXED_DAMAGED;
	if (outcome->status)
		return;
	outcome->action = outcome->had ? ACTION_DROP : ACTION_KEEP;
	if (!probe_sample(&sample, &info))
		return;
	int r = packimg_index_jpeg(reader->decoder, sample.data, sample.data_size, &info, &side,
				   &size);
	if (r == -ENOTSUP)
		outcome->unindexed = unindexed_reason(&info);
	if (r) {
		outcome->status = r == -ENOTSUP || r == -EBADMSG ? 0 : r;
		return;
	}
	outcome->action = ACTION_REPLACE;
	outcome->unindexed = UNINDEXED_NOT;
	outcome->offset = block->bytes.size;
	outcome->size = size;
	if (buffer_append(&block->bytes, side, size))
		outcome->status = -ENOMEM;
}

static void index_sample(void *context, void *worker, struct work_block *block, uint32_t number)
{
	const struct index *index = context;
	struct outcome *outcomes = (struct outcome *)block->results + number * index->files;

	for (uint32_t file = 0; file < index->files; file++)
		index_file(index, worker, block, index->order[block->first + number], file,
			   &outcomes[file]);
}

static void note_damage(struct index *index, uint64_t number)
{
	const char *source = NULL;
	size_t size = 0;

	packimg_source(index->dataset, number, &source, &size);
	command_fail("sample %" PRIu64 " (%.*s): its bytes do not match their checksum; it stays "
		     "unchanged, without a new index",
		     number, (int)size, source ? source : "");
	index->damaged++;
}

static void count_outcome(struct index *index, const struct outcome *outcome)
{
	index->jpegs += outcome->jpeg;
	index->unindexed.counts[outcome->unindexed]++;
	if (outcome->action == ACTION_REPLACE) {
		index->made++;
		index->made_bytes += outcome->size;
		index->jpeg_bytes += outcome->data_size;
	} else if (outcome->jpeg && outcome->unindexed == UNINDEXED_NOT) {
		index->kept++;
	}
}

/* Returns the index to write, as packimg_rewriter_put() takes it. */
static const uint8_t *index_bytes(const struct work_block *block, const struct outcome *outcome)
{
	if (outcome->action == ACTION_REPLACE)
		return block->bytes.data + outcome->offset;
	return outcome->action == ACTION_DROP ? (const uint8_t *)"" : NULL;
}

static int index_take_file(struct index *index, const struct work_block *block, uint64_t number,
			   uint32_t file, const struct outcome *outcome)
{
	if (outcome->status == -EBADMSG) {
		progress_clear(&index->progress);
		note_damage(index, number);
	} else if (outcome->status) {
		return packimg_fail(index->error, outcome->status, "sample %" PRIu64 ": %s", number,
				    strerror(-outcome->status));
	}
	count_outcome(index, outcome);
	if (file == 0)
		return 0;
	return packimg_rewriter_image(index->rewriter, file - 1, index_bytes(block, outcome),
				      outcome->size, index->error);
}

static int index_take_sample(void *context, const struct work_block *block, uint32_t i)
{
	struct index *index = context;
	const struct outcome *outcomes = (const struct outcome *)block->results + i * index->files;
	int r = 0;

	for (uint32_t file = 0; !r && file < index->files; file++)
		r = index_take_file(index, block, index->order[block->first + i], file,
				    &outcomes[file]);
	if (r)
		return r;
	r = packimg_rewriter_put(index->rewriter, index_bytes(block, outcomes), outcomes->size,
				 index->error);
	index->bytes_after = packimg_rewriter_bytes(index->rewriter);
	return r;
}

static int index_take_all(struct index *index)
{
	const struct parallel_map_options setup = {
		.jobs = index->jobs,
		.total = packimg_count(index->dataset),
		.block = 16,
		.result_size = index->files * sizeof(struct outcome),
		.bytes_max = BYTES_IN_FLIGHT_MAX,
		.context = index,
		.worker_size = sizeof(struct image_reader),
		.worker_init = image_worker_init,
		.worker_deinit = image_worker_deinit,
		.run = index_sample,
		.take = index_take_sample,
		.stopped = command_interrupted,
		.progress = &index->progress,
		.bytes = &index->bytes_after,
	};
	int fault;

	progress_init(&index->progress, "indexing", setup.total, index->quiet);
	int r = parallel_map(&setup, &fault);
	return fault ? packimg_fail(index->error, fault, "starting threads: %s", strerror(-fault))
		     : r;
}

static int refuse_indexed(const struct index *index, uint64_t indexed, uint64_t jpegs,
			  struct packimg_error *error)
{
	if (!jpegs)
		return packimg_fail(error, -EEXIST,
				    "%s: contains no JPEGs, and other codecs need no index",
				    index->path);
	if (!indexed)
		return packimg_fail(error, -EEXIST,
				    "%s: none of its %" PRIu64
				    " JPEGs can have an index; convert the images with "
				    "--progressive transcode, or encode them again with --jpeg",
				    index->path, jpegs);
	return packimg_fail(error, -EEXIST,
			    "%s: already indexed: %" PRIu64 " of %" PRIu64
			    " JPEGs%s; --rebuild rebuilds all indexes",
			    index->path, indexed, jpegs,
			    indexed < jpegs ? ", and the others cannot have one" : "");
}

/* Counts an image. Returns true if it is to get an index. */
static bool probe_file(const struct index *index, const struct packimg_sample *image,
		       uint64_t *jpegs, uint64_t *indexed)
{
	struct packimg_jpeg_info info;

	if (image->codec != PACKIMG_CODEC_JPEG)
		return false;
	++*jpegs;
	if (!packimg_sample_indexed(image))
		return probe_sample(image, &info) && unindexed_reason(&info) == UNINDEXED_OTHER;
	++*indexed;
	return index->rebuild;
}

/* Determines from the headers whether there is anything to do. */
static int index_probe_first(struct index *index, struct packimg_error *error)
{
	uint64_t jpegs = 0, indexed = 0;

	for (uint64_t i = 0; i < packimg_count(index->dataset); i++)
		for (uint32_t file = 0; file < index->files; file++) {
			struct packimg_sample image;

			if (!find_file(index, i, file, &image) &&
			    probe_file(index, &image, &jpegs, &indexed))
				return 0;
		}
	return refuse_indexed(index, indexed, jpegs, error);
}

/* The caller frees the rewriter. */
static int rewrite_samples(struct index *index, struct packimg_error *error)
{
	int r = index_probe_first(index, error);
	if (r)
		return r;
	r = packimg_rewriter_new(index->dataset, &index->rewriter, error);
	if (r)
		return r;
	index->order = packimg_rewriter_order(index->rewriter);
	r = index_take_all(index);
	if (r)
		return r;
	if (!index->made && !index->rebuild) {
		r = refuse_indexed(index, index->kept, index->jpegs, error);
		if (r)
			return r;
	}
	r = packimg_rewriter_finish(index->rewriter, error);
	if (r)
		return r;
	index->bytes_after = packimg_rewriter_bytes(index->rewriter);
	return 0;
}

static int write_index(struct index *index, struct packimg_error *error)
{
	int r = rewrite_samples(index, error);

	packimg_rewriter_free(index->rewriter);
	return r;
}

static int index_report(const struct index *index, double seconds)
{
	double percent = index->jpeg_bytes
				 ? 100.0 * (double)index->made_bytes / (double)index->jpeg_bytes
				 : 0;

	if (index->json) {
		json_t *json =
			json_pack("{sIsIsIsIsIsIsIsf}", "jpegs", (json_int_t)index->jpegs,
				  "indexed", (json_int_t)(index->made + index->kept), "made",
				  (json_int_t)index->made, "damaged", (json_int_t)index->damaged,
				  "index_bytes", (json_int_t)index->made_bytes, "bytes_before",
				  (json_int_t)index->bytes_before, "bytes",
				  (json_int_t)index->bytes_after, "seconds", seconds);

		json_put_text(json, "path", index->path);
		json_object_set_new(json, "unindexed", unindexed_json(&index->unindexed));
		return command_print_json(json);
	}
	printable_line(stdout,
		       "%s: %s of %s JPEGs now have an index, %s of them new (%s, %.2f %% of the "
		       "JPEGs' bytes), %s",
		       index->path, text_count(TEXT, index->made + index->kept),
		       text_count(TEXT, index->jpegs), text_count(TEXT, index->made),
		       text_bytes(TEXT, index->made_bytes), percent, text_duration(TEXT, seconds));
	unindexed_print(&index->unindexed);
	if (index->damaged)
		printf("  damaged   %s sample%s left as stored; packimg verify checks all of "
		       "them\n",
		       text_count(TEXT, index->damaged), text_plural(index->damaged));
	return 0;
}

int command_index(int argc, char **argv)
{
	static const struct argp argp = {
		.args_doc = "FILE",
		.doc = "Add the index that lets loaderd start at any row of a JPEG.\vWrites a new "
		       "file next to FILE and then replaces FILE: images, labels, names and fields "
		       "keep their bytes. Exit status: 0; 1 when samples are damaged; 2 when "
		       "nothing was changed.",
	};
	struct packimg_error error = {{0}};
	struct index index = {.jobs = command_cpu_count(), .error = &error};

	options_read(options, &argp, argc, argv, &index);
	command_catch_interrupts();
	if (packimg_open(index.path, &index.dataset, &error))
		return command_fail("%s", error.text);
	index.files = 1 + packimg_image_count(index.dataset);
	double start_s = clock_s(CLOCK_MONOTONIC);
	index.bytes_before = dataset_bytes(index.dataset);
	int r = write_index(&index, &error);
	packimg_close(index.dataset);
	if (r == -EINTR)
		command_die_of_interrupt(COMMAND_NOTHING_WRITTEN);
	if (r)
		return command_fail("%s", error.text[0] ? error.text : strerror(-r));
	r = index_report(&index, clock_s(CLOCK_MONOTONIC) - start_s);
	return r ? COMMAND_FAILED : index.damaged ? COMMAND_SKIPPED : COMMAND_OK;
}
