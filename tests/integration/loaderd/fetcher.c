#include "tests/integration/loaderd/fetcher.h"

#include "format/packimg.h"
#include "tests/test.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* The state of the process. */
struct copier {
	const struct fetcher *fetcher;
	struct fetcher_plan plan;
	struct packimg *dataset;
	int source, mirror;
	uint64_t next; /* in stored order */
	uint64_t random;
};

static void *map_shared(int fd, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static int sealed_file(const char *name, off_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	return fd;
}

static void punch(int fd, uint64_t offset, uint64_t size)
{
	if (size > 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
				  (off_t)size) < 0)
		abort();
}

static uint64_t side_offset(const struct packimg_sample *sample)
{
	return sample->side ? sample->data_offset + (uint64_t)(sample->side - sample->data) : 0;
}

static void punch_sample(int fd, const struct packimg_sample *sample)
{
	punch(fd, sample->data_offset, sample->data_size);
	punch(fd, side_offset(sample), sample->side_size);
}

static void copy_range(int from, int to, uint64_t offset, uint64_t size, bool wrong)
{
	uint8_t *bytes = malloc(size + 1);
	if (!bytes || pread(from, bytes, size, (off_t)offset) != (ssize_t)size)
		abort();
	if (wrong)
		bytes[size / 2] ^= 0x20;
	if (pwrite(to, bytes, size, (off_t)offset) != (ssize_t)size)
		abort();
	free(bytes);
}

