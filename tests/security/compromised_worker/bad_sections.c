/*
 * Rings of version 2: invalid section tables, slot headers and lists of rows, before the client
 * checks them and while it reads them. The peer asks for the values "word" and "boxes".
 */
#include "tests/security/compromised_worker/bad_feed.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = RING_FIRST_FIELD, BOXES, SECTIONS, WORD_MAX = 16, BOXES_MAX = 3 };

/* Threads with deliberate data races, hidden from ThreadSanitizer. */
#define UNRULY __attribute__((no_sanitize("thread")))

static const char *const names[] = {"image", "label", "sample", "flags", "word", "boxes"};
static const uint32_t roles[] = {1, 7, 12, 0, 9, 4};
static Loaderd__Section sections[SECTIONS], *section_list[SECTIONS + 1];

void bad_feed_announce_sections(struct bad_feed *d)
{
	ring_geometry_upgrade(&d->geometry, RING_U8);
	ring_geometry_ragged(&d->geometry, RING_OPAQUE, 0, 1, WORD_MAX);
	ring_geometry_ragged(&d->geometry, RING_F32, 1, 16, BOXES_MAX);
	for (uint32_t s = 0; s < SECTIONS; s++) {
		loaderd__section__init(&sections[s]);
		sections[s].name = (char *)names[s];
		sections[s].role = roles[s];
		section_list[s] = &sections[s];
	}
	section_list[SECTIONS] = &sections[SECTIONS - 1];
	d->opened.sections = section_list;
	d->opened.n_sections = SECTIONS;
}

void bad_feed_fill_sections(const struct bad_feed *d, struct ring_slot *slot)
{
	const struct ring_section *places = d->ring.layout.sections;
	const uint32_t count = slot->count, room = d->geometry.batch_size_max;
	struct ring_extent *extents = ((struct ring_slot_2 *)slot)->extents;
	slot->height = slot->width = slot->channels = slot->element = slot->layout = 0;
	for (uint32_t s = 0; s < SECTIONS; s++)
		extents[s] = (struct ring_extent){.bytes = count * places[s].stride};
	extents[RING_IMAGES] =
		(struct ring_extent){{SIDE, SIDE, 3}, count * SIDE * SIDE * 3, RING_NHWC, 0};
	extents[BOXES].shape[0] = places[BOXES].dims == 2 ? 2 : 4;
	extents[BOXES].shape[1] = places[BOXES].dims == 2 ? 2 : 0;
	for (uint32_t s = WORD; s <= BOXES; s++) {
		uint32_t *starts = (uint32_t *)((char *)slot + places[s].offset);
		extents[s].bytes += ring_ragged_offset(room);
		for (uint32_t i = 0; i < count; i++) {
			starts[i] = (uint32_t)(i * places[s].stride / places[s].row);
			starts[room + i] = i % BOXES_MAX;
		}
	}
}

static uint32_t *index_of(const struct bad_feed *d, struct ring_slot *slot, uint32_t s)
{
	return (uint32_t *)((char *)slot + d->ring.layout.sections[s].offset);
}

static void start_beyond(struct bad_feed *d, struct ring_slot *slot)
{
	index_of(d, slot, BOXES)[1] = UINT32_MAX;
}

static void rows_beyond(struct bad_feed *d, struct ring_slot *slot)
{
	index_of(d, slot, WORD)[d->geometry.batch_size_max + 1] = UINT32_MAX;
}

static void one_row_beyond(struct bad_feed *d, struct ring_slot *slot)
{
	uint32_t *starts = index_of(d, slot, BOXES), room = d->geometry.batch_size_max;
	starts[room - 1] = room * BOXES_MAX - 1;
	starts[room + room - 1] = 2;
}

static void all_rows_overlap(struct bad_feed *d, struct ring_slot *slot)
{
	uint32_t *starts = index_of(d, slot, BOXES), room = d->geometry.batch_size_max;
	for (uint32_t i = 0; i < room; i++)
		starts[i] = 0, starts[room + i] = room * BOXES_MAX;
}

