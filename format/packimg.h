/*
 * libpackimg: packed image datasets (.pimg).
 *
 * A dataset is one file, or a set of shard files that opens as one. A reader maps the files and
 * finds any sample in O(1). It is immutable after packimg_open(); any number of threads may use it.
 * A writer streams in one pass with bounded memory and commits the finished file by rename: an
 * interrupted writer leaves nothing that can be opened. A decoder holds the scratch memory of one
 * thread. SPEC.md and layout.h define the layout on disk.
 *
 * The library neither logs nor exits. Functions return 0 or a negative errno (-EBADMSG for damaged
 * data; -ENOTSUP for valid data that this version does not support). A function with an error
 * argument also stores a message for the user in it, which names file, sample, field, value and
 * remedy. Outputs named ret_x are unchanged on failure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of the format. packimg_open() rejects a file that exceeds them. */
enum {
	/* maximum width and height of an image in pixels, as in JPEG */
	PACKIMG_SIDE_MAX = 65535,
	PACKIMG_CLASSES_MAX = 1 << 24, /* class names */
	PACKIMG_FIELDS_MAX = 256,      /* extra columns */
	PACKIMG_NAME_MAX = 255,        /* bytes of a field name or a metadata key */
	PACKIMG_CLASS_NAME_MAX = 4096, /* bytes */
	PACKIMG_SOURCE_MAX = 65535,    /* bytes of the source name of a sample */
	/* maximum size in bytes of a value that loaderd delivers; the format has no limit */
	PACKIMG_FED_MAX = 65536,
	PACKIMG_SHARDS_MAX = 99999, /* files in a set */
	PACKIMG_ERROR_MAX = 512,    /* bytes of an error message, terminator included */
};

struct packimg_error {
	char text[PACKIMG_ERROR_MAX];
};

enum packimg_codec {
	PACKIMG_CODEC_JPEG = 1, /* a complete JPEG file */
	/* height x width x channels bytes, RGB or grey, no row padding */
	PACKIMG_CODEC_RAW = 2,
	PACKIMG_CODEC_RAW_ZSTD = 3, /* like RAW, compressed as one zstd frame */
	PACKIMG_CODEC_RASTER = 4,   /* any element, 1 to 32 channels (SPEC.md, "Codec 4, raster") */
};

/* Elements of a raster. The numbers are those of the format. */
enum packimg_element {
	PACKIMG_ELEMENT_U8 = 1,
	PACKIMG_ELEMENT_F32 = 4,
	PACKIMG_ELEMENT_U16 = 5,
	PACKIMG_ELEMENT_I16 = 6,
	PACKIMG_ELEMENT_I32 = 7,
};

enum { PACKIMG_RASTER_CHANNELS_MAX = 32 };

enum packimg_field_type {
	PACKIMG_FIELD_INT64 = 1,
	PACKIMG_FIELD_FLOAT64 = 2,
	PACKIMG_FIELD_BYTES = 3,
	PACKIMG_FIELD_JSON = 4, /* UTF-8 text of one JSON value */
	PACKIMG_FIELD_TEXT = 5, /* UTF-8 without NUL; earlier versions read it as BYTES */
};

/*
 * Checks the environment variable LOADERD_ISA, which caps the instruction sets in use. Returns
 * -EINVAL unless it is unset, empty or one of c, avx2, avx512bw and avx512. Decoders ignore an
 * invalid value; programs call this function at start-up and report the error.
 */
int packimg_isa_check(struct packimg_error *error);

/* Label of a sample without a class. */
#define PACKIMG_LABEL_NONE (-1)

/* Reader */

struct packimg;
struct schema; /* format/base/schema.h, installed as packimg/schema.h */

/*
 * One stored sample. Pointers lead into the mapping and are valid while the dataset is open;
 * numbers are copies. The file's owner may change the mapped bytes at any time, but not the file
 * size. So copy bytes, then validate and use the copy. data and side are 64-byte aligned, and at
 * least 64 readable bytes follow each, so vector code may load past the end. In an unmapped dataset
 * the pointers are only addresses for packimg_read(): reading through them faults.
 */
