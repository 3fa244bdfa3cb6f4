#include "format/join.h"
#include "loaderd/log.h"
#include "loaderd/reply.h"
#include "loaderd/worker/dataset_reply.h"
#include "loaderd/worker/delivery.h"
#include "loaderd/worker/fd_transfer.h"
#include "loaderd/worker/filling_files.h"
#include "loaderd/worker/server_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* fds kept free for connections: each may receive one message with the maximum number of fds */
enum { DESCRIPTORS_SPARE = 2 * FRAME_FDS_MAX };

/*
 * The states that a request passes.
 *
 * - GetDataset: WAIT_FILES, DESCRIBE, FREE.
 * - OpenFeed: WAIT_FILES, PREPARE, WAIT_FILES for O_DIRECT fds (only with io_uring), WAIT_ROOM,
 *   START, WAIT_MAPPED, MAP, FREE.
 *
 * An error, or the end of the session, leads from any state to FREE; a running job ends first.
 */
enum opening_state {
	OPENING_WAIT_FILES,  /* NeedFiles was sent; a part of the files is due */
	OPENING_PREPARE,     /* job: opens the dataset from its files */
	OPENING_DESCRIBE,    /* job: reads what GetDataset asks for */
	OPENING_WAIT_ROOM,   /* no reply may be queued, and the socket needs room for the ring */
	OPENING_START,       /* job: allocates the ring and has the supervisor send it */
	OPENING_WAIT_MAPPED, /* RingMapped is due */
	OPENING_MAP,         /* job: checks and maps the ring's pages */
	OPENING_FREE,        /* job: frees the request, which is no longer the session's */
	OPENING_JOB_DONE,    /* the next state is being chosen */
	OPENING_STATES,
};

struct opening {
	struct async_job job;
	enum opening_state state; /* written by the control thread while no job runs */
	struct session *session;
	Loaderd__Request *request;
	struct fd_transfer files;
	struct refusal refusal; /* set by the last job, if error is negative */
	int error;
	/* Of OpenFeed: */
	uint64_t feed_id;
	struct opening_progress progress;
	struct subscription *feed;
	/* Of GetDataset: the packed reply */
	uint8_t *packed;
	size_t packed_size;
};

/*
 * What a state does. States without run() wait for the client. The job closes the files that run()
 * does not keep, as close() may block for as long as the client chose.
 */
struct opening_step {
	void (*enter)(struct opening *opening); /* on the control thread */
	int (*run)(struct opening *opening);    /* on a job thread; returns 0 or -errno */
	void (*next)(struct opening *opening);  /* on the control thread, after success */
};
static const struct opening_step steps[OPENING_STATES];

static bool is_feed(const struct opening *opening)
{
	return opening->request->kind_case == LOADERD__REQUEST__KIND_OPEN_FEED;
}

static void opening_run(struct async_job *job)
{
	struct opening *opening = CONTAINER_OF(opening, job, job);
	opening->error = steps[opening->state].run(opening);
	fd_transfer_deinit(&opening->files);
}

static void opening_job_done(struct async_job *job);

static void opening_enter(struct opening *opening, enum opening_state state)
{
	struct session *session = opening->session;
	const struct opening_step *step = &steps[state];
	opening->state = state;
	session_watch(session);
	if (step->enter)
		step->enter(opening);
	if (!step->run)
		return;
	opening->job = (struct async_job){.run = opening_run, .done = opening_job_done};
	session->jobs++;
	async_jobs_add(session->server->jobs, &opening->job);
}

/* Detaches the request from its session and begins FREE. */
static void opening_finish(struct session *session)
{
	struct opening *opening = session->opening;
	session->opening = NULL;
	opening_enter(opening, OPENING_FREE);
}

/*
 * Does nothing while a job runs: opening_job_done() sees that the session is closed and calls it
 * again.
 */
