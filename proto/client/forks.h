/*
 * Descriptors that a process made with fork() must not keep: the socket of a feed and the lifeline
 * of a private daemon, whose closing tells the daemon that we are gone. Registered ones are closed
 * in the child, and *fd becomes -1 there. `before` may take locks of its owner's, who holds none of
 * them when adding and removing. Any thread. Internal. (exec needs no care, they are
 * close-on-exec.)
 */
#pragma once

struct fork_guard {
	struct fork_guard *next;
	int *fd;
	/* in the parent, right before a fork; NULL: nothing */
	void (*before)(struct fork_guard *guard);
};

void fork_guard_add(struct fork_guard *guard, int *fd);
/* Accepts one that was never added. */
void fork_guard_remove(struct fork_guard *guard);
