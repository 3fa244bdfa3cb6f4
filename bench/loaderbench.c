/* loaderbench: measures the loader without a model. See loaderbench(1). */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure/copy.h"
#include "bench/measure/digest.h"
#include "bench/measure/point.h"
#include "bench/report/explain.h"
#include "bench/report/plot.h"
#include "bench/report/precheck.h"
#include "bench/report/report.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "format/packimg.h"

enum {
	LIST_MAX = POINT_PARTS_MAX,
	BUCKETS_MAX = 256, /* feed_order.buckets */
	POINTS_MAX = 4096,
	ROUNDS_MAX = 1000,
};

static const char default_pipeline[] = "random_resized_crop(224) hflip";

struct list {
	unsigned values[LIST_MAX];
	size_t count;
};

struct arguments {
	struct settings settings;
	const char *positional[LIST_MAX];
	size_t positional_count;
	const char *datasets[LIST_MAX];
	size_t dataset_count;
	const char *pipeline;
	struct list shares; /* --mix */
	const char *where;
	struct list blocks; /* --blocks: samples of a block, blocks of a group */
	struct feed_bucket buckets[BUCKETS_MAX]; /* --buckets */
	uint32_t bucket_count;
	uint32_t batch_tokens;
	const char *tokens_field;
	/* of --mix, --where, --blocks, --buckets and --batch-tokens, see make_orders() */
	struct feed_part parts[LIST_MAX];
	const struct feed_part *part_list[LIST_MAX];
	uint32_t part_shares[LIST_MAX];
	struct feed_stage stage;
	struct feed_order orders[LIST_MAX];
	struct list sizes, batches, threads, clients, reopen, kill;
	char *isas[LIST_MAX];
	size_t isa_count;
	unsigned rounds;
	uint64_t hash;
	int memcpy, explain;
	const char *json, *plot;
};

enum key {
	KEY_BATCH = 'b',
	KEY_THREADS = 't',
	KEY_CLIENTS = 'c',
	KEY_SIZE = 's',
	KEY_ISA = 'i',
	KEY_PIPELINE = 'p',
	KEY_SECONDS = 'd',
	KEY_WARMUP = 'w',
	KEY_ROUNDS = 'r',
	KEY_CONSUME = 256,
	KEY_MIX,
	KEY_WHERE,
	KEY_BLOCKS,
	KEY_BUCKETS,
	KEY_BATCH_TOKENS,
	KEY_TOKENS_FIELD,
	KEY_STEP,
	KEY_EXPLAIN,
	KEY_SLOTS,
	KEY_SEED,
	KEY_STORED_ORDER,
	KEY_WANTED,
	KEY_DEFER,
	KEY_VALUES,
	KEY_SOCKET,
	KEY_DAEMON,
	KEY_NO_RECONNECT,
	KEY_MEMCPY,
	KEY_JSON,
	KEY_PLOT,
	KEY_HASH,
	KEY_REOPEN,
	KEY_KILL,
};

