/* log.jsonl: strict JSON, losses that read back bit for bit, and truncation by a resumed run. */
#include "tests/test.h"
#include "trainer/log/append_file.h"
#include "trainer/log/metrics_log.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char path[] = "/tmp/test_metrics_log.XXXXXX", error[METRICS_LOG_ERROR_MAX];

static int setup(void **state)
{
	int fd = mkstemp(path);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

static int teardown(void **state)
{
	return unlink(path);
}

static size_t read_all(char *text, size_t size)
{
	FILE *file = fopen(path, "r");
	size_t n = fread(text, 1, size - 1, file);
	fclose(file);
	text[n] = '\0';
	return n;
}

static void line(struct metrics_log *metrics, const char *event, uint64_t step)
{
	metrics_log_begin(metrics, event, step);
	assert_int_equal(metrics_log_end(metrics), 0);
}

TEST(values)
{
	char text[4096];
	struct metrics_log *metrics;
	double loss = 0.1 + 0.2, tiny = 0x1.23456789abcdep-1030;
	assert_int_equal(metrics_log_open(path, &metrics, error), 0);
	assert_int_equal(metrics_log_truncate(metrics, 0, true), 0);
	metrics_log_begin(metrics, "step", 18446744073709551ull);
	metrics_log_exact(metrics, "loss", loss);
	metrics_log_exact(metrics, "tiny", tiny);
	metrics_log_exact(metrics, "bad", NAN);
	metrics_log_number(metrics, "lr", 0.1);
	metrics_log_number(metrics, "infinite", INFINITY);
	metrics_log_count(metrics, "count", 12);
	metrics_log_text(metrics, "text", "a \"b\"\n\x01 \xc3\xa9");
	metrics_log_text(metrics, "not_utf8", "\xff");
	assert_int_equal(metrics_log_end(metrics), 0);
	metrics_log_close(metrics);
	size_t n = read_all(text, sizeof(text));
	assert_true(text[n - 1] == '\n' && !memchr(text, '\n', n - 1));
	json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(json);
	assert_string_equal(json_string_value(json_object_get(json, "event")), "step");
	assert_int_equal(json_integer_value(json_object_get(json, "step")), 18446744073709551ll);
	assert_true(json_real_value(json_object_get(json, "loss")) == loss);
	assert_true(json_real_value(json_object_get(json, "tiny")) == tiny);
	assert_true(strtod(json_string_value(json_object_get(json, "tiny_hex")), NULL) == tiny);
	assert_true(json_is_null(json_object_get(json, "bad")));
	assert_true(json_is_null(json_object_get(json, "infinite")));
	assert_true(json_number_value(json_object_get(json, "lr")) == 0.1);
	assert_string_equal(json_string_value(json_object_get(json, "text")),
			    "a \"b\"\n\x01 \xc3\xa9");
	assert_true(json_is_null(json_object_get(json, "not_utf8")));
	json_decref(json);
}

TEST(resume_cuts)
{
	char text[4096];
	struct metrics_log *metrics;
	assert_int_equal(metrics_log_open(path, &metrics, error), 0);
	assert_int_equal(metrics_log_truncate(metrics, 0, true), 0);
	line(metrics, "start", 0);
	line(metrics, "step", 5);
	struct metrics_log *second;
	assert_true(metrics_log_open(path, &second, error) < 0);
	assert_non_null(strstr(error, "another trainer"));
	assert_non_null(strstr(error, "lslocks"));
	line(metrics, "checkpoint", 5);
	line(metrics, "step", 6);
	line(metrics, "step", 7);
	metrics_log_close(metrics);
	FILE *file = fopen(path, "a");
	fputs("{\"event\":\"step\",\"step\":8,\"lo", file);
	fclose(file);
	assert_int_equal(metrics_log_open(path, &metrics, error), 0);
	assert_int_equal(metrics_log_truncate(metrics, 5, false), 0);
	line(metrics, "resume", 5);
	metrics_log_close(metrics);
	read_all(text, sizeof(text));
	int lines = 0;
	const char *last = NULL;
	for (char *l = strtok(text, "\n"); l; l = strtok(NULL, "\n"), lines++)
		last = l;
	assert_int_equal(lines, 4);
	assert_non_null(strstr(last, "resume"));
}

static int synced = -1, sync_error;
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	synced = fd;
	errno = sync_error;
	return sync_error ? -1 : 0;
}

