/*
 * Converts the bytes of a source file to those of a sample: unchanged, or decoded, resized and
 * encoded. The result depends only on options and source, never on threads or order. Use one
 * encoder per thread. It allocates memory only for an image that is larger than all before.
 */
#pragma once

#include "tools/packimg/image/image.h"
#include "tools/packimg/image/statistics.h"

struct resize;

struct sample_encoder_options {
	bool verbatim;     /* keep the bytes of JPEGs whose size is within the limits */
	int quality;       /* quality of encoded JPEGs, 1..100 */
	uint32_t max_side; /* size limits in pixels, 0 for no limit */
	uint32_t short_side;
	double raw_fraction; /* fraction of the samples to store raw, 0 .. 1 */
	bool raw_zstd;       /* store raw samples as raw+zstd where that is smaller */
	int zstd_level;
	enum packimg_codec other; /* codec of sources other than JPEG under verbatim */
	bool no_index;            /* do not add an index to each JPEG */
	/* under verbatim: transcode JPEGs that cannot have an index unchanged (enum unindexed) */
	bool transcode;
	uint64_t pixels_max; /* limit per image, 0 for no limit */
	bool optimise;       /* optimise the Huffman tables of encoded JPEGs */
};

struct sample_encoder {
	struct sample_encoder_options options;
	struct image_reader reader;
	struct packimg_encoder *encoder;
	struct packimg_transcoder *transcoder;
	struct resize *resize;
	struct buffer pixels;
};

/* Result for one source: data_size bytes of data, followed by side_size bytes of side data. */
struct encoded_sample {
	size_t data_size, side_size;
	uint32_t width, height;
	enum packimg_codec codec;
	uint8_t channels;
	uint8_t orientation;
	bool verbatim, transcoded;
	enum image_kind kind;     /* kind of the source image */
	enum unindexed unindexed; /* why a JPEG has no index although one was requested */
};

int sample_encoder_init(struct sample_encoder *sample_encoder,
			const struct sample_encoder_options *options);
void sample_encoder_deinit(struct sample_encoder *sample_encoder);
/*
 * Encodes the source file in bytes, which extends from offset to the end, and replaces it with the
 * bytes of the sample; a verbatim image stays where it is. IMAGE_PADDING bytes must be allocated
 * beyond the buffer's size. The hash of name decides whether --mix stores the sample raw. Adds the
 * pixels to statistics unless NULL.
 */
int sample_encoder_encode(struct sample_encoder *sample_encoder, const char *name,
			  struct buffer *bytes, size_t offset, struct statistics *statistics,
			  struct encoded_sample *ret_encoded, struct packimg_error *error);
/*
 * Encodes a sample of a dataset (raw pixels are treated like those of a PNG) and appends the result
 * to bytes. Adds the pixels to statistics unless NULL or the sample is a JPEG.
 */
int sample_encoder_encode_stored(struct sample_encoder *sample_encoder,
				 const struct packimg_sample *sample, struct buffer *bytes,
				 struct statistics *statistics, struct encoded_sample *ret_encoded,
				 struct packimg_error *error);
/* Reduces a size to the limits, without enlarging it; at least 1 x 1. */
void sample_encoder_target_size(const struct sample_encoder_options *options, uint32_t width,
				uint32_t height, uint32_t *ret_width, uint32_t *ret_height);
