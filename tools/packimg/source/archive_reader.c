#include "tools/packimg/source/archive_reader.h"

#include "tools/packimg/common/text.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	STREAM_BLOCK = 256 << 10, /* bytes per read of an archive that is not mapped */
	RESERVE_MAX = 4 << 20,    /* maximum bytes to allocate in advance for a size in a header */
	/* limit on the bytes of a member's header: libarchive accepts names of up to 1 MiB */
	HEADER_MAX = 4 << 20,
	WINDOW = 256 << 10,    /* bytes of a mapped archive passed to libarchive at a time */
	MAPPED_MAX = 16 << 20, /* bytes of a mapping after which its pages are released */
};

/*
 * If the archive is compressed or a pipe, there are two libarchive readers: one decompresses, and
 * the other reads the resulting blocks as a file. The reader counts the bytes between them, which
 * bounds the size of a header.
 */
struct archive_reader {
	struct archive *archive; /* reads the members */
	struct archive
		*packed;   /* decompresses; NULL if `archive` reads from the mapping directly */
	char *path, *name; /* name is for messages */
	int fd;
	const uint8_t *file_map; /* the mapped file; NULL for a pipe */
	uint64_t file_size;
	const uint8_t *map; /* the archive in it: the whole file, or a range */
	uint64_t map_size, position, position_forgotten;
	bool mapped_zip;
	bool in_header;
	int64_t header_from; /* offset of `archive` at the start of the current header */
	struct archive_limits limits;
	bool entered;        /* the first member has been read */
	bool compressed;     /* the archive as a whole is compressed */
	uint64_t handed_out; /* bytes of members counted so far */
	uint64_t next_number;
	uint64_t member_size;
	bool member_sparse;
	/* First block of the current member, if archive_reader_range() has read it. */
	const void *block;
	size_t block_size;
	la_int64_t block_offset;
	bool block_held;
	bool ended;    /* libarchive must not be called again */
	locale_t utf8; /* UTF-8 locale; NULL if the system has none */
};

static int archive_fault(const struct archive_reader *in, struct archive *archive,
			 struct packimg_error *error)
{
	const char *reason = archive_error_string(archive);

	if (reason && strcmp(reason, "Unrecognized archive format") == 0)
		return packimg_fail(error, -EBADMSG,
				    "%s: neither an image nor a table by its name, nor an archive "
				    "by its bytes; --format manifest reads it as a table",
				    in->name);
	return packimg_fail(error, -EBADMSG, "%s: damaged or unsupported archive: %s", in->name,
			    reason ? reason : "no reason given");
}

/* Returns the next window of the mapping. From time to time releases pages that have been read. */
static la_ssize_t mapped_block(struct archive_reader *in, const void **ret_block)
{
	const uint64_t rest = in->map_size - in->position;
	const size_t size = rest < WINDOW ? (size_t)rest : WINDOW;

	if (in->position - in->position_forgotten > MAPPED_MAX) {
		madvise((void *)(uintptr_t)in->file_map, in->file_size, MADV_DONTNEED);
		in->position_forgotten = in->position;
	}
	*ret_block = in->map + in->position;
	in->position += size;
	return (la_ssize_t)size;
}

static la_ssize_t packed_read(struct archive *packed, void *context, const void **ret_block)
{
	return mapped_block(context, ret_block);
}

static la_int64_t mapped_skip(struct archive *archive, void *context, la_int64_t wanted)
{
	struct archive_reader *in = context;
	const uint64_t rest = in->map_size - in->position;

	if ((uint64_t)wanted > rest)
		wanted = (la_int64_t)rest;
	in->position += (uint64_t)wanted;
	return wanted;
}

static la_int64_t mapped_seek(struct archive *archive, void *context, la_int64_t offset, int whence)
{
	struct archive_reader *in = context;
	uint64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? in->position : in->map_size;

	if (offset < 0 ? (uint64_t)-offset > from : (uint64_t)offset > in->map_size - from)
		return ARCHIVE_FATAL;
	in->position = from + (uint64_t)offset;
	return (la_int64_t)in->position;
}

