/*
 * Arbitrary bytes as the description of a feed's sections in a broken daemon's FeedOpened. libfeed
 * must refuse it with an error text, or accept exactly the ring's sections: with unique names,
 * without control characters in names and texts, and with every requested value.
 */
#include "format/base/text/printable.h"
#include "proto/client/feed_state.h"
#include "proto/ring_layout.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char *const values[] = {"mask", "boxes", "caption"};
enum { VALUES = sizeof(values) / sizeof(*values) };

static void check(bool holds)
{
	if (!holds)
		abort();
}

/* Sets the layout of a ring with these values; the client has already checked it. */
static void lay_out(struct ring_geometry *layout, uint32_t value_count, uint32_t target_count)
{
	struct ring_geometry geometry;

	ring_geometry_init(&geometry, 2, 4, 1000);
	ring_geometry_upgrade(&geometry, RING_U8);
	for (uint32_t i = 0; i < value_count; i++)
		ring_geometry_ragged(&geometry, RING_F32, 1, 16, 5);
	for (uint32_t i = 0; i < target_count; i++)
		ring_geometry_dense(&geometry, RING_F32, 1, 7);
	check(ring_lay_out(&geometry, layout) == 0);
}

static void check_sections(struct feed *feed, uint32_t value_count)
{
	for (uint32_t i = 0; i < feed->section_count; i++) {
		struct feed_section section = {.size = sizeof(section)};

		check(feed_section(feed, NULL, i, &section) == 0);
		check(feed_section_find(feed, section.name) == (int)i);
		check(section.role <= FEED_ROLE_JSON && section.dims <= RING_DIMS_MAX);
		size_t size = strlen(section.schema);
		check(printable_span(section.schema, size) == size);
		check(section.name[0] != '\0');
		for (const char *at = section.name; *at; at++)
			check((unsigned char)*at >= ' ' && *at != '\x7f');
	}
	check(feed->section_count == RING_FIRST_FIELD + value_count + feed->target_count);
	check(feed->target_count <= 2);
	for (uint32_t i = 0; i < value_count; i++)
		check(feed_section_find(feed, values[i]) >= RING_FIRST_FIELD);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[FEED_ERROR_MAX] = "";
	struct feed_options options;

	if (size == 0)
		return 0;
	Loaderd__FeedOpened *opened = loaderd__feed_opened__unpack(NULL, size - 1, data + 1);

	if (!opened)
		return 0;
	struct feed *feed = feed_new();

	check(feed != NULL);
	feed_options_init(&options);
	options.values = values;
	options.value_count = data[0] % (VALUES + 1);
	lay_out(&feed->ring.layout, options.value_count, data[0] / (VALUES + 1) % 4);
	/* any fd: a negative one would mean that the feed was closed after fork() */
	feed->connection.fd = 0;
	if (sections_init(feed, &options, opened, error) == 0)
		check_sections(feed, options.value_count);
	else
		check(error[0] != '\0' && memchr(error, 0, sizeof(error)));
	feed->connection.fd = -1;
	feed_close(feed);
	loaderd__feed_opened__free_unpacked(opened, NULL);
	return 0;
}
