/*
 * Storage of source images: open folders and archives ("containers"), and locations in them.
 * Sources add containers while listing. Afterwards any number of threads may call
 * blob_store_read(). The location of an image in an uncompressed archive is a range of its file. In
 * a compressed archive it is either a range of a temporary file (the spill file, if images are not
 * read in archive order) or a member of the stream, which one thread at a time reads in ascending
 * order.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/source/archive_reader.h"

#include <stdbool.h>

enum location_kind {
	LOCATION_FILE,   /* a file, by its path relative to a folder */
	LOCATION_RANGE,  /* a range of an archive */
	LOCATION_SPILL,  /* a range of an archive's spill file */
	LOCATION_STREAM, /* a member of a compressed archive */
};

/* Raw pixels, which blob_store_read() returns as a PNM file. */
struct blob_pixels {
	uint16_t width, height; /* 0: the bytes are an image file */
	uint8_t channels;       /* 1 or 3 */
	bool planar;            /* channels one after another, not interleaved */
};

struct blob_location {
	enum location_kind kind;
	uint32_t container;
	const char *path; /* path, for FILE */
	/*
	 * offset in bytes for RANGE and SPILL; for STREAM the number of the member in the archive
	 */
	uint64_t offset;
	uint64_t size;             /* size in bytes; 0 (unknown) for FILE */
	struct blob_pixels pixels; /* for RANGE and SPILL */
};

struct container {
	char *path;
	int fd;       /* path of a folder or archive; the store owns it */
	int spill_fd; /* fd of the spill file; -1 if nothing was spilled */
	uint64_t spill_size;
	struct archive_reader *stream; /* reader for the second pass over a compressed archive */
	uint64_t stream_member;        /* member at which that reader is */
};

struct blob_store {
	struct archive_limits limits;
	/* arena of the owner, which is charged with the data that sources hold while listing */
	struct arena *arena;
	struct container *containers;
	uint32_t count;
	size_t capacity;
};

void blob_store_deinit(struct blob_store *blobs);
/* Opens and adds a folder, or the file of an archive. */
int blob_store_add(struct blob_store *blobs, const char *path, bool folder, uint32_t *ret_container,
		   struct packimg_error *error);
/* Appends to the container's spill file, an unlinked file under TMPDIR. */
int blob_store_spill(struct blob_store *blobs, uint32_t container, const void *bytes, size_t size,
		     struct packimg_error *error);
/* Appends the bytes at a FILE, RANGE or SPILL location to the buffer. Any thread. */
int blob_store_read(const struct blob_store *blobs, const struct blob_location *location,
		    struct buffer *buffer, struct packimg_error *error);
/*
 * Same for STREAM. Locations must ascend within a container, and the caller must serialise calls.
 */
int blob_store_read_stream(struct blob_store *blobs, const struct blob_location *location,
			   struct buffer *buffer, struct packimg_error *error);
