#include "loaderd/io/filling.h"

#include "format/base/system/clock.h"
#include "loaderd/io/futex.h"
#include "loaderd/order/wants.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
	/*
	 * Longest sleep of the watcher. The words that wake it are the client's to change, so that
	 * a wake-up may be lost.
	 */
	SLEEP_MAX_MS = 250,
	PLANNED_AT_ONCE = 1024, /* units, between two looks at the postponed ones */
	/* Between two looks at the postponed units: bounds the cost of samples that come singly. */
	PAUSE_NS = 500 * 1000,
	/* Samples without a wish whose turns a look reads: one after another, look by look. */
	LOOKS = 64,
};

struct postponed {
	struct filling_units units;
	int wish; /* its place in the page, -1 for none */
};

struct filling {
	struct filling_options options;
	uint32_t capacity;
	/* of each sample: the turn in which its checksum was right, or wrong; 0 for none */
	_Atomic uint8_t *right, *wrong;
	pthread_t thread;
	bool started;
	void (*ready)(void *user, uint64_t units);
	void *user;
	_Atomic bool stopping;
	_Atomic bool asleep;    /* the watcher is about to sleep, or sleeps */
	struct order_walk walk; /* the watcher's */
	uint64_t planned;       /* the watcher's; units below it have an entry in the page */
	_Atomic uint64_t done;
	_Atomic uint64_t wait_ns;
	pthread_mutex_t mutex;            /* protects what follows */
	struct postponed *postponed;      /* [capacity], oldest first */
	struct filling_units *made_ready; /* [capacity], circular */
	uint32_t ready_first;
	uint32_t look_next; /* the postponed one with which the next look begins */
	_Atomic uint32_t postponed_count, ready_count; /* read without the mutex, too */
	bool wished[FILLING_WISHES];                   /* places of the page in use */
};

static uint32_t capacity_of(unsigned thread_indices)
{
	return FILLING_POSTPONED_MAX + (thread_indices + 1) * FILLING_CLAIM_MAX;
}

uint64_t filling_bytes(uint64_t samples, unsigned thread_indices)
{
	uint64_t lists = sizeof(struct postponed) + sizeof(struct filling_units);
	return FILLING_PAGE_SIZE + 2 * samples + capacity_of(thread_indices) * lists;
}

void filling_parts_free(struct filling_part *parts, uint32_t count)
{
	for (uint32_t p = 0; parts && p < count; p++)
		if (parts[p].map_fd >= 0)
			close(parts[p].map_fd);
	free(parts);
}

int filling_new(const struct filling_options *options, struct filling **ret_filling)
{
	struct filling *filling = calloc(1, sizeof(*filling));
	if (!filling) {
		munmap(options->page, FILLING_PAGE_SIZE);
		filling_parts_free(options->parts, options->part_count);
		return -ENOMEM;
	}
	filling->options = *options;
	filling->capacity = capacity_of(options->thread_indices);
	pthread_mutex_init(&filling->mutex, NULL);
	filling->right = calloc(options->dataset->count, 1);
	filling->wrong = calloc(options->dataset->count, 1);
	filling->postponed = calloc(filling->capacity, sizeof(*filling->postponed));
	filling->made_ready = calloc(filling->capacity, sizeof(*filling->made_ready));
	if (!filling->right || !filling->wrong || !filling->postponed || !filling->made_ready) {
		filling_free(filling);
		return -ENOMEM;
	}
	*ret_filling = filling;
	return 0;
}

void filling_free(struct filling *filling)
{
	if (!filling)
		return;
	filling_join(filling);
	/* Its memory would be charged to the daemon for as long as the client keeps the file. */
	(void)madvise(filling->options.page, FILLING_PAGE_SIZE, MADV_REMOVE);
	munmap(filling->options.page, FILLING_PAGE_SIZE);
	filling_parts_free(filling->options.parts, filling->options.part_count);
	pthread_mutex_destroy(&filling->mutex);
	free(filling->right);
	free(filling->wrong);
	free(filling->postponed);
	free(filling->made_ready);
	free(filling);
}