static const struct argp_option options[] = {
	{0, 0, 0, 0, "Sweeps; every combination is measured:", 1},
	{"batch", KEY_BATCH, "LIST", 0, "Batch sizes (default 256)", 1},
	{"threads", KEY_THREADS, "LIST", 0,
	 "Threads of a private daemon (default: the daemon's choice)", 1},
	{"clients", KEY_CLIENTS, "LIST", 0,
	 "Concurrent client processes, with one feed each (default 1)", 1},
	{"size", KEY_SIZE, "LIST", 0, "Values of {size} in the pipeline", 1},
	{"isa", KEY_ISA, "LIST", 0,
	 "Instruction sets to cap the daemon at: c, avx2, avx512bw, avx512", 1},
	{0, 0, 0, 0, "Measurement:", 2},
	{"pipeline", KEY_PIPELINE, "TEXT", 0, "The pipeline; all other arguments are then datasets",
	 2},
	{"seconds", KEY_SECONDS, "S", 0, "Length of a measurement (default 5)", 2},
	{"warmup", KEY_WARMUP, "S", 0, "Warm-up before it (default 1)", 2},
	{"rounds", KEY_ROUNDS, "N", 0, "Measure every point N times and report medians (default 1)",
	 2},
	{"consume", KEY_CONSUME, "none|read|copy", 0,
	 "What clients do with each batch: none (default), read, copy", 2},
	{"step", KEY_STEP, "MS", 0,
	 "Milliseconds for which a client holds each batch, as a training step would", 2},
	{"slots", KEY_SLOTS, "N", 0,
	 "Batches of shared memory per feed (default: the daemon's choice)", 2},
	{"seed", KEY_SEED, "N", 0, "Seed of order and augmentation (default 1)", 2},
	{"stored-order", KEY_STORED_ORDER, 0, 0, "Do not shuffle", 2},
	{"wanted", KEY_WANTED, 0, 0, "Clients choose the samples of each batch (wanted feeds)", 2},
	{"defer", KEY_DEFER, 0, 0, "Leave the transforms that a device can do to the clients", 2},
	{"values", KEY_VALUES, "LIST", 0,
	 "Values of the datasets' schema to deliver in addition to images and labels, such as "
	 "mask,boxes",
	 2},
	{"mix", KEY_MIX, "SHARES", 0,
	 "Measure one feed of all datasets, mixed by these shares, one for each, such as 3,1", 2},
	{"where", KEY_WHERE, "FILTER", 0,
	 "Deliver only samples for which this holds, such as \"width >= 200\"; packimg(1), FILTERS",
	 2},
	{"blocks", KEY_BLOCKS, "SAMPLES,BLOCKS", 0,
	 "Shuffle blocks of so many samples, and the samples of so many blocks among themselves",
	 2},
	{"buckets", KEY_BUCKETS, "LIST", 0,
	 "Shapes of batches, such as 512x512,640x384, for a pipeline with bucket_resize", 2},
	{"batch-tokens", KEY_BATCH_TOKENS, "N", 0,
	 "Deliver as many samples in a batch as have N tokens together, for pipelines with "
	 "patch_resize",
	 2},
	{"tokens-field", KEY_TOKENS_FIELD, "NAME", 0,
	 "Count the integers of this column as tokens of a sample, too", 2},
	{"socket", KEY_SOCKET, "PATH", 0,
	 "Measure the daemon that listens there instead of private ones", 2},
	{"daemon", KEY_DAEMON, "PROGRAM", 0, "Program to start as private daemon", 2},
	{"no-reconnect", KEY_NO_RECONNECT, 0, 0, "Fail if a daemon goes away", 2},
	{"memcpy", KEY_MEMCPY, 0, 0, "Also measure this machine's memcpy at every point", 2},
	{0, 0, 0, 0, "Results:", 3},
	{"explain", KEY_EXPLAIN, 0, 0,
	 "Explain what limits the rate and what changes would gain, instead of the table", 3},
	{"json", KEY_JSON, "FILE", 0, "Also write JSON; - is standard output, instead of the table",
	 3},
	{"plot", KEY_PLOT, "FILE", 0, "Also write a plot (SVG)", 3},
	{0, 0, 0, 0, "Hash instead of measuring:", 4},
	{"hash", KEY_HASH, "N", 0, "Hash N batches at each point; differences are an error", 4},
	{"reopen", KEY_REOPEN, "LIST", 0,
	 "Close and reopen the feed after these numbers of batches", 4},
	{"kill", KEY_KILL, "LIST", 0,
	 "Kill the daemon after these numbers of batches and start another", 4},
	{0},
};

static unsigned long parse_number(struct argp_state *state, const char *option, const char *text,
				  unsigned long low, unsigned long high, char **ret_end)
{
	char *end;

	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (errno || end == text || *text == '-' || (*end && !(ret_end && *end == ',')) ||
	    value < low || value > high)
		argp_error(state, "--%s: \"%s\" must be a whole number from %lu to %lu%s", option,
			   text, low, high, ret_end ? ", or several separated by commas" : "");
	if (ret_end)
		*ret_end = end;
	return value;
}

static void parse_list(struct argp_state *state, const char *option, char *text, unsigned long low,
		       unsigned long high, struct list *list)
{
	list->count = 0;
	for (;; text++) {
		if (list->count == LIST_MAX)
			argp_error(state, "--%s: at most %d values", option, LIST_MAX);
		list->values[list->count++] =
			(unsigned)parse_number(state, option, text, low, high, &text);
		if (*text != ',')
			return;
	}
}

