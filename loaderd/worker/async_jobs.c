#include "loaderd/worker/async_jobs.h"

#include "format/base/system/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

STAILQ_HEAD(queue, async_job);

enum {
	LOOK_MS = 100, /* interval between checks of the threads */
	/*
	 * A thread that used less than 1/ASLEEP_PART of the interval as CPU time was asleep. A
	 * runnable thread gets more, even if many others compete for its CPU.
	 */
	ASLEEP_PART = 200,
	/* added to the worker's nice value: half the weight of a decode thread */
	NICER = 3,
	NICE_MAX = 19,
};
#define MS_NS UINT64_C(1000000)

/* State of a thread. A running job is active (their number is limited), asleep, or suspended. */
enum thread_state {
	THREAD_NONE,
	THREAD_IDLE,
	THREAD_ACTIVE,
	THREAD_ASLEEP,    /* found asleep at the last check; it may be running again */
	THREAD_SUSPENDED, /* its job has called async_jobs_suspend() */
};

struct async_jobs_thread {
	struct async_jobs *jobs;
	enum thread_state state;
	clockid_t clock;      /* its CPU-time clock */
	uint64_t job;         /* jobs started so far */
	uint64_t watched_job; /* at the last check: job, time, CPU time */
	uint64_t watched_ns, watched_cpu_ns;
};

struct async_jobs {
	pthread_mutex_t mutex;
	pthread_cond_t wake;    /* wakes idle threads */
	pthread_cond_t resume;  /* wakes suspended threads in async_jobs_resume() */
	pthread_cond_t changed; /* a thread has started or ended */
	struct queue waiting, finished;
	bool stopping;
	int event_fd;
	unsigned at_once;
	unsigned waiting_count, thread_count;
	unsigned idle, active, asleep; /* threads in each state */
	unsigned resuming; /* suspended threads that want to resume; they go before new jobs */
	uint64_t look_due_ns;
	bool nicer; /* set while async_jobs_new() starts threads: they lower their own priority */
	int nice;   /* nice value for job threads */
	unsigned ready;
	struct async_jobs_thread threads[ASYNC_JOBS_THREADS_MAX];
};

static _Thread_local struct async_jobs_thread *async_jobs_self;

/* A job that closes an fd. */
struct closing {
	struct async_job job;
	int fd;
};

static void *async_jobs_main(void *argument);

/* Starts a thread. Call with the mutex held. */
static int async_jobs_start_thread(struct async_jobs *jobs)
{
	sigset_t blocked, old;
	struct async_jobs_thread *self = jobs->threads;
	if (jobs->thread_count == ASYNC_JOBS_THREADS_MAX)
		return -EAGAIN;
	while (self->state != THREAD_NONE)
		self++;
	*self = (struct async_jobs_thread){.jobs = jobs, .state = THREAD_IDLE};
	sigfillset(&blocked);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGILL);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	pthread_t thread;
	int r = -pthread_create(&thread, NULL, async_jobs_main, self);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		self->state = THREAD_NONE;
		return r;
	}
	pthread_detach(thread);
	jobs->thread_count++;
	jobs->idle++;
	return 0;
}

/*
 * Wakes a thread if another job may become active. Call with the mutex held, after a job stopped
 * being active or was queued.
 */
static void async_jobs_hand_on(struct async_jobs *jobs)
{
	if (jobs->active >= jobs->at_once)
		return;
	if (jobs->resuming > 0)
		pthread_cond_signal(&jobs->resume);
	else if (jobs->waiting_count > 0)
		pthread_cond_signal(&jobs->wake);
}

static bool may_begin(const struct async_jobs *jobs)
{
	return jobs->waiting_count > 0 &&
	       (jobs->stopping || (jobs->active < jobs->at_once && jobs->resuming == 0));
}

/*
 * Returns true if an idle thread should exit: others are idle, too, and there are more threads than
 * jobs that may run at once and one that waits for the next.
 */
static bool is_surplus(const struct async_jobs *jobs)
{
	if (jobs->stopping)
		return jobs->waiting_count == 0;
	return jobs->idle > 1 && jobs->idle + jobs->active > jobs->at_once + 1;
}

/*
 * Runs the next job. Call with the mutex held; releases it during run(), after which the job may no
 * longer exist.
 */
