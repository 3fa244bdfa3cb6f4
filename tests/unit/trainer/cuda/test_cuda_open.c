/*
 * Errors if no GPU can be opened, from the CUDA runtime with driver_without_gpus.c in place of the
 * driver (LD_LIBRARY_PATH). The runtime queries the driver only once, so each attempt runs in a
 * separate process.
 */
#include "tests/test.h"
#include "trainer/device/device.h"

#include <sys/wait.h>

struct outcome {
	int result;
	char error[DEVICE_ERROR_MAX];
};

static struct outcome open_with(const char *driver_version, const char *backend)
{
	struct outcome outcome = {0};
	struct device *device;
	int ends[2], status;

	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		setenv("DRIVER_VERSION", driver_version, 1);
		outcome.result = device_open(backend, NULL, &device, outcome.error);
		_exit(write(ends[1], &outcome, sizeof(outcome)) != sizeof(outcome));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(read(ends[0], &outcome, sizeof(outcome)), sizeof(outcome));
	close(ends[0]);
	close(ends[1]);
	return outcome;
}

static void expect(const char *driver_version, const char *words, const char *remedy)
{
	struct outcome outcome = open_with(driver_version, "cuda");

	assert_int_equal(outcome.result, -ENODEV);
	if (!strstr(outcome.error, words) || !strstr(outcome.error, remedy))
		fail_msg("\"%s\" and \"%s\" are not both in: %s", words, remedy, outcome.error);
	/* without an explicit device the CPU is opened, and the error has the same reason */
	outcome = open_with(driver_version, NULL);
	assert_int_equal(outcome.result, 0);
	assert_non_null(strstr(outcome.error, words));
}

TEST(no_driver)
{
	expect("0", "no NVIDIA driver was found", "start it with access to the GPU");
}

/* Older than any toolkit with cuDNN 9. */
TEST(old_driver)
{
	expect("10020", "the NVIDIA driver supports CUDA 10.2, this program was built with CUDA 1",
	       "install a newer driver");
}

TEST(no_gpu)
{
	expect("99000", "the NVIDIA driver shows no GPU", "CUDA_VISIBLE_DEVICES");
}
