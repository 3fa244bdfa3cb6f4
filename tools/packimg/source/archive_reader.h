/*
 * One pass over an archive of any kind that libarchive reads (tar, zip, plain or compressed), with
 * one addition: where a member's bytes lie uncompressed and in one piece in the file, their offset
 * is known, so that they can be read later, in any order and by any thread. One thread at a time;
 * the caller owns the object. What libarchive holds is bounded where an archive's bytes decide it:
 * a member's header, and the pages of a mapped file. A zip's directory is as large as it is.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

#include <stdbool.h>

struct archive_reader;

/* What may come out of an archive that somebody else made. */
struct archive_limits {
	uint64_t file_max; /* bytes of one image: a member unpacked, or a file (--max-file) */
	/* how many times its own size an archive may unpack to (--max-expansion) */
	uint32_t expansion_max;
};

enum {
	ARCHIVE_FILE_MAX = 256 << 20,
	/* images are compressed already; 1000 is what deflate makes of zeros */
	ARCHIVE_EXPANSION_MAX = 100,
	ARCHIVE_FREE = 256 << 20, /* bytes that any archive may unpack to */
};

struct archive_member {
	const char *name; /* terminated, until the next call */
	/*
	 * NULL: a regular file. Otherwise the member has no bytes of its own and must not be read:
	 * why, as the end of a sentence behind its name.
	 */
	const char *unread;
	bool is_folder;
	bool is_link;    /* to another member or file, maybe to a folder */
	uint64_t number; /* of the member in the archive, regular files only, from 0 */
	uint64_t size;   /* bytes, as its header says; 0 when it does not */
};

enum {
	ARCHIVE_READER_END = 1,
};

/* path "-" is standard input. */
int archive_reader_open(const char *path, const struct archive_limits *limits,
			struct archive_reader **ret_archive, struct packimg_error *error);
void archive_reader_close(struct archive_reader *archive);
/*
 * The next member; ARCHIVE_READER_END; -EBADMSG for a damaged archive; -EFBIG, from
 * then on, for one that unpacked to more than limits->expansion_max allows.
 */
int archive_reader_next(struct archive_reader *archive, struct archive_member *ret_member,
			struct packimg_error *error);
/*
 * 0 when the current member is a range of the file; then archive_reader_read() must not be called
 * for it. -ENODATA otherwise. What members share of a file counts as often as they name it.
 */
int archive_reader_range(struct archive_reader *archive, uint64_t *ret_offset, uint64_t *ret_size);
/*
 * Appends the current member to the buffer, after archive_reader_range() said -ENODATA or without
 * asking it. -EFBIG past limit, or past what the archive may unpack to; the sentence names neither
 * member nor archive. The size in a header is not believed: memory is taken as bytes come. On
 * failure the buffer may have grown. ret_size may be NULL.
 */
int archive_reader_read(struct archive_reader *archive, uint64_t limit, struct buffer *buffer,
			uint64_t *ret_size, struct packimg_error *error);
