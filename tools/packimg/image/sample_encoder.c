#include "tools/packimg/image/sample_encoder.h"

#include "format/augment/resize.h"
#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
	RAW_SEED = 0x726177,  /* seed of the hash used by --mix */
	STATISTICS_ROWS = 64, /* approximate number of rows per image that statistics use */
	/* threads decode images with more pixels one at a time */
	PIXELS_LARGE = 1 << 26,
	FILE_LARGE = 32 << 20,    /* bytes; copies of larger files are not kept in memory */
	STATISTICS_STEP_MAX = 16, /* statistics use at least one row in 16 */
};

int sample_encoder_init(struct sample_encoder *sample_encoder,
			const struct sample_encoder_options *options)
{
	*sample_encoder = (struct sample_encoder){.options = *options};
	int r = image_reader_init(&sample_encoder->reader);
	if (!r)
		r = packimg_encoder_new(&sample_encoder->encoder);
	if (!r && options->transcode)
		r = packimg_transcoder_new(&sample_encoder->transcoder);
	if (!r)
		r = resize_new(&sample_encoder->resize);
	if (r)
		sample_encoder_deinit(sample_encoder);
	return r;
}

void sample_encoder_deinit(struct sample_encoder *sample_encoder)
{
	image_reader_deinit(&sample_encoder->reader);
	packimg_encoder_free(sample_encoder->encoder);
	packimg_transcoder_free(sample_encoder->transcoder);
	resize_free(sample_encoder->resize);
	buffer_deinit(&sample_encoder->pixels);
	*sample_encoder = (struct sample_encoder){0};
}

void sample_encoder_target_size(const struct sample_encoder_options *options, uint32_t width,
				uint32_t height, uint32_t *ret_width, uint32_t *ret_height)
{
	uint32_t shorter = width < height ? width : height,
		 longer = width < height ? height : width;
	double scale = 1;

	if (options->short_side && shorter > options->short_side)
		scale = (double)options->short_side / shorter;
	if (options->max_side && longer > options->max_side &&
	    (double)options->max_side / longer < scale)
		scale = (double)options->max_side / longer;
	double to_width = round(width * scale);
	double to_height = round(height * scale);
	*ret_width = to_width < 1 ? 1 : (uint32_t)to_width;
	*ret_height = to_height < 1 ? 1 : (uint32_t)to_height;
}

/* Appends data, followed by the padding that decoders may read. */
static int append_padded(struct buffer *bytes, const void *data, size_t size,
			 struct packimg_error *error)
{
	if (buffer_append(bytes, data, size) || buffer_reserve(bytes, bytes->size + IMAGE_PADDING))
		return packimg_fail(error, -ENOMEM, "out of memory");
	return 0;
}

static enum packimg_codec choose_codec(const struct sample_encoder_options *options,
				       const char *name, const struct image_info *info)
{
	enum packimg_codec raw = options->raw_zstd ? PACKIMG_CODEC_RAW_ZSTD : PACKIMG_CODEC_RAW;

	if (options->raw_fraction >= 1 ||
	    (options->raw_fraction > 0 &&
	     shuffle_fraction(name, strlen(name), RAW_SEED) < options->raw_fraction))
		return raw;
	return options->verbatim && info->kind != IMAGE_JPEG ? options->other : PACKIMG_CODEC_JPEG;
}

static void add_statistics(struct statistics *statistics, const struct resize_picture *pixels)
{
	uint32_t step = pixels->height / STATISTICS_ROWS;

	if (!statistics)
		return;
	statistics_add_pixels(statistics, pixels,
			      step < 1                     ? 1
			      : step > STATISTICS_STEP_MAX ? STATISTICS_STEP_MAX
							   : step);
}

/*
 * Appends the index of the JPEG in bytes, which extends from offset to the end. Also checks a JPEG
 * that gets no index.
 */
static int add_index(struct sample_encoder *sample_encoder, struct buffer *bytes, size_t offset,
		     const struct image_info *info, struct encoded_sample *encoded,
		     struct packimg_error *error)
{
	struct image_side side;

