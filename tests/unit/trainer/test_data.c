/*
 * Parameters of the trainer's requests to the daemon, as far as they can be computed without a
 * daemon.
 */
#include "tests/test.h"
#include "trainer/run/input/data.h"

/*
 * The number of threads depends on the CPUs of the machine's ranks, which a scheduler may restrict.
 */
TEST(threads_of_the_daemon)
{
	struct comm comm = {.world = 1};
	struct recipe_data recipe = {.threads = 0};
	for (int i = 100; i < 112; i++)
		CPU_SET(i, &comm.cpus);
	assert_int_equal(data_daemon_threads(&recipe, &comm, true), 3);
	assert_int_equal(data_daemon_threads(&recipe, &comm, false), 0);
	recipe.threads = 7;
	assert_int_equal(data_daemon_threads(&recipe, &comm, true), 7);
	assert_int_equal(data_daemon_threads(&recipe, &comm, false), 7);
	recipe.threads = 0;
	CPU_ZERO(&comm.cpus);
	CPU_SET(5, &comm.cpus);
	assert_int_equal(data_daemon_threads(&recipe, &comm, true), 1);
}
