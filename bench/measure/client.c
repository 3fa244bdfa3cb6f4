#include "bench/measure/client.h"

#include "bench/measure/waits.h"
#include "bench/measure/wants.h"

#include "format/base/system/clock.h"
#include "format/base/text/printable.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static size_t shared_state_size(unsigned clients)
{
	return sizeof(struct shared_state) + clients * sizeof(struct client_slot);
}

int shared_state_new(unsigned clients, struct shared_state **ret_shared)
{
	void *memory = mmap(NULL, shared_state_size(clients), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -errno;
	*ret_shared = memory;
	return 0;
}

void shared_state_free(struct shared_state *shared, unsigned clients)
{
	if (shared)
		munmap(shared, shared_state_size(clients));
}

struct client {
	struct shared_state *shared;
	struct client_slot *slot;
	struct feed *feed;
	struct wants wants;
	enum consume consume;
	uint64_t step_ns;
	uint64_t reconnects; /* reconnects of the feed so far */
	unsigned number;
	int counts; /* nonzero in the window: counts the images of each part */
	uint8_t *copy;
	size_t copy_size;
	volatile uint64_t sum; /* prevents the compiler from removing the reads */
};

/* Reads or copies a batch according to settings->consume. */
static int client_consume(struct client *client, const struct feed_batch *batch)
{
	const uint64_t *words = batch->images;
	uint64_t sum = 0;

	switch (client->consume) {
	case CONSUME_NONE:
		return 0;
	case CONSUME_READ:
		for (size_t i = 0; i < batch->image_bytes / sizeof(*words); i++)
			sum += words[i];
		client->sum += sum;
		return 0;
	case CONSUME_COPY:
		if (batch->image_bytes > client->copy_size) {
			free(client->copy);
			client->copy_size = 0;
			client->copy = malloc(batch->image_bytes);
			if (!client->copy)
				return -ENOMEM;
			client->copy_size = batch->image_bytes;
		}
		memcpy(client->copy, batch->images, batch->image_bytes);
		return 0;
	}
	return -EINVAL;
}

/* Holds a batch until step_ns after it arrived. */
static void client_hold(const struct client *client, uint64_t begun_ns)
{
	uint64_t end_ns = begun_ns + client->step_ns;
	struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000u),
			       .tv_nsec = (long)(end_ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
}

/* Counts the images of each part. The sample numbers may change: an impossible one is not counted.
 */
static void count_parts(const struct client *client, const struct feed_batch *batch)
{
	struct feed_info info = {.size = sizeof(info)};
	struct feed_opened_part part = {.size = sizeof(part)};

	feed_info(client->feed, &info);
	for (uint32_t p = 0; info.part_count > 1 && p < info.part_count; p++) {
		feed_opened_part(client->feed, p, &part);
		for (uint32_t i = 0; i < batch->count; i++)
			client->slot->part_images[p] +=
				batch->samples[i] - part.first < part.samples;
	}
}

/* Counts the patches of a batch's images. */
static void count_patches(const struct client *client, const struct feed_batch *batch)
{
	struct feed_section section = {.size = sizeof(section)};
	const void *rows;

	if (batch->layout != FEED_PATCHES || feed_section(client->feed, batch, 0, &section))
		return;
	for (uint32_t i = 0; i < batch->count; i++) {
		int64_t count = feed_rows(&section, i, &rows);

		client->slot->patches += count > 0 ? (uint64_t)count : 0;
	}
}

/* Gets a batch, consumes it and releases it. ret_wait_ns: duration of feed_next(). */
static int client_step(struct client *client, struct feed_batch *batch, uint64_t *ret_wait_ns)
{
	uint64_t asked = clock_ns(CLOCK_MONOTONIC);

	batch->size = sizeof(*batch);
	int r = wants_ask(&client->wants);
	if (r) {
		snprintf(client->slot->error, sizeof(client->slot->error), "%s",
			 feed_error(client->feed));
		return r;
	}
	r = waits_next(client->feed, batch);
	*ret_wait_ns = clock_ns(CLOCK_MONOTONIC) - asked;
	if (r) {
		snprintf(client->slot->error, sizeof(client->slot->error), "no batch: %s",
			 waits_error(client->feed, r));
		return r < 0 ? r : -ENODATA;
	}
	wants_took(&client->wants);
	if (batch->reconnects != client->reconnects) {
		printable_line(stderr, "loaderbench: client %u: %s", client->number,
			       feed_reconnect_text(client->feed));
		client->reconnects = batch->reconnects;
	}
	r = client_consume(client, batch);
	if (r)
		return r;
	if (client->counts) {
		count_parts(client, batch);
		count_patches(client, batch);
	}
	if (client->step_ns)
		client_hold(client, asked + *ret_wait_ns);
	return feed_release(client->feed, batch);
}

/*
 * The first batch after start_ns opens the window and does not count. The window lasts at least
 * stop_ns - start_ns and ends with a batch, which counts. So it contains whole batches, however
 * large they are, and is never too short, however late the first batch came.
 */
static int client_measure(struct client *client)
{
	struct shared_state *shared = client->shared;
	struct client_slot *slot = client->slot;
	struct feed_batch batch;
	uint64_t opened = 0, cpu_opened = 0, wait, start;
	int r;

	do {
		r = client_step(client, &batch, &wait);
		if (r)
			return r;
		atomic_store(&slot->state, CLIENT_RUNS);
		start = atomic_load(&shared->start_ns);
		opened = clock_ns(CLOCK_MONOTONIC);
	} while (!start || opened < start);
	cpu_opened = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	client->counts = 1;
	uint64_t reconnects = client->reconnects;

	uint64_t stop = opened + (atomic_load(&shared->stop_ns) - start);
	do {
		r = client_step(client, &batch, &wait);
		if (r)
			return r;
		slot->batches++;
		slot->images += batch.count;
		slot->bytes += batch.image_bytes;
		slot->bad += batch.bad;
		slot->wait_ns += wait;
		histogram_add(&slot->waits, wait);
		slot->window_ns = clock_ns(CLOCK_MONOTONIC) - opened;
	} while (opened + slot->window_ns < stop);
	slot->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_opened;
	client->counts = 0;
	slot->reconnects = client->reconnects - reconnects;
	atomic_store(&slot->state, CLIENT_DONE);

	/*
	 * Continue until all clients have finished, so that the others do not get the daemon to
	 * themselves.
	 */
	while (!atomic_load(&shared->leave) && !r)
		r = client_step(client, &batch, &wait);
	return 0;
}

static void client_run(struct client *client, const struct settings *settings,
		       const struct feed_options *options)
{
	int r = feed_open(options, &client->feed, client->slot->error);

	if (!r)
		r = wants_begin(&client->wants, settings, client->feed);
	if (!r)
		r = client_measure(client);
	if (r) {
		if (!client->slot->error[0])
			snprintf(client->slot->error, sizeof(client->slot->error), "%s",
				 strerror(-r));
		atomic_store(&client->slot->state, CLIENT_FAILED);
	}
	feed_close(client->feed);
	wants_free(&client->wants);
	free(client->copy);
}

pid_t client_start(struct shared_state *shared, const struct settings *settings,
		   const struct point *point, const char *socket, unsigned number)
{
	pid_t parent = getpid();
	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child)
		return child;

	struct client client = {.shared = shared,
				.slot = &shared->slots[number],
				.consume = settings->consume,
				.number = number,
				.step_ns = (uint64_t)(settings->step_s * 1e9)};
	struct opening_wait wait;
	struct feed_options options;

	/* Die with the parent, even if the parent has already died. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	point_feed_options(settings, point, socket, number, &options);
	opening_wait_init(&wait, point->dataset);
	options.fetching = opening_wait_tell;
	options.progress_user = &wait;
	client_run(&client, settings, &options);
	_exit(0);
}
