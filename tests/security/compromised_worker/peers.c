#include "tests/security/compromised_worker/peers.h"

#include "proto/client/feed.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/security/compromised_worker/agent.h"
#include "tests/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum {
	WILD = -10000, /* result of a peer that received impossible data */
	BATCH_SIZE = 8,
	SLOTS = 4,
	VALUE_SIZE = 16,
	PATIENCE_MS = 60000, /* timeout of peers that expect more data */
	TIME_MAX_MS =
		100000, /* limit for peers that give up after half a second, on a loaded machine */
	HANGS_MS = 240000,
	MEMORY_MAX_KIB = 1 << 20,
	OUTPUT_MAX = 32 << 20,
};

struct row {
	char kind[16], name[256];
	int expected, patience_ms;
	unsigned batches;
};

struct verdict {
	int code;
	unsigned batches, reconnects;
	long ms;
	char text[FEED_ERROR_MAX];
};

static int fail_peer(struct verdict *verdict, const char *what)
{
	verdict->code = WILD;
	snprintf(verdict->text, sizeof(verdict->text), "%s", what);
	return WILD;
}

/*
 * Returns true if the text is safe for a terminal: it has no control characters of one or two
 * bytes.
 */
static bool is_printable(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)text[i], next = (unsigned char)text[i + 1];
		if ((c < ' ' && c != '\n') || c == 0x7f ||
		    (c == 0xc2 && next >= 0x80 && next < 0xa0))
			return false;
	}
	return true;
}

/* ---- a feed ---- */

struct client {
	struct feed *feed;
	struct feed_info info;
	uint64_t epoch, batch; /* number of the next batch */
	volatile uint64_t sum;
	bool has_values; /* requested values, not fields */
	int rows_error;  /* negative errno of feed_rows(), which does not end the feed */
};

/* Reads the range and returns true if it is within the ring. */
static bool lies_within(struct client *client, const void *from, uint64_t size)
{
	const char *begin = client->info.memory, *at = from;
	if (at < begin || (uint64_t)(at - begin) > client->info.memory_size ||
	    size > client->info.memory_size - (uint64_t)(at - begin))
		return false;
	for (uint64_t i = 0; i < size; i++)
		client->sum += (unsigned char)at[i];
	return true;
}

/* Reads all sections of a batch. An invalid list of rows fails only the access to that list. */
static const char *find_section_error(struct client *client, const struct feed_batch *b)
{
	for (uint32_t s = 0; s < client->info.section_count; s++) {
		struct feed_section section = {.size = sizeof(section)};
		const void *rows;
		if (feed_section(client->feed, b, s, &section) < 0)
			return "no section of a held batch";
		if (!is_printable(section.schema, strlen(section.schema)))
			return "a schema with control characters";
		if (!lies_within(client, section.data, section.bytes))
			return "a section out of the ring";
		for (uint32_t i = 0; section.kind == FEED_RAGGED && i < b->count; i++) {
			int64_t count = feed_rows(&section, i, &rows);
			if (count < 0)
				client->rows_error = (int)count;
			else if (!lies_within(client, rows, (uint64_t)count * section.row) ||
				 (const char *)rows + (uint64_t)count * section.row >
					 (const char *)section.data + section.bytes)
				return "rows out of their section";
		}
	}
	return NULL;
}

