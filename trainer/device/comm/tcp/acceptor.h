/*
 * Connections that are not known yet to be a rank's. Anybody may connect to a port, so none of them
 * can hold up the others: they are read as bytes come, there are at most ACCEPTOR_MAX, of which the
 * oldest that has proved nothing makes room for a new one, and each has ACCEPTOR_MS to finish.
 *
 * Owned by the one thread that uses the ranks. Fixed memory.
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ACCEPTOR_MAX = 64, ACCEPTOR_MS = 5000, ACCEPTOR_BYTES = 512 };

struct newcomer {
	int fd;
	int64_t deadline; /* of clock_ms() */
	size_t got, wanted;
	bool proved; /* that it has the key, with its first message */
	uint8_t bytes[ACCEPTOR_BYTES];
};

/*
 * Called whenever `wanted` bytes have come. Returns true to keep the connection, and then sets
 * `wanted` to a larger number; false to be rid of it, and then either has taken fd, and set it to
 * -1, or it is closed.
 */
typedef bool acceptor_read(struct newcomer *newcomer, void *context);

struct acceptor {
	int listener;
	size_t wanted; /* bytes of a first message, at most ACCEPTOR_BYTES */
	acceptor_read *read;
	void *context;
	unsigned count;
	struct newcomer newcomers[ACCEPTOR_MAX];
};

/* Appends what to poll for, at most ACCEPTOR_MAX + 1 descriptors. Returns how many. */
unsigned acceptor_polls(const struct acceptor *acceptor, struct pollfd *polls);
/* Reads what has come, and accepts. */
void acceptor_advance(struct acceptor *acceptor);
/* Closes all connections, and the listener. */
void acceptor_close(struct acceptor *acceptor);