static void async_jobs_run(struct async_jobs *jobs, struct async_jobs_thread *self)
{
	struct async_job *job = STAILQ_FIRST(&jobs->waiting);
	const bool tells = job->done;
	STAILQ_REMOVE_HEAD(&jobs->waiting, next);
	jobs->waiting_count--;
	jobs->idle--;
	jobs->active++;
	self->state = THREAD_ACTIVE;
	self->job++;
	/*
	 * Keep an idle thread in case this job sleeps. Start it from here, so that it inherits the
	 * lowered priority.
	 */
	if (jobs->idle == 0)
		(void)async_jobs_start_thread(jobs);
	pthread_mutex_unlock(&jobs->mutex);
	job->run(job);
	pthread_mutex_lock(&jobs->mutex);
	if (self->state == THREAD_ACTIVE)
		jobs->active--;
	else
		jobs->asleep--;
	self->state = THREAD_IDLE;
	jobs->idle++;
	async_jobs_hand_on(jobs);
	if (!tells)
		return;
	STAILQ_INSERT_TAIL(&jobs->finished, job, next);
	uint64_t one = 1;
	ssize_t n = write(jobs->event_fd, &one, sizeof(one));
	(void)n;
}

static void *async_jobs_main(void *argument)
{
	struct async_jobs_thread *self = async_jobs_self = argument;
	struct async_jobs *jobs = self->jobs;
	pthread_setname_np(pthread_self(), "jobs");
	pthread_mutex_lock(&jobs->mutex);
	if (jobs->nicer)
		(void)setpriority(PRIO_PROCESS, 0, jobs->nice);
	(void)pthread_getcpuclockid(pthread_self(), &self->clock);
	jobs->ready++;
	pthread_cond_signal(&jobs->changed);
	for (;;) {
		if (may_begin(jobs))
			async_jobs_run(jobs, self);
		else if (is_surplus(jobs))
			break;
		else
			pthread_cond_wait(&jobs->wake, &jobs->mutex);
	}
	self->state = THREAD_NONE;
	jobs->idle--;
	jobs->thread_count--;
	pthread_cond_signal(&jobs->changed);
	pthread_mutex_unlock(&jobs->mutex);
	return NULL;
}

int async_jobs_new(unsigned at_once, struct async_jobs **ret_jobs)
{
	struct async_jobs *jobs = calloc(1, sizeof(*jobs));
	if (!jobs)
		return -ENOMEM;
	pthread_mutex_init(&jobs->mutex, NULL);
	pthread_cond_init(&jobs->wake, NULL);
	pthread_cond_init(&jobs->resume, NULL);
	pthread_cond_init(&jobs->changed, NULL);
	jobs->at_once = at_once;
	jobs->nice = getpriority(PRIO_PROCESS, 0) + NICER;
	if (jobs->nice > NICE_MAX)
		jobs->nice = NICE_MAX;
	jobs->nicer = true;
	STAILQ_INIT(&jobs->waiting);
	STAILQ_INIT(&jobs->finished);
	jobs->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = jobs->event_fd < 0 ? -errno : 0;
	pthread_mutex_lock(&jobs->mutex);
	while (r == 0 && jobs->thread_count < at_once + 1)
		r = async_jobs_start_thread(jobs);
	while (jobs->ready < jobs->thread_count)
		pthread_cond_wait(&jobs->changed, &jobs->mutex);
	jobs->nicer = false;
	pthread_mutex_unlock(&jobs->mutex);
	if (r < 0) {
		async_jobs_free(jobs);
		return r;
	}
	*ret_jobs = jobs;
	return 0;
}

void async_jobs_free(struct async_jobs *jobs)
{
	if (!jobs)
		return;
	pthread_mutex_lock(&jobs->mutex);
	jobs->stopping = true;
	pthread_cond_broadcast(&jobs->wake);
	pthread_cond_broadcast(&jobs->resume);
	while (jobs->thread_count > 0)
		pthread_cond_wait(&jobs->changed, &jobs->mutex);
	pthread_mutex_unlock(&jobs->mutex);
	if (jobs->event_fd >= 0)
		close(jobs->event_fd);
	pthread_cond_destroy(&jobs->wake);
	pthread_cond_destroy(&jobs->resume);
	pthread_cond_destroy(&jobs->changed);
	pthread_mutex_destroy(&jobs->mutex);
	free(jobs);
}

void async_jobs_add(struct async_jobs *jobs, struct async_job *job)
{
	pthread_mutex_lock(&jobs->mutex);
	STAILQ_INSERT_TAIL(&jobs->waiting, job, next);
	jobs->waiting_count++;
	async_jobs_hand_on(jobs);
	pthread_mutex_unlock(&jobs->mutex);
}

