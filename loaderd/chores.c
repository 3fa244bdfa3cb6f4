#include "chores.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { THREADS_MAX = 8 };

struct queue {
	struct chore *first, **last;
};

struct chores {
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct queue waiting, finished;
	bool stopping;
	int event_fd;
	unsigned thread_count;
	pthread_t threads[THREADS_MAX];
};

static void queue_init(struct queue *queue)
{
	queue->first = NULL;
	queue->last = &queue->first;
}

static void queue_put(struct queue *queue, struct chore *chore)
{
	chore->next = NULL;
	*queue->last = chore;
	queue->last = &chore->next;
}

static struct chore *queue_take(struct queue *queue)
{
	struct chore *chore = queue->first;
	if (chore == NULL)
		return NULL;
	queue->first = chore->next;
	if (queue->first == NULL)
		queue->last = &queue->first;
	return chore;
}

static void *chores_main(void *argument)
{
	struct chores *chores = argument;
	pthread_setname_np(pthread_self(), "chores");
	pthread_mutex_lock(&chores->mutex);
	while (!chores->stopping) {
		struct chore *chore = queue_take(&chores->waiting);
		if (chore == NULL) {
			pthread_cond_wait(&chores->wake, &chores->mutex);
			continue;
		}
		pthread_mutex_unlock(&chores->mutex);
		chore->run(chore);
		pthread_mutex_lock(&chores->mutex);
		queue_put(&chores->finished, chore);
		uint64_t one = 1;
		ssize_t n = write(chores->event_fd, &one, sizeof one);
		(void)n;
	}
	pthread_mutex_unlock(&chores->mutex);
	return NULL;
}

int chores_new(unsigned threads, struct chores **ret_chores)
{
	struct chores *chores = calloc(1, sizeof *chores);
	if (chores == NULL)
		return -ENOMEM;
	pthread_mutex_init(&chores->mutex, NULL);
	pthread_cond_init(&chores->wake, NULL);
	queue_init(&chores->waiting);
	queue_init(&chores->finished);
	chores->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = chores->event_fd < 0 ? -errno : 0;
	sigset_t blocked, old;
	sigfillset(&blocked);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGILL);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	while (r == 0 && chores->thread_count < threads && chores->thread_count < THREADS_MAX) {
		r = -pthread_create(&chores->threads[chores->thread_count], NULL, chores_main,
				    chores);
		chores->thread_count += r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		chores_free(chores);
		return r;
	}
	*ret_chores = chores;
	return 0;
}

void chores_free(struct chores *chores)
{
	if (chores == NULL)
		return;
	pthread_mutex_lock(&chores->mutex);
	chores->stopping = true;
	pthread_cond_broadcast(&chores->wake);
	pthread_mutex_unlock(&chores->mutex);
	for (unsigned i = 0; i < chores->thread_count; i++)
		pthread_join(chores->threads[i], NULL);
	if (chores->event_fd >= 0)
		close(chores->event_fd);
	pthread_cond_destroy(&chores->wake);
	pthread_mutex_destroy(&chores->mutex);
	free(chores);
}

void chores_add(struct chores *chores, struct chore *chore)
{
	pthread_mutex_lock(&chores->mutex);
	queue_put(&chores->waiting, chore);
	pthread_cond_signal(&chores->wake);
	pthread_mutex_unlock(&chores->mutex);
}

int chores_fd(const struct chores *chores)
{
	return chores->event_fd;
}

void chores_finish(struct chores *chores)
{
	uint64_t count;
	ssize_t n = read(chores->event_fd, &count, sizeof count);
	(void)n;
	for (;;) {
		pthread_mutex_lock(&chores->mutex);
		struct chore *chore = queue_take(&chores->finished);
		pthread_mutex_unlock(&chores->mutex);
		if (chore == NULL)
			return;
		chore->done(chore);
	}
}
