#include "proto/ring.h"

#include "format/base/copy_once.h"
#include "format/base/system/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/*
 * Memory ordering. Each direction is the store-buffer pattern: one side stores its update and then
 * loads the other's waiting word; the other side stores its waiting word and then loads the update.
 * All four accesses are memory_order_seq_cst. In their total order one of the two stores comes
 * first, so at least one of the two loads sees the other side's store: either the doorbell is sent,
 * or the check before the wait succeeds. The same stores are releases and the same loads acquires.
 * This makes the slot's bytes visible to the client, and orders the client's last read of them
 * before the daemon's next write.
 */

/* Missing in the oldest headers that we support; kernels without them return EINVAL. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22 /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
	       "words shared between processes need lock-free atomics");

enum {
	FIELD_INT64 = 1,
	FIELD_FLOAT64 = 2,
	SECTION_ALIGN = 64,
};

_Static_assert(offsetof(struct ring_header, head) % 64 == 0 &&
		       offsetof(struct ring_header, state) - offsetof(struct ring_header, head) ==
			       offsetof(struct ring_control, state) &&
		       offsetof(struct ring_header, reason) - offsetof(struct ring_header, head) ==
			       offsetof(struct ring_control, reason) &&
		       offsetof(struct ring_header, order) - offsetof(struct ring_header, head) ==
			       offsetof(struct ring_control, order),
	       "version 1 has a struct ring_control");
_Static_assert(offsetof(struct ring_header_2, state) - offsetof(struct ring_header_2, head) ==
			       offsetof(struct ring_control, state) &&
		       offsetof(struct ring_header_2, reason) -
				       offsetof(struct ring_header_2, head) ==
			       offsetof(struct ring_control, reason) &&
		       offsetof(struct ring_header_2, order) -
				       offsetof(struct ring_header_2, head) ==
			       offsetof(struct ring_control, order),
	       "version 2 has a struct ring_control");

static struct ring_control *control_of(const void *header, uint32_t version)
{
	return (void *)((char *)header + (version == RING_VERSION_2
						  ? offsetof(struct ring_header_2, head)
						  : offsetof(struct ring_header, head)));
}

static uint32_t slot_header_size(uint32_t version)
{
	return version == RING_VERSION_2 ? RING_SLOT_HEADER_2_SIZE : RING_SLOT_HEADER_SIZE;
}

static uint64_t round_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) & ~(align - 1);
}

uint32_t ring_element_size(uint32_t element)
{
	static const uint8_t sizes[] = {
		[RING_OPAQUE] = 1, [RING_U8] = 1,  [RING_F16] = 2, [RING_BF16] = 2,
		[RING_F32] = 4,    [RING_U16] = 2, [RING_I16] = 2, [RING_I32] = 4,
		[RING_I64] = 8,    [RING_U64] = 8, [RING_F64] = 8};
	return element < sizeof(sizes) ? sizes[element] : 0;
}

uint64_t ring_ragged_offset(uint32_t batch_size_max)
{
	return round_up(2 * sizeof(uint32_t) * (uint64_t)batch_size_max, SECTION_ALIGN);
}

static uint32_t record_stride(uint32_t room)
{
	return (uint32_t)sizeof(uint32_t) + ((room + 3) & ~3U);
}

/* The section of a field of this type; its kind is 0 if the type is unknown. */
static struct ring_section field_section(uint32_t type, uint32_t room, uint64_t samples)
{
	struct ring_section section = {0};
	if (type == FIELD_INT64 || type == FIELD_FLOAT64)
		section = (struct ring_section){
			.element = type == FIELD_INT64 ? RING_I64 : RING_F64,
			.kind = RING_DENSE,
			.stride = 8,
		};
	else if (type >= RING_RECORD_BYTES && type <= RING_RECORD_TEXT)
		section =
			(struct ring_section){.kind = (uint8_t)type, .stride = record_stride(room)};
	section.room = samples * section.stride;
	return section;
}

static struct ring_section dense(uint8_t element, uint64_t stride, uint64_t samples)
{
	return (struct ring_section){
		.room = samples * stride, .element = element, .kind = RING_DENSE, .stride = stride};
}

void ring_geometry_init(struct ring_geometry *geometry, uint32_t slots, uint32_t batch_size_max,
			uint64_t image_bytes)
{
	*geometry = (struct ring_geometry){
		.version = RING_VERSION_1,
		.slots = slots,
		.batch_size_max = batch_size_max,
		.section_count = RING_FIRST_FIELD,
		.sections = {
			[RING_IMAGES] = {.room = image_bytes, .kind = RING_DENSE},
			[RING_LABELS] = dense(RING_I32, sizeof(int32_t), batch_size_max),
			[RING_SAMPLES] = dense(RING_U64, sizeof(uint64_t), batch_size_max),
			[RING_FLAGS] = dense(RING_U8, 1, batch_size_max),
		}};
}

