#include "loaderd/supervisor/blocking_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
	THREADS = 8,           /* closing threads */
	QUICK_RUNNERS_MAX = 4, /* runners for quick jobs; started on demand */
	SLOW_RUNNERS_MAX = 12,
	HURRY_SIGNAL = SIGURG, /* interrupts a blocked close() */
	/* a close() that blocks longer is interrupted, and again after each such period */
	PATIENCE_NS = 1000000,
};
_Static_assert(THREADS + QUICK_RUNNERS_MAX + SLOW_RUNNERS_MAX == BLOCKING_POOL_THREADS_MAX, "");

/*
 * A job. Jobs go through a pipe: its buffer is the queue, and a thread exits when the pipe is
 * closed.
 */
struct blocking_job {
	void (*run)(void *context); /* NULL: close fd */
	void *context;
	int fd;
};

/* A pipe of jobs. The last thread to exit closes and frees it. */
struct job_queue {
	int read_fd, write_fd;
	_Atomic unsigned
		users;    /* reference count: its threads, plus the pool until that is freed */
	_Atomic int idle; /* idle threads minus queued jobs */
	_Atomic unsigned works; /* number of queued or running jobs that have a run() */
};

/* Runner threads, quick or slow. */
struct runners {
	struct job_queue *pipe; /* shared by all of them */
	unsigned count;
};

struct blocking_pool {
	struct job_queue *pipes[THREADS]; /* one thread each */
	unsigned threads;
	struct runners runners[2]; /* quick, slow */
};

static void blocking_pool_hurry(int signal_number)
{
}

/*
 * Creates a timer that signals only the calling thread. Returns false on failure: close() may then
 * block for as long as the client chose.
 */
static bool new_timer(timer_t *ret_timer)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = HURRY_SIGNAL};
	sigset_t own;
	event._sigev_un._tid = gettid();
	sigemptyset(&own);
	sigaddset(&own, HURRY_SIGNAL);
	if (timer_create(CLOCK_MONOTONIC, &event, ret_timer) < 0)
		return false;
	pthread_sigmask(SIG_UNBLOCK, &own, NULL);
	return true;
}

static void close_in_a_hurry(int fd, const timer_t *timer)
{
	static const struct itimerspec soon = {{.tv_nsec = PATIENCE_NS}, {.tv_nsec = PATIENCE_NS}};
	static const struct itimerspec never;
	if (timer)
		timer_settime(*timer, 0, &soon, NULL);
	close(fd);
	if (timer)
		timer_settime(*timer, 0, &never, NULL);
}

static void job_queue_leave(struct job_queue *jobs)
{
	if (atomic_fetch_sub(&jobs->users, 1) > 1)
		return;
	close(jobs->read_fd);
	free(jobs);
}

/* Closes the queue: its threads finish queued jobs, then exit. */
static void job_queue_end(struct job_queue *jobs)
{
	if (!jobs)
		return;
	close(jobs->write_fd);
	job_queue_leave(jobs);
}

static void *blocking_pool_main(void *argument)
{
	struct job_queue *jobs = argument;
	struct blocking_job job;
	timer_t timer;
	bool has_timer = new_timer(&timer);
	ssize_t n;
	while ((n = read(jobs->read_fd, &job, sizeof(job))) == sizeof(job) ||
	       (n < 0 && errno == EINTR)) {
		if (n < 0)
			continue;
		if (job.run) {
			job.run(job.context);
			atomic_fetch_sub(&jobs->works, 1);
		} else {
			close_in_a_hurry(job.fd, has_timer ? &timer : NULL);
		}
		atomic_fetch_add(&jobs->idle, 1);
	}
	if (has_timer)
		timer_delete(timer);
	job_queue_leave(jobs);
	return NULL;
}

static int job_queue_new(struct job_queue **ret_jobs)
{
	int fds[2];
	struct job_queue *jobs = malloc(sizeof(*jobs));
	if (!jobs)
		return -ENOMEM;
	if (pipe2(fds, O_CLOEXEC) < 0) {
		int r = -errno;
		free(jobs);
		return r;
	}
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	*jobs = (struct job_queue){.read_fd = fds[0], .write_fd = fds[1], .users = 1};
	*ret_jobs = jobs;
	return 0;
}

/*
 * Starts another thread for these jobs. It blocks all signals; new_timer() unblocks HURRY_SIGNAL.
 */
static int job_queue_start(struct job_queue *jobs)
{
	pthread_t thread;
	sigset_t all, old;
	sigfillset(&all);
	atomic_fetch_add(&jobs->users, 1);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = -pthread_create(&thread, NULL, blocking_pool_main, jobs);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		job_queue_leave(jobs);
		return r;
	}
	pthread_setname_np(thread, "blocking");
	pthread_detach(thread);
	atomic_fetch_add(&jobs->idle, 1);
	return 0;
}

