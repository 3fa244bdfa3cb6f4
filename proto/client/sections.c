/* Sections of a ring of version 2: their names, and the values of a batch. */
#include "proto/client/feed_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	NAME_SIZE_MAX = 63,    /* bytes, as in a schema */
	SCHEMA_SIZE_MAX = 512, /* bytes of a line */
	TARGETS_MAX = 2,       /* sections of targets */
};

/* Size in the first release, for callers that leave size at 0. */
enum { SECTION_SIZE_0 = offsetof(struct feed_section, view_name) };

_Static_assert((int)FEED_DENSE == (int)RING_DENSE && (int)FEED_RAGGED == (int)RING_RAGGED,
	       "kinds pass through");
_Static_assert((int)FEED_U16 == (int)RING_U16 && (int)FEED_F64 == (int)RING_F64,
	       "elements pass through");

static int refuse_sections(const struct feed *feed, char *error, const char *what)
{
	return daemon_error(&feed->connection, error, -EPROTO,
			    "opened a feed with sections that cannot be: %s.", what);
}

static int find_section(const struct feed *feed, const char *name, uint32_t view)
{
	for (uint32_t i = 0; i < feed->section_count; i++)
		if (strcmp(feed->sections[i].name, name) == 0 && feed->sections[i].view == view)
			return (int)i;
	return -ENOENT;
}

/* Returns true for a name that a schema may have (format/SPEC.md, "Schema"). */
static bool name_is_sound(const char *name)
{
	size_t size = strlen(name);
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == '\x7f')
			return false;
	return size > 0 && size <= NAME_SIZE_MAX;
}

/* Copies one section's facts. */
static int take_facts(struct feed *feed, const Loaderd__Section *said, char *error)
{
	struct section_facts *facts = &feed->sections[feed->section_count];
	if (!name_is_sound(said->name))
		return refuse_sections(feed, error,
				       "a name is empty, too long or has control characters");
	if (strlen(said->schema) > SCHEMA_SIZE_MAX)
		return refuse_sections(feed, error, "a line of the schema is too long");
	if (said->role > FEED_ROLE_JSON)
		return refuse_sections(feed, error, "a role is unknown");
	if (said->view >= RING_SECTIONS_MAX ||
	    (said->view_name[0] ? !name_is_sound(said->view_name) : said->view != 0))
		return refuse_sections(feed, error, "a view cannot be");
	if (find_section(feed, said->name, said->view) >= 0)
		return refuse_sections(feed, error, "two have one name");
	facts->name = strdup(said->name);
	facts->schema = strdup(said->schema);
	facts->view_name = strdup(said->view_name);
	facts->role = said->role;
	facts->view = said->view;
	feed->section_count++;
	if (!facts->name || !facts->schema || !facts->view_name)
		return error_set(error, -ENOMEM, "Out of memory.");
	text_make_printable(facts->schema);
	return 0;
}

static bool is_asked_for(const struct feed_options *options, const char *name)
{
	for (uint32_t i = 0; i < options->value_count; i++)
		if (strcmp(options->values[i], name) == 0)
			return true;
	return false;
}

/*
 * Every value that was asked for comes, and none that was not; but views have images, and mixed
 * batches targets.
 */
static int check_values(const struct feed *feed, const struct feed_options *options, char *error)
{
	for (uint32_t i = 0; i < options->value_count; i++)
		if (find_section(feed, options->values[i], 0) < 0)
			return daemon_error(&feed->connection, error, -EPROTO,
					    "does not deliver the value %s.", options->values[i]);
	for (uint32_t i = RING_FIRST_FIELD; i < feed->section_count - feed->target_count; i++) {
		const struct section_facts *facts = &feed->sections[i];
		bool is_image = facts->view > 0 && facts->role == FEED_ROLE_IMAGE &&
				strcmp(facts->name, feed->sections[RING_IMAGES].name) == 0;
		if (!is_image && !is_asked_for(options, facts->name))
			return refuse_sections(feed, error, "there are more than were asked for");
	}
	return 0;
}

/* Targets are a weight of each class, or two labels and a share. */
static int take_targets(struct feed *feed, uint32_t count, char *error)
{
	if (count > TARGETS_MAX || count > feed->section_count - RING_FIRST_FIELD)
		return refuse_sections(feed, error, "there are more targets than can be");
	for (uint32_t i = feed->section_count - count; i < feed->section_count; i++)
		if (feed->sections[i].role != FEED_ROLE_VALUE ||
		    feed->section_layout.sections[i].kind != RING_DENSE)
			return refuse_sections(feed, error, "a target is no number");
	feed->target_count = count;
	return 0;
}

