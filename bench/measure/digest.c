#include "bench/measure/digest.h"

#include "bench/measure/waits.h"
#include "bench/measure/wants.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "format/base/text/printable.h"
#include "proto/client/connection.h"

enum {
	ALIVE_POLL_US = 1000,
};

struct digest {
	const struct settings *settings;
	const struct point *point;
	const struct digest_schedule *schedule;
	struct feed_daemon *daemon;
	struct feed *feed;
	struct wants wants;
	XXH3_state_t *state;
	uint64_t reconnects; /* reconnects of the feed so far */
	char *error;
};

static int digest_open(struct digest *digest, uint64_t epoch, uint64_t batch)
{
	struct opening_wait wait;
	struct feed_options options;
	const char *socket = digest->settings->socket;
	int r;

	if (!socket && !digest->daemon) {
		r = point_daemon_start(digest->settings, digest->point, &digest->daemon,
				       digest->error);
		if (r)
			return r;
	}
	point_feed_options(digest->settings, digest->point,
			   socket ? socket : feed_daemon_socket(digest->daemon), 0, &options);
	if (!digest->settings->wanted) {
		options.epoch = epoch;
		options.batch = batch;
	}
	opening_wait_init(&wait, digest->point->dataset);
	options.fetching = opening_wait_tell;
	options.progress_user = &wait;
	digest->reconnects = 0;
	r = feed_open(&options, &digest->feed, digest->error);
	return r ? r : wants_begin(&digest->wants, digest->settings, digest->feed);
}

static void digest_add(struct digest *digest, const struct feed_batch *batch)
{
	/* A wanted feed counts its batches from 0 when it is opened. */
	uint64_t number = digest->settings->wanted ? digest->wants.taken : batch->batch;
	const uint64_t head[] = {batch->epoch,   number,        batch->count,
				 batch->height,  batch->width,  batch->channels,
				 batch->element, batch->layout, batch->last};

	XXH3_128bits_update(digest->state, head, sizeof(head));
	/* Between patches is what was there before. */
	if (batch->layout != FEED_PATCHES)
		XXH3_128bits_update(digest->state, batch->images, batch->image_bytes);
	XXH3_128bits_update(digest->state, batch->labels, batch->count * sizeof(*batch->labels));
	XXH3_128bits_update(digest->state, batch->samples, batch->count * sizeof(*batch->samples));
	XXH3_128bits_update(digest->state, batch->flags, batch->count * sizeof(*batch->flags));
}

/* Adds a value sample by sample, because its layout in the section may differ. */
static int digest_add_section(struct digest *digest, const struct feed_batch *batch,
			      uint32_t number)
{
	struct feed_section section = {.size = sizeof(section)};
	int r = feed_section(digest->feed, batch, number, &section);

	if (r)
		return r;
	if (section.kind == FEED_DENSE) {
		XXH3_128bits_update(digest->state, section.data, section.bytes);
		return 0;
	}
	for (uint32_t i = 0; i < batch->count; i++) {
		const void *rows;
		int64_t count = feed_rows(&section, i, &rows);

		if (count < 0)
			return (int)count;
		XXH3_128bits_update(digest->state, &count, sizeof(count));
		XXH3_128bits_update(digest->state, rows, (size_t)count * section.row);
	}
	return 0;
}

/* Adds the sections of a value's views, from number `view` on. Returns how many, or an error. */
static int digest_add_views(struct digest *digest, const struct feed_batch *batch, const char *name,
			    uint32_t view)
{
	struct feed_section section = {.size = sizeof(section)};
	int found = 0;

	for (uint32_t i = 0; feed_section(digest->feed, NULL, i, &section) == 0; i++) {
		if (section.view < view || strcmp(section.name, name) != 0)
			continue;
		int r = digest_add_section(digest, batch, i);

		if (r)
			return r;
		found++;
	}
	return found;
}

/* Adds the targets of mixed batches, which are the last sections. */
static int digest_add_targets(struct digest *digest, const struct feed_batch *batch)
{
	struct feed_info info = {.size = sizeof(info)};
	int r = feed_info(digest->feed, &info);

	for (uint32_t i = info.section_count - info.target_count; !r && i < info.section_count; i++)
		r = digest_add_section(digest, batch, i);
	return r;
}