void opening_drop(struct session *session)
{
	if (!session->opening)
		return;
	atomic_store_explicit(&session->opening->progress.cancelled, true, memory_order_relaxed);
	if (steps[session->opening->state].run)
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

static void opening_job_done(struct async_job *job)
{
	struct opening *opening = CONTAINER_OF(opening, job, job);
	struct session *session = opening->session;
	const struct opening_step *step = &steps[opening->state];
	session->jobs--;
	if (opening->state == OPENING_FREE) {
		free(opening);
		session_free_if_done(session);
		return;
	}
	opening_enter(opening, OPENING_JOB_DONE);
	if (session->state != SESSION_OPEN)
		opening_drop(session);
	else if (opening->error < 0)
		opening_refuse(session);
	else
		step->next(opening);
}

bool opening_blocks_requests(const struct session *session)
{
	return session->opening && session->opening->state == OPENING_START;
}

bool opening_waits_for_room(const struct session *session)
{
	return session->opening && session->opening->state == OPENING_WAIT_ROOM;
}

/* Returns false unless a job has begun to examine samples. */
static bool progress_of(const struct session *session, Loaderd__Progress *ret_progress)
{
	const struct opening *opening = session->opening;
	if (!opening || opening->state != OPENING_PREPARE)
		return false;
	loaderd__progress__init(ret_progress);
	ret_progress->total = atomic_load_explicit(&opening->progress.total, memory_order_relaxed);
	ret_progress->done = atomic_load_explicit(&opening->progress.done, memory_order_relaxed);
	return ret_progress->done > 0;
}

void opening_tell_progress(struct session *session)
{
	Loaderd__Progress progress;
	const Loaderd__Reply reply = REPLY(PROGRESS, progress, &progress);
	if (progress_of(session, &progress) && session->opening->request->open_feed->progress)
		session_reply(session, &reply);
}

bool opening_status(const struct session *session, Loaderd__FeedStatus *ret_status,
		    Loaderd__Progress *ret_progress)
{
	if (!progress_of(session, ret_progress))
		return false;
	const Loaderd__OpenFeed *request = session->opening->request->open_feed;
	loaderd__feed_status__init(ret_status);
	ret_status->feed_id = session->opening->feed_id;
	ret_status->pid = (uint32_t)session->pid;
	ret_status->uid = session->server->uid;
	ret_status->name = request->name;
	ret_status->dataset = request->n_parts > 0 ? request->parts[0]->dataset : request->dataset;
	ret_status->pipeline = request->pipeline;
	ret_status->batch_size = request->batch_size;
	ret_status->opening = ret_progress;
	return true;
}

/* The functions below are in the order in which a request reaches them. */

/* Checks the limits whose counts only the control thread knows. */
static int admit_feed(struct session *session, struct refusal *refusal)
{
	struct server *server = session->server;
	uint64_t most = server->config->feeds_per_user;
	if (server->phase != SERVER_RUNNING)
		return refuse_request(refusal, ESHUTDOWN, NULL, "the daemon is shutting down");
	if (session->feed_state != SESSION_FEED_NONE)
		return refuse_request(
			refusal, EBUSY, NULL,
			"this connection already has a feed; open another connection");
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
	if (version < PROTO_VERSION_OLDEST || version > PROTO_VERSION)
		return refuse_request(refusal, EPROTO, "version",
				      "this daemon speaks protocol versions %d to %d, but the "
				      "client asked for %u; update the older one",
				      PROTO_VERSION_OLDEST, PROTO_VERSION, version);
	if (session->opening)
		return refuse_request(refusal, EBUSY, NULL,
				      "this connection has a pending request; wait for its reply");
	if (feed && filling_files_admit(request->open_feed, refusal) < 0)
		return -refusal->code;
	if (feed && request->open_feed->n_parts > SAMPLER_PARTS_MAX)
		return refuse_request(refusal, EINVAL, "parts", "%zu parts: a feed may have %d",
				      request->open_feed->n_parts, SAMPLER_PARTS_MAX);
	return feed ? admit_feed(session, refusal) : 0;
}

/* Asks for a part's dataset, and for the lists of its choice. */
static int ask_for_part(struct fd_transfer *files, uint32_t part, const Loaderd__Choice *choice)
{
	int r = fd_transfer_add(files, part, LOADERD__PART_FILE__PART_DATASET, UINT32_MAX, false);
	if (r == 0 && choice && choice->listed)
		r = fd_transfer_add(files, part, LOADERD__PART_FILE__PART_LIST, 1, false);
	if (r == 0 && choice && choice->weighted)
		r = fd_transfer_add(files, part, LOADERD__PART_FILE__PART_WEIGHTS, 1, false);
	if (r == 0 && choice && choice->class_weighted)
		r = fd_transfer_add(files, part, LOADERD__PART_FILE__PART_CLASS_WEIGHTS, 1, false);
	return r;
}

static int ask_for_files(struct opening *opening)
{
	const Loaderd__OpenFeed *request = opening->request->open_feed;
	int r = 0;
	if (!is_feed(opening))
		return fd_transfer_add(&opening->files, 0, LOADERD__PART_FILE__PART_DATASET, 1,
				       false);
	if (request->n_parts == 0)
		r = ask_for_part(&opening->files, 0, NULL);
	for (uint32_t p = 0; r == 0 && p < request->n_parts; p++)
		r = ask_for_part(&opening->files, p, request->parts[p]->choice);
	if (r == 0 && request->filling != 0)
		r = filling_files_ask(request, &opening->files);
	return r;
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
		session->feed_state = SESSION_FEED_OPENING;
		session->server->feed_count++;
	}
	if (ask_for_files(opening) == 0) {
		opening_enter(opening, OPENING_WAIT_FILES);
		return;
	}
	refuse_request(&opening->refusal, ENOMEM, NULL, "the daemon is out of memory");
	opening_refuse(session);
}