/*
 * Queues a job; the write is atomic. Returns false if the pipe is full because the threads have
 * fallen behind.
 */
static bool job_queue_give(struct job_queue *jobs, const struct blocking_job *job)
{
	const unsigned work = job->run != NULL;
	atomic_fetch_add(&jobs->works, work);
	atomic_fetch_sub(&jobs->idle, 1);
	if (write(jobs->write_fd, job, sizeof(*job)) == sizeof(*job))
		return true;
	atomic_fetch_add(&jobs->idle, 1);
	atomic_fetch_sub(&jobs->works, work);
	return false;
}

static int start_all(struct blocking_pool *blocking_pool)
{
	/*
	 * Open the runners' pipes now, without threads: opened later, they would look like an fd
	 * leak.
	 */
	int r = job_queue_new(&blocking_pool->runners[false].pipe);
	r = r ?: job_queue_new(&blocking_pool->runners[true].pipe);
	while (r == 0 && blocking_pool->threads < THREADS) {
		r = job_queue_new(&blocking_pool->pipes[blocking_pool->threads]);
		if (r < 0)
			break;
		r = job_queue_start(blocking_pool->pipes[blocking_pool->threads++]);
	}
	return r;
}

int blocking_pool_new(struct blocking_pool **ret_pool)
{
	const struct sigaction action = {.sa_handler = blocking_pool_hurry};
	struct blocking_pool *blocking_pool = calloc(1, sizeof(*blocking_pool));
	if (!blocking_pool)
		return -ENOMEM;
	int r = sigaction(HURRY_SIGNAL, &action, NULL) < 0 ? -errno : start_all(blocking_pool);
	if (r < 0) {
		blocking_pool_free(blocking_pool);
		return r;
	}
	*ret_pool = blocking_pool;
	return 0;
}

void blocking_pool_free(struct blocking_pool *blocking_pool)
{
	if (!blocking_pool)
		return;
	for (unsigned i = 0; i < blocking_pool->threads; i++)
		job_queue_end(blocking_pool->pipes[i]);
	for (unsigned slow = 0; slow < 2; slow++)
		job_queue_end(blocking_pool->runners[slow].pipe);
	free(blocking_pool);
}

/*
 * Queues a job on the thread of this key, or on another if that one runs other work or its queue is
 * full.
 */
static bool blocking_pool_give(struct blocking_pool *blocking_pool, uint32_t key,
			       const struct blocking_job *job)
{
	for (unsigned i = 0; i < 2 * blocking_pool->threads; i++) {
		struct job_queue *jobs = blocking_pool->pipes[(key + i) % blocking_pool->threads];
		if (i < blocking_pool->threads && atomic_load(&jobs->works) > 0)
			continue;
		if (job_queue_give(jobs, job))
			return true;
	}
	return false;
}

void blocking_pool_close(struct blocking_pool *blocking_pool, uint32_t key, int fd)
{
	const struct blocking_job job = {.fd = fd};
	if (!blocking_pool_give(blocking_pool, key, &job))
		close(fd);
}

static bool has_running_jobs(const struct blocking_pool *blocking_pool)
{
	bool any = false;
	for (unsigned i = 0; i < blocking_pool->threads; i++)
		any |= atomic_load(&blocking_pool->pipes[i]->works) > 0;
	return any;
}

/*
 * Starts a runner unless one is idle or the maximum is reached. Returns false if there is no
 * runner.
 */
static bool have_runners(struct runners *runners, unsigned most)
{
	if (atomic_load(&runners->pipe->idle) <= 0 && runners->count < most)
		runners->count += job_queue_start(runners->pipe) == 0;
	return runners->count > 0;
}

bool blocking_pool_run(struct blocking_pool *blocking_pool, uint32_t key, bool slow,
		       void (*run)(void *context), void *context)
{
	const struct blocking_job job = {.run = run, .context = context, .fd = -1};
	struct job_queue *own = blocking_pool->pipes[key % blocking_pool->threads];
	/* Let at most one closing thread run such a job; this mostly avoids starting runners. */
	if (!has_running_jobs(blocking_pool) && atomic_load(&own->idle) > 0)
		return job_queue_give(own, &job);
	if (have_runners(&blocking_pool->runners[slow],
			 slow ? SLOW_RUNNERS_MAX : QUICK_RUNNERS_MAX))
		return job_queue_give(blocking_pool->runners[slow].pipe, &job);
	/* No runner of this kind could be started. */
	if (blocking_pool->runners[!slow].count > 0)
		return job_queue_give(blocking_pool->runners[!slow].pipe, &job);
	return blocking_pool_give(blocking_pool, key, &job);
}
