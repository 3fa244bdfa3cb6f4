#include "bench/measure/fetching.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "format/base/system/clock.h"
#include "proto/client/fetch.h"
#include "proto/fetch.pb-c.h"

/* CPU time of a process; 0 if it cannot be read. */
static uint64_t cpu_of(uint32_t pid)
{
	char path[64], line[1024];
	uint64_t user = 0, system = 0;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	FILE *file = fopen(path, "re");
	size_t size = file ? fread(line, 1, sizeof(line) - 1, file) : 0;
	if (file)
		fclose(file);
	line[size] = '\0';
	/* the name, in parentheses, may contain anything; the times are fields 14 and 15 */
	const char *at = strrchr(line, ')');
	if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
			  &user, &system) != 2)
		return 0;
	return (user + system) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void add_datasets(const Loaderd__FetchStatus *status, struct fetch_sample *sample)
{
	for (size_t i = 0; i < status->n_datasets; i++) {
		const Loaderd__FetchStatus__Dataset *one = status->datasets[i];

		sample->requests += one->requests;
		sample->bytes += one->fetched;
		sample->hits += one->hits;
		sample->misses += one->misses;
		sample->under_way += one->under_way;
		/* of the fetcher, and equal in all of them */
		sample->retries = one->retries;
		sample->hedges = one->hedges;
		sample->latency_ms = one->latency_ms;
	}
}

void fetch_sample_take(struct fetch_sample *ret_sample)
{
	Loaderd__FetchGetStatus get = LOADERD__FETCH_GET_STATUS__INIT;
	Loaderd__FetchRequest request = LOADERD__FETCH_REQUEST__INIT;
	Loaderd__FetchReply *reply;
	char error[FEED_ERROR_MAX];

	*ret_sample = (struct fetch_sample){0};
	request.kind_case = LOADERD__FETCH_REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	if (fetcher_ask("loaderbench", &request, &reply, error))
		return;
	if (reply->kind_case == LOADERD__FETCH_REPLY__KIND_STATUS) {
		ret_sample->taken_ns = clock_ns(CLOCK_MONOTONIC);
		ret_sample->pid = reply->status->pid;
		ret_sample->cpu_ns = cpu_of(ret_sample->pid);
		add_datasets(reply->status, ret_sample);
	}
	loaderd__fetch_reply__free_unpacked(reply, NULL);
}

struct fetch_rates fetch_rates_between(const struct fetch_sample *before,
				       const struct fetch_sample *after)
{
	struct fetch_rates rates = {0};

	if (!before->taken_ns || !after->taken_ns || before->pid != after->pid ||
	    after->requests < before->requests || after->bytes < before->bytes)
		return rates;
	double seconds = (double)(after->taken_ns - before->taken_ns) * 1e-9;
	double bytes = (double)(after->bytes - before->bytes);
	double hits = (double)(after->hits - before->hits);
	double samples = hits + (double)(after->misses - before->misses);

	rates.known = true;
	rates.requests = after->requests - before->requests;
	rates.bytes_per_s = bytes / seconds;
	rates.under_way = (double)(before->under_way + after->under_way) / 2;
	rates.latency_ms = after->latency_ms;
	rates.cpu = (double)(after->cpu_ns - before->cpu_ns) * 1e-9 / seconds;
	rates.cached = samples > 0 ? hits / samples : 0;
	if (rates.requests) {
		rates.request_bytes = bytes / (double)rates.requests;
		rates.repeated =
			(double)(after->retries - before->retries) / (double)rates.requests;
		rates.hedged = (double)(after->hedges - before->hedges) / (double)rates.requests;
	}
	return rates;
}