static void pass_descriptors(const struct session *session, int allowed)
{
	/* SO_PASSRIGHTS, Linux 6.16. Older kernels deliver unrequested fds: a job closes them. */
	enum { PASS_RIGHTS = 83 };
	(void)setsockopt(session->source.fd, SOL_SOCKET, PASS_RIGHTS, &allowed, sizeof(allowed));
}

static void files_enter(struct opening *opening)
{
	Loaderd__NeedFiles need;
	const Loaderd__Reply reply = REPLY(NEED_FILES, need_files, &need);
	fd_transfer_ask(&opening->files, &need);
	pass_descriptors(opening->session, 1);
	session_reply(opening->session, &reply);
}

static const char *path_field(const struct opening *opening)
{
	if (!is_feed(opening))
		return "path";
	return opening->request->open_feed->n_parts > 0 ? "parts" : "dataset";
}

static void over_limit(struct session *session)
{
	struct opening *opening = session->opening;
	uint64_t limit = session->server->config->shards;
	refuse_request(&opening->refusal, EDQUOT, path_field(opening),
		       "the feed would read %llu files, but the daemon's limit is %llu ([limits] "
		       "shards); pack the dataset into fewer shards, or raise the limit",
		       (unsigned long long)fd_transfer_files(&opening->files),
		       (unsigned long long)limit);
	opening_refuse(session);
}

/*
 * Returns whether there are fds for the files that are still to come, with some to spare for
 * connections and rings. A new fd gets the lowest free number, so the newest tells how many are
 * open.
 */
static bool has_room(const struct session *session)
{
	const struct fd_transfer *files = &session->opening->files;
	uint64_t most = session->server->fds_max;
	uint64_t spare = most / 8 < DESCRIPTORS_SPARE ? most / 8 : DESCRIPTORS_SPARE;
	uint64_t newest = (uint64_t)fd_transfer_newest(files);
	return newest + fd_transfer_left(files) + spare < most;
}

static void out_of_descriptors(struct session *session)
{
	struct opening *opening = session->opening;
	refuse_request(&opening->refusal, EDQUOT, path_field(opening),
		       "the dataset has %llu files, but too few are left of the %llu that this "
		       "user's worker may have open (LimitNOFILE= of the service, ulimit -n); pack "
		       "it into fewer shards, close other feeds, or raise the limit",
		       (unsigned long long)fd_transfer_files(&opening->files),
		       (unsigned long long)session->server->fds_max);
	opening_refuse(session);
}

