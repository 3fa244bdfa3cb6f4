/* packimg verify: every checksum, every index record, every image. */
#include "format/base/options.h"
#include "format/base/printable.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/common/workers.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/selection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verify_options {
	const char *path;
	unsigned jobs;
	bool json, quiet, checksums_only;
};

#define AT(member) offsetof(struct verify_options, member)

static const struct options_row options[] = {
	{"jobs", 'j', "N", "threads (default: all CPUs)", OPTIONS_UNSIGNED, AT(jobs), 1,
	 COMMAND_JOBS_MAX, .refusal = COMMAND_NO_JOBS},
	{"checksums", 'C', NULL, "do not decode the images", OPTIONS_FLAG, AT(checksums_only)},
	{"json", 'J', NULL, "print the result as JSON", OPTIONS_FLAG, AT(json)},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{.argument = "FILE", .kind = OPTIONS_ARGUMENT, .at = AT(path)},
	{0},
};

struct verify {
	const struct verify_options *options;
	const struct packimg *dataset;
};

struct verdict {
	int status;
	uint32_t size; /* stored bytes */
	struct packimg_error error;
};

static int worker_new(void *context, void **ret_worker)
{
	struct packimg_decoder *decoder;
	int r = image_decoder_new(&decoder);

	if (!r)
		*ret_worker = decoder;
	return r;
}

static void worker_free(void *worker)
{
	packimg_decoder_free(worker);
}

/* A wrong index need not show in the pixels: a decoder may fall back to doing without. */
static int verify_index(const struct verify *verify, struct packimg_decoder *decoder,
			const struct packimg_sample *sample, struct verdict *verdict)
{
	struct packimg_error cause = {{0}};
	int r = packimg_index_check(decoder, sample, &cause);

	if (r == 0 || r == -ENODATA)
		return 0;
	return packimg_fail(&verdict->error, r,
			    "%.300s; packimg index --rebuild %.150s makes it anew", cause.text,
			    verify->options->path);
}

static int verify_sample(const struct verify *verify, struct packimg_decoder *decoder,
			 uint64_t index, struct verdict *verdict)
{
	struct packimg_sample sample;
	struct packimg_pixels pixels;
	struct packimg_region region = {0};
	int r;

	verdict->error.text[0] = 0;
	r = packimg_sample(verify->dataset, index, &sample);
	if (r)
		return packimg_fail(&verdict->error, r, "its index record is damaged");
	verdict->size = sample.data_size + sample.side_size;
	r = packimg_sample_check(&sample);
	if (r)
		return packimg_fail(&verdict->error, r, "its bytes do not fit their checksum");
	if (verify->options->checksums_only)
		return 0;
	region.width = sample.width;
	region.height = sample.height;
	r = packimg_decode(decoder, &sample, &region, 0, 0, &pixels, &verdict->error);
	return r ? r : verify_index(verify, decoder, &sample, verdict);
}

static void run_block(void *context, void *worker, struct work_block *block)
{
	const struct verify *verify = context;
	struct verdict *verdicts = block->results;

	for (uint32_t i = 0; i < block->count; i++) {
		verdicts[i].size = 0;
		verdicts[i].status = verify_sample(verify, worker, block->first + i, &verdicts[i]);
	}
}

static void report_bad(const struct verify *verify, uint64_t index, const char *reason, json_t *bad)
{
	const char *source = NULL;
	size_t source_size = 0;

	packimg_source(verify->dataset, index, &source, &source_size);
	if (verify->options->json) {
		json_t *entry = json_object();

		json_object_set_new(entry, "index", json_integer((json_int_t)index));
		json_object_set_new(entry, "source",
				    command_json_text(source ? source : "", source_size));
		json_object_set_new(entry, "reason", command_json_text(reason, strlen(reason)));
		json_array_append_new(bad, entry);
	} else {
		printable_line(stdout, "sample %" PRIu64 " (%.*s): %s", index, (int)source_size,
			       source ? source : "", reason);
	}
}

