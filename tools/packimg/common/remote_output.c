#include "tools/packimg/common/remote_output.h"
#include "format/base/system/io.h"
#include "format/error.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/common/text.h"
#include "tools/store/upload.h"

#include <dirent.h>
#include <fcntl.h>
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
};

static void on_bytes(void *context, uint64_t bytes)
{
	struct remote_output *output = context;

	progress_update(&output->progress, 0, output->sent + bytes);
}

/* Whether the user may write this object: it does not exist, or may be replaced. */
static int check_absent(struct remote_output *output, const char *address,
			struct packimg_error *error)
{
	struct store_object object;
	struct packimg_error cause;
	int r = store_object_init(&object, address, error);

	if (r || output->force)
		return r;
	r = store_exists(output->store, &object, &cause);
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
	struct store_object object;

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
		r = check_absent(output, address, error);
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

static int object_of(const struct remote_output *output, int number, struct store_object *object,
		     struct packimg_error *error)
{
	char address[2 * STORE_ADDRESS_MAX];

	snprintf(address, sizeof(address), "%s%s", output->address, output->names[number]->d_name);
	return store_object_init(object, address, error);
}

static int send_file(struct remote_output *output, int number, struct packimg_error *error)
{
	char path[sizeof(output->folder) + sizeof(output->names[0]->d_name) + 1];
	struct store_object object;
	struct stat status;
	int r = object_of(output, number, &object, error);

	if (r)
		return r;
	r = check_absent(output, object.address.shown, error);
	if (r)
		return r;
	snprintf(path, sizeof(path), "%s/%s", output->folder, output->names[number]->d_name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status))
		r = packimg_fail(error, -errno, "%s: %s", path, strerror(errno));
	else
		r = store_upload(output->store, &object, fd, (uint64_t)status.st_size, on_bytes,
				 output, error);
	io_close(fd);
	if (!r) {
		output->sent += (uint64_t)status.st_size;
		unlink(path);
	}
	return r;
}

/* Removes objects that were sent before one failed. */
static void take_back(struct remote_output *output, int first)
{
	struct store_object object;

	for (int i = first; i < output->count; i++)
		if (!object_of(output, i, &object, NULL))
			store_delete(output->store, &object, NULL);
}

int remote_output_send(struct remote_output *output, bool quiet, struct packimg_error *error)
{
	int r = list_files(output, quiet, error);

	for (int i = output->count - 1; !r && i >= 0; i--) {
		r = send_file(output, i, error);
		if (r && i + 1 < output->count)
			take_back(output, i + 1);
	}
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
