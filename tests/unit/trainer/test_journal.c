/* log.jsonl: strict JSON, losses that read back bit for bit, and truncation by a resumed run. */
#include "trainer/log/appended.h"
#include "trainer/log/journal.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/test_journal.XXXXXX", error[JOURNAL_ERROR_MAX];

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

static void line(struct journal *journal, const char *event, uint64_t step)
{
	journal_begin(journal, event, step);
	assert_int_equal(journal_end(journal), 0);
}

static void test_values(void **state)
{
	char text[4096];
	struct journal *journal;
	double loss = 0.1 + 0.2, tiny = 0x1.23456789abcdep-1030;
	assert_int_equal(journal_open(path, &journal, error), 0);
	assert_int_equal(journal_cut(journal, 0, true), 0);
	journal_begin(journal, "step", 18446744073709551ull);
	journal_exact(journal, "loss", loss);
	journal_exact(journal, "tiny", tiny);
	journal_exact(journal, "bad", NAN);
	journal_number(journal, "lr", 0.1);
	journal_number(journal, "infinite", INFINITY);
	journal_count(journal, "count", 12);
	journal_text(journal, "text", "a \"b\"\n\x01 \xc3\xa9");
	journal_text(journal, "not_utf8", "\xff");
	assert_int_equal(journal_end(journal), 0);
	journal_close(journal);
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

static void test_resume_cuts(void **state)
{
	char text[4096];
	struct journal *journal;
	assert_int_equal(journal_open(path, &journal, error), 0);
	assert_int_equal(journal_cut(journal, 0, true), 0);
	line(journal, "start", 0);
	line(journal, "step", 5);
	struct journal *second;
	assert_true(journal_open(path, &second, error) < 0);
	assert_non_null(strstr(error, "another trainer"));
	assert_non_null(strstr(error, "lslocks"));
	line(journal, "checkpoint", 5);
	line(journal, "step", 6);
	line(journal, "step", 7);
	journal_close(journal);
	FILE *file = fopen(path, "a");
	fputs("{\"event\":\"step\",\"step\":8,\"lo", file);
	fclose(file);
	assert_int_equal(journal_open(path, &journal, error), 0);
	assert_int_equal(journal_cut(journal, 5, false), 0);
	line(journal, "resume", 5);
	journal_close(journal);
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

/* Syncs whole lines of this file, and reports the disk's errors. */
static void test_synchronized(void **state)
{
	char link[64], target[256] = "";
	struct journal *journal;
	assert_int_equal(journal_sync(NULL), 0);
	assert_int_equal(synced, -1);
	assert_int_equal(journal_open(path, &journal, error), 0);
	line(journal, "step", 1);
	assert_int_equal(journal_sync(journal), 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", synced);
	assert_true(readlink(link, target, sizeof(target) - 1) > 0);
	assert_string_equal(target, path);
	sync_error = EIO;
	assert_int_equal(journal_sync(journal), -EIO);
	sync_error = 0;
	journal_close(journal);
}

/* A line that does not fit on the disk leaves no partial line. */
static void test_line_that_does_not_fit(void **state)
{
	char text[4096];
	struct journal *journal;
	struct rlimit whole, limit;
	assert_int_equal(journal_open(path, &journal, error), 0);
	assert_int_equal(journal_cut(journal, 0, true), 0);
	line(journal, "start", 0);
	size_t size = read_all(text, sizeof(text));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
	limit = whole;
	limit.rlim_cur = size + 10;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	journal_begin(journal, "step", 1);
	int r = journal_end(journal);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
	assert_int_equal(r, -EFBIG);
	assert_int_equal(read_all(text, sizeof(text)), size);
	line(journal, "end", 1);
	read_all(text, sizeof(text));
	assert_non_null(strstr(text, "}\n{\"event\":\"end\""));
	journal_close(journal);
}

/* A last line without a newline counts as torn even if it parses. */
static void test_torn_line_goes(void **state)
{
	char text[4096];
	struct journal *journal;
	FILE *file = fopen(path, "w");
	fputs("{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"step\":2}", file);
	fclose(file);
	assert_int_equal(journal_open(path, &journal, error), 0);
	assert_int_equal(journal_cut(journal, 9, false), 0);
	journal_close(journal);
	read_all(text, sizeof(text));
	assert_string_equal(text, "{\"event\":\"step\",\"step\":1}\n");
}

static long memory_kib(void)
{
	struct rusage usage;
	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_maxrss;
}

/* Content that no run wrote, such as a hole, is read up to the maximum line length only. */
static void test_lines_without_end(void **state)
{
	enum { SIZE = 256 << 20 };
	char text[4096];
	struct journal *journal;
	for (int i = 0; i < 2; i++) {
		FILE *file = fopen(path, "w");
		fputs("{\"event\":\"step\",\"step\":1}\n", file);
		for (int blanks = 0; i == 1 && blanks < APPENDED_LINE_MAX; blanks++)
			fputc(' ', file);
		fseek(file, SIZE, SEEK_SET);
		fputs("\n{\"event\":\"step\",\"step\":2}\n", file);
		fclose(file);
		long before = memory_kib();
		assert_int_equal(journal_open(path, &journal, error), 0);
		assert_int_equal(journal_cut(journal, 9, false), 0);
		journal_close(journal);
		assert_in_range(memory_kib() - before, 0, SIZE / 4 / 1024);
		read_all(text, sizeof(text));
		assert_string_equal(text, "{\"event\":\"step\",\"step\":1}\n");
	}
}

/* The longest line that a run writes. */
static void test_line_of_the_largest_batch(void **state)
{
	enum { COUNT = 65536 };
	uint64_t *values = malloc(COUNT * sizeof(*values));
	struct journal *journal;
	struct stat status;
	for (int i = 0; i < COUNT; i++)
		values[i] = INT64_MAX;
	assert_int_equal(journal_open(path, &journal, error), 0);
	assert_int_equal(journal_cut(journal, 0, true), 0);
	journal_begin(journal, "samples", 1);
	journal_counts(journal, "samples", values, COUNT);
	assert_int_equal(journal_end(journal), 0);
	assert_int_equal(journal_cut(journal, 1, false), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_in_range(status.st_size, COUNT * 20, APPENDED_LINE_MAX);
	journal_close(journal);
	free(values);
}

/* Texts and lists longer than those of any earlier line. */
static void test_long_lines(void **state)
{
	enum { COUNT = 30000, TEXT = 20000 };
	struct journal *journal;
	char *long_text = malloc(TEXT), *text = malloc(1 << 20);
	uint64_t *values = malloc(COUNT * sizeof(*values));
	memset(long_text, 'a', TEXT - 1);
	long_text[TEXT - 1] = '\0';
	for (uint64_t i = 0; i < COUNT; i++)
		values[i] = i * i * 1000003;
	assert_int_equal(journal_open(path, &journal, error), 0);
	assert_int_equal(journal_cut(journal, 0, true), 0);
	line(journal, "step", 1);
	journal_begin(journal, "step", 2);
	journal_text(journal, "text", long_text);
	journal_counts(journal, "values", values, COUNT);
	journal_counts(journal, "none", values, 0);
	assert_int_equal(journal_end(journal), 0);
	line(journal, "step", 3);
	journal_close(journal);
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

static void test_no_folder(void **state)
{
	struct journal *journal;
	assert_int_equal(journal_open("/nonexistent/log", &journal, error), -2);
	assert_non_null(strstr(error, "/nonexistent/log"));
}

/* Any process that may write to the directory may have created the link. */
static void test_links_are_not_followed(void **state)
{
	char link[64], text[8];
	struct journal *journal;
	snprintf(link, sizeof(link), "%s.link", path);
	FILE *file = fopen(path, "w");
	assert_true(file && fputs("thesis", file) >= 0 && fclose(file) == 0);
	assert_int_equal(symlink(path, link), 0);
	int r = journal_open(link, &journal, error);
	if (r == 0) {
		(void)journal_cut(journal, 0, true);
		journal_close(journal);
	}
	assert_int_equal(unlink(link), 0);
	assert_int_equal(read_all(text, sizeof(text)), 6);
	assert_string_equal(text, "thesis");
	assert_int_equal(r, -ELOOP);
	assert_non_null(strstr(error, "is a symbolic link"));
	/* a FIFO without a reader must not block */
	assert_int_equal(mkfifo(link, 0600), 0);
	assert_int_equal(journal_open(link, &journal, error), -EBADF);
	assert_non_null(strstr(error, ".link: is not a regular file: remove it"));
	assert_int_equal(unlink(link), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_resume_cuts),
		cmocka_unit_test(test_synchronized),
		cmocka_unit_test(test_torn_line_goes),
		cmocka_unit_test(test_lines_without_end),
		cmocka_unit_test(test_line_of_the_largest_batch),
		cmocka_unit_test(test_line_that_does_not_fit),
		cmocka_unit_test(test_long_lines),
		cmocka_unit_test(test_no_folder),
		cmocka_unit_test(test_links_are_not_followed),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
