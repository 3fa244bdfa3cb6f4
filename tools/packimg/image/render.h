/*
 * From the bytes of a source file to the bytes that are stored: kept as they are, or decoded,
 * shrunk and encoded. What is done depends on the options and the source alone, never on threads or
 * order. One renderer per thread; it allocates only when it meets a larger image than before.
 */
#pragma once

#include "tools/packimg/image/image.h"
#include "tools/packimg/image/statistics.h"

struct resize;

struct render_options {
	bool verbatim;     /* keep a JPEG's bytes when its size is within the limits */
	int quality;       /* 1..100, of JPEGs that are made */
	uint32_t max_side; /* pixels, 0: no limit */
	uint32_t short_side;
	double raw_fraction; /* of the samples that is stored raw: 0 .. 1 */
	bool raw_zstd;       /* raw is raw+zstd where that is smaller */
	int zstd_level;
	enum packimg_codec other; /* under verbatim, for sources that are not JPEGs */
	bool no_index;            /* beside each JPEG, into its scan */
	/* under verbatim, what can have no index as it is (struct unindexed) */
	bool transcode;
	uint64_t pixels_max; /* of an image; 0: any number */
	bool optimise;       /* Huffman tables of JPEGs that are made */
};

struct renderer {
	struct render_options options;
	struct image_reader reader;
	struct packimg_encoder *encoder;
	struct packimg_transcoder *transcoder;
	struct resize *resize;
	struct buffer pixels;
};

/* What was made of one source: data_size bytes, then side_size bytes of side data. */
struct rendered {
	size_t data_size, side_size;
	uint32_t width, height;
	enum packimg_codec codec;
	uint8_t channels;
	uint8_t orientation;
	bool verbatim, transcoded;
	enum image_kind kind;     /* of the source */
	enum unindexed unindexed; /* why a JPEG has no index, when one was wanted */
};

int renderer_init(struct renderer *renderer, const struct render_options *options);
void renderer_deinit(struct renderer *renderer);
/*
 * Renders the source file that lies in bytes from offset to the end, and leaves there what to store
 * instead: a verbatim image is not moved. IMAGE_PADDING bytes behind the buffer's size must be
 * allocated. name decides, by its hash, what --mix stores raw. statistics: where to add the pixels,
 * or NULL.
 */
int renderer_render(struct renderer *renderer, const char *name, struct buffer *bytes,
		    size_t offset, struct statistics *statistics, struct rendered *ret_rendered,
		    struct packimg_error *error);
/*
 * Renders what a dataset holds, pixels as if they came from a PNG, and appends what to store
 * instead.
 */
int renderer_render_stored(struct renderer *renderer, const struct packimg_sample *sample,
			   struct buffer *bytes, struct rendered *ret_rendered,
			   struct packimg_error *error);
/* The size that the limits leave of an image, never larger, never empty. */
void render_target_size(const struct render_options *options, uint32_t width, uint32_t height,
			uint32_t *ret_width, uint32_t *ret_height);