static const char *find_error(struct client *client, const struct feed_batch *b)
{
	static const unsigned sizes[] = {0, 1, 2, 2, 4};
	static const enum feed_field_type types[] = {FEED_INT64, FEED_BYTES};
	static const size_t strides[] = {8, sizeof(uint32_t) + VALUE_SIZE};
	feed_info(client->feed, &client->info);
	if (b->count < 1 || b->count > BATCH_SIZE || b->element < 1 || b->element > 4 ||
	    b->layout < 1 || b->layout > 2 || b->channels < 3 || b->channels > 4)
		return "wild numbers in a batch";
	if (b->image_bytes == 0 ||
	    (__uint128_t)b->height * b->width * b->count * b->channels * sizes[b->element] !=
		    b->image_bytes)
		return "sizes that contradict each other";
	if (b->epoch != client->epoch || b->batch != client->batch ||
	    b->last != (b->batch + 1 == client->info.batches_per_epoch))
		return "a batch that is not the next";
	if (b->reconnects != client->info.reconnects)
		return "a batch of another ring";
	if (!lies_within(client, b->images, b->image_bytes) ||
	    !lies_within(client, b->labels, b->count * sizeof(*b->labels)) ||
	    !lies_within(client, b->samples, b->count * sizeof(*b->samples)) ||
	    !lies_within(client, b->flags, b->count))
		return "a pointer out of the ring";
	const char *wrong =
		b->count > 0 && client->has_values ? find_section_error(client, b) : NULL;
	if (wrong)
		return wrong;
	for (uint32_t i = 0; i < 2 && !client->has_values; i++) {
		struct feed_field field;
		if (feed_field(client->feed, b, i, &field) < 0 || field.type != types[i] ||
		    field.stride != strides[i] ||
		    !lies_within(client, field.values, field.stride * b->count))
			return "a field that was not asked for";
	}
	client->batch = b->last ? 0 : b->batch + 1;
	client->epoch += b->last;
	return NULL;
}

static void take_batches(struct client *client, const struct row *row, struct verdict *verdict)
{
	struct feed_batch first = {.size = sizeof(first)};
	int timeout_ms = row->patience_ms != 0 ? row->patience_ms : PATIENCE_MS;
	while (verdict->code == 0 && verdict->batches < row->batches) {
		struct feed_batch batch = {.size = sizeof(batch)};
		verdict->code = feed_next(client->feed, timeout_ms, &batch);
		if (verdict->code != 0)
			break;
		verdict->batches++;
		const char *wrong = find_error(client, &batch);
		if (wrong)
			fail_peer(verdict, wrong);
		else if (client->rows_error < 0) {
			verdict->code = client->rows_error;
			snprintf(verdict->text, sizeof(verdict->text), "A list of rows is wrong.");
		}
		if (verdict->batches == 1)
			first = batch;
		else if (feed_release(client->feed, &batch) != 0)
			fail_peer(verdict, "a batch that cannot be released");
	}
	if (verdict->code == FEED_END)
		verdict->code = 0;
	if (verdict->code < 0 && verdict->code != WILD && verdict->text[0] == '\0')
		snprintf(verdict->text, sizeof(verdict->text), "%s", feed_error(client->feed));
	/*
	 * The first batch is held all the time: its memory must stay mapped, whatever its contents.
	 */
	for (size_t i = 0; verdict->batches > 0 && i < first.image_bytes; i++)
		client->sum += ((const unsigned char *)first.images)[i];
	if (verdict->batches > 0 && feed_release(client->feed, &first) != 0)
		fail_peer(verdict, "the first batch cannot be released");
	verdict->reconnects = (unsigned)client->info.reconnects;
}

static void try_feed(const struct peers *peers, const struct row *row, struct verdict *verdict)
{
	static const char *const fields[] = {"number", "word"}, *const values[] = {"word", "boxes"};
	struct client client = {.info = {.size = sizeof(client.info)},
				.has_values = strcmp(row->kind, "values") == 0};
	struct feed_options options;
	feed_options_init(&options);
	options.socket = peers->socket;
	options.dataset = peers->dataset;
	options.batch_size = BATCH_SIZE;
	options.slots = SLOTS;
	if (client.has_values) {
		options.values = values;
		options.value_count = 2;
	} else {
		options.fields = fields;
		options.field_count = 2;
	}
	options.field_bytes = VALUE_SIZE;
	/* without cut_values, a cut flag, which the daemon controls, would end the feed */
	options.cut_values = 1;
	options.open_timeout_ms =
		(uint32_t)(row->patience_ms != 0 ? row->patience_ms : PATIENCE_MS);
	options.reconnect_timeout_ms = row->patience_ms != 0 ? 2000 : 0;
	verdict->code = feed_open(&options, &client.feed, verdict->text);
	if (verdict->code < 0)
		return;
	take_batches(&client, row, verdict);
	feed_close(client.feed);
}

