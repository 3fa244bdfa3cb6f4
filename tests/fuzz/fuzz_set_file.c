/*
 * Set files: what set_file_check() accepts is a set of shards in order. The first byte says whether
 * sizes and checksums are repaired, so that what is behind them is reached.
 */
#include "format/set_file.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SHARDS_MAX = 8 };

/* Gives the entries right checksums, and the file a right head, size and checksum. */
static uint8_t *repair(const uint8_t *data, size_t size, size_t *ret_size)
{
	uint32_t count = (uint32_t)(size / SET_FILE_ENTRY);
	if (count == 0 || count > SHARDS_MAX)
		return NULL;
	struct set_file_entry *entries = malloc(count * sizeof(*entries));
	uint8_t *bytes = malloc(set_file_size(count));
	if (!entries || !bytes)
		abort();
	memcpy(entries, data, count * sizeof(*entries));
	for (uint32_t i = 0; i < count; i++) {
		struct pimg_header *header = &entries[i].header;
		memcpy(header->magic, PIMG_MAGIC, sizeof(header->magic));
		header->header_xxh3 =
			XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	}
	set_file_write(entries, count, bytes);
	free(entries);
	*ret_size = set_file_size(count);
	return bytes;
}

static void check(const uint8_t *bytes, size_t size)
{
	struct packimg_error error;
	uint32_t count;
	int r = set_file_check(bytes, size, "fuzz", &count, &error);

	if (r < 0 && !memchr(error.text, 0, sizeof(error.text)))
		abort();
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		struct set_file_entry entry;

		set_file_get(bytes, i, &entry);
		if (entry.header.shard_index != i || entry.header.shard_count != count ||
		    entry.bytes < entry.header.file_size)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t bytes_size = size ? size - 1 : 0;
	/* a copy of its own, whose end sanitizers know */
	uint8_t *bytes = size && data[0] & 1 ? repair(data + 1, size - 1, &bytes_size) : NULL;

	if (!bytes) {
		bytes_size = size ? size - 1 : 0;
		bytes = malloc(bytes_size + 1);
		if (!bytes)
			abort();
		if (bytes_size)
			memcpy(bytes, data + 1, bytes_size);
		bytes = realloc(bytes, bytes_size ? bytes_size : 1);
	}
	check(bytes, bytes_size);
	free(bytes);
	return 0;
}