	encoded->data_size = bytes->size - offset;
	if (sample_encoder->options.no_index)
		return image_check(&sample_encoder->reader, bytes->data + offset,
				   encoded->data_size, info, error);
	int r = image_index(&sample_encoder->reader, bytes->data + offset, encoded->data_size, info,
			    &side, &encoded->unindexed, error);
	if (r)
		return r;
	encoded->side_size = side.size;
	return side.size ? append_padded(bytes, side.data, side.size, error) : 0;
}

/*
 * Replaces a JPEG that cannot have an index with a baseline JPEG of the same coefficients. Leaves
 * other JPEGs unchanged, including those that are too large to transcode.
 */
static int transcode_verbatim(struct sample_encoder *sample_encoder, struct buffer *bytes,
			      size_t offset, struct image_info *info, bool *ret_transcoded,
			      struct packimg_error *error)
{
	const uint8_t *data;
	size_t size;

	*ret_transcoded = false;
	if (!sample_encoder->options.transcode ||
	    !unindexed_can_transcode(unindexed_reason(&info->jpeg)))
		return 0;
	int r = packimg_transcode_jpeg(sample_encoder->transcoder, bytes->data + offset,
				       bytes->size - offset, &data, &size, error);
	if (r)
		return r == -ENOTSUP ? 0 : r;
	bytes->size = offset;
	r = append_padded(bytes, data, size, error);
	*ret_transcoded = true;
	return r ? r : image_probe(bytes->data + offset, size, info, error);
}

static int keep_verbatim(struct sample_encoder *sample_encoder, struct buffer *bytes, size_t offset,
			 struct image_info *info, struct statistics *statistics,
			 struct encoded_sample *ret_encoded, struct packimg_error *error)
{
	struct encoded_sample encoded = {
		.codec = PACKIMG_CODEC_JPEG,
		.channels = info->channels,
		.orientation = info->orientation,
		.kind = info->kind,
	};
	struct resize_picture pixels;

	image_upright_size(info, &encoded.width, &encoded.height);
	int r = transcode_verbatim(sample_encoder, bytes, offset, info, &encoded.transcoded, error);
	if (!r)
		r = add_index(sample_encoder, bytes, offset, info, &encoded, error);
	if (r)
		return r;
	encoded.verbatim = !encoded.transcoded;
	if (statistics) {
		const uint8_t *data = bytes->data + offset;
		const struct image_side side = {data + encoded.data_size, encoded.side_size};

		/*
		 * Ignore errors: whether an image is skipped must not depend on whether it is used
		 * for statistics.
		 */
		if (!image_read(&sample_encoder->reader, data, encoded.data_size, info,
				side.size ? &side : NULL, 0, 0, &pixels, error))
			add_statistics(statistics, &pixels);
	}
	*ret_encoded = encoded;
	return 0;
}

/* Resizes pixels to exactly width x height. Leaves them unchanged if they have that size. */
static int resize_pixels(struct sample_encoder *sample_encoder, struct resize_picture *pixels,
			 uint32_t width, uint32_t height, struct packimg_error *error)
{
	size_t stride = (size_t)width * pixels->channels;

	if (pixels->width == width && pixels->height == height)
		return 0;
	if (buffer_reserve(&sample_encoder->pixels, height * stride))
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = resize_image(sample_encoder->resize, pixels, width, height,
			     sample_encoder->pixels.data, stride);
	if (r)
		return packimg_fail(error, r, "resizing to %ux%u: %s", width, height, strerror(-r));
	*pixels = (struct resize_picture){
		.data = sample_encoder->pixels.data,
		.stride = stride,
		.width = width,
		.height = height,
		.channels = pixels->channels,
		.extent_width = width,
		.extent_height = height,
	};
	return 0;
}

/* Removes row padding, if necessary by copying to the encoder's memory. */
static int pack_rows(struct sample_encoder *sample_encoder, struct resize_picture *pixels)
{
	size_t row = (size_t)pixels->width * pixels->channels;

	if (pixels->stride == row)
		return 0;
	if (buffer_reserve(&sample_encoder->pixels, row * pixels->height))
		return -ENOMEM;
	for (uint32_t y = 0; y < pixels->height; y++)
		memcpy(sample_encoder->pixels.data + y * row, pixels->data + y * pixels->stride,
		       row);
	pixels->data = sample_encoder->pixels.data;
	pixels->stride = row;
	return 0;
}

