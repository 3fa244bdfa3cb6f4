#include "tools/fetch/feed.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	PAGE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
	BATCH_UNITS_MAX = FILLING_AHEAD / FEED_BATCHES,
	REPLACEMENT_MS = 20, /* between two, in the long run */
	ANNOUNCED_MS = 20,   /* without a new unit, after which none is expected for now */
	ANNOUNCED_MAX_MS = 200,
	LOOK_MS = 1, /* between two looks at a page */
	/* if all samples are there: only wrong bytes could be wished for */
	LOOK_PRESENT_MS = 20,
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	const struct timespec most = {.tv_sec = 1};

	syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Waits until it is time to look at the page again, however often the worker calls. */
static void pause_watcher(const struct fetch_feed *feed, int64_t looked_ms)
{
	const int pause_ms = dataset_is_present(feed->dataset) ? LOOK_PRESENT_MS : LOOK_MS;
	const int64_t left_ms = looked_ms + pause_ms - clock_ms();

	if (left_ms > 0)
		nanosleep(&(struct timespec){.tv_nsec = left_ms * 1000000}, NULL);
}

static void *watch_page(void *argument)
{
	struct fetch_feed *feed = argument;
	struct filling_page *page = feed->page;
	int64_t looked_ms = 0;

	while (!atomic_load(&feed->stopping)) {
		pause_watcher(feed, looked_ms);
		looked_ms = clock_ms();
		uint32_t seen = atomic_load(&page->calls);

		/* a worker that ends gives the page's memory back */
		atomic_store(&page->files[feed->number], feed->dataset->entry.id);
		atomic_store(&feed->changed, true);
		store_wake(feed->dataset->store);
		atomic_store(&page->listening, 1);
		futex_wait(&page->calls, seen);
		if (!feed->shares_page)
			atomic_store(&page->listening, 0);
	}
	return NULL;
}

