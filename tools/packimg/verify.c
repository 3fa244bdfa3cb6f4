/* packimg verify: checks every checksum, index record and image. */
#include "format/base/schema.h"
#include "format/base/text/json_text.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "format/base/text/text.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/parallel_map.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/remote.h"
#include "tools/packimg/common/seal.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"
#include "tools/packimg/selection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct verify {
	const char *path;
	unsigned jobs;
	bool json, quiet, checksums_only;
	struct packimg *dataset;
	struct progress progress;
	uint64_t bytes, bad; /* bytes of all samples; number of bad samples */
	json_t *bad_samples;
};

#define AT(member) offsetof(struct verify, member)

static const struct options_row options[] = {
	{"jobs", 'j', "N", "worker threads (default: all CPUs)", OPTIONS_UNSIGNED, AT(jobs), 1,
	 COMMAND_JOBS_MAX, .refusal = COMMAND_NO_JOBS},
	{"checksums", 'C', NULL, "do not decode the images", OPTIONS_FLAG, AT(checksums_only)},
	{"json", 'J', NULL, "print the result as JSON", OPTIONS_FLAG, AT(json)},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{.argument = "FILE", .kind = OPTIONS_ARGUMENT, .at = AT(path)},
	{0},
};

struct verdict {
	int status;
	uint64_t size; /* number of stored bytes */
	struct packimg_error error;
};

/*
 * Checks the index. The pixels may not show a wrong index, because a decoder may fall back to
 * decoding without it.
 */
static int verify_index(const struct verify *verify, struct packimg_decoder *decoder,
			const struct packimg_sample *sample, struct verdict *verdict)
{
	struct packimg_error cause = {{0}};
	int r = packimg_index_check(decoder, sample, &cause);

	if (r == 0 || r == -ENODATA)
		return 0;
	return packimg_fail(&verdict->error, r,
			    "%.300s; packimg index --rebuild %.150s rebuilds it", cause.text,
			    verify->path);
}

/* Decodes an image that is not RGB, and compares it with its value in the schema. */
static int verify_raster(struct packimg_decoder *decoder, const struct packimg_sample *image,
			 const struct schema_value *value, struct verdict *verdict)
{
	struct packimg_region region = {.width = image->width, .height = image->height};
	struct packimg_raster raster;
	int r = packimg_decode_raster(decoder, image, &region, &raster, &verdict->error);

	if (r)
		return r;
	if ((int)raster.element != (int)value->element || raster.channels != image->channels)
		return packimg_fail(&verdict->error, -EBADMSG,
				    "value '%s' is stored as %u channels of another element than "
				    "the schema's",
				    value->name, raster.channels);
	return 0;
}

/* Checks the bytes of an image and decodes it. */
static int verify_image(const struct verify *verify, struct packimg_decoder *decoder,
			const struct packimg_sample *image, const struct schema_value *value,
			struct verdict *verdict)
{
	struct packimg_region region = {.width = image->width, .height = image->height};
	struct packimg_pixels pixels;

	verdict->size += image->data_size + image->side_size;
	if (packimg_sample_check(image))
		return packimg_fail(&verdict->error, -EBADMSG,
				    "its bytes do not match their checksum");
	if (verify->checksums_only)
		return 0;
	if (!schema_is_rgb(value))
		return verify_raster(decoder, image, value, verdict);
	int r = packimg_decode(decoder, image, &region, 0, 0, &pixels, &verdict->error);
	return r ? r : verify_index(verify, decoder, image, verdict);
}

static int verify_further_image(const struct verify *verify, struct packimg_decoder *decoder,
				uint64_t index, uint32_t number, struct verdict *verdict)
{
	const struct schema *schema = packimg_schema(verify->dataset);
	const struct schema_value *value =
		&schema->values[schema_stored(schema, SCHEMA_IN_IMAGES, number)];
	struct packimg_error cause;
	struct packimg_sample image;

	int r = packimg_image(verify->dataset, index, number, &image);
	if (r == -ENODATA)
		return 0;
	if (r)
		return packimg_fail(&verdict->error, r, "value '%s': its record is damaged",
				    value->name);
	r = verify_image(verify, decoder, &image, value, verdict);
	if (!r)
		return 0;
	cause = verdict->error;
	return packimg_fail(&verdict->error, r, "value '%s': %.400s", value->name,
			    text_after_sample(cause.text));
}

static int verify_sample(const struct verify *verify, struct packimg_decoder *decoder,
			 uint64_t index, struct verdict *verdict)
{
	const struct schema *schema = packimg_schema(verify->dataset);
	struct packimg_sample sample;

	*verdict = (struct verdict){0};
	int r = packimg_sample(verify->dataset, index, &sample);
	if (r)
		return packimg_fail(&verdict->error, r, "its index record is damaged");
	r = verify_image(verify, decoder, &sample,
			 &schema->values[schema_stored(schema, SCHEMA_IN_INDEX, 0)], verdict);
	for (uint32_t i = 0; !r && i < packimg_image_count(verify->dataset); i++)
		r = verify_further_image(verify, decoder, index, i, verdict);
	return r;
}

