#include "trainer/run/ranks.h"
#include "trainer/run/hash.h"

#include "format/base/text/sentence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define fail(error, code, ...) sentence_fail((error), RANKS_ERROR_MAX, (code), __VA_ARGS__)

static int ranks_fail_comm(const struct comm *comm, int code, char *error)
{
	return fail(error, code, "%s", comm_error(comm));
}

int ranks_agree(struct comm *comm, int outcome, char *error)
{
	if (comm->world == 1)
		return outcome;
	unsigned first = comm->world;
	int found = 0;
	/*
	 * Compare one rank at a time, with a fixed-size buffer: a rank that failed to allocate a
	 * larger one would leave the others waiting in a collective.
	 */
	for (unsigned rank = 0; rank < comm->world; rank++) {
		int theirs = outcome, r = comm_broadcast(comm, &theirs, sizeof(theirs), rank);
		if (r < 0)
			return ranks_fail_comm(comm, r, error);
		if (theirs < 0 && !found) {
			first = rank;
			found = theirs;
		}
	}
	if (!found)
		return 0;
	char text[RANKS_ERROR_MAX + 300] = "", host[256] = "";
	if (comm->rank == first && gethostname(host, sizeof(host) - 1))
		*host = '\0';
	if (comm->rank == first && first == 0)
		snprintf(text, sizeof(text), "%s", *error ? error : strerror(-found));
	else if (comm->rank == first)
		snprintf(text, sizeof(text), "rank %u of %u on %s: %s", first, comm->world, host,
			 *error ? error : strerror(-found));
	int r = comm_broadcast(comm, text, sizeof(text), first);
	if (r < 0)
		return ranks_fail_comm(comm, r, error);
	return fail(error, found, "%.*s", RANKS_ERROR_MAX - 1, text);
}

int ranks_compare(struct comm *comm, const void *mine, size_t size, unsigned *ret_rank, char *error)
{
	char first[RANKS_COMPARED_MAX], theirs[RANKS_COMPARED_MAX];
	unsigned other = comm->world;
	for (unsigned rank = 0; rank < comm->world; rank++) {
		memcpy(theirs, mine, size);
		int r = comm_broadcast(comm, theirs, size, rank);
		if (r < 0)
			return ranks_fail_comm(comm, r, error);
		if (!rank)
			memcpy(first, theirs, size);
		if (other == comm->world && memcmp(theirs, first, size) != 0)
			other = rank;
	}
	*ret_rank = other;
	return 0;
}

/* ---- builds ---- */

int ranks_check_build(struct comm *comm, char *error)
{
	unsigned other;
	if (comm->world == 1)
		return 0;
	uint64_t hash = 0; /* 0 if the program file cannot be read */
	hash_file("/proc/self/exe", &hash);
	int r = ranks_compare(comm, &hash, sizeof(hash), &other, error);
	if (r < 0 || other == comm->world)
		return r;
	return fail(error, -EINVAL,
		    "rank %u runs another build of the trainer than rank 0: install the same build "
		    "on every machine",
		    other);
}

/* ---- sharing ---- */

/* Returns the recipe as text, which the caller frees. */
static int ranks_write_recipe(const struct recipe *recipe, char **ret_text, size_t *ret_size)
{
	FILE *file = open_memstream(ret_text, ret_size);
	if (!file)
		return -ENOMEM;
	int r = recipe_write(recipe, file);
	return fclose(file) && r == 0 ? -ENOMEM : r;
}

/*
 * Ranks other than 0 allocate *text. All ranks take part in every collective, even after a failure.
 */
static int ranks_share_text(struct comm *comm, char **text, size_t size, char *error)
{
	int r = comm_broadcast(comm, &size, sizeof(size), 0);
	if (r < 0)
		return ranks_fail_comm(comm, r, error);
	if (comm->rank)
		*text = calloc(1, size + 1);
	r = ranks_agree(comm, *text ? 0 : fail(error, -ENOMEM, "out of memory"), error);
	if (r < 0)
		return r;
	r = comm_broadcast(comm, *text, size, 0);
	return r < 0 ? ranks_fail_comm(comm, r, error) : 0;
}

