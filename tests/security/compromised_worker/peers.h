/*
 * Clients of a compromised worker: real clients, each in a separate process, that use the public
 * interface only. Whatever the worker sends them, they must continue or fail with an error text,
 * and must never return impossible data.
 */
#pragma once

#include <sys/types.h>

struct peers {
	const char *socket, *dataset, *loaderctl;
	uid_t uid;
};

/*
 * Runs the peers for the row requested on this connection and prints the result. Returns 0 if they
 * behaved as expected, 1 if not, -EAGAIN if the connection closed first, -ENOENT if there is no
 * such row.
 */
int peers_try(const struct peers *peers, int commander);
