#include "tools/packimg/common/remote_output.h"
#include "format/base/shard_set.h"
#include "format/base/system/io.h"
#include "format/error.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/seal.h"
#include "tools/packimg/common/text.h"
#include "tools/store/upload.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct remote_output {
	struct store *store;
	char address[STORE_ADDRESS_MAX]; /* with a '/' at its end: of the folder */
	char folder[256], path[STORE_ADDRESS_MAX + 256];
	bool force;
	struct progress progress;
	uint64_t sent; /* bytes of the files before this one */
	struct dirent **names;
	int count;
	char set_name[NAME_MAX + 1]; /* of the set file; "" for a single file */
};

static void on_bytes(void *context, uint64_t bytes)
{
	struct remote_output *output = context;

	progress_update(&output->progress, 0, output->sent + bytes);
}

/* Whether the user may write this object: it does not exist, or may be replaced. */
static int check_absent(struct remote_output *output, struct store_object *object,
			struct packimg_error *error)
{
	const char *address = object->address.shown;
	struct packimg_error cause;

	if (output->force)
		return 0;
	int r = store_exists(output->store, object, &cause);
	if (r == -EACCES)
		return packimg_fail(error, r,
				    "%.400s; so whether it exists is unknown: --force writes it in "
				    "any case",
				    cause.text);
	if (r < 0)
		return packimg_fail(error, r, "%s", cause.text);
	return r ? packimg_fail(error, -EEXIST, "%.400s exists; --force replaces it", address) : 0;
}

static int make_folder(struct remote_output *output, const char *name, struct packimg_error *error)
{
	snprintf(output->folder, sizeof(output->folder), "%.200s/packimg-XXXXXX",
		 temporary_folder());
	if (!mkdtemp(output->folder)) {
		int r = -errno;

		output->folder[0] = '\0';
		return packimg_fail(error, r,
				    "%s: no folder can be made: %s; name another one in TMPDIR",
				    temporary_folder(), strerror(-r));
	}
	snprintf(output->path, sizeof(output->path), "%s/%s", output->folder, name);
	return 0;
}

int remote_output_new(const char *address, bool force, struct remote_output **ret_output,
		      const char **ret_path, struct packimg_error *error)
{
	const struct store_options options = {.stopped = command_interrupted};
	struct remote_output *output = calloc(1, sizeof(*output));
	struct store_object object = {0};

	if (!output)
		return packimg_fail(error, -ENOMEM, "out of memory");
	output->force = force;
	int r = store_open(&options, &output->store, error);
	if (!r)
		r = store_object_init(&object, address, error);
	if (!r && !object.address.s3)
		r = packimg_fail(error, -ENOTSUP, "%.200s: only s3:// addresses can be written",
				 address);
	if (!r)
		r = check_absent(output, &object, error);
	store_object_deinit(&object);
	if (!r) {
		const char *name = strrchr(address, '/') + 1;

		snprintf(output->address, sizeof(output->address), "%.*s", (int)(name - address),
			 address);
		r = make_folder(output, name, error);
	}
	if (r) {
		remote_output_free(output);
		return r;
	}
	*ret_output = output;
	*ret_path = output->path;
	return 0;
}

static int is_dataset_file(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && text_ends_with(entry->d_name, ".pimg");
}

static int list_files(struct remote_output *output, bool quiet, struct packimg_error *error)
{
	char path[sizeof(output->folder) + sizeof(output->names[0]->d_name) + 1];
	struct stat status;

	output->count = scandir(output->folder, &output->names, is_dataset_file, alphasort);
	if (output->count < 0) {
		output->count = 0;
		return packimg_fail(error, -errno, "%s: %s", output->folder, strerror(errno));
	}
	progress_init_bytes(&output->progress, "sending", quiet);
	for (int i = 0; i < output->count; i++) {
		snprintf(path, sizeof(path), "%s/%s", output->folder, output->names[i]->d_name);
		if (stat(path, &status) == 0)
			output->progress.total += (uint64_t)status.st_size;
	}
	return 0;
}

static int object_of(const struct remote_output *output, const char *name,
		     struct store_object *object, struct packimg_error *error)
{
	char address[2 * STORE_ADDRESS_MAX];

	snprintf(address, sizeof(address), "%s%s", output->address, name);
	return store_object_init(object, address, error);
}

static int send_file(struct remote_output *output, const char *name, struct packimg_error *error)
{
	char path[sizeof(output->folder) + sizeof(output->names[0]->d_name) + 1];
	struct store_object object;
	struct stat status;
	int r = object_of(output, name, &object, error);

	if (r)
		return r;
	r = check_absent(output, &object, error);
	if (r) {
		store_object_deinit(&object);
		return r;
	}
	snprintf(path, sizeof(path), "%s/%s", output->folder, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status))
		r = packimg_fail(error, -errno, "%s: %s", path, strerror(errno));
	else
		r = store_upload(output->store, &object, fd, (uint64_t)status.st_size, on_bytes,
				 output, error);
	io_close(fd);
	store_object_deinit(&object);
	if (!r) {
		output->sent += (uint64_t)status.st_size;
		unlink(path);
	}
	return r;
}

static void remove_object(struct remote_output *output, const char *name)
{
	struct store_object object;

	if (object_of(output, name, &object, NULL))
		return;
	store_delete(output->store, &object, NULL);
	store_object_deinit(&object);
}

/*
 * Makes the set file of a set, which is sent last of all. One that is there describes shards that
 * are about to be replaced.
 */
static int prepare_set_file(struct remote_output *output, struct packimg_error *error)
{
	char base[SHARD_SET_PATH_MAX];
	struct store_object object;
	struct shard_name name;

	snprintf(base, sizeof(base), "%s/%s", output->folder,
		 output->count ? output->names[0]->d_name : "");
	if (shard_name_parse(base, &name))
		return 0;
	snprintf(output->set_name, sizeof(output->set_name), "%s.pimg.set",
		 strrchr(name.base, '/') + 1);
	int r = object_of(output, output->set_name, &object, error);
	if (r)
		return r;
	r = check_absent(output, &object, error);
	store_object_deinit(&object);
	if (!r && output->force)
		remove_object(output, output->set_name);
	return r ? r : seal_write(name.base, name.shard_count, error);
}

int remote_output_send(struct remote_output *output, bool quiet, struct packimg_error *error)
{
	int r = list_files(output, quiet, error), left = output->count;

	if (!r)
		r = prepare_set_file(output, error);
	while (!r && left > 0)
		r = send_file(output, output->names[--left]->d_name, error);
	if (!r && output->set_name[0])
		r = send_file(output, output->set_name, error);
	else if (r)
		left++; /* that one was not sent */
	for (int i = left; r && i < output->count; i++)
		remove_object(output, output->names[i]->d_name);
	progress_clear(&output->progress);
	return r;
}

static void remove_folder(const char *folder)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		unlinkat(dirfd(directory), entry->d_name, 0); /* fails for . and .. */
	if (directory)
		closedir(directory);
	rmdir(folder);
}

void remote_output_free(struct remote_output *output)
{
	if (!output)
		return;
	if (output->folder[0])
		remove_folder(output->folder);
	for (int i = 0; i < output->count; i++)
		free(output->names[i]);
	free(output->names);
	store_close(output->store);
	free(output);
}
