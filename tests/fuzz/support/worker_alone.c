#include "tests/fuzz/support/worker_alone.h"

#include "format/base/system/clock.h"
#include "format/base/system/ticks.h"
#include "loaderd/worker/server_internal.h"
#include "tests/unit/proto/fake_ring.h"

#include "loaderd/config.h"
#include "loaderd/io/sigbus_guard.h"
#include "loaderd/log.h"
#include "tests/fuzz/support/guard_page_map.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	WORKERS = 2,
	FEEDS_MAX = 8,
	RING_BYTES_MAX = 1 << 20, /* larger rings would only test the kernel's zeroing of pages */
	DECODER_BYTES_MAX = 8 << 20,
};

static struct config config;
enum { DESCRIPTORS_MAX = 4096 };

static struct server server;
static struct batcher_thread workers[WORKERS];
static STAILQ_HEAD(, async_job) async_jobs_waiting = STAILQ_HEAD_INITIALIZER(async_jobs_waiting);
static struct batcher *feeds[FEEDS_MAX], *removed[FEEDS_MAX];
static unsigned feed_count, removed_count, rings_out, turn_of;
static void (*on_check)(void);

void __wrap_async_jobs_add(struct async_jobs *jobs, struct async_job *job);
void __wrap_async_jobs_close(struct async_jobs *jobs, int fd);
uint64_t __wrap_async_jobs_due_ns(struct async_jobs *jobs);
int __wrap_pool_add(struct pool *pool, struct batcher *batcher);
void __wrap_pool_remove(struct pool *pool, struct batcher *batcher);
void __wrap_pool_kick(struct pool *pool, struct batcher *batcher);
unsigned __wrap_pool_threads(const struct pool *pool);
unsigned __wrap_pool_thread_indices(const struct pool *pool);
void __wrap_pool_replace_blocked(struct pool *pool);
uint64_t __wrap_pool_idle_ns(const struct pool *pool);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *argument);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_join(pthread_t thread, void **ret_result);
void (*__wrap_signal(int number, void (*handler)(int)))(int);
XXH64_hash_t __wrap_XXH3_64bits(const void *data, size_t size);
XXH64_hash_t __real_XXH3_64bits(const void *data, size_t size);
int __wrap_ring_allocator_take(struct ring_allocator *rings, uint64_t feed, uint64_t ring_bytes,
			       uint64_t other_bytes, bool writable, int *ret_ring_fd,
			       int *ret_ack_fd, struct refusal *refusal);
int __wrap_ring_allocator_send(struct ring_allocator *rings, uint64_t feed, uint64_t client,
			       struct refusal *refusal);
void __wrap_ring_allocator_give_back(struct ring_allocator *rings, uint64_t feed, uint64_t bytes);
int __wrap_packimg_sample(const struct packimg *dataset, uint64_t index,
			  struct packimg_sample *ret_sample);
int __real_packimg_sample(const struct packimg *dataset, uint64_t index,
			  struct packimg_sample *ret_sample);
int __wrap_packimg_decode_rows(struct packimg_decoder *decoder, uint32_t rows, uint32_t *ret_ready,
			       struct packimg_error *error);
int __real_packimg_decode_rows(struct packimg_decoder *decoder, uint32_t rows, uint32_t *ret_ready,
			       struct packimg_error *error);
int __wrap_packimg_decoder_new(struct packimg_decoder **ret_decoder);
int __real_packimg_decoder_new(struct packimg_decoder **ret_decoder);

void __wrap_async_jobs_add(struct async_jobs *jobs, struct async_job *job)
{
	STAILQ_INSERT_TAIL(&async_jobs_waiting, job, next);
}

void __wrap_async_jobs_close(struct async_jobs *jobs, int fd)
{
	close(fd);
}

uint64_t __wrap_async_jobs_due_ns(struct async_jobs *jobs)
{
	return UINT64_MAX;
}

static bool run_one_job(void)
{
	struct async_job *job = STAILQ_FIRST(&async_jobs_waiting);
	if (!job)
		return false;
	STAILQ_REMOVE_HEAD(&async_jobs_waiting, next);
	/* like a job thread, read done first: without done(), the job may free itself in run() */
	void (*done)(struct async_job *) = job->done;
	job->run(job);
	if (done)
		done(job);
	return true;
}

int __wrap_pool_add(struct pool *pool, struct batcher *batcher)
{
	if (feed_count == FEEDS_MAX)
		return -EBUSY;
	feeds[feed_count++] = batcher;
	return 0;
}

void __wrap_pool_remove(struct pool *pool, struct batcher *batcher)
{
	batcher_stop(batcher);
	for (unsigned i = 0; i < feed_count; i++) {
		if (feeds[i] != batcher)
			continue;
		feeds[i] = feeds[--feed_count];
		removed[removed_count++] = batcher;
		return;
	}
}

static bool reap(void)
{
	if (removed_count == 0)
		return false;
	session_released(removed[--removed_count]->options.doorbell_user);
	return true;
}

void __wrap_pool_kick(struct pool *pool, struct batcher *batcher)
{
	batcher_kick(batcher);
}

unsigned __wrap_pool_threads(const struct pool *pool)
{
	return WORKERS;
}

unsigned __wrap_pool_thread_indices(const struct pool *pool)
{
	return __wrap_pool_threads(pool);
}

void __wrap_pool_replace_blocked(struct pool *pool)
{
}

uint64_t __wrap_pool_idle_ns(const struct pool *pool)
{
	return 0;
}

/*
 * Starts no thread. Only read-ahead would use one, and starting and joining a thread per feed would
 * cost more than everything else; served.c tests read-ahead.
 */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *argument)
{
	*thread = pthread_self();
	return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
	return 0;
}

