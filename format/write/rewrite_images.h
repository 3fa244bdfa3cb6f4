/*
 * Copies the images of section `images` of a file that is rewritten, unchanged, each behind its
 * sample. Images that share data or side data still do. Owned by a rewriter, used by one thread.
 */
#pragma once

#include "format/reader.h"
#include "format/write/output.h"

struct image_share;

struct image_copier {
	const struct packimg *dataset;
	const struct shard *shard;
	struct pimg_record *records; /* of the new file; zero until copied */
	struct image_share *shares;  /* of each record */
	uint64_t count;              /* records */
};

/* -EBADMSG if the images take more bytes than the file has. A zeroed copier is a valid empty one.
 */
int image_copier_init(struct image_copier *copier, const struct packimg *dataset,
		      const struct shard *shard);
void image_copier_deinit(struct image_copier *copier);
/* Writes the images of the shard's sample i. */
int image_copier_put(struct image_copier *copier, uint64_t i, struct output *output);
