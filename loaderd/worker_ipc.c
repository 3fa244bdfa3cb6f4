#include "loaderd/worker_ipc.h"

#include "proto/feed.pb-c.h"
#include "proto/framing.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(IPC_FDS_MAX * sizeof(int))];
};

void status_feed_reply(const struct status_feed *feed, uint32_t uid,
		       Loaderd__FeedStatus *ret_status)
{
	loaderd__feed_status__init(ret_status);
	ret_status->feed_id = feed->id;
	ret_status->uid = uid;
	ret_status->pid = feed->pid;
	ret_status->name = (char *)feed->name;
	ret_status->dataset = (char *)feed->dataset;
	ret_status->pipeline = (char *)feed->pipeline;
	ret_status->batch_size = feed->batch_size;
	ret_status->epoch = feed->epoch;
	ret_status->batch = feed->batch;
	ret_status->images = feed->images;
	ret_status->bad = feed->bad;
	ret_status->slots = feed->slots;
	ret_status->slots_ready = feed->slots_ready;
	ret_status->slots_held = feed->slots_held;
	ret_status->stall_client_ns = feed->stall_client_ns;
	ret_status->stall_daemon_ns = feed->stall_daemon_ns;
	stages_put(feed->stage_ns, ret_status);
	ret_status->bytes = feed->bytes;
}

int ipc_send(int socket, const struct ipc_order *order, const int *fds, unsigned fd_count)
{
	struct iovec iov = {(void *)order, sizeof(*order)};
	ssize_t n = message_send(socket, &iov, 1, fds, fd_count);
	return n < 0 ? (int)n : 0;
}

int ipc_receive(int socket, struct ipc_order *ret_order, int fds[IPC_FDS_MAX])
{
	union control control;
	struct iovec iov = {ret_order, sizeof(*ret_order)};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = message_receive(socket, &message);
	if (n < 0)
		return (int)n;
	if (n != sizeof(*ret_order))
		return -ECONNRESET;
	for (unsigned i = 0; i < IPC_FDS_MAX; i++)
		fds[i] = -1;
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return 0;
}
