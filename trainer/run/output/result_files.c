#include "trainer/run/output/result_files.h"

#include "format/base/system/atomic_file.h"
#include "format/base/system/io.h"
#include "trainer/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Formats `name` followed by `ending`; CHECKPOINT_PATH_MAX bytes. */
static int result_file_path(struct run_context *ctx, const char *option, const char *name,
			    const char *ending, char *ret_path)
{
	int length = snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s%s", name, ending);
	return length < CHECKPOINT_PATH_MAX
		       ? 0
		       : run_fail(ctx, -ENAMETOOLONG, "%s=%.100s... is too long", option, name);
}

static int result_file_fail(struct run_context *ctx, int code, const char *option, const char *path)
{
	return run_fail(ctx, code, "%s: %.900s cannot be written: %s", option, path,
			strerror(-code));
}

int result_files_check(struct run_context *ctx)
{
	const struct run_options *options = &ctx->options;
	const struct {
		const char *option, *name, *endings[3];
	} all[] = {
		{"--predictions", options->predictions, {".csv", ".json", ".svg"}},
		{"--onnx", options->onnx, {""}},
		{"--find-lr", options->find_lr, {".csv", ".svg"}},
		{"--find-batch-size", options->find_batch_size, {".csv", ".svg"}},
		{"--trace", options->trace, {""}},
	};
	char path[CHECKPOINT_PATH_MAX];
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i].name && !*all[i].name)
			return run_fail(ctx, -EINVAL,
					"%s is empty: expected a prefix for the names of its files",
					all[i].option);
		for (size_t e = 0; e < 3 && all[i].name && all[i].endings[e]; e++) {
			int r = result_file_path(ctx, all[i].option, all[i].name, all[i].endings[e],
						 path);
			if (r < 0)
				return r;
			r = atomic_file_check(path);
			if (r < 0)
				return result_file_fail(ctx, r, all[i].option, path);
		}
	}
	return 0;
}

/* Writes the output of `print` to a descriptor, which stays open. */
static int result_file_fill(int fd, void (*print)(const void *data, FILE *file), const void *data)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	FILE *file = copy < 0 ? NULL : fdopen(copy, "w");
	if (!file) {
		int r = -errno;
		io_close(copy);
		return r;
	}
	errno = 0;
	print(data, file);
	int r = ferror(file) ? (errno ? -errno : -EIO) : 0;
	return fclose(file) && !r ? -errno : r;
}

int result_file_write(struct run_context *ctx, const char *option, const char *name,
		      const char *ending, void (*print)(const void *data, FILE *file),
		      const void *data)
{
	char path[CHECKPOINT_PATH_MAX];
	struct atomic_file file;
	int r = result_file_path(ctx, option, name, ending, path);
	if (r < 0)
		return r;
	r = atomic_file_create(&file, path);
	if (r < 0)
		return result_file_fail(ctx, r, option, path);
	r = atomic_file_close(&file, result_file_fill(file.fd, print, data));
	return r < 0 ? result_file_fail(ctx, r, option, path) : 0;
}