/*
 * Encodes pixels. The resulting bytes belong to the encoder or to the pixels. May change the codec
 * from raw+zstd to raw.
 */
static int encode_pixels(struct sample_encoder *sample_encoder, struct resize_picture *pixels,
			 enum packimg_codec *codec, const uint8_t **ret_data, size_t *ret_size,
			 struct packimg_error *error)
{
	const struct sample_encoder_options *options = &sample_encoder->options;
	size_t bytes = (size_t)pixels->width * pixels->height * pixels->channels;
	int r;

	if (*codec == PACKIMG_CODEC_JPEG) {
		r = packimg_encode_jpeg(sample_encoder->encoder, pixels->data, pixels->stride,
					pixels->width, pixels->height, pixels->channels,
					options->quality, options->optimise, ret_data, ret_size);
		return r ? packimg_fail(error, r, "JPEG encoder: %s", strerror(-r)) : 0;
	}
	if (bytes > UINT32_MAX || pack_rows(sample_encoder, pixels))
		return packimg_fail(error, -ENOMEM, "%ux%u pixels are too large to be stored raw",
				    pixels->width, pixels->height);
	if (*codec == PACKIMG_CODEC_RAW_ZSTD) {
		r = packimg_encode_zstd(sample_encoder->encoder, pixels->data, bytes,
					options->zstd_level, ret_data, ret_size);
		if (r)
			return packimg_fail(error, r, "zstd encoder: %s", strerror(-r));
		if (*ret_size < bytes)
			return 0;
		*codec = PACKIMG_CODEC_RAW;
	}
	*ret_data = pixels->data;
	*ret_size = bytes;
	return 0;
}

/*
 * Resizes pixels to the size in `encoded`, encodes them with its codec, and stores the bytes at
 * offset.
 */
static int store_pixels(struct sample_encoder *sample_encoder, struct resize_picture *pixels,
			struct buffer *bytes, size_t offset, struct statistics *statistics,
			struct encoded_sample *encoded, struct packimg_error *error)
{
	struct image_info made;
	const uint8_t *data;

	int r = resize_pixels(sample_encoder, pixels, encoded->width, encoded->height, error);
	if (r)
		return r;
	add_statistics(statistics, pixels);
	r = encode_pixels(sample_encoder, pixels, &encoded->codec, &data, &encoded->data_size,
			  error);
	if (r)
		return r;
	bytes->size = offset;
	r = append_padded(bytes, data, encoded->data_size, error);
	if (r)
		return r;
	encoded->channels = (uint8_t)pixels->channels;
	encoded->orientation = 1;
	if (encoded->codec != PACKIMG_CODEC_JPEG)
		return 0;
	r = image_probe(bytes->data + offset, encoded->data_size, &made, error);
	return r ? r : add_index(sample_encoder, bytes, offset, &made, encoded, error);
}

static int encode_probed(struct sample_encoder *sample_encoder, const char *name,
			 struct buffer *bytes, size_t offset, struct image_info *info,
			 struct statistics *statistics, struct encoded_sample *ret_encoded,
			 struct packimg_error *error)
{
	const struct sample_encoder_options *options = &sample_encoder->options;
	uint32_t width, height;
	struct encoded_sample encoded = {.codec = choose_codec(options, name, info),
					 .kind = info->kind};
	struct resize_picture pixels;

	image_upright_size(info, &width, &height);
	sample_encoder_target_size(options, width, height, &encoded.width, &encoded.height);
	bool shrink = width != encoded.width || height != encoded.height;
	if (encoded.codec == PACKIMG_CODEC_JPEG && options->verbatim && info->kind == IMAGE_JPEG &&
	    !shrink)
		return keep_verbatim(sample_encoder, bytes, offset, info, statistics, ret_encoded,
				     error);
	int r = image_read(&sample_encoder->reader, bytes->data + offset, bytes->size - offset,
			   info, NULL, shrink ? encoded.width : 0, shrink ? encoded.height : 0,
			   &pixels, error);
	if (!r)
		r = store_pixels(sample_encoder, &pixels, bytes, offset, statistics, &encoded,
				 error);
	if (!r)
		*ret_encoded = encoded;
	return r;
}