int ring_geometry_field(struct ring_geometry *geometry, uint32_t type, uint32_t room)
{
	struct ring_section section = field_section(type, room, geometry->batch_size_max);
	if (section.kind == 0 || room > RING_FIELD_BYTES_MAX ||
	    geometry->section_count == RING_FIRST_FIELD + RING_FIELDS_MAX)
		return -EINVAL;
	geometry->sections[geometry->section_count++] = section;
	if (section.kind != RING_DENSE && room > geometry->field_bytes)
		geometry->field_bytes = room;
	return 0;
}

void ring_geometry_upgrade(struct ring_geometry *geometry, uint8_t image_element)
{
	geometry->version = RING_VERSION_2;
	for (uint32_t i = 0; i < geometry->section_count; i++)
		geometry->sections[i].views = 1;
	geometry->sections[RING_IMAGES].element = image_element;
	geometry->sections[RING_IMAGES].dims = 3;
}

int ring_geometry_dense(struct ring_geometry *geometry, uint8_t element, uint8_t dims,
			uint64_t count)
{
	struct ring_section section = {
		.element = element, .kind = RING_DENSE, .dims = dims, .views = 1};
	if (ring_element_size(element) == 0 || dims > RING_DIMS_MAX ||
	    geometry->section_count == RING_SECTIONS_MAX ||
	    __builtin_mul_overflow(count, (uint64_t)ring_element_size(element), &section.stride) ||
	    __builtin_mul_overflow(section.stride, (uint64_t)geometry->batch_size_max,
				   &section.room))
		return -EINVAL;
	geometry->sections[geometry->section_count++] = section;
	return 0;
}

int ring_geometry_pictures(struct ring_geometry *geometry, uint8_t element, uint8_t dims,
			   uint64_t bytes)
{
	if (ring_element_size(element) == 0 || dims > RING_DIMS_MAX ||
	    geometry->section_count == RING_SECTIONS_MAX)
		return -EINVAL;
	geometry->sections[geometry->section_count++] = (struct ring_section){
		.room = bytes, .element = element, .kind = RING_DENSE, .dims = dims, .views = 1};
	return 0;
}

int ring_geometry_ragged(struct ring_geometry *geometry, uint8_t element, uint8_t dims,
			 uint32_t row, uint64_t rows_max)
{
	struct ring_section section = {
		.element = element, .kind = RING_RAGGED, .dims = dims, .views = 1, .row = row};
	uint64_t rows;
	if (ring_element_size(element) == 0 || row == 0 || row % ring_element_size(element) != 0 ||
	    dims >= RING_DIMS_MAX || geometry->section_count == RING_SECTIONS_MAX ||
	    __builtin_mul_overflow(rows_max, (uint64_t)geometry->batch_size_max, &rows) ||
	    rows > UINT32_MAX || __builtin_mul_overflow(rows, (uint64_t)row, &section.room))
		return -EINVAL;
	section.stride = rows_max * row;
	section.room += ring_ragged_offset(geometry->batch_size_max);
	geometry->sections[geometry->section_count++] = section;
	return 0;
}

static bool within_limits(const struct ring_geometry *layout)
{
	if (layout->slots < 1 || layout->slots > RING_SLOTS_MAX || layout->batch_size_max < 1 ||
	    layout->batch_size_max > RING_BATCH_SIZE_MAX ||
	    layout->section_count < RING_FIRST_FIELD || layout->section_count > RING_SECTIONS_MAX)
		return false;
	for (uint32_t i = 0; i < layout->section_count; i++)
		if (layout->sections[i].room < 1 || layout->sections[i].room > RING_IMAGE_SIZE_MAX)
			return false;
	return true;
}

/*
 * Appends a section to a slot, whose size so far is *end. Cannot overflow, given the limits that
 * lay_out() checks.
 */
static void place(struct ring_section *section, uint64_t *end, uint64_t align)
{
	section->offset = round_up(*end, align);
	*end = section->offset + section->room;
}

/*
 * Places the sections of a geometry. Pictures come last and are page-aligned, which suits DMA.
 */
static int lay_out(const struct ring_geometry *geometry, struct ring_geometry *ret_layout)
{
	struct ring_geometry layout = *geometry;
	uint64_t end = slot_header_size(geometry->version);
	if (!within_limits(geometry))
		return -EINVAL;
	for (uint32_t i = 0; i < layout.section_count; i++)
		if (layout.sections[i].stride != 0)
			place(&layout.sections[i], &end, SECTION_ALIGN);
	for (uint32_t i = 0; i < layout.section_count; i++)
		if (layout.sections[i].stride == 0)
			place(&layout.sections[i], &end, RING_ALIGN);
	layout.slot_size = round_up(end, RING_ALIGN);
	*ret_layout = layout;
	return 0;
}

