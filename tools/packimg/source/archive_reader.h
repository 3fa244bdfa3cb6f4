/*
 * One pass over an archive of any kind that libarchive reads (tar, zip, plain or compressed). In
 * addition, it reports the file offset of a member whose bytes are stored uncompressed and
 * contiguously, so that they can be read later, in any order and by any thread. One thread at a
 * time; the caller owns the object. Memory that archive bytes control is bounded: a member's
 * header, and the pages of a mapped file. The directory of a zip is held in full.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

#include <stdbool.h>

struct archive_reader;

/* Limits on the output of an untrusted archive. */
struct archive_limits {
	uint64_t file_max; /* bytes of one image: an unpacked member, or a file (--max-file) */
	/* ratio of unpacked size to the archive's own size (--max-expansion) */
	uint32_t expansion_max;
};

enum {
	ARCHIVE_FILE_MAX = 256 << 20,
	/* images are compressed already; deflate reaches 1000 on zeros */
	ARCHIVE_EXPANSION_MAX = 100,
	ARCHIVE_FREE = 256 << 20, /* bytes that any archive may unpack to, whatever the ratio */
};

struct archive_member {
	const char *name; /* terminated, valid until the next call */
	/*
	 * NULL for a regular file. Otherwise the member has no bytes and must not be read: the
	 * reason, as the end of a sentence after its name.
	 */
	const char *unread;
	bool is_folder;
	bool is_link; /* link to another member or file, possibly a folder */
	/* number of the member in the archive, counting only regular files, from 0 */
	uint64_t number;
	uint64_t size; /* bytes according to its header; 0 if the header has no size */
};

enum {
	ARCHIVE_READER_END = 1,
};

/* path "-" is standard input. */
int archive_reader_open(const char *path, const struct archive_limits *limits,
			struct archive_reader **ret_archive, struct packimg_error *error);
void archive_reader_close(struct archive_reader *archive);
/*
 * Returns the next member; ARCHIVE_READER_END; -EBADMSG for a damaged archive; -EFBIG, also for all
 * later calls, once it has unpacked to more than limits->expansion_max allows.
 */
int archive_reader_next(struct archive_reader *archive, struct archive_member *ret_member,
			struct packimg_error *error);
/*
 * Returns 0 if the current member is a range of the file; then do not call archive_reader_read()
 * for it. Otherwise -ENODATA. Bytes that several members share count once per member.
 */
int archive_reader_range(struct archive_reader *archive, uint64_t *ret_offset, uint64_t *ret_size);
/*
 * Appends the current member to the buffer. Call it without archive_reader_range() or after that
 * returned -ENODATA. -EFBIG past limit, or past the allowed unpacked size; the message names
 * neither member nor archive. Does not trust the size in the header: allocates as bytes arrive. On
 * failure the buffer may have grown. ret_size may be NULL.
 */
int archive_reader_read(struct archive_reader *archive, uint64_t limit, struct buffer *buffer,
			uint64_t *ret_size, struct packimg_error *error);