/* Read callback of `archive`; fails if a header is too large. */
static la_ssize_t member_read(struct archive *archive, void *context, const void **ret_block)
{
	struct archive_reader *in = context;
	la_int64_t offset;
	size_t size = 0;

	if (in->in_header && archive_filter_bytes(archive, 0) - in->header_from > HEADER_MAX) {
		archive_set_error(archive, EFBIG,
				  "a member's header is larger than %s, as maps of sparse files "
				  "can be; pack it without them (tar without --sparse)",
				  text_bytes(TEXT, HEADER_MAX));
		return ARCHIVE_FATAL;
	}
	if (!in->packed)
		return mapped_block(in, ret_block);
	int r = archive_read_data_block(in->packed, ret_block, &size, &offset);
	if (r == ARCHIVE_EOF)
		return 0;
	if (r == ARCHIVE_OK || r == ARCHIVE_WARN)
		return (la_ssize_t)size;
	const char *reason = archive_error_string(in->packed);
	archive_set_error(archive, archive_errno(in->packed), "%s",
			  reason ? reason : "no reason given");
	return ARCHIVE_FATAL;
}

static int archive_source(struct archive_reader *in, struct packimg_error *error)
{
	struct stat status;
	void *map;

	if (strcmp(in->path, "-") == 0)
		in->fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
	else
		in->fd = open(in->path, O_RDONLY | O_CLOEXEC);
	if (in->fd < 0 || fstat(in->fd, &status))
		return packimg_fail(error, -errno, "%s: %s", in->path, strerror(errno));
	if (S_ISREG(status.st_mode) && status.st_size) {
		map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, in->fd, 0);
		if (map != MAP_FAILED) {
			in->map = in->file_map = map;
			in->map_size = in->file_size = (uint64_t)status.st_size;
		}
	}
	return 0;
}

/*
 * Enables the filters that libarchive implements itself. For others (lrzip, lzop, grzip) it would
 * run a program on untrusted bytes.
 */
static void support_filters(struct archive *archive)
{
	archive_read_support_filter_bzip2(archive);
	archive_read_support_filter_compress(archive);
	archive_read_support_filter_gzip(archive);
	archive_read_support_filter_lz4(archive);
	archive_read_support_filter_lzip(archive);
	archive_read_support_filter_lzma(archive);
	archive_read_support_filter_xz(archive);
	archive_read_support_filter_zstd(archive);
}

/* Starts decompression if the archive is compressed. */
static int open_packed(struct archive_reader *in, struct packimg_error *error)
{
	struct archive_entry *entry;
	int r;

	in->packed = archive_read_new();
	if (!in->packed)
		return packimg_fail(error, -ENOMEM, "out of memory");
	support_filters(in->packed);
	archive_read_support_format_raw(in->packed);
	archive_read_support_format_empty(in->packed);
	if (in->map) {
		archive_read_set_read_callback(in->packed, packed_read);
		archive_read_set_callback_data(in->packed, in);
		r = archive_read_open1(in->packed);
	} else {
		r = archive_read_open_fd(in->packed, in->fd, STREAM_BLOCK);
	}
	if (!r)
		r = archive_read_next_header(in->packed, &entry);
	if (r != ARCHIVE_OK && r != ARCHIVE_WARN && r != ARCHIVE_EOF)
		return archive_fault(in, in->packed, error);
	in->compressed = archive_filter_count(in->packed) > 1;
	if (in->compressed || !in->map)
		return 0;
	archive_read_free(in->packed);
	in->packed = NULL;
	return 0;
}

/*
 * Starts reading members. For a mapped file, tries tar before zip, because libarchive reads the
 * directory of a zip, which may be large, with the first header.
 */
static int open_members(struct archive_reader *in, struct packimg_error *error)
{
	archive_read_free(in->archive);
	in->archive = archive_read_new();
	if (!in->archive)
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (!in->mapped_zip) {
		archive_read_support_format_tar(in->archive);
		archive_read_support_format_gnutar(in->archive);
	}
	if (in->mapped_zip || in->packed)
		archive_read_support_format_zip(in->archive);
	archive_read_set_read_callback(in->archive, member_read);
	if (!in->packed) {
		archive_read_set_skip_callback(in->archive, mapped_skip);
		archive_read_set_seek_callback(in->archive, mapped_seek);
		in->position = in->position_forgotten = 0;
	}
	archive_read_set_callback_data(in->archive, in);
	return archive_read_open1(in->archive) ? archive_fault(in, in->archive, error) : 0;
}

/* Opens the archive at in->path, or, if size is not 0, the one in a range of that file. */
static int open_archive(struct archive_reader *in, uint64_t offset, uint64_t size,
			struct packimg_error *error)
{
	int r = archive_source(in, error);
	if (r)
		return r;
	if (size && (offset > in->file_size || size > in->file_size - offset))
		return packimg_fail(error, -EBADMSG, "%s: changed while it was read", in->path);
	if (size) {
		in->map += offset;
		in->map_size = size;
	}
	r = open_packed(in, error);
	if (r)
		return r;
	r = open_members(in, error);
	if (r && !in->packed && in->archive && !archive_format(in->archive)) {
		in->mapped_zip = true;
		r = open_members(in, error);
	}
	return r;
}

