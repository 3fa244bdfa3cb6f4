#include "bench/measure/sampler.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "bench/measure/client.h"
#include "format/base/system/clock.h"

/*
 * CPU time of all threads of a process from its CPU clock, which is finer than the ticks in
 * /proc/PID/stat.
 */
static uint64_t process_cpu_ns(long pid)
{
	clockid_t clock;

	return clock_getcpuclockid((pid_t)pid, &clock) ? 0 : clock_ns(clock);
}

static void process_memory(long pid, struct snapshot *snapshot)
{
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/%ld/smaps_rollup", pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		unsigned long kib;

		if (sscanf(line, "Pss: %lu kB", &kib) == 1)
			snapshot->pss_bytes = (uint64_t)kib << 10;
		else if (sscanf(line, "Pss_Anon: %lu kB", &kib) == 1)
			snapshot->private_bytes = (uint64_t)kib << 10;
	}
	fclose(file);
}

static int is_watched(const pid_t *clients, unsigned client_count, uint32_t pid)
{
	for (unsigned i = 0; i < client_count; i++)
		if ((uint32_t)clients[i] == pid)
			return 1;
	return 0;
}

static void sum_feeds(const Loaderd__Status *status, const pid_t *clients, unsigned client_count,
		      struct snapshot *snapshot)
{
	for (size_t i = 0; i < status->n_feeds; i++) {
		const Loaderd__FeedStatus *feed = status->feeds[i];

		if (!is_watched(clients, client_count, feed->pid))
			continue;
		snapshot->feeds++;
		snapshot->images += feed->images;
		limit_times_add(&snapshot->times, feed);
	}
}

int sampler_take(struct connection *connection, const pid_t *clients, unsigned client_count,
		 struct snapshot *ret_snapshot, char *error)
{
	Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__Reply *reply = NULL;
	struct snapshot snapshot = {0};

	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	int r = connection_request(connection, &request, NULL, clock_ms() + CONNECTION_TIMEOUT_MS,
				   &reply, error);
	if (r)
		return r;
	if (reply->kind_case != LOADERD__REPLY__KIND_STATUS) {
		loaderd__reply__free_unpacked(reply, NULL);
		return error_set(error, -EPROTO,
				 "The daemon's reply to a status request is of another type.");
	}
	snapshot.taken_ns = clock_ns(CLOCK_MONOTONIC);
	snapshot.threads = reply->status->threads;
	snapshot.pid = reply->status->pid;
	snapshot.idle_ns = reply->status->idle_ns;
	snapshot.shared_bytes = reply->status->shared_bytes;
	snprintf(snapshot.isa, sizeof(snapshot.isa), "%s", reply->status->isa);
	sum_feeds(reply->status, clients, client_count, &snapshot);
	loaderd__reply__free_unpacked(reply, NULL);
	snapshot.cpu_ns = process_cpu_ns(snapshot.pid);
	process_memory(snapshot.pid, &snapshot);
	*ret_snapshot = snapshot;
	return 0;
}
