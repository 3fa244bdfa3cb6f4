/* Tuning results of the emulated GPU: times set by tests, and refused problems. */
#include "tests/gpu/emulation/tuning.h"

#include "tests/gpu/emulation/engines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static emulation_ms *plan_ms;
static const char *kind;
static struct conv_problem *refused; /* [refused_count] */
static size_t refused_count;

void emulation_time_plans(emulation_ms *ms)
{
	plan_ms = ms;
	free(refused);
	refused = NULL;
	refused_count = 0;
}

bool emulation_times_plans(void)
{
	return plan_ms;
}

void emulation_set_kind(const char *of)
{
	kind = of;
}

const char *emulation_kind(void)
{
	return kind ? kind : "emulated GPU";
}

double emulation_tuned_ms(const struct conv_problem *problem)
{
	return plan_ms ? plan_ms(problem) : 0;
}

bool emulation_refused(const struct conv_problem *problem)
{
	for (size_t i = 0; i < refused_count; i++)
		if (memcmp(&refused[i], problem, sizeof(*problem)) == 0)
			return true;
	return false;
}

int emulation_refuse(void *state, const struct conv_problem *problem, float ms)
{
	struct conv_problem *more = reallocarray(refused, refused_count + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	refused = more;
	refused[refused_count++] = *problem;
	return 0;
}

/* Allocates at least one byte, also if size is 0. */
static void *copy_of(const void *bytes, size_t size)
{
	void *copy = malloc(size + 1);

	if (copy && size)
		memcpy(copy, bytes, size);
	return copy;
}

int emulation_export_tuning(void *state, char **ret_bytes, size_t *ret_size)
{
	size_t size = refused_count * sizeof(*refused);
	char *bytes = copy_of(refused, size);

	if (!bytes)
		return -ENOMEM;
	*ret_bytes = bytes;
	*ret_size = size;
	return 0;
}

int emulation_import_tuning(void *state, const char *bytes, size_t size)
{
	struct conv_problem *adopted = copy_of(bytes, size);

	if (!adopted)
		return -ENOMEM;
	free(refused);
	refused = adopted;
	refused_count = size / sizeof(*refused);
	return 0;
}
