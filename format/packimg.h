/*
 * libpackimg: packed image datasets (.pimg).
 *
 * A dataset is one file, or a set of shard files that opens as one. A reader maps the files and
 * answers for any sample in O(1); it is immutable after packimg_open() and may be used from any
 * number of threads. A writer streams in one pass with bounded memory and commits the finished
 * file by rename: an interrupted writer leaves nothing that opens. A decoder holds the scratch
 * memory of one thread. The layout on disk is in SPEC.md and layout.h.
 *
 * The library neither logs nor exits. Functions return 0 or a negative errno (-EBADMSG: the data is
 * damaged; -ENOTSUP: valid, but not for this version); those with an error argument then leave a
 * sentence for a person in it, naming file, sample, field, value and remedy. Outputs named ret_x
 * are untouched on failure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of the format: a file beyond them is rejected when opened. */
enum {
	PACKIMG_SIDE_MAX = 65535,      /* pixels, either side of an image (JPEG's own limit) */
	PACKIMG_CLASSES_MAX = 1 << 24, /* class names */
	PACKIMG_FIELDS_MAX = 256,      /* extra columns */
	PACKIMG_NAME_MAX = 255,        /* bytes of a field's name or a metadata key */
	PACKIMG_CLASS_NAME_MAX = 4096, /* bytes */
	PACKIMG_SOURCE_MAX = 65535,    /* bytes of a sample's source name */
	/* bytes of a value that loaderd delivers; the format has no limit */
	PACKIMG_FED_MAX = 65536,
	PACKIMG_SHARDS_MAX = 99999, /* files in a set */
	PACKIMG_ERROR_MAX = 512,    /* bytes of an error text, terminator included */
};

struct packimg_error {
	char text[PACKIMG_ERROR_MAX];
};

enum packimg_codec {
	PACKIMG_CODEC_JPEG = 1, /* a complete JPEG file */
	/* height x width x channels bytes, RGB or grey, no row padding */
	PACKIMG_CODEC_RAW = 2,
	PACKIMG_CODEC_RAW_ZSTD = 3, /* the same in one zstd frame */
};

enum packimg_field_type {
	PACKIMG_FIELD_INT64 = 1,
	PACKIMG_FIELD_FLOAT64 = 2,
	PACKIMG_FIELD_BYTES = 3,
	PACKIMG_FIELD_JSON = 4, /* UTF-8 text of one JSON value */
	PACKIMG_FIELD_TEXT = 5, /* UTF-8 without NUL; to earlier versions BYTES */
};

/*
 * -EINVAL: the environment variable LOADERD_ISA, which caps the instruction sets in use, is none of
 * c, avx2, avx512bw and avx512. Decoders take it as no cap then; programs ask here first, and say
 * so.
 */
int packimg_isa_check(struct packimg_error *error);

/* Label of a sample without a class. */
#define PACKIMG_LABEL_NONE (-1)

/* Reader */

struct packimg;

/*
 * One stored sample; pointers lead into the mapping and live as long as the dataset is open. The
 * file's owner may change the bytes there at any moment, but not their number: whoever takes a
 * decision from them copies them first. Numbers here are copies. data and side are 64-byte aligned,
 * and at least 64 readable bytes follow each, so that vector code may load beyond the end. Of a
 * dataset that is not mapped they are addresses for packimg_read(); reading there faults.
 */
struct packimg_sample {
	uint64_t index;       /* in the whole dataset, 0 .. packimg_count()-1 */
	const uint8_t *data;  /* stored bytes */
	const uint8_t *side;  /* side data (SPEC.md, "Side data"), NULL when there is none */
	uint32_t data_size;   /* bytes */
	uint32_t side_size;   /* bytes */
	uint64_t data_xxh3;   /* XXH3-64 of the stored bytes */
	uint64_t side_xxh3;   /* XXH3-64 of the side data */
	uint32_t width;       /* pixels, upright (after orientation) */
	uint32_t height;      /* pixels, upright */
	int32_t label;        /* class number, or PACKIMG_LABEL_NONE */
	uint8_t codec;        /* enum packimg_codec */
	uint8_t channels;     /* of the stored pixels: 1, 3 or 4; decoding always gives RGB */
	uint8_t orientation;  /* EXIF orientation 1..8 that turns the stored pixels upright */
	uint32_t shard;       /* file that holds it, for packimg_shard() */
	uint64_t data_offset; /* of the stored bytes in that file */
};