/* Changes lists of rows, extents and section table while the client reads them. */
UNRULY static void *change_lists(void *argument)
{
	struct bad_feed *d = argument;
	uint64_t state = 88172645463325252;
	const uint32_t slots = d->ring.layout.slots;
	while (!atomic_load(&d->stop)) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		char *slot = (char *)d->ring.header + RING_HEADER_SIZE +
			     state % slots * d->ring.layout.slot_size;
		uint32_t s = WORD + (uint32_t)(state >> 8) % 2;
		volatile uint32_t *index = (void *)(slot + d->ring.layout.sections[s].offset);
		volatile uint32_t *word = &index[(state >> 16) % (2 * d->geometry.batch_size_max)];
		uint32_t before = *word;
		*word = (uint32_t)(state >> 32);
		for (volatile unsigned i = 0; i < 20; i++)
			;
		*word = before;
	}
	return NULL;
}

UNRULY static void *change_table(void *argument)
{
	struct bad_feed *d = argument;
	uint64_t state = 88172645463325252;
	volatile uint32_t *words =
		(void *)((char *)d->ring.header + offsetof(struct ring_header_2, sections));
	while (!atomic_load(&d->stop) && atomic_load(&d->ring.ack->taken) == 0)
		sched_yield();
	while (!atomic_load(&d->stop)) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		words[state % (sizeof(struct ring_section) * RING_SECTIONS_MAX / 4)] =
			(uint32_t)(state >> 32);
	}
	return NULL;
}

static void rename_section(struct bad_feed *d)
{
	sections[BOXES].name = (char *)names[WORD];
}

static void name_endlessly(struct bad_feed *d)
{
	static char name[1 << 16];
	memset(name, 'x', sizeof(name) - 1);
	sections[WORD].name = name;
}

static void escape_name(struct bad_feed *d)
{
	static char name[] = "image\x1b[2J";
	sections[RING_IMAGES].name = name;
}

static void escape_schema(struct bad_feed *d)
{
	static char line[] = "\x1b[2J\xc2\x9b";
	sections[WORD].schema = line;
}

static void change_name(struct bad_feed *d)
{
	static char other[] = "other";
	sections[BOXES].name = other;
}

static void change_role(struct bad_feed *d)
{
	sections[BOXES].role = 8;
}

static void number_no_view(struct bad_feed *d)
{
	sections[RING_FLAGS].view = 1;
}

static void number_view_absurdly(struct bad_feed *d)
{
	sections[RING_FLAGS].view = RING_SECTIONS_MAX;
	sections[RING_FLAGS].view_name = (char *)"a";
}

static void escape_view(struct bad_feed *d)
{
	sections[RING_IMAGES].view_name = (char *)"a\x1b[2J";
}

static void begin_at_second_view(struct bad_feed *d)
{
	sections[BOXES].view = 1;
	sections[BOXES].view_name = (char *)"a";
}

static void change_view(struct bad_feed *d)
{
	sections[BOXES].view_name = (char *)"a";
}

static void lengthen_word(struct bad_feed *d)
{
	d->geometry.section_count = WORD;
	ring_geometry_ragged(&d->geometry, RING_OPAQUE, 0, 1, 4096);
	ring_geometry_ragged(&d->geometry, RING_F32, 1, 16, BOXES_MAX);
}

/* The row size in bytes stays the same, but a row now has 2 x 2 coordinates. */
static void add_dimension(struct bad_feed *d)
{
	d->geometry.sections[BOXES].dims = 2;
}

static void answer_version_1(struct bad_feed *d)
{
	ring_geometry_init(&d->geometry, d->geometry.slots, d->geometry.batch_size_max,
			   (uint64_t)d->geometry.batch_size_max * SIDE * SIDE * 3);
}

#define VALUES(...)                                                                                \
	{                                                                                          \
		.kind = "values", .expected = EPROTO, __VA_ARGS__                                  \
	}
#define EXTENT(s, member, number)                                                                  \
	.where = SLOT,                                                                             \
	.offset = offsetof(struct ring_slot_2, extents) + (s) * sizeof(struct ring_extent) +       \
		  offsetof(struct ring_extent, member),                                            \
	.size = sizeof(((struct ring_extent *)0)->member), .value = number
