#include "loaderd/log.h"
#include "loaderd/reply.h"
#include "loaderd/worker/dataset_reply.h"
#include "loaderd/worker/server_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* For connections, each of which may be sent one message full of descriptors. */
enum { DESCRIPTORS_SPARE = 2 * FRAME_FDS_MAX };

/*
 * The files of a request as they come, part by part: descriptors that the client opened with its
 * own rights. Nothing is known of them here but their number. Belongs to its request: the control
 * thread's while they come. proto/SPEC.md, "Files".
 */
struct incoming {
	int *fds;
	uint32_t count; /* have come */
	uint32_t total; /* of the dataset; 0: not known yet */
	uint32_t most;  /* wanted of them */
	bool direct;    /* opened with O_DIRECT */
	bool due;       /* a part has been asked for */
};

/* Wants the first `most` files. */
static void incoming_init(struct incoming *incoming, uint32_t most, bool direct)
{
	*incoming = (struct incoming){.most = most, .direct = direct};
}

/* Closes descriptors that nobody took, which may wait: on a job thread. */
static void incoming_deinit(struct incoming *incoming)
{
	for (uint32_t i = 0; i < incoming->count; i++)
		if (incoming->fds[i] >= 0)
			close(incoming->fds[i]);
	free(incoming->fds);
	*incoming = (struct incoming){0};
}

static uint32_t incoming_wanted(const struct incoming *incoming)
{
	return incoming->total < incoming->most ? incoming->total : incoming->most;
}

static bool incoming_complete(const struct incoming *incoming)
{
	return incoming->total > 0 && incoming->count == incoming_wanted(incoming);
}

/* How many are still to come; once the first part has. */
static uint32_t incoming_left(const struct incoming *incoming)
{
	return incoming_wanted(incoming) - incoming->count;
}

/* What to ask for next. */
static void incoming_ask(struct incoming *incoming, Loaderd__NeedFiles *ret_need)
{
	uint32_t left = incoming->total == 0 ? incoming->most : incoming_left(incoming);
	loaderd__need_files__init(ret_need);
	ret_need->first = incoming->count;
	ret_need->most = left < FRAME_FDS_MAX ? left : FRAME_FDS_MAX;
	ret_need->direct = incoming->direct;
	incoming->due = true;
}

/*
 * Takes a part's descriptors from the frame that it came with. -EPROTO: not what was asked for;
 * -EDQUOT: more files than `limit`; -ENOMEM.
 */
