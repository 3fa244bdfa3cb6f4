#include "loaderd/worker/chores.h"

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

STAILQ_HEAD(queue, chore);

enum {
	LOOK_MS = 100, /* between two looks at the threads */
	/*
	 * A thread that has used less than one part in so many of that time has been asleep. One
	 * that is ready to run gets more even where many others want its CPU.
	 */
	ASLEEP_PART = 200,
	/* above the worker's own nice value: half the weight of a thread that decodes */
	NICER = 3,
	NICE_MAX = 19,
};
#define MS_NS UINT64_C(1000000)

/* A chore that runs is active, which is what is limited, or asleep, or suspended. */
enum thread_state {
	THREAD_NONE,
	THREAD_IDLE,
	THREAD_ACTIVE,
	THREAD_ASLEEP,    /* chores_relieve() has found it so; it may be running again */
	THREAD_SUSPENDED, /* its chore has said so */
};

struct chores_thread {
	struct chores *chores;
	enum thread_state state;
	clockid_t clock;        /* of its CPU time */
	uint64_t chore;         /* how many it has begun */
	uint64_t watched_chore; /* by the last look: the chore, the time, the CPU time */
	uint64_t watched_ns, watched_cpu_ns;
};

struct chores {
	pthread_mutex_t mutex;
	pthread_cond_t wake;    /* idle threads */
	pthread_cond_t resume;  /* suspended ones that want to go on */
	pthread_cond_t changed; /* chores_new(), chores_free(): a thread has started or ended */
	struct queue waiting, finished;
	bool stopping;
	int event_fd;
	unsigned at_once;
	unsigned waiting_count, thread_count;
	unsigned idle, active, asleep; /* threads */
	unsigned resuming;             /* suspended threads that want to go on: before new chores */
	uint64_t look_due_ns;
	bool nicer; /* threads that start now still have to lower their priority */
	int nice;   /* to this */
	unsigned ready;
	struct chores_thread threads[CHORES_THREADS_MAX];
};

static _Thread_local struct chores_thread *chores_self;

/* A descriptor to close. */
struct closing {
	struct chore chore;
	int fd;
};

static void *chores_main(void *argument);

/* Under the mutex. */
static int chores_start_thread(struct chores *chores)
{
	sigset_t blocked, old;
	struct chores_thread *self = chores->threads;
	if (chores->thread_count == CHORES_THREADS_MAX)
		return -EAGAIN;
	while (self->state != THREAD_NONE)
		self++;
	*self = (struct chores_thread){.chores = chores, .state = THREAD_IDLE};
	sigfillset(&blocked);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGILL);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	pthread_t thread;
	int r = -pthread_create(&thread, NULL, chores_main, self);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		self->state = THREAD_NONE;
		return r;
	}
	pthread_detach(thread);
	chores->thread_count++;
	chores->idle++;
	return 0;
}

/* Under the mutex: a chore less is active, or one more waits. */
static void chores_pass_on(struct chores *chores)
{
	if (chores->active >= chores->at_once)
		return;
	if (chores->resuming > 0)
		pthread_cond_signal(&chores->resume);
	else if (chores->waiting_count > 0)
		pthread_cond_signal(&chores->wake);
}

static bool may_begin(const struct chores *chores)
{
	return chores->waiting_count > 0 &&
	       (chores->stopping || (chores->active < chores->at_once && chores->resuming == 0));
}

/* One idle thread more than can be active is enough. */
static bool is_surplus(const struct chores *chores)
{
	if (chores->stopping)
		return chores->waiting_count == 0;
	return chores->idle > 1 && chores->idle + chores->active > chores->at_once + 1;
}