/* Syncs complete lines, and reports the disk's errors. */
TEST(synchronized)
{
	char link[64], target[256] = "";
	struct metrics_log *metrics;
	assert_int_equal(metrics_log_sync(NULL), 0);
	assert_int_equal(synced, -1);
	assert_int_equal(metrics_log_open(path, &metrics, error), 0);
	line(metrics, "step", 1);
	assert_int_equal(metrics_log_sync(metrics), 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", synced);
	assert_true(readlink(link, target, sizeof(target) - 1) > 0);
	assert_string_equal(target, path);
	sync_error = EIO;
	assert_int_equal(metrics_log_sync(metrics), -EIO);
	sync_error = 0;
	metrics_log_close(metrics);
}

/* A line that does not fit on the disk leaves no partial line. */
TEST(line_that_does_not_fit)
{
	char text[4096];
	struct metrics_log *metrics;
	struct rlimit whole;
	assert_int_equal(metrics_log_open(path, &metrics, error), 0);
	assert_int_equal(metrics_log_truncate(metrics, 0, true), 0);
	line(metrics, "start", 0);
	size_t size = read_all(text, sizeof(text));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
	struct rlimit limit = whole;
	limit.rlim_cur = size + 10;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	metrics_log_begin(metrics, "step", 1);
	int r = metrics_log_end(metrics);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
	assert_int_equal(r, -EFBIG);
	assert_int_equal(read_all(text, sizeof(text)), size);
	line(metrics, "end", 1);
	read_all(text, sizeof(text));
	assert_non_null(strstr(text, "}\n{\"event\":\"end\""));
	metrics_log_close(metrics);
}

/* A last line without a newline is torn, even if it parses. */
TEST(torn_line_goes)
{
	char text[4096];
	struct metrics_log *metrics;
	FILE *file = fopen(path, "w");
	fputs("{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"step\":2}", file);
	fclose(file);
	assert_int_equal(metrics_log_open(path, &metrics, error), 0);
	assert_int_equal(metrics_log_truncate(metrics, 9, false), 0);
	metrics_log_close(metrics);
	read_all(text, sizeof(text));
	assert_string_equal(text, "{\"event\":\"step\",\"step\":1}\n");
}

static long memory_kib(void)
{
	struct rusage usage;
	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_maxrss;
}

/* Content that no run wrote, such as a hole, is read only up to the maximum line length. */
TEST(lines_without_end)
{
	enum { SIZE = 256 << 20 };
	char text[4096];
	struct metrics_log *metrics;
	for (int i = 0; i < 2; i++) {
		FILE *file = fopen(path, "w");
		fputs("{\"event\":\"step\",\"step\":1}\n", file);
		for (int blanks = 0; i == 1 && blanks < APPEND_FILE_LINE_MAX; blanks++)
			fputc(' ', file);
		fseek(file, SIZE, SEEK_SET);
		fputs("\n{\"event\":\"step\",\"step\":2}\n", file);
		fclose(file);
		long before = memory_kib();
		assert_int_equal(metrics_log_open(path, &metrics, error), 0);
		assert_int_equal(metrics_log_truncate(metrics, 9, false), 0);
		metrics_log_close(metrics);
		assert_in_range(memory_kib() - before, 0, SIZE / 4 / 1024);
		read_all(text, sizeof(text));
		assert_string_equal(text, "{\"event\":\"step\",\"step\":1}\n");
	}
}

/* The longest line that a run writes fits. */
TEST(line_of_the_largest_batch)
{
	enum { COUNT = 65536 };
	uint64_t *values = malloc(COUNT * sizeof(*values));
	struct metrics_log *metrics;
	struct stat status;
	for (int i = 0; i < COUNT; i++)
		values[i] = INT64_MAX;
	assert_int_equal(metrics_log_open(path, &metrics, error), 0);
	assert_int_equal(metrics_log_truncate(metrics, 0, true), 0);
	metrics_log_begin(metrics, "samples", 1);
	metrics_log_counts(metrics, "samples", values, COUNT);
	assert_int_equal(metrics_log_end(metrics), 0);
	assert_int_equal(metrics_log_truncate(metrics, 1, false), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_in_range(status.st_size, COUNT * 20, APPEND_FILE_LINE_MAX);
	metrics_log_close(metrics);
	free(values);
}

/* Strings and lists longer than in any earlier line. */
TEST(long_lines)
{
	enum { COUNT = 30000, TEXT = 20000 };
	struct metrics_log *metrics;
	char *long_text = malloc(TEXT), *text = malloc(1 << 20);
	uint64_t *values = malloc(COUNT * sizeof(*values));
	memset(long_text, 'a', TEXT - 1);
	long_text[TEXT - 1] = '\0';
	for (uint64_t i = 0; i < COUNT; i++)
		values[i] = i * i * 1000003;
	assert_int_equal(metrics_log_open(path, &metrics, error), 0);
	assert_int_equal(metrics_log_truncate(metrics, 0, true), 0);
	line(metrics, "step", 1);
	metrics_log_begin(metrics, "step", 2);
	metrics_log_text(metrics, "text", long_text);
	metrics_log_counts(metrics, "values", values, COUNT);
	metrics_log_counts(metrics, "none", values, 0);
	assert_int_equal(metrics_log_end(metrics), 0);
	line(metrics, "step", 3);
	metrics_log_close(metrics);
	read_all(text, 1 << 20);
	strtok(text, "\n");
	json_t *json = json_loads(strtok(NULL, "\n"), JSON_REJECT_DUPLICATES, NULL);
	assert_string_equal(json_string_value(json_object_get(json, "text")), long_text);
	assert_int_equal(json_array_size(json_object_get(json, "values")), COUNT);
	assert_int_equal(json_array_size(json_object_get(json, "none")), 0);
	for (size_t i = 0; i < COUNT; i++)
		assert_int_equal(
			json_integer_value(json_array_get(json_object_get(json, "values"), i)),
			values[i]);
	json_decref(json);
	assert_non_null(strstr(strtok(NULL, "\n"), "\"step\":3"));
	free(long_text);
	free(text);
	free(values);
}

TEST(no_folder)
{
	struct metrics_log *metrics;
	assert_int_equal(metrics_log_open("/nonexistent/log", &metrics, error), -2);
	assert_non_null(strstr(error, "/nonexistent/log"));
}

/* Does not follow a link, which any process that may write to the folder can create. */
TEST(links_are_not_followed)
{
	char link[64], text[8];
	struct metrics_log *metrics;
	snprintf(link, sizeof(link), "%s.link", path);
	FILE *file = fopen(path, "w");
	assert_true(file && fputs("thesis", file) >= 0 && fclose(file) == 0);
	assert_int_equal(symlink(path, link), 0);
	int r = metrics_log_open(link, &metrics, error);
	if (r == 0) {
		(void)metrics_log_truncate(metrics, 0, true);
		metrics_log_close(metrics);
	}
	assert_int_equal(unlink(link), 0);
	assert_int_equal(read_all(text, sizeof(text)), 6);
	assert_string_equal(text, "thesis");
	assert_int_equal(r, -ELOOP);
	assert_non_null(strstr(error, "is a symbolic link"));
	/* opening a FIFO without a reader must not block */
	assert_int_equal(mkfifo(link, 0600), 0);
	assert_int_equal(metrics_log_open(link, &metrics, error), -EBADF);
	assert_non_null(strstr(error, ".link: is not a regular file: remove it"));
	assert_int_equal(unlink(link), 0);
}

TEST_MAIN(setup, teardown)