struct packimg_sample {
	uint64_t index;      /* index in the whole dataset, 0 .. packimg_count() - 1 */
	const uint8_t *data; /* stored bytes */
	const uint8_t *side; /* side data (SPEC.md, "Side data"), NULL if none */
	uint32_t data_size;  /* bytes */
	uint32_t side_size;  /* bytes */
	uint64_t data_xxh3;  /* XXH3-64 of the stored bytes */
	uint64_t side_xxh3;  /* XXH3-64 of the side data */
	uint32_t width;      /* pixels, after orientation */
	uint32_t height;     /* pixels, after orientation */
	int32_t label;       /* class number, or PACKIMG_LABEL_NONE */
	uint8_t codec;       /* enum packimg_codec */
	uint8_t channels;    /* stored, 1 to 32 (SPEC.md, "Codecs"); packimg_decode() returns RGB */
	uint8_t orientation; /* EXIF orientation 1..8 that turns the stored pixels upright */
	uint32_t shard;      /* file that holds the sample, for packimg_shard() */
	uint64_t data_offset; /* offset of the stored bytes in that file */
};

struct packimg_shard {
	const char *path;
	int fd;                /* read-only, owned by the dataset */
	const uint8_t *map;    /* must not be read if packimg_is_mapped() is false */
	uint64_t size;         /* bytes mapped or reserved */
	uint64_t sample_first; /* dataset index of the file's first sample */
	uint64_t sample_count;
};

/* The maximum length is unknown, because the file does not record it. */
#define PACKIMG_LONGEST_UNKNOWN UINT64_MAX

struct packimg_field {
	const char *name;
	enum packimg_field_type type;
	/* bytes of the longest value, or PACKIMG_LONGEST_UNKNOWN; undefined for numeric types */
	uint64_t longest;
};

/* One value of an extra field. */
struct packimg_value {
	bool present; /* if false, the sample has no value and the other members are zero */
	int64_t int64;
	double float64;
	/* non-numeric types: address in the mapping; bytes may change; not terminated */
	const void *bytes;
	size_t size;
};

/*
 * Opens one file, or a whole set if path names one of its shards ("NAME-00002-of-00016.pimg"), the
 * set itself ("NAME.pimg" if only shards exist), or a directory that holds exactly one file or set.
 * The cost does not depend on the number of samples. Errors: -ENOENT, -EACCES, -EBADMSG (bad
 * header, section or limit; a shard missing or from another set), -ENOTSUP (newer version or
 * unknown incompatible feature), -EEXIST (several datasets match the path), -EINVAL (not a regular
 * file), -ENOMEM, -EMFILE. error may be NULL.
 */
int packimg_open(const char *path, struct packimg **ret_dataset, struct packimg_error *error);

/*
 * The functions from here to packimg_close() take descriptors. They use only the system calls
 * fcntl, fstat, fstatfs, pread, mmap, munmap and close, so they work in a sandbox that denies
 * open(). name stands for the file or the set in error messages. Errors as packimg_open(), and
 * -EINVAL for a descriptor that is not open for reading, not a regular file, or on hugetlbfs.
 */

/*
 * The fields of a file header that identify the file and its set. Reading them takes one pread().
 */
struct packimg_identity {
	uint8_t set_uuid[16];
	uint32_t shard, shard_count;
	uint64_t sample_count; /* samples of the whole set */
	/* bytes that belong to the file according to its header; the file is at least that long */
	uint64_t file_size;
};

int packimg_identify(int fd, const char *name, struct packimg_identity *ret_identity,
		     struct packimg_error *error);
/*
 * Opens a dataset from descriptors in shard order. name becomes every packimg_shard().path; error
 * messages add the shard number. Takes ownership of the descriptors only on success.
 */
int packimg_open_fds(const char *name, const int *fds, uint32_t count, struct packimg **ret_dataset,
		     struct packimg_error *error);
/*
 * Like packimg_open_fds(), but maps no file: each access reads the bytes it needs with pread(). For
 * a process that must not be charged for the page cache of another user's file: reading a hole of a
 * tmpfs file through a mapping allocates a page that lives as long as the file. Reserves
 * inaccessible address space of the files' size, whose addresses stand for file offsets:
 * packimg_read() copies the bytes at such an address.
 */
int packimg_open_unmapped(const char *name, const int *fds, uint32_t count,
			  struct packimg **ret_dataset, struct packimg_error *error);
/*
 * Opens one shard of a set for the data that every shard stores: classes, metadata, fields,
 * statistics, UUID, and packimg_count() and packimg_shard_count() of the set. packimg_sample(),
 * packimg_source(), packimg_value(), packimg_shard() and packimg_check() return -ERANGE. Takes
 * ownership of fd only on success.
 */
int packimg_open_info(int fd, const char *name, struct packimg **ret_dataset,
		      struct packimg_error *error);
#define packimg_open_facts packimg_open_info /* earlier name, accepted in 0.2 */
void packimg_close(struct packimg *dataset);