/*
 * The fetcher stores `listening`, looks at the page, and sleeps unless `calls` has changed. The
 * accesses of both sides are seq_cst, so that either it sees the change or it is woken.
 */
static void call_fetcher(struct filling_page *page)
{
	atomic_fetch_add(&page->calls, 1);
	if (atomic_load(&page->listening) != 0)
		futex_wake_shared(&page->calls, INT_MAX);
}

void filling_begun(struct filling *filling, uint64_t limit)
{
	atomic_store(&filling->options.page->begun, limit);
	call_fetcher(filling->options.page);
}

void filling_done(struct filling *filling, uint64_t limit)
{
	atomic_store(&filling->done, limit);
	atomic_store(&filling->options.page->done, limit);
	call_fetcher(filling->options.page);
}

/*
 * Tells the fetcher which samples come next, so that it needs not know the order. Returns true if
 * more could be told at once.
 */
static bool filling_plan(struct filling *filling)
{
	struct filling_page *page = filling->options.page;
	const uint64_t first = filling->planned;
	const uint64_t limit = atomic_load(&filling->done) + FILLING_AHEAD;
	uint64_t sample;
	while (filling->planned < limit && filling->planned < first + PLANNED_AT_ONCE) {
		const uint64_t unit = filling->planned;
		if (filling->walk.wants &&
		    unit / filling->walk.order.batch_size >= wants_added(filling->walk.wants))
			break;
		int r = order_walk_at(&filling->walk, unit, &sample);
		if (r < 0)
			break;
		atomic_store_explicit(&page->ahead[unit % FILLING_AHEAD], r ? sample + 1 : 0,
				      memory_order_relaxed);
		filling->planned++;
	}
	if (filling->planned == first)
		return false;
	atomic_store(&page->planned, filling->planned);
	call_fetcher(page);
	return filling->planned == first + PLANNED_AT_ONCE;
}

/* The part that holds a sample; NULL if its files are complete. */
static const struct filling_part *filling_part_of(const struct filling *filling, uint64_t index)
{
	const struct filling_part *parts = filling->options.parts;
	uint32_t low = 0, high = filling->options.part_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (parts[middle].first + parts[middle].count <= index)
			low = middle + 1;
		else
			high = middle;
	}
	bool holds = low < filling->options.part_count && parts[low].first <= index;
	return holds ? &parts[low] : NULL;
}

/*
 * The fences order this read with those of the sample's bytes, before and after, and with the
 * watcher's store of `waiting`, which the fetcher loads after it has stored a turn.
 */
uint8_t filling_turn(const struct filling *filling, uint64_t index)
{
	const struct filling_part *part = filling_part_of(filling, index);
	uint8_t turn;
	if (!part)
		return FILLING_PRESENT;
	atomic_thread_fence(memory_order_seq_cst);
	if (pread(part->map_fd, &turn, 1, (off_t)(index - part->first)) != 1)
		turn = 0;
	atomic_thread_fence(memory_order_seq_cst);
	return turn;
}

bool filling_has(const struct filling *filling, uint64_t index)
{
	return filling_turn(filling, index) & FILLING_PRESENT;
}

/* ---- making samples ---- */

void filling_units_init(struct filling_units *units, uint64_t unit)
{
	*units =
		(struct filling_units){.unit = unit, .missing = FILLING_NONE, .late = FILLING_NONE};
}

static unsigned long long number_of(const struct filling *filling, uint64_t index)
{
	return (unsigned long long)dataset_number(filling->options.dataset, index);
}

static bool is_late(const struct filling_units *units, uint64_t index)
{
	return units->all_late || units->late == index;
}

