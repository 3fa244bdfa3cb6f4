/*
 * Every operation between ranks, for any number of ranks: run directly, and under mpirun. The
 * environment variable COMM_WORLD is the expected number.
 */
#include "tests/test.h"
#include "trainer/device/comm/comm.h"

#include <sched.h>

#define SUMS  6
#define COUNT 300000 /* elements; more than any transport sends at once */

static struct comm *comm;

/* The launcher bound each rank to one CPU: no two ranks share a CPU, and together they use all. */
static void test_bound(void **state)
{
	cpu_set_t *all = calloc(comm->world, sizeof(*all)), mine, together;

	assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
	assert_int_equal(comm_gather(comm, &mine, sizeof(mine), all), 0);
	CPU_ZERO(&together);
	for (unsigned i = 0; i < comm->world; i++) {
		assert_int_equal(CPU_COUNT(&all[i]), 1);
		CPU_OR(&together, &together, &all[i]);
	}
	assert_true(CPU_EQUAL(&comm->cpus, &together));
	assert_int_equal(comm->sharers, 1);
	free(all);
}

/* Returns a value that differs for every rank and index, and whose sums are exact. */
static double value(unsigned rank, unsigned sum, size_t i)
{
	return (double)((rank + 1) * 7 + sum * 3 + i % 1000) / 8;
}

static double total(unsigned sum, size_t i)
{
	double all = 0;

	for (unsigned rank = 0; rank < comm->world; rank++)
		all += value(rank, sum, i);
	return all;
}

TEST(place)
{
	const char *world = getenv("COMM_WORLD");
	struct {
		unsigned rank, local_rank, leader;
	} mine = {comm->rank, comm->local_rank, comm->leader}, *all;
	cpu_set_t own;

	assert_int_equal(comm->world, world ? atoi(world) : 1);
	assert_true(comm->rank < comm->world);
	/* mpirun does not bind here, and all ranks are on one machine */
	assert_int_equal(comm->local_world, comm->world);
	assert_int_equal(comm->sharers, comm->world);
	assert_int_equal(sched_getaffinity(0, sizeof(own), &own), 0);
	assert_true(CPU_EQUAL(&comm->cpus, &own));
	all = calloc(comm->world, sizeof(*all));
	assert_int_equal(comm_gather(comm, &mine, sizeof(mine), all), 0);
	for (unsigned i = 0; i < comm->world; i++) {
		assert_int_equal(all[i].rank, i);
		assert_int_equal(all[i].local_rank, i);
		assert_int_equal(all[i].leader, 0);
	}
	free(all);
}

TEST(sums)
{
	float *floats[SUMS];
	double *doubles = malloc(COUNT * sizeof(*doubles));
	unsigned requests[SUMS];

	/* start several sums, run another operation, and wait in another order */
	for (unsigned s = 0; s < SUMS; s++) {
		floats[s] = malloc(COUNT * sizeof(float));
		for (size_t i = 0; i < COUNT; i++)
			floats[s][i] = (float)value(comm->rank, s, i);
		assert_int_equal(comm_sum_start(comm, floats[s], s ? COUNT / s : COUNT, COMM_FLOAT,
						&requests[s]),
				 0);
		assert_int_equal(comm_progress(comm), 0);
	}
	for (size_t i = 0; i < COUNT; i++)
		doubles[i] = value(comm->rank, 9, i);
	assert_int_equal(comm_sum(comm, doubles, COUNT, COMM_DOUBLE), 0);
	for (unsigned s = SUMS; s-- > 0;) {
		size_t count = s ? COUNT / s : COUNT;

		assert_int_equal(comm_wait(comm, requests[s]), 0);
		for (size_t i = 0; i < COUNT; i++)
			assert_true((double)floats[s][i] ==
				    (i < count ? total(s, i) : value(comm->rank, s, i)));
		free(floats[s]);
	}
	for (size_t i = 0; i < COUNT; i++)
		assert_true(doubles[i] == total(9, i));
	free(doubles);
}

/* Sums that need rounding are bitwise equal on all ranks. */
TEST(same_bits)
{
	static const size_t counts[] = {1, 3, 1000, COUNT};

	for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
		size_t size = counts[k] * sizeof(float);
		float *mine = malloc(size), *all = malloc(size * comm->world);

		for (size_t i = 0; i < counts[k]; i++)
			mine[i] = 1.0f / (float)(i + 1 + comm->rank * 17);
		assert_int_equal(comm_sum(comm, mine, counts[k], COMM_FLOAT), 0);
		assert_int_equal(comm_gather(comm, mine, size, all), 0);
		for (unsigned rank = 0; rank < comm->world; rank++)
			assert_memory_equal(all + rank * counts[k], mine, size);
		free(mine);
		free(all);
	}
}