void opening_files(struct session *session, const Loaderd__Files *part)
{
	struct opening *opening = session->opening;
	int r = !opening || opening->state != OPENING_WAIT_FILES
			? -EPROTO
			: fd_transfer_take(&opening->files, part, &session->reader,
					   is_feed(opening) ? session->server->config->shards
							    : UINT64_MAX);
	if (r == -EDQUOT) {
		over_limit(session);
		return;
	}
	if (r < 0) {
		session_close(session, r == -ENOMEM
					       ? "out of memory"
					       : "the client sent files that were not requested");
		return;
	}
	if (!has_room(session)) {
		out_of_descriptors(session);
		return;
	}
	if (!fd_transfer_complete(&opening->files)) {
		opening_enter(opening, OPENING_WAIT_FILES);
		return;
	}
	pass_descriptors(session, 0);
	if (is_feed(opening) && !opening->feed)
		opening_enter(opening, OPENING_PREPARE);
	else if (is_feed(opening))
		opening_enter(opening, OPENING_WAIT_ROOM);
	else
		opening_enter(opening, OPENING_DESCRIBE);
}

static int prepare_run(struct opening *opening)
{
	return subscription_new(opening->request->open_feed, opening->session, opening->feed_id,
				&opening->files, &opening->progress, &opening->feed,
				&opening->refusal);
}

static void prepare_next(struct opening *opening)
{
	int r = subscription_ask_direct(opening->feed, &opening->files);
	if (r < 0) {
		refuse_request(&opening->refusal, ENOMEM, NULL, "the daemon is out of memory");
		opening_refuse(opening->session);
	} else if (fd_transfer_complete(&opening->files)) {
		opening_enter(opening, OPENING_WAIT_ROOM);
	} else {
		opening_enter(opening, OPENING_WAIT_FILES);
	}
}

/*
 * The supervisor sends the ring on the same connection. An empty queue is not enough: replies that
 * the client has not read may still fill the socket.
 */
void opening_writable(struct session *session)
{
	if (opening_waits_for_room(session))
		opening_enter(session->opening, OPENING_START);
}

static int start_run(struct opening *opening)
{
	return subscription_start(opening->feed, &opening->files, &opening->refusal);
}

static void start_next(struct opening *opening)
{
	opening_enter(opening, OPENING_WAIT_MAPPED);
}

void opening_mapped(struct session *session)
{
	struct opening *opening = session->opening;
	if (!opening || opening->state != OPENING_WAIT_MAPPED) {
		session_close(session, "the client has no ring to map");
		return;
	}
	opening_enter(opening, OPENING_MAP);
}

/* A job, because it checks every page. */
static int map_run(struct opening *opening)
{
	return subscription_mapped(opening->feed, &opening->refusal);
}

/* What FeedOpened says of the parts. */
struct opened_parts {
	Loaderd__OpenedPart *parts;
	Loaderd__OpenedPart **list;
	uint64_t bucket_samples[BUCKETS_MAX];
};

static void opened_parts_free(struct opened_parts *parts)
{
	free(parts->parts);
	free(parts->list);
}

static int announce_parts(const struct subscription *feed, const Loaderd__OpenFeed *request,
			  Loaderd__FeedOpened *opened, struct opened_parts *parts)
{
	const struct sampler *sampler = feed->options.order.sampler;
	size_t count = request->n_parts;
	if (count == 0)
		return 0;
	parts->parts = calloc(count, sizeof(*parts->parts));
	parts->list = calloc(count, sizeof(Loaderd__OpenedPart *));
	if (!parts->parts || !parts->list) {
		opened_parts_free(parts);
		return -ENOMEM;
	}
	for (uint32_t p = 0; p < count; p++) {
		const struct packimg *image = packimg_part(feed->dataset->image, p);
		Loaderd__OpenedPart *part = &parts->parts[p];
		loaderd__opened_part__init(part);
		part->uuid = (ProtobufCBinaryData){16, (uint8_t *)packimg_uuid(image)};
		part->samples = packimg_count(image);
		part->chosen = sampler ? sampler->parts[p].selection.count : part->samples;
		parts->list[p] = part;
	}
	opened->parts = parts->list;
	opened->n_parts = count;
	opened->order_hash = feed->order_hash;
	opened->epoch_samples = sampler ? sampler->epoch_samples : 0;
	const struct buckets *buckets = sampler ? sampler_buckets(sampler) : NULL;
	for (uint32_t b = 0; buckets && b < buckets->count; b++)
		parts->bucket_samples[b] = buckets_size(buckets, b);
	opened->bucket_samples = parts->bucket_samples;
	opened->n_bucket_samples = buckets ? buckets->count : 0;
	opened->block_samples = sampler ? sampler->blocks.samples : 0;
	const struct packs *packs = sampler ? sampler_packs(sampler) : NULL;
	opened->batch_tokens = packs ? packs->tokens_max : 0;
	opened->epoch_batches = packs ? packs->count : 0;
	return 0;
}