struct packimg_shard {
	const char *path;
	int fd;                /* read-only, owned by the dataset */
	const uint8_t *map;    /* not to be read where packimg_is_mapped() is false */
	uint64_t size;         /* bytes mapped, or reserved */
	uint64_t sample_first; /* dataset index of its first sample */
	uint64_t sample_count;
};

/* A length that the file does not record. */
#define PACKIMG_LONGEST_UNKNOWN UINT64_MAX

struct packimg_field {
	const char *name;
	enum packimg_field_type type;
	/* bytes of the longest value, or PACKIMG_LONGEST_UNKNOWN; of numbers nothing */
	uint64_t longest;
};

/* One value of an extra field. */
struct packimg_value {
	bool present; /* false: this sample has no value, the rest is zero */
	int64_t int64;
	double float64;
	const void *bytes; /* no numbers: into the mapping, where they may change; not terminated */
	size_t size;
};

/*
 * Opens one file, or a whole set when path names one of its shards ("NAME-00002-of-00016.pimg"),
 * the set itself
 * ("NAME.pimg" where only shards exist), or a directory that holds exactly one file or set. The
 * cost does not depend on the number of samples. Errors: -ENOENT, -EACCES, -EBADMSG (header,
 * section or limits wrong, shard missing or of another set), -ENOTSUP (newer version or unknown
 * incompatible feature), -EEXIST (several datasets fit the path), -EINVAL (not a regular file),
 * -ENOMEM, -EMFILE. error may be NULL.
 */
int packimg_open(const char *path, struct packimg **ret_dataset, struct packimg_error *error);

/*
 * From here to packimg_close() only descriptors are used, with no other system calls than fcntl,
 * fstat, fstatfs, pread, mmap, munmap, close: these work inside a sandbox that opens nothing. name
 * stands for the file or the set in texts. Errors as packimg_open(), and -EINVAL: a descriptor not
 * open for reading, of no regular file, or of one on hugetlbfs.
 */

/* What a file says of itself and of its set, from its header alone (one pread). */
struct packimg_identity {
	uint8_t set_uuid[16];
	uint32_t shard, shard_count;
	uint64_t sample_count; /* of the set */
	/* bytes that belong to the file, as its header says; not less are there */
	uint64_t file_size;
};

int packimg_identify(int fd, const char *name, struct packimg_identity *ret_identity,
		     struct packimg_error *error);
/*
 * Opens a dataset from descriptors in the order of its shards; name is every packimg_shard().path,
 * in texts with the shard's number. Takes the descriptors over on success only.
 */
int packimg_open_fds(const char *name, const int *fds, uint32_t count, struct packimg **ret_dataset,
		     struct packimg_error *error);
/*
 * As packimg_open_fds(), but maps no file: each access reads what it needs with pread(). For a
 * process that must not be charged for the pages of a file of somebody else: a mapping allocates a
 * page wherever it reads a hole of a tmpfs file, and the page stays as long as the file. Addresses
 * of the files' size are reserved and cannot be read: packimg_read() copies what lies there.
 */
int packimg_open_unmapped(const char *name, const int *fds, uint32_t count,
			  struct packimg **ret_dataset, struct packimg_error *error);
/*
 * One shard alone, of whatever set, for the facts that every shard has: classes, metadata, fields,
 * statistics, UUID, packimg_count() and packimg_shard_count() of the set. packimg_sample(),
 * packimg_source(), packimg_value(), packimg_shard() and packimg_check() are -ERANGE. Takes fd over
 * on success.
 */
int packimg_open_facts(int fd, const char *name, struct packimg **ret_dataset,
		       struct packimg_error *error);
void packimg_close(struct packimg *dataset);

bool packimg_is_mapped(const struct packimg *dataset);
/*
 * Copies bytes of the file that holds this sample. at: a pointer that packimg_sample(),
 * packimg_source() or packimg_value() gave for it, or up to 64 bytes behind what that leads to.
 * -ERANGE: no such sample, or not within its file; -EBADMSG: the file has become shorter, or cannot
 * be read.
 */
int packimg_read(const struct packimg *dataset, uint64_t index, const void *at, void *bytes,
		 size_t size);

uint64_t packimg_count(const struct packimg *dataset);
/*
 * -ERANGE past the end; -EBADMSG when the index record points outside the file or breaks a limit.
 * Does not touch sample bytes.
 */
