/* Base of the sources that read archives. One thread. */
#pragma once

#include "tools/packimg/source/archive_reader.h"
#include "tools/packimg/source/source.h"

struct archive_source {
	struct source source;
	struct archive_reader *archive;
	uint32_t container;
	char *stem; /* name of the archive without folders and extensions */
	bool is_pipe;
	struct buffer bytes;
	/*
	 * Inner archive: the current member, if it is an archive. Its reader, or NULL, and the
	 * folder of its files, such as "n01/".
	 */
	struct archive_reader *inner;
	struct buffer inner_folder;
	size_t inner_folder_size;
	uint64_t inner_count; /* number of inner archives so far */
};

int archive_source_open(struct source *source, const char *path, struct packimg_error *error);
void archive_source_close(struct source *source);
/*
 * Returns the location of the archive's current member. Spills the member if it must be read out of
 * order later. -EFBIG if it is too large for an image.
 */
int archive_source_locate(struct archive_source *archive, const struct archive_member *member,
			  struct blob_location *ret_location, struct packimg_error *error);