/* The sample has had its time; what is missing next gets as much, but nothing after that. */
static void give_up(const struct filling *filling, struct filling_units *units, uint64_t index,
		    int64_t now_ms)
{
	units->all_late = units->late != FILLING_NONE;
	units->late = index;
	units->until_ms = now_ms + (int64_t)filling->options.timeout_ms;
}

/* Returns -EAGAIN, or -ETIMEDOUT if the sample has had its time. */
static int filling_miss(const struct filling *filling, struct filling_units *units, uint64_t index,
			uint8_t wrong, struct packimg_error *error)
{
	int64_t now_ms = clock_ms();
	if (units->until_ms == 0)
		units->until_ms = now_ms + (int64_t)filling->options.timeout_ms;
	else if (now_ms >= units->until_ms)
		give_up(filling, units, index, now_ms);
	if (is_late(units, index)) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: was not fetched within %llu ms ([io] remote_timeout_ms)",
			 number_of(filling, index),
			 (unsigned long long)filling->options.timeout_ms);
		return -ETIMEDOUT;
	}
	units->missing = index;
	units->wrong = wrong;
	return -EAGAIN;
}

int filling_look(struct filling *filling, struct filling_units *units, uint64_t index,
		 uint8_t *ret_turn, struct packimg_error *error)
{
	uint8_t turn = filling_turn(filling, index);
	if (!(turn & FILLING_PRESENT))
		return filling_miss(filling, units, index, 0, error);
	*ret_turn = turn;
	return 0;
}

int filling_verify(struct filling *filling, const struct packimg_sample *sample, uint8_t turn,
		   struct packimg_error *error)
{
	const struct dataset *dataset = filling->options.dataset;
	_Atomic uint8_t *right = &filling->right[sample->index];
	bool faulted = atomic_load_explicit(&dataset->guard.faults, memory_order_relaxed) > 0;
	if (!faulted && atomic_load_explicit(right, memory_order_relaxed) == turn)
		return 0;
	if (packimg_sample_check(sample) < 0) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: stored bytes do not match their checksum%s",
			 number_of(filling, sample->index),
			 filling_part_of(filling, sample->index)
				 ? ", though they were fetched twice; the dataset is damaged where "
				   "it comes from"
				 : "; the file is damaged");
		return -EUCLEAN;
	}
	/* If the bytes have changed meanwhile, filling_check() sees it, and this turn is over. */
	atomic_store_explicit(right, turn, memory_order_relaxed);
	atomic_store_explicit(&filling->wrong[sample->index], 0, memory_order_relaxed);
	return 0;
}

int filling_check(struct filling *filling, struct filling_units *units, uint64_t index,
		  uint8_t turn, int r, struct packimg_error *error)
{
	if (r == -ECANCELED)
		return r;
	if (filling_turn(filling, index) != turn)
		return filling_miss(filling, units, index, 0, error);
	if (r != -EUCLEAN)
		return r;
	if (!filling_part_of(filling, index))
		return -EBADMSG;
	_Atomic uint8_t *wrong = &filling->wrong[index];
	uint8_t before = atomic_load_explicit(wrong, memory_order_relaxed);
	if (is_late(units, index) || (before != 0 && before != turn))
		return -EBADMSG;
	atomic_store_explicit(wrong, turn, memory_order_relaxed);
	return filling_miss(filling, units, index, turn, error);
}

/* ---- postponed units ---- */

bool filling_has_ready(const struct filling *filling)
{
	return atomic_load(&filling->ready_count) > 0;
}

bool filling_is_full(const struct filling *filling)
{
	return atomic_load(&filling->postponed_count) >= FILLING_POSTPONED_MAX;
}

uint64_t filling_wait_ns(const struct filling *filling)
{
	return atomic_load_explicit(&filling->wait_ns, memory_order_relaxed);
}

static void wake_watcher(struct filling *filling)
{
	_Atomic uint32_t *word = &filling->options.page->arrived;
	if (!atomic_exchange(&filling->asleep, false))
		return;
	atomic_fetch_add(word, 1);
	futex_wake_shared(word, 1);
}