/* Under the mutex, which it releases meanwhile. The chore may be gone after run(). */
static void chores_run(struct chores *chores, struct chores_thread *self)
{
	struct chore *chore = STAILQ_FIRST(&chores->waiting);
	const bool tells = chore->done;
	STAILQ_REMOVE_HEAD(&chores->waiting, next);
	chores->waiting_count--;
	chores->idle--;
	chores->active++;
	self->state = THREAD_ACTIVE;
	self->chore++;
	/*
	 * Another has to be there should this one sleep. It is started here because it inherits the
	 * priority.
	 */
	if (chores->idle == 0)
		(void)chores_start_thread(chores);
	pthread_mutex_unlock(&chores->mutex);
	chore->run(chore);
	pthread_mutex_lock(&chores->mutex);
	if (self->state == THREAD_ACTIVE)
		chores->active--;
	else
		chores->asleep--;
	self->state = THREAD_IDLE;
	chores->idle++;
	chores_pass_on(chores);
	if (!tells)
		return;
	STAILQ_INSERT_TAIL(&chores->finished, chore, next);
	uint64_t one = 1;
	ssize_t n = write(chores->event_fd, &one, sizeof(one));
	(void)n;
}

static void *chores_main(void *argument)
{
	struct chores_thread *self = chores_self = argument;
	struct chores *chores = self->chores;
	pthread_setname_np(pthread_self(), "chores");
	pthread_mutex_lock(&chores->mutex);
	if (chores->nicer)
		(void)setpriority(PRIO_PROCESS, 0, chores->nice);
	(void)pthread_getcpuclockid(pthread_self(), &self->clock);
	chores->ready++;
	pthread_cond_signal(&chores->changed);
	for (;;) {
		if (may_begin(chores))
			chores_run(chores, self);
		else if (is_surplus(chores))
			break;
		else
			pthread_cond_wait(&chores->wake, &chores->mutex);
	}
	self->state = THREAD_NONE;
	chores->idle--;
	chores->thread_count--;
	pthread_cond_signal(&chores->changed);
	pthread_mutex_unlock(&chores->mutex);
	return NULL;
}

int chores_new(unsigned at_once, struct chores **ret_chores)
{
	struct chores *chores = calloc(1, sizeof(*chores));
	if (!chores)
		return -ENOMEM;
	pthread_mutex_init(&chores->mutex, NULL);
	pthread_cond_init(&chores->wake, NULL);
	pthread_cond_init(&chores->resume, NULL);
	pthread_cond_init(&chores->changed, NULL);
	chores->at_once = at_once;
	chores->nice = getpriority(PRIO_PROCESS, 0) + NICER;
	if (chores->nice > NICE_MAX)
		chores->nice = NICE_MAX;
	chores->nicer = true;
	STAILQ_INIT(&chores->waiting);
	STAILQ_INIT(&chores->finished);
	chores->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = chores->event_fd < 0 ? -errno : 0;
	pthread_mutex_lock(&chores->mutex);
	while (r == 0 && chores->thread_count < at_once + 1)
		r = chores_start_thread(chores);
	while (chores->ready < chores->thread_count)
		pthread_cond_wait(&chores->changed, &chores->mutex);
	chores->nicer = false;
	pthread_mutex_unlock(&chores->mutex);
	if (r < 0) {
		chores_free(chores);
		return r;
	}
	*ret_chores = chores;
	return 0;
}

void chores_free(struct chores *chores)
{
	if (!chores)
		return;
	pthread_mutex_lock(&chores->mutex);
	chores->stopping = true;
	pthread_cond_broadcast(&chores->wake);
	pthread_cond_broadcast(&chores->resume);
	while (chores->thread_count > 0)
		pthread_cond_wait(&chores->changed, &chores->mutex);
	pthread_mutex_unlock(&chores->mutex);
	if (chores->event_fd >= 0)
		close(chores->event_fd);
	pthread_cond_destroy(&chores->wake);
	pthread_cond_destroy(&chores->resume);
	pthread_cond_destroy(&chores->changed);
	pthread_mutex_destroy(&chores->mutex);
	free(chores);
}

void chores_add(struct chores *chores, struct chore *chore)
{
	pthread_mutex_lock(&chores->mutex);
	STAILQ_INSERT_TAIL(&chores->waiting, chore, next);
	chores->waiting_count++;
	chores_pass_on(chores);
	pthread_mutex_unlock(&chores->mutex);
}

