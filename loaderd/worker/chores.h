/*
 * Chores: what may take long (opening files, making and unmapping shared memory, closing what
 * clients passed) runs on threads of its own, a few and more of them while those are held up, so
 * that the control thread always answers. run() is called on such a thread, then done() on the
 * control thread from chores_finish(). A chore is embedded in its owner's structure and belongs to
 * this module between the two.
 */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

struct chore {
	void (*run)(struct chore *chore);
	void (*done)(struct chore *chore); /* NULL: run() is the end of it */
	STAILQ_ENTRY(chore) next;
};

struct chores;

/* Threads that storage can hold up before others wait for it, too. */
enum { CHORES_THREADS_MAX = 64 };

int chores_new(unsigned threads, struct chores **ret_chores);
/* Waits for what is running and what waits, of which nobody may want to be told. */
void chores_free(struct chores *chores);
void chores_add(struct chores *chores, struct chore *chore);
/* Closes a descriptor: of a socket that lingers that may take as long as its owner has chosen. */
void chores_close(struct chores *chores, int fd);
/* Readable when chores_finish() has something to do. */
int chores_fd(const struct chores *chores);
void chores_finish(struct chores *chores);
