/* Answers to GetStatus and GetDataset. */
#include "server_internal.h"

#include "augment_isa.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	BAD_LISTED = 64,
	/* Room for texts in a reply about a dataset; with four bytes of tag and length each it stays below FRAME_SIZE_MAX. */
	REPLY_TEXTS_MAX = 640 << 10,
	REPLY_CLASSES_MAX = 64 << 10,
};

static void fill_feed(const struct session *session, Loaderd__FeedStatus *status)
{
	const struct subscription *feed = session->feed;
	struct batcher_status b;
	batcher_status(feed->batcher, &b);
	loaderd__feed_status__init(status);
	status->feed_id = feed->id;
	status->name = feed->name;
	status->pid = (uint32_t)session->peer.pid;
	status->uid = session->peer.uid;
	status->dataset = feed->dataset->path;
	status->pipeline = feed->pipeline;
	status->batch_size = feed->batch_size;
	status->epoch = b.epoch;
	status->batch = b.batch;
	status->images = b.images;
	status->bad = b.bad;
	status->slots = feed->batcher->options.slots;
	status->slots_ready = b.slots_ready;
	status->slots_held = b.slots_held;
	status->stall_client_ns = b.stall_client_ns;
	status->stall_daemon_ns = b.stall_daemon_ns;
	status->read_ns = b.read_ns;
	status->decode_ns = b.decode_ns;
	status->resize_ns = b.resize_ns;
	status->other_ns = b.other_ns;
	status->augment_ns = b.augment_ns;
	status->store_ns = b.store_ns;
	status->wait_ns = b.wait_ns;
	status->queued_ns = b.queued_ns;
	status->bytes = feed->bytes;
}

static bool may_see(const struct session *asker, uid_t owner)
{
	return asker->server->config->status_all || access_is_own(&asker->peer) ||
	       asker->peer.uid == owner;
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
	Loaderd__FeedStatus *feeds;
	Loaderd__FeedStatus **feed_list;
	Loaderd__BadSampleRecord records[BAD_LISTED];
	Loaderd__BadSampleRecord *record_list[BAD_LISTED];
	struct registry_bad bad[BAD_LISTED];
};

static void send_status(struct session *session, struct status_parts *parts)
{
	struct server *server = session->server;
	Loaderd__Status status = LOADERD__STATUS__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	size_t feeds = 0;
	for (const struct session *s = server->sessions; s != NULL; s = s->next) {
		if (!s->in_pool || s->closing || !may_see(session, s->peer.uid))
			continue;
		fill_feed(s, &parts->feeds[feeds]);
		parts->feed_list[feeds] = &parts->feeds[feeds];
		feeds++;
	}
	status.version = (char *)LOADERD_VERSION;
	status.pid = (uint32_t)getpid();
	status.threads = pool_workers(server->pool);
	status.idle_ns = pool_idle_ns(server->pool);
	status.uptime_ns = server_now_ns() - server->start_ns;
	status.isa = (char *)augment_isa_name(augment_isa_chosen());
	pthread_mutex_lock(&server->account.mutex);
	status.shared_bytes = server->account.used;
	pthread_mutex_unlock(&server->account.mutex);
	status.n_feeds = feeds;
	status.feeds = parts->feed_list;
	if (may_see(session, geteuid()))
		status.n_bad = fill_bad(server, parts->records, parts->bad);
	for (size_t i = 0; i < status.n_bad; i++)
		parts->record_list[i] = &parts->records[i];
	status.bad = parts->record_list;
	reply.kind_case = LOADERD__REPLY__KIND_STATUS;
	reply.status = &status;
	/* Texts of many feeds could exceed a frame: the newest remain. */
	while (loaderd__reply__get_packed_size(&reply) > FRAME_SIZE_MAX && status.n_feeds > 0)
		status.n_feeds--;
	session_reply(session, &reply);
}

void status_reply(struct session *session)
{
	struct server *server = session->server;
	struct status_parts *parts = calloc(1, sizeof *parts);
	if (parts != NULL) {
		parts->feeds = calloc(server->session_count + 1, sizeof *parts->feeds);
		parts->feed_list = calloc(server->session_count + 1, sizeof *parts->feed_list);
	}
	if (parts == NULL || parts->feeds == NULL || parts->feed_list == NULL) {
		session_close(session, "out of memory");
	} else {
		send_status(session, parts);
	}
	if (parts != NULL) {
		free(parts->feeds);
		free(parts->feed_list);
	}
	free(parts);
}

struct dataset_chore {
	struct chore chore;
	struct session *session;
	char *path;
	struct refusal refusal;
	int error;
	uint8_t *packed; /* the whole reply */
	size_t packed_size;
};

/* Texts copied out of the mapping, whose owner could change them between measuring and packing a message. */
struct texts {
	char *bytes; /* REPLY_TEXTS_MAX */
	size_t used;
};

/* NULL when there is no room left. */
static char *keep_text(struct texts *texts, const char *text)
{
	size_t room = REPLY_TEXTS_MAX - texts->used;
	size_t length = strnlen(text, room);
	if (length == room)
		return NULL;
	char *copy = texts->bytes + texts->used;
	memcpy(copy, text, length);
	copy[length] = '\0';
	texts->used += length + 1;
	return copy;
}

