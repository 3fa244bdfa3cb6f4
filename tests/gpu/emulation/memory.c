/*
 * Memory of the emulated GPU, and host memory used in copies. New device memory has all bits set
 * (NaN in every element type) unless a test changes that. Under AddressSanitizer, only queued work
 * may access device memory.
 */
#include "tests/gpu/emulation/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes)   ((void)(memory), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#endif

#define ALIGNMENT 256

struct range {
	struct range *next;
	char *memory;
	uint64_t bytes;
	bool device, owned;
};

static struct {
	struct range *ranges; /* device memory and page-locked host memory */
	uint64_t limit, used; /* bytes of device memory */
	uint64_t allocations;
	bool no_read_only, no_registering;
	uint8_t fresh; /* fills newly allocated memory */
} held = {.fresh = 0xff};

void emulation_limit_memory(uint64_t bytes)
{
	held.limit = bytes;
}

void emulation_fresh_memory(uint8_t byte)
{
	held.fresh = byte;
}

void emulation_allow_registering(bool read_only, bool writable)
{
	held.no_read_only = !read_only;
	held.no_registering = !writable;
}

uint64_t emulation_allocations(void)
{
	return held.allocations;
}

static uint64_t memory_of_host(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void emulation_describe_memory(struct gpu_properties *properties)
{
	uint64_t total = held.limit ? held.limit : memory_of_host();

	properties->memory_total = total;
	properties->memory_free = total > held.used ? total - held.used : 0;
	properties->registers_read_only = !held.no_read_only;
}

void emulation_protect(bool on)
{
	for (struct range *range = held.ranges; range; range = range->next) {
		if (!range->device)
			continue;
		if (on)
			ASAN_POISON_MEMORY_REGION(range->memory, range->bytes);
		else
			ASAN_UNPOISON_MEMORY_REGION(range->memory, range->bytes);
	}
}

/* ---- memory ---- */

static struct range *range_of(const void *memory, uint64_t bytes, bool device)
{
	const char *from = memory;

	for (struct range *range = held.ranges; range; range = range->next)
		if (range->device == device && from >= range->memory &&
		    from + bytes <= range->memory + range->bytes)
			return range;
	return NULL;
}

static int add_range(void *memory, uint64_t bytes, bool device, bool owned)
{
	struct range *range = malloc(sizeof(*range));

	if (!range)
		return emulation_fail(-ENOMEM, "no memory for bookkeeping");
	*range = (struct range){held.ranges, memory, bytes, device, owned};
	held.ranges = range;
	return 0;
}

static void remove_range(void *memory, bool device, bool owned)
{
	struct range **at = &held.ranges;

	while (*at && ((*at)->memory != memory || (*at)->device != device || (*at)->owned != owned))
		at = &(*at)->next;
	struct range *range = *at;
	if (!range)
		abort(); /* freed twice, or never allocated */
	*at = range->next;
	if (device) {
		ASAN_UNPOISON_MEMORY_REGION(range->memory, range->bytes);
		held.used -= range->bytes;
	}
	free(range);
}

static int allocate(uint64_t bytes, bool device, void **ret_memory)
{
	uint64_t rounded = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
	void *memory;
	int r;

	held.allocations++;
	if (emulation_forbidden("allocating memory"))
		return -EIO;
	if (device && held.limit && held.used + rounded > held.limit)
		return emulation_fail(-ENOMEM, "out of emulated memory");
	memory = aligned_alloc(ALIGNMENT, rounded);
	if (!memory)
		return emulation_fail(-ENOMEM, "out of memory");
	memset(memory, held.fresh, rounded);
	r = add_range(memory, rounded, device, true);
	if (r < 0) {
		free(memory);
		return r;
	}
	if (device) {
		held.used += rounded;
		ASAN_POISON_MEMORY_REGION(memory, rounded);
	}
	*ret_memory = memory;
	return 0;
}

int gpu_allocate(uint64_t bytes, void **ret_memory)
{
	return allocate(bytes, true, ret_memory);
}

int gpu_allocate_host(uint64_t bytes, void **ret_memory)
{
	return allocate(bytes, false, ret_memory);
}

void gpu_free(void *memory)
{
	if (!memory)
		return;
	emulation_forbidden("freeing memory");
	emulation_drain();
	remove_range(memory, true, true);
	free(memory);
}

void gpu_free_host(void *memory)
{
	if (!memory)
		return;
	emulation_forbidden("freeing memory");
	emulation_drain();
	remove_range(memory, false, true);
	free(memory);
}

/*
 * Returns whether the process can write all of the range, according to /proc/self/maps, which is
 * sorted by address.
 */
static bool is_writable(const char *memory, uint64_t bytes)
{
	uintptr_t begin, end, next = (uintptr_t)memory;
	char line[4096], mode[5];
	FILE *maps = fopen("/proc/self/maps", "re");

	if (!maps)
		return false;
	while (next < (uintptr_t)memory + bytes && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, mode) == 3 &&
		    begin <= next && next < end) {
			if (mode[1] != 'w')
				break;
			next = end;
		}
	fclose(maps);
	return next >= (uintptr_t)memory + bytes;
}

