#include "format/base/system/clock.h"
#include "proto/client/connection.h"
#include "proto/client/daemon.h"
#include "proto/client/files.h"
#include "proto/filling.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* The structure that callers see, and the reply that owns its strings. */
struct dataset {
	struct feed_dataset facts;
	Loaderd__Reply *reply;
};

static int fill_fields(struct feed_dataset *facts, const Loaderd__Dataset *message)
{
	size_t count = message->n_field_names;
	struct feed_dataset_field *fields = calloc(count + 1, sizeof(*fields));
	if (!fields)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		bool known = i < message->n_field_types && i < message->n_field_longest &&
			     message->field_types[i] <= FEED_TEXT;
		fields[i] = (struct feed_dataset_field){
			.name = message->field_names[i],
			.type = known ? message->field_types[i] : 0,
			.longest = known ? message->field_longest[i] : FEED_LONGEST_UNKNOWN,
		};
	}
	facts->field_count = (uint32_t)count;
	facts->fields = fields;
	return 0;
}

static int fill_facts(struct dataset *dataset, const Loaderd__Dataset *message)
{
	struct feed_dataset *facts = &dataset->facts;
	facts->samples = message->samples;
	facts->classes = (uint32_t)message->n_class_names;
	facts->class_names = (const char *const *)message->class_names;
	facts->metadata = message->metadata;
	copy_uuid(&message->uuid, facts->uuid);
	facts->has_statistics = message->n_mean == 3 && message->n_std == 3;
	for (int i = 0; i < 3 && facts->has_statistics; i++) {
		facts->mean[i] = message->mean[i];
		facts->std[i] = message->std[i];
	}
	for (int i = 0; i < 3; i++)
		facts->has_statistics &= isfinite(facts->mean[i]) && isfinite(facts->std[i]);
	return fill_fields(facts, message);
}

/*
 * Blocks of which a store is read in few requests; groups that shuffle well, fit in memory, and are
 * announced to the fetcher as a whole.
 */
static void suggest_blocks(struct feed_dataset *facts, uint64_t bytes)
{
	enum { BLOCK_BYTES = 1 << 20, GROUP_BYTES = 256 << 20, GROUP_SAMPLES = FILLING_AHEAD / 2 };
	if (bytes == 0 || facts->samples == 0)
		return;
	uint64_t each = bytes / facts->samples ?: 1;
	uint64_t samples = BLOCK_BYTES / each ?: 1;
	facts->block_samples = (uint32_t)samples;
	uint64_t blocks = GROUP_BYTES / (samples * each), most = GROUP_SAMPLES / samples;
	facts->group_blocks = (uint32_t)((blocks < most ? blocks : most) ?: 1);
}

static int request_facts(struct connection *connection, const char *path,
			 const struct fetched *fetched, int64_t deadline_ms,
			 Loaderd__Reply **ret_reply, char *error)
{
	char *absolute;
	int r = absolute_path(path, &absolute, error);
	if (r < 0)
		return r;
	Loaderd__GetDataset get = LOADERD__GET_DATASET__INIT;
	absolute[text_shown_length(absolute)] = '\0';
	get.path = absolute;
	get.version = PROTO_VERSION_OLDEST; /* asks for nothing newer */
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_GET_DATASET;
	request.get_dataset = &get;
	const struct file_source source = {.path = absolute, .fetched = fetched};
	r = files_request(connection, &request, NULL, &source, 1, &deadline_ms, ret_reply, error);
	free(absolute);
	if (r == 0 && (*ret_reply)->kind_case != LOADERD__REPLY__KIND_DATASET)
		r = daemon_error(connection, error, -EPROTO,
				 "answered about a dataset with message %d.",
				 (int)(*ret_reply)->kind_case);
	return r;
}

int feed_dataset(const char *socket, const char *path, struct feed_dataset **ret_dataset,
		 char *error)
{
	struct connection connection = {.fd = -1};
	struct dataset *dataset = calloc(1, sizeof(*dataset));
	if (!dataset)
		return error_set(error, -ENOMEM, "Out of memory.");
	struct fetched *fetched = NULL;
	const struct fetch_options facts = {.facts = true};
	int r = path && text_is_address(path) ? fetch_open(path, &facts, &fetched, error) : 0;
	int64_t deadline_ms = clock_ms() + CONNECTION_TIMEOUT_MS;
	if (r == 0 && socket)
		r = daemon_revive(socket, error);
	r = r ?: connection_open(&connection, socket, deadline_ms, error);
	r = r ?: request_facts(&connection, path, fetched, deadline_ms, &dataset->reply, error);
	connection_close(&connection);
	uint64_t bytes = r < 0 ? 0 : fetched ? fetch_bytes(fetched) : files_bytes(path);
	fetch_close(fetched);
	if (r == 0 && fill_facts(dataset, dataset->reply->dataset) < 0)
		r = error_set(error, -ENOMEM, "Out of memory.");
	if (r == 0)
		suggest_blocks(&dataset->facts, bytes);
	if (r < 0) {
		feed_dataset_free(&dataset->facts);
		return r;
	}
	*ret_dataset = &dataset->facts;
	return 0;
}

void feed_dataset_free(struct feed_dataset *facts)
{
	if (!facts)
		return;
	struct dataset *dataset = (struct dataset *)facts;
	loaderd__reply__free_unpacked(dataset->reply, NULL);
	free((void *)facts->fields);
	free(dataset);
}