/* Adds patches, the images of views other than the first, the requested values, and targets. */
static int digest_add_values(struct digest *digest, const struct feed_batch *batch)
{
	struct feed_section images = {.size = sizeof(images)};
	int r = 0;

	if (feed_section(digest->feed, NULL, 0, &images) == 0)
		r = digest_add_views(digest, batch, images.name,
				     batch->layout == FEED_PATCHES ? 0 : 1);
	for (uint32_t i = 0; i < digest->settings->value_count && r >= 0; i++) {
		r = digest_add_views(digest, batch, digest->settings->values[i], 0);
		if (r == 0)
			r = -ENOENT;
	}
	r = r < 0 ? r : digest_add_targets(digest, batch);
	return r ? error_set(digest->error, r, "a value of a batch cannot be read: %s",
			     strerror(-r))
		 : 0;
}

static int digest_step(struct digest *digest)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	int r = wants_ask(&digest->wants);

	if (r)
		return error_set(digest->error, r, "%s", feed_error(digest->feed));
	r = waits_next(digest->feed, &batch);
	if (r)
		return error_set(digest->error, r < 0 ? r : -ENODATA, "no batch: %s",
				 waits_error(digest->feed, r));
	if (batch.reconnects != digest->reconnects)
		printable_line(stderr, "loaderbench: %s", feed_reconnect_text(digest->feed));
	digest->reconnects = batch.reconnects;
	digest_add(digest, &batch);
	r = digest_add_values(digest, &batch);
	if (r)
		return r;
	wants_took(&digest->wants);
	return feed_release(digest->feed, &batch);
}

static int is_among(const unsigned *list, size_t count, uint64_t value)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] == value)
			return 1;
	return 0;
}

/* Closes the feed and reopens it at its position. */
static int digest_reopen(struct digest *digest)
{
	uint64_t epoch, batch;
	int r = feed_position(digest->feed, &epoch, &batch);

	if (r)
		return r;
	feed_close(digest->feed);
	digest->feed = NULL;
	return digest_open(digest, epoch, batch);
}

/*
 * Kills the daemon and starts the next one. The feed first delivers the batches that it still has,
 * then reconnects by itself.
 */
static int digest_restart_daemon(struct digest *digest)
{
	kill((pid_t)feed_daemon_pid(digest->daemon), SIGKILL);
	while (feed_daemon_alive(digest->daemon))
		usleep(ALIVE_POLL_US);
	return feed_daemon_restart(digest->daemon, digest->error);
}

static int digest_run(struct digest *digest)
{
	const struct digest_schedule *schedule = digest->schedule;
	int r = digest_open(digest, 0, 0);

	for (uint64_t i = 1; i <= schedule->batches && !r; i++) {
		r = digest_step(digest);
		if (r || i == schedule->batches)
			break;
		if (is_among(schedule->kill, schedule->kill_count, i))
			r = digest_restart_daemon(digest);
		else if (is_among(schedule->reopen, schedule->reopen_count, i))
			r = digest_reopen(digest);
	}
	return r;
}

int digest_measure(const struct settings *settings, const struct point *point,
		   const struct digest_schedule *schedule, char *ret_text, char *error)
{
	struct digest digest = {.settings = settings,
				.point = point,
				.schedule = schedule,
				.state = XXH3_createState(),
				.error = error};

	error[0] = '\0';
	if (!digest.state)
		return error_set(error, -ENOMEM, "out of memory");
	XXH3_128bits_reset(digest.state);
	int r = digest_run(&digest);
	feed_close(digest.feed);
	wants_free(&digest.wants);
	feed_daemon_stop(digest.daemon);
	if (!r) {
		XXH128_hash_t hash = XXH3_128bits_digest(digest.state);

		snprintf(ret_text, 33, "%016llx%016llx", (unsigned long long)hash.high64,
			 (unsigned long long)hash.low64);
	} else if (!error[0]) {
		error_set(error, r, "%s", strerror(-r));
	}
	XXH3_freeState(digest.state);
	return r;
}