static void map_memory(struct fetcher *fetcher)
{
	fetcher->turns = map_shared(fetcher->filling.map, fetcher->samples);
	fetcher->page = map_shared(fetcher->filling.page, FILLING_PAGE_SIZE);
	fetcher->counts = mmap(NULL, sizeof(*fetcher->counts), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(fetcher->counts, MAP_FAILED);
}

void fetcher_init(struct fetcher *fetcher, const char *source)
{
	struct packimg *dataset;
	struct packimg_sample sample;
	struct stat status;
	memset(fetcher, 0, sizeof(*fetcher));
	snprintf(fetcher->source, sizeof(fetcher->source), "%s", source);
	snprintf(fetcher->mirror, sizeof(fetcher->mirror), "%.4000s.mirror", source);
	assert_int_equal(packimg_open(source, &dataset, NULL), 0);
	int from = open(source, O_RDONLY | O_CLOEXEC);
	int to = open(fetcher->mirror, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(from >= 0 && to >= 0 && fstat(from, &status) == 0);
	copy_range(from, to, 0, (uint64_t)status.st_size, false);
	fetcher->samples = packimg_count(dataset);
	for (uint64_t i = 0; i < fetcher->samples; i++) {
		assert_int_equal(packimg_sample(dataset, i, &sample), 0);
		punch_sample(to, &sample);
	}
	close(from);
	close(to);
	packimg_close(dataset);
	fetcher->filling = (struct feed_filling){
		.size = sizeof(fetcher->filling),
		.map = sealed_file("map", (off_t)fetcher->samples),
		.page = sealed_file("page", FILLING_PAGE_SIZE),
	};
	map_memory(fetcher);
}

void fetcher_adopt(struct fetcher *fetcher, const char *source, const char *mirror, int map,
		   int page)
{
	struct packimg *dataset;
	memset(fetcher, 0, sizeof(*fetcher));
	snprintf(fetcher->source, sizeof(fetcher->source), "%s", source);
	snprintf(fetcher->mirror, sizeof(fetcher->mirror), "%s", mirror);
	assert_int_equal(packimg_open(source, &dataset, NULL), 0);
	fetcher->samples = packimg_count(dataset);
	packimg_close(dataset);
	fetcher->filling = (struct feed_filling){sizeof(fetcher->filling), map, page};
	map_memory(fetcher);
}

void fetcher_deinit(struct fetcher *fetcher)
{
	fetcher_kill(fetcher);
	munmap(fetcher->turns, fetcher->samples);
	munmap(fetcher->page, FILLING_PAGE_SIZE);
	munmap(fetcher->counts, sizeof(*fetcher->counts));
	close(fetcher->filling.map);
	close(fetcher->filling.page);
	unlink(fetcher->mirror);
}

struct fetcher_plan fetcher_plan(void)
{
	return (struct fetcher_plan){.never = FETCHER_NONE, .wrong = FETCHER_NONE};
}

/* ---- the process ---- */

static bool is_there(const struct copier *copier, uint64_t i)
{
	return atomic_load(&copier->fetcher->turns[i]) & FILLING_PRESENT;
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
	const struct timespec timeout = {.tv_nsec = 50 * 1000 * 1000};
	syscall(SYS_futex, word, operation, value, operation == FUTEX_WAIT ? &timeout : NULL, NULL,
		0);
}

/* In this order: the turn before the hole. */
static void evict(struct copier *copier, uint64_t i)
{
	struct packimg_sample sample;
	if (!is_there(copier, i) || packimg_sample(copier->dataset, i, &sample) < 0)
		return;
	atomic_fetch_add(&copier->fetcher->turns[i], 1);
	punch_sample(copier->mirror, &sample);
	atomic_fetch_add(&copier->fetcher->counts->evicted, 1);
}

static bool is_wrong(struct copier *copier, uint64_t i)
{
	struct fetcher_counts *counts = copier->fetcher->counts;
	if (i != copier->plan.wrong || atomic_load(&counts->wrong) >= copier->plan.wrong_times)
		return false;
	atomic_fetch_add(&counts->wrong, 1);
	return true;
}

static uint64_t next_random(struct copier *copier)
{
	copier->random = copier->random * 6364136223846793005U + 1442695040888963407U;
	return copier->random >> 33;
}

/* In this order: bytes, turn, look for a waiting worker. */
static void copy(struct copier *copier, uint64_t i)
{
	const struct fetcher *fetcher = copier->fetcher;
	struct packimg_sample sample;
	if (i == copier->plan.never || is_there(copier, i) ||
	    packimg_sample(copier->dataset, i, &sample) < 0)
		return;
	copy_range(copier->source, copier->mirror, sample.data_offset, sample.data_size,
		   is_wrong(copier, i));
	copy_range(copier->source, copier->mirror, side_offset(&sample), sample.side_size, false);
	atomic_fetch_add(&fetcher->turns[i], 1);
	if (atomic_load(&fetcher->page->waiting) >> i % 64 & 1) {
		atomic_fetch_add(&fetcher->page->arrived, 1);
		futex(&fetcher->page->arrived, FUTEX_WAKE, INT_MAX);
	}
	atomic_fetch_add(&fetcher->counts->copied, 1);
	for (unsigned k = 0; k < copier->plan.evictions; k++)
		evict(copier, next_random(copier) % fetcher->samples);
	if (copier->plan.pace_us > 0)
		usleep(copier->plan.pace_us);
}

static void grant_wishes(struct copier *copier)
{
	const struct fetcher *fetcher = copier->fetcher;
	for (unsigned k = 0; k < FILLING_WISHES; k++) {
		uint64_t wish = atomic_load(&fetcher->page->wishes[k]);
		uint64_t i = (wish >> FILLING_WISH_TURN) - 1;
		uint8_t wrong = (uint8_t)wish;
		if (wish == 0 || i >= fetcher->samples)
			continue;
		if (wrong != 0 && atomic_load(&fetcher->turns[i]) == wrong) {
			atomic_fetch_add(&fetcher->counts->suspects, 1);
			evict(copier, i);
		}
		copy(copier, i);
	}
}

static void copy_for_ever(struct copier *copier)
{
	struct filling_page *page = copier->fetcher->page;
	for (;;) {
		uint32_t calls = atomic_load(&page->calls);
		grant_wishes(copier);
		if (!copier->plan.wished_only && copier->next < copier->fetcher->samples) {
			copy(copier, copier->next++);
			continue;
		}
		atomic_store(&page->listening, 1);
		futex(&page->calls, FUTEX_WAIT, calls);
		atomic_store(&page->listening, 0);
	}
}

void fetcher_start(struct fetcher *fetcher, const struct fetcher_plan *plan)
{
	static uint64_t seed = 1;
	struct copier copier = {.fetcher = fetcher, .plan = *plan, .random = seed++};
	assert_int_equal(fetcher->pid, 0);
	pid_t parent = getpid();
	fetcher->pid = fork();
	assert_true(fetcher->pid >= 0);
	if (fetcher->pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* which has been killed before */
		_exit(1);
	copier.source = open(fetcher->source, O_RDONLY | O_CLOEXEC);
	copier.mirror = open(fetcher->mirror, O_RDWR | O_CLOEXEC);
	if (copier.source < 0 || copier.mirror < 0 ||
	    packimg_open(fetcher->source, &copier.dataset, NULL) < 0)
		_exit(1);
	copy_for_ever(&copier);
}

void fetcher_kill(struct fetcher *fetcher)
{
	int status;
	if (fetcher->pid <= 0)
		return;
	kill(fetcher->pid, SIGKILL);
	assert_int_equal(waitpid(fetcher->pid, &status, 0), fetcher->pid);
	assert_true(WIFSIGNALED(status)); /* it has not ended before */
	fetcher->pid = 0;
}

void fetcher_use(const struct fetcher *fetcher, struct feed_options *options)
{
	options->dataset = fetcher->mirror;
	options->filling = &fetcher->filling;
}

void fetcher_wait_for_wish(const struct fetcher *fetcher)
{
	for (;;) {
		uint32_t calls = atomic_load(&fetcher->page->calls);
		for (unsigned k = 0; k < FILLING_WISHES; k++)
			if (atomic_load(&fetcher->page->wishes[k]) != 0)
				return;
		atomic_store(&fetcher->page->listening, 1);
		futex(&fetcher->page->calls, FUTEX_WAIT, calls);
	}
}
