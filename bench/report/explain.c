#include "bench/report/explain.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "format/base/system/memory.h"
#include "format/base/text/json_text.h"
#include "format/base/text/printable.h"
#include "proto/client/connection.h"
#include "tools/packimg/common/text.h"

/* Changes with a smaller gain are not listed. */
static const double gain_min = 1.03;
/* smallest fraction of the threads' time lost to other programs that is mentioned */
static const double queued_min = 0.1;

/* fraction of a CPU from which the fetcher's one thread is the limit */
static const double fetcher_busy_min = 0.9;
/* smaller requests than this are many for their bytes */
static const double request_bytes_small = 0x1p18;

/* CPU time per image of the stages whose limit is in first..last. */
static double limits_us(const struct measurement *m, enum limit first, enum limit last)
{
	double sum_us = 0;

	for (enum stage i = 0; i < STAGE_COUNT; i++)
		if (stages[i].limit >= first && stages[i].limit <= last)
			sum_us += m->stage_us[i];
	return sum_us;
}

static double work_us(const struct measurement *m)
{
	return limits_us(m, LIMIT_DECODE, LIMIT_OTHER);
}

/* Returns true if more CPU capacity would raise the rate. */
static int is_cpu(enum limit limit)
{
	return limit == LIMIT_CPUS || limit == LIMIT_DECODE || limit == LIMIT_AUGMENT ||
	       limit == LIMIT_OTHER;
}

static unsigned cpus_used(const struct measurement *m)
{
	unsigned cores = point_cores();

	return m->threads < cores ? m->threads : cores;
}

/* ---- changes ---- */

static void add_change(struct explanation *e, struct change change)
{
	e->tried++;
	change.gain = change.images_per_s / e->measured.images_per_s;
	if (change.gain < gain_min || e->change_count == EXPLANATION_CHANGES_MAX)
		return;
	e->changes[e->change_count++] = change;
}

/*
 * CPU time per image. If storage is the limit, excludes reading and verification, which an image
 * that is in memory and was verified before does not need.
 */
static double steady_us(const struct explanation *e)
{
	const struct measurement *m = &e->measured;

	return work_us(m) - (m->limit == LIMIT_STORAGE ? m->stage_us[STAGE_READ] : 0);
}

/*
 * Speedup of the CPU work if the trial costs image_us per image. Work outside the estimate keeps
 * its cost.
 */
static double speedup(const struct explanation *e, double image_us)
{
	const struct measurement *m = &e->measured;
	double tried_us = limits_us(m, LIMIT_DECODE, LIMIT_AUGMENT), all_us = steady_us(e);

	return all_us / (all_us - tried_us +
			 tried_us * image_us / e->whatif.configs[CONFIG_STORED].image_us);
}

/* Predicts the rate with the dataset stored another way. */
static double predict(const struct explanation *e, enum config config)
{
	const struct measurement *m = &e->measured;
	const struct whatif_config *now = &e->whatif.configs[CONFIG_STORED],
				   *then = &e->whatif.configs[config];
	double faster = speedup(e, then->image_us);

	if (m->limit == LIMIT_STORAGE)
		return fmin(e->alone_images_per_s * faster,
			    m->images_per_s * now->bytes / then->bytes);
	return m->images_per_s * faster;
}

static void add_config_change(struct explanation *e, enum config config)
{
	const struct encoding_variant variant = whatif_variant(&e->whatif, config);
	struct change change = {.images_per_s = predict(e, config),
				.bytes = e->whatif.configs[config].bytes};
	const char *what = config == CONFIG_INDEX    ? "an index"
			   : config == CONFIG_RECODE ? "lossless baseline JPEGs, an index"
						     : encoding_variant_name(TEXT, &variant);

	snprintf(change.what, sizeof(change.what), "%s", what);
	if (config == CONFIG_INDEX)
		snprintf(change.how, sizeof(change.how), "packimg index FILE");
	else
		snprintf(change.how, sizeof(change.how), "packimg convert%s",
			 encoding_variant_options(TEXT, &variant));
	add_change(e, change);
}

