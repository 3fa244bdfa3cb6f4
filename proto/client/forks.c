#include "proto/client/forks.h"

#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fork_guard *guards;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before(void)
{
	pthread_mutex_lock(&lock);
	for (struct fork_guard *guard = guards; guard; guard = guard->next)
		if (guard->before)
			guard->before(guard);
}

static void finish(void)
{
	for (struct fork_guard *guard = guards; guard; guard = guard->next)
		if (guard->after)
			guard->after(guard);
	pthread_mutex_unlock(&lock);
}

static void after_in_child(void)
{
	for (struct fork_guard *guard = guards; guard; guard = guard->next) {
		if (*guard->fd >= 0)
			close(*guard->fd);
		*guard->fd = -1;
	}
	finish();
}

static void watch(void)
{
	pthread_atfork(before, finish, after_in_child);
}

void fork_guard_add(struct fork_guard *guard, int *fd)
{
	pthread_once(&once, watch);
	guard->fd = fd;
	pthread_mutex_lock(&lock);
	guard->next = guards;
	guards = guard;
	pthread_mutex_unlock(&lock);
}

void fork_guard_remove(struct fork_guard *guard)
{
	pthread_mutex_lock(&lock);
	for (struct fork_guard **g = &guards; *g; g = &(*g)->next) {
		if (*g == guard) {
			*g = guard->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
}
