/*
 * Storage of source images: open folders and archives ("containers"), and locations in them.
 * Sources add containers while listing; afterwards any number of threads may call
 * blob_store_read(). An image in an uncompressed archive is a range of its file. One in a
 * compressed archive is a range of a temporary file (the spill file, if images are not read in
 * archive order) or a member of the stream, which is read in ascending order by one thread at a
 * time.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/source/archive_reader.h"

#include <stdbool.h>

enum location_kind {
	LOCATION_FILE,   /* path relative to a folder */
	LOCATION_RANGE,  /* bytes of an archive */
	LOCATION_SPILL,  /* bytes of an archive's spill file */
	LOCATION_STREAM, /* a member of a compressed archive */
};

struct blob_location {
	enum location_kind kind;
	uint32_t container;
	const char *path; /* for FILE */
	/* for RANGE and SPILL in bytes; for STREAM the number of the member in the archive */
	uint64_t offset;
	uint64_t size; /* bytes; 0 (unknown) for FILE */
};

struct container {
	char *path;
	int fd;       /* folder or archive; owned by the store */
	int spill_fd; /* -1 if nothing was spilled */
	uint64_t spill_size;
	struct archive_reader *stream; /* second pass over a compressed archive */
	uint64_t stream_member;        /* current member of that stream */
};

struct blob_store {
	struct archive_limits limits;
	/* of the owner; charged with the data that sources hold while listing */
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
/* Same for STREAM. Locations must ascend within a container; the caller serialises calls. */
int blob_store_read_stream(struct blob_store *blobs, const struct blob_location *location,
			   struct buffer *buffer, struct packimg_error *error);