int gpu_register_host(void *memory, uint64_t bytes, bool read_only)
{
	if (emulation_forbidden("registering host memory"))
		return -EIO;
	if (held.no_registering || (read_only && held.no_read_only))
		return emulation_fail(-ENOTSUP, "host memory cannot be registered%s",
				      held.no_registering ? "" : " read-only");
	if (!read_only && !is_writable(memory, bytes))
		return emulation_fail(
			-EIO, "host memory that is mapped read-only was registered as if it "
			      "were not");
	return add_range(memory, bytes, false, false);
}

void gpu_unregister_host(void *memory)
{
	emulation_drain();
	remove_range(memory, false, false);
}

/* ---- copies ---- */

struct copy {
	void *to;
	const void *from;
	uint64_t bytes;
};

static void run_copy(const void *arguments)
{
	const struct copy *copy = arguments;

	memcpy(copy->to, copy->from, copy->bytes);
}

/*
 * Copies between device and host. With pageable host memory, CUDA leaves open whether the call
 * waits; the emulation does not.
 */
static int copy_host(const struct copy *copy, const void *device, const void *host,
		     gpu_stream stream)
{
	if (!copy->bytes)
		return 0;
	if (!range_of(device, copy->bytes, true))
		return emulation_fail(-EIO, "a copy with what is not device memory");
	if (!range_of(host, copy->bytes, false) && emulation_void_capture(stream))
		return emulation_fail(-EIO, "a copy with pageable memory is captured");
	return emulation_queue(stream, run_copy, copy, sizeof(*copy));
}

int gpu_copy_in(void *device, const void *host, uint64_t bytes, gpu_stream stream)
{
	return copy_host(&(struct copy){device, host, bytes}, device, host, stream);
}

int gpu_copy_out(void *host, const void *device, uint64_t bytes, gpu_stream stream)
{
	return copy_host(&(struct copy){host, device, bytes}, device, host, stream);
}

int gpu_copy(void *to, const void *from, uint64_t bytes, gpu_stream stream)
{
	struct copy copy = {to, from, bytes};

	if (!bytes)
		return 0;
	if (!range_of(to, bytes, true) || !range_of(from, bytes, true))
		return emulation_fail(-EIO, "a copy between what is not device memory");
	return emulation_queue(stream, run_copy, &copy, sizeof(copy));
}

struct fill {
	void *memory;
	uint64_t bytes;
	uint8_t value;
};

static void run_fill(const void *arguments)
{
	const struct fill *fill = arguments;

	memset(fill->memory, fill->value, fill->bytes);
}

int gpu_fill(void *memory, uint8_t value, uint64_t bytes, gpu_stream stream)
{
	struct fill fill = {memory, bytes, value};

	if (!bytes)
		return 0;
	if (!range_of(memory, bytes, true))
		return emulation_fail(-EIO, "filling what is not device memory");
	return emulation_queue(stream, run_fill, &fill, sizeof(fill));
}
