/* Files of a dataset whose bytes come from elsewhere: under temporary names until complete. */
#include "format/base/system/io.h"
#include "format/error.h"
#include "format/write/publish.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct packimg_receiver {
	char path[SHARD_SET_PATH_MAX];
	bool set;
	struct temp_files temp_files;
	uint32_t count;
	int fds[]; /* [count] */
};

static int receiver_init(struct packimg_receiver *receiver, const char *path)
{
	uint8_t *buffer = malloc(OUTPUT_BUFFER_SIZE);
	struct output output;
	int r = buffer ? temp_files_init(&receiver->temp_files, path) : -ENOMEM;

	if (!r)
		temp_files_remove_stale(&receiver->temp_files);
	for (uint32_t i = 0; !r && i < receiver->count; i++) {
		output.fd = -1;
		r = temp_files_create(&receiver->temp_files, buffer, &output);
		receiver->fds[i] = output.fd;
	}
	free(buffer);
	return r;
}

int packimg_receiver_new(const char *path, uint32_t shard_count,
			 struct packimg_receiver **ret_receiver, struct packimg_error *error)
{
	uint32_t count = shard_count ? shard_count : 1;
	struct packimg_receiver *receiver =
		calloc(1, sizeof(*receiver) + count * sizeof(receiver->fds[0]));

	if (!receiver)
		return packimg_fail(error, -ENOMEM, "out of memory");
	receiver->set = shard_count != 0;
	receiver->count = count;
	receiver->temp_files.lock_fd = -1;
	for (uint32_t i = 0; i < count; i++)
		receiver->fds[i] = -1;
	int r = strlen(path) < sizeof(receiver->path) ? 0 : -ENAMETOOLONG;
	if (!r) {
		strcpy(receiver->path, path);
		r = receiver_init(receiver, path);
	}
	if (r) {
		packimg_receiver_free(receiver);
		return packimg_fail(error, r, "%s: cannot be created: %s", path, strerror(-r));
	}
	*ret_receiver = receiver;
	return 0;
}

int packimg_receiver_fd(const struct packimg_receiver *receiver, uint32_t shard)
{
	return receiver->fds[shard];
}

int packimg_receiver_finish(struct packimg_receiver *receiver, struct packimg_error *error)
{
	const struct publication publication = {
		.path = receiver->path,
		.set = receiver->set,
		.shard_count = receiver->count,
	};
	bool renamed = false;
	int r = 0;

	for (uint32_t i = 0; i < receiver->count; i++) {
		r = io_finish(receiver->fds[i], r);
		receiver->fds[i] = -1;
	}
	if (!r)
		r = publish(&publication, &receiver->temp_files, &renamed);
	if (r && renamed)
		return packimg_fail(error, r,
				    "%s: complete, but its folder cannot be synced: %s; a crash of "
				    "the machine may remove it",
				    receiver->path, strerror(-r));
	return r ? packimg_fail(error, r, "%s: cannot be completed: %s", receiver->path,
				strerror(-r))
		 : 0;
}

void packimg_receiver_free(struct packimg_receiver *receiver)
{
	if (!receiver)
		return;
	for (uint32_t i = 0; i < receiver->count; i++)
		io_close(receiver->fds[i]);
	temp_files_deinit(&receiver->temp_files);
	free(receiver);
}