static uint32_t field_type(const struct ring_section *section)
{
	if (section->kind != RING_DENSE)
		return section->kind;
	return section->element == RING_I64 ? FIELD_INT64 : FIELD_FLOAT64;
}

static void write_header_2(const struct ring_geometry *layout, struct ring_header_2 *header)
{
	header->magic = RING_MAGIC;
	header->version = RING_VERSION_2;
	header->slots = layout->slots;
	header->batch_size_max = layout->batch_size_max;
	header->slot_size = layout->slot_size;
	header->section_count = layout->section_count;
	header->slot_header_size = RING_SLOT_HEADER_2_SIZE;
	memcpy(header->sections, layout->sections,
	       layout->section_count * sizeof(*layout->sections));
}

/* Writes the constant part of the header. */
static void write_header(const struct ring_geometry *layout, struct ring_header *header)
{
	header->magic = RING_MAGIC;
	header->version = RING_VERSION_1;
	header->slots = layout->slots;
	header->batch_size_max = layout->batch_size_max;
	header->slot_size = layout->slot_size;
	header->image_offset = layout->sections[RING_IMAGES].offset;
	header->image_size_max = layout->sections[RING_IMAGES].room;
	header->label_offset = layout->sections[RING_LABELS].offset;
	header->sample_offset = layout->sections[RING_SAMPLES].offset;
	header->flag_offset = layout->sections[RING_FLAGS].offset;
	header->field_count = layout->section_count - RING_FIRST_FIELD;
	header->field_bytes = layout->field_bytes;
	for (uint32_t i = 0; i < header->field_count; i++) {
		const struct ring_section *section = &layout->sections[RING_FIRST_FIELD + i];
		header->fields[i].offset = section->offset;
		header->fields[i].type = field_type(section);
		header->fields[i].stride = (uint32_t)section->stride;
	}
}

/* Bytes of the ring's memfd; 0 if they exceed off_t. */
static uint64_t ring_bytes(uint64_t slots, uint64_t slot_size)
{
	uint64_t bytes;
	if (__builtin_mul_overflow(slots, slot_size, &bytes) ||
	    __builtin_add_overflow(bytes, (uint64_t)RING_HEADER_SIZE, &bytes) ||
	    bytes > INT64_MAX || bytes > SIZE_MAX)
		return 0;
	return bytes;
}

uint64_t ring_size(const struct ring_geometry *geometry)
{
	struct ring_geometry layout;
	if (lay_out(geometry, &layout) < 0)
		return 0;
	uint64_t bytes = ring_bytes(layout.slots, layout.slot_size);
	return bytes == 0 ? 0 : bytes + RING_ACK_SIZE;
}

static int memfd_new(uint64_t size)
{
	static const char name[] = "loaderd-ring";
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* The default mode lets every user reopen it for writing through /proc. */
	if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		io_close(fd);
		return -errno;
	}
	return fd;
}

/* Leases ignore the file description made by memfd_create() but count those made by open(). */
static int open_anew(int fd, int flags)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int anew = open(path, flags | O_CLOEXEC);
	return anew < 0 ? -errno : anew;
}

int ring_memory_new(uint64_t bytes, bool client_writes, struct ring_memory *ret_memory)
{
	const int client_flags = client_writes ? O_RDWR : O_RDONLY;
	struct ring_memory memory = {-1, -1, -1};
	int made = memfd_new(bytes);
	if (made < 0)
		return made;
	int r = memory.fd = open_anew(made, O_RDWR);
	if (r >= 0)
		r = memory.client_fd = open_anew(made, client_flags);
	if (r >= 0)
		r = memory.watch_fd = open_anew(made, O_RDONLY);
	close(made);
	if (r < 0) {
		io_close(memory.fd);
		io_close(memory.client_fd);
		return r;
	}
	*ret_memory = memory;
	return 0;
}

bool ring_memory_open(int watch_fd)
{
	if (fcntl(watch_fd, F_SETLEASE, F_WRLCK) < 0)
		return true;
	fcntl(watch_fd, F_SETLEASE, F_UNLCK);
	return false;
}

int ring_memory_watch(int watch_fd, int inotify_fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", watch_fd);
	int watch = inotify_add_watch(inotify_fd, path, IN_DELETE_SELF);
	return watch < 0 ? -errno : watch;
}

/*
 * The kernel refuses F_SEAL_WRITE with EBUSY while a page has references beyond those of the file
 * and of mappings (Linux, mm/memfd.c, memfd_wait_for_pins): a socket or pipe that it was spliced
 * into, direct I/O, a registered buffer. The seal disturbs no process: any other use of the memory
 * needs it open, which the caller has excluded.
 */
int ring_memory_free(int watch_fd)
{
	int fd = open_anew(watch_fd, O_RDWR);
	if (fd < 0)
		return fd;
	int r = fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 ? -errno : 0;
	close(fd);
	return r;
}

