/*
 * The bytes of source images: opened folders and archives ("containers"), and locations in them.
 * Sources add containers while listing; afterwards any number of threads may call
 * blob_store_read(). An image in an uncompressed archive is a range of its file. One in a
 * compressed archive is a range of a temporary file (the spill file, when images are not read in
 * the archive's order) or a member of the stream, which one thread at a time reads in ascending
 * order.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"
#include "tools/packimg/source/archive_reader.h"

#include <stdbool.h>

enum location_kind {
	LOCATION_FILE,   /* path below a folder */
	LOCATION_RANGE,  /* bytes of an archive */
	LOCATION_SPILL,  /* bytes of an archive's spill file */
	LOCATION_STREAM, /* member of a compressed archive */
};

struct blob_location {
	enum location_kind kind;
	uint32_t container;
	const char *path; /* FILE */
	uint64_t offset;  /* RANGE, SPILL: bytes; STREAM: number of the member in the archive */
	uint64_t size;    /* bytes; FILE: not known (0) */
};

struct container {
	char *path;
	int fd;       /* folder or archive; the store's */
	int spill_fd; /* -1 when nothing was spilled */
	uint64_t spill_size;
	struct archive_reader *stream; /* second reading of a compressed archive */
	uint64_t stream_member;        /* that the stream is at */
};

struct blob_store {
	struct archive_limits limits;
	struct arena *arena; /* the owner's: what sources hold while they list is charged to it */
	struct container *containers;
	uint32_t count;
	size_t capacity;
};

void blob_store_deinit(struct blob_store *blobs);
/* Opens a folder (an archive: its file, for ranges) and adds it. */
int blob_store_add(struct blob_store *blobs, const char *path, bool folder, uint32_t *ret_container,
		   struct packimg_error *error);
/* Appends to the container's spill file, created unlinked under TMPDIR. */
int blob_store_spill(struct blob_store *blobs, uint32_t container, const void *bytes, size_t size,
		     struct packimg_error *error);
/* Appends to the buffer the bytes at a FILE, RANGE or SPILL. Any thread. */
int blob_store_read(const struct blob_store *blobs, const struct blob_location *location,
		    struct buffer *buffer, struct packimg_error *error);
/* The same for a STREAM; places must ascend within a container, the caller serialises. */
int blob_store_read_stream(struct blob_store *blobs, const struct blob_location *location,
			   struct buffer *buffer, struct packimg_error *error);
