/* Nice values of users: parsing of a configuration line, and printing it without loss. */
#include "loaderd/config.h"
#include "tests/test.h"

enum { NONE = 1000 };

static int nice_of(const struct config *config, uint32_t uid)
{
	int nice = 0;
	return config_nice(config, uid, &nice) ? nice : NONE;
}

static int set(struct config *config, const char *value, struct config_error *error)
{
	return config_set(config, "users", "nice", value, error);
}

TEST(default_and_single_users)
{
	struct config config;
	struct config_error error;
	config_init(&config);
	assert_int_equal(nice_of(&config, 1000), NONE);
	assert_int_equal(set(&config, "1000:-20 \t 1001:19", &error), 0);
	assert_int_equal(nice_of(&config, 1000), -20);
	assert_int_equal(nice_of(&config, 1001), 19);
	assert_int_equal(nice_of(&config, 100), NONE);
	/* Lines accumulate; for the same user the last value wins. */
	assert_int_equal(set(&config, " 5 4294967294:-0 1000:3 ", &error), 0);
	assert_int_equal(set(&config, "4", &error), 0);
	assert_int_equal(nice_of(&config, 1000), 3);
	assert_int_equal(nice_of(&config, 1001), 19);
	assert_int_equal(nice_of(&config, 4294967294), 0);
	assert_int_equal(nice_of(&config, 0), 4);
	assert_int_equal(config.nice.named, 3);
	assert_int_equal(set(&config, "", &error), 0);
	assert_int_equal(nice_of(&config, 1000), NONE);
}

TEST(refused)
{
	static const char *const wrong[] = {
		"20",
		"-21",
		"alice:5",
		"1000:",
		":5",
		"1000:5,",
		"1000:5:6",
		"1000 :5",
		"1000: 5",
		"4294967295:1",
		"-1:1",
		"1000:--5",
		"+5",
		"5x",
		"1000:0x5",
		"99999999999999999999:1",
		"0 1000:5 x 1001:6",
		"1000:000000000000000000000000000000000000000000000005",
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct config config;
		struct config_error error = {{0}};
		config_init(&config);
		if (set(&config, wrong[i], &error) == 0)
			fail_msg("\"%s\" was taken", wrong[i]);
		assert_non_null(strstr(error.text, "[users] nice = "));
		assert_non_null(
			strstr(error.text,
			       "must be a number from -20 to 19 (for all users) or UID:NUMBER"));
	}
}

TEST(list_length_max)
{
	static struct config config;
	struct config_error error = {{0}};
	char word[32];
	config_init(&config);
	for (unsigned i = 0; i < CONFIG_NICE_MAX; i++) {
		snprintf(word, sizeof(word), "%u:%d", 1000 + i, (int)(i % 40) - 20);
		assert_int_equal(set(&config, word, &error), 0);
	}
	assert_int_equal(set(&config, "1000:7 0", &error), 0);
	assert_true(set(&config, "999:0", &error) < 0);
	assert_string_equal(error.text, "[users] nice: lists more than 1024 users");
}

/*
 * Prints the maximum number of entries in lines of limited length, and reads them into an existing
 * configuration.
 */
TEST(printed_configuration_reads_back)
{
	static struct config config, again;
	struct config_error error = {{0}};
	char path[] = "/tmp/test-config-XXXXXX", word[32];
	config_init(&config);
	config_init(&again);
	assert_int_equal(set(&config, "-3", &error), 0);
	for (unsigned i = 0; i < CONFIG_NICE_MAX; i++) {
		snprintf(word, sizeof(word), "%u:%d", 4000000000u - i, (int)(i % 40) - 20);
		assert_int_equal(set(&config, word, &error), 0);
	}
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	FILE *file = fdopen(fd, "w");
	config_print(&config, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(set(&again, "5 1:1", &error), 0);
	if (config_read(&again, path, &error) != 0)
		fail_msg("%s", error.text);
	unlink(path);
	assert_memory_equal(&config, &again, sizeof(config));
}
