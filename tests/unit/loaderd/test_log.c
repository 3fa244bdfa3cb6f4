/* Log lines quote clients and workers, so they must be safe for a terminal. */
#include "loaderd/log.h"
#include "tests/test.h"

#include <fcntl.h>

static int ends[2], own_stderr;

static int setup(void **state)
{
	own_stderr = dup(STDERR_FILENO);
	log_init(LOG_LEVEL_INFO);
	log_to_supervisor();
	return pipe2(ends, O_CLOEXEC | O_NONBLOCK) || dup2(ends[1], STDERR_FILENO) < 0;
}

static int teardown(void **state)
{
	return dup2(own_stderr, STDERR_FILENO) < 0;
}

static const char *written(void)
{
	static char text[8192];
	ssize_t n = read(ends[0], text, sizeof(text) - 1);
	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static const struct {
	const char *said, *logged;
} names[] = {
	{"plain K\u00e4fer \u732b", "plain K\u00e4fer \u732b"},
	{"a\x1b[2J\nb\x7f", "a\\x1b[2J\\x0ab\\x7f"},
	/* C1 controls, as characters and as bytes */
	{"\xc2\x9b[m \x9b\x90", "\\u009b[m \\x9b\\x90"},
	{"cut \xe2\x80 over \xc0\x9b surrogate \xed\xa0\x80",
	 "cut \\xe2\\x80 over \\xc0\\x9b surrogate \\xed\\xa0\\x80"},
	{"\u202a\u202e\u2066\u2069\u200e\u200f\u2028\u2029",
	 "\\u202a\\u202e\\u2066\\u2069\\u200e\\u200f\\u2028\\u2029"},
};

TEST(names_are_shown_by_number)
{
	char wanted[256];
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(wanted, sizeof(wanted), "<6>feed \"%s\"\n", names[i].logged);
		log_line(LOG_LEVEL_INFO, "feed \"%s\"", names[i].said);
		assert_string_equal(written(), wanted);
	}
}

/* Text that a worker has already escaped stays unchanged. */
TEST(lines_of_workers)
{
	char line[256], wanted[256];
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(wanted, sizeof(wanted), "<4>user 7: %s\n", names[i].logged);
		log_relay("user 7: ", names[i].said);
		assert_string_equal(written(), wanted);
		snprintf(line, sizeof(line), "<4>%s", names[i].logged);
		log_relay("user 7: ", line);
		assert_string_equal(written(), wanted);
	}
}

/* A line that is too long is cut at a character boundary. */
TEST(long_lines)
{
	static char name[4000];
	for (size_t cut = 0; cut < 8; cut++) {
		memset(name, 'x', cut);
		for (size_t i = cut; i + 3 < sizeof(name); i += 3)
			memcpy(name + i, "\u202e", 3);
		log_line(LOG_LEVEL_INFO, "%s", name);
		const char *line = written();
		size_t size = strlen(line);
		assert_in_range(size, 2000, 2048);
		assert_string_equal(line + size - 7, "\\u202e\n");
	}
}

TEST_MAIN(setup, teardown)