static void add_transform_changes(struct explanation *e)
{
	const struct whatif *t = &e->whatif;

	for (unsigned i = 0; i < t->transform_count; i++) {
		struct change change = {.images_per_s = e->measured.images_per_s *
							speedup(e, t->transforms[i].image_us)};
		int casts = strncmp(t->transforms[i].text, "normalize", 9) == 0 ||
			    strncmp(t->transforms[i].text, "to(", 3) == 0;

		snprintf(change.what, sizeof(change.what), "no %s", t->transforms[i].text);
		snprintf(change.how, sizeof(change.how), "%s",
			 casts ? "the pipeline; the GPU can do it" : "the pipeline");
		add_change(e, change);
	}
}

/* Measures the daemon again with one thread per CPU. */
static int add_thread_change(struct explanation *e, const struct settings *settings, char *error)
{
	unsigned cores = point_cores();
	struct point point = e->point;
	struct measurement m;
	struct change change = {.how = "loaderd --threads"};

	if (e->measured.threads >= cores || !is_cpu(e->measured.limit))
		return 0;
	change.images_per_s = e->measured.images_per_s * cores / e->measured.threads;
	if (!settings->socket) {
		point.threads = cores;
		int r = point_measure(settings, &point, &m, error);

		if (r)
			return r;
		change.images_per_s = m.images_per_s;
		change.is_measured = 1;
	}
	snprintf(change.what, sizeof(change.what), "%u thread%s", cores, cores == 1 ? "" : "s");
	add_change(e, change);
	return 0;
}

/*
 * Finds the rate with the CPUs as the only limit: by another measurement with a client that
 * consumes at full speed, or from the daemon's counters.
 */
static int find_rate_alone(struct explanation *e, const struct settings *settings, char *error)
{
	const struct measurement *m = &e->measured;
	struct settings eager = *settings;
	struct measurement alone;

	e->alone_images_per_s = cpus_used(m) * 1e6 / steady_us(e);
	if (m->limit != LIMIT_CONSUMER || settings->socket)
		return 0;
	eager.consume = CONSUME_NONE;
	eager.step_s = 0;
	int r = point_measure(&eager, &e->point, &alone, error);

	if (r)
		return r;
	e->alone_images_per_s = alone.images_per_s;
	e->alone_is_measured = 1;
	return 0;
}

static void add_memory_change(struct explanation *e)
{
	struct change change = {.what = "all of it in memory",
				.images_per_s = e->alone_images_per_s};

	snprintf(change.how, sizeof(change.how), "%s",
		 (double)e->whatif.bytes <= (double)e->memory_bytes
			 ? "it fits: epochs after the first"
			 : "more memory, or smaller files");
	if (e->measured.limit == LIMIT_STORAGE)
		add_change(e, change);
}

int explanation_make(const struct settings *settings, const struct point *point, double resident,
		     const struct measurement *measured, struct explanation *ret_explanation,
		     char *error)
{
	struct explanation e = {.point = *point,
				.resident = resident,
				.measured = *measured,
				.memory_bytes = memory_available()};
	const struct claim_options claim = {.batch_size = point->batch_size,
					    .workers = measured->threads ? measured->threads : 1,
					    .alone = point->clients == 1};

	error[0] = '\0';
	if (!(work_us(measured) > 0))
		return error_set(error, -EAGAIN,
				 "%s: no image was finished in the window; make it longer with "
				 "--seconds",
				 point->dataset);
	/*
	 * The daemon may read a dataset that this user may not; then only its counters are
	 * available.
	 */
	if (pipeline_text_has_views(point->pipeline))
		error_set(e.whatif_error, 0,
			  "%s: the effect of changes is not estimated for a pipeline with views",
			  point->dataset);
	else
		whatif_measure(point->dataset, point->pipeline, &claim, &e.whatif, e.whatif_error);
	int r = find_rate_alone(&e, settings, error);
	if (!r)
		r = add_thread_change(&e, settings, error);
	if (!r && !settings->socket)
		r = view_costs_measure(settings, point, &e.views, error);
	if (r)
		return r;
	if (e.whatif.sampled)
		add_memory_change(&e);
	for (enum config config = CONFIG_INDEX; config < CONFIG_COUNT; config++)
		if (e.whatif.configs[config].changed &&
		    (is_cpu(measured->limit) || measured->limit == LIMIT_STORAGE))
			add_config_change(&e, config);
	if (is_cpu(measured->limit))
		add_transform_changes(&e);
	*ret_explanation = e;
	return 0;
}

