#include "loaderd/worker/chores.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

STAILQ_HEAD(queue, chore);

struct chores {
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct queue waiting, finished;
	bool stopping;
	int event_fd;
	unsigned usual; /* threads that stay */
	unsigned waiting_count, thread_count, idle;
	pthread_cond_t ended; /* a thread has */
};

/* A descriptor to close. */
struct closing {
	struct chore chore;
	int fd;
};

static void *chores_main(void *argument)
{
	struct chores *chores = argument;
	pthread_setname_np(pthread_self(), "chores");
	pthread_mutex_lock(&chores->mutex);
	for (;;) {
		struct chore *chore = STAILQ_FIRST(&chores->waiting);
		if (!chore && (chores->stopping || chores->thread_count > chores->usual))
			break;
		if (!chore) {
			chores->idle++;
			pthread_cond_wait(&chores->wake, &chores->mutex);
			chores->idle--;
			continue;
		}
		STAILQ_REMOVE_HEAD(&chores->waiting, next);
		chores->waiting_count--;
		pthread_mutex_unlock(&chores->mutex);
		bool tells = chore->done;
		chore->run(chore);
		pthread_mutex_lock(&chores->mutex);
		if (!tells)
			continue;
		STAILQ_INSERT_TAIL(&chores->finished, chore, next);
		uint64_t one = 1;
		ssize_t n = write(chores->event_fd, &one, sizeof(one));
		(void)n;
	}
	chores->thread_count--;
	pthread_cond_signal(&chores->ended);
	pthread_mutex_unlock(&chores->mutex);
	return NULL;
}

/* Under the mutex. */
static int chores_start_thread(struct chores *chores)
{
	sigset_t blocked, old;
	if (chores->thread_count == CHORES_THREADS_MAX)
		return -EAGAIN;
	sigfillset(&blocked);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGILL);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	pthread_t thread;
	int r = -pthread_create(&thread, NULL, chores_main, chores);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		return r;
	pthread_detach(thread);
	chores->thread_count++;
	return 0;
}

int chores_new(unsigned threads, struct chores **ret_chores)
{
	struct chores *chores = calloc(1, sizeof(*chores));
	if (!chores)
		return -ENOMEM;
	pthread_mutex_init(&chores->mutex, NULL);
	pthread_cond_init(&chores->wake, NULL);
	pthread_cond_init(&chores->ended, NULL);
	chores->usual = threads;
	STAILQ_INIT(&chores->waiting);
	STAILQ_INIT(&chores->finished);
	chores->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = chores->event_fd < 0 ? -errno : 0;
	pthread_mutex_lock(&chores->mutex);
	while (r == 0 && chores->thread_count < threads)
		r = chores_start_thread(chores);
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
	while (chores->thread_count > 0)
		pthread_cond_wait(&chores->ended, &chores->mutex);
	pthread_mutex_unlock(&chores->mutex);
	if (chores->event_fd >= 0)
		close(chores->event_fd);
	pthread_cond_destroy(&chores->wake);
	pthread_cond_destroy(&chores->ended);
	pthread_mutex_destroy(&chores->mutex);
	free(chores);
}

void chores_add(struct chores *chores, struct chore *chore)
{
	pthread_mutex_lock(&chores->mutex);
	STAILQ_INSERT_TAIL(&chores->waiting, chore, next);
	chores->waiting_count++;
	/*
	 * All may be held up by storage that hangs, or by clients' descriptors that take their time
	 * to be closed.
	 */
	if (chores->waiting_count > chores->idle)
		(void)chores_start_thread(chores);
	pthread_cond_signal(&chores->wake);
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