bool packimg_is_mapped(const struct packimg *dataset);
/*
 * Copies bytes of the file that holds sample `index`. at is a pointer that packimg_sample(),
 * packimg_source() or packimg_value() returned for that sample; the range may extend up to 64 bytes
 * past the end of that data. -ERANGE if there is no such sample or the range is outside its file;
 * -EBADMSG if the file has shrunk or cannot be read.
 */
int packimg_read(const struct packimg *dataset, uint64_t index, const void *at, void *bytes,
		 size_t size);

uint64_t packimg_count(const struct packimg *dataset);
/*
 * Looks up a sample without touching its bytes. -ERANGE if there is no such sample; -EBADMSG if the
 * index record points outside the file or exceeds a limit.
 */
int packimg_sample(const struct packimg *dataset, uint64_t index,
		   struct packimg_sample *ret_sample);
/*
 * Further images of a sample: the images, masks and rasters of the schema other than the first
 * image. packimg_image() looks up the image of that number (schema_value.number), as
 * packimg_sample() does; the label is PACKIMG_LABEL_NONE. -ENODATA if the sample lacks this image;
 * -ERANGE if there is no such sample or image; -EBADMSG also if the size differs from that of the
 * image to which it belongs.
 */
uint32_t packimg_image_count(const struct packimg *dataset);
int packimg_image(const struct packimg *dataset, uint64_t index, uint32_t image,
		  struct packimg_sample *ret_image);
/*
 * Verifies the checksums of data and side data, and the structure of the side data. Reads every
 * byte. Returns 0 or -EBADMSG.
 */
int packimg_sample_check(const struct packimg_sample *sample);
/*
 * Returns the name of the source that the sample was made from: not terminated, size 0 if not
 * recorded. Like the values of packimg_value(), it points into the mapping. Errors as
 * packimg_value().
 */
int packimg_source(const struct packimg *dataset, uint64_t index, const char **ret_name,
		   size_t *ret_size);
/* Bytes of the longest source name, or PACKIMG_LONGEST_UNKNOWN. */
uint64_t packimg_source_longest(const struct packimg *dataset);

uint32_t packimg_class_count(const struct packimg *dataset);
/*
 * Returns a terminated UTF-8 name. Class names, field names and metadata are private copies. NULL
 * only if class_number is out of range: a dataset with a damaged class name does not open.
 */
const char *packimg_class_name(const struct packimg *dataset, uint32_t class_number);

uint32_t packimg_field_count(const struct packimg *dataset);
int packimg_field(const struct packimg *dataset, uint32_t field, struct packimg_field *ret_field);
/*
 * -EBADMSG if the location of the value is damaged, if the value is longer than
 * packimg_field.longest, or if it does not have the element and shape that a recorded schema
 * states. A returned value is never longer. The numbers in its bytes may change and are not
 * checked.
 */
int packimg_value(const struct packimg *dataset, uint64_t index, uint32_t field,
		  struct packimg_value *ret_value);

/*
 * Returns the schema: names, roles, elements and shapes of all values of a sample (SPEC.md,
 * "Schema"; packimg/schema.h). A file that records none has the implied schema: an image, the
 * fields, label, sample and key. Valid while the dataset is open.
 */
const struct schema *packimg_schema(const struct packimg *dataset);
/* True if the schema is recorded, false if it is implied. */
bool packimg_has_schema(const struct packimg *dataset);

/*
 * Returns the metadata of the dataset's producer: UTF-8 lines "key=value" sorted by key (SPEC.md,
 * "Metadata"). Never NULL.
 */
const char *packimg_metadata(const struct packimg *dataset);
/*
 * Mean and standard deviation of R, G, B in 0..255, as recorded when packing; -ENODATA if the file
 * has none.
 */
int packimg_statistics(const struct packimg *dataset, double ret_mean[3], double ret_std[3]);

uint32_t packimg_shard_count(const struct packimg *dataset);
int packimg_shard(const struct packimg *dataset, uint32_t shard, struct packimg_shard *ret_shard);
/* Returns the UUID of the set, 16 bytes. */
const uint8_t *packimg_uuid(const struct packimg *dataset);

/*
 * Checks every section checksum, the consistency of every index record, and what other sections say
 * of records, but not the samples. error describes the first fault. Takes 8 bytes a class, and
 * memory to sort samples that are not in file order. -ENOTSUP if the dataset is not mapped;
 * -ENOMEM.
 */
int packimg_check(const struct packimg *dataset, struct packimg_error *error);

