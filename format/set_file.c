#include "format/set_file.h"

#include "format/packimg.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

size_t set_file_size(uint32_t shard_count)
{
	return SET_FILE_HEAD + (size_t)shard_count * SET_FILE_ENTRY + SET_FILE_TAIL;
}

void set_file_write(const struct set_file_entry *entries, uint32_t shard_count, void *bytes)
{
	const struct set_file_head head = {
		.magic = SET_FILE_MAGIC, .version = SET_FILE_VERSION, .shard_count = shard_count};
	const size_t checked = set_file_size(shard_count) - SET_FILE_TAIL;
	uint8_t *to = bytes;

	memcpy(to, &head, sizeof(head));
	memcpy(to + SET_FILE_HEAD, entries, checked - SET_FILE_HEAD);
	const uint64_t xxh3 = XXH3_64bits(to, checked);
	memcpy(to + checked, &xxh3, sizeof(xxh3));
}

void set_file_get(const void *bytes, uint32_t shard, struct set_file_entry *ret_entry)
{
	memcpy(ret_entry, (const uint8_t *)bytes + SET_FILE_HEAD + (size_t)shard * SET_FILE_ENTRY,
	       sizeof(*ret_entry));
}

/* Checks what makes the entry one of a shard of that set, at that place. */
static int set_file_check_entry(const struct set_file_entry *entry, const uint8_t set_uuid[16],
				uint32_t shard, uint32_t shard_count, const char *name,
				struct packimg_error *error)
{
	const struct pimg_header *header = &entry->header;

	if (memcmp(header->magic, PIMG_MAGIC, sizeof(header->magic)) != 0 ||
	    XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3)) != header->header_xxh3)
		return packimg_damaged(error, "%s: the header of shard %" PRIu32 " is damaged",
				       name, shard);
	if (header->shard_index != shard || header->shard_count != shard_count ||
	    memcmp(header->set_uuid, set_uuid, sizeof(header->set_uuid)) != 0)
		return packimg_damaged(error,
				       "%s: its header number %" PRIu32 " is that of shard %" PRIu32
				       " of %" PRIu32
				       ", or of another set; write it again, with packimg seal",
				       name, shard, header->shard_index, header->shard_count);
	if (entry->bytes < header->file_size || entry->bytes > INT64_MAX)
		return packimg_damaged(error,
				       "%s: shard %" PRIu32 " has %" PRIu64
				       " bytes, and its header says %" PRIu64,
				       name, shard, entry->bytes, header->file_size);
	return 0;
}

int set_file_check(const void *bytes, size_t size, const char *name, uint32_t *ret_shard_count,
		   struct packimg_error *error)
{
	struct set_file_head head = {0};
	struct set_file_entry entry;
	uint8_t set_uuid[16];
	uint64_t xxh3;

	if (size >= sizeof(head))
		memcpy(&head, bytes, sizeof(head));
	if (memcmp(head.magic, SET_FILE_MAGIC, sizeof(head.magic)) != 0)
		return packimg_damaged(error, "%s: not a set file (wrong magic)", name);
	if (head.version > SET_FILE_VERSION)
		return packimg_fail(error, -ENOTSUP,
				    "%s: version %" PRIu32 " of set files, this program reads up "
				    "to %d; use a newer loaderd",
				    name, head.version, SET_FILE_VERSION);
	if (head.version == 0 || head.shard_count == 0 || head.shard_count > PACKIMG_SHARDS_MAX)
		return packimg_damaged(error, "%s: version %" PRIu32 " with %" PRIu32 " shards",
				       name, head.version, head.shard_count);
	if (size != set_file_size(head.shard_count))
		return packimg_damaged(error,
				       "%s: has %zu bytes, a set file of %" PRIu32
				       " shards has %zu; copy it again, or write it again with "
				       "packimg seal",
				       name, size, head.shard_count,
				       set_file_size(head.shard_count));
	memcpy(&xxh3, (const uint8_t *)bytes + size - SET_FILE_TAIL, sizeof(xxh3));
	if (XXH3_64bits(bytes, size - SET_FILE_TAIL) != xxh3)
		return packimg_damaged(error,
				       "%s: its checksum does not match; copy it again, or write "
				       "it again with packimg seal",
				       name);
	for (uint32_t i = 0; i < head.shard_count; i++) {
		set_file_get(bytes, i, &entry);
		if (i == 0)
			memcpy(set_uuid, entry.header.set_uuid, sizeof(set_uuid));
		int r = set_file_check_entry(&entry, set_uuid, i, head.shard_count, name, error);
		if (r < 0)
			return r;
	}
	*ret_shard_count = head.shard_count;
	return 0;
}
