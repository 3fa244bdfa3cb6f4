/*
 * The emulated GPU that other tests rely on: queued work runs late, in order, and replays with
 * frozen arguments; elements round to nearest even.
 */
#include "tests/gpu/emulation/element.h"
#include "tests/gpu/emulation/queue.h"
#include "tests/test.h"

#include <math.h>
#include <sys/mman.h>

struct fixture {
	gpu_stream stream, other;
	gpu_event event;
	uint32_t *host, *device; /* [4] */
};

static void open_fixture(struct fixture *f)
{
	struct gpu_properties properties;
	void *memory;

	assert_int_equal(gpu_select(0, &properties), 0);
	assert_int_equal(gpu_select(4, &properties), -ENODEV);
	assert_int_equal(gpu_stream_new(&f->stream), 0);
	assert_int_equal(gpu_stream_new(&f->other), 0);
	assert_int_equal(gpu_event_new(false, &f->event), 0);
	assert_int_equal(gpu_allocate_host(16, &memory), 0);
	f->host = memory;
	assert_int_equal(gpu_allocate(16, &memory), 0);
	f->device = memory;
}

static void close_fixture(struct fixture *f)
{
	gpu_free(f->device);
	gpu_free_host(f->host);
	gpu_event_free(f->event);
	gpu_stream_free(f->other);
	gpu_stream_free(f->stream);
}

struct add {
	uint32_t *to, value;
};

static void run_add(const void *arguments)
{
	const struct add *add = arguments;

	*add->to += add->value;
}

static void queue_add(struct fixture *f, gpu_stream stream, uint32_t value)
{
	struct add add = {f->device, value};

	assert_int_equal(emulation_queue(stream, run_add, &add, sizeof(add)), 0);
}

static uint32_t read_device(struct fixture *f)
{
	uint32_t value;

	assert_int_equal(gpu_copy_out(&value, f->device, 4, f->stream), 0);
	assert_int_equal(gpu_stream_synchronize(f->stream), 0);
	return value;
}

/* Host memory is read and written when the copy runs, page-locked or not. */
TEST(late)
{
	struct fixture f;
	uint32_t pageable = 5, copied = 5;

	open_fixture(&f);
	assert_int_equal(read_device(&f), UINT32_MAX);
	f.host[0] = 1;
	assert_int_equal(gpu_copy_in(f.device, f.host, 4, f.stream), 0);
	assert_int_equal(gpu_event_record(f.event, f.stream), 0);
	f.host[0] = 2;
	assert_int_equal(gpu_event_query(f.event), -EAGAIN);
	assert_int_equal(gpu_event_query(f.event), 0);
	f.host[0] = 3;
	assert_int_equal(read_device(&f), 2);
	assert_int_equal(gpu_copy_in(f.device, &pageable, 4, f.stream), 0);
	pageable = 6;
	assert_int_equal(gpu_copy_out(&copied, f.device, 4, f.stream), 0);
	assert_int_equal(copied, 5);
	assert_int_equal(read_device(&f), 6);
	assert_int_equal(copied, 6);
	assert_int_equal(gpu_fill(f.device, 1, 4, f.stream), 0);
	assert_int_equal(read_device(&f), 0x01010101);
	assert_int_equal(gpu_copy_in(f.host, f.device, 4, f.stream), -EIO);
	close_fixture(&f);
}

TEST(order)
{
	struct fixture f;

	open_fixture(&f);
	gpu_fill(f.device, 0, 4, f.other);
	queue_add(&f, f.other, 1);
	gpu_event_record(f.event, f.other);
	queue_add(&f, f.other, 10);
	/* work of the other stream is visible only after a wait, and then only up to the event */
	assert_int_equal(read_device(&f), UINT32_MAX);
	assert_int_equal(gpu_stream_wait(f.stream, f.event), 0);
	queue_add(&f, f.stream, 100);
	assert_int_equal(read_device(&f), 101);
	assert_int_equal(gpu_stream_synchronize(f.other), 0);
	assert_int_equal(read_device(&f), 111);
	close_fixture(&f);
}

TEST(capture)
{
	struct fixture f;
	gpu_graph graph;
	gpu_event back;

	open_fixture(&f);
	assert_int_equal(gpu_event_new(false, &back), 0);
	f.host[0] = 1;
	assert_int_equal(gpu_capture_begin(f.stream), 0);
	gpu_copy_in(f.device, f.host, 4, f.stream);
	gpu_event_record(f.event, f.stream);
	gpu_stream_wait(f.other, f.event);
	queue_add(&f, f.other, 10);
	gpu_event_record(back, f.other);
	assert_int_equal(gpu_stream_wait(f.stream, back), 0);
	queue_add(&f, f.stream, 100);
	assert_int_equal(gpu_capture_end(f.stream, &graph), 0);
	/* nothing has run; each replay reads memory again */
	assert_int_equal(read_device(&f), UINT32_MAX);
	for (uint32_t i = 0; i < 3; i++) {
		f.host[0] = i * 1000;
		assert_int_equal(gpu_graph_launch(graph, f.stream), 0);
		assert_int_equal(read_device(&f), i * 1000 + 110);
	}
	gpu_graph_free(graph);
	/* a stream that is not joined back */
	assert_int_equal(gpu_capture_begin(f.stream), 0);
	gpu_event_record(f.event, f.stream);
	gpu_stream_wait(f.other, f.event);
	queue_add(&f, f.other, 1);
	assert_int_equal(gpu_capture_end(f.stream, &graph), -EIO);
	assert_non_null(strstr(gpu_error(), "joined"));
	gpu_event_free(back);
	close_fixture(&f);
}

