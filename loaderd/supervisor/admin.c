#include "loaderd/supervisor/admin.h"

#include "format/base/system/clock.h"
#include "format/base/system/cpu.h"
#include "loaderd/log.h"
#include "loaderd/reply.h"
#include "proto/framing.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { FEEDS_MAX = 1024 };

struct admin {
	struct event_source source;
	struct worker_manager *manager;
	struct frame_reader reader;
	void (*stop)(void *user);
	void *user;
};

/* Storage of one status reply. Texts point into `feeds`. */
struct report {
	Loaderd__Status status;
	Loaderd__FeedStatus messages[FEEDS_MAX];
	Loaderd__FeedStatus *list[FEEDS_MAX];
	struct status_feed feeds[FEEDS_MAX];
	uint32_t count;
};

static void add_feed(struct report *report, uid_t uid, const struct status_feed *source)
{
	struct status_feed *feed = &report->feeds[report->count];
	Loaderd__FeedStatus *message = &report->messages[report->count];
	*feed = *source;
	status_feed_reply(feed, uid, message);
	report->list[report->count++] = message;
}

static void add_worker(void *context, uid_t uid, pid_t pid, const struct status_page *page)
{
	struct report *report = context;
	report->status.idle_ns += page->idle_ns;
	if (page->threads > report->status.threads)
		report->status.threads = page->threads;
	for (uint32_t i = 0; i < page->feed_count && report->count < FEEDS_MAX; i++)
		add_feed(report, uid, &page->feeds[i]);
}

static void send_reply(const struct admin *admin, const Loaderd__Reply *reply)
{
	size_t size = loaderd__reply__get_packed_size(reply);
	uint8_t *message = malloc(size);
	if (message && size <= FRAME_SIZE_MAX) {
		loaderd__reply__pack(reply, message);
		/*
		 * Never blocks: drops the reply if the socket is full because the client does not
		 * read.
		 */
		(void)frame_send(admin->source.fd, message, size, NULL, 0, 0);
	}
	free(message);
}

static void admin_send_status(const struct admin *admin)
{
	struct report *report = calloc(1, sizeof(*report));
	if (!report)
		return;
	Loaderd__Status *status = &report->status;
	const Loaderd__Reply reply = REPLY(STATUS, status, status);
	loaderd__status__init(status);
	status->version = (char *)LOADERD_VERSION;
	status->pid = (uint32_t)getpid();
	status->uptime_ns = clock_ns(CLOCK_MONOTONIC) - admin->manager->start_ns;
	status->isa = (char *)cpu_isa_name(cpu_isa_chosen());
	status->shared_bytes = admin->manager->ring_quota.bytes;
	manager_visit_status(admin->manager, add_worker, report);
	status->n_feeds = report->count;
	status->feeds = report->list;
	send_reply(admin, &reply);
	free(report);
}

static void admin_refuse(const struct admin *admin)
{
	Loaderd__Error error = reply_error(
		EPROTO, "the administrator's socket accepts only GetStatus and Shutdown");
	const Loaderd__Reply reply = REPLY(ERROR, error, &error);
	send_reply(admin, &reply);
}

static void admin_answer(const struct admin *admin, const uint8_t *data, size_t size)
{
	Loaderd__ShuttingDown shutting_down = LOADERD__SHUTTING_DOWN__INIT;
	const Loaderd__Reply reply = REPLY(SHUTTING_DOWN, shutting_down, &shutting_down);
	Loaderd__Request *request = loaderd__request__unpack(NULL, size, data);
	if (!request)
		return;
	switch (request->kind_case) {
	case LOADERD__REQUEST__KIND_GET_STATUS:
		admin_send_status(admin);
		break;
	case LOADERD__REQUEST__KIND_SHUTDOWN:
		send_reply(admin, &reply);
		admin->stop(admin->user);
		break;
	default:
		admin_refuse(admin);
	}
	loaderd__request__free_unpacked(request, NULL);
}

static void admin_close(struct admin *admin)
{
	event_source_remove(admin->manager->epoll_fd, &admin->source);
	frame_reader_deinit(&admin->reader);
	close(admin->source.fd);
	free(admin);
}

static void on_admin(struct event_source *source, uint32_t events)
{
	struct admin *admin = (struct admin *)source;
	const uint8_t *data;
	size_t size;
	int r = frame_receive(&admin->reader, source->fd, &data, &size);
	if (r > 0)
		admin_answer(admin, data, size);
	if (r < 0)
		admin_close(admin);
}

int admin_open(struct worker_manager *manager, int fd, void (*stop)(void *user), void *user)
{
	struct admin *admin = calloc(1, sizeof(*admin));
	if (!admin) {
		close(fd);
		return -ENOMEM;
	}
	*admin = (struct admin){{fd, on_admin}, manager, {0}, stop, user};
	frame_reader_init(&admin->reader);
	int r = event_source_add(manager->epoll_fd, &admin->source, EPOLLIN);
	if (r < 0)
		admin_close(admin);
	return r;
}