/* Populates the page table, so that no batch takes page faults. */
static int map_pages(void *memory, uint64_t size)
{
	return madvise(memory, size, MADV_POPULATE_WRITE) == 0 || errno == EINVAL ? 0 : -errno;
}

/*
 * Returns true if all pages exist: the client, which must touch them first, is then charged for
 * them. A page stays once it exists: holes can be punched only before F_SEAL_FUTURE_WRITE, and a
 * swapped-out page stays charged. The kernel drops (drop_caches, reclaim) a page that was never
 * written only if no process maps it.
 */
static bool has_all_pages(int fd, uint64_t size)
{
	return lseek(fd, 0, SEEK_HOLE) == (off_t)size;
}

/* Maps memory of exactly this size that is sealed against shrinking. */
static int map_memory(int fd, uint64_t size, void **ret_memory)
{
	off_t end = lseek(fd, 0, SEEK_END);
	int seals = fcntl(fd, F_GET_SEALS);
	if (end < 0 || seals < 0)
		return -errno;
	if ((uint64_t)end != size || (seals & F_SEAL_SHRINK) == 0)
		return -EINVAL;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	*ret_memory = memory;
	return 0;
}

/* ring and ack may be NULL. */
static void unmap(const void *ring, uint64_t size, void *ack)
{
	if (ring)
		munmap((void *)ring, size);
	if (ack)
		munmap(ack, RING_ACK_SIZE);
}

int ring_producer_init(struct ring_producer *producer, const struct ring_geometry *geometry,
		       int ring_fd, int ack_fd)
{
	struct ring_geometry layout;
	void *ring = NULL, *ack = NULL;
	int r = lay_out(geometry, &layout);
	if (r < 0)
		return r;
	uint64_t bytes = ring_bytes(layout.slots, layout.slot_size);
	r = bytes == 0 ? -EINVAL : map_memory(ring_fd, bytes, &ring);
	r = r ?: map_memory(ack_fd, RING_ACK_SIZE, &ack);
	if (r < 0) {
		unmap(ring, bytes, ack);
		return r;
	}
	/*
	 * khugepaged charges a huge page to the process in whose mapping it found the small ones.
	 * Only the client may ask for huge pages.
	 */
	(void)madvise(ring, bytes, MADV_NOHUGEPAGE);
	*producer = (struct ring_producer){
		.header = ring,
		.control = control_of(ring, layout.version),
		.layout = layout,
		.ack = ack,
		.ring_fd = ring_fd,
		.ack_fd = ack_fd,
		.size = bytes + RING_ACK_SIZE,
	};
	return 0;
}

