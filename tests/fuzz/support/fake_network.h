/*
 * Sockets and time for programs in one thread, without the kernel: linked with the options in
 * tests/fuzz/meson.build, calls on descriptors of the fake have their result here. What peers do is
 * up to the callback, which runs whenever the program waits; when it has nothing left to do, waits
 * last their full time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_CONNECTIONS = 160, FAKE_BYTES = 2048 };

enum fake_state { FAKE_FREE, FAKE_SOCKET, FAKE_LISTENER, FAKE_CONNECTED, FAKE_REFUSED };

/* Never reused within a run, so that a descriptor that was closed is not mistaken for another. */
struct fake_connection {
	enum fake_state state;
	bool closed;   /* by the program */
	bool accepted; /* a peer has connected */
	bool left;     /* the peer has closed */
	bool full;     /* the peer does not read */
	size_t in, taken, out;
	uint8_t received[FAKE_BYTES]; /* [in], of which the program has read `taken` */
	uint8_t sent[FAKE_BYTES];     /* the first of `out` bytes that the program has sent */
};

struct fake_network {
	struct fake_connection connections[FAKE_CONNECTIONS];
	unsigned count;
	unsigned waiting; /* peers that nobody has accepted */
	int64_t now;      /* of clock_ms() */
	/* Lets peers act. False if they have nothing left to do. */
	bool (*act)(void *context);
	void *context;
};

extern struct fake_network fake_network;

/* Forgets all connections. */
void fake_network_start(bool (*act)(void *context), void *context);
/* NULL if there is no such connection. */
struct fake_connection *fake_connection(int fd);
/* A peer sends. Bytes beyond FAKE_BYTES are lost. */
void fake_receive(struct fake_connection *connection, const void *bytes, size_t size);
