/*
 * Chores: what may take long (opening files, looking at shared memory and unmapping it, closing
 * what clients passed) runs on threads of its own, so that the control thread always answers. run()
 * is called on such a thread, then done() on the control thread from chores_finish(). A chore is
 * embedded in its owner's structure and belongs to this module between the two.
 *
 * Only a few chores use a CPU at a time, whatever the number that wait: these threads are outside
 * of the pool's fair share, and many of them would take CPUs from other users. Another chore starts
 * early only when one of those that run sleeps, in storage or in a close. The threads are also
 * nicer than those that decode.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct chore {
	void (*run)(struct chore *chore);
	void (*done)(struct chore *chore); /* NULL: run() is the end of it */
	STAILQ_ENTRY(chore) next;
};

struct chores;

/* Threads that storage can hold up before others wait for it, too. */
enum { CHORES_THREADS_MAX = 64 };

/*
 * at_once: chores that may use a CPU at a time. Call it before the sandbox is entered: threads
 * lower their own priority, which is refused later. Threads that are started then inherit it.
 */
int chores_new(unsigned at_once, struct chores **ret_chores);
/* Waits for all chores, running and queued, without calling done(). */
void chores_free(struct chores *chores);
void chores_add(struct chores *chores, struct chore *chore);
/* Closes a descriptor: of a socket that lingers that may take as long as its owner has chosen. */
void chores_close(struct chores *chores, int fd);
/* Readable when chores_finish() has something to do. */
int chores_fd(const struct chores *chores);
void chores_finish(struct chores *chores);
/* When chores_relieve() is to be called; UINT64_MAX: it has nothing to do. Control thread. */
uint64_t chores_due_ns(struct chores *chores);
/*
 * Looks for chores that have slept since the last call, by the CPU time of their threads, and lets
 * others run in their place. Control thread.
 */
void chores_relieve(struct chores *chores, uint64_t now_ns);
/*
 * Around a wait inside of a chore, during which another may run. chores_resume() returns when the
 * chore may use a CPU again. On other threads both do nothing.
 */
void chores_suspend(void);
void chores_resume(void);
