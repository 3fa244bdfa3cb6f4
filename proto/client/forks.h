/*
 * Closes descriptors that a forked child must not keep: the socket of a feed, and the lifeline and
 * listening socket of a private daemon. An inherited copy would hide the end of this process from
 * the daemon, or keep the socket's name reserved after it. In the child, registered fds are closed
 * and *fd becomes -1. `before` may take locks of the guard's owner and `after` release them, so
 * that the child finds consistent what they protect; the owner must hold none of these when it adds
 * or removes a guard. Any thread. Internal. (exec needs no care: the fds are close-on-exec.)
 */
#pragma once

struct fork_guard {
	struct fork_guard *next;
	int *fd;
	/* called in the parent right before a fork; may be NULL */
	void (*before)(struct fork_guard *guard);
	/* called right after the fork, in the parent and in the child; may be NULL */
	void (*after)(struct fork_guard *guard);
};

void fork_guard_add(struct fork_guard *guard, int *fd);
/* Accepts a guard that was never added. */
void fork_guard_remove(struct fork_guard *guard);
