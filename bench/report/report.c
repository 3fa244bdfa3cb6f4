#include "bench/report/report.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include <jansson.h>

#include "bench/report/axis.h"
#include "format/base/median.h"
#include "format/base/text/json_text.h"
#include "format/base/text/printable.h"

/* The members of struct measurement of type double, for medians and JSON. */
/* clang-format off */
static const struct {
	const char *name;
	size_t offset;
} figures[] = {
#define FIGURE(name) {#name, offsetof(struct measurement, name)},
#define STAGE(constant, name, ...)                                                                 \
	{#name "_us", offsetof(struct measurement, stage_us[STAGE_##constant])},
	FIGURE(images_per_s)
	FIGURE(bytes_per_s)
	FIGURE(images_per_s_core)
	FIGURE(cpu_us)
	FIGURE(client_cpu_us)
	STAGES(STAGE)
	FIGURE(wait_p50_ms)
	FIGURE(wait_p99_ms)
	FIGURE(stall_client)
	FIGURE(stall_daemon)
	FIGURE(busy)
	FIGURE(waiting)
	FIGURE(queued)
	FIGURE(idle)
	FIGURE(capacity_us)
	FIGURE(token_fill)
	FIGURE(private_mib)
	FIGURE(pss_mib)
	FIGURE(shared_mib)
	FIGURE(memcpy_bytes_per_s)
#undef STAGE
#undef FIGURE
};
/* clang-format on */

static double *figure(struct measurement *measurement, size_t offset)
{
	return (double *)(void *)((char *)measurement + offset);
}

void report_summarise(const struct measurement *rounds, unsigned count, struct row *row)
{
	double *values = calloc(count, sizeof(*values));

	row->median = rounds[0];
	for (unsigned i = 1; i < count; i++)
		row->median.reconnects += rounds[i].reconnects;
	row->rounds = count;
	row->images_per_s_min = INFINITY;
	row->images_per_s_max = 0;
	for (size_t f = 0; values && f < sizeof(figures) / sizeof(figures[0]); f++) {
		for (unsigned i = 0; i < count; i++) {
			struct measurement copy = rounds[i];

			values[i] = *figure(&copy, figures[f].offset);
		}
		*figure(&row->median, figures[f].offset) = median_sort(values, count);
	}
	for (unsigned i = 0; i < count; i++) {
		row->images_per_s_min = fmin(row->images_per_s_min, rounds[i].images_per_s);
		row->images_per_s_max = fmax(row->images_per_s_max, rounds[i].images_per_s);
	}
	row->spread = (row->images_per_s_max - row->images_per_s_min) / row->median.images_per_s;
	free(values);
}

static void table_heading(const struct report *report, FILE *out)
{
	static const char *const consumes[] = {"", ", every byte read", ", every byte copied"};
	const struct row *first = &report->rows[0];
	char text[AXIS_TEXT_MAX];

	for (size_t i = 0; i < report->count && first->error; i++)
		first = &report->rows[i];
	printable_line(out, "pipeline: %s",
		       report->pipeline[0] ? report->pipeline : "(none: stored pixels)");
	for (enum axis axis = 0; axis < AXIS_COUNT; axis++) {
		if (axis_is_swept(report, axis) || (axis == AXIS_SIZE && !first->point.size))
			continue;
		axis_text(axis, &first->point, text, sizeof(text));
		fprintf(out, "%s%s %s", axis ? ", " : "", axis_names[axis], text);
	}
	printable_line(out, "; %u core%s, kernels %s%s; %u x %.3g s", point_cores(),
		       point_cores() == 1 ? "" : "s", first->median.isa,
		       consumes[report->settings->consume], first->rounds,
		       report->settings->window_s);
	fputc('\n', out);
}

static int has_memcpy(const struct report *report)
{
	for (size_t i = 0; i < report->count; i++)
		if (!report->rows[i].error && report->rows[i].median.memcpy_bytes_per_s > 0)
			return 1;
	return 0;
}

/* Every process uses some memory, so 0 means that it is unknown. */
static bool memory_is_known(const struct measurement *m)
{
	return m->pss_mib > 0;
}

static int stage_width(enum stage stage)
{
	int min = stage < STAGE_WORK_COUNT ? 6 : 7, width = (int)strlen(stages[stage].column);

	return width > min ? width : min;
}

static void table_row(const struct report *report, const struct row *row, const int *widths,
		      FILE *out)
{
	const struct measurement *m = &row->median;
	char text[AXIS_TEXT_MAX], private_mib[32] = "-";

	for (enum axis axis = 0; axis < AXIS_COUNT; axis++) {
		if (!widths[axis])
			continue;
		axis_text(axis, &row->point, text, sizeof(text));
		fprintf(out, axis == AXIS_DATASET ? "%-*s  " : "%*s  ", widths[axis], text);
	}
	if (row->error) {
		printable_line(out, "%s", row->text);
		return;
	}
	if (memory_is_known(m))
		snprintf(private_mib, sizeof(private_mib), "%.0f", m->private_mib);
	fprintf(out, "%9.0f %5.1f%% %8.0f %7.1f", m->images_per_s, 100 * row->spread,
		m->images_per_s_core, m->cpu_us);
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		fprintf(out, " %*.1f", stage_width(i), m->stage_us[i]);
	fprintf(out, " %8.2f %8.2f %6.1f%% %6.1f%% %7s %6.0f", m->wait_p50_ms, m->wait_p99_ms,
		100 * m->stall_client, 100 * m->stall_daemon, private_mib, m->shared_mib);
	if (has_memcpy(report))
		fprintf(out, " %7.2f %7.2f %6.1f%%", m->bytes_per_s * 1e-9,
			m->memcpy_bytes_per_s * 1e-9,
			m->memcpy_bytes_per_s > 0 ? 100 * m->bytes_per_s / m->memcpy_bytes_per_s
						  : 0);
	if (m->token_fill > 0)
		fprintf(out, "  %.2f%% of the tokens", 100 * m->token_fill);
	if (m->bad)
		fprintf(out, "  %llu bad", (unsigned long long)m->bad);
	if (m->reconnects)
		fprintf(out, "  %llu reconnects", (unsigned long long)m->reconnects);
	fputc('\n', out);
}

/*
 * The daemon's worker cannot be inspected by other unprivileged processes: loaderd(1), ISOLATION.
 */
static void print_memory(const struct report *report, FILE *out)
{
	for (size_t i = 0; i < report->count; i++)
		if (!report->rows[i].error && !memory_is_known(&report->rows[i].median)) {
			fprintf(out, "\nprivate memory: -, because the kernel reports that of a "
				     "sandboxed worker only to root\n");
			return;
		}
}

/* Without any result, prints the errors: an empty table would hide them. */
static bool nothing_measured(const struct report *report)
{
	for (size_t i = 0; i < report->count; i++)
		if (!report->rows[i].error)
			return false;
	for (size_t i = 0; i < report->count; i++)
		printable_line(stderr, "loaderbench: %s: %s", report->rows[i].point.dataset,
			       report->rows[i].text);
	return true;
}

void report_table(const struct report *report, FILE *out)
{
	/* 7: width of the column for all work */
	int widths[AXIS_COUNT] = {0}, left = 0, work = 7, waits = 0;

	if (nothing_measured(report))
		return;
	table_heading(report, out);
	for (enum axis axis = 0; axis < AXIS_COUNT; axis++) {
		if (!axis_is_swept(report, axis))
			continue;
		widths[axis] = axis_width(report, axis);
		left += widths[axis] + 2;
	}
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		*(i < STAGE_WORK_COUNT ? &work : &waits) += 1 + stage_width(i);
	fprintf(out, "%*s%9s %6s %8s %*s%*s %17s %15s %14s\n", left, "", "", "", "per", work,
		"CPU time per image, us", waits, "waits, us", "batch wait, ms", "time waiting",
		"memory, MiB");
	for (enum axis axis = 0; axis < AXIS_COUNT; axis++)
		if (widths[axis])
			fprintf(out, axis == AXIS_DATASET ? "%-*s  " : "%*s  ", widths[axis],
				axis_names[axis]);
	fprintf(out, "%9s %6s %8s %7s", "images/s", "spread", "core", "all");
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		fprintf(out, " %*s", stage_width(i), stages[i].column);
	fprintf(out, " %8s %8s %7s %7s %7s %6s", "p50", "p99", "client", "daemon", "private",
		"rings");
	if (has_memcpy(report))
		fprintf(out, " %7s %7s %7s", "GB/s", "memcpy", "share");
	fputc('\n', out);
	for (size_t i = 0; i < report->count; i++)
		table_row(report, &report->rows[i], widths, out);
	if (!report->rows[0].error)
		parts_text(&report->rows[0].point, &report->rows[0].median, out);
	print_memory(report, out);
}

static bool is_known(const struct measurement *m, size_t figure)
{
	if (figure == offsetof(struct measurement, memcpy_bytes_per_s))
		return m->memcpy_bytes_per_s > 0;
	if (figure == offsetof(struct measurement, token_fill))
		return m->token_fill > 0;
	if (figure == offsetof(struct measurement, private_mib) ||
	    figure == offsetof(struct measurement, pss_mib))
		return memory_is_known(m);
	return true;
}

static json_t *json_row(const struct row *row)
{
	const struct point *point = &row->point;
	json_t *object = json_pack("{s:o, s:o, s:I, s:I, s:I, s:s?}", "dataset",
				   json_text(point->dataset, strlen(point->dataset)), "pipeline",
				   json_text(point->pipeline, strlen(point->pipeline)), "batch",
				   (json_int_t)point->batch_size, "threads_asked",
				   (json_int_t)point->threads, "clients",
				   (json_int_t)point->clients, "isa_asked", point->isa);

	if (point->size)
		json_object_set_new(object, "size", json_integer(point->size));
	if (row->error) {
		json_object_set_new(object, "error", json_sentence(row->text));
		return object;
	}
	for (size_t f = 0; f < sizeof(figures) / sizeof(figures[0]); f++) {
		struct measurement copy = row->median;

		if (is_known(&copy, figures[f].offset))
			json_object_set_new(object, figures[f].name,
					    json_real(*figure(&copy, figures[f].offset)));
	}
	json_object_set_new(object, "threads", json_integer(row->median.threads));
	json_object_set_new(object, "limit", json_string(limit_name(row->median.limit)));
	json_object_set_new(object, "isa", json_string(row->median.isa));
	json_object_set_new(object, "images", json_integer((json_int_t)row->median.images));
	json_object_set_new(object, "batches", json_integer((json_int_t)row->median.batches));
	json_object_set_new(object, "bad", json_integer((json_int_t)row->median.bad));
	json_object_set_new(object, "reconnects", json_integer((json_int_t)row->median.reconnects));
	json_t *parts = parts_json(point, &row->median);
	if (parts)
		json_object_set_new(object, "parts", parts);
	if (row->explanation)
		json_object_set_new(object, "explanation", explanation_json(row->explanation));
	json_object_set_new(object, "rounds", json_integer(row->rounds));
	json_object_set_new(object, "images_per_s_min", json_real(row->images_per_s_min));
	json_object_set_new(object, "images_per_s_max", json_real(row->images_per_s_max));
	return object;
}

static json_t *json_machine(void)
{
	struct utsname system = {0};
	char line[256], model[200] = "";
	FILE *file = fopen("/proc/cpuinfo", "re");

	uname(&system);
	while (file && !model[0] && fgets(line, sizeof(line), file))
		sscanf(line, "model name : %199[^\n]", model);
	if (file)
		fclose(file);
	return json_pack("{s:s, s:I, s:s, s:s}", "cpu", model, "cores", (json_int_t)point_cores(),
			 "system", system.release, "architecture", system.machine);
}

int report_json(const struct report *report, FILE *out)
{
	static const char *const consumes[] = {"none", "read", "copy"};
	json_t *rows = json_array();
	char date[32] = "";
	time_t now = time(NULL);
	struct tm utc;
	json_t *root;
	int r = 0;

	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	for (size_t i = 0; i < report->count; i++)
		json_array_append_new(rows, json_row(&report->rows[i]));
	root = json_pack("{s:s, s:s, s:o, s:f, s:f, s:s, s:o}", "program", "loaderbench", "date",
			 date, "machine", json_machine(), "warmup_s", report->settings->warmup_s,
			 "window_s", report->settings->window_s, "consume",
			 consumes[report->settings->consume], "rows", rows);
	if (!root || json_print(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) ||
	    fputc('\n', out) == EOF)
		r = -EIO;
	json_decref(root);
	return r;
}
