#include "trainer/device/comm/tcp/socket.h"

#include "format/base/system/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h> /* struct tcp_info with tcpi_last_ack_recv, and the options */
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const int on = 1, off = 0;

static void from_sockaddr(const struct sockaddr *address, struct tcp_host *ret_host)
{
	*ret_host = (struct tcp_host){0};
	if (address->sa_family == AF_INET6) {
		struct sockaddr_in6 six;

		memcpy(&six, address, sizeof(six));
		ret_host->address = six.sin6_addr;
		ret_host->scope = six.sin6_scope_id;
		return;
	}
	struct sockaddr_in four;
	memcpy(&four, address, sizeof(four));
	ret_host->address.s6_addr[10] = ret_host->address.s6_addr[11] = 0xff;
	memcpy(ret_host->address.s6_addr + 12, &four.sin_addr, 4);
}

/* IPv4 addresses use sockets of IPv4, since a machine may have IPv6 switched off. */
static socklen_t to_sockaddr(const struct tcp_host *host, uint16_t port,
			     struct sockaddr_storage *ret_address)
{
	memset(ret_address, 0, sizeof(*ret_address));
	if (IN6_IS_ADDR_V4MAPPED(&host->address)) {
		struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};

		memcpy(&four.sin_addr, host->address.s6_addr + 12, 4);
		memcpy(ret_address, &four, sizeof(four));
		return sizeof(four);
	}
	struct sockaddr_in6 six = {.sin6_family = AF_INET6,
				   .sin6_port = htons(port),
				   .sin6_addr = host->address,
				   .sin6_scope_id = host->scope};
	memcpy(ret_address, &six, sizeof(six));
	return sizeof(six);
}

unsigned tcp_resolve(const char *name, struct tcp_host hosts[TCP_HOSTS_MAX],
		     const char **ret_problem)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *list;
	unsigned count = 0;
	int status = getaddrinfo(name, NULL, &hints, &list);

	*ret_problem = status ? gai_strerror(status) : "no address";
	if (status)
		return 0;
	for (const struct addrinfo *entry = list; entry && count < TCP_HOSTS_MAX;
	     entry = entry->ai_next)
		if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6)
			from_sockaddr(entry->ai_addr, &hosts[count++]);
	freeaddrinfo(list);
	return count;
}

bool tcp_is_loopback(const struct tcp_host *host)
{
	return IN6_IS_ADDR_LOOPBACK(&host->address) ||
	       (IN6_IS_ADDR_V4MAPPED(&host->address) && host->address.s6_addr[12] == 127);
}

const char *tcp_host_text(const struct tcp_host *host, char ret_text[TCP_HOST_TEXT])
{
	bool four = IN6_IS_ADDR_V4MAPPED(&host->address);

	if (!inet_ntop(four ? AF_INET : AF_INET6, host->address.s6_addr + (four ? 12 : 0), ret_text,
		       TCP_HOST_TEXT))
		*ret_text = '\0';
	return ret_text;
}

bool tcp_peer(int fd, struct tcp_host *ret_host)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);

	if (getpeername(fd, (struct sockaddr *)&address, &size) < 0)
		return false;
	from_sockaddr((const struct sockaddr *)&address, ret_host);
	return true;
}

/* Closes the socket and returns errno. */
static int give_up(int fd)
{
	int r = -errno;

	close(fd);
	return r;
}

int tcp_listen(const struct tcp_host *host, uint16_t port)
{
	static const struct tcp_host any = {.address = IN6ADDR_ANY_INIT};
	static const struct tcp_host any_four = {
		.address = {.s6_addr = {[10] = 0xff, [11] = 0xff}}};
	struct sockaddr_storage address;
	socklen_t size = to_sockaddr(host ? host : &any, port, &address);
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (!host && fd < 0) { /* no IPv6 */
		size = to_sockaddr(&any_four, port, &address);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	}
	if (fd < 0)
		return -errno;
	/* over connections of a run that has just ended; never over another socket that listens */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!host && address.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, (const struct sockaddr *)&address, size) < 0 || listen(fd, SOMAXCONN) < 0)
		return give_up(fd);
	return fd;
}

uint16_t tcp_port(int fd)
{
	struct sockaddr_storage address;
	struct sockaddr_in6 six; /* its port is where IPv4's is */
	socklen_t size = sizeof(address);

	if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		return 0;
	memcpy(&six, &address, sizeof(six));
	return ntohs(six.sin6_port);
}

int tcp_connect_start(const struct tcp_host *host, uint16_t port)
{
	struct sockaddr_storage address;
	socklen_t size = to_sockaddr(host, port, &address);
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (const struct sockaddr *)&address, size) < 0 && errno != EINPROGRESS)
		return give_up(fd);
	return fd;
}

int tcp_connect_result(int fd)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -errno;
	return -error;
}

int tcp_accept(int fd)
{
	int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (accepted < 0)
		return -EAGAIN; /* also if the peer is gone again, or there are no descriptors */
	setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return accepted;
}

void tcp_keep_alive(int fd)
{
	static const int idle = TCP_SILENT_MS / 4000, interval = TCP_SILENT_MS / 4000, probes = 3;
	static const unsigned silent = TCP_SILENT_MS;

	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent, sizeof(silent));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

bool tcp_is_silent(int fd)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);

	/* data beyond the peer's window is not sent, so that it is not unacknowledged */
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_unacked &&
	       info.tcpi_last_ack_recv >= TCP_SILENT_MS && info.tcpi_retransmits > 1;
}

static ssize_t transferred(ssize_t count)
{
	if (count > 0)
		return count;
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	return count < 0 && errno != EPIPE ? -errno : -ECONNRESET;
}

ssize_t tcp_send(int fd, const void *bytes, size_t size)
{
	return size ? transferred(send(fd, bytes, size, MSG_NOSIGNAL)) : 0;
}

ssize_t tcp_receive(int fd, void *bytes, size_t size)
{
	return size ? transferred(recv(fd, bytes, size, 0)) : 0;
}

static int wait_for(int fd, short events, int64_t deadline)
{
	struct pollfd ready = {fd, events, 0};

	if (clock_ms() >= deadline)
		return -ETIMEDOUT;
	if (poll(&ready, 1, clock_left_ms(deadline)) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

int tcp_send_all(int fd, const void *bytes, size_t size, int64_t deadline)
{
	for (size_t at = 0; at < size;) {
		ssize_t sent = tcp_send(fd, (const char *)bytes + at, size - at);
		if (sent < 0)
			return (int)sent;
		at += (size_t)sent;
		int r = sent ? 0 : wait_for(fd, POLLOUT, deadline);
		if (r < 0)
			return r;
	}
	return 0;
}

int tcp_receive_all(int fd, void *bytes, size_t size, int64_t deadline)
{
	for (size_t at = 0; at < size;) {
		ssize_t got = tcp_receive(fd, (char *)bytes + at, size - at);
		if (got < 0)
			return (int)got;
		at += (size_t)got;
		int r = got ? 0 : wait_for(fd, POLLIN, deadline);
		if (r < 0)
			return r;
	}
	return 0;
}
