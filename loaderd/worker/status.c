/* Status: the reply to GetStatus, and the status page that the supervisor reads. */
#include "format/base/system/clock.h"
#include "loaderd/worker/server_internal.h"

#include "format/base/system/cpu.h"
#include "loaderd/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	BAD_LISTED = 64,
	FEEDS_LISTED = 1024
}; /* FEEDS_LISTED: the maximum of [limits] feeds_per_user */

static void cut_text(char capacity[STATUS_TEXT_MAX], const char *text)
{
	size_t length = strnlen(text, STATUS_TEXT_MAX - 1);
	memset(capacity, 0, STATUS_TEXT_MAX);
	memcpy(capacity, text, length);
}

static void publish_feed(const struct session *session, struct status_feed *feed)
{
	struct batcher_status b;
	batcher_status(session->feed->batcher, &b);
	*feed = (struct status_feed){
		.id = session->feed->id,
		.epoch = b.epoch,
		.batch = b.batch,
		.images = b.images,
		.bad = b.bad,
		.bytes = session->feed->bytes,
		.stall_client_ns = b.stall_client_ns,
		.stall_daemon_ns = b.stall_daemon_ns,
		.pid = (uint32_t)session->pid,
		.batch_size = session->feed->batch_size,
		.slots = session->feed->batcher->options.slots,
		.slots_ready = b.slots_ready,
		.slots_held = b.slots_held,
	};
	memcpy(feed->stage_ns, b.stage_ns, sizeof(feed->stage_ns));
	cut_text(feed->name, session->feed->name);
	cut_text(feed->dataset, session->feed->dataset->path);
	cut_text(feed->pipeline, session->feed->pipeline);
}

struct listed_feed {
	Loaderd__FeedStatus status;
	Loaderd__Progress progress;
};

/*
 * Fills in a feed's status. Its strings point into the subscription and are valid only while that
 * exists.
 */
static void fill_feed(const struct session *session, Loaderd__FeedStatus *status)
{
	const struct subscription *subscription = session->feed;
	struct status_feed feed;
	publish_feed(session, &feed);
	status_feed_reply(&feed, session->server->uid, status);
	status->name = subscription->name;
	status->dataset = subscription->dataset->path;
	status->pipeline = subscription->pipeline;
	if (subscription->options.order.sampler)
		status->order =
			order_status_new(&subscription->options.order, subscription->dataset,
					 &subscription->choices, feed.epoch, feed.batch);
}

/* Lists the session's feed, if it is served, or if samples are examined to open it. */
static bool list_feed(const struct session *session, struct listed_feed *listed)
{
	if (session->state != SESSION_OPEN)
		return false;
	if (session->feed_state != SESSION_FEED_SERVED)
		return opening_status(session, &listed->status, &listed->progress);
	fill_feed(session, &listed->status);
	return true;
}

static size_t fill_bad(struct server *server, Loaderd__BadSampleRecord *records,
		       struct registry_bad *bad)
{
	unsigned count = registry_list_bad(&server->registry, bad, BAD_LISTED);
	for (unsigned i = 0; i < count; i++) {
		loaderd__bad_sample_record__init(&records[i]);
		records[i].dataset = bad[i].dataset;
		records[i].index = bad[i].index;
		records[i].source = bad[i].source;
		records[i].text = bad[i].text;
		records[i].count = bad[i].count;
	}
	return count;
}

/* Storage of one status reply. */
struct status_parts {
	struct listed_feed feeds[FEEDS_LISTED];
	Loaderd__FeedStatus *feed_list[FEEDS_LISTED];
	Loaderd__BadSampleRecord records[BAD_LISTED];
	Loaderd__BadSampleRecord *record_list[BAD_LISTED];
	struct registry_bad bad[BAD_LISTED];
};

static void status_send(struct session *session, struct status_parts *parts)
{
	struct server *server = session->server;
	Loaderd__Status status = LOADERD__STATUS__INIT;
	const Loaderd__Reply reply = REPLY(STATUS, status, &status);
	size_t feeds = 0;
	for (const struct session *s = server->sessions; s && feeds < FEEDS_LISTED; s = s->next) {
		if (!list_feed(s, &parts->feeds[feeds]))
			continue;
		parts->feed_list[feeds] = &parts->feeds[feeds].status;
		feeds++;
	}
	status.version = (char *)LOADERD_VERSION;
	status.pid = (uint32_t)getpid();
	status.threads = pool_threads(server->pool);
	status.idle_ns = pool_idle_ns(server->pool);
	status.uptime_ns = clock_ns(CLOCK_MONOTONIC) - server->start_ns;
	status.isa = (char *)cpu_isa_name(cpu_isa_chosen());
	status.shared_bytes = ring_allocator_bytes(&server->ring_allocator);
	status.n_feeds = feeds;
	status.feeds = parts->feed_list;
	status.n_bad = fill_bad(server, parts->records, parts->bad);
	for (size_t i = 0; i < status.n_bad; i++)
		parts->record_list[i] = &parts->records[i];
	status.bad = parts->record_list;
	/* Long texts of many feeds could exceed a frame: drop feeds from the end, the oldest. */
	while (loaderd__reply__get_packed_size(&reply) > FRAME_SIZE_MAX && status.n_feeds > 0)
		status.n_feeds--;
	session_reply(session, &reply);
	for (size_t i = 0; i < feeds; i++)
		free(parts->feeds[i].status.order);
}

void status_reply(struct session *session)
{
	struct status_parts *parts = calloc(1, sizeof(*parts));
	if (parts)
		status_send(session, parts);
	else
		session_close(session, "out of memory");
	free(parts);
}

void status_publish(struct server *server)
{
	struct status_page *page = server->page;
	uint32_t count = 0;
	uint64_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
	atomic_store(&page->sequence, sequence + 1);
	for (const struct session *s = server->sessions; s; s = s->next)
		if (s->feed_state == SESSION_FEED_SERVED && s->state == SESSION_OPEN &&
		    count < STATUS_FEEDS_MAX)
			publish_feed(s, &page->feeds[count++]);
	page->feed_count = count;
	page->connections = server->session_count;
	page->threads = pool_threads(server->pool);
	page->idle_ns = pool_idle_ns(server->pool);
	page->uptime_ns = clock_ns(CLOCK_MONOTONIC) - server->start_ns;
	atomic_store(&page->sequence, sequence + 2);
}