/* Decoder: one per thread */

struct packimg_decoder;

struct packimg_region {
	uint32_t x, y, width, height; /* pixels, after orientation; not empty, inside the image */
};

/*
 * Decoded pixels: RGB, 8 bit, interleaved. Valid until the decoder's next call. The pixels of raw
 * samples are in the mapping. At least 64 readable bytes follow the last pixel.
 */
struct packimg_pixels {
	const uint8_t *data; /* first pixel of the returned rectangle */
	size_t stride;       /* bytes between row starts */
	/* 0 if all rows are present; else a power of two, and row y is stored as row y % ring */
	uint32_t ring;
	/* size of the returned rectangle in pixels; it contains the region and may be larger */
	uint32_t width;
	uint32_t height;
	/* origin of the region within the returned rectangle, in pixels of the rectangle */
	double x, y;
	double region_width; /* size of the region in pixels of the rectangle (region / scale) */
	double region_height;
};

int packimg_decoder_new(struct packimg_decoder **ret_decoder);
void packimg_decoder_free(struct packimg_decoder *decoder);
/*
 * Limits the memory for decoding one sample, including copies of stored bytes and the memory of
 * libjpeg-turbo. 0, the default, means no limit. A file of 100 KB can declare 12 GB of pixels.
 * Whether a sample is refused does not depend on earlier samples: their buffers are freed if
 * necessary, and a buffer that only a rare large sample needed is freed a few dozen samples later.
 * Images decoded ahead take up to 52 MiB more.
 */
void packimg_decoder_limit(struct packimg_decoder *decoder, uint64_t bytes);

/*
 * Decodes at least the given region of a sample. size_hint_* is the size to which the caller will
 * resize the region; 0 requires full scale. The codec may return the region at 1/2, 1/4 or 1/8
 * scale if both of its sides stay at least twice as large as the hint. JPEG scales with smaller
 * inverse transforms; its pixels equal those of libjpeg-turbo at that scale, with and without an
 * index (decode.c describes the effect on a finished crop). Grey, CMYK and YCCK become RGB;
 * orientation is applied. Allocates no memory while images are no larger than earlier ones. Uses a
 * JPEG index in the sample's side data, which must match side_xxh3.
 *
 * -EBADMSG for corrupt or incomplete data (SPEC.md, "Complete JPEGs"), with the reason in error
 * (may be NULL); -EINVAL for a region outside the image; -ENOTSUP for a coding that the library
 * cannot read (12 bit, or arithmetic if libjpeg lacks it); -E2BIG beyond packimg_decoder_limit().
 */
int packimg_decode(struct packimg_decoder *decoder, const struct packimg_sample *sample,
		   const struct packimg_region *region, uint32_t size_hint_width,
		   uint32_t size_hint_height, struct packimg_pixels *ret_pixels,
		   struct packimg_error *error);

/*
 * Returns the scale at which packimg_decode() returns a region: 1, 2, 4 or 8 for 1/1 to 1/8.
 * Regions of a sample that have the same scale have the same pixels where they overlap.
 */
uint32_t packimg_denominator(const struct packimg_sample *sample,
			     const struct packimg_region *region, uint32_t size_hint_width,
			     uint32_t size_hint_height);

/*
 * Pixels of any element and any number of channels, interleaved. The pixel in column x and row y
 * begins at data + x * step_x + y * step_y; steps may be negative. Elements are aligned.
 */
struct packimg_raster {
	const uint8_t *data;
	ptrdiff_t step_x, step_y; /* bytes to the next pixel on the right, and below */
	uint32_t width, height, channels;
	enum packimg_element element;
};

/* Returns the bytes of an element; 0 if the number is not that of an element. */
size_t packimg_element_size(enum packimg_element element);
/*
 * Decodes a region of a raster, raw or raw+zstd sample at full scale, without converting it to RGB.
 * Raw samples have bytes as elements. Applies the orientation by the steps of the result, which is
 * exactly the region, valid until the decoder's next call. The pixels of raw samples are in the
 * mapping: copy a value before checking it. Of a raster, reads only the bands of rows that the
 * region touches. Errors as packimg_decode(); -ENOTSUP for a JPEG.
 */
int packimg_decode_raster(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			  const struct packimg_region *region, struct packimg_raster *ret_raster,
			  struct packimg_error *error);

/*
 * Like packimg_decode_raster(), for several regions of one raster: the decoder has memory for all
 * bands, and keeps those that it has decoded, so that each is decoded once. Begins with this raster
 * if `first` is set, and after an error or another use of the decoder; otherwise sample has to be
 * the one before. -ENOTSUP for samples of other codecs.
 */
