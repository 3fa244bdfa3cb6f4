/*
 * Agreement between ranks before steps: whether all of them opened their GPUs and planned, and on
 * tuning results. Uses comm.h.
 *
 * Of the ranks with the same GPU model and libraries, the lowest tunes and the others import its
 * results. Different kinds of GPUs tune separately. Their programs may then differ, but not in the
 * order of all-reduces.
 */
#include "trainer/device/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 192 /* bytes of struct conv_engines' key, terminator included */

static int agree_out_of_memory(char *error)
{
	snprintf(error, DEVICE_ERROR_MAX, "out of memory");
	return -ENOMEM;
}

static int agree_fail_comm(const struct comm *comm, int result, char *error)
{
	snprintf(error, DEVICE_ERROR_MAX, "%s", comm_error(comm));
	return result;
}

/*
 * Ranks exchange data by broadcasts of fixed size, one rank after the other. A gather would need
 * memory, and a rank that failed to allocate it would leave the others waiting in the collective.
 */

/*
 * Returns 0 if all ranks succeeded; else the result of the first rank that failed. `error` is then
 * the same on all ranks: that rank's prefix and message.
 */
static int agree_over(struct comm *comm, int result, const char *prefix, char *error)
{
	char words[DEVICE_ERROR_MAX];
	unsigned failed = comm->world;
	int r, found = 0;

	for (unsigned rank = 0; rank < comm->world; rank++) {
		int shared = result;

		r = comm_broadcast(comm, &shared, sizeof(shared), rank);
		if (r < 0)
			return agree_fail_comm(comm, r, error);
		if (shared < 0 && failed == comm->world) {
			failed = rank;
			found = shared;
		}
	}
	if (failed == comm->world)
		return 0;
	snprintf(words, sizeof(words), "%s%.*s", prefix, DEVICE_ERROR_MAX - 32, error);
	r = comm_broadcast(comm, words, sizeof(words), failed);
	if (r < 0)
		return agree_fail_comm(comm, r, error);
	snprintf(error, DEVICE_ERROR_MAX, "%s", words);
	return found;
}

/*
 * As agree_over(), for all ranks: those that share batches, and then the groups, each of which has
 * one rank of every such set.
 */
static int agree_on_result(const struct cuda_device *device, int result, char *error)
{
	struct comm *comm = device->base.options.comm, *group = device->base.options.group;
	unsigned ranks = group ? group->world : 1, own = group ? group->rank : 0;
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "rank %u: ", comm->rank * ranks + own);
	int r = agree_over(comm, result, prefix, error);
	return group ? agree_over(group, r, "", error) : r;
}

/* ---- opening ---- */

/* Finds the lowest rank with this rank's key. */
static int agree_find_tuner(struct cuda_device *device, char *error)
{
	struct comm *comm = device->base.options.comm;
	char key[KEY_MAX] = "", shared[KEY_MAX];

	snprintf(key, sizeof(key), "%s", device->engines.conv.key);
	device->tuner = comm->rank;
	for (unsigned rank = 0; rank < comm->world; rank++) {
		memcpy(shared, key, sizeof(shared));
		int r = comm_broadcast(comm, shared, sizeof(shared), rank);
		if (r < 0)
			return agree_fail_comm(comm, r, error);
		if (rank < device->tuner && strcmp(shared, key) == 0)
			device->tuner = rank;
	}
	return 0;
}

/*
 * The ranks of a group compute what is not divided each for itself, to the same bits, which takes
 * GPUs of one kind.
 */
static int agree_check_group(struct cuda_device *device, char *error)
{
	struct comm *group = device->base.options.group;
	char key[KEY_MAX] = "", shared[KEY_MAX];
	bool differ = false;

	snprintf(key, sizeof(key), "%s", device->engines.conv.key);
	for (unsigned rank = 0; group && rank < group->world; rank++) {
		memcpy(shared, key, sizeof(shared));
		int r = comm_broadcast(group, shared, sizeof(shared), rank);
		if (r < 0)
			return agree_fail_comm(group, r, error);
		differ |= strcmp(shared, key) != 0;
	}
	if (!differ)
		return 0;
	snprintf(error, DEVICE_ERROR_MAX,
		 "%s or its cuDNN is of another kind than that of another rank of its group, and "
		 "both would round differently; have the ranks of a group use GPUs of one kind "
		 "with the same libraries",
		 device->gpu.name);
	return -ENOTSUP;
}

