/*
 * libfeed with a daemon whose feed differs from the requested one, or changes before the client
 * reconnects.
 */
#include "tests/unit/proto/client/puppet.h"

#include <poll.h>

/* ---- feeds that differ from the request ---- */

static void open_without_batches(struct puppet *p)
{
	if (puppet_hear_wish(p)) {
		p->opened.batches_per_epoch = 0;
		puppet_grant(p);
	}
	puppet_hear_to_the_end(p);
}

static void open_with_more_batches_than_samples(struct puppet *p)
{
	if (puppet_hear_wish(p)) {
		p->opened.batches_per_epoch = p->opened.samples + 1;
		puppet_grant(p);
	}
	puppet_hear_to_the_end(p);
}

static void open_with_larger_batches(struct puppet *p)
{
	if (puppet_hear_wish(p)) {
		p->geometry.batch_size_max++;
		puppet_grant(p);
	}
	puppet_hear_to_the_end(p);
}

static void open_with_more_slots(struct puppet *p)
{
	if (puppet_hear_wish(p)) {
		p->geometry.slots++;
		puppet_grant(p);
	}
	puppet_hear_to_the_end(p);
}

static void open_with_fewer_fields(struct puppet *p)
{
	if (puppet_hear_wish(p)) {
		p->geometry.section_count--;
		puppet_grant(p);
	}
	puppet_hear_to_the_end(p);
}

/* Publishes batches beyond epoch_end. */
static void go_on_after_the_end(struct puppet *p)
{
	bool there = puppet_begin_feed(p, SLOTS);
	while (there) {
		struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
		ring_producer_arm(&p->ring);
		while (ring_outstanding(&p->ring) < SLOTS)
			puppet_publish(p, 1);
		if (poll(&poll_fd, 1, 10) > 0)
			there = puppet_hear_and_forget(p);
	}
}

static void end_an_epoch_early(struct puppet *p)
{
	if (puppet_hear_wish(p) && puppet_grant(p)) {
		struct ring_slot *slot = ring_begin(&p->ring);
		slot->epoch = slot->batch = 0;
		slot->count = BATCH_SIZE;
		slot->height = slot->width = SIDE;
		slot->channels = 3;
		slot->element = RING_U8;
		slot->layout = RING_NHWC;
		slot->last = 1;
		ring_publish(&p->ring);
		frame_send(p->fd, (const uint8_t *)"\x2a\x00", 2, NULL, 0, 0);
	}
	puppet_hear_to_the_end(p);
}

static void open_with_larger_values(struct puppet *p)
{
	if (puppet_hear_wish(p)) {
		p->geometry.field_bytes = 65536;
		puppet_grant(p);
	}
	puppet_hear_to_the_end(p);
}

TEST(feed_must_match_request)
{
	static const struct row rows[] = {
		{"epochs without batches", open_without_batches, puppet_request_feed, -EPROTO,
		 "in 0 batches"},
		{"more batches than samples", open_with_more_batches_than_samples,
		 puppet_request_feed, -EPROTO, "80 samples in 81 batches"},
		{"larger batches", open_with_larger_batches, puppet_request_feed, -EPROTO,
		 "4 slots for 9 samples each, where 4 for 8"},
		{"more slots", open_with_more_slots, puppet_request_feed, -EPROTO, "5 slots for 8"},
		{"larger values", open_with_larger_values, puppet_request_feed, -EPROTO,
		 "16 asked for, the daemon on "},
		{"fewer fields", open_with_fewer_fields, puppet_request_feed, -EPROTO,
		 "delivers 1"},
		{"batches after epoch_end", go_on_after_the_end, puppet_take_batches, -EPROTO,
		 "published batch 21 with a header that cannot be"},
		{"an epoch that ends early", end_an_epoch_early, puppet_take_batches, -EPROTO,
		 "published batch 1 with a header that cannot be"},
	};
	puppet_run_rows(rows, sizeof(rows) / sizeof(*rows));
}

/* ---- feeds that change before a reconnect ---- */

static void come_back(struct puppet *p, void (*change)(struct puppet *))
{
	if (p->connections == 0) {
		puppet_begin_feed(p, 2);
		return;
	}
	if (puppet_hear_wish(p)) {
		change(p);
		if (puppet_grant(p))
			puppet_publish(p, 1);
	}
	puppet_hear_to_the_end(p);
}

static void change_uuid(struct puppet *p)
{
	p->opened.dataset_uuid.data = (uint8_t *)"0123456789abcdeF";
}

static void shorten_uuid(struct puppet *p)
{
	p->opened.dataset_uuid.len = 15;
}

static void change_samples(struct puppet *p)
{
	p->opened.samples++;
}

static void change_classes(struct puppet *p)
{
	p->opened.classes = UINT32_MAX;
}

static void change_batches(struct puppet *p)
{
	p->opened.batches_per_epoch++;
}

static void enlarge_images(struct puppet *p)
{
	p->geometry.sections[RING_IMAGES].room *= 2;
}

static void shrink_values(struct puppet *p)
{
	p->geometry.section_count--;
	ring_geometry_field(&p->geometry, FEED_BYTES, VALUE_SIZE / 2);
}

static void change_type(struct puppet *p)
{
	p->geometry.sections[RING_FIRST_FIELD].element = RING_F64;
}

static void change_position(struct puppet *p)
{
	p->batch++;
}

#define COME_BACK(change)                                                                          \
	static void change##_later(struct puppet *p)                                               \
	{                                                                                          \
		come_back(p, change);                                                              \
	}
COME_BACK(change_uuid)
COME_BACK(shorten_uuid)
COME_BACK(change_samples)
COME_BACK(change_classes)
COME_BACK(change_batches)
COME_BACK(enlarge_images)
COME_BACK(shrink_values)
COME_BACK(change_type)
COME_BACK(change_position)

TEST(reopened_feed_must_match)
{
	static const char replaced[] = "has been replaced by another dataset",
			  sections[] = "of other sizes or types";
	static const struct row rows[] = {
		{"another uuid", change_uuid_later, puppet_take_batches, -ESTALE, replaced},
		{"half a uuid", shorten_uuid_later, puppet_take_batches, -ESTALE, replaced},
		{"other samples", change_samples_later, puppet_take_batches, -ESTALE, replaced},
		{"other classes", change_classes_later, puppet_take_batches, -ESTALE, replaced},
		{"other batches", change_batches_later, puppet_take_batches, -EPROTO, "divides "},
		{"larger images", enlarge_images_later, puppet_take_batches, -EPROTO, sections},
		{"smaller values", shrink_values_later, puppet_take_batches, -EPROTO, sections},
		{"a field of another type", change_type_later, puppet_take_batches, -EPROTO,
		 sections},
		{"another position", change_position_later, puppet_take_batches, -EPROTO,
		 "published batch 1 with a header that cannot be"},
	};
	puppet_run_rows(rows, sizeof(rows) / sizeof(*rows));
}

TEST_MAIN(puppet_make_dataset, puppet_remove_dataset)