/* ---- as text ---- */

/* Rounds to a whole number with grouped digits. */
static const char *rounded(struct text_buffer *buffer, double value)
{
	return text_count(buffer, (uint64_t)llround(value));
}

/* Share of a part among the images of a mixture. */
static double part_share(const struct measurement *measured, uint32_t part)
{
	return (double)measured->part_images[part] / (double)measured->images;
}

static bool is_mixture(const struct point *point)
{
	return point->order && point->order->part_count > 1;
}

static void heading(const struct explanation *e, FILE *out)
{
	const struct measurement *m = &e->measured;

	if (e->whatif.sampled)
		printable_line(out, "%s: %s images, %s, %.0f %% of it in memory before",
			       e->point.dataset, text_count(TEXT, e->whatif.images),
			       text_bytes(TEXT, e->whatif.bytes), 100 * e->resident);
	else
		printable_line(out, "%s", e->whatif_error);
	printable_line(out, "%s; batch %u, %u client%s, %u thread%s on %u CPU%s, kernels %s",
		       e->point.pipeline[0] ? e->point.pipeline : "no pipeline: stored pixels",
		       e->point.batch_size, e->point.clients, text_plural(e->point.clients),
		       m->threads, text_plural(m->threads), point_cores(),
		       text_plural(point_cores()), m->isa);
	if (is_mixture(&e->point)) {
		printable_line(out, "Mixture, of which images of the first dataset were examined:");
		parts_text(&e->point, m, out);
	}
	fputc('\n', out);
}

static void consumer(const struct explanation *e, const char *rate, FILE *out)
{
	const struct measurement *m = &e->measured;

	fprintf(out,
		"The consumer is the limit: it takes %s images/s; the loader had no free slot for "
		"%.0f %% of the time.\n",
		rate, 100 * m->stall_daemon);
	fprintf(out,
		"The loader could deliver %s images/s%s, %.1f times as many. This consumer needs "
		"%.2f of %u CPU%s.\n",
		rounded(TEXT, e->alone_images_per_s), e->alone_is_measured ? " (measured)" : "",
		e->alone_images_per_s / m->images_per_s, m->images_per_s * work_us(m) * 1e-6,
		point_cores(), text_plural(point_cores()));
}

/* Fraction of the time for which feeds waited for samples from a store: no thread does. */
static double sample_wait(const struct explanation *e)
{
	return fmin(1, e->measured.waiting * e->measured.threads / e->point.clients);
}

static void network(const struct explanation *e, const char *rate, FILE *out)
{
	const struct measurement *m = &e->measured;
	const struct fetch_rates *f = &m->fetch;

	fprintf(out,
		"%s is the limit: %s images/s; samples from the store were waited for during "
		"%.0f %% of the time.\n",
		f->cpu > fetcher_busy_min ? "Fetching, with all of a CPU," : "The network", rate,
		100 * sample_wait(e));
	fprintf(out, "It delivers %s/s. The daemon's threads could make %s images/s from a file.\n",
		text_bytes(TEXT, (uint64_t)f->bytes_per_s), rounded(TEXT, e->alone_images_per_s));
}

