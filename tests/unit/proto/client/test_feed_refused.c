/*
 * libfeed with a fake daemon that refuses requests or sends false data, and invalid options: each
 * gives a clear error text.
 */
#include "tests/unit/proto/client/feed_test.h"

TEST(refusals_have_error_texts)
{
	unsigned fds = count_open_fds();
	static const struct {
		const char *script;
		int code;
		const char *text;
	} cases[] = {
		{"missing", -ENOENT, "dataset: there is no file of that name"},
		{"mute", -ETIMEDOUT, "did not answer in time"},
		{"refuse", -ECONNRESET, "closed the connection before it answered"},
		{"wrongreply", -EPROTO, "answered a subscription with message"},
		{"noise", -EPROTO, "cannot be read"},
		{"toolong", -EPROTO, "not our protocol"},
		{"noring", -EPROTO, "opened a feed without a ring"},
		{"nofds", -EPROTO, "0 descriptors for a ring, not two"},
		{"onefd", -EPROTO, "1 descriptors for a ring, not two"},
		{"threefds", -EPROTO, "3 descriptors for a ring, not two"},
		{"tworings", -EPROTO, "answered a subscription with message"},
		{"swapped", -EPROTO, "no ring that this library knows"},
		{"badheader", -EPROTO, "no ring that this library knows"},
		{"badoffset", -EPROTO, "no ring that this library knows"},
		{"", -EINVAL, "dataset: no path given"},
		{NULL, -EINVAL, "dataset: no path given"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct feed_options options = options_for(cases[i].script);
		struct feed *feed = (struct feed *)&options;
		if (cases[i].code == -ETIMEDOUT)
			options.open_timeout_ms = 300;
		int64_t start = now_ms();
		assert_int_equal(feed_open(&options, &feed, error), cases[i].code);
		assert_true(now_ms() - start < SOON_MS);
		if (!strstr(error, cases[i].text))
			print_error("%s: %s\n", cases[i].script, error);
		assert_non_null(strstr(error, cases[i].text));
		assert_ptr_equal(feed, &options); /* outputs are untouched on failure */
		assert_int_equal(feed_open(&options, &feed, NULL), cases[i].code);
	}
	assert_int_equal(count_open_fds(), fds);
}

TEST(options_are_checked)
{
	struct feed *feed;
	struct feed_options options = options_for("plain");
	options.rank = 4;
	options.world = 4;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	assert_string_equal(error, "rank: 4 is not below world, 4.");
	options = options_for("plain");
	options.last = 7;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	options = options_for("plain");
	options.bad = 7;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	options = options_for("plain");
	options.field_count = 17;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	options.field_count = 1;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	assert_non_null(strstr(error, "fields: number 0 of 1 has no name"));

	char *endless = malloc(2 << 20);
	memset(endless, 'x', (2 << 20) - 1);
	endless[(2 << 20) - 1] = '\0';
	options = options_for("plain");
	options.pipeline = endless;
	assert_int_equal(feed_open(&options, &feed, error), -EMSGSIZE);
	options = options_for("plain");
	options.socket = endless;
	assert_int_equal(feed_open(&options, &feed, error), -ENAMETOOLONG);
	free(endless);

	options = options_for("plain");
	options.socket = "/nonexistent/loaderd.sock";
	assert_int_equal(feed_open(&options, &feed, error), -ENOENT);
	assert_non_null(strstr(error, "No daemon listens on /nonexistent/loaderd.sock"));
	setenv("LOADERD_SOCKET", "@nobody-listens-here", 1);
	options.socket = NULL;
	assert_int_equal(feed_open(&options, &feed, error), -ECONNREFUSED);
	assert_non_null(strstr(error, "No daemon listens on @nobody-listens-here"));
	unsetenv("LOADERD_SOCKET");
}

TEST(error_marks_the_position)
{
	struct feed_options options = options_for("plain");
	struct feed *feed;
	options.pipeline = "resize(256) blur(3) hflip";
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	assert_string_equal(error, "pipeline: \"blur\" is no transform; there are resize, hflip\n"
				   "  resize(256) blur(3) hflip\n"
				   "              ^");
	/* a long pipeline is truncated on both sides of the error */
	char pipeline[1000];
	memset(pipeline, 'a', sizeof(pipeline));
	memcpy(pipeline + 500, "blur", 4);
	pipeline[999] = '\0';
	options.pipeline = pipeline;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	char *caret = strrchr(error, '\n'), *line = caret;
	while (*--line != '\n')
		;
	assert_int_equal(line[strcspn(caret, "^")], 'b');
	assert_non_null(strstr(line, "..."));
}

int main(void)
{
	int r = find_fake();
	return r ? r : test_run(start_fake, stop_fake);
}