void filling_postpone(struct filling *filling, const struct filling_units *units)
{
	pthread_mutex_lock(&filling->mutex);
	uint32_t count = atomic_load(&filling->postponed_count);
	assert(count < filling->capacity);
	filling->postponed[count] = (struct postponed){*units, -1};
	atomic_store(&filling->postponed_count, count + 1);
	pthread_mutex_unlock(&filling->mutex);
	wake_watcher(filling);
}

bool filling_take(struct filling *filling, struct filling_units *ret_units)
{
	if (!filling_has_ready(filling))
		return false;
	pthread_mutex_lock(&filling->mutex);
	uint32_t count = atomic_load(&filling->ready_count);
	if (count > 0) {
		*ret_units = filling->made_ready[filling->ready_first];
		filling->ready_first = (filling->ready_first + 1) % filling->capacity;
		atomic_store(&filling->ready_count, count - 1);
	}
	pthread_mutex_unlock(&filling->mutex);
	return count > 0;
}

/* ---- the watcher ---- */

static void drop_wish(struct filling *filling, struct postponed *postponed)
{
	if (postponed->wish < 0)
		return;
	atomic_store(&filling->options.page->wishes[postponed->wish], 0);
	filling->wished[postponed->wish] = false;
	postponed->wish = -1;
}

/* Gives the wish a free place, from *place on, if there is one. Returns true if it is new. */
static bool find_place(struct filling *filling, struct postponed *postponed, int *place)
{
	while (*place < FILLING_WISHES && filling->wished[*place])
		++*place;
	if (postponed->wish >= 0 || *place == FILLING_WISHES)
		return false;
	postponed->wish = *place;
	filling->wished[*place] = true;
	return true;
}

static void write_wish(struct filling *filling, const struct postponed *postponed)
{
	uint64_t sample = postponed->units.missing + 1;
	if (postponed->wish >= 0)
		atomic_store(&filling->options.page->wishes[postponed->wish],
			     sample << FILLING_WISH_TURN | postponed->units.wrong);
}

/*
 * Announces what is waited for, before filling_gather() looks whether it is there. Writes all of it
 * each time, as the client may have changed it.
 */
static void filling_announce(struct filling *filling)
{
	struct filling_page *page = filling->options.page;
	uint32_t count = atomic_load(&filling->postponed_count);
	uint64_t waiting = 0;
	bool wished = false;
	int place = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct postponed *postponed = &filling->postponed[i];
		waiting |= UINT64_C(1) << postponed->units.missing % 64;
		wished |= find_place(filling, postponed, &place);
		write_wish(filling, postponed);
	}
	atomic_store(&page->waiting, waiting);
	if (wished)
		call_fetcher(page);
}

/* Returns true if the wait is over: if `look`, because the sample is there, or because its time is.
 */
static bool is_over(const struct filling *filling, struct filling_units *units, bool look,
		    int64_t now_ms)
{
	bool late = now_ms >= units->until_ms;
	uint8_t turn = look || late ? filling_turn(filling, units->missing) : 0;
	if ((turn & FILLING_PRESENT) && turn != units->wrong)
		return true;
	if (!late)
		return false;
	give_up(filling, units, units->missing, now_ms);
	return true;
}

/*
 * Moves the units whose wait is over to those that are ready. Returns their number, and sets
 * *ret_next_ms to the end of the next wait.
 */