static int make_page_file(void)
{
	int fd = memfd_create("loaderd-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, FILLING_PAGE_SIZE) || fcntl(fd, F_ADD_SEALS, PAGE_SEALS)) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

static int map_page(struct fetch_feed *feed)
{
	struct stat status;

	if (fstat(feed->page_fd, &status) || status.st_size != FILLING_PAGE_SIZE ||
	    (fcntl(feed->page_fd, F_GET_SEALS) & PAGE_SEALS) != PAGE_SEALS)
		return -EINVAL;
	void *page =
		mmap(NULL, FILLING_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, feed->page_fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	feed->page = page;
	return 0;
}

static int start_watcher(struct fetch_feed *feed)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = -pthread_create(&feed->watcher, NULL, watch_page, feed);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

/* Maps the page, and checks whose it is. */
static int feed_open_page(struct fetch_feed *feed, const struct feed_memory *memory)
{
	feed->page_fd = memory->page_fd >= 0 ? memory->page_fd : make_page_file();
	int r = feed->page_fd < 0 ? feed->page_fd : map_page(feed);

	if (r)
		return r;
	_Atomic uint64_t *files = &feed->page->files[feed->number];
	if (!memory->resumed)
		atomic_store(files, feed->dataset->entry.id);
	feed->first = atomic_load(&feed->page->firsts[feed->number]);
	return atomic_load(files) == feed->dataset->entry.id ? 0 : -ESTALE;
}

int feed_new(struct remote_dataset *dataset, const struct feed_memory *memory,
	     struct fetch_feed **ret_feed)
{
	struct fetch_feed *feed = calloc(1, sizeof(*feed));

	if (!feed) {
		io_close(memory->map_fd);
		io_close(memory->page_fd);
		return -ENOMEM;
	}
	feed->dataset = dataset;
	feed->number = memory->number;
	feed->shares_page = memory->datasets > 1;
	int r = feed_open_page(feed, memory);
	if (r)
		io_close(memory->map_fd);
	else
		r = dataset_add_map(dataset, memory->map_fd, &feed->map);
	if (!r) {
		feed->marks = calloc(dataset->samples, sizeof(*feed->marks));
		feed->units = calloc(dataset->samples, sizeof(*feed->units));
		r = feed->marks && feed->units ? start_watcher(feed) : -ENOMEM;
	}
	if (r) {
		feed->stopping = true; /* there is no watcher */
		if (feed->map && --feed->map->users == 0)
			dataset_remove_map(dataset, feed->map);
		if (feed->page)
			munmap(feed->page, FILLING_PAGE_SIZE);
		io_close(feed->page_fd);
		free(feed->marks);
		free(feed->units);
		free(feed);
		return r;
	}
	*ret_feed = feed;
	return 0;
}

void feed_free(struct fetch_feed *feed)
{
	atomic_store(&feed->stopping, true);
	atomic_fetch_add(&feed->page->calls, 1);
	futex_wake(&feed->page->calls);
	pthread_join(feed->watcher, NULL);
	if (--feed->map->users == 0)
		dataset_remove_map(feed->dataset, feed->map);
	munmap(feed->page, FILLING_PAGE_SIZE);
	close(feed->page_fd);
	free(feed->marks);
	free(feed->units);
	free(feed);
}

/*
 * The number in the dataset, plus 1, of a sample that the page numbers; 0 if the dataset lacks it.
 */
static uint64_t feed_own_sample(const struct fetch_feed *feed, uint64_t numbered)
{
	if (numbered <= feed->first || numbered - feed->first > feed->dataset->samples)
		return 0;
	return numbered - feed->first;
}

/* Copies what the page has announced since the last look. */
static void see_units(struct fetch_feed *feed)
{
	uint64_t planned = atomic_load(&feed->page->planned);

	for (; feed->seen < planned && feed->seen < feed->done + FILLING_AHEAD; feed->seen++) {
		uint64_t sample = atomic_load(&feed->page->ahead[feed->seen % FILLING_AHEAD]);

		sample = feed_own_sample(feed, sample);
		if (sample)
			feed->marks[sample - 1] |= FEED_ANNOUNCED;
		feed->window[feed->seen % FILLING_AHEAD] = sample;
	}
}

bool feed_is_announcing(struct fetch_feed *feed)
{
	const int64_t now_ms = clock_ms();
	const uint64_t seen = feed->seen;

	see_units(feed);
	if (feed->seen != seen)
		feed->seen_ms = now_ms;
	feed->announced = feed->announced || feed->seen - feed->done >= FILLING_AHEAD / 2 ||
			  now_ms - feed->seen_ms >= ANNOUNCED_MS ||
			  now_ms - feed->opened_ms >= ANNOUNCED_MAX_MS;
	return !feed->announced;
}

int feed_next_unit(struct fetch_feed *feed, uint64_t *ret_sample)
{
	see_units(feed);
	if (feed->cursor >= feed->seen)
		return -ENODATA;
	*ret_sample = feed->window[feed->cursor++ % FILLING_AHEAD];
	if (*ret_sample)
		feed->units[*ret_sample - 1]++;
	return 0;
}

uint64_t feed_needed(const struct fetch_feed *feed, unsigned batches)
{
	uint64_t units = atomic_load(&feed->page->batch_units);

	return feed->done + batches * (units < BATCH_UNITS_MAX ? units : BATCH_UNITS_MAX);
}

bool feed_first_batch(const struct fetch_feed *feed, uint64_t *ret_done, uint64_t *ret_total)
{
	const struct remote_dataset *dataset = feed->dataset;
	uint64_t units = atomic_load(&feed->page->batch_units);
	uint64_t known = feed->cursor < units ? feed->cursor : units, done = 0;

	if (units > FILLING_AHEAD || feed->done)
		return false;
	uint64_t total = (units - known) * (dataset->bytes / dataset->samples);
	for (uint64_t unit = 0; unit < known; unit++) {
		uint64_t sample = feed->window[unit];

		if (!sample)
			continue;
		uint64_t bytes = dataset_sample_bytes(dataset, sample - 1);
		total += bytes;
		done += dataset->states[sample - 1] == SAMPLE_PRESENT ? bytes : 0;
	}
	*ret_done = done;
	*ret_total = total;
	return true;
}

bool feed_is_next(const struct fetch_feed *feed, uint64_t sample)
{
	return feed->units[sample] > 0;
}

bool feed_is_needed(const struct fetch_feed *feed, uint64_t sample)
{
	uint64_t end = feed_needed(feed, FEED_BATCHES);

	end = feed->cursor < end ? feed->cursor : end;
	for (uint64_t unit = feed->done; feed->units[sample] && unit < end; unit++)
		if (feed->window[unit % FILLING_AHEAD] == sample + 1)
			return true;
	return false;
}

bool feed_is_begun(const struct fetch_feed *feed, uint64_t sample, uint64_t end)
{
	const uint64_t begun = atomic_load(&feed->page->begun);

	end = end < begun ? end : begun;
	end = end < feed->seen ? end : feed->seen;
	for (uint64_t unit = feed->cursor; unit < end; unit++)
		if (feed->window[unit % FILLING_AHEAD] == sample + 1)
			return true;
	return false;
}

unsigned feed_wishes(const struct fetch_feed *feed, struct wish wishes[FILLING_WISHES])
{
	unsigned count = 0;

	for (unsigned i = 0; i < FILLING_WISHES; i++) {
		uint64_t word = atomic_load(&feed->page->wishes[i]);
		uint64_t sample = feed_own_sample(feed, word >> FILLING_WISH_TURN);

		if (sample)
			wishes[count++] = (struct wish){sample - 1, (uint8_t)word};
	}
	return count;
}

bool feed_may_replace(struct fetch_feed *feed)
{
	int64_t now_ms = clock_ms(), more = (now_ms - feed->replacements_ms) / REPLACEMENT_MS;

	if (more > 0) {
		feed->replacements = more < FILLING_WISHES - feed->replacements
					     ? feed->replacements + (unsigned)more
					     : FILLING_WISHES;
		feed->replacements_ms = now_ms;
	}
	if (!feed->replacements)
		return false;
	feed->replacements--;
	return true;
}

/* Units up to `end` are over. */
static void pass_units(struct fetch_feed *feed, uint64_t end,
		       void (*over)(void *context, uint64_t sample), void *context)
{
	uint64_t ignored;

	while (feed->cursor < end && !feed_next_unit(feed, &ignored))
		;
	while (feed->done < end && feed->done < feed->cursor) {
		uint64_t sample = feed->window[feed->done++ % FILLING_AHEAD];

		if (!sample)
			continue;
		feed->marks[sample - 1] &= (uint8_t)~FEED_ANNOUNCED;
		feed->units[sample - 1]--;
		over(context, sample - 1);
	}
	if (feed->done < end) /* a worker that plans less than it makes */
		feed->done = feed->cursor = feed->seen = end;
}

void feed_look(struct fetch_feed *feed, void (*over)(void *context, uint64_t sample), void *context)
{
	uint32_t opened = atomic_load(&feed->page->opened);
	uint64_t done = atomic_load(&feed->page->done);

	if (opened != feed->opened) {
		pass_units(feed, feed->cursor, over, context);
		feed->opened = opened;
		feed->first = atomic_load(&feed->page->firsts[feed->number]);
		feed->done = feed->cursor = feed->seen = 0;
		feed->announced = false;
		feed->opened_ms = feed->seen_ms = clock_ms();
		memset(feed->marks, 0, feed->dataset->samples);
	}
	if (done > feed->done)
		pass_units(feed, done, over, context);
}

void feed_arrived(const struct fetch_feed *feed, uint64_t sample)
{
	if (!(atomic_load(&feed->page->waiting) >> (feed->first + sample) % 64 & 1))
		return;
	atomic_fetch_add(&feed->page->arrived, 1);
	futex_wake(&feed->page->arrived);
}