int __wrap_pthread_join(pthread_t thread, void **ret_result)
{
	return 0;
}

/*
 * The SIGBUS guard calls this for a fault outside guarded sections. Aborts, because libFuzzer saves
 * the input after abort() but not after other signals.
 */
void (*__wrap_signal(int number, void (*handler)(int)))(int)
{
	abort();
}

static void checked(void)
{
	if (on_check)
		on_check();
}

XXH64_hash_t __wrap_XXH3_64bits(const void *data, size_t size)
{
	guard_page_map_expect(data, size);
	XXH64_hash_t hash = __real_XXH3_64bits(data, size);
	checked();
	return hash;
}

int __wrap_packimg_sample(const struct packimg *dataset, uint64_t index,
			  struct packimg_sample *ret_sample)
{
	int r = __real_packimg_sample(dataset, index, ret_sample);
	checked();
	return r;
}

/* Calls the hook first: the following rows use what the decoder checked when it began. */
int __wrap_packimg_decode_rows(struct packimg_decoder *decoder, uint32_t rows, uint32_t *ret_ready,
			       struct packimg_error *error)
{
	checked();
	return __real_packimg_decode_rows(decoder, rows, ret_ready, error);
}

int __wrap_packimg_decoder_new(struct packimg_decoder **ret_decoder)
{
	int r = __real_packimg_decoder_new(ret_decoder);
	if (r == 0)
		packimg_decoder_limit(*ret_decoder, DECODER_BYTES_MAX);
	return r;
}

static int last_ring[2];

/* Replaces rings.c, which requests rings from the supervisor. */
int __wrap_ring_allocator_take(struct ring_allocator *rings, uint64_t feed, uint64_t ring_bytes,
			       uint64_t other_bytes, bool writable, int *ret_ring_fd,
			       int *ret_ack_fd, struct refusal *refusal)
{
	if (ring_bytes > RING_BYTES_MAX)
		return refuse_request(refusal, EDQUOT, "slots", "too large a ring");
	if (own_memory_new(ring_bytes - RING_ACK_SIZE, ret_ring_fd) < 0 ||
	    own_memory_new(RING_ACK_SIZE, ret_ack_fd) < 0)
		abort();
	last_ring[0] = *ret_ring_fd;
	last_ring[1] = *ret_ack_fd;
	rings_out++;
	return 0;
}

/* The socket fd identifies a connection. */
int __wrap_ring_allocator_send(struct ring_allocator *rings, uint64_t feed, uint64_t client,
			       struct refusal *refusal)
{
	static const uint8_t ring[] = {0x42, 0}; /* Reply{ring{}} */
	int r = frame_send((int)client, ring, sizeof(ring), last_ring, 2, 0);
	return r == 0 ? 0 : refuse_request(refusal, -r, NULL, "the client does not read");
}

void __wrap_ring_allocator_give_back(struct ring_allocator *rings, uint64_t feed, uint64_t bytes)
{
	rings_out--;
}

int worker_alone_start(void)
{
	log_init(LOG_LEVEL_ERROR);
	ticks_init();
	config_init(&config);
	config.io = CONFIG_IO_MMAP;
	config.writable_rings = true;
	server.config = &config;
	server.start_ns = clock_ns(CLOCK_MONOTONIC);
	ring_allocator_init(&server.ring_allocator, -1);
	server.page = calloc(1, STATUS_PAGE_SIZE);
	server.fds_max = DESCRIPTORS_MAX;
	server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!server.page || server.epoll_fd < 0)
		return -errno;
	for (unsigned i = 0; i < WORKERS; i++) {
		int r = pipeline_scratch_new(&workers[i].scratch);
		if (r < 0)
			return r;
		workers[i].index = i;
		workers[i].alone = i == 0;
		thread_clock_init(&workers[i].clock);
	}
	int r = registry_init(&server.registry);
	return r < 0 ? r : sigbus_guard_install();
}

int worker_alone_connect(void)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	session_new(&server, ends[0], 1, (uint64_t)ends[0]);
	return ends[1];
}

bool worker_alone_turn(void)
{
	struct epoll_event events[FEEDS_MAX];
	int count = epoll_wait(server.epoll_fd, events, FEEDS_MAX, 0);
	bool busy = count > 0;
	for (int i = 0; i < count; i++) {
		struct event_source *source = events[i].data.ptr;
		source->ready(source, events[i].events);
	}
	while (server.dead_sessions) {
		struct session *session = server.dead_sessions;
		server.dead_sessions = session->next_dead;
		session_free(session);
	}
	status_publish(&server);
	busy |= reap();
	return run_one_job() || busy;
}

void worker_alone_work(unsigned claims)
{
	uint64_t begun;
	for (unsigned i = 0; i < claims && feed_count > 0; i++) {
		struct batcher *batcher = feeds[i % feed_count];
		if (batcher_runnable(batcher))
			batcher_work(batcher, &workers[turn_of++ % WORKERS], &begun);
	}
}

void worker_alone_expect_empty(void)
{
	struct registry_bad bad;
	uint64_t lost;
	while (worker_alone_turn())
		;
	if (server.sessions || server.session_count != 0 || server.feed_count != 0 ||
	    server.registry.entries || feed_count != 0 || rings_out != 0)
		abort();
	while (registry_next_bad(&server.registry, &bad, &lost))
		;
	server.registry.bad_total = server.registry.bad_logged = 0;
	server.feed_id = 0;
	turn_of = 0;
}

void worker_alone_hook(void (*hook)(void))
{
	on_check = hook;
}