/* ---- a dataset ---- */

static void try_dataset(const struct peers *peers, struct verdict *verdict)
{
	struct feed_dataset *facts;
	verdict->code = feed_dataset(peers->socket, peers->dataset, &facts, verdict->text);
	if (verdict->code < 0)
		return;
	size_t size = strlen(facts->metadata);
	for (uint32_t i = 0; i < facts->classes; i++)
		size += strlen(facts->class_names[i]);
	for (uint32_t i = 0; i < facts->field_count; i++) {
		size += strlen(facts->fields[i].name);
		if (facts->fields[i].type > FEED_TEXT)
			fail_peer(verdict, "a field of an unknown type");
	}
	for (int i = 0; i < 3 && facts->has_statistics; i++)
		if (!(facts->mean[i] >= -1e308 && facts->mean[i] <= 1e308 &&
		      facts->std[i] >= -1e308 && facts->std[i] <= 1e308))
			fail_peer(verdict, "statistics that are not numbers");
	if (size > 1 << 20)
		fail_peer(verdict, "texts longer than a message");
	feed_dataset_free(facts);
}

/* ---- loaderctl ---- */

/*
 * Runs loaderctl and checks all of its output. Returns the exit status, or -1 if a signal killed
 * it.
 */
static int run_loaderctl(int program, const char *socket, const char *const *words,
			 struct verdict *verdict)
{
	const char *arguments[8] = {"loaderctl", "--socket", socket};
	int ends[2], status;
	for (unsigned i = 0; words[i]; i++)
		arguments[3 + i] = words[i];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		fexecve(program, (char **)arguments, environ);
		_exit(127);
	}
	close(ends[1]);
	char *output = malloc(OUTPUT_MAX + 1);
	size_t size = 0;
	ssize_t n;
	while (size < OUTPUT_MAX && (n = read(ends[0], output + size, OUTPUT_MAX - size)) > 0)
		size += (size_t)n;
	close(ends[0]);
	output[size] = '\0';
	waitpid(pid, &status, 0);
	if (size == OUTPUT_MAX)
		fail_peer(verdict, "endless output");
	if (!is_printable(output, size))
		fail_peer(verdict, "control characters on a terminal");
	if (size == 0)
		fail_peer(verdict, "not a word");
	if (verdict->code == 0)
		snprintf(verdict->text, sizeof(verdict->text), "%.*s", (int)strcspn(output, "\n"),
			 output);
	free(output);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void try_loaderctl(const struct peers *peers, const struct row *row, int program,
			  const char *const commands[4][4], struct verdict *verdict)
{
	for (unsigned i = 0; i < 4 && commands[i][0] && verdict->code == 0; i++) {
		int status = run_loaderctl(program, peers->socket, commands[i], verdict);
		if (verdict->code == 0 && status != (row->expected != 0))
			fail_peer(verdict, "loaderctl ended with an unexpected status");
	}
	if (verdict->code == 0)
		verdict->code = -row->expected;
}

/* ---- all ---- */