#define PLACE(s, member, number)                                                                   \
	.where = HEADER,                                                                           \
	.offset = offsetof(struct ring_header_2, sections) + (s) * sizeof(struct ring_section) +   \
		  offsetof(struct ring_section, member),                                           \
	.size = sizeof(((struct ring_section *)0)->member), .value = number

const struct row bad_section_rows[] = {
	{.name = "an honest feed of values", .kind = "values"},
	VALUES(.name = "a section in the slot's head", PLACE(WORD, offset, 64)),
	VALUES(.name = "a section beyond the slot", PLACE(BOXES, offset, UINT64_C(1) << 62)),
	VALUES(.name = "a section over another", PLACE(BOXES, offset, 4096)),
	VALUES(.name = "a section of 2^63 bytes", PLACE(WORD, room, UINT64_C(1) << 63)),
	VALUES(.name = "rows of no bytes", PLACE(BOXES, row, 0)),
	VALUES(.name = "rows of another size", PLACE(BOXES, row, 12)),
	VALUES(.name = "an unknown kind", PLACE(WORD, kind, 3)),
	VALUES(.name = "an unknown element of a section", PLACE(BOXES, element, 11)),
	VALUES(.name = "sections of 2^64 bytes a sample", PLACE(WORD, stride, UINT64_MAX)),
	VALUES(.name = "dense values of another size", EXTENT(RING_LABELS, bytes, 4)),
	VALUES(.name = "images of 2^64 bytes", EXTENT(RING_IMAGES, bytes, UINT64_MAX)),
	VALUES(.name = "images of 2^32 lines", EXTENT(RING_IMAGES, shape[0], UINT32_MAX)),
	VALUES(.name = "images of one channel", EXTENT(RING_IMAGES, shape[2], 1)),
	VALUES(.name = "images of a third layout", EXTENT(RING_IMAGES, layout, 3)),
	VALUES(.name = "more rows than there is room for", EXTENT(BOXES, bytes, 1 << 20)),
	VALUES(.name = "rows before their section", EXTENT(WORD, bytes, 1)),
	VALUES(.name = "a row of other sides", EXTENT(BOXES, shape[0], 5)),
	VALUES(.name = "a first row beyond the section", .before = start_beyond),
	VALUES(.name = "4294967295 rows", .before = rows_beyond),
	VALUES(.name = "one row beyond the section", .before = one_row_beyond),
	{.name = "rows that samples share", .kind = "values", .before = all_rows_overlap},
	{.name = "lists of rows that change while they are read",
	 .kind = "values",
	 .thread = change_lists,
	 .expected = AGENT_ANY,
	 .batches = 2000},
	{.name = "a section table that changes after it was checked",
	 .kind = "values",
	 .thread = change_table,
	 .batches = 2000},
	VALUES(.name = "a section more than the ring has", IN_OPENED(n_sections, SECTIONS + 1)),
	VALUES(.name = "a section less than the ring has", IN_OPENED(n_sections, SECTIONS - 1)),
	VALUES(.name = "two sections of one name", .prepare = rename_section),
	VALUES(.name = "a name of 64 KiB", .prepare = name_endlessly),
	VALUES(.name = "a name of escapes", .prepare = escape_name),
	VALUES(.name = "an unrequested section", .prepare = change_name),
	VALUES(.name = "the number of a view without a name", .prepare = number_no_view),
	VALUES(.name = "a view beyond all sections", .prepare = number_view_absurdly),
	VALUES(.name = "a view's name of escapes", .prepare = escape_view),
	VALUES(.name = "a value of the second view alone", .prepare = begin_at_second_view),
	VALUES(.name = "another view after a reconnect", .again = true, .prepare = change_view),
	{.name = "a line of the schema of escapes", .kind = "values", .prepare = escape_schema},
	VALUES(.name = "a ring of version 1 for values", .prepare = answer_version_1),
	VALUES(.name = "another role after a reconnect", .again = true, .prepare = change_role),
	VALUES(.name = "a longer text after a reconnect", .again = true, .prepare = lengthen_word),
	VALUES(.name = "another dimension after a reconnect", .again = true,
	       .prepare = add_dimension),
	{NULL},
};
