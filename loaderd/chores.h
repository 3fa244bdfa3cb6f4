/*
 * Chores: what may take long (opening files, making and unmapping shared memory) runs on a few threads of its own, so that the control
 * thread always answers. run() is called on such a thread, then done() on the control thread from chores_finish(). A chore
 * is embedded in its owner's structure and belongs to this module between the two.
 */
#pragma once

#include <stdbool.h>

struct chore {
	void (*run)(struct chore *chore);
	void (*done)(struct chore *chore);
	struct chore *next;
};

struct chores;

int chores_new(unsigned threads, struct chores **ret_chores);
/* Waits for what is running; nothing may be queued. */
void chores_free(struct chores *chores);
void chores_add(struct chores *chores, struct chore *chore);
/* Readable when chores_finish() has something to do. */
int chores_fd(const struct chores *chores);
void chores_finish(struct chores *chores);