int packimg_decode_raster_bands(struct packimg_decoder *decoder,
				const struct packimg_sample *sample,
				const struct packimg_region *region, bool first,
				struct packimg_raster *ret_raster, struct packimg_error *error);

enum {
	PACKIMG_ROWS_HELD = 8,
	PACKIMG_PLANE_ROWS_HELD = 24,
	PACKIMG_NO_PLANES = 1, /* result of packimg_decode_begin_planes(): no planes */
};

/*
 * Like packimg_decode(), but packimg_decode_rows() produces the rows on demand, so the caller reads
 * them while they are cached and the decoder needs no buffer as tall as the region. If ring is not
 * 0, the rectangle begins with the first row of the region, and rows PACKIMG_ROWS_HELD or more
 * before the last requested end may be overwritten. sample must stay valid until the last row is
 * decoded. Reports only errors that the headers reveal.
 */
int packimg_decode_begin(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			 const struct packimg_region *region, uint32_t size_hint_width,
			 uint32_t size_hint_height, struct packimg_pixels *ret_pixels,
			 struct packimg_error *error);
/*
 * Decodes the rows of the returned rectangle before end, which is at most its height. ret_ready
 * receives the number of rows available now, at least end. Errors as packimg_decode(); after an
 * error the decoder returns no more rows.
 */
int packimg_decode_rows(struct packimg_decoder *decoder, uint32_t end, uint32_t *ret_ready,
			struct packimg_error *error);

/* One region to decode ahead; the arguments of packimg_decode_begin(). */
struct packimg_ahead {
	const struct packimg_sample *sample;
	struct packimg_region region;
	uint32_t size_hint_width, size_hint_height;
};

enum { PACKIMG_AHEAD_MAX = 8 };

/*
 * Announces the next regions to be decoded, at most PACKIMG_AHEAD_MAX. If two or more are JPEGs
 * without an index, they are Huffman-decoded side by side, in about two thirds of the time. Nothing
 * else changes: begin each region as usual, for the same pixels or the same error. Cancels a decode
 * in progress and an earlier announcement. The bytes of the samples must stay valid and unchanged
 * until the next call, whose count may be 0.
 */
void packimg_decode_ahead(struct packimg_decoder *decoder, const struct packimg_ahead *parts,
			  uint32_t count);

/*
 * Decodes the entropy-coded data of a region of a JPEG once and keeps the coefficients, up to 16
 * MiB, for regions inside it that this decoder, or one that borrows, decodes at any scale until the
 * next call of this function or packimg_decode_ahead(). Nothing else changes. The sample must stay
 * valid until then. Returns -ENOTSUP for another codec or a kind of JPEG that libjpeg-turbo
 * decodes, -E2BIG if the coefficients take more, or another error of packimg_decode(): then nothing
 * is kept.
 */
int packimg_decode_keep(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			const struct packimg_region *region);
/*
 * Lets a decoder use what `lender` keeps, until it is called with NULL, which must come before the
 * lender keeps something else.
 */
void packimg_decode_borrow(struct packimg_decoder *decoder, const struct packimg_decoder *lender);

/*
 * Samples of one component that a region touches, one byte each, before colour conversion. Row y is
 * stored as row (first + y) % ring of data; ring is a power of two. A sample covers x_factor x
 * y_factor pixels of the image and is centred in them. Valid as long as struct packimg_pixels.
 */
struct packimg_plane {
	const uint8_t *data;
	size_t stride;
	uint32_t ring, first;
	uint32_t width, height; /* samples */
	double x, y;            /* origin of the region, in samples relative to the first sample */
	uint32_t x_factor, y_factor;
};

/* Y, Cb and Cr as defined by JFIF. Y has the smallest factors. */
struct packimg_planes {
	struct packimg_plane planes[3];
};

/*
 * Like packimg_decode_begin(), but returns a JPEG's components as coded, neither upsampled nor
 * converted to RGB. Returns PACKIMG_NO_PLANES if the sample is raw, grey, rotated, or a kind of
 * JPEG that libjpeg-turbo decodes; this depends on the image, not on its index.
 * packimg_decode_rows() then counts rows of Y, and produces the samples of each plane that the rows
 * before end touch. Rows of a plane PACKIMG_PLANE_ROWS_HELD or more before the last of these may be
 * overwritten. packimg_decode_rows() returns -ENOTSUP if the scan turns out to need libjpeg-turbo:
 * use packimg_decode_begin() for such a sample.
 */