/* Splits WIDTHxHEIGHT,...; `text` is an argument of the program. */
static void parse_buckets(struct argp_state *state, char *text, struct arguments *arguments)
{
	char *rest = NULL;

	arguments->bucket_count = 0;
	for (char *shape = strtok_r(text, ",", &rest); shape; shape = strtok_r(NULL, ",", &rest)) {
		struct feed_bucket *bucket = &arguments->buckets[arguments->bucket_count];
		char *height = strchr(shape, 'x');

		if (arguments->bucket_count++ == BUCKETS_MAX)
			argp_error(state, "--buckets: at most %d shapes", BUCKETS_MAX);
		if (!height)
			argp_error(state,
				   "--buckets: \"%s\": expected width x height, as in 640x384",
				   shape);
		*height++ = '\0';
		bucket->width = (uint32_t)parse_number(state, "buckets", shape, 1, 65535, NULL);
		bucket->height = (uint32_t)parse_number(state, "buckets", height, 1, 65535, NULL);
	}
	if (arguments->bucket_count == 0)
		argp_error(state, "--buckets: no shape");
}

static double parse_seconds(struct argp_state *state, const char *option, const char *text,
			    double low)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= low && value <= 86400))
		argp_error(state, "--%s: \"%s\" must be a number of seconds from %g to 86400",
			   option, text, low);
	return value;
}

static void parse_isas(struct argp_state *state, char *text, struct arguments *arguments)
{
	arguments->isa_count = 0;
	for (char *name; (name = strsep(&text, ","));) {
		if (strcmp(name, "c") != 0 && strcmp(name, "avx2") != 0 &&
		    strcmp(name, "avx512bw") != 0 && strcmp(name, "avx512") != 0)
			argp_error(state, "--isa: \"%s\" is not one of c, avx2, avx512bw, avx512",
				   name);
		if (arguments->isa_count == LIST_MAX)
			argp_error(state, "--isa: at most %d values", LIST_MAX);
		arguments->isas[arguments->isa_count++] = name;
	}
}

static void parse_consume(struct argp_state *state, const char *text, struct settings *settings)
{
	static const char *const names[] = {"none", "read", "copy"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(text, names[i]) == 0) {
			settings->consume = (enum consume)i;
			return;
		}
	argp_error(state, "--consume: \"%s\" is not one of none, read, copy", text);
}

static bool has_order(const struct arguments *arguments)
{
	return arguments->shares.count || arguments->where || arguments->blocks.count ||
	       arguments->bucket_count || arguments->batch_tokens;
}

/* Orders of the points: one of all datasets with --mix, else one for each if they need any. */
static void make_orders(struct argp_state *state, struct arguments *arguments)
{
	size_t count = arguments->dataset_count, shares = arguments->shares.count;
	const unsigned *blocks = arguments->blocks.values;

	if (arguments->tokens_field && !arguments->batch_tokens)
		argp_error(state, "--tokens-field requires --batch-tokens");
	if (shares && shares != count)
		argp_error(state, "--mix: %zu shares for %zu datasets", shares, count);
	for (size_t i = 0; i < count; i++) {
		arguments->parts[i] = (struct feed_part){.size = sizeof(arguments->parts[i]),
							 .dataset = arguments->datasets[i],
							 .where = arguments->where};
		arguments->part_list[i] = &arguments->parts[i];
		arguments->orders[i] = (struct feed_order){.size = sizeof(arguments->orders[i]),
							   .parts = &arguments->part_list[i],
							   .part_count = 1,
							   .block_samples = blocks[0],
							   .group_blocks = blocks[1],
							   .buckets = arguments->buckets,
							   .bucket_count = arguments->bucket_count,
							   .batch_tokens = arguments->batch_tokens,
							   .tokens_field = arguments->tokens_field};
		arguments->part_shares[i] = arguments->shares.values[i];
	}
	if (!shares)
		return;
	arguments->stage.shares = arguments->part_shares;
	arguments->orders[0].part_count = (uint32_t)count;
	arguments->orders[0].stages = count > 1 ? &arguments->stage : NULL;
	arguments->orders[0].stage_count = count > 1;
	arguments->dataset_count = 1;
}

