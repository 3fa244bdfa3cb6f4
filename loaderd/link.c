#include "loaderd/link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(LINK_FDS_MAX * sizeof(int))];
};

int link_send(int socket, const struct link_order *order, const int *fds, unsigned fd_count)
{
	union control control = {0};
	struct iovec iov = {(void *)order, sizeof(*order)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	if (fd_count > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	ssize_t n;
	do {
		n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int link_receive(int socket, struct link_order *ret_order, int fds[LINK_FDS_MAX])
{
	union control control;
	struct iovec iov = {ret_order, sizeof(*ret_order)};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;
	do {
		n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n != sizeof(*ret_order))
		return -ECONNRESET;
	for (unsigned i = 0; i < LINK_FDS_MAX; i++)
		fds[i] = -1;
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return 0;
}