int packimg_decode_begin_planes(struct packimg_decoder *decoder,
				const struct packimg_sample *sample,
				const struct packimg_region *region, uint32_t size_hint_width,
				uint32_t size_hint_height, struct packimg_planes *ret_planes,
				struct packimg_error *error);

/* Properties of a JPEG file, from its headers alone. */
struct packimg_jpeg_info {
	uint32_t width, height; /* as stored, before orientation */
	uint8_t components;     /* 1 grey, 3 YCbCr or RGB, 4 CMYK or YCCK */
	uint8_t precision;      /* bits per component */
	uint8_t orientation;    /* EXIF 1..8; 1 when absent */
	bool progressive;
	bool arithmetic;
	/* the first scan does not hold all components (not interleaved) */
	bool several_scans;
	bool restart_within_rows;  /* restart markers occur elsewhere than between MCU rows */
	uint32_t restart_interval; /* MCUs between restart markers, 0 if none */
};

int packimg_jpeg_probe(const uint8_t *data, size_t size, struct packimg_jpeg_info *ret_info,
		       struct packimg_error *error);

/*
 * Builds the side data of a baseline JPEG: an index into its scan. With an index, packimg_decode()
 * starts at the first row of a region and decodes several rows at once, to the same pixels. Decodes
 * the whole scan once. The result is valid until the decoder's next call. -ENOTSUP for a kind that
 * gets no index (progressive, arithmetic, CMYK, 12 bit, restart markers within MCU rows, several
 * scans); -EBADMSG if damaged.
 */
int packimg_index_jpeg(struct packimg_decoder *decoder, const uint8_t *data, size_t size,
		       const struct packimg_jpeg_info *info, const uint8_t **ret_jpeg_index,
		       size_t *ret_size);
/* True if the sample has a JPEG index. Does not check that the index is right. */
bool packimg_sample_indexed(const struct packimg_sample *sample);
/* True for a JPEG sample without an index. */
bool packimg_sample_unindexed(const struct packimg_sample *sample);
/*
 * Rebuilds the index of a JPEG sample from its scan and compares it with the stored one. Returns 0
 * if they are equal; -ENODATA if the sample has no index of this version; -EBADMSG if they differ,
 * with row, field and both values in error (may be NULL); -ENOMEM. Invalidates the decoder's pixels
 * and indexes.
 */
int packimg_index_check(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			struct packimg_error *error);

/* An encoder holds the scratch memory of one thread. Output is valid until its next call. */

struct packimg_encoder;

int packimg_encoder_new(struct packimg_encoder **ret_encoder);
void packimg_encoder_free(struct packimg_encoder *encoder);
/*
 * Encodes pixels of 1 or 3 channels; stride in bytes; quality 1..100. Uses 4:2:0, and optimised
 * Huffman tables if optimise is set.
 */
int packimg_encode_jpeg(struct packimg_encoder *encoder, const uint8_t *pixels, size_t stride,
			uint32_t width, uint32_t height, uint32_t channels, int quality,
			bool optimise, const uint8_t **ret_data, size_t *ret_size);
int packimg_encode_zstd(struct packimg_encoder *encoder, const uint8_t *pixels, size_t size,
			int level, const uint8_t **ret_data, size_t *ret_size);

/* How a band of a raster is stored (SPEC.md, "Codec 4, raster"). */
enum packimg_raster_method {
	PACKIMG_RASTER_RAW = 0,
	PACKIMG_RASTER_ZSTD = 1,
	PACKIMG_RASTER_RUNS = 2, /* one channel of u8 or u16 */
	/*
	 * Chooses for each band: runs if they take at most an eighth of the raw size, because they
	 * decode several times faster than zstd; else zstd.
	 */
	PACKIMG_RASTER_BEST = 3,
};

enum { PACKIMG_RASTER_ROWS_LOG2_MAX = 8 };

struct packimg_raster_coding {
	enum packimg_raster_method method;
	int level; /* of zstd */
	/* bands of 1 << rows_log2 rows; fewer if such a band would exceed 4 MiB */
	uint32_t rows_log2;
};

/*
 * Encodes a raster for PACKIMG_CODEC_RASTER, losslessly. A band that a method does not make smaller
 * is stored raw. step_x must be the size of a pixel. -EINVAL for an impossible argument; -E2BIG if
 * the result could exceed 2^32 - 1 bytes; -ENOMEM. error may be NULL.
 */
