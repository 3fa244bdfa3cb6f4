#include "closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8 };

/* Descriptors go through a pipe as numbers: its buffer is the queue, and a thread that ends finds the pipe closed. */
struct closer {
	int pipes[THREADS][2];
	unsigned threads;
};

static void *closer_main(void *argument)
{
	int pipe = *(int *)argument, fd;
	free(argument);
	while (read(pipe, &fd, sizeof fd) == sizeof fd)
		close(fd);
	close(pipe);
	return NULL;
}

static int start(struct closer *closer)
{
	pthread_t thread;
	int *pipe_fds = closer->pipes[closer->threads];
	int *argument = malloc(sizeof *argument);
	if (argument == NULL || pipe2(pipe_fds, O_CLOEXEC) < 0) {
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
	sigset_t all, old;
	struct closer *closer = calloc(1, sizeof *closer);
	if (closer == NULL)
		return -ENOMEM;
	int r = 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (r == 0 && closer->threads < THREADS)
		r = start(closer);
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
	if (closer == NULL)
		return;
	for (unsigned i = 0; i < closer->threads; i++)
		close(closer->pipes[i][1]);
	free(closer);
}

void closer_close(struct closer *closer, uint32_t key, int fd)
{
	/* A number is written whole. The pipe holds 16,384 of them: more than a process may usually have open. */
	if (write(closer->pipes[key % closer->threads][1], &fd, sizeof fd) != sizeof fd)
		close(fd);
}