static uint32_t filling_gather(struct filling *filling, int64_t *ret_next_ms)
{
	uint32_t count = atomic_load(&filling->postponed_count), kept = 0;
	uint32_t ready = atomic_load(&filling->ready_count);
	uint32_t first = filling->look_next < count ? filling->look_next : 0;
	int64_t now_ms = clock_ms();
	*ret_next_ms = now_ms + SLEEP_MAX_MS;
	for (uint32_t i = 0; i < count; i++) {
		struct postponed *postponed = &filling->postponed[i];
		bool look = postponed->wish >= 0 || i - first < LOOKS;
		if (!is_over(filling, &postponed->units, look, now_ms)) {
			if (postponed->units.until_ms < *ret_next_ms)
				*ret_next_ms = postponed->units.until_ms;
			filling->postponed[kept++] = *postponed;
			continue;
		}
		drop_wish(filling, postponed);
		assert(ready < filling->capacity);
		filling->made_ready[(filling->ready_first + ready++) % filling->capacity] =
			postponed->units;
	}
	filling->look_next = first + LOOKS;
	atomic_store(&filling->postponed_count, kept);
	atomic_store(&filling->ready_count, ready);
	return count - kept;
}

static void watcher_sleep(struct filling *filling, uint32_t seen, int64_t until_ms)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	bool waits = atomic_load(&filling->postponed_count) > 0;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	int left_ms = clock_left_ms(until_ms);
	if (!atomic_load(&filling->stopping))
		futex_wait_shared(&filling->options.page->arrived, seen, left_ms + 1);
	bool woken = !atomic_exchange(&filling->asleep, false); /* by wake_watcher() */
	if (waits || !woken)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	if (waits)
		atomic_fetch_add_explicit(&filling->wait_ns, clock_ns(CLOCK_MONOTONIC) - start_ns,
					  memory_order_relaxed);
}

static void *watcher_main(void *argument)
{
	struct filling *filling = argument;
	while (!atomic_load(&filling->stopping)) {
		int64_t next_ms;
		atomic_store(&filling->asleep, true);
		uint32_t seen = atomic_load(&filling->options.page->arrived);
		/* before any wish, so that the fetcher knows the order from the begin on */
		bool more = filling_plan(filling);
		pthread_mutex_lock(&filling->mutex);
		filling_announce(filling);
		uint32_t gathered = filling_gather(filling, &next_ms);
		pthread_mutex_unlock(&filling->mutex);
		if (gathered > 0)
			filling->ready(filling->user, gathered);
		else if (!more)
			watcher_sleep(filling, seen, next_ms);
	}
	return NULL;
}

/* The page may have been that of an earlier worker. */
static void reset_page(struct filling *filling)
{
	struct filling_page *page = filling->options.page;
	for (int i = 0; i < FILLING_WISHES; i++)
		atomic_store(&page->wishes[i], 0);
	atomic_store(&page->waiting, 0);
	atomic_store(&page->begun, 0);
	atomic_store(&page->done, 0);
	atomic_store(&page->planned, 0);
	for (uint32_t p = 0; p < filling->options.part_count; p++)
		atomic_store(&page->firsts[p], filling->options.parts[p].first);
	atomic_store(&page->batch_units, filling->walk.order.batch_size);
	atomic_store(&page->epoch, filling->options.epoch);
	atomic_store(&page->batch, filling->options.batch);
	atomic_fetch_add(&page->opened, 1);
	call_fetcher(page);
}

void filling_wanted(struct filling *filling)
{
	wake_watcher(filling);
}

int filling_start(struct filling *filling, const struct order_walk *walk,
		  void (*ready)(void *user, uint64_t units), void *user)
{
	sigset_t blocked, old;
	filling->walk = *walk;
	filling->ready = ready;
	filling->user = user;
	reset_page(filling);
	sigfillset(&blocked);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	int r = -pthread_create(&filling->thread, NULL, watcher_main, filling);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	filling->started = r == 0;
	if (r == 0)
		pthread_setname_np(filling->thread, "watcher");
	return r;
}

void filling_stop(struct filling *filling)
{
	atomic_store(&filling->stopping, true);
	wake_watcher(filling);
}

void filling_join(struct filling *filling)
{
	if (!filling->started)
		return;
	filling_stop(filling);
	pthread_join(filling->thread, NULL);
	filling->started = false;
}
