/*
 * Set files: the headers of all shards of a set in one small file, NAME.pimg.set (SPEC.md, "Set
 * files"), with which a set in a store opens without a request for each header. The functions work
 * on bytes in memory, which nobody else changes; any thread.
 */
#pragma once

#include "format/error.h"
#include "format/layout.h"

#include <stddef.h>
#include <stdint.h>

#define SET_FILE_MAGIC "\x89PIMS\r\n\x1a"

enum {
	SET_FILE_VERSION = 1,
	SET_FILE_HEAD = 16,    /* bytes of struct set_file_head */
	SET_FILE_ENTRY = 1032, /* bytes of struct set_file_entry */
	SET_FILE_TAIL = 8,     /* bytes of the checksum at the end */
};

/* The layout: a head, an entry for each shard in order, and XXH3-64 of all bytes before it. */
struct set_file_head {
	uint8_t magic[8];
	uint32_t version;
	uint32_t shard_count;
};

struct set_file_entry {
	uint64_t bytes;            /* size of the shard's file */
	struct pimg_header header; /* as the shard has it */
};

_Static_assert(sizeof(struct set_file_head) == SET_FILE_HEAD, "SPEC.md, Set files");
_Static_assert(sizeof(struct set_file_entry) == SET_FILE_ENTRY, "SPEC.md, Set files");
_Static_assert(offsetof(struct set_file_head, shard_count) == 12, "SPEC.md, Set files");
_Static_assert(offsetof(struct set_file_entry, header) == 8, "SPEC.md, Set files");

/* Returns the size of a set file. */
size_t set_file_size(uint32_t shard_count);
/* Writes the set file of `shard_count` entries to `bytes`, which has set_file_size(shard_count). */
void set_file_write(const struct set_file_entry *entries, uint32_t shard_count, void *bytes);
/*
 * Checks a whole set file, and that its headers are those of one set, in order; header_read()
 * checks the rest of a header. Messages begin with name. -EBADMSG; -ENOTSUP for a newer version.
 */
int set_file_check(const void *bytes, size_t size, const char *name, uint32_t *ret_shard_count,
		   struct packimg_error *error);
/* Copies the entry of a shard out of a file that was checked. */
void set_file_get(const void *bytes, uint32_t shard, struct set_file_entry *ret_entry);
