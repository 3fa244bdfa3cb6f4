/*
 * Copies the images of section `images` of a file that is being rewritten, each after its sample,
 * with other JPEG indexes if there are any. Preserves the sharing of data and side data. Owned by a
 * rewriter, used by one thread.
 */
#pragma once

#include "format/codec/scratch.h"
#include "format/reader.h"
#include "format/write/output.h"

struct image_share;

struct image_copier {
	const struct packimg *dataset;
	const struct shard *shard;
	struct pimg_record *records; /* of the new file; zero until copied */
	struct image_share *shares;  /* of each record */
	uint64_t count;              /* records */
	struct scratch side;         /* of the image being copied */
};

/* A new index; bytes is NULL to keep the side data. Borrowed. */
struct image_index {
	const uint8_t *bytes;
	size_t size;
};

/*
 * Returns -EBADMSG if the images take more bytes than the file has. A zeroed copier is valid and
 * empty.
 */
int image_copier_init(struct image_copier *copier, const struct packimg *dataset,
		      const struct shard *shard);
void image_copier_deinit(struct image_copier *copier);
/* Writes the images of the shard's sample i, with these indexes. */
int image_copier_put(struct image_copier *copier, uint64_t i,
		     const struct image_index indexes[static SCHEMA_IMAGES_MAX],
		     struct output *output);
