#include "tests/fuzz/support/fake_network.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { FIRST = 1 << 20, CHOSEN_PORT = 40000 };

struct fake_network fake_network;

/* used up to `count`; the rest is zero */
void fake_network_start(bool (*act)(void *context), void *context)
{
	memset(fake_network.connections, 0, fake_network.count * sizeof(*fake_network.connections));
	fake_network.count = fake_network.waiting = 0;
	fake_network.now = 0;
	fake_network.act = act;
	fake_network.context = context;
}

struct fake_connection *fake_connection(int fd)
{
	return fd >= FIRST && fd < FIRST + (int)fake_network.count
		       ? &fake_network.connections[fd - FIRST]
		       : NULL;
}

void fake_receive(struct fake_connection *connection, const void *bytes, size_t size)
{
	if (size > FAKE_BYTES - connection->in)
		size = FAKE_BYTES - connection->in;
	memcpy(connection->received + connection->in, bytes, size);
	connection->in += size;
}

static int open_one(enum fake_state state)
{
	if (fake_network.count == FAKE_CONNECTIONS) {
		errno = EMFILE;
		return -1;
	}
	fake_network.connections[fake_network.count].state = state;
	return FIRST + (int)fake_network.count++;
}

/* The connection of a call, which the program must not have closed. */
static struct fake_connection *used(int fd)
{
	struct fake_connection *connection = fake_connection(fd);

	if (!connection || connection->closed)
		abort();
	return connection;
}

static int fail(int error)
{
	errno = error;
	return -1;
}

/* ---- calls that are replaced ---- */

int __real_close(int fd);

int __wrap_close(int fd);
int __wrap_close(int fd)
{
	if (fd < FIRST)
		return __real_close(fd);
	used(fd)->closed = true;
	return 0;
}

int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
	return open_one(FAKE_SOCKET);
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size)
{
	used(fd);
	return 0;
}

int __wrap_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog)
{
	used(fd)->state = FAKE_LISTENER;
	return 0;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	if (used(fd)->state != FAKE_LISTENER)
		abort();
	if (!fake_network.waiting)
		return fail(EAGAIN);
	fake_network.waiting--;
	int accepted = open_one(FAKE_CONNECTED);
	if (accepted >= 0)
		used(accepted)->accepted = true;
	return accepted;
}

/* Peers accept, refuse or leave it open while the program waits. */
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
	used(fd);
	return fail(EINPROGRESS);
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	used(fd);
	return 0;
}

/* SO_ERROR, the only one in use. */
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	enum fake_state state = used(fd)->state;

	if (level != SOL_SOCKET || name != SO_ERROR)
		return fail(ENOPROTOOPT);
	*(int *)value = state == FAKE_REFUSED ? ECONNREFUSED : 0;
	return 0;
}

static int name_socket(struct sockaddr *address, socklen_t *size)
{
	struct sockaddr_in four = {.sin_family = AF_INET,
				   .sin_port = htons(CHOSEN_PORT),
				   .sin_addr = {htonl(0x7f000002)}};

	memcpy(address, &four, *size < sizeof(four) ? *size : sizeof(four));
	*size = sizeof(four);
	return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size);
int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size)
{
	used(fd);
	return name_socket(address, size);
}

int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *size);
int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *size)
{
	return used(fd)->state == FAKE_CONNECTED ? name_socket(address, size) : fail(ENOTCONN);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
	struct fake_connection *connection = used(fd);

	if (connection->state != FAKE_CONNECTED)
		return fail(EAGAIN);
	if (connection->left)
		return fail(EPIPE);
	if (connection->full)
		return fail(EAGAIN);
	if (connection->out < FAKE_BYTES)
		memcpy(connection->sent + connection->out, bytes,
		       size < FAKE_BYTES - connection->out ? size : FAKE_BYTES - connection->out);
	connection->out += size;
	return (ssize_t)size;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
	struct fake_connection *connection = used(fd);
	size_t left = connection->in - connection->taken;

	if (!left)
		return connection->left ? 0 : fail(EAGAIN);
	if (size > left)
		size = left;
	memcpy(bytes, connection->received + connection->taken, size);
	connection->taken += size;
	return (ssize_t)size;
}

static short ready(const struct pollfd *each)
{
	const struct fake_connection *connection = fake_connection(each->fd);
	short events = 0;

	if (!connection || connection->closed)
		return 0;
	if (connection->state == FAKE_LISTENER)
		events = fake_network.waiting ? POLLIN : 0;
	else if (connection->state != FAKE_SOCKET)
		events = (short)((connection->full ? 0 : POLLOUT) |
				 (connection->left || connection->in > connection->taken ? POLLIN
											 : 0));
	return events & each->events;
}

int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout)
{
	bool acted = fake_network.act(fake_network.context);
	int found = 0;

	for (nfds_t i = 0; i < count; i++) {
		polls[i].revents = ready(&polls[i]);
		found += polls[i].revents != 0;
	}
	fake_network.now += acted ? 1 : timeout < 0 ? 1000 : timeout;
	return found;
}

int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	return 0;
}

int64_t __wrap_clock_ms(void);
int64_t __wrap_clock_ms(void)
{
	return fake_network.now;
}

int __wrap_clock_left_ms(int64_t deadline);
int __wrap_clock_left_ms(int64_t deadline)
{
	return deadline > fake_network.now ? (int)(deadline - fake_network.now) : 0;
}

/* Predictable, so that an input runs the same again. */
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
	memset(bytes, (int)fake_network.count, size);
	return (ssize_t)size;
}