/*
 * Splits DATASET... [PIPELINE]: the last of several arguments is the pipeline, unless --pipeline
 * sets it.
 */
static void split_positional(struct argp_state *state, struct arguments *arguments)
{
	size_t count = arguments->positional_count;

	if (!arguments->pipeline && count > 1)
		arguments->pipeline = arguments->positional[--count];
	if (!arguments->pipeline)
		arguments->pipeline = default_pipeline;
	if (!count)
		argp_error(state, "a dataset is required");
	for (size_t i = 0; i < count; i++)
		arguments->datasets[arguments->dataset_count++] = arguments->positional[i];
	if (!!strstr(arguments->pipeline, "{size}") != !!arguments->sizes.count)
		argp_error(state, "--size requires a pipeline with {size}, such as "
				  "\"random_resized_crop({size})\"");
	if (arguments->settings.socket &&
	    (arguments->threads.count || arguments->isa_count || arguments->kill.count))
		argp_error(state, "--threads, --isa and --kill require private daemons and cannot "
				  "be combined with --socket");
	if (arguments->explain && (arguments->hash || arguments->isa_count))
		argp_error(state, "--explain cannot be combined with --hash or --isa; for another "
				  "instruction set, set LOADERD_ISA");
	if ((arguments->reopen.count || arguments->kill.count) && !arguments->hash)
		argp_error(state, "--reopen and --kill require --hash");
	if (arguments->settings.wanted && has_order(arguments))
		argp_error(state, "--wanted cannot be combined with --mix, --where, --blocks, "
				  "--buckets or --batch-tokens: its clients choose the samples");
	if (arguments->shares.count && (arguments->bucket_count || arguments->batch_tokens))
		argp_error(state, "--buckets and --batch-tokens cannot be combined with --mix: a "
				  "mixture has no buckets or packs");
	make_orders(state, arguments);
}

/* Splits a list of names; `text` is an argument of the program and lives as long as it. */
static void parse_values(struct argp_state *state, char *text, struct settings *settings)
{
	enum { VALUES_MAX = 64 };
	static const char *values[VALUES_MAX];
	char *rest = NULL;

	settings->value_count = 0;
	for (char *name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		if (settings->value_count == VALUES_MAX)
			argp_error(state, "--values: at most %d names", VALUES_MAX);
		values[settings->value_count++] = name;
	}
	if (settings->value_count == 0)
		argp_error(state, "--values: no name");
	settings->values = values;
}

