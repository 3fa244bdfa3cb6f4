/* Copy-on-write pages of a client: the client sees its own writes, other processes do not. */
#include "tests/unit/proto/fake_ring.h"
#include "tests/unit/proto/ring_pair.h"

#include <sys/mman.h>
#include <sys/syscall.h>

enum { SIZE = 64 << 10, HALF = SIZE / 2 };

struct memory {
	int fd;
	char *shared;
	struct own_pages own;
};

static void memory_init(struct memory *memory, size_t granularity)
{
	memory->fd = memfd_create("test", MFD_CLOEXEC);
	assert_true(memory->fd >= 0);
	assert_int_equal(ftruncate(memory->fd, SIZE), 0);
	memory->shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
	assert_ptr_not_equal(memory->shared, MAP_FAILED);
	assert_int_equal(own_pages_init(&memory->own, memory->fd, SIZE, granularity), 0);
	assert_int_equal(memory->own.copies, granularity % (size_t)sysconf(_SC_PAGESIZE) != 0);
}

static void memory_deinit(struct memory *memory)
{
	own_pages_deinit(&memory->own);
	own_pages_deinit(&memory->own);
	munmap(memory->shared, SIZE);
	close(memory->fd);
}

static void assert_all(const char *bytes, int value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		assert_int_equal(bytes[i], value);
}

/*
 * Shows several states of each half and overwrites some of them privately. Each state must be shown
 * completely, and the private writes must not reach the shared memory.
 */
static void show_states(size_t granularity)
{
	struct memory memory;
	memory_init(&memory, granularity);
	for (int state = 1; state < 20; state++) {
		size_t offset = state % 2 * HALF;
		memset(memory.shared + offset, state, HALF);
		char *shown = own_pages_show(&memory.own, memory.shared, offset, HALF);
		assert_all(shown, state, HALF);
		if (state % 3 != 0)
			memset(shown + (state % 5) * 4096, -1, 4096);
		if (state % 3 == 2)
			shown[HALF - 1] = -1;
		assert_all(memory.shared + offset, state, HALF);
	}
	/* showing one half does not affect private data in the other one */
	char *held = own_pages_show(&memory.own, memory.shared, 0, HALF);
	held[5] = 99;
	memset(memory.shared + HALF, 50, HALF);
	assert_all(own_pages_show(&memory.own, memory.shared, HALF, HALF), 50, HALF);
	assert_int_equal(held[5], 99);
	memory_deinit(&memory);
}

TEST(every_state_is_whole)
{
	if (getenv("MESON_EXE_WRAPPER"))
		skip(); /* qemu does not emulate the page table interface */
	show_states(4096);
}

TEST(every_copy_is_whole)
{
	show_states(64);
}

static void kept_bytes_stay(size_t granularity)
{
	struct memory memory;
	memory_init(&memory, granularity);
	memset(memory.shared, 1, SIZE);
	char *shown = own_pages_show(&memory.own, memory.shared, 0, SIZE);
	shown[7] = 9;
	own_pages_keep(&memory.own, 0, HALF);
	memset(memory.shared, 2, HALF);
	assert_int_equal(shown[7], 9);
	shown[7] = 1;
	assert_all(shown, 1, HALF);
	assert_all(own_pages_show(&memory.own, memory.shared, 0, HALF), 2, HALF);
	memory_deinit(&memory);
}

TEST(private_copies_stay)
{
	kept_bytes_stay(64);
	if (!getenv("MESON_EXE_WRAPPER"))
		kept_bytes_stay(4096);
}

/*
 * The kernel copies locked pages even if they are not written to, and does not drop them like
 * others.
 */
TEST(locked_pages_follow)
{
	if (getenv("MESON_EXE_WRAPPER"))
		skip();
	struct memory memory;
	memory_init(&memory, 4096);
	memset(memory.shared, 1, SIZE);
	/* Use the system call, because the sanitizers' mlock() does nothing. */
	if (syscall(SYS_mlock, memory.own.memory, SIZE) < 0) {
		memory_deinit(&memory);
		skip();
	}
	memset(memory.shared, 2, SIZE);
	assert_int_equal(memory.own.memory[0], 1); /* the private copy has the old contents */
	assert_all(own_pages_show(&memory.own, memory.shared, 0, SIZE), 2, SIZE);
	memory_deinit(&memory);
}

/* A ring: after the client has overwritten a slot, the slot shows its next batch correctly. */
TEST(slots_come_back)
{
	struct ring_geometry geometry = small_geometry(2);
	struct pair pair;
	if (getenv("MESON_EXE_WRAPPER"))
		skip();
	assert_int_equal(fake_ring_init(&pair.producer, &geometry), 0);
	pair_connect(&pair, RING_MAP_OWN);
	for (uint64_t number = 1; number < 10; number++) {
		publish(&pair.producer);
		const struct ring_slot *slot = ring_take(&pair.consumer);
		char *shown = (char *)ring_show(&pair.consumer, slot);
		struct ring_slot copy;
		ring_copy_slot((const struct ring_slot *)shown, &copy);
		assert_int_equal(copy.number, number);
		memset(shown, 0xee, pair.consumer.layout.slot_size);
		assert_int_equal(slot->number, number);
		assert_int_equal(ring_ack(&pair.consumer, number) >= 0, 1);
	}
	pair_deinit(&pair);
}