int ring_producer_start(struct ring_producer *producer)
{
	const uint64_t bytes = producer->size - RING_ACK_SIZE;
	/*
	 * The seals do not affect existing mappings, the daemon's and the client's. The ring gets
	 * no F_SEAL_SEAL, because ring_memory_free() adds the last seal.
	 */
	if (fcntl(producer->ring_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 ||
	    fcntl(producer->ack_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	if (!has_all_pages(producer->ring_fd, bytes) ||
	    !has_all_pages(producer->ack_fd, RING_ACK_SIZE))
		return -ENODATA;
	int r = map_pages(producer->ack, RING_ACK_SIZE);
	r = r ?: map_pages(producer->header, bytes);
	if (r < 0)
		return r;
	if (producer->layout.version == RING_VERSION_2)
		write_header_2(&producer->layout, (struct ring_header_2 *)producer->header);
	else
		write_header(&producer->layout, producer->header);
	return 0;
}

void ring_producer_deinit(struct ring_producer *producer)
{
	if (!producer->header)
		return;
	unmap(producer->header, producer->size - RING_ACK_SIZE, producer->ack);
	close(producer->ring_fd);
	close(producer->ack_fd);
	*producer = (struct ring_producer){.ring_fd = -1, .ack_fd = -1};
}

static struct ring_slot *slot_at(const struct ring_producer *producer, uint32_t slot)
{
	return (struct ring_slot *)((char *)producer->header + RING_HEADER_SIZE +
				    slot * producer->layout.slot_size);
}

/* Returns true if the client has released what was published in this slot, or nothing was. */
static bool slot_is_free(const struct ring_producer *producer, uint32_t slot)
{
	uint64_t number = producer->number[slot];
	if (number == 0)
		return true;
	/*
	 * An ack for a batch that is still being written is invalid; accepting it would hand the
	 * slot out twice.
	 */
	if (number > producer->published)
		return false;
	return atomic_load_explicit(&producer->ack->acks[slot], memory_order_seq_cst) == number;
}

struct ring_slot *ring_begin(struct ring_producer *producer)
{
	for (uint32_t i = 0; i < producer->layout.slots; i++) {
		uint32_t slot = (producer->next + i) % producer->layout.slots;
		if (!slot_is_free(producer, slot))
			continue;
		atomic_store_explicit(&producer->control->producer_waits, 0, memory_order_relaxed);
		uint64_t number = ++producer->begun;
		producer->next = (slot + 1) % producer->layout.slots;
		producer->number[slot] = number;
		producer->order[(number - 1) % producer->layout.slots] = slot;
		struct ring_slot *header = slot_at(producer, slot);
		header->number = number;
		return header;
	}
	return NULL;
}

void ring_producer_arm(struct ring_producer *producer)
{
	atomic_store_explicit(&producer->control->producer_waits, 1, memory_order_seq_cst);
}

/*
 * Sends one doorbell per wait: clears the word here; the client sets it again before its next wait.
 */
static int client_waits(struct ring_producer *producer)
{
	if (atomic_load_explicit(&producer->ack->consumer_waits, memory_order_seq_cst) == 0)
		return 0;
	atomic_store_explicit(&producer->ack->consumer_waits, 0, memory_order_relaxed);
	return 1;
}

int ring_publish(struct ring_producer *producer)
{
	if (producer->published == producer->begun)
		return 0;
	uint64_t number = producer->published + 1;
	uint32_t place = (uint32_t)((number - 1) % producer->layout.slots);
	atomic_store_explicit(&producer->control->order[place], producer->order[place],
			      memory_order_relaxed);
	producer->published = number;
	atomic_store_explicit(&producer->control->head, number, memory_order_seq_cst);
	return client_waits(producer);
}

int ring_end(struct ring_producer *producer, const char *reason)
{
	struct ring_control *control = producer->control;
	if (producer->ended)
		return 0;
	producer->ended = 1;
	if (reason) {
		size_t length = strnlen(reason, RING_REASON_MAX - 1);
		memcpy(control->reason, reason, length);
		control->reason[length] = '\0';
	}
	atomic_store_explicit(&control->state, !reason ? RING_END : RING_FAILED,
			      memory_order_seq_cst);
	return client_waits(producer);
}

uint32_t ring_outstanding(const struct ring_producer *producer)
{
	uint32_t count = 0;
	for (uint32_t slot = 0; slot < producer->layout.slots; slot++)
		count += producer->number[slot] <= producer->published &&
			 !slot_is_free(producer, slot);
	return count;
}

uint32_t ring_ready(const struct ring_producer *producer)
{
	uint64_t taken = atomic_load_explicit(&producer->ack->taken, memory_order_relaxed);
	uint64_t ready = taken > producer->published ? 0 : producer->published - taken;
	uint32_t outstanding = ring_outstanding(producer);
	return ready > outstanding ? outstanding : (uint32_t)ready;
}

static bool section_fits(const struct ring_section *section, uint32_t begin, uint64_t slot_size)
{
	uint64_t end;
	return section->offset >= begin && section->offset % SECTION_ALIGN == 0 &&
	       !__builtin_add_overflow(section->offset, section->room, &end) && end <= slot_size;
}

/* Adds a field of a header. Returns false if its stride is not one of its type. */
static bool read_field(const struct ring_header *header, uint32_t i, struct ring_geometry *layout)
{
	uint32_t stride = header->fields[i].stride;
	struct ring_section section =
		field_section(header->fields[i].type, header->field_bytes, layout->batch_size_max);
	/* A value with a size needs room for the size word and the bytes. */
	if (section.kind == 0 ||
	    (section.kind == RING_DENSE
		     ? stride != section.stride
		     : stride < sizeof(uint32_t) || stride % 4 != 0 || stride > section.stride))
		return false;
	section.offset = header->fields[i].offset;
	section.stride = stride;
	section.room = layout->batch_size_max * (uint64_t)stride;
	layout->sections[layout->section_count++] = section;
	return true;
}

/* Returns true if the ring has this size, and every section lies in the slot. */
static bool layout_fits(const struct ring_geometry *layout, uint64_t file_size)
{
	if (!within_limits(layout) || layout->slot_size == 0 ||
	    layout->slot_size % RING_ALIGN != 0 ||
	    ring_bytes(layout->slots, layout->slot_size) != file_size)
		return false;
	for (uint32_t i = 0; i < layout->section_count; i++)
		if (!section_fits(&layout->sections[i], slot_header_size(layout->version),
				  layout->slot_size))
			return false;
	return true;
}

/* Returns true if the section has room for what it says of each sample. */
static bool section_is_sound(const struct ring_section *section, uint32_t batch_size_max)
{
	uint64_t size = ring_element_size(section->element), bytes;
	if (size == 0 || section->dims > RING_DIMS_MAX || section->views != 1 ||
	    __builtin_mul_overflow(section->stride, (uint64_t)batch_size_max, &bytes))
		return false;
	if (section->kind == RING_DENSE)
		return section->row == 0 && section->stride % size == 0 && bytes <= section->room;
	return section->kind == RING_RAGGED && section->dims < RING_DIMS_MAX && section->row > 0 &&
	       section->row % size == 0 && section->stride % section->row == 0 &&
	       ring_ragged_offset(batch_size_max) <= section->room &&
	       bytes <= section->room - ring_ragged_offset(batch_size_max);
}

/* Returns true if no two sections share a byte. */
static bool sections_are_apart(const struct ring_geometry *layout)
{
	for (uint32_t i = 0; i < layout->section_count; i++)
		for (uint32_t j = i + 1; j < layout->section_count; j++) {
			const struct ring_section *a = &layout->sections[i];
			const struct ring_section *b = &layout->sections[j];
			if (a->offset < b->offset + b->room && b->offset < a->offset + a->room)
				return false;
		}
	return true;
}

/* Returns true if the sections that every ring has are those. */
static bool first_sections_are_sound(const struct ring_section *sections)
{
	static const struct ring_section expected[] = {
		[RING_IMAGES] = {.kind = RING_DENSE, .dims = 3},
		[RING_LABELS] = {.element = RING_I32, .kind = RING_DENSE, .stride = 4},
		[RING_SAMPLES] = {.element = RING_U64, .kind = RING_DENSE, .stride = 8},
		[RING_FLAGS] = {.element = RING_U8, .kind = RING_DENSE, .stride = 1},
	};
	for (uint32_t i = 0; i < RING_FIRST_FIELD; i++)
		if (sections[i].kind != expected[i].kind || sections[i].dims != expected[i].dims ||
		    sections[i].stride != expected[i].stride ||
		    (i != RING_IMAGES && sections[i].element != expected[i].element))
			return false;
	return sections[RING_IMAGES].element >= RING_U8 &&
	       sections[RING_IMAGES].element <= RING_F32 &&
	       sections[RING_IMAGES].offset % RING_ALIGN == 0;
}

/* Like read_header(), for version 2. */
static bool read_header_2(const struct ring_header_2 *header, uint64_t file_size,
			  struct ring_geometry *ret_layout)
{
	struct ring_geometry layout = {
		.version = RING_VERSION_2,
		.slots = header->slots,
		.batch_size_max = header->batch_size_max,
		.slot_size = header->slot_size,
		.section_count = header->section_count,
	};
	memcpy(layout.sections, header->sections, sizeof(layout.sections));
	if (header->magic != RING_MAGIC || header->slot_header_size != RING_SLOT_HEADER_2_SIZE ||
	    !layout_fits(&layout, file_size) || !first_sections_are_sound(layout.sections))
		return false;
	for (uint32_t i = 0; i < layout.section_count; i++)
		if (!section_is_sound(&layout.sections[i], layout.batch_size_max))
			return false;
	if (!sections_are_apart(&layout))
		return false;
	*ret_layout = layout;
	return true;
}

/* Makes the layout from a private copy of the header. Returns false if it is not sound. */
static bool read_header(const struct ring_header *header, uint64_t file_size,
			struct ring_geometry *ret_layout)
{
	struct ring_geometry layout;
	if (header->magic != RING_MAGIC || header->version != RING_VERSION_1 ||
	    header->field_count > RING_FIELDS_MAX || header->field_bytes > RING_FIELD_BYTES_MAX)
		return false;
	ring_geometry_init(&layout, header->slots, header->batch_size_max, header->image_size_max);
	layout.slot_size = header->slot_size;
	layout.field_bytes = header->field_bytes;
	layout.sections[RING_IMAGES].offset = header->image_offset;
	layout.sections[RING_LABELS].offset = header->label_offset;
	layout.sections[RING_SAMPLES].offset = header->sample_offset;
	layout.sections[RING_FLAGS].offset = header->flag_offset;
	for (uint32_t i = 0; i < header->field_count; i++)
		if (!read_field(header, i, &layout))
			return false;
	if (!layout_fits(&layout, file_size))
		return false;
	*ret_layout = layout;
	return true;
}

/*
 * Size of a memfd that its owner can no longer shrink; negative errno. Rejects hugetlbfs, where a
 * missing huge page faults too.
 */
static int64_t sealed_size(int fd)
{
	struct stat status;
	struct statfs place;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return -EPROTO;
	if (fstat(fd, &status) < 0 || fstatfs(fd, &place) < 0)
		return -errno;
	if (place.f_type == HUGETLBFS_MAGIC)
		return -EPROTO;
	return status.st_size;
}

/* Reads one byte of each page, so that it exists. */
static void read_pages(const void *memory, size_t size)
{
	for (size_t at = 0; at < size; at += RING_ALIGN)
		(void)*((const volatile char *)memory + at);
}

/*
 * Allocates every page at the client's expense: the daemon refuses a ring with holes. Linux before
 * 5.14 cannot do this in one call.
 */
static int provide(void *memory, size_t size)
{
	(void)madvise(memory, size, MADV_HUGEPAGE);
	if (madvise(memory, size, MADV_POPULATE_READ) == 0)
		return 0;
	if (errno == EFAULT) /* a read would have raised SIGBUS */
		return -ENOMEM;
	if (errno != EINVAL)
		return -errno;
	read_pages(memory, size);
	return 0;
}

int ring_consumer_map(struct ring_consumer *consumer, int ring_fd, int ack_fd,
		      enum ring_mapping mapping)
{
	int protection = mapping == RING_MAP_WRITABLE ? PROT_READ | PROT_WRITE : PROT_READ;
	int64_t ring_file = sealed_size(ring_fd);
	int64_t ack_file = sealed_size(ack_fd);
	if (ring_file < 0 || ack_file < 0)
		return (int)(ring_file < 0 ? ring_file : ack_file);
	if (ring_file < RING_HEADER_SIZE || ack_file != RING_ACK_SIZE)
		return -EPROTO;
	/* The header is not valid yet, so bound the memory before allocating its pages. */
	if ((uint64_t)ring_file / 4096 > (uint64_t)sysconf(_SC_PHYS_PAGES))
		return -E2BIG;

	void *ring = mmap(NULL, (size_t)ring_file, protection, MAP_SHARED, ring_fd, 0);
	if (ring == MAP_FAILED)
		return -errno;
	*consumer = (struct ring_consumer){.header = ring, .map_size = (uint64_t)ring_file};
	void *ack = mmap(NULL, RING_ACK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, ack_fd, 0);
	int r = ack == MAP_FAILED ? -errno : 0;
	if (r == 0) {
		consumer->ack = ack;
		r = provide(ack, RING_ACK_SIZE);
	}
	r = r ?: provide(ring, (size_t)ring_file);
	if (r == 0 && mapping == RING_MAP_OWN)
		r = own_pages_init(&consumer->own, ring_fd, (size_t)ring_file, RING_ALIGN);
	if (r < 0)
		ring_consumer_deinit(consumer);
	return r;
}

int ring_consumer_check(struct ring_consumer *consumer)
{
	union {
		struct ring_header version_1;
		struct ring_header_2 version_2;
	} header;
	struct ring_geometry *layout = &consumer->layout;
	copy_once(&header, consumer->header, sizeof(header));
	bool sound = header.version_1.version == RING_VERSION_2
			     ? read_header_2(&header.version_2, consumer->map_size, layout)
			     : read_header(&header.version_1, consumer->map_size, layout);
	if (!sound)
		return -EPROTO;
	consumer->control = control_of(consumer->header, layout->version);
	if (layout->version == RING_VERSION_1)
		return 0;
	consumer->extents =
		calloc((size_t)layout->slots * layout->section_count, sizeof(*consumer->extents));
	return consumer->extents ? 0 : -ENOMEM;
}

void ring_consumer_deinit(struct ring_consumer *consumer)
{
	if (!consumer->header)
		return;
	unmap(consumer->header, consumer->map_size, consumer->ack);
	own_pages_deinit(&consumer->own);
	free(consumer->extents);
	memset(consumer, 0, sizeof(*consumer));
}

const struct ring_slot *ring_take(struct ring_consumer *consumer)
{
	const struct ring_control *control = consumer->control;
	if (atomic_load_explicit(&control->head, memory_order_seq_cst) <= consumer->taken)
		return NULL;
	uint64_t number = ++consumer->taken;
	uint32_t slot = atomic_load_explicit(&control->order[(number - 1) % consumer->layout.slots],
					     memory_order_relaxed);
	slot %= consumer->layout
			/*
			 * bounds the index of a broken daemon; the batch number will not match
			 * either
			 */
			.slots;
	uint64_t free = 0;
	if (atomic_compare_exchange_strong_explicit(&consumer->held[slot], &free, number,
						    memory_order_relaxed, memory_order_relaxed))
		atomic_fetch_add_explicit(&consumer->held_count, 1, memory_order_relaxed);
	else
		consumer->broken = 1; /* the daemon is overwriting the batch held there */
	atomic_store_explicit(&consumer->ack->taken, number, memory_order_relaxed);
	return (const struct ring_slot *)((const char *)consumer->header + RING_HEADER_SIZE +
					  slot * consumer->layout.slot_size);
}

const char *ring_show(const struct ring_consumer *consumer, const struct ring_slot *slot)
{
	const char *shared = (const char *)consumer->header, *at = (const char *)slot;
	if (!consumer->own.memory)
		return at;
	return own_pages_show(&consumer->own, shared, (size_t)(at - shared),
			      consumer->layout.slot_size);
}

void ring_keep_held(const struct ring_consumer *consumer)
{
	for (uint32_t slot = 0; consumer->own.memory && slot < consumer->layout.slots; slot++)
		if (atomic_load_explicit(&consumer->held[slot], memory_order_relaxed) != 0)
			own_pages_keep(&consumer->own,
				       RING_HEADER_SIZE + slot * consumer->layout.slot_size,
				       consumer->layout.slot_size);
}

void ring_copy_slot(const struct ring_slot *slot, struct ring_slot *ret_copy)
{
	copy_once(ret_copy, slot, sizeof(*ret_copy));
}

/* Sets the bytes of a value or row of the extent's shape. Returns false if there is no such shape.
 */
static bool shape_size(const struct ring_section *section, const struct ring_extent *extent,
		       uint64_t *ret_size)
{
	uint64_t size = ring_element_size(section->element);
	for (uint32_t d = 0; d < RING_DIMS_MAX; d++) {
		if (d >= section->dims
			    ? extent->shape[d] != 0
			    : __builtin_mul_overflow(size, (uint64_t)extent->shape[d], &size))
			return false;
	}
	*ret_size = size;
	return true;
}

/* Returns true if the dense values of `count` samples have the extent's shape and size. */
static bool dense_is_sound(const struct ring_section *section, const struct ring_extent *extent,
			   uint32_t count)
{
	uint64_t bytes;
	if (!shape_size(section, extent, &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)count, &bytes))
		return false;
	return bytes == extent->bytes && bytes <= section->room &&
	       (section->stride == 0 || bytes == count * section->stride);
}

/* Returns true if the extent is that of finished images. */
static bool image_is_sound(const struct ring_extent *extent)
{
	if (extent->layout != RING_NHWC && extent->layout != RING_NCHW)
		return false;
	uint32_t channels = extent->shape[extent->layout == RING_NHWC ? 2 : 0];
	return extent->bytes > 0 && (channels == 3 || channels == 4);
}

static bool extent_is_sound(const struct ring_geometry *layout, uint32_t s,
			    const struct ring_extent *extent, uint32_t count)
{
	const struct ring_section *section = &layout->sections[s];
	uint64_t size;
	if (section->kind == RING_RAGGED)
		return shape_size(section, extent, &size) && size == section->row &&
		       extent->bytes >= ring_ragged_offset(layout->batch_size_max) &&
		       extent->bytes <= section->room;
	return dense_is_sound(section, extent, count) &&
	       (s != RING_IMAGES || image_is_sound(extent));
}

const struct ring_extent *ring_check_extents(struct ring_consumer *consumer,
					     const struct ring_slot *slot, uint32_t count)
{
	const struct ring_geometry *layout = &consumer->layout;
	uint64_t at = (uint64_t)((const char *)slot - (const char *)consumer->header);
	struct ring_extent *extents = consumer->extents + (at - RING_HEADER_SIZE) /
								  layout->slot_size *
								  layout->section_count;
	struct ring_extent said[RING_SECTIONS_MAX];
	size_t size = layout->section_count * sizeof(*said);
	/* In a broken ring, the extents may be those of a batch that the caller holds. */
	if (consumer->broken || count > layout->batch_size_max)
		return NULL;
	copy_once(said, (const char *)slot + offsetof(struct ring_slot_2, extents), size);
	for (uint32_t s = 0; s < layout->section_count; s++)
		if (!extent_is_sound(layout, s, &said[s], count))
			return NULL;
	memcpy(extents, said, size);
	return extents;
}

const struct ring_extent *ring_extents(const struct ring_consumer *consumer, uint64_t number)
{
	for (uint32_t slot = 0; consumer->extents && slot < consumer->layout.slots; slot++)
		if (atomic_load_explicit(&consumer->held[slot], memory_order_relaxed) == number)
			return consumer->extents + slot * consumer->layout.section_count;
	return NULL;
}

void ring_copy_reason(const struct ring_consumer *consumer, char *ret_reason)
{
	copy_once(ret_reason, consumer->control->reason, RING_REASON_MAX);
	ret_reason[RING_REASON_MAX - 1] = '\0';
}

void ring_consumer_arm(struct ring_consumer *consumer, int waiting)
{
	atomic_store_explicit(&consumer->ack->consumer_waits, waiting != 0, memory_order_seq_cst);
}

int ring_ack(struct ring_consumer *consumer, uint64_t number)
{
	if (number == 0)
		return -EINVAL;
	for (uint32_t slot = 0; slot < consumer->layout.slots; slot++) {
		uint64_t expected = number;
		if (!atomic_compare_exchange_strong_explicit(&consumer->held[slot], &expected, 0,
							     memory_order_relaxed,
							     memory_order_relaxed))
			continue;
		atomic_fetch_sub_explicit(&consumer->held_count, 1, memory_order_relaxed);
		atomic_store_explicit(&consumer->ack->acks[slot], number, memory_order_seq_cst);
		return atomic_load_explicit(&consumer->control->producer_waits,
					    memory_order_seq_cst) != 0;
	}
	return -EINVAL;
}
