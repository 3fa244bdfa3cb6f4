/* What the sources that read archives share. One thread. */
#pragma once

#include "tools/packimg/source/archive_in.h"
#include "tools/packimg/source/store.h"

#define ARCHIVE_LINK                                                                               \
	"a link in an archive, which is not followed; tar --dereference --hard-dereference "       \
	"stores the file itself"

/*
 * The place of the archive's current member, spilling it when it must be read out of order later.
 * -EFBIG: too large to be an image.
 */
int archive_place(struct store *store, uint32_t container, struct archive_in *archive,
		  const struct archive_member *member, bool spill, struct buffer *scratch,
		  struct place *ret_place, struct packimg_error *error);
/* An archive's name without folders and extensions; the caller frees it. NULL: out of memory. */
char *archive_stem(const char *path);
