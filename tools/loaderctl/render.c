#include "tools/loaderctl/render.h"
#include "format/base/text/number.h"
#include "format/base/uuid.h"

#include "format/base/text/printable.h"
#include "proto/limit.h"
#include "tools/loaderctl/render_text.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CLASSES_SHOWN = 20 };

void put_text(const char *text)
{
	printable_put(stdout, text, strlen(text));
}

static void put_field(const char *label, const char *text)
{
	printf("  %-10s", label);
	put_text(text);
	putchar('\n');
}

/* Prints the label before the first line. */
static void put_lines(const char *label, const char *text)
{
	while (*text != '\0') {
		size_t size = strcspn(text, "\n");
		printf("  %-10s", label);
		printable_put(stdout, text, size);
		putchar('\n');
		text += size + (text[size] != '\0');
		label = "";
	}
}

static const char *bytes_text(uint64_t bytes, char out[32])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	size_t unit = 0;
	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
	return out;
}

static const char *duration_text(uint64_t ns, char out[32])
{
	uint64_t seconds = ns / 1000000000;
	if (seconds < 60)
		snprintf(out, 32, "%.1f s", (double)ns / 1e9);
	else if (seconds < 3600)
		snprintf(out, 32, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
	else if (seconds < 86400)
		snprintf(out, 32, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
			 seconds / 60 % 60);
	else
		snprintf(out, 32, "%" PRIu64 " d %" PRIu64 " h", seconds / 86400,
			 seconds / 3600 % 24);
	return out;
}

static const char *user_text(uint32_t uid, char out[64])
{
	const struct passwd *entry = getpwuid(uid);
	if (entry)
		snprintf(out, 64, "%.60s", entry->pw_name);
	else
		snprintf(out, 64, "uid %" PRIu32, uid);
	return out;
}

static const Loaderd__FeedStatus *same_feed(const Loaderd__Status *status, uint64_t id)
{
	for (size_t i = 0; status && i < status->n_feeds; i++)
		if (status->feeds[i]->feed_id == id)
			return status->feeds[i];
	return NULL;
}

static const char *verdict(enum limit limit)
{
	static const char *const texts[] = {
		[LIMIT_NONE] = "neither side is the limit",
		[LIMIT_CONSUMER] = "the client is the limit",
		[LIMIT_STORAGE] = "storage is the limit",
		[LIMIT_CPUS] = "other programs on the CPUs are the limit",
		[LIMIT_DECODE] = "decoding is the limit",
		[LIMIT_AUGMENT] = "resizing and augmenting are the limit",
		[LIMIT_OTHER] = "verifying and handing over are the limit",
	};
	return texts[limit];
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

static void put_times(const Loaderd__FeedStatus *feed, const Loaderd__FeedStatus *before,
		      uint64_t elapsed_ns, unsigned cpus)
{
	struct limit_times first = {0}, last = {0};
	char text[32], daemon[32];
	if (before)
		limit_times_add(&first, before);
	limit_times_add(&last, feed);
	const struct limit_times times = limit_times_between(&first, &last);
	uint64_t all = stages_work(times.stage);
	printf("  %-10sclient %s, daemon %s: %s\n", "waited",
	       duration_text(times.stall_client, text), duration_text(times.stall_daemon, daemon),
	       verdict(limit_judge(&times, elapsed_ns, cpus)));
	if (all == 0)
		return;
	for (enum stage i = 0; i < STAGE_WORK_COUNT; i++) {
		printf(i == 0 ? "  %-10s" : ", ", "work");
		printf("%s %.0f %%", stages[i].name, percent(times.stage[i], all));
	}
	printf(" of %s CPU time\n  %-10s", duration_text(all, text), "threads");
	for (enum stage i = STAGE_WORK_COUNT; i < STAGE_COUNT; i++)
		printf("%s %s for %s", i == STAGE_WORK_COUNT ? "waited" : ",",
		       duration_text(times.stage[i], text), stages[i].waits_for);
	putchar('\n');
}

static void put_progress(const Loaderd__FeedStatus *feed, const Loaderd__FeedStatus *before,
			 uint64_t elapsed_ns, unsigned cpus)
{
	char images[32], bad[32], shared[32];
	printf("  %-10sepoch %" PRIu64 ", batch %" PRIu64 ", batch size %" PRIu32 "\n", "position",
	       feed->epoch, feed->batch, feed->batch_size);
	printf("  %-10s%s delivered, %s bad", "images", number_grouped(feed->images, images),
	       number_grouped(feed->bad, bad));
	if (before && elapsed_ns > 0)
		printf(", %.0f/s",
		       (double)(feed->images - before->images) * 1e9 / (double)elapsed_ns);
	printf("\n  %-10s%" PRIu32 ": %" PRIu32 " ready, %" PRIu32 " held; %s\n", "slots",
	       feed->slots, feed->slots_ready, feed->slots_held, bytes_text(feed->bytes, shared));
	put_times(feed, before, before ? elapsed_ns : 0, cpus);
}

static void put_feed(const Loaderd__FeedStatus *feed, const Loaderd__FeedStatus *before,
		     uint64_t elapsed_ns, unsigned cpus)
{
	char user[64];
	printf("\nfeed %" PRIu64 "  ", feed->feed_id);
	put_text(feed->name);
	printf("%spid %" PRIu32 ", ", feed->name[0] == '\0' ? "" : "  ", feed->pid);
	put_text(user_text(feed->uid, user));
	putchar('\n');
	put_field("dataset", feed->dataset);
	put_field("pipeline", feed->pipeline);
	if (feed->order)
		put_order(feed->order);
	if (feed->opening)
		put_opening(feed->opening);
	else
		put_progress(feed, before, elapsed_ns, cpus);
}

static void put_threads(const Loaderd__Status *status, const Loaderd__Status *before,
			uint64_t since_ns)
{
	uint64_t idle_ns = status->idle_ns - (before ? before->idle_ns : 0);
	printf("%" PRIu32 " thread%s %.0f %% idle, ", status->threads,
	       status->threads == 1 ? "" : "s", percent(idle_ns, since_ns * status->threads));
}

void render_status(const Loaderd__Status *status, const Loaderd__Status *before, bool all)
{
	char uptime[32], shared[32];
	uint64_t elapsed_ns = 0;
	unsigned cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	/* Compare only statuses of the same daemon process: counters restart at zero. */
	if (before && (before->pid != status->pid || before->uptime_ns > status->uptime_ns))
		before = NULL;
	if (before)
		elapsed_ns = status->uptime_ns - before->uptime_ns;
	uint64_t since_ns = before ? elapsed_ns : status->uptime_ns;
	printf("loaderd ");
	put_text(status->version);
	printf(", pid %" PRIu32 ", up %s, ", status->pid, duration_text(status->uptime_ns, uptime));
	if (!all)
		put_threads(status, before, since_ns);
	put_text(status->isa);
	printf(", %s shared\n", bytes_text(status->shared_bytes, shared));
	for (size_t i = 0; i < status->n_feeds; i++)
		put_feed(status->feeds[i], same_feed(before, status->feeds[i]->feed_id), elapsed_ns,
			 status->threads < cpus ? status->threads : cpus);
	if (status->n_feeds == 0)
		printf("no feeds\n");
	if (status->n_bad > 0)
		printf("\n%zu bad sample%s, see loaderctl bad\n", status->n_bad,
		       status->n_bad == 1 ? "" : "s");
}

/* Returns the daemon's message without the sample number, which has already been printed. */
static const char *bad_reason(const Loaderd__BadSampleRecord *bad)
{
	char prefix[32];
	int size = snprintf(prefix, sizeof(prefix), "sample %" PRIu64 ": ", bad->index);
	return bad->text + (strncmp(bad->text, prefix, (size_t)size) == 0 ? size : 0);
}

void render_bad_samples(const Loaderd__Status *status)
{
	for (size_t i = 0; i < status->n_bad; i++) {
		const Loaderd__BadSampleRecord *bad = status->bad[i];
		put_text(bad->dataset);
		printf(": sample %" PRIu64, bad->index);
		if (bad->source[0] != '\0') {
			printf(" (");
			put_text(bad->source);
			putchar(')');
		}
		printf(": ");
		put_text(bad_reason(bad));
		if (bad->count > 1)
			printf(" (%" PRIu64 " times)", bad->count);
		putchar('\n');
	}
	if (status->n_bad == 0)
		printf("no bad samples\n");
}

void render_dataset(const Loaderd__Dataset *dataset)
{
	char samples[32], uuid[UUID_TEXT];
	put_text(dataset->path);
	printf("\n  %-10s%s\n", "samples", number_grouped(dataset->samples, samples));
	if (dataset->uuid.len == UUID_SIZE) {
		uuid_write(dataset->uuid.data, uuid);
		printf("  %-10s%s\n", "uuid", uuid);
	}
	if (dataset->n_mean == 3 && dataset->n_std == 3)
		printf("  %-10smean %.2f %.2f %.2f, standard deviation %.2f %.2f %.2f (R G B, "
		       "0..255)\n",
		       "pixels", dataset->mean[0], dataset->mean[1], dataset->mean[2],
		       dataset->std[0], dataset->std[1], dataset->std[2]);
	printf("  %-10s%zu", "classes", dataset->n_class_names);
	for (size_t i = 0; i < dataset->n_class_names && i < CLASSES_SHOWN; i++) {
		printf(i == 0 ? ": " : ", ");
		put_text(dataset->class_names[i]);
	}
	printf("%s\n", dataset->n_class_names > CLASSES_SHOWN ? ", ..." : "");
	if (dataset->n_field_names > 0) {
		printf("  %-10s", "fields");
		for (size_t i = 0; i < dataset->n_field_names; i++) {
			printf(i == 0 ? "" : ", ");
			put_text(dataset->field_names[i]);
		}
		putchar('\n');
	}
	put_lines("metadata", dataset->metadata);
}
