#include "format/base/system/clock.h"
#include "proto/client/daemon.h"
#include "proto/client/feed_state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
	TIMEOUT_MS = 60000,       /* default of reconnect_timeout_ms */
	DELAY_FIRST_MS = 20,      /* doubled with each attempt */
	DELAY_MAX_MS = 1000,      /* upper limit of the delay */
	QUOTA_PATIENCE_MS = 5000, /* the memory of the dead feed may not have been freed yet */
	/* then the feed itself may be what ends the daemon: give up */
	FRUITLESS_MAX = 5,
	ANSWER_TIMEOUT_MS = 10000,
	OLD_RINGS_MAX = 16, /* each old ring has a batch held by the caller, or is kept */
	TRY_AGAIN = 2,      /* outcome of an attempt; not a code that a daemon can send */
};
_Static_assert((int)TRY_AGAIN != FEED_END, "both are outcomes");

/* ---- old rings ---- */

/* Call with the lock held. */
static bool in_use(const struct ring_consumer *ring, bool kept)
{
	return kept || atomic_load_explicit(&ring->held_count, memory_order_relaxed) > 0;
}

/* Unmaps unused old rings. Call with the lock held. */
static void unmap_unused_rings(struct feed *feed)
{
	for (struct old_ring **link = &feed->old; *link;) {
		struct old_ring *old = *link;
		if (in_use(&old->ring, old->kept)) {
			link = &old->next;
			continue;
		}
		*link = old->next;
		ring_consumer_deinit(&old->ring);
		free(old);
	}
}

static unsigned count_old(struct feed *feed)
{
	unsigned count = 0;
	pthread_mutex_lock(&feed->lock);
	for (const struct old_ring *old = feed->old; old; old = old->next)
		count++;
	pthread_mutex_unlock(&feed->lock);
	return count;
}

/*
 * Moves the ring of the lost connection to the old rings. Unmaps it at once if the caller holds no
 * batch of it: as long as it is mapped, the daemon counts it against the user's limits.
 */
static int put_ring_away(struct feed *feed)
{
	struct old_ring *old = calloc(1, sizeof(*old));
	if (!old)
		return -ENOMEM;
	feed->reopening.layout = feed->ring.layout;
	pthread_mutex_lock(&feed->lock);
	*old = (struct old_ring){feed->old, feed->ring, feed->base, feed->kept};
	feed->old = old;
	feed->base += feed->ring.taken;
	feed->ring = (struct ring_consumer){0};
	feed->kept = false;
	unmap_unused_rings(feed);
	pthread_mutex_unlock(&feed->lock);
	feed->info.memory = NULL;
	feed->info.memory_size = 0;
	return 0;
}

int old_ring_release(struct feed *feed, uint64_t number)
{
	for (struct old_ring *old = feed->old; old; old = old->next) {
		if (number <= old->base)
			continue;
		int r = ring_ack(&old->ring, number - old->base);
		unmap_unused_rings(feed);
		return r < 0 ? r : 0; /* no daemon waits there for a doorbell */
	}
	return -EINVAL;
}

void old_rings_free(struct feed *feed)
{
	while (feed->old) {
		struct old_ring *old = feed->old;
		feed->old = old->next;
		ring_consumer_deinit(&old->ring);
		free(old);
	}
}

int feed_keep_memory(struct feed *feed, const void *memory)
{
	if (feed->connection.fd < 0)
		return -ECHILD;
	if (!memory || memory != feed->ring.header)
		return -EINVAL;
	pthread_mutex_lock(&feed->lock);
	feed->kept = true;
	pthread_mutex_unlock(&feed->lock);
	return 0;
}

int feed_drop_memory(struct feed *feed, const void *memory)
{
	int r = -EINVAL;
	if (feed->connection.fd < 0)
		return -ECHILD;
	pthread_mutex_lock(&feed->lock);
	if (memory && memory == feed->ring.header && feed->kept) {
		feed->kept = false;
		r = 0;
	}
	for (struct old_ring *old = feed->old; old && r < 0; old = old->next) {
		if (old->ring.header != memory || !old->kept)
			continue;
		old->kept = false;
		r = 0;
	}
	unmap_unused_rings(feed);
	pthread_mutex_unlock(&feed->lock);
	return r;
}

/* ---- events for feed_fd() ---- */

