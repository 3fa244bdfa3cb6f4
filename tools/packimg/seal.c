/* packimg seal: writes the set file of a set of shards. */
#include "tools/packimg/common/seal.h"
#include "format/base/shard_set.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "format/base/text/text.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/remote.h"
#include "tools/packimg/common/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seal {
	const char *path;
	bool quiet;
	struct packimg *dataset;
	struct remote *remote;
};

#define AT(member) offsetof(struct seal, member)

static const struct options_row options[] = {
	{"quiet", 'q', NULL, "no progress", OPTIONS_FLAG, AT(quiet)},
	{.argument = "FILE", .kind = OPTIONS_ARGUMENT, .at = AT(path)},
	{0},
};

static int fail_single(const char *path, struct packimg_error *error)
{
	return packimg_fail(error, -EINVAL,
			    "%s is not a set of shards (NAME-00000-of-00100.pimg), and a single "
			    "file needs no set file",
			    path);
}

/* Opens all shards, so that nothing is sealed that is not a set. Sets *ret_written, owned. */
static int seal_remote(struct seal *seal, char **ret_written, struct packimg_error *error)
{
	char base[SHARD_SET_PATH_MAX];

	if (strncasecmp(seal->path, "s3://", 5) != 0)
		return packimg_fail(error, -ENOTSUP,
				    "%.300s: only s3:// addresses can be written; seal the set "
				    "where it was made, and copy NAME.pimg.set with its shards",
				    seal->path);
	if (shard_set_file_base(seal->path, base) == 0)
		return packimg_fail(error, -EINVAL,
				    "%.300s: give the address of a shard, which tells how many "
				    "there are",
				    seal->path);
	int r = remote_connect(seal->path, true, seal->quiet, &seal->remote, error);
	if (!r && !remote_shards(seal->remote))
		r = fail_single(seal->path, error);
	if (!r)
		r = remote_receive(seal->remote, NULL, &seal->dataset, error);
	return r ? r : remote_seal(seal->remote, ret_written, error);
}

static int seal_local(struct seal *seal, char **ret_written, struct packimg_error *error)
{
	char file[SHARD_SET_PATH_MAX], path[SHARD_SET_PATH_MAX];
	struct shard_name name;
	int r = packimg_open(seal->path, &seal->dataset, error);

	if (!r)
		r = shard_set_resolve(seal->path, file, error->text);
	if (!r && shard_name_parse(file, &name))
		r = fail_single(file, error);
	if (!r)
		r = seal_write(name.base, name.shard_count, error);
	if (r)
		return r;
	*ret_written = shard_set_file_path(name.base, path) ? NULL : strdup(path);
	return *ret_written ? 0 : packimg_fail(error, -ENOMEM, "out of memory");
}

static int seal_run(struct seal *seal)
{
	struct packimg_error error = {{0}};
	char *written = NULL;
	int r = text_is_address(seal->path) ? seal_remote(seal, &written, &error)
					    : seal_local(seal, &written, &error);

	if (r && command_interrupted())
		return COMMAND_FAILED;
	if (r)
		return command_fail("%s", error.text);
	printable_put(stdout, written, strlen(written));
	printf(": the headers of %s shards\n",
	       text_count(TEXT, packimg_shard_count(seal->dataset)));
	free(written);
	return COMMAND_OK;
}

int command_seal(int argc, char **argv)
{
	static const struct argp argp = {
		.args_doc = "FILE",
		.doc = "Write NAME.pimg.set beside the shards of a set, which are files or objects "
		       "(s3://BUCKET/NAME-00000-of-00100.pimg). It has all shards' headers, so "
		       "that a set in a store opens without a request for each. Write it again "
		       "when shards have changed. Exit status: 0, or 2 when nothing was written.",
	};
	struct seal seal = {0};

	options_read(options, &argp, argc, argv, &seal);
	command_catch_interrupts();
	int status = seal_run(&seal);
	remote_close(seal.remote, seal.dataset);
	command_die_of_interrupt(COMMAND_NOTHING_WRITTEN);
	return status;
}
