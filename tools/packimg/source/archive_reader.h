/*
 * One pass over an archive of any kind that libarchive reads (tar, zip, plain or compressed). For a
 * member whose bytes are stored uncompressed and contiguously it also reports the offset in the
 * file, so that they can be read later, in any order and by any thread. One thread at a time; the
 * caller owns the object. Memory that depends on the archive's contents is bounded: the header of a
 * member, and the pages of a mapped file. Exception: the directory of a zip is kept in memory as a
 * whole.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

#include <stdbool.h>

struct archive_reader;

/* Limits on what an untrusted archive may unpack to. */
struct archive_limits {
	uint64_t
		file_max; /* bytes of one image: of an unpacked member, or of a file (--max-file) */
	/* maximum ratio of unpacked size to the archive's size (--max-expansion) */
	uint32_t expansion_max;
};

enum {
	ARCHIVE_FILE_MAX = 256 << 20,
	/*
	 * images are compressed already, so larger ratios are suspicious; deflate reaches 1000 on
	 * zeros
	 */
	ARCHIVE_EXPANSION_MAX = 100,
	ARCHIVE_FREE = 256 << 20, /* bytes that any archive may unpack to, whatever the ratio */
};

struct archive_member {
	const char *name; /* null-terminated, valid until the next call */
	/*
	 * NULL for a regular file. Otherwise the reason why the member has no bytes and must not be
	 * read, as the end of a sentence that begins with its name.
	 */
	const char *unread;
	bool is_folder;
	bool is_link; /* the member is a link to another member or file, possibly a folder */
	/* number of the member in the archive, from 0, counting only regular files */
	uint64_t number;
	uint64_t size; /* size in bytes according to the header; 0 if the header has none */
};

enum {
	ARCHIVE_READER_END = 1,
};

/* The path "-" means standard input. */
int archive_reader_open(const char *path, const struct archive_limits *limits,
			struct archive_reader **ret_archive, struct packimg_error *error);
/*
 * Opens an archive that is stored in a range of an uncompressed one. Offsets that
 * archive_reader_range() reports are those of the file at path. Messages name the archive as
 * `name`.
 */
int archive_reader_open_range(const char *path, const char *name, uint64_t offset, uint64_t size,
			      const struct archive_limits *limits,
			      struct archive_reader **ret_archive, struct packimg_error *error);
void archive_reader_close(struct archive_reader *archive);
/*
 * Returns the next member; ARCHIVE_READER_END; -EBADMSG for a damaged archive; -EFBIG if the
 * archive has unpacked to more than limits->expansion_max allows, also in all later calls.
 */
int archive_reader_next(struct archive_reader *archive, struct archive_member *ret_member,
			struct packimg_error *error);
/*
 * Returns 0 if the current member is a range of the file; do not call archive_reader_read() for it
 * then. Otherwise returns -ENODATA. Bytes that several members share count once per member.
 */
int archive_reader_range(struct archive_reader *archive, uint64_t *ret_offset, uint64_t *ret_size);
/*
 * Appends the current member to the buffer. Requires that archive_reader_range() was not called or
 * returned -ENODATA. -EFBIG beyond limit, or beyond the allowed unpacked size; the message names
 * neither member nor archive. Does not trust the size in the header: allocates memory as bytes
 * arrive. The buffer may have grown on failure. ret_size may be NULL.
 */
int archive_reader_read(struct archive_reader *archive, uint64_t limit, struct buffer *buffer,
			uint64_t *ret_size, struct packimg_error *error);
