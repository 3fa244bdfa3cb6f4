#include "proto/ring_layout.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

struct ring_control *ring_control_of(const void *header, uint32_t version)
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

static struct ring_section dense_section(uint8_t element, uint64_t stride, uint64_t samples)
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
			[RING_LABELS] = dense_section(RING_I32, sizeof(int32_t), batch_size_max),
			[RING_SAMPLES] = dense_section(RING_U64, sizeof(uint64_t), batch_size_max),
			[RING_FLAGS] = dense_section(RING_U8, 1, batch_size_max),
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

int ring_geometry_patches(struct ring_geometry *geometry, uint32_t row, uint64_t rows_max)
{
	struct ring_section *images = &geometry->sections[RING_IMAGES];
	uint64_t room;
	if (row == 0 || row % ring_element_size(images->element) != 0 || rows_max > UINT32_MAX ||
	    __builtin_mul_overflow(rows_max, (uint64_t)row, &room))
		return -EINVAL;
	images->kind = RING_RAGGED;
	images->dims = 1;
	images->row = row;
	images->room = room + ring_ragged_offset(geometry->batch_size_max);
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
 * ring_lay_out() checks.
 */
static void place_section(struct ring_section *section, uint64_t *end, uint64_t align)
{
	section->offset = round_up(*end, align);
	*end = section->offset + section->room;
}

int ring_lay_out(const struct ring_geometry *geometry, struct ring_geometry *ret_layout)
{
	struct ring_geometry layout = *geometry;
	uint64_t end = slot_header_size(geometry->version);
	if (!within_limits(geometry))
		return -EINVAL;
	for (uint32_t i = 0; i < layout.section_count; i++)
		if (layout.sections[i].stride != 0)
			place_section(&layout.sections[i], &end, SECTION_ALIGN);
	for (uint32_t i = 0; i < layout.section_count; i++)
		if (layout.sections[i].stride == 0)
			place_section(&layout.sections[i], &end, RING_ALIGN);
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

static void write_header_1(const struct ring_geometry *layout, struct ring_header *header)
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

void ring_header_write(const struct ring_geometry *layout, void *header)
{
	if (layout->version == RING_VERSION_2)
		write_header_2(layout, header);
	else
		write_header_1(layout, header);
}

uint64_t ring_bytes(uint64_t slots, uint64_t slot_size)
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
	if (ring_lay_out(geometry, &layout) < 0)
		return 0;
	uint64_t bytes = ring_bytes(layout.slots, layout.slot_size);
	return bytes == 0 ? 0 : bytes + RING_ACK_SIZE;
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

/* Returns true if images are delivered as patches: ring_geometry_patches(). */
static bool is_patches(const struct ring_section *images)
{
	return images->kind == RING_RAGGED && images->dims == 1 && images->stride == 0;
}

/* Returns true if the sections that every ring has are those. */
static bool first_sections_are_sound(const struct ring_section *sections)
{
	static const struct ring_section expected[] = {
		[RING_IMAGES] = {.kind = RING_DENSE, .dims = 3}, /* or patches */
		[RING_LABELS] = {.element = RING_I32, .kind = RING_DENSE, .stride = 4},
		[RING_SAMPLES] = {.element = RING_U64, .kind = RING_DENSE, .stride = 8},
		[RING_FLAGS] = {.element = RING_U8, .kind = RING_DENSE, .stride = 1},
	};
	for (uint32_t i = is_patches(&sections[RING_IMAGES]) ? 1 : 0; i < RING_FIRST_FIELD; i++)
		if (sections[i].kind != expected[i].kind || sections[i].dims != expected[i].dims ||
		    sections[i].stride != expected[i].stride ||
		    (i != RING_IMAGES && sections[i].element != expected[i].element))
			return false;
	return sections[RING_IMAGES].element >= RING_U8 &&
	       sections[RING_IMAGES].element <= RING_F32 &&
	       sections[RING_IMAGES].offset % RING_ALIGN == 0;
}

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

static bool read_header_1(const struct ring_header *header, uint64_t file_size,
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

bool ring_header_read(const void *header, uint64_t file_size, struct ring_geometry *ret_layout)
{
	const struct ring_header *either = header; /* versions agree on where `version` is */
	return either->version == RING_VERSION_2 ? read_header_2(header, file_size, ret_layout)
						 : read_header_1(header, file_size, ret_layout);
}

bool ring_has_all_pages(int fd, uint64_t size)
{
	return lseek(fd, 0, SEEK_HOLE) == (off_t)size;
}

void ring_unmap(const void *ring, uint64_t size, void *ack)
{
	if (ring)
		munmap((void *)ring, size);
	if (ack)
		munmap(ack, RING_ACK_SIZE);
}