int packimg_sample(const struct packimg *dataset, uint64_t index,
		   struct packimg_sample *ret_sample);
/*
 * 0, or -EBADMSG when the checksum of data or side data does not fit, or side data is malformed.
 * Reads every byte.
 */
int packimg_sample_check(const struct packimg_sample *sample);
/*
 * Name of the source the sample was made from, not terminated; size 0 when not recorded. Into the
 * mapping, as below. -EBADMSG as packimg_value().
 */
int packimg_source(const struct packimg *dataset, uint64_t index, const char **ret_name,
		   size_t *ret_size);
/* Bytes of the longest one, or PACKIMG_LONGEST_UNKNOWN. */
uint64_t packimg_source_longest(const struct packimg *dataset);

uint32_t packimg_class_count(const struct packimg *dataset);
/*
 * Terminated UTF-8 name, like fields and metadata from a private copy. NULL only when the class is
 * out of range: a dataset with a damaged name does not open.
 */
const char *packimg_class_name(const struct packimg *dataset, uint32_t class_number);

uint32_t packimg_field_count(const struct packimg *dataset);
int packimg_field(const struct packimg *dataset, uint32_t field, struct packimg_field *ret_field);
/*
 * -EBADMSG when the value's place is damaged, or it is longer than packimg_field.longest: so none
 * ever is.
 */
int packimg_value(const struct packimg *dataset, uint64_t index, uint32_t field,
		  struct packimg_value *ret_value);

/*
 * Metadata written by the producer: a UTF-8 text of "key=value" lines sorted by key (SPEC.md,
 * "Metadata"); never NULL.
 */
const char *packimg_metadata(const struct packimg *dataset);
/*
 * Mean and standard deviation of R, G, B in 0..255 as recorded when packing; -ENODATA when the file
 * has none.
 */
int packimg_statistics(const struct packimg *dataset, double ret_mean[3], double ret_std[3]);

uint32_t packimg_shard_count(const struct packimg *dataset);
int packimg_shard(const struct packimg *dataset, uint32_t shard, struct packimg_shard *ret_shard);
/* 16 bytes, of the set. */
const uint8_t *packimg_uuid(const struct packimg *dataset);

/*
 * Checks every section checksum and the consistency of every index record, not the samples; first
 * fault in error. -ENOTSUP: the dataset is not mapped.
 */
int packimg_check(const struct packimg *dataset, struct packimg_error *error);

/* Decoder: one per thread */

struct packimg_decoder;

struct packimg_region {
	uint32_t x, y, width, height; /* pixels, upright coordinates; not empty, inside the image */
};

/*
 * Decoded pixels: RGB, 8 bit, interleaved. Valid until the decoder's next call (raw samples: into
 * the mapping). At least 64 readable bytes follow the last pixel.
 */
struct packimg_pixels {
	const uint8_t *data; /* first pixel of the returned rectangle */
	size_t stride;       /* bytes from row to row */
	/* 0: all rows are there; else, a power of two: row y lies where row y % ring would */
	uint32_t ring;
	/* pixels of the returned rectangle: it holds the region, and may reach beyond it */
	uint32_t width;
	uint32_t height;
	/* where the region begins in the returned rectangle, in returned pixels */
	double x, y;
	double region_width; /* extent of the region in returned pixels (region / scale) */
	double region_height;
};

int packimg_decoder_new(struct packimg_decoder **ret_decoder);
void packimg_decoder_free(struct packimg_decoder *decoder);
/*
 * Limits the memory that decoding one sample may take, copies of stored bytes and libjpeg-turbo's
 * included; 0, as at first: there is no limit. A file of 100 KB can declare 12 GB of pixels.
 * Whether a sample is refused does not depend on those before it: what they left gives way, and
 * what a rare large one left goes by itself, a few dozen samples later. Besides, what was decoded
 * ahead takes at most 52 MiB.
 */
void packimg_decoder_limit(struct packimg_decoder *decoder, uint64_t bytes);