static void storage(const struct explanation *e, const char *rate, FILE *out)
{
	const struct measurement *m = &e->measured;
	double bytes_per_s = m->images_per_s * e->whatif.configs[CONFIG_STORED].bytes;

	fprintf(out,
		"Storage is the limit: %s images/s; threads waited for stored bytes for %.0f %% of "
		"their time.\n",
		rate, 100 * m->waiting);
	if (e->whatif.sampled)
		fprintf(out, "It reads %s/s; the dataset has %s, and %s of memory are available.\n",
			text_bytes(TEXT, (uint64_t)bytes_per_s), text_bytes(TEXT, e->whatif.bytes),
			text_bytes(TEXT, e->memory_bytes));
}

static void cpu_stage(const struct explanation *e, const char *rate, FILE *out)
{
	static const struct {
		const char *subject, *work;
	} stages_of[] = {
		[LIMIT_DECODE] = {"Decoding", "it takes"},
		[LIMIT_AUGMENT] = {"Augmentation", "resizing, augmenting and storing take"},
		[LIMIT_OTHER] = {"Handing over", "verifying, collecting and publishing take"},
	};
	const struct measurement *m = &e->measured;

	fprintf(out,
		"%s is the limit: %s images/s; %s %.0f %% of the CPU time, and clients waited for "
		"%.0f %% of theirs.\n",
		stages_of[m->limit].subject, rate, stages_of[m->limit].work,
		100 * limits_us(m, m->limit, m->limit) / work_us(m), 100 * m->stall_client);
}

static void verdict(const struct explanation *e, FILE *out)
{
	const struct measurement *m = &e->measured;
	const char *rate = rounded(TEXT, m->images_per_s);

	switch (m->limit) {
	case LIMIT_NONE:
		fprintf(out,
			"Neither side is the limit: %s images/s; clients waited for %.0f %% of the "
			"time, the loader for %.0f %%.\n",
			rate, 100 * m->stall_client, 100 * m->stall_daemon);
		break;
	case LIMIT_CONSUMER:
		consumer(e, rate, out);
		break;
	case LIMIT_STORAGE:
		if (m->fetch.requests)
			network(e, rate, out);
		else
			storage(e, rate, out);
		break;
	case LIMIT_CPUS:
		fprintf(out,
			"Other programs are the limit: %s images/s; they used the CPUs for %.0f %% "
			"of the threads' time.\n",
			rate, 100 * m->queued);
		fprintf(out, "With %u CPU%s to itself the loader could deliver %s images/s.\n",
			cpus_used(m), text_plural(cpus_used(m)),
			rounded(TEXT, e->alone_images_per_s));
		break;
	case LIMIT_DECODE:
	case LIMIT_AUGMENT:
	case LIMIT_OTHER:
		cpu_stage(e, rate, out);
		break;
	}
}

static void stage_table(const struct explanation *e, FILE *out)
{
	const struct measurement *m = &e->measured;
	double all = work_us(m);

	fprintf(out, "\nCPU time per image\n");
	for (enum stage i = 0; i < STAGE_WORK_COUNT; i++)
		fprintf(out, "  %-8s %9.1f us %5.1f %%\n", stages[i].name, m->stage_us[i],
			100 * m->stage_us[i] / all);
	if (m->fetch.known)
		fprintf(out,
			"Of their time, the threads worked for %.0f %%, waited for a CPU for %.0f "
			"%%, and were idle for %.0f %%; samples were waited for during %.0f %%.\n",
			100 * m->busy, 100 * m->queued, 100 * m->idle, 100 * sample_wait(e));
	else
		fprintf(out,
			"Of their time, the threads worked for %.0f %%, waited for storage for "
			"%.0f %% and for a CPU for %.0f %%, and were idle for %.0f %%.\n",
			100 * m->busy, 100 * m->waiting, 100 * m->queued, 100 * m->idle);
}

