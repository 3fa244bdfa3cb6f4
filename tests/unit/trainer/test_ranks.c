/*
 * Agreement and sharing between ranks, and detection of parameters that differ. Run directly, and
 * under mpirun.
 */
#include "tests/test.h"
#include "tests/unit/trainer/ranks_test.h"
#include "tests/unit/trainer/trainer_test.h"
#include "trainer/device/params.h"
#include "trainer/run/ranks.h"

#include <math.h>

static bool exhausted; /* every allocation fails; the linker wraps malloc() and calloc() */

void *__real_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
	return exhausted ? NULL : __real_calloc(count, size);
}

void *__wrap_malloc(size_t size)
{
	return exhausted ? NULL : __real_malloc(size);
}

static bool
	/* this rank's program file appears to differ; the linker wraps io_open_regular() */
	rebuilt;

int __real_io_open_regular(const char *path);
int __wrap_io_open_regular(const char *path);

int __wrap_io_open_regular(const char *path)
{
	bool own = strcmp(path, "/proc/self/exe") == 0;
	return __real_io_open_regular(rebuilt && own ? "/proc/version" : path);
}

static char error[RANKS_ERROR_MAX];

/* All ranks return the error code and sentence of the lowest rank that failed. */
TEST(agreeing)
{
	unsigned last = comm->world - 1;
	char expected[64];
	assert_int_equal(ranks_agree(comm, 0, error), 0);
	snprintf(error, sizeof(error), "rank 0 has no luck");
	assert_int_equal(ranks_agree(comm, comm->rank ? 0 : -EDOM, error), -EDOM);
	assert_string_equal(error, "rank 0 has no luck");
	snprintf(error, sizeof(error), "words of %u", comm->rank);
	assert_int_equal(ranks_agree(comm, -EIO, error), -EIO);
	assert_string_equal(error, "words of 0");
	snprintf(error, sizeof(error), "words of %u", comm->rank);
	assert_int_equal(ranks_agree(comm, comm->rank == last ? -ENOSPC : 0, error), -ENOSPC);
	if (comm->world == 1)
		return;
	snprintf(expected, sizeof(expected), "rank %u of %u on ", last, comm->world);
	assert_ptr_equal(strstr(error, expected), error);
	snprintf(expected, sizeof(expected), ": words of %u", last);
	assert_non_null(strstr(error, expected));
}

/* A rank without memory still takes part, and receives the others' outcome. */
TEST(without_memory)
{
	unsigned last = comm->world - 1, other;
	uint64_t same = 7, own = comm->rank;
	for (int i = 0; i < 2; i++) {
		int outcome = i && comm->rank == last ? -ENOSPC : 0;
		snprintf(error, sizeof(error), "words of %u", comm->rank);
		exhausted = comm->rank == last;
		int agreed = ranks_agree(comm, outcome, error);
		int compared = ranks_compare(comm, i ? &own : &same, sizeof(same), &other, error);
		exhausted = false;
		assert_int_equal(agreed, i ? -ENOSPC : 0);
		assert_int_equal(compared, 0);
		assert_int_equal(other, i && comm->world > 1 ? 1 : comm->world);
	}
}

TEST(builds)
{
	unsigned last = comm->world - 1;
	char expected[64];
	assert_int_equal(ranks_check_build(comm, error), 0);
	rebuilt = comm->rank == last;
	int r = ranks_check_build(comm, error);
	rebuilt = false;
	assert_int_equal(r, last ? -EINVAL : 0);
	snprintf(expected, sizeof(expected), "rank %u runs another build", last);
	if (last)
		assert_non_null(strstr(error, expected));
}