void chores_suspend(void)
{
	struct chores_thread *self = chores_self;
	if (!self)
		return;
	struct chores *chores = self->chores;
	pthread_mutex_lock(&chores->mutex);
	if (self->state == THREAD_ACTIVE)
		chores->active--;
	else
		chores->asleep--;
	self->state = THREAD_SUSPENDED;
	chores_pass_on(chores);
	pthread_mutex_unlock(&chores->mutex);
}

void chores_resume(void)
{
	struct chores_thread *self = chores_self;
	if (!self)
		return;
	struct chores *chores = self->chores;
	pthread_mutex_lock(&chores->mutex);
	chores->resuming++;
	while (chores->active >= chores->at_once && !chores->stopping)
		pthread_cond_wait(&chores->resume, &chores->mutex);
	chores->resuming--;
	chores->active++;
	self->state = THREAD_ACTIVE;
	chores_pass_on(chores);
	pthread_mutex_unlock(&chores->mutex);
}

uint64_t chores_due_ns(struct chores *chores)
{
	pthread_mutex_lock(&chores->mutex);
	const bool needed = chores->waiting_count > 0 || chores->resuming > 0 || chores->asleep > 0;
	const uint64_t due_ns = chores->look_due_ns;
	pthread_mutex_unlock(&chores->mutex);
	return needed ? due_ns : UINT64_MAX;
}

/* Notes what a thread has done until now. Has it been asleep, in one chore, since the last look? */
static bool has_slept(struct chores_thread *thread, uint64_t now_ns, uint64_t *ret_passed_ns)
{
	const uint64_t cpu_ns = clock_ns(thread->clock);
	const uint64_t passed_ns = now_ns - thread->watched_ns;
	const uint64_t used_ns = cpu_ns - thread->watched_cpu_ns;
	*ret_passed_ns = thread->watched_chore == thread->chore ? passed_ns : 0;
	thread->watched_chore = thread->chore;
	thread->watched_ns = now_ns;
	thread->watched_cpu_ns = cpu_ns;
	return used_ns < passed_ns / ASLEEP_PART;
}

void chores_relieve(struct chores *chores, uint64_t now_ns)
{
	pthread_mutex_lock(&chores->mutex);
	for (unsigned i = 0; now_ns >= chores->look_due_ns && i < CHORES_THREADS_MAX; i++) {
		struct chores_thread *thread = &chores->threads[i];
		uint64_t passed_ns;
		if (thread->state != THREAD_ACTIVE && thread->state != THREAD_ASLEEP)
			continue;
		const bool slept = has_slept(thread, now_ns, &passed_ns);
		if (passed_ns < LOOK_MS * MS_NS / 2 || slept == (thread->state == THREAD_ASLEEP))
			continue;
		thread->state = slept ? THREAD_ASLEEP : THREAD_ACTIVE;
		chores->active += slept ? -1 : 1;
		chores->asleep += slept ? 1 : -1;
		chores_pass_on(chores);
	}
	if (now_ns >= chores->look_due_ns)
		chores->look_due_ns = now_ns + LOOK_MS * MS_NS;
	pthread_mutex_unlock(&chores->mutex);
}

static void run_closing(struct chore *chore)
{
	close(((struct closing *)chore)->fd);
	free(chore);
}

void chores_close(struct chores *chores, int fd)
{
	struct closing *closing = calloc(1, sizeof(*closing));
	if (!closing) {
		close(fd);
		return;
	}
	closing->chore = (struct chore){.run = run_closing};
	closing->fd = fd;
	chores_add(chores, &closing->chore);
}

int chores_fd(const struct chores *chores)
{
	return chores->event_fd;
}

void chores_finish(struct chores *chores)
{
	uint64_t count;
	ssize_t n = read(chores->event_fd, &count, sizeof(count));
	(void)n;
	for (;;) {
		pthread_mutex_lock(&chores->mutex);
		struct chore *chore = STAILQ_FIRST(&chores->finished);
		if (chore)
			STAILQ_REMOVE_HEAD(&chores->finished, next);
		pthread_mutex_unlock(&chores->mutex);
		if (!chore)
			return;
		chore->done(chore);
	}
}