static int watch_fd(struct feed *feed, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};
	return epoll_ctl(feed->wake, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int reopen_watch_socket(struct feed *feed)
{
	return watch_fd(feed, feed->connection.fd);
}

int reopen_watch_fetcher(struct feed *feed, const struct fetched *fetched)
{
	return watch_fd(feed, fetched->fd);
}

/* Makes feed_fd() fire at the next attempt: a socket that has hung up would always be readable. */
static int watch_timer(struct feed *feed)
{
	epoll_ctl(feed->wake, EPOLL_CTL_DEL, feed->connection.fd, NULL);
	if (feed->timer >= 0)
		return 0;
	feed->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (feed->timer < 0)
		return -errno;
	return watch_fd(feed, feed->timer);
}

/* time_ms: time of clock_ms(); 0 disarms. An expired timer stays readable until it is set again. */
static void set_timer(struct feed *feed, int64_t time_ms)
{
	struct itimerspec at = {
		.it_value = {.tv_sec = time_ms / 1000, .tv_nsec = time_ms % 1000 * 1000000}};
	timerfd_settime(feed->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

/* ---- attempts ---- */

bool reopen_wanted(const struct feed *feed)
{
	return feed->failed == -ECONNRESET && !feed->reopening.given_up &&
	       feed->options.reconnect != FEED_RECONNECT_NEVER;
}

/* Randomised, so that a daemon's clients do not reconnect all at once. */
static int64_t delay_ms(unsigned attempts)
{
	int64_t most = attempts > 6 ? DELAY_MAX_MS : DELAY_FIRST_MS << attempts;
	uint32_t random = 0;
	if (most > DELAY_MAX_MS)
		most = DELAY_MAX_MS;
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		return most;
	return most / 2 + random % (most / 2 + 1);
}

static const char *loss_verb(const struct feed *feed)
{
	return feed->fetched_stale ? "lost the dataset's files, which were removed from the cache,"
	       : feed->shutting_down ? "shut down"
				     : "went away";
}

static int reopen_give_up(struct feed *feed, int code, const char *why)
{
	feed->reopening.given_up = true;
	feed->failed = daemon_error(&feed->connection, feed->error, code,
				    "%s before epoch %llu, batch %llu, and the feed could not be "
				    "opened again there: %.700s",
				    loss_verb(feed), (unsigned long long)feed->epoch,
				    (unsigned long long)feed->batch, why);
	return feed->failed;
}

static int reopen_begin(struct feed *feed)
{
	struct reopening *state = &feed->reopening;
	if (feed->options.epoch_end != 0 && feed->epoch >= feed->options.epoch_end)
		return FEED_END;
	if (state->fruitless >= FRUITLESS_MAX)
		return reopen_give_up(
			feed, -ECONNRESET,
			"it did so several times in a row before it delivered that batch. "
			"One of its samples may be what ends it: the daemon's log tells.");
	if (count_old(feed) >= OLD_RINGS_MAX)
		return daemon_error(
			&feed->connection, feed->error, -ENOBUFS,
			"%s, and batches of %d connections before are still held: release them.",
			loss_verb(feed), OLD_RINGS_MAX);
	/* A stopping daemon waits for its clients to leave before the next one can start. */
	shutdown(feed->connection.fd, SHUT_RDWR);
	int r = watch_timer(feed);
	r = r ?: put_ring_away(feed);
	if (r < 0)
		return reopen_give_up(feed, r, strerror(-r));
	state->waiting = true;
	state->lost_ms = clock_ms();
	state->next_ms = state->lost_ms + delay_ms(state->fruitless);
	state->refused_ms = 0;
	state->attempts = 0;
	return 0;
}

/*
 * Returns true if all sections have the same types, dimensions and sizes: callers have allocated
 * for them, and feed_section() describes batches of every ring by the dimensions of the first.
 */
static bool same_sections(const struct ring_geometry *a, const struct ring_geometry *b)
{
	bool one_version = a->version == b->version;
	if (a->section_count != b->section_count)
		return false;
	for (uint32_t i = 0; i < a->section_count; i++) {
		const struct ring_section *one = &a->sections[i], *other = &b->sections[i];
		/* The header of version 1 does not tell dimensions, nor the images' element. */
		if ((one_version || i != RING_IMAGES) && one->element != other->element)
			return false;
		if (one_version && one->dims != other->dims)
			return false;
		if (one->kind != other->kind || one->row != other->row ||
		    one->room != other->room || one->stride != other->stride)
			return false;
	}
	return true;
}

/* A position identifies the same batch only in the same dataset, divided into the same batches. */
static int check_same_feed(const struct feed *feed, const struct feed *fresh, char *error)
{
	const struct feed_info *a = &feed->info, *b = &fresh->info;
	if (memcmp(a->dataset_uuid, b->dataset_uuid, sizeof(a->dataset_uuid)) != 0 ||
	    a->samples != b->samples || a->classes != b->classes)
		return error_set(
			error, -ESTALE,
			"%s has been replaced by another dataset since the feed was opened.",
			feed->options.dataset);
	if (a->order_hash != b->order_hash || a->epoch_samples != b->epoch_samples)
		return error_set(error, -EPROTO,
				 "the daemon orders the samples of %s otherwise than the one "
				 "before.",
				 feed->options.dataset);
	if (a->batches_per_epoch != b->batches_per_epoch || a->batch_size != b->batch_size ||
	    a->slots != b->slots)
		return error_set(error, -EPROTO,
				 "the daemon divides %s otherwise than the one before: into %llu "
				 "batches of %u in %u slots, not %llu of %u in %u.",
				 feed->options.dataset, (unsigned long long)b->batches_per_epoch,
				 b->batch_size, b->slots, (unsigned long long)a->batches_per_epoch,
				 a->batch_size, a->slots);
	if (!same_sections(&feed->reopening.layout, &fresh->ring.layout) ||
	    !sections_equal(feed, fresh))
		return error_set(error, -EPROTO,
				 "the daemon makes images or fields of %s of other sizes or types "
				 "than the one before.",
				 feed->options.dataset);
	return 0;
}

static void describe_reconnect(struct feed *feed)
{
	struct reopening *state = &feed->reopening;
	snprintf(state->text, sizeof(state->text),
		 "The daemon on %s %s; the feed goes on at epoch %llu, batch %llu with the one "
		 "that is there after %.2f s.",
		 feed->connection.socket, loss_verb(feed), (unsigned long long)feed->epoch,
		 (unsigned long long)feed->batch, (double)(clock_ms() - state->lost_ms) / 1000);
}

/*
 * Takes over connection and ring. dup3() keeps the old fd number, which releases in other threads
 * may use at any time.
 */
static int take_over_connection(struct feed *feed, struct feed *fresh)
{
	if (dup3(fresh->connection.fd, feed->connection.fd, O_CLOEXEC) < 0)
		return -errno;
	int r = reopen_watch_socket(feed);
	if (r < 0)
		return r;
	set_timer(feed, 0);
	pthread_mutex_lock(&feed->lock);
	frame_reader_deinit(&feed->connection.reader);
	feed->connection.reader = fresh->connection.reader;
	frame_reader_init(&fresh->connection.reader);
	feed->ring = fresh->ring;
	pthread_mutex_unlock(&feed->lock);
	fresh->ring = (struct ring_consumer){0};
	uint64_t reconnects = feed->info.reconnects + 1;
	fresh->info.section_count = feed->section_count;
	fresh->info.target_count = feed->target_count;
	feed->info = fresh->info;
	feed->info.reconnects = reconnects;
	describe_reconnect(feed);
	feed->failed = 0;
	feed->shutting_down = false;
	feed->fetched_stale = false;
	feed->armed = false;
	feed->reopening.waiting = false;
	feed->reopening.fruitless++;
	return 0;
}

/* Milliseconds until the feed gives up; INT64_MAX if never. */
static int64_t patience_ms(const struct feed *feed)
{
	uint32_t timeout_ms = feed->options.reconnect_timeout_ms;
	if (timeout_ms == FEED_RECONNECT_FOREVER)
		return INT64_MAX;
	return feed->reopening.lost_ms + (timeout_ms != 0 ? timeout_ms : TIMEOUT_MS) - clock_ms();
}

/* Returns true if the error may be temporary while the daemon restarts. */
static bool may_pass(struct feed *feed, int code, bool connected)
{
	switch (code) {
	case -ECONNRESET:
	case -EPIPE:
	case -ESHUTDOWN:
	case -ETIMEDOUT:
		return true;
	case -ENOENT:
	/* a private daemon's starter keeps its socket open while the daemon may come back */
	case -ECONNREFUSED:
		return !connected && !daemon_is_private(feed->connection.socket);
	case -EDQUOT:
		if (feed->reopening.refused_ms == 0)
			feed->reopening.refused_ms = clock_ms();
		return clock_ms() - feed->reopening.refused_ms < QUOTA_PATIENCE_MS;
	default:
		return false;
	}
}

static int reopen_judge_failure(struct feed *feed, int code, bool connected, const char *error)
{
	struct reopening *state = &feed->reopening;
	state->attempts++;
	if (!may_pass(feed, code, connected))
		return reopen_give_up(feed, connected || code != -ECONNREFUSED ? code : -ECONNRESET,
				      error);
	if (patience_ms(feed) <= 0)
		return reopen_give_up(feed, -ECONNRESET, error);
	state->next_ms = clock_ms() + delay_ms(state->attempts + state->fruitless);
	return TRY_AGAIN;
}

/*
 * The fetchers of other datasets may have the same to say, which would end the next connection.
 */
static int await_fetcher(struct feed *feed, struct fetched *fetched, char *error)
{
	int64_t deadline_ms = clock_ms() + ANSWER_TIMEOUT_MS;
	int r = 0;
	while (r == 0 && fetched->fd >= 0 && !fetched->answered && clock_left_ms(deadline_ms) > 0) {
		struct pollfd p = {.fd = fetched->fd, .events = POLLIN};
		unsigned connects = fetched->connects;
		poll(&p, 1, clock_left_ms(deadline_ms));
		r = fetch_attend(fetched, error);
		if (r == 0 && fetched->connects != connects)
			r = reopen_watch_fetcher(feed, fetched);
	}
	return r < 0 ? r : 0;
}

/* The old files are not those that the fetcher fills now. Several datasets go on with their page.
 */
static int refetch(struct feed *feed, uint32_t part, char *error)
{
	struct fetched *old = feed->fetched[part], *fetched;
	const struct fetch_options options = {.timeout_ms = feed->options.open_timeout_ms,
					      .number = old->number,
					      .datasets = old->datasets,
					      .page = old->filling.page};
	int r = fetch_open(old->url, &options, &fetched, error);
	if (r < 0)
		return r;
	fetch_close(old);
	feed->fetched[part] = fetched;
	return reopen_watch_fetcher(feed, fetched);
}

static int refetch_stale(struct feed *feed, char *error)
{
	int r = 0;
	for (uint32_t p = 0; r == 0 && p < feed->fetched_count; p++)
		if (feed->fetched[p])
			r = await_fetcher(feed, feed->fetched[p], error);
	for (uint32_t p = 0; r == 0 && p < feed->fetched_count; p++)
		if (feed->fetched[p] && feed->fetched[p]->fd < 0)
			r = refetch(feed, p, error);
	return r;
}

/*
 * Opens the feed like feed_open() into a new object, which is taken over as a whole or discarded.
 * Returns TRY_AGAIN if the error may be temporary.
 */
static int reopen_attempt(struct feed *feed)
{
	char error[FEED_ERROR_MAX] = "";
	struct feed_options options = feed->options;
	int64_t left_ms = patience_ms(feed);
	uint32_t timeout_ms =
		options.open_timeout_ms != 0 ? options.open_timeout_ms : CONNECTION_TIMEOUT_MS;
	if (!options.wanted) {
		options.epoch = feed->epoch;
		options.batch = feed->batch;
	}
	options.slots = feed->info.slots;
	options.open_timeout_ms = left_ms < 1                     ? 1
				  : left_ms < (int64_t)timeout_ms ? (uint32_t)left_ms
								  : timeout_ms;
	if (feed->fetched_stale) {
		int r = refetch_stale(feed, error);
		if (r < 0)
			return reopen_give_up(feed, r == -ETIMEDOUT ? -EIO : r, error);
	}
	struct feed *fresh = feed_new();
	int r = !fresh ? -ENOMEM : daemon_revive(options.socket, error);
	bool connected = false;
	if (r == 0) {
		fresh->order = feed->order;
		fresh->fetched = feed->fetched;
		fresh->fetched_count = feed->fetched_count;
		r = feed_subscribe(fresh, &options, error);
		connected = fresh->connection.fd >= 0;
		fresh->order = NULL;
		fresh->fetched = NULL;
		fresh->fetched_count = 0;
	}
	r = r ?: check_same_feed(feed, fresh, error);
	r = r ?: take_over_connection(feed, fresh);
	if (r < 0)
		r = reopen_judge_failure(feed, r, connected,
					 error[0] != '\0' ? error : strerror(-r));
	feed_close(fresh);
	return r;
}

static int refuse_not_yet(struct feed *feed)
{
	set_timer(feed, feed->reopening.next_ms);
	return daemon_error(&feed->connection, feed->error, -ETIMEDOUT,
			    "%s %.1f s ago, and is not there again yet.", loss_verb(feed),
			    (double)(clock_ms() - feed->reopening.lost_ms) / 1000);
}

int feed_reopen(struct feed *feed, int64_t deadline_ms)
{
	int r = feed->reopening.waiting ? 0 : reopen_begin(feed);
	while (r == 0) {
		int64_t now_ms = clock_ms();
		if (now_ms >= feed->reopening.next_ms) {
			r = reopen_attempt(feed);
			if (r != TRY_AGAIN)
				return r;
			r = 0;
		} else if (deadline_ms >= 0 && now_ms >= deadline_ms) {
			return refuse_not_yet(feed);
		} else {
			int64_t until_ms = feed->reopening.next_ms;
			if (deadline_ms >= 0 && deadline_ms < until_ms)
				until_ms = deadline_ms;
			poll(NULL, 0, clock_left_ms(until_ms));
		}
	}
	return r;
}

const char *feed_reconnect_text(const struct feed *feed)
{
	return feed->reopening.text;
}
