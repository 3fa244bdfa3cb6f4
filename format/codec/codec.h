/*
 * Interface of a codec: decodes a region of stored bytes to RGB pixels, in stored orientation. Each
 * decoder, and hence each thread, has one state, whose memory is charged to the decoder's scratch
 * budget. decode.c selects the codec, maps regions through the orientation and turns the result
 * upright.
 */
#pragma once

#include "format/codec/jpeg/jpeg_baseline.h"
#include "format/codec/scratch.h"
#include "format/packimg.h"

struct codec_request {
	const struct packimg_sample *sample;
	uint32_t width, height;       /* pixels of the stored image */
	struct packimg_region region; /* in stored coordinates, inside the image */
	/* scale to decode at, chosen by decode.c: 1/denominator, with 1, 2, 4 or 8 */
	uint32_t denominator;
	bool by_rows; /* rows() will be called until all rows are decoded */
	bool keeps;   /* raster(): keep bands, for requests of the same sample that follow */
	bool follows; /* such a request: the state has the bands of those before */
};

struct codec {
	/* The budget must outlive the state. */
	int (*state_new)(struct scratch_budget *budget, void **ret_state);
	void (*state_free)(void *state); /* accepts NULL */
	/*
	 * As packimg_decode(), in stored coordinates. The error message describes the fault in the
	 * data; the caller adds its location.
	 */
	int (*decode)(void *state, const struct codec_request *request,
		      struct packimg_pixels *ret_pixels, struct packimg_error *error);
	/*
	 * As packimg_decode_raster(), in stored coordinates; NULL if the codec cannot keep elements
	 * and channels.
	 */
	int (*raster)(void *state, const struct codec_request *request,
		      struct packimg_raster *ret_raster, struct packimg_error *error);
	/* As packimg_decode_begin_planes(); NULL if the codec has no planes. */
	int (*planes)(void *state, const struct codec_request *request,
		      struct packimg_planes *ret_planes, struct packimg_error *error);
	/*
	 * As packimg_decode_rows(), after decode() with by_rows returned a ring. NULL if decode()
	 * never returns one.
	 */
	int (*rows)(void *state, uint32_t end, uint32_t *ret_ready, struct packimg_error *error);
	/*
	 * As packimg_decode_ahead(), for requests of this codec only. NULL if decoding ahead is not
	 * faster.
	 */
	void (*ahead)(void *state, const struct codec_request *requests, uint32_t count);
};

extern const struct codec codec_jpeg;
extern const struct codec codec_raw;
extern const struct codec codec_raw_zstd;
extern const struct codec codec_raster;

/*
 * Returns a raster of bytes with 1 or 3 channels as RGB, in place or, if grey, in `grey`. -ENOMEM
 * or -E2BIG if that cannot grow.
 */
int codec_raster_rgb(const struct packimg_raster *raster, struct scratch *grey,
		     struct packimg_pixels *ret_pixels);

/* As packimg_decode_keep() and packimg_decode_borrow(); take states of codec_jpeg. */
int codec_jpeg_keep(void *state, const struct codec_request *request, struct packimg_error *error);
void codec_jpeg_borrow(void *state, const void *lender);

/*
 * As packimg_index_jpeg(). If source has an index (the content of its item), uses its columns;
 * -EBADMSG if it does not match the file. codec_jpeg_index() takes the state of codec_jpeg.
 */
int decoder_index(struct packimg_decoder *decoder, const struct jpeg_source *source,
		  const uint8_t **ret_jpeg_index, size_t *ret_size);
int codec_jpeg_index(void *state, const struct jpeg_source *source, const uint8_t **ret_jpeg_index,
		     size_t *ret_size);