TEST(recipes)
{
	struct recipe recipe;
	char problem[RECIPE_ERROR_MAX];
	assert_int_equal(recipe_init(&recipe), 0);
	if (comm->rank == 0) {
		assert_int_equal(recipe_override(&recipe, "data.train=here.pimg", problem), 0);
		assert_int_equal(recipe_override(&recipe, "optim.lr=0.123456789012345", problem),
				 0);
		assert_int_equal(recipe_override(&recipe, "schedule.milestones=1, 2.5", problem),
				 0);
	} else {
		assert_int_equal(recipe_override(&recipe, "data.val=there.pimg", problem), 0);
		assert_int_equal(recipe_override(&recipe, "optim.lr=7", problem), 0);
	}
	assert_int_equal(ranks_share_recipe(comm, &recipe, error), 0);
	assert_string_equal(recipe.data.train, "here.pimg");
	assert_string_equal(recipe.data.val, "");
	assert_true(recipe.optim.lr == 0.123456789012345);
	assert_int_equal(recipe.schedule.milestones.count, 2);
	assert_true(recipe.schedule.milestones.value[1] == 2.5);
	recipe_deinit(&recipe);
}

/*
 * Fills a slot with values specific to the rank. Returns the number of parameters that have the
 * slot.
 */
static unsigned fill(struct device_params *params, enum device_slot slot, float base)
{
	unsigned filled = 0;
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		size_t count = device_param_elements(param);
		float *values = malloc(count * sizeof(float));
		for (size_t k = 0; k < count; k++)
			values[k] = base + (float)(i + k % 100);
		filled += device_param_write(param, slot, values) == 0;
		free(values);
	}
	return filled;
}

static float first_value(struct device_param *param, enum device_slot slot)
{
	float *values = malloc(device_param_elements(param) * sizeof(float));
	assert_int_equal(device_param_read(param, slot, values), 0);
	float value = values[0];
	free(values);
	return value;
}

TEST(parameters)
{
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD, .ema = true};
	struct fixture fixture;
	float own = 1000 * (float)(1 + comm->rank);
	fixture_init(&fixture, "model.name=resnet_cifar model.depth=8 model.width=0.25", 10,
		     &optimizer);
	struct device_params *params = fixture.params;
	struct device_param *weight = device_params_at(params, 0),
			    *mean = device_params_find(params, "bn1.running_mean");
	assert_true(fill(params, DEVICE_VALUE, own) > fill(params, DEVICE_STATE, own + 1));
	fill(params, DEVICE_EMA, own + 2);

	/* share only running statistics */
	float index = first_value(mean, DEVICE_VALUE) - own;
	assert_int_equal(ranks_share_params(comm, params, true, error), 0);
	assert_true(first_value(mean, DEVICE_VALUE) == 1000 + index);
	assert_true(first_value(mean, DEVICE_EMA) == 1002 + index);
	assert_true(first_value(weight, DEVICE_VALUE) == own);
	if (comm->world > 1) {
		assert_int_equal(ranks_check_params(comm, params, error), -EDOM);
		assert_non_null(strstr(error, "the weights of rank 1 differ from those of rank 0"));
	}

	/* share all parameters */
	assert_int_equal(ranks_share_params(comm, params, false, error), 0);
	assert_int_equal(ranks_check_params(comm, params, error), 0);
	assert_true(first_value(weight, DEVICE_VALUE) == 1000);
	assert_true(first_value(weight, DEVICE_STATE) == 1001);
	assert_true(first_value(weight, DEVICE_EMA) == 1002);

	/* change one bit of one weight; running statistics may differ */
	unsigned last = comm->world - 1;
	size_t count = device_param_elements(weight);
	float *values = malloc(count * sizeof(float));
	assert_int_equal(device_param_read(weight, DEVICE_VALUE, values), 0);
	values[count - 1] = nextafterf(values[count - 1], 0);
	if (comm->rank == last)
		assert_int_equal(device_param_write(weight, DEVICE_VALUE, values), 0);
	assert_int_equal(ranks_check_params(comm, params, error), comm->world > 1 ? -EDOM : 0);
	assert_int_equal(device_param_write(weight, DEVICE_VALUE, values), 0);
	values[0] = (float)comm->rank;
	assert_int_equal(device_param_write(mean, DEVICE_VALUE, values), 0);
	assert_int_equal(ranks_check_params(comm, params, error), 0);
	free(values);
	fixture_deinit(&fixture);
}