static size_t keep_fields(struct texts *texts, const struct packimg *image, char **names)
{
	uint32_t fields = packimg_field_count(image);
	for (uint32_t i = 0; i < fields; i++) {
		struct packimg_field field = {.name = ""};
		packimg_field(image, i, &field);
		names[i] = keep_text(texts, field.name);
		if (names[i] == NULL)
			return i;
	}
	return fields;
}

/* All or none: a list with a hole would number the classes wrongly. */
static size_t keep_classes(struct texts *texts, const struct packimg *image, char **names)
{
	uint32_t classes = packimg_class_count(image);
	size_t used = texts->used;
	if (classes > REPLY_CLASSES_MAX)
		return 0;
	for (uint32_t i = 0; i < classes; i++) {
		const char *name = packimg_class_name(image, i);
		names[i] = keep_text(texts, name == NULL ? "" : name);
		if (names[i] == NULL) {
			texts->used = used;
			return 0;
		}
	}
	return classes;
}

/* Inside the guard. What does not fit a frame is left out: metadata first, then class names, whose number FeedOpened tells. */
static int pack_dataset(struct dataset_chore *job, struct dataset *dataset, struct texts *texts,
			char **names)
{
	Loaderd__Dataset message = LOADERD__DATASET__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	double mean[3], std[3];
	uint8_t uuid[16];
	const struct packimg *image = dataset->image;
	message.path = dataset->path;
	message.samples = dataset->count;
	message.field_names = names;
	message.n_field_names = keep_fields(texts, image, names);
	message.class_names = names + message.n_field_names;
	message.n_class_names = keep_classes(texts, image, message.class_names);
	char *metadata = keep_text(texts, packimg_metadata(image));
	if (metadata != NULL)
		message.metadata = metadata;
	if (packimg_statistics(image, mean, std) == 0) {
		message.n_mean = message.n_std = 3;
		message.mean = mean;
		message.std = std;
	}
	memcpy(uuid, packimg_uuid(image), sizeof uuid);
	message.uuid = (ProtobufCBinaryData){sizeof uuid, uuid};
	reply.kind_case = LOADERD__REPLY__KIND_DATASET;
	reply.dataset = &message;
	job->packed_size = loaderd__reply__get_packed_size(&reply);
	job->packed = malloc(job->packed_size);
	if (job->packed == NULL)
		return -ENOMEM;
	loaderd__reply__pack(&reply, job->packed);
	return 0;
}

static int describe(struct dataset_chore *job, struct dataset *dataset)
{
	struct texts texts = {.bytes = malloc(REPLY_TEXTS_MAX)};
	char **names = calloc(REPLY_CLASSES_MAX + PACKIMG_FIELDS_MAX, sizeof *names);
	int r = -ENOMEM;
	if (texts.bytes != NULL && names != NULL) {
		guard_enter(&dataset->guard);
		r = pack_dataset(job, dataset, &texts, names);
		if (guard_leave()) {
			atomic_store(&dataset->suspect, true);
			r = -EBADMSG;
		}
	}
	free(names);
	free(texts.bytes);
	return r;
}

static void run_dataset(struct chore *chore)
{
	struct dataset_chore *job = (struct dataset_chore *)chore;
	struct server *server = job->session->server;
	char text[ACCESS_ERROR_MAX] = "";
	char *path;
	struct dataset *dataset;
	struct packimg_error error = {{0}};
	int r = access_resolve(server->config, &job->session->peer, job->path, &path, text);
	if (r < 0) {
		job->error = refuse_request(&job->refusal, -r, "path", "%s", text);
		return;
	}
	r = registry_acquire(&server->registry, path, &dataset, &error);
	free(path);
	if (r < 0) {
		job->error = refuse_request(&job->refusal, -r, "path", "%s",
					    error.text[0] != '\0' ? error.text : strerror(-r));
		return;
	}
	r = access_check_opened(server->config, &job->session->peer, dataset->image, text);
	if (r < 0) {
		job->error = refuse_request(&job->refusal, -r, "path", "%s", text);
	} else if ((r = describe(job, dataset)) < 0) {
		job->error = refuse_request(
			&job->refusal, -r, "path", "%s: %s", dataset->path,
			r == -EBADMSG ? "the file is cut short or cannot be read" : strerror(-r));
	}
	registry_release(&server->registry, dataset);
}

static void done_dataset(struct chore *chore)
{
	struct dataset_chore *job = (struct dataset_chore *)chore;
	struct session *session = job->session;
	session->chores--;
	if (job->error < 0)
		session_refuse(session, &job->refusal);
	else
		session_send(session, job->packed, job->packed_size);
	free(job->packed);
	free(job->path);
	free(job);
	session_bury_if_done(session);
}

void dataset_reply(struct session *session, const char *path)
{
	struct dataset_chore *job = calloc(1, sizeof *job);
	if (job != NULL)
		job->path = strdup(path);
	if (job == NULL || job->path == NULL) {
		free(job);
		session_close(session, "out of memory");
		return;
	}
	job->chore = (struct chore){.run = run_dataset, .done = done_dataset};
	job->session = session;
	session->chores++;
	chores_add(session->server->chores, &job->chore);
}