/* Every rank ends with the sum of its part; then every part goes to all. */
TEST(scattered_and_gathered)
{
	static const size_t counts[] = {1, 16, 1000, COUNT};

	for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
		size_t count = counts[k], all = count * comm->world;
		struct comm_sent before = comm->sent;
		float *values = malloc(all * sizeof(*values));
		unsigned request, other;
		double one = 1;

		for (size_t i = 0; i < all; i++)
			values[i] = (float)value(comm->rank, 2, i);
		assert_int_equal(
			comm_reduce_scatter_start(comm, values, count, COMM_FLOAT, &request), 0);
		assert_int_equal(comm_sum_start(comm, &one, 1, COMM_DOUBLE, &other), 0);
		assert_int_equal(comm_wait(comm, request), 0);
		for (size_t i = comm->rank * count; i < (comm->rank + 1) * count; i++)
			assert_true((double)values[i] == total(2, i));
		for (size_t i = 0; i < all; i++)
			if (i / count != comm->rank)
				values[i] = -1;
		assert_int_equal(comm_all_gather_start(comm, values, count * sizeof(*values),
						       COMM_BYTE, &request),
				 0);
		assert_int_equal(comm_wait(comm, request), 0);
		assert_int_equal(comm_wait(comm, other), 0);
		for (size_t i = 0; i < all; i++)
			assert_true((double)values[i] == total(2, i));
		assert_true(one == comm->world);
		assert_int_equal(comm->sent.reduce_scatters - before.reduce_scatters,
				 count * sizeof(float) * (comm->world - 1));
		assert_int_equal(comm->sent.all_gathers - before.all_gathers,
				 count * sizeof(float) * (comm->world - 1));
		assert_int_equal(comm->sent.sums - before.sums,
				 2 * sizeof(double) * (comm->world - 1) / comm->world);
		free(values);
	}
}

/* Even and odd ranks sum apart from each other, between sums of all. */
TEST(groups)
{
	struct comm *group;
	unsigned request;
	double sums[2] = {comm->rank, 1}, ranks = 1;

	assert_int_equal(comm_split(comm, comm->rank % 2, &group), 0);
	assert_int_equal(group->world, (comm->world + 1 - comm->rank % 2) / 2);
	assert_int_equal(group->rank, comm->rank / 2);
	assert_int_equal(group->local_world, comm->local_world);
	assert_int_equal(comm_sum_start(comm, &ranks, 1, COMM_DOUBLE, &request), 0);
	assert_int_equal(comm_sum(group, sums, 2, COMM_DOUBLE), 0);
	assert_int_equal(comm_wait(comm, request), 0);
	assert_true(ranks == comm->world);
	assert_true(sums[1] == group->world);
	assert_true(sums[0] ==
		    (double)(group->world - 1) * group->world + comm->rank % 2 * group->world);
	comm_close(group);
}

TEST(broadcast)
{
	char text[100];

	for (unsigned root = 0; root < comm->world; root++) {
		snprintf(text, sizeof(text), "rank %u speaks", comm->rank);
		assert_int_equal(comm_broadcast(comm, text, sizeof(text), root), 0);
		assert_int_equal(strtoul(text + 5, NULL, 10), root);
	}
}

TEST(too_many)
{
	static float values[COMM_REQUESTS_MAX + 1];
	unsigned requests[COMM_REQUESTS_MAX + 1];

	assert_int_equal(comm_sum_start(comm, values, COMM_COUNT_MAX + 1, COMM_FLOAT, requests),
			 -EINVAL);
	assert_non_null(strstr(comm_error(comm), "elements"));
	if (comm->world == 1)
		return;
	for (unsigned i = 0; i < COMM_REQUESTS_MAX; i++)
		assert_int_equal(comm_sum_start(comm, &values[i], 1, COMM_FLOAT, &requests[i]), 0);
	assert_int_equal(comm_sum_start(comm, &values[COMM_REQUESTS_MAX], 1, COMM_FLOAT,
					&requests[COMM_REQUESTS_MAX]),
			 -EBUSY);
	for (unsigned i = 0; i < COMM_REQUESTS_MAX; i++)
		assert_int_equal(comm_wait(comm, requests[i]), 0);
}

/* Binds the process to CPU number `rank` of those that it may run on. */
static void bind_to(const char *rank)
{
	cpu_set_t allowed, one;
	int skip = rank ? atoi(rank) : 0;

	sched_getaffinity(0, sizeof(allowed), &allowed);
	if (skip >= CPU_COUNT(&allowed)) {
		printf("skipped: there are only %d CPUs\n", CPU_COUNT(&allowed));
		exit(77);
	}
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && skip-- == 0)
			CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

int main(void)
{
	const struct CMUnitTest bound[] = {cmocka_unit_test(test_bound)};
	char error[COMM_ERROR_MAX];

	/* before the ranks query their CPUs */
	if (getenv("COMM_BIND"))
		bind_to(getenv("OMPI_COMM_WORLD_RANK"));
	if (comm_open(&comm, error) < 0) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	int failed = getenv("COMM_BIND") ? cmocka_run_group_tests(bound, NULL, NULL)
					 : test_run(NULL, NULL);
	/* other ranks may be waiting in a collective that this rank has skipped */
	if (failed)
		comm_abort(comm, "a test failed");
	comm_close(comm);
	return 0;
}