/* Number of bad samples, or a negative errno. */
static int64_t verify_samples(const struct verify *verify, struct progress *progress,
			      uint64_t *bytes, json_t *bad)
{
	const struct workers_setup setup = {
		.jobs = verify->options->jobs,
		.total = packimg_count(verify->dataset),
		.block = 8,
		.result_size = sizeof(struct verdict),
		.bytes_max = UINT64_MAX,
		.context = (void *)(uintptr_t)verify,
		.worker_new = worker_new,
		.worker_free = worker_free,
		.run = run_block,
	};
	struct workers *workers;
	struct work_block *block;
	int64_t bad_count = 0;
	uint64_t done = 0;
	int r;

	r = workers_new(&setup, &workers);
	if (r)
		return r;
	while ((r = workers_next(workers, 100, &block)) != WORKERS_END && r >= 0) {
		if (command_interrupted()) {
			r = -EINTR;
			break;
		}
		for (uint32_t i = 0; !r && i < block->count; i++) {
			const struct verdict *verdict = (const struct verdict *)block->results + i;

			*bytes += verdict->size;
			done++;
			if (!verdict->status)
				continue;
			progress_clear(progress);
			report_bad(verify, block->first + i,
				   verdict->error.text[0] ? text_behind_sample(verdict->error.text)
							  : strerror(-verdict->status),
				   bad);
			bad_count++;
		}
		progress_update(progress, done, *bytes);
	}
	workers_free(workers);
	return r < 0 ? r : bad_count;
}

static int verify_dataset(const struct verify *verify)
{
	struct packimg_error fault = {{0}};
	struct text_buffer count, size, duration;
	struct progress progress;
	uint64_t bytes = 0, total = packimg_count(verify->dataset);
	json_t *bad = json_array();
	bool sections_bad = packimg_check(verify->dataset, &fault) != 0;
	int64_t bad_count;

	if (sections_bad && !verify->options->json)
		printable_line(stdout, "%s", fault.text);
	progress_init(&progress, "verifying", total, verify->options->quiet);
	bad_count = verify_samples(verify, &progress, &bytes, bad);
	progress_clear(&progress);
	if (bad_count < 0) {
		json_decref(bad);
		return bad_count == -EINTR ? COMMAND_FAILED
					   : command_fail("%s", strerror((int)-bad_count));
	}
	if (verify->options->json) {
		json_t *json = json_pack("{sIsIsIsf}", "samples", (json_int_t)total, "bad",
					 (json_int_t)bad_count, "bytes", (json_int_t)bytes,
					 "seconds", progress_elapsed_s(&progress));

		json_object_set_new(json, "bad_samples", bad);
		json_object_set_new(json, "structure",
				    sections_bad ? command_json_text(fault.text, strlen(fault.text))
						 : json_string("good"));
		if (command_print_json(json))
			return COMMAND_FAILED;
	} else {
		json_decref(bad);
		printable_put(stdout, verify->options->path, strlen(verify->options->path));
		printf(": %s sample%s, %s, ", text_count(&count, total), text_plural(total),
		       text_bytes(&size, bytes));
		if (bad_count || sections_bad)
			printf("%s damaged%s", text_count(&count, (uint64_t)bad_count),
			       sections_bad ? ", and so is the file's structure" : "");
		else
			printf("all good");
		printf(" (%s, %.0f images/s)\n",
		       text_duration(&duration, progress_elapsed_s(&progress)),
		       (double)total / progress_elapsed_s(&progress));
	}
	return bad_count || sections_bad ? COMMAND_SKIPPED : COMMAND_OK;
}

int command_verify(int argc, char **argv)
{
	static const struct argp argp = {
		.args_doc = "FILE",
		.doc = "Check every checksum, decode every image, and compare every index with its "
		       "scan.\v"
		       "Exit status: 0 when all is good, 1 when something is damaged, 2 when the "
		       "dataset "
		       "does not open.",
	};
	struct verify_options verify_options = {.jobs = command_cpu_count()};
	struct verify verify = {.options = &verify_options};
	struct packimg_error error;
	struct packimg *dataset;
	int status;

	options_read(options, &argp, argc, argv, &verify_options);
	command_catch_interrupts();
	if (packimg_open(verify_options.path, &dataset, &error))
		return command_fail("%s", error.text);
	verify.dataset = dataset;
	status = verify_dataset(&verify);
	packimg_close(dataset);
	command_die_of_interrupt();
	return status;
}
