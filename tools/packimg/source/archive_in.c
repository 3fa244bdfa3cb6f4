#include "tools/packimg/source/archive_in.h"

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
	STREAM_BLOCK = 256 << 10, /* bytes per read of an archive that cannot be mapped */
	RESERVE_MAX = 4 << 20,    /* bytes of memory that a header's word is taken for */
};

struct archive_in {
	struct archive *archive;
	char *path;
	int fd;
	const uint8_t *map; /* NULL: a pipe */
	uint64_t map_size;
	struct archive_limits limits;
	bool entered;        /* a first member */
	bool compressed;     /* as a whole: known from then on */
	uint64_t handed_out; /* bytes of members */
	uint64_t next_number;
	uint64_t member_size;
	/* First block of the current member, when archive_in_range() had to look at it. */
	const void *block;
	size_t block_size;
	la_int64_t block_offset;
	bool block_held;
	bool ended;    /* libarchive must not be asked again */
	locale_t utf8; /* NULL: the system has none */
};

static int archive_fault(const struct archive_in *in, struct packimg_error *error)
{
	const char *reason = archive_error_string(in->archive);

	return packimg_fail(error, -EBADMSG, "%s: damaged, or not an archive that can be read: %s",
			    in->path, reason ? reason : "no reason given");
}

static int archive_source(struct archive_in *in, struct packimg_error *error)
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
			in->map = map;
			in->map_size = (uint64_t)status.st_size;
		}
	}
	if (in->map ? archive_read_open_memory(in->archive, in->map, in->map_size)
		    : archive_read_open_fd(in->archive, in->fd, STREAM_BLOCK))
		return archive_fault(in, error);
	return 0;
}