/*
 * Decodes at least the region of a sample. size_hint_* say how many pixels the caller will make of
 * the region: the codec may return it at 1/2, 1/4 or 1/8 as long as it stays at least twice as
 * large as the hint in both directions (JPEG: by smaller inverse transforms, pixels equal
 * libjpeg-turbo's at that scale, with an index and without; decode.c has what that does to a
 * finished crop); 0 asks for full scale. Grey becomes RGB, CMYK and YCCK become RGB, orientation is
 * applied. No memory is allocated while images are no larger than those before. A JPEG index in the
 * sample's side data is used, and must match side_xxh3. Corrupt data, and such as are missing
 * (SPEC.md, "Complete JPEGs"), are -EBADMSG with the reason in error (may be NULL); -EINVAL for a
 * region outside the image; -ENOTSUP for a coding that the library cannot read (12 bit, arithmetic
 * where absent); -E2BIG beyond packimg_decoder_limit().
 */
int packimg_decode(struct packimg_decoder *decoder, const struct packimg_sample *sample,
		   const struct packimg_region *region, uint32_t size_hint_width,
		   uint32_t size_hint_height, struct packimg_pixels *ret_pixels,
		   struct packimg_error *error);

enum {
	PACKIMG_ROWS_HELD = 8,
	PACKIMG_PLANE_ROWS_HELD = 24,
	PACKIMG_NO_PLANES = 1, /* an outcome of packimg_decode_begin_planes() */
};

/*
 * As packimg_decode(), but rows come as they are asked for, so that they are read while they are in
 * the cache and no picture as tall as the region is made. Where ring is not 0, rows that lie
 * PACKIMG_ROWS_HELD or more before the end last asked for may be gone, and the rectangle begins
 * with the region's first row. sample must stay until the last row has come. Errors are those that
 * the headers show.
 */
int packimg_decode_begin(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			 const struct packimg_region *region, uint32_t size_hint_width,
			 uint32_t size_hint_height, struct packimg_pixels *ret_pixels,
			 struct packimg_error *error);
/*
 * Makes the returned rectangle's rows before end, at most its height; ret_ready, at least end, is
 * how many are there now. Errors as packimg_decode(); the decoder then gives no more rows.
 */
int packimg_decode_rows(struct packimg_decoder *decoder, uint32_t end, uint32_t *ret_ready,
			struct packimg_error *error);

/* A part of a sample, as packimg_decode_begin() takes it. */
struct packimg_ahead {
	const struct packimg_sample *sample;
	struct packimg_region region;
	uint32_t size_hint_width, size_hint_height;
};

enum { PACKIMG_AHEAD_MAX = 8 };

/*
 * Says what will be decoded next, at most PACKIMG_AHEAD_MAX parts. Of JPEGs that have no index
 * several are Huffman-decoded at once, side by side, in about two thirds of the time; nothing else
 * changes: each part is then begun as ever, gives the same pixels, or the same error. Takes back
 * what was begun before, and what was said before; the samples' bytes must neither change nor go
 * until the next call, which may be for none.
 */
void packimg_decode_ahead(struct packimg_decoder *decoder, const struct packimg_ahead *parts,
			  uint32_t count);

/*
 * The samples of one component that a region touches, one byte each, before there are colours. Row
 * y lies in row (first + y) % ring of data, ring being a power of two. A sample stands for x_factor
 * x y_factor pixels of the image and is centred in them. Valid as packimg_pixels.
 */
struct packimg_plane {
	const uint8_t *data;
	size_t stride;
	uint32_t ring, first;
	uint32_t width, height; /* samples */
	double x, y;            /* where the region begins, in samples from the first */
	uint32_t x_factor, y_factor;
};

/* Y, Cb and Cr as JFIF has them; Y has the smallest factors. */
struct packimg_planes {
	struct packimg_plane planes[3];
};

/*
 * As packimg_decode_begin(), but a JPEG's components come as they are coded, neither upsampled nor
 * made into RGB. PACKIMG_NO_PLANES when the sample has none to give: raw, grey, turned, or a kind
 * of JPEG that is left to libjpeg-turbo; which is a property of the image, not of its index.
 * packimg_decode_rows() then goes by rows of Y, and makes the samples of each plane that those
 * before end touch; rows of a plane that lie PACKIMG_PLANE_ROWS_HELD or more before the last of
 * those may be gone. It returns -ENOTSUP when the scan turns out to be for libjpeg-turbo:
 * packimg_decode_begin() reads such a sample.
 */
int packimg_decode_begin_planes(struct packimg_decoder *decoder,
				const struct packimg_sample *sample,
				const struct packimg_region *region, uint32_t size_hint_width,
				uint32_t size_hint_height, struct packimg_planes *ret_planes,
				struct packimg_error *error);