int archive_reader_open(const char *path, const struct archive_limits *limits,
			struct archive_reader **ret_archive, struct packimg_error *error)
{
	return archive_reader_open_range(path, path, 0, 0, limits, ret_archive, error);
}

int archive_reader_open_range(const char *path, const char *name, uint64_t offset, uint64_t size,
			      const struct archive_limits *limits,
			      struct archive_reader **ret_archive, struct packimg_error *error)
{
	struct archive_reader *in = calloc(1, sizeof(*in));

	if (!in)
		return packimg_fail(error, -ENOMEM, "out of memory");
	in->fd = -1;
	in->limits = *limits;
	in->path = strdup(path);
	in->name = strdup(name);
	in->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", 0);
	if (!in->path || !in->name) {
		archive_reader_close(in);
		return packimg_fail(error, -ENOMEM, "out of memory");
	}
	int r = open_archive(in, offset, size, error);
	if (r) {
		archive_reader_close(in);
		return r;
	}
	*ret_archive = in;
	return 0;
}

void archive_reader_close(struct archive_reader *in)
{
	if (!in)
		return;
	archive_read_free(in->archive);
	archive_read_free(in->packed);
	if (in->utf8)
		freelocale(in->utf8);
	if (in->file_map)
		munmap((void *)(uintptr_t)in->file_map, in->file_size);
	if (in->fd >= 0)
		close(in->fd);
	free(in->path);
	free(in->name);
	free(in);
}

/* Counts `size` bytes of a member and fails if the archive exceeds its limit. */
static int check_expansion(struct archive_reader *in, size_t size, struct packimg_error *error)
{
	uint64_t own = in->map ? in->map_size : (uint64_t)archive_filter_bytes(in->packed, -1);

	in->handed_out += size;
	/*
	 * In a compressed archive, headers and unwanted members count as well, because they take as
	 * long to unpack.
	 */
	uint64_t unpacked =
		in->compressed ? (uint64_t)archive_filter_bytes(in->archive, 0) : in->handed_out;
	if (unpacked <= ARCHIVE_FREE || (unpacked - ARCHIVE_FREE) / in->limits.expansion_max <= own)
		return 0;
	return packimg_fail(error, -EFBIG,
			    "the archive unpacks to more than %u times its size, which "
			    "--max-expansion allows",
			    in->limits.expansion_max);
}

/*
 * Skips the rest of the current member here, because libarchive would unpack all of it without a
 * limit.
 */
static int skip_member(struct archive_reader *in, struct packimg_error *error)
{
	const void *block;
	la_int64_t offset;
	size_t size = 0;
	int r = 0;

	if (!in->packed) {
		/* Skips now what libarchive would otherwise skip when it reads the next header. */
		r = archive_read_data_skip(in->archive);
		return r == ARCHIVE_FATAL || r == ARCHIVE_EOF
			       ? archive_fault(in, in->archive, error)
			       : 0;
	}
	do {
		r = check_expansion(in, size, error);
		if (r)
			return r;
		r = archive_read_data_block(in->archive, &block, &size, &offset);
	} while (r == ARCHIVE_OK || r == ARCHIVE_WARN);
	/* Reading the next header reports damage. */
	return 0;
}

/* Returns why a member cannot be read; NULL for a regular file. */
static const char *member_unread_reason(struct archive_entry *entry)
{
	if (archive_entry_hardlink(entry) || archive_entry_filetype(entry) == AE_IFLNK)
		return "links in archives are not followed; tar --dereference --hard-dereference "
		       "stores the file itself";
	switch (archive_entry_filetype(entry)) {
	case AE_IFREG:
		return NULL;
	case AE_IFCHR:
		return "a character device, not a regular file";
	case AE_IFBLK:
		return "a block device, not a regular file";
	case AE_IFIFO:
		return "a FIFO, not a regular file";
	case AE_IFSOCK:
		return "a socket, not a regular file";
	default:
		return "not a regular file";
	}
}

/* Reads a header, with its size bounded; returns a libarchive status. */
static int next_header(struct archive_reader *in, struct archive_entry **ret_entry)
{
	in->header_from = archive_filter_bytes(in->archive, 0);
	in->in_header = !in->mapped_zip;
	int r = archive_read_next_header(in->archive, ret_entry);
	in->in_header = false;
	return r;
}