int packimg_encode_raster(struct packimg_encoder *encoder, const struct packimg_raster *raster,
			  const struct packimg_raster_coding *coding, const uint8_t **ret_data,
			  size_t *ret_size, struct packimg_error *error);

/* A transcoder holds the scratch memory of one thread. Output is valid until its next call. */

struct packimg_transcoder;

int packimg_transcoder_new(struct packimg_transcoder **ret_transcoder);
void packimg_transcoder_free(struct packimg_transcoder *transcoder);
/*
 * Losslessly rewrites a JPEG of any coding (progressive, arithmetic, several scans, restart
 * intervals) as one baseline scan with optimised Huffman tables. Coefficients, and hence decoded
 * pixels, are unchanged. Keeps APPn and COM segments, drops bytes after EOI. -EBADMSG if damaged;
 * -ENOTSUP if unreadable, too large, or more than a baseline scan can hold; -ENOMEM. error may be
 * NULL.
 */
int packimg_transcode_jpeg(struct packimg_transcoder *transcoder, const uint8_t *data, size_t size,
			   const uint8_t **ret_data, size_t *ret_size, struct packimg_error *error);

/* Writer: one thread */

struct packimg_writer;

struct packimg_writer_options {
	/*
	 * bytes after which a new shard begins, 0 for one file; shards are NAME-00000-of-0000N.pimg
	 */
	uint64_t shard_size;
	/*
	 * 16 bytes, or NULL to derive the UUID from the samples. Then equal input gives equal
	 * bytes, and the same samples get the same UUID however they are split into shards.
	 */
	const uint8_t *uuid;
	/*
	 * Skips the directory scan for files of an earlier dataset. The caller guarantees that the
	 * directory has no shards and no commit record of this name, no leftovers of a killed
	 * writer of it and, with shard_size, no single file. The scan takes time proportional to
	 * the directory's size, so set this to write many datasets into one directory.
	 */
	bool alone;
};

struct packimg_item {
	const uint8_t *data; /* stored bytes, copied before the call returns */
	size_t data_size;
	const uint8_t *side; /* items as SPEC.md, "Side data"; NULL if none */
	size_t side_size;
	uint32_t width, height; /* upright */
	int32_t label;
	enum packimg_codec codec;
	uint8_t channels;
	uint8_t orientation; /* 1..8 */
	const char *source;  /* need not be terminated; size 0 if none */
	size_t source_size;
};

/*
 * Creates a writer. Nothing appears under path before packimg_writer_finish(). Error messages name
 * the path.
 */
int packimg_writer_new(const char *path, const struct packimg_writer_options *options,
		       struct packimg_writer **ret_writer, struct packimg_error *error);
/*
 * Declares an extra field. May be called at any time: samples added before have no value. -EEXIST
 * if the name exists with another type.
 */
int packimg_writer_field(struct packimg_writer *writer, const char *name,
			 enum packimg_field_type type, uint32_t *ret_field,
			 struct packimg_error *error);
/*
 * Sets the schema, whose text packimg/schema.h describes, before the first field and sample.
 * Declares a field for each value that is stored in one; packimg_writer_field() with the value's
 * name returns its number. From then on the writer checks values against the schema, and the next
 * packimg_writer_add() or packimg_writer_finish() checks that the sample before is complete.
 * -EINVAL with line and column of the fault.
 */
int packimg_writer_schema(struct packimg_writer *writer, const char *text,
			  struct packimg_error *error);
/*
 * Appends a sample. Its index is the number of samples added before it. Changes nothing if the item
 * is invalid or the previous sample is incomplete: -EINVAL; -E2BIG for too many shards.
 */
int packimg_writer_add(struct packimg_writer *writer, const struct packimg_item *item,
		       struct packimg_error *error);
/*
 * Adds a further image to the sample added last: the image, mask or raster of the schema with that
 * number (schema_value.number). label and source of the item are ignored. Add images in the order
 * of their numbers, so that one read fetches a sample. -EINVAL if the item breaks the schema;
 * -EEXIST if the sample has that image. That a mask has the size of its image is checked when the
 * sample is complete.
 */
int packimg_writer_image(struct packimg_writer *writer, uint32_t image,
			 const struct packimg_item *item, struct packimg_error *error);
/*
 * Sets a field of the sample added last; -EEXIST if it is already set. A value with present = false
 * changes nothing.
 */
int packimg_writer_value(struct packimg_writer *writer, uint32_t field,
			 const struct packimg_value *value, struct packimg_error *error);
/*
 * Sets classes, metadata and statistics of the dataset, at any time before finish. names holds
 * class_count terminated strings.
 */
