/*
 * What ranks agree on before they step: that all could open their GPUs and plan, and what tuning has found. All of it goes through comm.h.
 *
 * Of ranks whose GPUs and libraries are the same the lowest tunes, and the others take over what it finds. Where they differ each kind goes by what
 * is fast on it: sums over ranks come in the same order whatever is taken apart.
 */
#include "cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 192 /* bytes of struct conv_engines' key, terminator included */

static int out_of_memory(char *error)
{
	snprintf(error, DEVICE_ERROR_MAX, "out of memory");
	return -ENOMEM;
}

static int fail_comm(const struct comm *comm, int result, char *error)
{
	snprintf(error, DEVICE_ERROR_MAX, "%s", comm_error(comm));
	return result;
}

/* mine[size] of every rank: ret_all[world][size], to be freed. */
static int gather(struct comm *comm, const void *mine, size_t size, void **ret_all, char *error)
{
	void *all = calloc(comm->world, size);
	int r = all ? comm_gather(comm, mine, size, all) : out_of_memory(error);

	if (all && r < 0)
		fail_comm(comm, r, error);
	if (r < 0) {
		free(all);
		return r;
	}
	*ret_all = all;
	return 0;
}

/* 0 if that is every rank's result; else that of the first that failed, whose name and words are the error of all. */
static int agree(struct comm *comm, int result, char *error)
{
	char words[DEVICE_ERROR_MAX];
	void *all;
	int r = gather(comm, &result, sizeof(result), &all, error);
	unsigned failed = 0;

	if (r < 0)
		return r;
	while (failed < comm->world && ((int *)all)[failed] >= 0)
		failed++;
	if (failed < comm->world)
		result = ((int *)all)[failed];
	free(all);
	if (failed == comm->world)
		return 0;
	snprintf(words, sizeof(words), "rank %u: %.*s", failed, DEVICE_ERROR_MAX - 32, error);
	r = comm_broadcast(comm, words, sizeof(words), failed);
	if (r < 0)
		return fail_comm(comm, r, error);
	snprintf(error, DEVICE_ERROR_MAX, "%s", words);
	return result;
}

/* ---- opening ---- */

/* The lowest rank whose key is this one's. */
static int find_tuner(struct cuda_device *device, char *error)
{
	char key[KEY_MAX] = "";
	void *all;
	int r;

	snprintf(key, sizeof(key), "%s", device->engines.conv.key);
	r = gather(device->base.options.comm, key, sizeof(key), &all, error);
	if (r < 0)
		return r;
	while (strcmp((char *)all + (size_t)device->tuner * sizeof(key), key) != 0)
		device->tuner++;
	free(all);
	return 0;
}

int cuda_ranks_meet(struct cuda_device *device, int result, char *error)
{
	int r = agree(device->base.options.comm, result, error);

	return r < 0 ? r : find_tuner(device, error);
}

/* ---- planning ---- */

int cuda_ranks_agree(struct cuda_graph *graph, int result)
{
	if (!cuda_ranks_several(graph))
		return result;
	return agree(graph->device->base.options.comm, result, graph->error);
}

bool cuda_ranks_tunes(const struct cuda_graph *graph)
{
	return !cuda_ranks_several(graph) ||
	       graph->device->tuner == graph->device->base.options.comm->rank;
}

/* What tuning has found on one rank. */
struct findings {
	char *bytes;
	size_t size;
};

static int fail_findings(struct cuda_graph *graph, int result, const char *what)
{
	if (result < 0)
		snprintf(graph->error, DEVICE_ERROR_MAX, "what tuning found cannot be %s: %s", what,
			 strerror(-result));
	return result;
}

/* Passes on what this rank has, and takes what its tuner has. sizes[world]; room for the largest. */
static int exchange(struct cuda_graph *graph, const struct findings *mine, const size_t *sizes,
		    char *room)
{
	const struct conv_engines *engines = &graph->device->engines.conv;
	struct comm *comm = graph->device->base.options.comm;
	int r = 0;

	for (unsigned rank = 0; rank < comm->world; rank++) {
		char *bytes = rank == comm->rank ? mine->bytes : room;
		int sent = comm_broadcast(comm, bytes, sizes[rank], rank);

		if (sent < 0)
			return fail_comm(comm, sent, graph->error);
		if (rank == graph->device->tuner && rank != comm->rank)
			r = engines->adopt(engines->state, room, sizes[rank]);
	}
	return agree(comm, fail_findings(graph, r, "taken over"), graph->error);
}

int cuda_ranks_share(struct cuda_graph *graph)
{
	const struct conv_engines *engines = &graph->device->engines.conv;
	struct comm *comm = graph->device->base.options.comm;
	struct findings mine = {0};
	void *sizes = NULL;
	char *room = NULL;
	size_t largest = 1;
	int r = 0;

	if (!cuda_ranks_several(graph))
		return 0;
	if (cuda_ranks_tunes(graph))
		r = engines->findings(engines->state, &mine.bytes, &mine.size);
	r = agree(comm, fail_findings(graph, r, "passed on"), graph->error);
	if (r == 0)
		r = gather(comm, &mine.size, sizeof(mine.size), &sizes, graph->error);
	for (unsigned rank = 0; r == 0 && rank < comm->world; rank++)
		largest = ((size_t *)sizes)[rank] > largest ? ((size_t *)sizes)[rank] : largest;
	if (r == 0) {
		room = malloc(largest);
		r = agree(comm, room ? 0 : out_of_memory(graph->error), graph->error);
	}
	if (r == 0)
		r = exchange(graph, &mine, sizes, room);
	free(room);
	free(sizes);
	free(mine.bytes);
	return r;
}