int sections_init(struct feed *feed, const struct feed_options *options,
		  const Loaderd__FeedOpened *opened, char *error)
{
	static const uint32_t roles[] = {
		[RING_IMAGES] = FEED_ROLE_IMAGE,
		[RING_LABELS] = FEED_ROLE_CLASS,
		[RING_SAMPLES] = FEED_ROLE_NUMBER,
		[RING_FLAGS] = FEED_ROLE_NONE,
	};
	const struct ring_geometry *layout = &feed->ring.layout;
	if (opened->n_sections != layout->section_count)
		return refuse_sections(feed, error, "the ring has others");
	feed->section_layout = *layout;
	feed->sections = calloc(layout->section_count, sizeof(*feed->sections));
	if (!feed->sections)
		return error_set(error, -ENOMEM, "Out of memory.");
	int r;
	for (uint32_t i = 0; i < layout->section_count; i++) {
		r = take_facts(feed, opened->sections[i], error);
		if (r < 0)
			return r;
		if (i < RING_FIRST_FIELD && feed->sections[i].role != roles[i])
			return refuse_sections(
				feed, error, "image, label, sample number and flags are not first");
	}
	r = take_targets(feed, opened->targets, error);
	return r < 0 ? r : check_values(feed, options, error);
}

void sections_deinit(struct feed *feed)
{
	for (uint32_t i = 0; i < feed->section_count; i++) {
		free(feed->sections[i].name);
		free(feed->sections[i].schema);
		free(feed->sections[i].view_name);
	}
	free(feed->sections);
}

bool sections_equal(const struct feed *a, const struct feed *b)
{
	if (a->section_count == 0 || b->section_count == 0)
		return true;
	if (a->section_count != b->section_count || a->target_count != b->target_count)
		return false;
	for (uint32_t i = 0; i < a->section_count; i++)
		if (strcmp(a->sections[i].name, b->sections[i].name) != 0 ||
		    strcmp(a->sections[i].view_name, b->sections[i].view_name) != 0 ||
		    a->sections[i].view != b->sections[i].view ||
		    a->sections[i].role != b->sections[i].role)
			return false;
	return true;
}

int feed_section_find(const struct feed *feed, const char *name)
{
	return find_section(feed, name, 0);
}

/* Adds what a batch has in the section. images: the batch's first byte of images. */
static void describe_batch(const struct ring_geometry *layout, uint32_t number,
			   const struct ring_extent *extent, const void *images,
			   struct feed_section *section)
{
	const struct ring_section *place = &layout->sections[number];
	const char *data =
		(const char *)images - layout->sections[RING_IMAGES].offset + place->offset;
	memcpy(section->shape, extent->shape, sizeof(section->shape));
	section->layout = extent->layout;
	section->data = data;
	section->bytes = extent->bytes;
	if (place->kind != RING_RAGGED)
		return;
	section->row = place->row;
	section->starts = (const uint32_t *)data;
	section->rows = section->starts + layout->batch_size_max;
	section->data = data + ring_ragged_offset(layout->batch_size_max);
	section->bytes -= ring_ragged_offset(layout->batch_size_max);
}

/* Call with the lock held. */
static int describe_section(const struct feed *feed, const struct feed_batch *batch,
			    uint32_t number, struct feed_section *section)
{
	uint64_t base = 0;
	const struct ring_consumer *ring = batch ? feed_ring_of(feed, batch->number, &base) : NULL;
	const struct ring_extent *extents = ring ? ring_extents(ring, batch->number - base) : NULL;
	if (batch && !extents)
		return -EINVAL;
	section->name = feed->sections[number].name;
	section->schema = feed->sections[number].schema;
	section->role = feed->sections[number].role;
	section->view = feed->sections[number].view;
	section->view_name = feed->sections[number].view_name;
	section->element = feed->section_layout.sections[number].element;
	section->kind = feed->section_layout.sections[number].kind;
	section->dims = feed->section_layout.sections[number].dims;
	if (batch)
		describe_batch(&ring->layout, number, &extents[number], batch->images, section);
	return 0;
}

int feed_section(const struct feed *feed, const struct feed_batch *batch, uint32_t section,
		 struct feed_section *ret_section)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&feed->lock;
	struct feed_section found = {.size = ret_section->size};
	if (feed->connection.fd < 0)
		return -ECHILD;
	if (section >= feed->section_count)
		return -EINVAL;
	pthread_mutex_lock(lock);
	int r = describe_section(feed, batch, section, &found);
	pthread_mutex_unlock(lock);
	if (r == 0)
		memcpy(ret_section, &found,
		       feed_known_size(ret_section->size, SECTION_SIZE_0, sizeof(found)));
	return r;
}

int64_t feed_rows(const struct feed_section *section, uint32_t sample, const void **ret_rows)
{
	if (section->kind != FEED_RAGGED || !section->data)
		return -EINVAL;
	/* volatile: read once, since a daemon could change them */
	uint64_t start = ((const volatile uint32_t *)section->starts)[sample];
	uint64_t rows = ((const volatile uint32_t *)section->rows)[sample];
	/* Divided, because the product may exceed 64 bits. */
	if (start + rows > section->bytes / section->row)
		return -EPROTO;
	*ret_rows = (const char *)section->data + start * section->row;
	return (int64_t)rows;
}
