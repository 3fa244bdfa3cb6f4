#include "loaderd/supervisor/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	THREADS = 8,
	HURRY_SIGNAL = SIGURG, /* ends the waiting of a close() */
	/* for one; then it is hurried, and again each time that so long has passed */
	PATIENCE_NS = 1000000,
};

/*
 * Descriptors go through a pipe as numbers: its buffer is the queue, and a thread that ends finds
 * the pipe closed.
 */
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

static void *closer_main(void *argument)
{
	static const struct itimerspec soon = {{.tv_nsec = PATIENCE_NS}, {.tv_nsec = PATIENCE_NS}};
	static const struct itimerspec never;
	int pipe = *(int *)argument, fd;
	timer_t timer;
	bool has_timer = new_timer(&timer);
	ssize_t n;
	free(argument);
	while ((n = read(pipe, &fd, sizeof(fd))) == sizeof(fd) || (n < 0 && errno == EINTR)) {
		if (n < 0)
			continue;
		if (has_timer)
			timer_settime(timer, 0, &soon, NULL);
		close(fd);
		if (has_timer)
			timer_settime(timer, 0, &never, NULL);
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
	if (!argument || pipe2(pipe_fds, O_CLOEXEC) < 0) {
		free(argument);
		return -ENOMEM;
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

void closer_close(struct closer *closer, uint32_t key, int fd)
{
	/*
	 * A number is written whole. A pipe holds 16,384 of them: where one is full, its thread has
	 * fallen behind, and others help.
	 */
	for (unsigned i = 0; i < closer->threads; i++)
		if (write(closer->pipes[(key + i) % closer->threads][1], &fd, sizeof(fd)) ==
		    sizeof(fd))
			return;
	close(fd);
}

void closer_hang_up(struct closer *closer, uint32_t key, int fd)
{
	shutdown(fd, SHUT_RDWR);
	closer_close(closer, key, fd);
}