/* What a JPEG file says of itself, from its headers alone. */
struct packimg_jpeg_info {
	uint32_t width, height; /* stored, before orientation */
	uint8_t components;     /* 1 grey, 3 YCbCr or RGB, 4 CMYK or YCCK */
	uint8_t precision;      /* bits per component */
	uint8_t orientation;    /* EXIF 1..8; 1 when absent */
	bool progressive;
	bool arithmetic;
	/* the first scan does not hold all components: not interleaved */
	bool several_scans;
	bool restart_within_rows;  /* restart markers stand elsewhere than between rows of MCUs */
	uint32_t restart_interval; /* MCUs between restart markers, 0: none */
};

int packimg_jpeg_probe(const uint8_t *data, size_t size, struct packimg_jpeg_info *ret_info,
		       struct packimg_error *error);

/*
 * Makes the side data of a baseline JPEG: an index into its scan, with which packimg_decode starts
 * at a region's first row and decodes several rows at once, to the same pixels. Decodes the whole
 * scan once to do so. Valid until the decoder's next call. -ENOTSUP: a kind that gets no index
 * (progressive, arithmetic, CMYK, 12 bit, restart markers within rows of MCUs, several scans);
 * -EBADMSG: damaged.
 */
int packimg_index_jpeg(struct packimg_decoder *decoder, const uint8_t *data, size_t size,
		       const struct packimg_jpeg_info *info, const uint8_t **ret_side,
		       size_t *ret_size);
/* Has the sample such an index? Whether it is right is not looked at. */
bool packimg_sample_indexed(const struct packimg_sample *sample);
/* Is it a JPEG without? */
bool packimg_sample_unindexed(const struct packimg_sample *sample);
/*
 * Makes a JPEG sample's index again from its scan and compares it with the stored one. 0: the same;
 * -ENODATA: none of this version is stored; -EBADMSG: it differs, error (may be NULL) names row,
 * field, both values; -ENOMEM. The decoder's pixels and indexes become invalid.
 */
int packimg_index_check(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			struct packimg_error *error);

/* Encoders, scratch owned by one thread. Output is valid until the encoder's next call. */

struct packimg_encoder;

int packimg_encoder_new(struct packimg_encoder **ret_encoder);
void packimg_encoder_free(struct packimg_encoder *encoder);
/*
 * Pixels: channels 1 or 3, stride in bytes; quality 1..100; 4:2:0, optimised Huffman tables when
 * optimise is set.
 */
int packimg_encode_jpeg(struct packimg_encoder *encoder, const uint8_t *pixels, size_t stride,
			uint32_t width, uint32_t height, uint32_t channels, int quality,
			bool optimise, const uint8_t **ret_data, size_t *ret_size);
int packimg_encode_zstd(struct packimg_encoder *encoder, const uint8_t *pixels, size_t size,
			int level, const uint8_t **ret_data, size_t *ret_size);

/* Transcoder, scratch owned by one thread. Output is valid until its next call. */

struct packimg_transcoder;

int packimg_transcoder_new(struct packimg_transcoder **ret_transcoder);
void packimg_transcoder_free(struct packimg_transcoder *transcoder);
/*
 * Turns a JPEG of any coding (progressive, arithmetic, several scans, restart intervals) into one
 * baseline scan with optimised Huffman tables, without loss: the coefficients and hence the decoded
 * pixels are the same, APPn and COM segments are kept, bytes behind EOI are not. -EBADMSG: damaged;
 * -ENOTSUP: not to be read, too large, or more than a baseline scan can hold; -ENOMEM. error may be
 * NULL.
 */
int packimg_transcode_jpeg(struct packimg_transcoder *transcoder, const uint8_t *data, size_t size,
			   const uint8_t **ret_data, size_t *ret_size, struct packimg_error *error);

/* Writer: one thread */

struct packimg_writer;

struct packimg_writer_options {
	/* bytes after which a new shard begins; 0: one file. Shards are NAME-00000-of-0000N.pimg */
	uint64_t shard_size;
	/*
	 * 16 bytes; NULL: derived from the samples, so that equal input gives equal bytes, and the
	 * same samples in other shards one UUID
	 */
	const uint8_t *uuid;
	/*
	 * The caller has read the folder: it has no shards of a dataset of this name, nor a commit
	 * record, nor what a killed writer of it left, and with shard_size no single file. The
	 * writer looks for none, which takes as long as the folder is: for many datasets in one.
	 */
	bool alone;
};