int ranks_share_recipe(struct comm *comm, struct recipe *recipe, char *error)
{
	char *text = NULL, problem[RECIPE_ERROR_MAX];
	size_t size = 0;
	if (comm->world == 1)
		return 0;
	int r = comm->rank ? 0 : ranks_write_recipe(recipe, &text, &size);
	if (r < 0)
		fail(error, r, "cannot share the recipe among ranks: %s", strerror(-r));
	r = ranks_agree(comm, r, error);
	if (r == 0)
		r = ranks_share_text(comm, &text, size, error);
	if (r == 0 && comm->rank) {
		r = recipe_load_text(recipe, "recipe of rank 0", text, problem);
		if (r < 0)
			fail(error, r, "%s", problem);
	}
	free(text);
	return ranks_agree(comm, r, error);
}

int ranks_share_metadata(struct comm *comm, struct weights_metadata *metadata, char *error)
{
	struct weights_metadata shared = *metadata;
	int r = comm_broadcast(comm, &shared, sizeof(shared), 0);
	if (r < 0)
		return ranks_fail_comm(comm, r, error);
	shared.class_names = metadata->class_names;
	*metadata = shared;
	return 0;
}

static int ranks_share_param(struct comm *comm, struct device_param *param, enum device_slot slot,
			     float *values, char *error)
{
	/* ranks have their parts of a divided slot already (ranks_lead()) */
	if (!device_slot_lasts(slot) || !device_param_has(param, slot) ||
	    device_param_is_divided(param, slot))
		return 0;
	int r = comm->rank ? 0 : device_param_read(param, slot, values);
	/* broadcast even if reading failed, since the other ranks wait for it */
	int sent = comm_broadcast(comm, values, device_param_elements(param) * sizeof(float), 0);
	if (sent < 0)
		return ranks_fail_comm(comm, sent, error);
	if (comm->rank)
		r = device_param_write(param, slot, values);
	return r < 0 ? fail(error, r, "cannot share parameter %s among ranks: %s",
			    device_param_spec(param)->name, strerror(-r))
		     : 0;
}

int ranks_share_params(struct comm *comm, struct device_params *params, bool buffers_alone,
		       char *error)
{
	if (comm->world == 1)
		return 0;
	float *values = malloc(device_params_largest(params) * sizeof(float));
	int r = ranks_agree(comm, values ? 0 : fail(error, -ENOMEM, "out of memory"), error);
	size_t count = r < 0 ? 0 : device_params_count(params);
	/* finish the loop even after a failure: the other ranks take part in every collective */
	for (size_t i = 0; i < count; i++) {
		struct device_param *param = device_params_at(params, i);
		if (buffers_alone && device_param_spec(param)->kind != DEVICE_BUFFER)
			continue;
		for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++) {
			int shared = ranks_share_param(comm, param, slot, values, error);
			r = r < 0 ? r : shared;
		}
	}
	free(values);
	return r;
}

int ranks_lead(struct comm *comm, struct device_params *params, int (*lead)(void *of), void *of,
	       char *error)
{
	int r = 0, shared;
	if (comm->rank) {
		shared = device_params_follow(params);
	} else {
		device_params_lead(params);
		r = lead(of);
		shared = device_params_dismiss(params);
	}
	if (r < 0 || shared == 0)
		return r;
	return fail(error, shared, "cannot share the parameters among ranks: %s",
		    strerror(-shared));
}

static int ranks_hash_params(const struct device_params *params, uint64_t *ret_hash, char *error)
{
	uint64_t hash = 1;
	float *values = malloc(device_params_largest(params) * sizeof(float));
	int r = values ? 0 : fail(error, -ENOMEM, "out of memory");
	for (size_t i = 0; i < device_params_count(params) && r == 0; i++) {
		struct device_param *param = device_params_at(params, i);
		/* parts of a group's ranks are compared with those of other groups */
		if (device_param_spec(param)->kind == DEVICE_BUFFER ||
		    (device_param_is_divided(param, DEVICE_VALUE) &&
		     device_params_group(params) == 1))
			continue;
		r = device_param_read(param, DEVICE_VALUE, values);
		hash = hash_bytes(hash, values, device_param_elements(param) * sizeof(float));
	}
	free(values);
	*ret_hash = hash;
	return r;
}

int ranks_check_params(struct comm *comm, const struct device_params *params, char *error)
{
	unsigned other;
	uint64_t hash;
	if (comm->world == 1)
		return 0;
	int r = ranks_agree(comm, ranks_hash_params(params, &hash, error), error);
	if (r < 0)
		return r;
	r = ranks_compare(comm, &hash, sizeof(hash), &other, error);
	if (r < 0 || other == comm->world)
		return r;
	return fail(error, -EDOM,
		    "the weights of rank %u differ from those of rank 0: a machine computes wrong "
		    "results, or the ranks use different libraries",
		    other);
}