int cuda_ranks_meet(struct cuda_device *device, int result, char *error)
{
	int r = agree_on_result(device, result, error);

	if (r == 0)
		r = agree_find_tuner(device, error);
	if (r == 0 && device->base.options.group)
		r = agree_on_result(device, agree_check_group(device, error), error);
	return r;
}

/* ---- planning ---- */

int cuda_ranks_agree(const struct device_graph *graph, int result, char *error)
{
	if (!cuda_ranks_several(graph) && !graph->params->group)
		return result;
	return agree_on_result((const struct cuda_device *)graph->device, result, error);
}

bool cuda_ranks_tunes(const struct cuda_exec *exec)
{
	return !cuda_ranks_several(exec->graph) ||
	       exec->device->tuner == exec->device->base.options.comm->rank;
}

/* Tuning results of one rank. */
struct tuning_export {
	char *bytes;
	size_t size;
};

static int agree_fail_findings(struct cuda_exec *exec, int result, const char *what)
{
	if (result < 0)
		snprintf(exec->error, DEVICE_ERROR_MAX, "what tuning found cannot be %s: %s", what,
			 strerror(-result));
	return result;
}

/* Broadcasts the size of a rank's data. */
static int agree_tell_size(struct cuda_exec *exec, const struct tuning_export *mine, unsigned rank,
			   size_t *ret_size)
{
	struct comm *comm = exec->device->base.options.comm;
	size_t size = mine->size;
	int r = comm_broadcast(comm, &size, sizeof(size), rank);

	if (r < 0)
		return agree_fail_comm(comm, r, exec->error);
	*ret_size = size;
	return 0;
}

/*
 * Allocates a buffer for the largest data of any rank; the caller frees it. Fails on all ranks or
 * on none.
 */
static int agree_make_room(struct cuda_exec *exec, const struct tuning_export *mine,
			   char **ret_room)
{
	struct comm *comm = exec->device->base.options.comm;
	size_t largest = 1;
	int r;

	for (unsigned rank = 0; rank < comm->world; rank++) {
		size_t size;

		r = agree_tell_size(exec, mine, rank, &size);
		if (r < 0)
			return r;
		largest = size > largest ? size : largest;
	}
	*ret_room = malloc(largest);
	return agree_on_result(exec->device, *ret_room ? 0 : agree_out_of_memory(exec->error),
			       exec->error);
}

/* Broadcasts this rank's data and takes its tuner's. */
static int agree_exchange(struct cuda_exec *exec, const struct tuning_export *mine, char *room)
{
	const struct conv_engines *engines = &exec->device->engines.conv;
	struct comm *comm = exec->device->base.options.comm;
	int r = 0;

	for (unsigned rank = 0; rank < comm->world; rank++) {
		char *bytes = rank == comm->rank ? mine->bytes : room;
		size_t size;
		int sent = agree_tell_size(exec, mine, rank, &size);

		if (sent < 0)
			return sent;
		sent = comm_broadcast(comm, bytes, size, rank);
		if (sent < 0)
			return agree_fail_comm(comm, sent, exec->error);
		if (rank == exec->device->tuner && rank != comm->rank)
			r = engines->import_tuning(engines->state, room, size);
	}
	return agree_on_result(exec->device, agree_fail_findings(exec, r, "taken over"),
			       exec->error);
}

int cuda_ranks_share(struct cuda_exec *exec)
{
	const struct conv_engines *engines = &exec->device->engines.conv;
	struct tuning_export mine = {0};
	char *room = NULL;
	int r = 0;

	if (!cuda_ranks_several(exec->graph))
		return 0;
	if (cuda_ranks_tunes(exec))
		r = engines->export_tuning(engines->state, &mine.bytes, &mine.size);
	r = agree_on_result(exec->device, agree_fail_findings(exec, r, "passed on"), exec->error);
	if (r == 0)
		r = agree_make_room(exec, &mine, &room);
	if (r == 0)
		r = agree_exchange(exec, &mine, room);
	free(room);
	free(mine.bytes);
	return r;
}