static int incoming_take(struct incoming *incoming, const Loaderd__Files *part,
			 struct frame_reader *reader, uint64_t limit)
{
	unsigned count = frame_fd_count(reader);
	if (!incoming->due || count == 0 || part->first != incoming->count ||
	    part->direct != incoming->direct || part->total == 0 ||
	    (incoming->total != 0 && part->total != incoming->total))
		return -EPROTO;
	if (part->total > limit)
		return -EDQUOT;
	incoming->due = false;
	incoming->total = part->total;
	if (count > incoming_left(incoming))
		return -EPROTO;
	int *fds = realloc(incoming->fds, (incoming->count + count) * sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	incoming->fds = fds;
	for (unsigned i = 0; i < count; i++)
		fds[incoming->count + i] = frame_take_fd(reader, i);
	incoming->count += count;
	return 0;
}

struct opening {
	struct async_job job;
	/* when what a job does has gone well */
	void (*next)(struct session *session, struct opening *opening);
	struct session *session;
	Loaderd__Request *request;
	struct incoming files;
	bool at_work;  /* a job has it */
	bool held_up;  /* earlier replies have to leave first */
	bool unmapped; /* the client has been sent its ring, and has yet to map it */
	struct refusal refusal;
	int error;
	/* Of OpenFeed: */
	uint64_t feed_id;
	struct subscription *feed;
	/* Of GetDataset: the whole reply */
	uint8_t *packed;
	size_t packed_size;
};

static bool is_feed(const struct opening *opening)
{
	return opening->request->kind_case == LOADERD__REQUEST__KIND_OPEN_FEED;
}

static void give_to_jobs(struct opening *opening, void (*run)(struct async_job *),
			 void (*done)(struct async_job *))
{
	opening->job = (struct async_job){.run = run, .done = done};
	opening->at_work = true;
	opening->session->jobs++;
	async_jobs_add(opening->session->server->jobs, &opening->job);
}

/* On a job thread: closing what a client has passed may wait, if the client has chosen it so. */
static void run_drop(struct async_job *job)
{
	struct opening *opening = (struct opening *)job;
	incoming_deinit(&opening->files);
	subscription_free(opening->feed);
	free(opening->packed);
	loaderd__request__free_unpacked(opening->request, NULL);
}

static void done_drop(struct async_job *job)
{
	struct session *session = ((struct opening *)job)->session;
	free(job);
	session->jobs--;
	session_free_if_done(session);
}

static void opening_finish(struct session *session)
{
	struct opening *opening = session->opening;
	session->opening = NULL;
	give_to_jobs(opening, run_drop, done_drop);
}

/* Whatever a job is doing with it ends first: the job's end comes back here. */
void opening_drop(struct session *session)
{
	if (!session->opening || session->opening->at_work)
		return;
	if (is_feed(session->opening))
		session_forget_feed(session);
	opening_finish(session);
}

static void opening_refuse(struct session *session)
{
	const struct refusal refusal = session->opening->refusal;
	opening_drop(session);
	session_refuse(session, &refusal);
}

/* After a job the request goes on, unless it is dropped, or refused for the error it met. */
static void done_work(struct async_job *job)
{
	struct opening *opening = (struct opening *)job;
	struct session *session = opening->session;
	opening->at_work = false;
	session->jobs--;
	session_pause(session, false);
	if (session->closing)
		opening_drop(session);
	else if (opening->error < 0)
		opening_refuse(session);
	else
		opening->next(session, opening);
}

static void opening_work(struct opening *opening, void (*run)(struct async_job *),
			 void (*next)(struct session *session, struct opening *opening))
{
	opening->next = next;
	give_to_jobs(opening, run, done_work);
}

static void pass_descriptors(const struct session *session, int allowed)
{
	/* Linux 6.16; before that what comes unasked is closed on a job thread. */
	enum { PASS_RIGHTS = 83 };
	(void)setsockopt(session->source.fd, SOL_SOCKET, PASS_RIGHTS, &allowed, sizeof(allowed));
}

static void opening_ask(struct session *session)
{
	Loaderd__NeedFiles need;
	const Loaderd__Reply reply = REPLY(NEED_FILES, need_files, &need);
	incoming_ask(&session->opening->files, &need);
	pass_descriptors(session, 1);
	session_reply(session, &reply);
}

static void announce_feed(struct session *session, const struct subscription *feed,
			  const Loaderd__OpenFeed *request)
{
	Loaderd__FeedOpened opened = LOADERD__FEED_OPENED__INIT;
	const Loaderd__Reply reply = REPLY(FEED_OPENED, feed_opened, &opened);
	opened.feed_id = feed->id;
	opened.samples = feed->dataset->count;
	opened.batches_per_epoch = feed->batcher->options.order.batches;
	opened.classes = packimg_class_count(feed->dataset->image);
	opened.slots = feed->batcher->options.slots;
	opened.repeats = request->repeats;
	opened.writable = feed->writable;
	opened.dataset_uuid =
		(ProtobufCBinaryData){16, (uint8_t *)packimg_uuid(feed->dataset->image)};
	log_info("feed %llu opened: client pid %d, %s, batch size %u, rank %u of %u, from epoch "
		 "%llu batch %llu, read by %s%s, \"%s\"",
		 (unsigned long long)feed->id, (int)session->pid, feed->dataset->path,
		 feed->batch_size, request->rank, request->world == 0 ? 1 : request->world,
		 (unsigned long long)request->epoch, (unsigned long long)request->batch,
		 io_mode_of(feed->batcher->io) == IO_URING ? "io_uring"
		 : feed->dataset->mapped                   ? "mmap"
							   : "pread",
		 opened.writable ? ", ring writable" : "", feed->pipeline);
	session_reply(session, &reply);
}

static void run_start(struct async_job *job)
{
	struct opening *opening = (struct opening *)job;
	opening->error = subscription_start(opening->feed, opening->files.fds, opening->files.count,
					    &opening->refusal);
	incoming_deinit(&opening->files);
}

static void after_start(struct session *session, struct opening *opening)
{
	opening->unmapped = true;
}

/* Looking at all pages may take a while: not on the control thread. */
static void run_map(struct async_job *job)
{
	struct opening *opening = (struct opening *)job;
	opening->error = subscription_mapped(opening->feed, &opening->refusal);
}

static void after_map(struct session *session, struct opening *opening)
{
	struct subscription *feed = opening->feed;
	announce_feed(session, feed, opening->request->open_feed);
	/* A client that does not take the reply is gone by now, and this with it. */
	if (!session->opening)
		return;
	opening->feed = NULL;
	opening_finish(session);
	session_serve(session, feed);
}

void opening_mapped(struct session *session)
{
	struct opening *opening = session->opening;
	if (!opening || !opening->unmapped) {
		session_close(session, "it had no ring to map");
		return;
	}
	opening->unmapped = false;
	opening_work(opening, run_map, after_map);
}

/*
 * The supervisor sends the ring to the client meanwhile: in no frame of ours that the client has a
 * part of.
 */
static void opening_start(struct opening *opening)
{
	opening->held_up = send_queue_pending(&opening->session->send_queue);
	session_pause(opening->session, true);
	if (!opening->held_up)
		opening_work(opening, run_start, after_start);
}

void opening_flushed(struct session *session)
{
	if (session->opening && session->opening->held_up)
		opening_start(session->opening);
}

static void run_prepare(struct async_job *job)
{
	struct opening *opening = (struct opening *)job;
	opening->error = subscription_new(opening->request->open_feed, opening->session,
					  opening->feed_id, opening->files.fds,
					  opening->files.count, &opening->feed, &opening->refusal);
	incoming_deinit(&opening->files);
}

static void after_prepare(struct session *session, struct opening *opening)
{
	if (subscription_wants_direct(opening->feed) > 0) {
		incoming_init(&opening->files, subscription_wants_direct(opening->feed), true);
		opening_ask(session);
	} else {
		opening_start(opening);
	}
}

static void run_describe(struct async_job *job)
{
	struct opening *opening = (struct opening *)job;
	opening->error = dataset_reply(opening->request->get_dataset->path, opening->files.fds,
				       &opening->packed, &opening->packed_size, &opening->refusal);
	incoming_deinit(&opening->files);
}

static void after_describe(struct session *session, struct opening *opening)
{
	session_send(session, opening->packed, opening->packed_size);
	if (session->opening)
		opening_finish(session);
}

/* Limits that only the control thread can count. */
static int admit_feed(struct session *session, struct refusal *refusal)
{
	struct server *server = session->server;
	uint64_t most = server->config->feeds_per_user;
	if (server->phase != SERVER_RUNNING)
		return refuse_request(refusal, ESHUTDOWN, NULL, "the daemon is shutting down");
	if (session->feed_asked)
		return refuse_request(
			refusal, EBUSY, NULL,
			"this connection has a feed already; open another connection");
	if (server->feed_count >= most)
		return refuse_request(
			refusal, EDQUOT, NULL,
			"this user has %u feed%s, the limit for one user ([limits] feeds_per_user)",
			server->feed_count, server->feed_count == 1 ? "" : "s");
	return 0;
}

static int opening_admit(struct session *session, const Loaderd__Request *request,
			 struct refusal *refusal)
{
	bool feed = request->kind_case == LOADERD__REQUEST__KIND_OPEN_FEED;
	uint32_t version = feed ? request->open_feed->version : request->get_dataset->version;
	if (version != PROTO_VERSION)
		return refuse_request(refusal, EPROTO, "version",
				      "this daemon speaks protocol version %d, the client asked "
				      "for %u; update the older one",
				      PROTO_VERSION, version);
	if (session->opening)
		return refuse_request(refusal, EBUSY, NULL,
				      "this connection has a request under way; wait for its "
				      "answer");
	return feed ? admit_feed(session, refusal) : 0;
}

void opening_begin(struct session *session, Loaderd__Request *request)
{
	struct refusal refusal;
	struct opening *opening = NULL;
	int r = opening_admit(session, request, &refusal);
	if (r == 0) {
		opening = calloc(1, sizeof(*opening));
		if (!opening)
			r = refuse_request(&refusal, ENOMEM, NULL, "the daemon is out of memory");
	}
	if (r < 0) {
		session_refuse(session, &refusal);
		loaderd__request__free_unpacked(request, NULL);
		return;
	}
	opening->session = session;
	opening->request = request;
	session->opening = opening;
	if (is_feed(opening)) {
		opening->feed_id = ++session->server->feed_id;
		session->feed_asked = true;
		session->server->feed_count++;
		incoming_init(&opening->files, UINT32_MAX, false);
	} else {
		incoming_init(&opening->files, 1, false);
	}
	opening_ask(session);
}

static void over_limit(struct session *session, uint32_t total)
{
	struct opening *opening = session->opening;
	uint64_t limit = session->server->config->shards;
	refuse_request(
		&opening->refusal, EDQUOT, is_feed(opening) ? "dataset" : "path",
		"the dataset has %u files, the daemon's limit is %llu ([limits] shards); pack "
		"it into fewer shards, or raise the limit",
		total, (unsigned long long)limit);
	opening_refuse(session);
}

/*
 * Are there descriptors for the files that are still to come, and enough besides for connections
 * and rings? The lowest free number is what a descriptor gets: the newest tells how many there are.
 */
static bool has_room(const struct session *session)
{
	const struct incoming *files = &session->opening->files;
	uint64_t most = session->server->fds_max;
	uint64_t spare = most / 8 < DESCRIPTORS_SPARE ? most / 8 : DESCRIPTORS_SPARE;
	uint64_t newest = (uint64_t)files->fds[files->count - 1];
	return newest + incoming_left(files) + spare < most;
}

static void out_of_descriptors(struct session *session)
{
	struct opening *opening = session->opening;
	refuse_request(
		&opening->refusal, EDQUOT, is_feed(opening) ? "dataset" : "path",
		"the dataset has %u files, and this user's worker, which may have %llu open "
		"(LimitNOFILE= of the service, ulimit -n), has no room for them; pack it into "
		"fewer shards, close other feeds, or raise the limit",
		opening->files.total, (unsigned long long)session->server->fds_max);
	opening_refuse(session);
}

void opening_files(struct session *session, const Loaderd__Files *part)
{
	struct opening *opening = session->opening;
	int r = !opening || opening->at_work
			? -EPROTO
			: incoming_take(&opening->files, part, &session->reader,
					is_feed(opening) ? session->server->config->shards
							 : UINT64_MAX);
	if (r == -EDQUOT) {
		over_limit(session, part->total);
		return;
	}
	if (r < 0) {
		session_close(session, r == -ENOMEM ? "out of memory"
						    : "it sent files that it was not asked for");
		return;
	}
	if (!has_room(session)) {
		out_of_descriptors(session);
		return;
	}
	if (!incoming_complete(&opening->files)) {
		opening_ask(session);
		return;
	}
	pass_descriptors(session, 0);
	if (is_feed(opening) && !opening->feed)
		opening_work(opening, run_prepare, after_prepare);
	else if (is_feed(opening))
		opening_start(opening);
	else
		opening_work(opening, run_describe, after_describe);
}