void async_jobs_suspend(void)
{
	struct async_jobs_thread *self = async_jobs_self;
	if (!self)
		return;
	struct async_jobs *jobs = self->jobs;
	pthread_mutex_lock(&jobs->mutex);
	if (self->state == THREAD_ACTIVE)
		jobs->active--;
	else
		jobs->asleep--;
	self->state = THREAD_SUSPENDED;
	async_jobs_hand_on(jobs);
	pthread_mutex_unlock(&jobs->mutex);
}

void async_jobs_resume(void)
{
	struct async_jobs_thread *self = async_jobs_self;
	if (!self)
		return;
	struct async_jobs *jobs = self->jobs;
	pthread_mutex_lock(&jobs->mutex);
	jobs->resuming++;
	while (jobs->active >= jobs->at_once && !jobs->stopping)
		pthread_cond_wait(&jobs->resume, &jobs->mutex);
	jobs->resuming--;
	jobs->active++;
	self->state = THREAD_ACTIVE;
	async_jobs_hand_on(jobs);
	pthread_mutex_unlock(&jobs->mutex);
}

uint64_t async_jobs_due_ns(struct async_jobs *jobs)
{
	pthread_mutex_lock(&jobs->mutex);
	const bool needed = jobs->waiting_count > 0 || jobs->resuming > 0 || jobs->asleep > 0;
	const uint64_t due_ns = jobs->look_due_ns;
	pthread_mutex_unlock(&jobs->mutex);
	return needed ? due_ns : UINT64_MAX;
}

/*
 * Samples a thread's CPU time. Returns whether it slept since the last check. *ret_passed_ns is the
 * time since then, or 0 if it has changed jobs.
 */
static bool has_slept(struct async_jobs_thread *thread, uint64_t now_ns, uint64_t *ret_passed_ns)
{
	const uint64_t cpu_ns = clock_ns(thread->clock);
	const uint64_t passed_ns = now_ns - thread->watched_ns;
	const uint64_t used_ns = cpu_ns - thread->watched_cpu_ns;
	*ret_passed_ns = thread->watched_job == thread->job ? passed_ns : 0;
	thread->watched_job = thread->job;
	thread->watched_ns = now_ns;
	thread->watched_cpu_ns = cpu_ns;
	return used_ns < passed_ns / ASLEEP_PART;
}

void async_jobs_replace_blocked(struct async_jobs *jobs, uint64_t now_ns)
{
	pthread_mutex_lock(&jobs->mutex);
	for (unsigned i = 0; now_ns >= jobs->look_due_ns && i < ASYNC_JOBS_THREADS_MAX; i++) {
		struct async_jobs_thread *thread = &jobs->threads[i];
		uint64_t passed_ns;
		if (thread->state != THREAD_ACTIVE && thread->state != THREAD_ASLEEP)
			continue;
		const bool slept = has_slept(thread, now_ns, &passed_ns);
		if (passed_ns < LOOK_MS * MS_NS / 2 || slept == (thread->state == THREAD_ASLEEP))
			continue;
		thread->state = slept ? THREAD_ASLEEP : THREAD_ACTIVE;
		jobs->active += slept ? -1 : 1;
		jobs->asleep += slept ? 1 : -1;
		async_jobs_hand_on(jobs);
	}
	if (now_ns >= jobs->look_due_ns)
		jobs->look_due_ns = now_ns + LOOK_MS * MS_NS;
	pthread_mutex_unlock(&jobs->mutex);
}

static void run_closing(struct async_job *job)
{
	close(((struct closing *)job)->fd);
	free(job);
}

void async_jobs_close(struct async_jobs *jobs, int fd)
{
	struct closing *closing = calloc(1, sizeof(*closing));
	if (!closing) {
		close(fd);
		return;
	}
	closing->job = (struct async_job){.run = run_closing};
	closing->fd = fd;
	async_jobs_add(jobs, &closing->job);
}

int async_jobs_fd(const struct async_jobs *jobs)
{
	return jobs->event_fd;
}

void async_jobs_finish(struct async_jobs *jobs)
{
	uint64_t count;
	ssize_t n = read(jobs->event_fd, &count, sizeof(count));
	(void)n;
	for (;;) {
		pthread_mutex_lock(&jobs->mutex);
		struct async_job *job = STAILQ_FIRST(&jobs->finished);
		if (job)
			STAILQ_REMOVE_HEAD(&jobs->finished, next);
		pthread_mutex_unlock(&jobs->mutex);
		if (!job)
			return;
		job->done(job);
	}
}
