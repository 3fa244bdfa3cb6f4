/*
 * Clients of a compromised worker: real clients, each in a separate process, that use only the
 * public interface. Whatever the worker sends, they must continue or fail with an error text; they
 * must never return impossible data.
 */
#pragma once

#include <sys/types.h>

struct peers {
	const char *socket, *dataset, *loaderctl;
	uid_t uid;
};

/*
 * Runs the peers for the row that was requested on this connection and prints the result. Returns 0
 * if they behaved as expected, 1 if not, -EAGAIN if the connection closed first, -ENOENT if there
 * is no such row.
 */
int peers_try(const struct peers *peers, int commander);