/* Prints what the fetcher did, and what would make it faster. */
static void fetch_table(const struct explanation *e, FILE *out)
{
	const struct fetch_rates *f = &e->measured.fetch;

	if (!f->known)
		return;
	fprintf(out, "\nFetching from the store\n");
	fprintf(out, "  %-10s %9s/s by %s requests of %s each\n", "rate",
		text_bytes(TEXT, (uint64_t)f->bytes_per_s), rounded(TEXT, (double)f->requests),
		text_bytes(TEXT, (uint64_t)f->request_bytes));
	fprintf(out, "  %-10s %9.1f ms from a request to its first byte, %.0f under way\n",
		"latency", f->latency_ms, f->under_way);
	fprintf(out, "  %-10s %9.1f %%, and %.1f %% sent twice\n", "repeated", 100 * f->repeated,
		100 * f->hedged);
	fprintf(out, "  %-10s %9.1f %% of a CPU in loaderd-fetch\n", "CPU time", 100 * f->cpu);
	fprintf(out, "  %-10s %9.1f %% of the samples need not be fetched\n", "cached",
		100 * f->cached);
	if (e->measured.limit == LIMIT_STORAGE && f->requests &&
	    f->request_bytes < request_bytes_small)
		fprintf(out,
			"Shuffled in blocks (order=\"blocks\", loaderbench --blocks), neighbours "
			"come by one request.\n");
}

/*
 * Prints one change. Returns true if the dataset, changed so, does not fit into the available
 * memory.
 */
static int change_row(const struct explanation *e, const struct change *c, int width, FILE *out)
{
	double bytes = c->bytes > 0 ? c->bytes : e->whatif.configs[CONFIG_STORED].bytes;
	double total = bytes * (double)e->whatif.images;
	int too_much = total > (double)e->memory_bytes;

	fprintf(out, "  %-*s %10s %6.2f x %10s %10s%c %s%s\n", width, c->what,
		rounded(TEXT, c->images_per_s), c->images_per_s / e->measured.images_per_s,
		text_bytes(TEXT, (uint64_t)bytes), text_bytes(TEXT, (uint64_t)total),
		too_much ? '*' : ' ', c->how, c->is_measured ? " (measured)" : "");
	return too_much;
}

static void change_table(const struct explanation *e, FILE *out)
{
	const struct change as_is = {.what = "as it is", .images_per_s = e->measured.images_per_s};
	int width = (int)strlen(as_is.what);

	for (unsigned i = 0; i < e->change_count; i++)
		if ((int)strlen(e->changes[i].what) > width)
			width = (int)strlen(e->changes[i].what);
	fprintf(out, "\nEffect of changes, measured on %u images of the dataset\n",
		e->whatif.sampled);
	fprintf(out, "  %*s %10s %8s %10s %10s\n", width, "", "images/s", "gain", "per image",
		"total");
	int too_much = change_row(e, &as_is, width, out);
	for (unsigned i = 0; i < e->change_count; i++)
		too_much |= change_row(e, &e->changes[i], width, out);
	if (too_much)
		fprintf(out,
			"* More than the %s of available memory: storage would have to keep up.\n",
			text_bytes(TEXT, e->memory_bytes));
	if (!e->change_count && e->tried)
		fprintf(out, "None of the %u changes tried gains %.0f %% or more.\n", e->tried,
			100 * (gain_min - 1));
}

/* Prints what more CPUs, or the CPUs that others use, would gain. */
static void cpu_gains(const struct explanation *e, FILE *out)
{
	const struct measurement *m = &e->measured;

	if (m->threads >= point_cores())
		fprintf(out,
			"The %u thread%s use%s all %u CPU%s; each further CPU would add %s "
			"images/s.\n",
			m->threads, text_plural(m->threads), m->threads == 1 ? "s" : "",
			point_cores(), text_plural(point_cores()), rounded(TEXT, 1e6 / work_us(m)));
	if (m->threads <= point_cores() && m->queued > queued_min && m->limit != LIMIT_CPUS)
		fprintf(out,
			"Other programs used the CPUs for %.0f %% of the threads' time; without "
			"them the rate would be %s images/s.\n",
			100 * m->queued, rounded(TEXT, e->alone_images_per_s));
}

