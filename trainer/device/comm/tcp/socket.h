/*
 * Sockets between ranks: TCP over IPv4 or IPv6, non-blocking, without Nagle's delay. Functions
 * return a negative errno on failure; stateless, any thread.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An address without a port. IPv4 as ::ffff:a.b.c.d. */
struct tcp_host {
	struct in6_addr address;
	uint32_t scope; /* of link-local addresses */
};

enum {
	TCP_HOSTS_MAX = 8,
	TCP_HOST_TEXT = 64, /* bytes */
	/*
	 * How long a peer's kernel may be silent before the peer counts as gone. It answers even if
	 * the program does not.
	 */
	TCP_SILENT_MS = 8000,
};

/* Resolves a name or a literal address. Returns the number found; 0 with the resolver's text. */
unsigned tcp_resolve(const char *name, struct tcp_host hosts[TCP_HOSTS_MAX],
		     const char **ret_problem);
bool tcp_is_loopback(const struct tcp_host *host);
/* Writes the address to ret_text and returns it. */
const char *tcp_host_text(const struct tcp_host *host, char ret_text[TCP_HOST_TEXT]);
bool tcp_peer(int fd, struct tcp_host *ret_host);

/* Listens on a port, 0 for any; on all addresses if host is NULL. Returns the socket. */
int tcp_listen(const struct tcp_host *host, uint16_t port);
/* Returns the port of a socket that listens, 0 if unknown. */
uint16_t tcp_port(int fd);
/* Starts to connect; the socket is writable when that is done. Returns the socket. */
int tcp_connect_start(const struct tcp_host *host, uint16_t port);
/* After that: 0 if connected. */
int tcp_connect_result(int fd);
/* Returns a connection, or -EAGAIN. */
int tcp_accept(int fd);

/*
 * Makes the kernel find out within TCP_SILENT_MS that the peer's machine is gone, on a connection
 * that is mostly idle. Not for connections whose peer may leave data unread for longer: Linux then
 * ends them, although the peer's kernel answers.
 */
void tcp_keep_alive(int fd);
/* True if sent data was not acknowledged for TCP_SILENT_MS although the peer had room for it. */
bool tcp_is_silent(int fd);

/*
 * Send or receive some bytes at once. Return how many, 0 if that would block, -ECONNRESET also at
 * the end of the connection.
 */
ssize_t tcp_send(int fd, const void *bytes, size_t size);
ssize_t tcp_receive(int fd, void *bytes, size_t size);
/* Send or receive all, until a time of clock_ms(). -ETIMEDOUT if it passes. */
int tcp_send_all(int fd, const void *bytes, size_t size, int64_t deadline);
int tcp_receive_all(int fd, void *bytes, size_t size, int64_t deadline);
