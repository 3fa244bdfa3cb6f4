#include "loaderd/supervisor/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
	THREADS = 8,
	HURRY_SIGNAL = SIGURG, /* ends the waiting of a close() */
	/* for one; then it is hurried, and again each time that so long has passed */
	PATIENCE_NS = 1000000,
};

/* Jobs go through a pipe: its buffer is the queue, and a thread ends when the pipe is closed. */
struct closer_job {
	void (*run)(void *context); /* NULL: close fd */
	void *context;
	int fd;
};

struct closer {
	int pipes[THREADS][2];
	unsigned threads;
};

static void closer_hurry(int signal_number)
{
}

/* Of this thread alone. Where there is none, a close() takes as long as it takes. */
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

static void *closer_main(void *argument)
{
	int pipe = *(int *)argument;
	struct closer_job job;
	timer_t timer;
	bool has_timer = new_timer(&timer);
	ssize_t n;
	free(argument);
	while ((n = read(pipe, &job, sizeof(job))) == sizeof(job) || (n < 0 && errno == EINTR)) {
		if (n < 0)
			continue;
		if (job.run)
			job.run(job.context);
		else
			close_in_a_hurry(job.fd, has_timer ? &timer : NULL);
	}
	if (has_timer)
		timer_delete(timer);
	close(pipe);
	return NULL;
}

static int closer_start(struct closer *closer)
{
	pthread_t thread;
	int *pipe_fds = closer->pipes[closer->threads];
	int *argument = malloc(sizeof(*argument));
	if (!argument)
		return -ENOMEM;
	if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
		int r = -errno;
		free(argument);
		return r;
	}
	*argument = pipe_fds[0];
	int r = -pthread_create(&thread, NULL, closer_main, argument);
	if (r < 0) {
		free(argument);
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		return r;
	}
	pthread_setname_np(thread, "closer");
	pthread_detach(thread);
	fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK);
	closer->threads++;
	return 0;
}

int closer_new(struct closer **ret_closer)
{
	const struct sigaction action = {.sa_handler = closer_hurry};
	sigset_t all, old;
	struct closer *closer = calloc(1, sizeof(*closer));
	if (!closer)
		return -ENOMEM;
	int r = sigaction(HURRY_SIGNAL, &action, NULL) < 0 ? -errno : 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (r == 0 && closer->threads < THREADS)
		r = closer_start(closer);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		closer_free(closer);
		return r;
	}
	*ret_closer = closer;
	return 0;
}

void closer_free(struct closer *closer)
{
	if (!closer)
		return;
	for (unsigned i = 0; i < closer->threads; i++)
		close(closer->pipes[i][1]);
	free(closer);
}

/* A job is written whole. Where a pipe is full, its thread has fallen behind, and others help. */
static bool closer_give(struct closer *closer, uint32_t key, const struct closer_job *job)
{
	for (unsigned i = 0; i < closer->threads; i++)
		if (write(closer->pipes[(key + i) % closer->threads][1], job, sizeof(*job)) ==
		    sizeof(*job))
			return true;
	return false;
}

void closer_close(struct closer *closer, uint32_t key, int fd)
{
	const struct closer_job job = {.fd = fd};
	if (!closer_give(closer, key, &job))
		close(fd);
}

bool closer_run(struct closer *closer, uint32_t key, void (*run)(void *context), void *context)
{
	const struct closer_job job = {.run = run, .context = context, .fd = -1};
	return closer_give(closer, key, &job);
}