struct packimg_item {
	const uint8_t *data; /* stored bytes, copied before the call returns */
	size_t data_size;
	const uint8_t *side; /* items as SPEC.md, "Side data"; NULL: none */
	size_t side_size;
	uint32_t width, height; /* upright */
	int32_t label;
	enum packimg_codec codec;
	uint8_t channels;
	uint8_t orientation; /* 1..8 */
	const char *source;  /* not necessarily terminated; size 0: none */
	size_t source_size;
};

/* Nothing appears under path before packimg_writer_finish(). Errors name the path. */
int packimg_writer_new(const char *path, const struct packimg_writer_options *options,
		       struct packimg_writer **ret_writer, struct packimg_error *error);
/*
 * Declares an extra field at any time: samples added before have no value. -EEXIST when the name is
 * taken with another type.
 */
int packimg_writer_field(struct packimg_writer *writer, const char *name,
			 enum packimg_field_type type, uint32_t *ret_field,
			 struct packimg_error *error);
/* Appends a sample; its index is the number of samples added before. */
int packimg_writer_add(struct packimg_writer *writer, const struct packimg_item *item,
		       struct packimg_error *error);
/*
 * Sets a field of the sample added last; -EEXIST when it is set already. A value that is not
 * present changes nothing.
 */
int packimg_writer_value(struct packimg_writer *writer, uint32_t field,
			 const struct packimg_value *value, struct packimg_error *error);
/* Dataset-wide facts, any time before finish; class names are class_count terminated strings. */
int packimg_writer_classes(struct packimg_writer *writer, const char *const *names,
			   uint32_t class_count, struct packimg_error *error);
int packimg_writer_metadata(struct packimg_writer *writer, const char *key, const char *value,
			    struct packimg_error *error);
int packimg_writer_statistics(struct packimg_writer *writer, const double mean[3],
			      const double std[3]);
/* Bytes written so far, all shards. */
uint64_t packimg_writer_bytes(const struct packimg_writer *writer);
/*
 * Writes sections and header, fsyncs, renames (a set: every shard, then none is partial), fsyncs
 * the directory. It takes the place of the dataset of that name, file or set: killed at any moment,
 * the old or the new one opens (SPEC.md, "Replacing a dataset").
 */
int packimg_writer_finish(struct packimg_writer *writer, struct packimg_error *error);
/* Frees the writer; without a successful finish before, removes what was written. Accepts NULL. */
void packimg_writer_free(struct packimg_writer *writer);

/*
 * Rewriter: the files of a dataset anew with other indexes, all else as it is (SPEC.md, "Adding
 * side data"). Nothing changes before packimg_rewriter_finish(). The dataset must outlive it;
 * readers that have it open go on with the old files. One thread.
 */

struct packimg_rewriter;

/*
 * -EBADMSG when packimg_check() finds damage; -EINVAL when shards are links to several directories.
 * Errors name the file.
 */
int packimg_rewriter_new(const struct packimg *dataset, struct packimg_rewriter **ret_rewriter,
			 struct packimg_error *error);
/* All samples in the order in which packimg_rewriter_put() takes them: as they lie in the files. */
const uint64_t *packimg_rewriter_order(const struct packimg_rewriter *rewriter);
/*
 * The next sample of that order. index: side data as packimg_index_jpeg() makes it, in place of any
 * index that the sample has; of size 0: an index that it has is dropped; NULL: its side data stays
 * as it is.
 */
int packimg_rewriter_put(struct packimg_rewriter *rewriter, const uint8_t *index, size_t index_size,
			 struct packimg_error *error);
/* Bytes written so far, all shards. */
uint64_t packimg_rewriter_bytes(const struct packimg_rewriter *rewriter);
/*
 * After the last sample: syncs, then renames over the old files. A set that is interrupted between
 * two of them is whole: some of its shards are new.
 */
int packimg_rewriter_finish(struct packimg_rewriter *rewriter, struct packimg_error *error);
/* Without a successful finish before, removes what was written. Accepts NULL. */
void packimg_rewriter_free(struct packimg_rewriter *rewriter);

#ifdef __cplusplus
}
#endif