static void announce_feed(struct session *session, const struct subscription *feed,
			  const Loaderd__OpenFeed *request)
{
	Loaderd__FeedOpened opened = LOADERD__FEED_OPENED__INIT;
	Loaderd__Section **sections = NULL;
	const Loaderd__Reply reply = REPLY(FEED_OPENED, feed_opened, &opened);
	opened.feed_id = feed->id;
	opened.samples = feed->dataset->count;
	opened.batches_per_epoch = request->wanted ? 0 : feed->batcher->options.order.batches;
	opened.classes = packimg_class_count(feed->dataset->image);
	opened.slots = feed->batcher->options.slots;
	opened.repeats = request->repeats;
	opened.wanted = request->wanted;
	opened.filling = request->filling;
	opened.writable = feed->writable;
	opened.dataset_uuid =
		(ProtobufCBinaryData){16, (uint8_t *)packimg_uuid(feed->dataset->image)};
	struct opened_parts parts = {0};
	char order[96];
	if (request->wanted)
		snprintf(order, sizeof(order), "batches by Want");
	else
		snprintf(order, sizeof(order), "rank %u of %u, from epoch %llu batch %llu",
			 request->rank, request->world == 0 ? 1 : request->world,
			 (unsigned long long)request->epoch, (unsigned long long)request->batch);
	log_info("feed %llu opened: client pid %d, %s, batch size %u, %s, read by %s%s%s, \"%s\"",
		 (unsigned long long)feed->id, (int)session->pid, feed->dataset->path,
		 feed->batch_size, order,
		 io_mode_of(feed->batcher->io) == IO_URING ? "io_uring"
		 : feed->dataset->mapped                   ? "mmap"
							   : "pread",
		 request->filling ? " while it is filled" : "",
		 opened.writable ? ", ring writable" : "", feed->pipeline);
	if (delivery_announce(&feed->options, &sections, &opened.n_sections, &opened.targets) < 0 ||
	    announce_parts(feed, request, &opened, &parts) < 0) {
		free(sections);
		session_close(session, "out of memory");
		return;
	}
	opened.sections = sections;
	session_reply(session, &reply);
	free(sections);
	opened_parts_free(&parts);
}

static void map_next(struct opening *opening)
{
	struct session *session = opening->session;
	struct subscription *feed = opening->feed;
	announce_feed(session, feed, opening->request->open_feed);
	/* If the reply could not be sent, the session is closed and has dropped the request. */
	if (!session->opening)
		return;
	opening->feed = NULL;
	opening_finish(session);
	session_serve(session, feed);
}

static int describe_run(struct opening *opening)
{
	return dataset_reply(opening->request->get_dataset->path, opening->files.groups[0].fds,
			     &opening->packed, &opening->packed_size, &opening->refusal);
}

static void describe_next(struct opening *opening)
{
	struct session *session = opening->session;
	session_send(session, opening->packed, opening->packed_size);
	if (session->opening)
		opening_finish(session);
}

static int free_run(struct opening *opening)
{
	subscription_free(opening->feed);
	free(opening->packed);
	loaderd__request__free_unpacked(opening->request, NULL);
	return 0;
}

static const struct opening_step steps[OPENING_STATES] = {
	[OPENING_WAIT_FILES] = {.enter = files_enter},
	[OPENING_PREPARE] = {.run = prepare_run, .next = prepare_next},
	[OPENING_DESCRIBE] = {.run = describe_run, .next = describe_next},
	[OPENING_START] = {.run = start_run, .next = start_next},
	[OPENING_MAP] = {.run = map_run, .next = map_next},
	[OPENING_FREE] = {.run = free_run},
};
