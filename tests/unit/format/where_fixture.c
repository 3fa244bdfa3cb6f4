#include "tests/unit/format/where_fixture.h"

#include <fcntl.h>

struct packimg *mapped, *unmapped;

struct packimg *open_unmapped(const struct packimg *dataset)
{
	uint32_t count = packimg_shard_count(dataset);
	struct packimg *result;
	struct packimg_shard shard;
	int fds[WHERE_SAMPLES];

	assert_in_range(count, 2, WHERE_SAMPLES);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(packimg_shard(dataset, i, &shard), 0);
		fds[i] = fcntl(shard.fd, F_DUPFD_CLOEXEC, 3);
	}
	assert_int_equal(packimg_open_unmapped("where", fds, count, &result, &error), 0);
	return result;
}

int where_setup(void **state)
{
	directory_setup(state);
	where_dataset_write(path_of("where.pimg"));
	if (packimg_open(path_of("where.pimg"), &mapped, &error) < 0)
		fail_msg("%s", error.text);
	unmapped = open_unmapped(mapped);
	return 0;
}

int where_teardown(void **state)
{
	packimg_close(mapped);
	packimg_close(unmapped);
	return directory_teardown(state);
}

struct where *parse(const char *filter, const struct packimg *dataset)
{
	struct where_error fault;
	struct where *where;

	if (where_parse(filter, dataset, &where, &fault) < 0)
		fail_msg("%s: at byte %d: %s", filter, fault.position, fault.text);
	return where;
}

void check_matches(const char *filter, const char *expected)
{
	struct where *where = parse(filter, mapped);
	char found[2][WHERE_SAMPLES + 1] = {{0}};

	for (uint64_t i = 0; i < WHERE_SAMPLES; i++) {
		found[0][i] = (char)('0' + where_match(where, mapped, i));
		found[1][i] = (char)('0' + where_match(where, unmapped, i));
	}
	for (int i = 0; i < 2; i++)
		if (strcmp(found[i], expected) != 0)
			fail_msg("%s: %s, not %s, if %s", filter, found[i], expected,
				 i ? "unmapped" : "mapped");
	where_free(where);
}

void check_error(const struct packimg *dataset, const char *filter, int position, const char *text)
{
	struct where_error fault = {.position = -1};
	struct where *where = NULL;

	assert_int_equal(where_parse(filter, dataset, &where, NULL), -EINVAL);
	assert_int_equal(where_parse(filter, dataset, &where, &fault), -EINVAL);
	assert_null(where);
	if (fault.position != position || strcmp(fault.text, text) != 0)
		fail_msg("%.200s: at byte %d: %s", filter, fault.position, fault.text);
}