/* Options of the order. */
static error_t parse_order(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case KEY_MIX:
		parse_list(state, "mix", text, 1, 65536, &arguments->shares);
		return 0;
	case KEY_WHERE:
		arguments->where = text;
		return 0;
	case KEY_BLOCKS:
		parse_list(state, "blocks", text, 1, UINT32_MAX, &arguments->blocks);
		if (arguments->blocks.count != 2)
			argp_error(state,
				   "--blocks: \"%s\" is not two numbers, samples of a block "
				   "and blocks of a group",
				   text);
		return 0;
	case KEY_BUCKETS:
		parse_buckets(state, text, arguments);
		return 0;
	case KEY_BATCH_TOKENS:
		arguments->batch_tokens =
			(uint32_t)parse_number(state, "batch-tokens", text, 1, 1 << 28, NULL);
		return 0;
	case KEY_TOKENS_FIELD:
		arguments->tokens_field = text;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_measuring(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	struct settings *settings = &arguments->settings;

	switch (key) {
	case KEY_PIPELINE:
		arguments->pipeline = text;
		return 0;
	case KEY_SECONDS:
		settings->window_s = parse_seconds(state, "seconds", text, 0.01);
		return 0;
	case KEY_WARMUP:
		settings->warmup_s = parse_seconds(state, "warmup", text, 0);
		return 0;
	case KEY_ROUNDS:
		arguments->rounds =
			(unsigned)parse_number(state, "rounds", text, 1, ROUNDS_MAX, NULL);
		return 0;
	case KEY_CONSUME:
		parse_consume(state, text, settings);
		return 0;
	case KEY_STEP:
		settings->step_s =
			(double)parse_number(state, "step", text, 0, 3600000, NULL) * 1e-3;
		return 0;
	case KEY_SLOTS:
		settings->slots = (uint32_t)parse_number(state, "slots", text, 1, 256, NULL);
		return 0;
	case KEY_SEED:
		settings->seed = parse_number(state, "seed", text, 0, ULONG_MAX, NULL);
		return 0;
	case KEY_STORED_ORDER:
		settings->stored_order = 1;
		return 0;
	case KEY_WANTED:
		settings->wanted = 1;
		return 0;
	case KEY_DEFER:
		settings->defers = 1;
		return 0;
	case KEY_VALUES:
		parse_values(state, text, settings);
		return 0;
	case KEY_SOCKET:
		settings->socket = text;
		return 0;
	case KEY_NO_RECONNECT:
		settings->no_reconnect = 1;
		return 0;
	case KEY_DAEMON:
		settings->daemon = text;
		return 0;
	case KEY_MEMCPY:
		arguments->memcpy = 1;
		return 0;
	default:
		return parse_order(key, text, state);
	}
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case KEY_BATCH:
		parse_list(state, "batch", text, 1, 1 << 20, &arguments->batches);
		return 0;
	case KEY_THREADS:
		parse_list(state, "threads", text, 1, POINT_THREADS_MAX, &arguments->threads);
		return 0;
	case KEY_CLIENTS:
		parse_list(state, "clients", text, 1, POINT_CLIENTS_MAX, &arguments->clients);
		return 0;
	case KEY_SIZE:
		parse_list(state, "size", text, 1, 65535, &arguments->sizes);
		return 0;
	case KEY_REOPEN:
		parse_list(state, "reopen", text, 1, UINT_MAX, &arguments->reopen);
		return 0;
	case KEY_KILL:
		parse_list(state, "kill", text, 1, UINT_MAX, &arguments->kill);
		return 0;
	case KEY_ISA:
		parse_isas(state, text, arguments);
		return 0;
	case KEY_EXPLAIN:
		arguments->explain = 1;
		return 0;
	case KEY_JSON:
		arguments->json = text;
		return 0;
	case KEY_PLOT:
		arguments->plot = text;
		return 0;
	case KEY_HASH:
		arguments->hash = parse_number(state, "hash", text, 1, ULONG_MAX, NULL);
		return 0;
	case ARGP_KEY_ARG:
		if (arguments->positional_count == LIST_MAX)
			argp_error(state, "at most %d datasets", LIST_MAX);
		arguments->positional[arguments->positional_count++] = text;
		return 0;
	case ARGP_KEY_END:
		split_positional(state, arguments);
		return 0;
	default:
		return parse_measuring(key, text, state);
	}
}

/* Replaces every {size} in the pipeline; the caller frees the result. */
static char *expand(const char *pipeline, unsigned size)
{
	size_t capacity = strlen(pipeline) * 2 + 1;
	char *text = malloc(capacity), *end = text;

	while (text && *pipeline) {
		if (size && strncmp(pipeline, "{size}", 6) == 0) {
			end += snprintf(end, capacity - (size_t)(end - text), "%u", size);
			pipeline += 6;
		} else {
			*end++ = *pipeline++;
		}
	}
	if (text)
		*end = '\0';
	return text;
}

static unsigned value_or_default(const struct list *list, size_t i, unsigned otherwise)
{
	return list->count ? list->values[i] : otherwise;
}

static size_t at_least_one(size_t count)
{
	return count ? count : 1;
}

/*
 * Lists every combination; the dataset varies slowest, the batch size fastest. Pipelines are freed
 * with the rows.
 */