static void verify_run_sample(void *context, void *worker, struct work_block *block,
			      uint32_t number)
{
	struct verdict *verdict = (struct verdict *)block->results + number;
	const struct image_reader *reader = worker;

	verdict->status = verify_sample(context, reader->decoder, block->first + number, verdict);
}

static void report_bad(const struct verify *verify, uint64_t index, const char *reason)
{
	const char *source = NULL;
	size_t source_size = 0;

	packimg_source(verify->dataset, index, &source, &source_size);
	if (verify->json) {
		json_t *entry = json_object();

		json_put_count(entry, "index", index);
		json_object_set_new(entry, "source", json_text(source ? source : "", source_size));
		json_put_sentence(entry, "reason", reason);
		json_array_append_new(verify->bad_samples, entry);
	} else {
		printable_line(stdout, "sample %" PRIu64 " (%.*s): %s", index, (int)source_size,
			       source ? source : "", reason);
	}
}

static int verify_take_sample(void *context, const struct work_block *block, uint32_t number)
{
	const struct verdict *verdict = (const struct verdict *)block->results + number;
	struct verify *verify = context;

	verify->bytes += verdict->size;
	if (!verdict->status)
		return 0;
	progress_clear(&verify->progress);
	report_bad(verify, block->first + number,
		   verdict->error.text[0] ? text_after_sample(verdict->error.text)
					  : strerror(-verdict->status));
	verify->bad++;
	return 0;
}

static int verify_samples(struct verify *verify)
{
	const struct parallel_map_options setup = {
		.jobs = verify->jobs,
		.total = packimg_count(verify->dataset),
		.block = 8,
		.result_size = sizeof(struct verdict),
		.bytes_max = UINT64_MAX,
		.context = verify,
		.worker_size = sizeof(struct image_reader),
		.worker_init = image_worker_init,
		.worker_deinit = image_worker_deinit,
		.run = verify_run_sample,
		.take = verify_take_sample,
		.stopped = command_interrupted,
		.progress = &verify->progress,
		.bytes = &verify->bytes,
	};
	int fault;

	progress_init(&verify->progress, "verifying", setup.total, verify->quiet);
	return parallel_map(&setup, &fault);
}

static int verify_dataset(struct verify *verify)
{
	struct packimg_error fault = {{0}};
	const uint64_t total = packimg_count(verify->dataset);
	bool sections_bad = packimg_check(verify->dataset, &fault) != 0 ||
			    (!text_is_address(verify->path) && seal_compare(verify->path, &fault));

	if (sections_bad && !verify->json)
		printable_line(stdout, "%s", fault.text);
	verify->bad_samples = json_array();
	int r = verify_samples(verify);
	const double seconds = progress_elapsed_s(&verify->progress);
	if (r < 0) {
		json_decref(verify->bad_samples);
		return r == -EINTR ? COMMAND_FAILED : command_fail("%s", strerror(-r));
	}
	if (verify->json) {
		json_t *json = json_pack("{sIsIsIsf}", "samples", (json_int_t)total, "bad",
					 (json_int_t)verify->bad, "bytes",
					 (json_int_t)verify->bytes, "seconds", seconds);

		json_object_set_new(json, "bad_samples", verify->bad_samples);
		json_object_set_new(json, "structure",
				    sections_bad ? json_sentence(fault.text) : json_string("good"));
		if (command_print_json(json))
			return COMMAND_FAILED;
	} else {
		json_decref(verify->bad_samples);
		printable_put(stdout, verify->path, strlen(verify->path));
		printf(": %s sample%s, %s, ", text_count(TEXT, total), text_plural(total),
		       text_bytes(TEXT, verify->bytes));
		if (verify->bad || sections_bad)
			printf("%s damaged%s", text_count(TEXT, verify->bad),
			       sections_bad ? ", and so is the file's structure" : "");
		else
			printf("all good");
		printf(" (%s, %.0f images/s)\n", text_duration(TEXT, seconds),
		       (double)total / seconds);
	}
	return verify->bad || sections_bad ? COMMAND_SKIPPED : COMMAND_OK;
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
	struct verify verify = {.jobs = command_cpu_count()};
	struct packimg_error error;
	struct remote *remote;

	options_read(options, &argp, argc, argv, &verify);
	command_catch_interrupts();
	int status = remote_open(verify.path, verify.quiet, &verify.dataset, &remote, &error);
	if (!status)
		status = remote_fetch_all(remote, &error);
	status = status ? command_fail("%s", error.text) : verify_dataset(&verify);
	remote_close(remote, verify.dataset);
	command_die_of_interrupt(COMMAND_NOTHING_WRITTEN);
	return status;
}