static int next_member(struct archive_reader *in, struct archive_member *ret_member,
		       struct packimg_error *error)
{
	struct archive_entry *entry;

	if (in->ended)
		return ARCHIVE_READER_END;
	int r = in->entered ? skip_member(in, error) : 0;
	if (r)
		return r;
	r = next_header(in, &entry);
	in->ended = r == ARCHIVE_EOF;
	if (in->ended)
		return ARCHIVE_READER_END;
	if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
		return archive_fault(in, in->archive, error);
	in->entered = true;
	const char *name = archive_entry_pathname(entry), *why = member_unread_reason(entry);
	in->member_size =
		!why && archive_entry_size_is_set(entry) ? (uint64_t)archive_entry_size(entry) : 0;
	in->member_sparse = archive_entry_sparse_count(entry) > 0;
	in->block_held = false;
	*ret_member = (struct archive_member){
		.name = name ? name : "(a name that cannot be read)",
		.unread = why,
		.is_folder = archive_entry_filetype(entry) == AE_IFDIR,
		.is_link =
			archive_entry_hardlink(entry) || archive_entry_filetype(entry) == AE_IFLNK,
		.number = why ? UINT64_MAX : in->next_number++,
		.size = in->member_size,
	};
	return 0;
}

/*
 * Sets a UTF-8 locale, because libarchive converts UTF-8 names to the locale's character set and
 * drops those that it cannot convert.
 */
int archive_reader_next(struct archive_reader *in, struct archive_member *ret_member,
			struct packimg_error *error)
{
	locale_t before = uselocale(in->utf8);
	int r = next_member(in, ret_member, error);

	uselocale(before);
	return r;
}

int archive_reader_range(struct archive_reader *in, uint64_t *ret_offset, uint64_t *ret_size)
{
	uint64_t size = 0, first = 0;

	if (in->packed || in->member_sparse)
		return -ENODATA;
	/*
	 * Without decompression, libarchive returns pointers into the mapping, one window at a
	 * time; a pointer gives the offset in the file.
	 */
	for (; size < in->member_size; size += in->block_size) {
		if (archive_read_data_block(in->archive, &in->block, &in->block_size,
					    &in->block_offset))
			return -ENODATA;
		uint64_t offset = (uint64_t)((uintptr_t)in->block - (uintptr_t)in->map);
		in->block_held = (uintptr_t)in->block < (uintptr_t)in->map ||
				 offset > in->map_size - in->block_size ||
				 in->block_offset != (la_int64_t)size ||
				 in->block_size > in->member_size - size ||
				 (size && offset != first + size);
		if (in->block_held)
			return -ENODATA;
		first = size ? first : offset;
	}
	if (!size || check_expansion(in, size, NULL))
		return -ENODATA;
	*ret_offset = first + (uint64_t)(in->map - in->file_map);
	*ret_size = size;
	return 0;
}

static int archive_too_large(const struct archive_reader *in, uint64_t limit,
			     struct packimg_error *error)
{
	return packimg_fail(error, -EFBIG, "unpacks to more than the limit (%s%s)",
			    text_bytes(TEXT, limit),
			    limit == in->limits.file_max ? ", --max-file" : "");
}

int archive_reader_read(struct archive_reader *in, uint64_t limit, struct buffer *buffer,
			uint64_t *ret_size, struct packimg_error *error)
{
	size_t base = buffer->size;
	int r = ARCHIVE_OK;

	if (in->member_size > limit)
		return archive_too_large(in, limit, error);
	if (buffer_reserve(
		    buffer,
		    base + (size_t)(in->member_size < RESERVE_MAX ? in->member_size : RESERVE_MAX) +
			    1))
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (;;) {
		if (!in->block_held)
			r = archive_read_data_block(in->archive, &in->block, &in->block_size,
						    &in->block_offset);
		in->block_held = false;
		if (r == ARCHIVE_EOF)
			break;
		if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
			return archive_fault(in, in->archive, error);
		/*
		 * A gap in a sparse member reads as zeros. An image with a gap is damaged in any
		 * case.
		 */
		if (in->block_offset < 0 || (uint64_t)in->block_offset != buffer->size - base)
			return packimg_fail(error, -EBADMSG,
					    "sparse archive members are not supported");
		if (in->block_size > limit - (buffer->size - base))
			return archive_too_large(in, limit, error);
		r = check_expansion(in, in->block_size, error);
		if (r)
			return r;
		if (buffer_append(buffer, in->block, in->block_size))
			return packimg_fail(error, -ENOMEM, "out of memory");
	}
	if (ret_size)
		*ret_size = buffer->size - base;
	return 0;
}