/*
 * After a very large image or file, replaces the encoder's state with a new one and frees the old
 * memory.
 */
static void sample_encoder_shrink(struct sample_encoder *sample_encoder)
{
	struct sample_encoder fresh;

	if (sample_encoder_init(&fresh, &sample_encoder->options))
		return;
	sample_encoder_deinit(sample_encoder);
	*sample_encoder = fresh;
}

int sample_encoder_encode(struct sample_encoder *sample_encoder, const char *name,
			  struct buffer *bytes, size_t offset, struct statistics *statistics,
			  struct encoded_sample *ret_encoded, struct packimg_error *error)
{
	static pthread_mutex_t large_turn = PTHREAD_MUTEX_INITIALIZER;
	struct image_info info;
	int r = image_probe(bytes->data + offset, bytes->size - offset, &info, error);

	if (r)
		return r;
	uint64_t pixels = (uint64_t)info.width * info.height;
	if (sample_encoder->options.pixels_max && pixels > sample_encoder->options.pixels_max)
		return packimg_fail(error, -EFBIG,
				    "%ux%u pixels are more than --max-pixels allows (%" PRIu64 ")",
				    info.width, info.height, sample_encoder->options.pixels_max);
	bool large_file = bytes->size - offset > FILE_LARGE;
	if (pixels <= PIXELS_LARGE) {
		r = encode_probed(sample_encoder, name, bytes, offset, &info, statistics,
				  ret_encoded, error);
		/* the decoder has copied the JPEG, and would keep that memory */
		if (large_file)
			sample_encoder_shrink(sample_encoder);
		return r;
	}
	/*
	 * A small file can be a very large image: only one thread at a time may decode such an
	 * image.
	 */
	pthread_mutex_lock(&large_turn);
	r = encode_probed(sample_encoder, name, bytes, offset, &info, statistics, ret_encoded,
			  error);
	sample_encoder_shrink(sample_encoder);
	pthread_mutex_unlock(&large_turn);
	return r;
}

static int encode_stored_jpeg(struct sample_encoder *sample_encoder,
			      const struct packimg_sample *sample, struct buffer *bytes,
			      struct encoded_sample *ret_encoded, struct packimg_error *error)
{
	size_t offset = bytes->size;
	struct image_info info;

	int r = append_padded(bytes, sample->data, sample->data_size, error);
	if (r)
		return r;
	r = image_probe(bytes->data + offset, sample->data_size, &info, error);
	/* in a dataset, the orientation inside a JPEG has no effect (SPEC.md, "Orientation") */
	info.orientation = sample->orientation;
	return r ? r
		 : encode_probed(sample_encoder, "", bytes, offset, &info, NULL, ret_encoded,
				 error);
}

int sample_encoder_encode_stored(struct sample_encoder *sample_encoder,
				 const struct packimg_sample *sample, struct buffer *bytes,
				 struct statistics *statistics, struct encoded_sample *ret_encoded,
				 struct packimg_error *error)
{
	const struct image_info info = {
		.kind = IMAGE_PNG}; /* treat the raw pixels like those of a PNG */
	struct encoded_sample encoded = {.codec = choose_codec(&sample_encoder->options, "", &info),
					 .kind = info.kind};
	struct resize_picture pixels;

	if (sample->codec == PACKIMG_CODEC_JPEG)
		return encode_stored_jpeg(sample_encoder, sample, bytes, ret_encoded, error);
	int r = image_read_sample(&sample_encoder->reader, sample, 0, 0, &pixels, error);
	sample_encoder_target_size(&sample_encoder->options, sample->width, sample->height,
				   &encoded.width, &encoded.height);
	if (!r)
		r = store_pixels(sample_encoder, &pixels, bytes, bytes->size, statistics, &encoded,
				 error);
	if (!r)
		*ret_encoded = encoded;
	return r;
}
