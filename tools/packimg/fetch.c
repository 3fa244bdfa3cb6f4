/* packimg fetch: copies a dataset from a store into files. */
#include "format/base/shard_set.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "format/base/text/text.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/remote.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/selection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fetch {
	const char *address, *output;
	char *path; /* of the file to write, or of the set, without the shard's number */
	bool force, quiet;
	struct packimg_receiver *receiver;
	struct packimg *dataset;
	struct remote *remote;
};

#define AT(member) offsetof(struct fetch, member)

static const struct options_row options[] = {
	{"output", 'o', "FILE",
	 "the file to write; of a set, its name without the shard's number (default: the object's "
	 "name, in the current folder)",
	 OPTIONS_TEXT, AT(output)},
	{"force", 'f', NULL, "replace an existing dataset", OPTIONS_FLAG, AT(force)},
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{.argument = "URL", .kind = OPTIONS_ARGUMENT, .at = AT(address)},
	{0},
};

/* Sets the path: the given one, or the object's name without a shard's number and a query. */
static int name_output(struct fetch *fetch)
{
	size_t length = strcspn(fetch->address, "?"), first = length;
	char base[SHARD_SET_PATH_MAX];

	while (first && fetch->address[first - 1] != '/')
		first--;
	char *name = strndup(fetch->address + first, length - first);
	if (fetch->output)
		fetch->path = strdup(fetch->output);
	else if (name && (shard_set_base(name, base) == 0 || shard_set_file_base(name, base) == 0))
		fetch->path = asprintf(&fetch->path, "%s.pimg", base) < 0 ? NULL : fetch->path;
	else
		fetch->path = name ? strdup(name) : NULL;
	free(name);
	if (!fetch->path)
		return command_fail("out of memory");
	if (fetch->output || text_ends_with(fetch->path, ".pimg"))
		return 0;
	return command_fail("the name of the object, \"%s\", does not end in .pimg; give the file "
			    "to write with -o",
			    fetch->path);
}

/* Compares everything with its checksum, so that nothing damaged gets the name. */
static int check_dataset(const struct fetch *fetch, struct packimg_error *error)
{
	int r = packimg_check(fetch->dataset, error);
	struct packimg_sample image;

	for (uint64_t i = 0; !r && i < packimg_count(fetch->dataset); i++) {
		if (command_interrupted())
			return -EINTR;
		r = packimg_sample(fetch->dataset, i, &image) || packimg_sample_check(&image);
		for (uint32_t number = 0; !r && number < packimg_image_count(fetch->dataset);
		     number++)
			r = !packimg_image(fetch->dataset, i, number, &image) &&
			    packimg_sample_check(&image);
		if (r)
			packimg_say(error,
				    "sample %" PRIu64 " does not match its checksum: the object is "
				    "damaged, or was when it was stored",
				    i);
	}
	return r;
}

static int fetch_dataset(struct fetch *fetch, struct packimg_error *error)
{
	int r = remote_connect(fetch->address, false, fetch->quiet, &fetch->remote, error);

	if (!r)
		r = packimg_receiver_new(fetch->path, remote_shards(fetch->remote),
					 &fetch->receiver, error);
	if (!r)
		r = remote_receive(fetch->remote, fetch->receiver, &fetch->dataset, error);
	if (!r)
		r = remote_fetch_all(fetch->remote, error);
	if (!r)
		r = check_dataset(fetch, error);
	return r ? r : packimg_receiver_finish(fetch->receiver, error);
}

static void print_outcome(const struct fetch *fetch, double seconds)
{
	struct remote_counters counters = remote_counters(fetch->remote);

	printable_put(stdout, fetch->path, strlen(fetch->path));
	printf(": %s samples, %s in %s (%.1f MB/s, %s requests, %s repeated); every checksum is "
	       "right\n",
	       text_count(TEXT, packimg_count(fetch->dataset)), text_bytes(TEXT, counters.bytes),
	       text_duration(TEXT, seconds), (double)counters.bytes / seconds / 1e6,
	       text_count(TEXT, counters.requests), text_count(TEXT, counters.retries));
}

static int fetch_run(struct fetch *fetch)
{
	struct packimg_error error = {{0}};
	struct progress timer;

	if (!text_is_address(fetch->address))
		return command_fail("%s is not an address such as s3://BUCKET/FILE.pimg or "
				    "https://HOST/FILE.pimg; cp copies files",
				    fetch->address);
	if (name_output(fetch))
		return COMMAND_FAILED;
	if (command_check_output(fetch->path, fetch->force, &error))
		return command_fail("%s", error.text);
	progress_init(&timer, "", 0, true);
	int r = fetch_dataset(fetch, &error);
	if (r && command_interrupted())
		return COMMAND_FAILED;
	if (r)
		return command_fail("%s", error.text);
	print_outcome(fetch, progress_elapsed_s(&timer));
	return COMMAND_OK;
}

int command_fetch(int argc, char **argv)
{
	static const struct argp argp = {
		.args_doc = "URL",
		.doc = "Copy a dataset from a store (s3://BUCKET/KEY, https://... or http://...) "
		       "into a file, or all shards of a set into files. They appear when every "
		       "checksum is right.",
	};
	struct fetch fetch = {0};

	options_read(options, &argp, argc, argv, &fetch);
	command_catch_interrupts();
	int status = fetch_run(&fetch);
	remote_close(fetch.remote, fetch.dataset);
	packimg_receiver_free(fetch.receiver);
	free(fetch.path);
	command_die_of_interrupt(COMMAND_NOTHING_WRITTEN);
	return status;
}