/*
 * Invalidates a capture with a call that must fail, selected by number; returns false if there are
 * no more.
 */
static bool invalidate_capture(struct fixture *f, unsigned way)
{
	gpu_event outside;
	void *memory;
	uint32_t pageable;

	switch (way) {
	case 0:
		assert_int_equal(gpu_stream_synchronize(f->stream), -EIO);
		return true;
	case 1:
		assert_int_equal(gpu_stream_synchronize(f->other), -EIO);
		return true;
	case 2:
		assert_int_equal(gpu_event_query(f->event), -EIO);
		return true;
	case 3:
		assert_int_equal(gpu_event_synchronize(f->event), -EIO);
		return true;
	case 4:
		assert_int_equal(gpu_allocate(16, &memory), -EIO);
		return true;
	case 5:
		assert_int_equal(gpu_register_host(f, sizeof(*f), true), -EIO);
		return true;
	case 6:
		assert_int_equal(gpu_copy_in(f->device, &pageable, 4, f->stream), -EIO);
		return true;
	case 7:
		assert_int_equal(gpu_copy_out(&pageable, f->device, 4, f->stream), -EIO);
		return true;
	case 8:
		assert_int_equal(gpu_event_new(false, &outside), 0);
		assert_int_equal(gpu_event_record(outside, f->other), 0);
		assert_int_equal(gpu_stream_wait(f->stream, outside), -EIO);
		gpu_event_free(outside);
		return true;
	default:
		return false;
	}
}

TEST(forbidden)
{
	struct fixture f;
	gpu_graph graph;

	open_fixture(&f);
	for (unsigned way = 0;; way++) {
		assert_int_equal(gpu_capture_begin(f.stream), 0);
		gpu_fill(f.device, 1, 4, f.stream);
		bool spoilt = invalidate_capture(&f, way);
		assert_int_equal(gpu_capture_end(f.stream, &graph), spoilt ? -EIO : 0);
		if (!spoilt)
			break;
		assert_non_null(strstr(gpu_error(), "void"));
	}
	gpu_graph_free(graph);
	close_fixture(&f);
}

TEST(memory)
{
	struct fixture f;
	void *memory;
	uint64_t before;

	open_fixture(&f);
	before = emulation_allocations();
	emulation_limit_memory(1 << 20);
	assert_int_equal(gpu_allocate(2 << 20, &memory), -ENOMEM);
	emulation_limit_memory(0);
	assert_int_equal(gpu_allocate(2 << 20, &memory), 0);
	gpu_free(memory);
	assert_true(emulation_allocations() > before);
	emulation_allow_registering(false, true);
	assert_int_equal(gpu_register_host(&f, sizeof(f), true), -ENOTSUP);
	assert_int_equal(gpu_register_host(&f, sizeof(f), false), 0);
	gpu_unregister_host(&f);
	emulation_allow_registering(true, true);
	/* two pages, the second mapped read-only */
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(mprotect(pages + 4096, 4096, PROT_READ), 0);
	assert_int_equal(gpu_register_host(pages, 8192, false), -EIO);
	assert_int_equal(gpu_register_host(pages, 4096, false), 0);
	gpu_unregister_host(pages);
	assert_int_equal(gpu_register_host(pages, 8192, true), 0);
	gpu_unregister_host(pages);
	munmap(pages, 8192);
	close_fixture(&f);
}

TEST(elements)
{
	for (uint32_t i = 0; i < 0x10000; i++) {
		uint16_t half = (uint16_t)i;
		float value = half_to_float(half), next = half_to_float((uint16_t)(i + 1));
		bool nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);

		if (nan) {
			assert_true(isnan(value));
			assert_true(isnan(half_to_float(float_to_half(value))));
			continue;
		}
		assert_int_equal(float_to_half(value), half);
		/* exactly halfway rounds to the even value, a little more does not */
		if ((i & 0x7fff) < 0x7bff) {
			float middle = (value + next) / 2;

			assert_int_equal(float_to_half(middle), i & 1 ? i + 1 : i);
			assert_int_equal(float_to_half(nextafterf(middle, next)), i + 1);
		}
		assert_int_equal(float_to_bfloat(bfloat_to_float(half)), half);
	}
	assert_int_equal(float_to_half(65519.f), 0x7bff);
	assert_int_equal(float_to_half(65520.f), 0x7c00);
	assert_int_equal(float_to_half(-INFINITY), 0xfc00);
	assert_int_equal(float_to_bfloat(1 + 0x1p-8f), 0x3f80);
	assert_int_equal(float_to_bfloat(1 + 3 * 0x1p-8f), 0x3f82);
	assert_true(isnan(bfloat_to_float(float_to_bfloat(NAN))));
}