static int list_points(const struct arguments *arguments, struct row **ret_rows, size_t *ret_count)
{
	size_t sizes = at_least_one(arguments->sizes.count),
	       isas = at_least_one(arguments->isa_count);
	size_t threads = at_least_one(arguments->threads.count),
	       clients = at_least_one(arguments->clients.count);
	size_t batches = at_least_one(arguments->batches.count);
	size_t count = arguments->dataset_count * sizes * isas * threads * clients * batches;

	if (count > POINTS_MAX) {
		fprintf(stderr, "loaderbench: %zu combinations are too many, the limit is %d\n",
			count, POINTS_MAX);
		return -E2BIG;
	}
	struct row *rows = calloc(count, sizeof(*rows));
	for (size_t i = 0; rows && i < count; i++) {
		size_t rest = i;
		struct point *point = &rows[i].point;

		point->batch_size = value_or_default(&arguments->batches, rest % batches, 256);
		rest /= batches;
		point->clients = value_or_default(&arguments->clients, rest % clients, 1);
		rest /= clients;
		point->threads = value_or_default(&arguments->threads, rest % threads, 0);
		rest /= threads;
		point->isa = arguments->isa_count ? arguments->isas[rest % isas] : NULL;
		rest /= isas;
		point->size = value_or_default(&arguments->sizes, rest % sizes, 0);
		rest /= sizes;
		point->dataset = arguments->datasets[rest];
		if (has_order(arguments))
			point->order = &arguments->orders[rest];
		point->pipeline = expand(arguments->pipeline, point->size);
		if (!point->pipeline)
			return -ENOMEM;
	}
	if (!rows)
		return -ENOMEM;
	*ret_rows = rows;
	*ret_count = count;
	return 0;
}

static void progress(size_t done, size_t all)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (done < all)
		fprintf(stderr, "\r%zu of %zu ", done + 1, all);
	else
		fprintf(stderr, "\r\033[K");
}

/* Measures all rounds of all points; skips a point that has failed once. */
static int measure(const struct arguments *arguments, struct row *rows, size_t count)
{
	struct measurement *rounds = calloc(count * arguments->rounds, sizeof(*rounds));
	int r = 0;

	if (!rounds)
		return -ENOMEM;
	for (size_t i = 0; i < count * arguments->rounds; i++) {
		struct row *row = &rows[i % count];
		struct measurement *m = &rounds[i % count * arguments->rounds + i / count];

		if (row->error)
			continue;
		progress(i, count * arguments->rounds);
		row->error = point_measure(&arguments->settings, &row->point, m, row->text);
		if (row->error || !arguments->memcpy)
			continue;
		double bandwidth = copy_measure(m->threads, fmin(arguments->settings.window_s, 1));

		m->memcpy_bytes_per_s = bandwidth > 0 ? bandwidth : 0;
	}
	progress(1, 1);
	for (size_t i = 0; i < count; i++) {
		if (rows[i].error)
			r = rows[i].error;
		else
			report_summarise(&rounds[i * arguments->rounds], arguments->rounds,
					 &rows[i]);
	}
	free(rounds);
	return r;
}

static int write_to(const char *path, const struct report *report,
		    int (*write)(const struct report *, FILE *))
{
	FILE *file = strcmp(path, "-") != 0 ? fopen(path, "we") : stdout;
	int r = file ? write(report, file) : -errno;

	if (file && file != stdout && fclose(file) && !r)
		r = -errno;
	if (r)
		printable_line(stderr, "loaderbench: %s: %s", path, strerror(-r));
	return r;
}

/* Explains each point. A failure counts as a failed measurement. */
static int explain(const struct arguments *arguments, struct row *rows, size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count; i++) {
		struct row *row = &rows[i];

		if (row->error)
			continue;
		row->explanation = calloc(1, sizeof(*row->explanation));
		row->error = row->explanation ? explanation_make(&arguments->settings, &row->point,
								 row->resident, &row->median,
								 row->explanation, row->text)
					      : -ENOMEM;
		r = row->error ? row->error : r;
	}
	return r;
}

static void write_explanation(const struct report *report, FILE *out)
{
	for (size_t i = 0; i < report->count; i++) {
		const struct row *row = &report->rows[i];

		if (i > 0)
			fputc('\n', out);
		if (row->error)
			printable_line(out, "%s: %s", row->point.dataset, row->text);
		else
			explanation_text(row->explanation, out);
	}
}

