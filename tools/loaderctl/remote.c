#include "tools/loaderctl/remote.h"
#include "format/base/text/json_text.h"
#include "format/base/text/printable.h"
#include "proto/client/fetch.h"
#include "proto/fetch.pb-c.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_dataset(const Loaderd__FetchStatus__Dataset *dataset)
{
	uint64_t samples = dataset->hits + dataset->misses;

	printable_line(stdout, "%s", dataset->url);
	printf("  feeds     %" PRIu32 "\n", dataset->feeds);
	printf("  cached    %.1f of %.1f MB (%.0f %%)\n", (double)dataset->cached / 1e6,
	       (double)dataset->bytes / 1e6,
	       dataset->bytes ? 100 * (double)dataset->cached / (double)dataset->bytes : 0);
	printf("  fetched   %.1f MB by %" PRIu64 " requests, %" PRIu64 " repeated, %" PRIu64
	       " sent twice, %" PRIu64 " under way\n",
	       (double)dataset->fetched / 1e6, dataset->requests, dataset->retries, dataset->hedges,
	       dataset->under_way);
	printf("  rate      %.1f MB/s, %.1f ms to the first byte\n", dataset->rate / 1e6,
	       dataset->latency_ms);
	printf("  samples   %" PRIu64 " announced, %.0f %% were there; %" PRIu64 " taken away\n",
	       samples, samples ? 100 * (double)dataset->hits / (double)samples : 0,
	       dataset->evicted);
	if (dataset->error[0] != '\0')
		printable_line(stdout, "  error     %s", dataset->error);
}

static void print_status(const Loaderd__FetchStatus *status)
{
	printf("loaderd-fetch %" PRIu32 "\n", status->pid);
	printable_line(stdout, "sandbox %s", status->sandbox);
	for (size_t i = 0; i < status->n_datasets; i++)
		print_dataset(status->datasets[i]);
	printable_line(stdout, "cache %s: %.1f MB, at most %.1f MB", status->cache,
		       (double)status->cache_bytes / 1e6, (double)status->cache_limit / 1e6);
	for (size_t i = 0; i < status->n_cached; i++)
		printable_line(stdout, "  %10.1f MB  %s%s", (double)status->cached[i]->bytes / 1e6,
			       status->cached[i]->url, status->cached[i]->open ? " (open)" : "");
}

static json_t *text(const char *value)
{
	return json_text(value, strlen(value));
}

static json_t *status_json(const Loaderd__FetchStatus *status)
{
	json_t *datasets = json_array(), *cached = json_array();

	for (size_t i = 0; i < status->n_datasets; i++) {
		const Loaderd__FetchStatus__Dataset *one = status->datasets[i];

		json_array_append_new(
			datasets,
			json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, "
				  "s:f, s:f, s:I}",
				  "url", text(one->url), "bytes", (json_int_t)one->bytes, "cached",
				  (json_int_t)one->cached, "feeds", (json_int_t)one->feeds,
				  "requests", (json_int_t)one->requests, "retries",
				  (json_int_t)one->retries, "fetched", (json_int_t)one->fetched,
				  "hits", (json_int_t)one->hits, "misses", (json_int_t)one->misses,
				  "evicted", (json_int_t)one->evicted, "error", text(one->error),
				  "under_way", (json_int_t)one->under_way, "rate", one->rate,
				  "latency_ms", one->latency_ms, "hedges",
				  (json_int_t)one->hedges));
	}
	for (size_t i = 0; i < status->n_cached; i++)
		json_array_append_new(cached, json_pack("{s:o, s:I, s:b}", "url",
							text(status->cached[i]->url), "bytes",
							(json_int_t)status->cached[i]->bytes,
							"open", status->cached[i]->open));
	return json_pack("{s:o, s:o, s:I, s:I, s:o, s:I, s:o}", "datasets", datasets, "cached",
			 cached, "cache_bytes", (json_int_t)status->cache_bytes, "cache_limit",
			 (json_int_t)status->cache_limit, "cache", text(status->cache), "pid",
			 (json_int_t)status->pid, "sandbox", text(status->sandbox));
}

/* Prints a line; consumes the reference. */
static int print_json(json_t *json, char *error)
{
	int r = json ? json_print(json, stdout, JSON_COMPACT) : -1;

	json_decref(json);
	putchar('\n');
	return r ? error_set(error, -ENOMEM, "Out of memory.") : 0;
}

int remote_status(bool json, char *error)
{
	Loaderd__FetchGetStatus get = LOADERD__FETCH_GET_STATUS__INIT;
	Loaderd__FetchRequest request = LOADERD__FETCH_REQUEST__INIT;
	Loaderd__FetchReply *reply;

	request.kind_case = LOADERD__FETCH_REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	int r = fetcher_ask("loaderctl", &request, &reply, error);
	if (r < 0)
		return r;
	if (reply->kind_case != LOADERD__FETCH_REPLY__KIND_STATUS)
		r = error_set(error, -EPROTO, "loaderd-fetch gives another answer.");
	else if (json)
		r = print_json(status_json(reply->status), error);
	else
		print_status(reply->status);
	loaderd__fetch_reply__free_unpacked(reply, NULL);
	return r;
}

int remote_clear(const char *url, bool json, char *error)
{
	Loaderd__FetchClear clear = LOADERD__FETCH_CLEAR__INIT;
	Loaderd__FetchRequest request = LOADERD__FETCH_REQUEST__INIT;
	Loaderd__FetchReply *reply;

	clear.url = (char *)(url ? url : "");
	request.kind_case = LOADERD__FETCH_REQUEST__KIND_CLEAR;
	request.clear = &clear;
	int r = fetcher_ask("loaderctl", &request, &reply, error);
	if (r < 0)
		return r;
	const Loaderd__FetchCleared *cleared = reply->cleared;
	if (reply->kind_case != LOADERD__FETCH_REPLY__KIND_CLEARED)
		r = error_set(error, -EPROTO, "loaderd-fetch gives another answer.");
	else if (json)
		r = print_json(json_pack("{s:I, s:I, s:I}", "bytes", (json_int_t)cleared->bytes,
					 "datasets", (json_int_t)cleared->datasets, "busy",
					 (json_int_t)cleared->busy),
			       error);
	else
		printf("removed %" PRIu32 " datasets, %.1f MB; %" PRIu32 " are open and stay\n",
		       cleared->datasets, (double)cleared->bytes / 1e6, cleared->busy);
	loaderd__fetch_reply__free_unpacked(reply, NULL);
	return r;
}
