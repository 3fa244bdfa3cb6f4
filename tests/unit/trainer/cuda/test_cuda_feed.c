/*
 * Input and output of steps on the emulated GPU: batches fed while it computes, of every element
 * and from every kind of memory, and results.
 */
#include "tests/gpu/emulation/queue.h"
#include "tests/unit/trainer/cuda/cuda_run_test.h"

#include <math.h>
#include <sys/mman.h>

/*
 * Computes the losses of a run that feeds from two buffers in turn and overwrites each one as soon
 * as the device has released it. `seen` is the mapping of the buffers that the device reads.
 */
static void feed_ahead(struct net *net, struct batch *place, const struct batch *seen,
		       unsigned steps, double *ret_losses)
{
	struct device_hyper hyper = hyper_at(0);
	struct device_batch images;
	struct device_results results;
	uint64_t number, ticket;

	for (unsigned t = 0; t < steps; t++) {
		make_batch(&place[t % 2], t);
		images = view(&seen[t % 2]);
		assert_int_equal(device_upload(net->graph, &images, &ticket), 0);
		assert_int_equal(device_upload(net->graph, &images, &number), -EBUSY);
		assert_int_equal(device_step(net->graph, &hyper, &number), 0);
		assert_int_equal(number, t + 1);
		/* the copy may still be running: nothing has waited for this step */
		while (device_upload_done(net->graph, ticket, t % 4 == 3) == -EAGAIN)
			;
		memset(&place[t % 2], 0xee, sizeof(place[0]));
	}
	for (unsigned t = 0; t < steps; t++) {
		assert_int_equal(device_results(net->graph, t + 1, true, &results), 0);
		assert_int_equal(results.samples, SAMPLES);
		ret_losses[t] = results.loss;
	}
}

TEST(feeding)
{
	enum { BYTES = 8192 };
	int fd = memfd_create("batches", MFD_CLOEXEC);
	double expected[9], losses[9];
	struct batch *place;
	char *seen;
	struct net net;

	assert_true(2 * sizeof(*place) <= BYTES);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	place = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, true);
	feed_ahead(&net, place, place, 9, expected);
	close_net(&net);
	/* memory that can be registered read-only, only writable, or not at all */
	for (unsigned way = 0; way < 3; way++) {
		seen = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
		emulation_allow_registering(way < 1, way < 2);
		open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
		int r = device_register_host(net.device, seen, BYTES, false);
		assert_int_equal(r, way < 1 ? 0 : DEVICE_WANTS_WRITABLE);
		if (way) {
			assert_non_null(strstr(device_error(net.device), "mapped read-only"));
			assert_int_equal(mprotect(seen, BYTES, PROT_READ | PROT_WRITE), 0);
			r = device_register_host(net.device, seen, BYTES, true);
			assert_int_equal(r, way < 2 ? 0 : DEVICE_STAGED);
		}
		if (way == 2)
			assert_non_null(
				strstr(device_error(net.device), "could not be registered"));
		assert_int_equal(device_register_host(net.device, seen + 4096, 4096, way), -EEXIST);
		feed_ahead(&net, place, (const struct batch *)seen, 9, losses);
		assert_memory_equal(losses, expected, sizeof(losses));
		device_unregister_host(net.device, seen);
		/* the memory can be registered again */
		assert_int_equal(device_register_host(net.device, seen, BYTES, way), r);
		device_unregister_host(net.device, seen);
		close_net(&net);
		munmap(seen, BYTES);
	}
	emulation_allow_registering(true, true);
	munmap(place, BYTES);
	close(fd);
}

/* Only a batch of wider elements than before allocates memory. */
TEST(elements)
{
	static float floats[SAMPLES * IMAGE];
	struct batch batch;
	struct device_batch images;
	struct device_results bytes, wide;
	struct net net;
	uint64_t number, allocations;

	open_emulated(&net, DEVICE_FP32, DEVICE_FUSION_B, false);
	bytes = results_of(&net, step(&net, 0, false));
	device_params_drop_gradients(net.params);
	make_batch(&batch, 0);
	for (unsigned i = 0; i < SAMPLES * IMAGE; i++)
		floats[i] = ((float)batch.images[i] - (float[]){120, 115, 100}[i % 3]) /
			    (float[]){60, 58, 57}[i % 3];
	images = view(&batch);
	images.images = floats;
	images.element = DEVICE_ELEMENT_F32;
	for (unsigned i = 0; i < 3; i++) {
		allocations = emulation_allocations();
		assert_int_equal(device_upload(net.graph, &images, &number), 0);
		assert_int_equal(device_step(net.graph, NULL, &number), 0);
		wide = results_of(&net, number);
		assert_true(fabs(wide.loss - bytes.loss) < 1e-5);
		device_params_drop_gradients(net.params);
	}
	assert_int_equal(emulation_allocations(), allocations);
	close_net(&net);
}

TEST(results)
{
	struct device_results results;
	struct net net;
	uint64_t number = 0;

	open_emulated(&net, DEVICE_FP32, DEVICE_FUSION_C, false);
	for (unsigned t = 0; t < DEVICE_RESULTS_MAX + 6; t++)
		number = step(&net, t, true);
	assert_int_equal(number, DEVICE_RESULTS_MAX + 6);
	assert_int_equal(device_results(net.graph, number, false, &results), -EAGAIN);
	assert_int_equal(device_results(net.graph, 6, true, &results), -ERANGE);
	assert_int_equal(device_results(net.graph, number + 1, true, &results), -ERANGE);
	assert_int_equal(device_results(net.graph, number, true, &results), 0);
	for (uint64_t i = 7; i <= number; i++) {
		assert_int_equal(device_results(net.graph, i, false, &results), 0);
		assert_int_equal(results.step, i);
		assert_true(results.updated);
	}
	number = step(&net, 0, true);
	assert_int_equal(device_synchronize(net.device), 0);
	assert_int_equal(device_results(net.graph, number, false, &results), 0);
	close_net(&net);
}
