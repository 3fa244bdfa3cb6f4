#include "tests/unit/fetch/store_double.h"

#include <stdlib.h>
#include <string.h>

struct store *const store_double = &(struct store){0};

int store_object_init(struct store_object *object, const char *address, struct packimg_error *error)
{
	*object = (struct store_object){.size = STORE_SIZE_UNKNOWN};
	return store_address_parse(address, &object->address, error);
}

void store_object_deinit(struct store_object *object)
{
	store_address_deinit(&object->address);
}

/* Answers a request as a store and its client do: the bytes in pieces, or an error. */
static void answer(struct store *store, const struct store_request *request)
{
	const char *name = request->object->address.shown;
	unsigned file = strstr(name, ".pimg.set")  ? STORE_DOUBLE_SHARDS
			: strstr(name, "00001-of") ? 1
			: strstr(name, "00002-of") ? 2
						   : 0;
	uint64_t there = store->sizes[file], end = request->offset + request->size;
	struct packimg_error error = {"the double has no such bytes"};
	struct store_result result = {.status = -EIO, .error = &error, .etag = "", .reply = ""};

	if (file == STORE_DOUBLE_SHARDS && !there) {
		result.status = -ENOENT;
		request->done(request->context, &result);
		return;
	}
	if (!request->size || end < request->offset ||
	    (!request->size_unknown && request->object->size != STORE_SIZE_UNKNOWN &&
	     end > request->object->size))
		abort();
	store->counters.requests++;
	store->counters.bytes += request->size;
	request->object->size = there + store->beyond;
	strcpy(request->object->etag, "\"1\"");
	if (request->size_unknown && end > there)
		end = there;
	for (uint64_t at = request->offset; at < end && end <= there;) {
		size_t size = end - at < 4000 ? end - at : 4000;

		result.status = request->take(request->context, store->bytes[file] + at, size);
		at += size;
		if (result.status)
			break;
	}
	if (request->done)
		request->done(request->context, &result);
}

int store_submit(struct store *store, const struct store_request *request)
{
	if (store->queued == STORE_DOUBLE_QUEUE)
		return -ENOMEM;
	store->queue[store->queued++] = *request;
	return 0;
}

int store_run(struct store *store, int timeout_ms)
{
	(void)timeout_ms;
	if (store->queued) {
		struct store_request request = store->queue[--store->queued];

		answer(store, &request);
	}
	return (int)store->queued;
}

int store_poll(struct store *store, struct pollfd *fds, unsigned count, int timeout_ms)
{
	(void)fds;
	(void)count;
	return store_run(store, timeout_ms);
}

struct store_counters store_counters(const struct store *store)
{
	return store->counters;
}

void store_set_limits(struct store *store, unsigned connections, uint64_t bytes)
{
	(void)store;
	(void)connections;
	(void)bytes;
}

void store_wake(struct store *store)
{
	(void)store;
}

unsigned store_paths(const struct store *store, const char *paths[STORE_PATHS_MAX])
{
	(void)store;
	(void)paths;
	return 0;
}