static void changes(const struct explanation *e, FILE *out)
{
	const struct whatif *t = &e->whatif;
	const struct measurement *m = &e->measured;

	if (m->limit == LIMIT_CONSUMER || m->limit == LIMIT_NONE)
		return;
	if (e->whatif.sampled)
		change_table(e, out);
	for (unsigned i = 0; !e->whatif.sampled && i < e->change_count; i++)
		fprintf(out, "With %s the rate is %s images/s%s.\n", e->changes[i].what,
			rounded(TEXT, e->changes[i].images_per_s),
			e->changes[i].is_measured ? " (measured)" : "");
	if (t->unindexable)
		fprintf(out,
			"%.0f %% of the JPEGs cannot have an index as they are: they are "
			"progressive, have restart markers within rows, or the like.\n",
			100.0 * t->unindexable / t->jpegs);
	if (is_cpu(m->limit))
		cpu_gains(e, out);
}

void parts_text(const struct point *point, const struct measurement *measured, FILE *out)
{
	for (uint32_t p = 0; is_mixture(point) && p < point->order->part_count; p++)
		printable_line(out, "%5.1f %% of the images are of %s",
			       100 * part_share(measured, p), point->order->parts[p]->dataset);
}

json_t *parts_json(const struct point *point, const struct measurement *measured)
{
	json_t *parts = is_mixture(point) ? json_array() : NULL;

	for (uint32_t p = 0; parts && p < point->order->part_count; p++) {
		const char *path = point->order->parts[p]->dataset;
		json_array_append_new(parts, json_pack("{s:o, s:f}", "dataset",
						       json_text(path, strlen(path)), "share",
						       part_share(measured, p)));
	}
	return parts;
}

void explanation_text(const struct explanation *e, FILE *out)
{
	heading(e, out);
	verdict(e, out);
	stage_table(e, out);
	fetch_table(e, out);
	view_costs_text(&e->views, work_us(&e->measured), out);
	changes(e, out);
}

/* ---- as JSON ---- */

static json_t *fetch_json(const struct fetch_rates *f)
{
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "requests",
			 (json_int_t)f->requests, "bytes_per_s", f->bytes_per_s, "request_bytes",
			 f->request_bytes, "under_way", f->under_way, "latency_ms", f->latency_ms,
			 "repeated", f->repeated, "hedged", f->hedged, "cpu", f->cpu, "cached",
			 f->cached);
}

json_t *explanation_json(const struct explanation *e)
{
	const struct whatif *t = &e->whatif;
	json_t *list = json_array();

	for (unsigned i = 0; i < e->change_count; i++) {
		const struct change *c = &e->changes[i];

		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:f, s:f, s:b}", "what", c->what, "how",
						c->how, "images_per_s", c->images_per_s, "gain",
						c->gain, "measured", c->is_measured));
		if (c->bytes > 0)
			json_object_set_new(json_array_get(list, i), "bytes", json_real(c->bytes));
	}
	json_t *object = json_pack(
		"{s:s, s:f, s:f, s:I, s:f, s:I, s:I, s:I, s:I, s:o}", "limit",
		limit_name(e->measured.limit), "alone_images_per_s", e->alone_images_per_s,
		"resident", e->resident, "sampled", (json_int_t)t->sampled, "bytes",
		t->configs[CONFIG_STORED].bytes, "jpegs", (json_int_t)t->jpegs, "unindexed",
		(json_int_t)t->unindexed, "unindexable", (json_int_t)t->unindexable, "memory_bytes",
		(json_int_t)e->memory_bytes, "changes", list);

	if (e->measured.fetch.known)
		json_object_set_new(object, "fetch", fetch_json(&e->measured.fetch));
	if (e->views.count > 0)
		json_object_set_new(object, "views", view_costs_json(&e->views));
	if (!t->sampled)
		json_object_set_new(object, "error", json_string(e->whatif_error));
	return object;
}