/*
 * Formats that libarchive undoes itself. For others (lrzip, lzop, grzip) it would start a program,
 * on bytes that somebody else made.
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

int archive_in_open(const char *path, const struct archive_limits *limits,
		    struct archive_in **ret_archive, struct packimg_error *error)
{
	struct archive_in *in = calloc(1, sizeof(*in));

	if (!in)
		return packimg_fail(error, -ENOMEM, "out of memory");
	in->fd = -1;
	in->limits = *limits;
	in->path = strdup(path);
	in->archive = archive_read_new();
	in->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", 0);
	if (!in->path || !in->archive) {
		archive_in_close(in);
		return packimg_fail(error, -ENOMEM, "out of memory");
	}
	support_filters(in->archive);
	archive_read_support_format_tar(in->archive);
	archive_read_support_format_gnutar(in->archive);
	archive_read_support_format_zip(in->archive);
	int r = archive_source(in, error);
	if (r) {
		archive_in_close(in);
		return r;
	}
	*ret_archive = in;
	return 0;
}

void archive_in_close(struct archive_in *in)
{
	if (!in)
		return;
	archive_read_free(in->archive);
	if (in->utf8)
		freelocale(in->utf8);
	if (in->map)
		munmap((void *)(uintptr_t)in->map, in->map_size);
	if (in->fd >= 0)
		close(in->fd);
	free(in->path);
	free(in);
}

/* After size more bytes of a member: whether the archive has come to more than it may. */
static int check_expansion(struct archive_in *in, size_t size, struct packimg_error *error)
{
	uint64_t own = in->map ? in->map_size : (uint64_t)archive_filter_bytes(in->archive, -1);

	in->handed_out += size;
	/*
	 * Of a compressed archive headers and members that nobody wants count, too: they cost as
	 * much.
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
 * Passes over what is left of the current member, where libarchive would unpack it all without
 * asking.
 */
static int skip_member(struct archive_in *in, struct packimg_error *error)
{
	const void *block;
	la_int64_t offset;
	size_t size = 0;
	int r = 0;

	if (!in->compressed && in->map)
		return 0;
	do {
		r = check_expansion(in, size, error);
		if (r)
			return r;
		r = archive_read_data_block(in->archive, &block, &size, &offset);
	} while (r == ARCHIVE_OK || r == ARCHIVE_WARN);
	/* Damage is told of by the next header. */
	return 0;
}

/* Why a member cannot be read; NULL: it is a regular file. */
static const char *unread(struct archive_entry *entry)
{
	if (archive_entry_hardlink(entry) || archive_entry_filetype(entry) == AE_IFLNK)
		return "a link in an archive, which is not followed; tar --dereference "
		       "--hard-dereference stores the file itself";
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

static int next_member(struct archive_in *in, struct archive_member *ret_member,
		       struct packimg_error *error)
{
	struct archive_entry *entry;
	int r;

	if (in->ended)
		return ARCHIVE_IN_END;
	do {
		r = in->entered ? skip_member(in, error) : 0;
		if (r)
			return r;
		r = archive_read_next_header(in->archive, &entry);
		in->ended = r == ARCHIVE_EOF;
		if (in->ended)
			return ARCHIVE_IN_END;
		if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
			return archive_fault(in, error);
		in->entered = true;
		in->compressed = archive_filter_count(in->archive) > 1;
	} while (archive_entry_filetype(entry) == AE_IFDIR);
	const char *name = archive_entry_pathname(entry), *why = unread(entry);
	in->member_size =
		!why && archive_entry_size_is_set(entry) ? (uint64_t)archive_entry_size(entry) : 0;
	in->block_held = false;
	*ret_member = (struct archive_member){
		.name = name ? name : "(a name that cannot be read)",
		.unread = why,
		.is_link =
			archive_entry_hardlink(entry) || archive_entry_filetype(entry) == AE_IFLNK,
		.number = why ? UINT64_MAX : in->next_number++,
		.size = in->member_size,
	};
	return 0;
}

/*
 * Names that an archive holds as UTF-8 libarchive gives in the locale's characters, or not at all
 * where that lacks them.
 */
int archive_in_next(struct archive_in *in, struct archive_member *ret_member,
		    struct packimg_error *error)
{
	locale_t before = uselocale(in->utf8);
	int r = next_member(in, ret_member, error);

	uselocale(before);
	return r;
}

int archive_in_range(struct archive_in *in, uint64_t *ret_offset, uint64_t *ret_size)
{
	if (!in->map || !in->member_size)
		return -ENODATA;
	if (archive_read_data_block(in->archive, &in->block, &in->block_size, &in->block_offset))
		return -ENODATA;
	in->block_held = true;
	const uint8_t *block = in->block;
	/*
	 * libarchive hands out the mapping itself when it has nothing to undo: then the pointer is
	 * the offset.
	 */
	if ((uintptr_t)block < (uintptr_t)in->map ||
	    (uintptr_t)block - (uintptr_t)in->map > in->map_size - in->block_size ||
	    in->block_offset || in->block_size != in->member_size)
		return -ENODATA;
	if (check_expansion(in, in->block_size, NULL))
		return -ENODATA;
	*ret_offset = (uint64_t)(block - in->map);
	*ret_size = in->member_size;
	return 0;
}

static int too_large(const struct archive_in *in, uint64_t limit, struct packimg_error *error)
{
	return packimg_fail(error, -EFBIG, "unpacks to more than it may (%s%s)",
			    text_bytes(TEXT, limit),
			    limit == in->limits.file_max ? ", --max-file" : "");
}

int archive_in_read(struct archive_in *in, uint64_t limit, struct buffer *buffer,
		    uint64_t *ret_size, struct packimg_error *error)
{
	size_t base = buffer->size;
	int r = ARCHIVE_OK;

	if (in->member_size > limit)
		return too_large(in, limit, error);
	if (buffer_make_room(
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
			return archive_fault(in, error);
		/* A gap in a sparse member reads as zeros; an image with one is damaged anyway. */
		if (in->block_offset < 0 || (uint64_t)in->block_offset != buffer->size - base)
			return packimg_fail(error, -EBADMSG,
					    "sparse archive members are not supported");
		if (in->block_size > limit - (buffer->size - base))
			return too_large(in, limit, error);
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