static void try_kind(const struct peers *peers, const struct row *row, int program,
		     struct verdict *verdict)
{
	const char *const status[4][4] = {
		{"status"}, {"status", "--json"}, {"bad"}, {"bad", "--json"}};
	const char *const dataset[4][4] = {{"dataset", peers->dataset},
					   {"dataset", peers->dataset, "--json"}};
	struct rusage usage;
	struct timespec begin, end;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (strcmp(row->kind, "feed") == 0 || strcmp(row->kind, "values") == 0) {
		try_feed(peers, row, verdict);
	} else if (strcmp(row->kind, "dataset") == 0) {
		struct verdict asked = {0};
		try_dataset(peers, verdict);
		try_loaderctl(peers, row, program, dataset, &asked);
		if (asked.code == WILD)
			*verdict = asked;
	} else {
		try_loaderctl(peers, row, program, status, verdict);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	verdict->ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
	if (verdict->ms > TIME_MAX_MS)
		fail_peer(verdict, "no end within the time limit");
	if (verdict->code < 0 && verdict->text[0] == '\0')
		fail_peer(verdict, "an error without a text");
	if (!is_printable(verdict->text, strlen(verdict->text)))
		fail_peer(verdict, "a text with control characters");
	getrusage(RUSAGE_SELF, &usage);
	long most = usage.ru_maxrss;
	getrusage(RUSAGE_CHILDREN, &usage);
	if (most > MEMORY_MAX_KIB || usage.ru_maxrss > MEMORY_MAX_KIB)
		fail_peer(verdict, "memory above the limit");
}

/* Runs the peer in a separate process, as the worker's user. */
static bool send_peer(const struct peers *peers, const struct row *row, struct verdict *verdict)
{
	int ends[2], status = -1;
	int program = open(peers->loaderctl, O_RDONLY | O_CLOEXEC);
	assert_true(program >= 0 && pipe2(ends, O_CLOEXEC) == 0);
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
		struct verdict own = {0};
		/* cmocka would catch the signal and run the next test in this process. */
		for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
			signal(faults[i], SIG_DFL);
		fixture_become(peers->uid);
		try_kind(peers, row, program, &own);
		exit(write(ends[1], &own, sizeof(own)) == sizeof(own) ? 0 : 1);
	}
	close(ends[1]);
	close(program);
	struct pollfd p = {.fd = ends[0], .events = POLLIN};
	bool in_time = poll(&p, 1, HANGS_MS) == 1;
	if (!in_time)
		kill(pid, SIGKILL);
	bool told = read(ends[0], verdict, sizeof(*verdict)) == sizeof(*verdict);
	close(ends[0]);
	waitpid(pid, &status, 0);
	if (told && status == 0)
		return true;
	*verdict = (struct verdict){.code = WILD};
	snprintf(verdict->text, sizeof(verdict->text),
		 in_time ? "it ended with status %#x" : "it hangs", (unsigned)status);
	return false;
}

static bool read_row(int fd, struct row *ret_row)
{
	char line[512];
	size_t size = 0;
	while (size < sizeof(line) - 1 && read(fd, line + size, 1) == 1 && line[size] != '\n')
		size++;
	line[size] = '\0';
	if (strcmp(line, AGENT_END) == 0)
		ret_row->kind[0] = '\0';
	else if (sscanf(line, "row %15s %d %d %u %255[^\n]", ret_row->kind, &ret_row->expected,
			&ret_row->patience_ms, &ret_row->batches, ret_row->name) != 5)
		return false;
	return true;
}

int peers_try(const struct peers *peers, int commander)
{
	struct row row;
	struct verdict verdict = {0};
	char rest[512];
	ssize_t n;
	if (!read_row(commander, &row))
		return -EAGAIN;
	if (row.kind[0] == '\0')
		return -ENOENT;
	bool good = send_peer(peers, &row, &verdict) && verdict.code != WILD &&
		    (row.expected == AGENT_ANY || verdict.code == -row.expected);
	print_message("  %s %s, %s, after %ld ms: ", good ? "ok" : "BAD", row.kind, row.name,
		      verdict.ms);
	if (verdict.code == 0 && strcmp(row.kind, "feed") == 0)
		print_message("goes on, %u batches, %u reconnects\n", verdict.batches,
			      verdict.reconnects);
	else if (verdict.code == 0)
		print_message("goes on\n");
	else
		print_message("%s, %.*s\n",
			      verdict.code == WILD ? "WILD" : strerrorname_np(-verdict.code),
			      (int)strcspn(verdict.text, "\n"), verdict.text);
	/* Further lines of the worker that contain BAD fail the row. */
	(void)!write(commander, "!", 1);
	while ((n = read(commander, rest, sizeof(rest) - 1)) > 0) {
		rest[n] = '\0';
		if (strstr(rest, "BAD")) {
			print_message("  %s", rest);
			good = false;
		}
		if (strstr(rest, AGENT_END "\n"))
			break;
	}
	return !good;
}