static int measure_and_report(const struct arguments *arguments, struct row *rows, size_t count)
{
	struct report report = {.settings = &arguments->settings,
				.pipeline = arguments->pipeline,
				.rows = rows,
				.count = count};

	for (size_t i = 0; arguments->explain && i < count; i++)
		rows[i].resident = whatif_resident(rows[i].point.dataset);
	int r = measure(arguments, rows, count);
	if (arguments->explain && explain(arguments, rows, count))
		r = -EIO;
	if (arguments->json && strcmp(arguments->json, "-") == 0)
		;
	else if (arguments->explain)
		write_explanation(&report, stdout);
	else
		report_table(&report, stdout);
	if (arguments->json && write_to(arguments->json, &report, report_json))
		r = -EIO;
	if (arguments->plot && write_to(arguments->plot, &report, plot_write))
		r = -EIO;
	return r;
}

/* Returns nonzero for points that must have equal hashes. */
static int same_input(const struct point *a, const struct point *b)
{
	return strcmp(a->dataset, b->dataset) == 0 && strcmp(a->pipeline, b->pipeline) == 0 &&
	       a->batch_size == b->batch_size;
}

static int hash(const struct arguments *arguments, struct row *rows, size_t count)
{
	struct digest_schedule plan = {
		.batches = arguments->hash,
		.reopen = arguments->reopen.values,
		.reopen_count = arguments->reopen.count,
		.kill = arguments->kill.values,
		.kill_count = arguments->kill.count,
	};
	int r = 0, differ = 0;

	for (size_t i = 0; i < count; i++) {
		struct row *row = &rows[i];
		char threads[16] = "default", error[FEED_ERROR_MAX];

		if (row->point.threads)
			snprintf(threads, sizeof(threads), "%u", row->point.threads);
		snprintf(error, sizeof(error), "%s", row->text);
		if (!row->error)
			row->error = digest_measure(&arguments->settings, &row->point, &plan,
						    row->text, error);
		printable_line(stdout, "%s  batch %u, threads %s, isa %s, %s, %s",
			       row->error ? error : row->text, row->point.batch_size, threads,
			       row->point.isa ? row->point.isa : "best", row->point.dataset,
			       row->point.pipeline);
		fflush(stdout);
		if (row->error) {
			r = row->error;
			continue;
		}
		for (size_t j = 0; j < i; j++)
			if (!rows[j].error && same_input(&row->point, &rows[j].point) &&
			    strcmp(row->text, rows[j].text) != 0)
				differ = 1;
	}
	if (differ)
		printf("DIFFERENT: points with the same dataset, pipeline and batch size must have "
		       "the same hash\n");
	else if (!r && count > 1)
		printf("all agree\n");
	return r ? r : differ;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "DATASET... [PIPELINE]",
		.doc = "Measure how fast loaderd delivers batches, without a model.\vLIST is one "
		       "number, or several separated by commas. PIPELINE defaults to "
		       "\"random_resized_crop(224) hflip\"; an empty one delivers the stored "
		       "pixels.",
	};
	struct arguments arguments = {.settings = {.warmup_s = 1, .window_s = 5, .seed = 1},
				      .rounds = 1};
	struct packimg_error error;
	char mistake[FEED_ERROR_MAX];
	struct row *rows = NULL;
	size_t count = 0;
	int r, wrong; /* number of failed points; negative if there is nothing to measure */

	argp_err_exit_status = 2;
	argp_program_version = "loaderbench " LOADERBENCH_VERSION;
	options_parse(&argp, argc, argv, &arguments);
	if (packimg_isa_check(&error)) {
		printable_line(stderr, "loaderbench: %s", error.text);
		return 2;
	}
	r = list_points(&arguments, &rows, &count);
	wrong = r ? 0 : precheck_points(&arguments.settings, rows, count, mistake);
	if (wrong)
		printable_line(stderr, "loaderbench: %s", mistake);
	if (!r && wrong >= 0)
		r = arguments.hash ? hash(&arguments, rows, count)
				   : measure_and_report(&arguments, rows, count);
	for (size_t i = 0; rows && i < count; i++) {
		free((char *)rows[i].point.pipeline);
		free(rows[i].explanation);
	}
	free(rows);
	return wrong < 0 ? 2 : r ? 1 : 0;
}