int packimg_writer_classes(struct packimg_writer *writer, const char *const *names,
			   uint32_t class_count, struct packimg_error *error);
int packimg_writer_metadata(struct packimg_writer *writer, const char *key, const char *value,
			    struct packimg_error *error);
int packimg_writer_statistics(struct packimg_writer *writer, const double mean[3],
			      const double std[3]);
/* Bytes written so far, in all shards. */
uint64_t packimg_writer_bytes(const struct packimg_writer *writer);
/*
 * Writes sections and header, fsyncs, renames, and fsyncs the directory. A set is renamed only once
 * every shard is complete, so no shard is ever partial. The result replaces the dataset of that
 * name, file or set. After a kill at any moment, either the old or the new dataset opens (SPEC.md,
 * "Replacing a dataset"). If only the last fsync of the directory fails, returns the error but
 * leaves the new dataset in place: the old one may no longer exist, and a rename cannot be undone
 * safely.
 */
int packimg_writer_finish(struct packimg_writer *writer, struct packimg_error *error);
/* Frees the writer. Removes files without a final name. Accepts NULL. */
void packimg_writer_free(struct packimg_writer *writer);

/*
 * A receiver: files of a dataset whose bytes the caller has from elsewhere, such as a store. They
 * appear under their names only when they are complete, as a writer's do.
 */
struct packimg_receiver;

/*
 * Creates empty files under temporary names. shard_count: of a set; 0 for a file. path as for a
 * writer.
 */
int packimg_receiver_new(const char *path, uint32_t shard_count,
			 struct packimg_receiver **ret_receiver, struct packimg_error *error);
/* Returns the descriptor of a file, for reading and writing; the receiver keeps it. */
int packimg_receiver_fd(const struct packimg_receiver *receiver, uint32_t shard);
/*
 * Syncs and renames the files, as packimg_writer_finish() does. Does not check what they contain.
 * The descriptors are closed afterwards.
 */
int packimg_receiver_finish(struct packimg_receiver *receiver, struct packimg_error *error);
/* Removes files without a final name. Accepts NULL. */
void packimg_receiver_free(struct packimg_receiver *receiver);

/*
 * Rewriter: copies the files of a dataset with other JPEG indexes; everything else stays the same
 * (SPEC.md, "Adding side data"), but files without sections `members` and `sizes` get them.
 * Existing files do not change before packimg_rewriter_finish(). The dataset must outlive the
 * rewriter; readers that have it open keep the old files. One thread.
 */

struct packimg_rewriter;

/*
 * -EBADMSG if packimg_check() finds damage; -EINVAL if shards are links into several directories;
 * -ENOTSUP if bytes may belong to a section of an unknown type. Error messages name the file.
 */
int packimg_rewriter_new(const struct packimg *dataset, struct packimg_rewriter **ret_rewriter,
			 struct packimg_error *error);
/*
 * Returns the indexes of all samples in file order, the order in which to call
 * packimg_rewriter_put().
 */
const uint64_t *packimg_rewriter_order(const struct packimg_rewriter *rewriter);
/*
 * Writes the next sample of that order. jpeg_index is side data from packimg_index_jpeg() and
 * replaces an existing one. If jpeg_index_size is 0, drops an existing index; if jpeg_index is
 * NULL, leaves the side data unchanged.
 */
int packimg_rewriter_put(struct packimg_rewriter *rewriter, const uint8_t *jpeg_index,
			 size_t jpeg_index_size, struct packimg_error *error);
/*
 * Sets the index of a further image of the next sample, which the next packimg_rewriter_put()
 * writes. jpeg_index means the same as there, and must stay valid until then. Images for which it
 * is not called keep their side data. -EINVAL if there is no such image.
 */
int packimg_rewriter_image(struct packimg_rewriter *rewriter, uint32_t image,
			   const uint8_t *jpeg_index, size_t jpeg_index_size,
			   struct packimg_error *error);
/* Bytes written so far, in all shards. */
uint64_t packimg_rewriter_bytes(const struct packimg_rewriter *rewriter);
/*
 * Call after the last sample. Syncs the new files, then renames them over the old ones. A set
 * interrupted between two renames is still complete, with some shards new and some old.
 */
int packimg_rewriter_finish(struct packimg_rewriter *rewriter, struct packimg_error *error);
/* Removes the written files unless finish succeeded. Accepts NULL. */
void packimg_rewriter_free(struct packimg_rewriter *rewriter);

#ifdef __cplusplus
}
#endif
