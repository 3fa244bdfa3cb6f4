/*
 * Clients of a compromised worker: real ones, each in a process of its own, through the
 * public interface alone. Whatever they are told they go on or fail with a sentence, and see
 * nothing that cannot be.
 */
#pragma once

#include <sys/types.h>

struct peers {
	const char *socket, *dataset, *loaderctl;
	uid_t uid;
};

/*
 * Of the row that was asked for by this connection: 0: as it should be, 1: not; both are printed.
 * -EAGAIN: it was hung up on before; -ENOENT: there is no such row.
 */
int peers_try(const struct peers *peers, int commander);
