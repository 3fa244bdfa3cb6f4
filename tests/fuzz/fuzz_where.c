/*
 * Arbitrary bytes as a filter over the samples of tests/unit/format/where_dataset.c. The parser
 * must refuse it with a text and a position inside it, or match the same samples in a mapped and an
 * unmapped dataset, none of which match its negation, too.
 */
#include "format/where.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/format/where_dataset.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct packimg *mapped, *unmapped;

static void check(int holds)
{
	if (!holds)
		abort();
}

/* Both stay open; their files are removed. */
static void open_datasets(void)
{
	char folder[] = "/tmp/fuzz-where-XXXXXX", path[64];
	struct packimg_error error;
	struct packimg_shard shard;
	int fds[WHERE_SAMPLES];

	check(mkdtemp(folder) != NULL);
	snprintf(path, sizeof(path), "%s/where.pimg", folder);
	where_dataset_write(path);
	check(packimg_open(path, &mapped, &error) == 0);
	uint32_t count = packimg_shard_count(mapped);
	for (uint32_t i = 0; i < count; i++) {
		check(packimg_shard(mapped, i, &shard) == 0);
		fds[i] = fcntl(shard.fd, F_DUPFD_CLOEXEC, 3);
		unlink(shard.path);
	}
	check(packimg_open_unmapped("where", fds, count, &unmapped, &error) == 0);
	rmdir(folder);
}

/* Returns a bit for each sample that matches; 0 if the negation is too long or too deep. */
static unsigned matches_of_negation(const char *text, size_t size)
{
	char *negation = malloc(size + sizeof("not ( )"));
	struct where *where;
	unsigned matches = 0;

	sprintf(negation, "not (%s )", text);
	if (where_parse(negation, mapped, &where, NULL) == 0) {
		for (uint64_t i = 0; i < WHERE_SAMPLES; i++)
			matches |= (unsigned)where_match(where, mapped, i) << i;
		where_free(where);
	}
	free(negation);
	return matches;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t length = strnlen((const char *)data, size);
	char *text = malloc(length + 1);
	struct where_error error = {.position = -1};
	struct where *where;
	unsigned matches = 0;

	if (!mapped)
		open_datasets();
	memcpy(text, data, length);
	text[length] = 0;
	int r = where_parse(text, mapped, &where, &error);
	if (r < 0) {
		check(error.position >= 0 && (size_t)error.position <= length);
		check(memchr(error.text, 0, sizeof(error.text)) && error.text[0]);
	} else {
		for (uint64_t i = 0; i < WHERE_SAMPLES; i++) {
			int match = where_match(where, mapped, i);

			check(match == 0 || match == 1);
			check(where_match(where, unmapped, i) == match);
			matches |= (unsigned)match << i;
		}
		where_free(where);
		check((matches & matches_of_negation(text, length)) == 0);
	}
	free(text);
	return 0;
}
