/*
 * Schema: the named, typed values of a sample, such as images, masks, boxes, labels and text. One
 * plain object for packimg, the file (SPEC.md, "Schema"), the protocol and clients; it owns no
 * memory. Pure functions, any thread. Installed as packimg/schema.h. Has three forms:
 *
 * - text, one value a line, which people write: "boxes: boxes(image) f32[*,4] xyxy";
 * - struct schema;
 * - the bytes of section 8 of a file, which also state where each value is stored.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	SCHEMA_VALUES_MAX = 64,
	SCHEMA_IMAGES_MAX = 32, /* values in section `images` */
	SCHEMA_NAME_MAX = 63,   /* bytes */
	SCHEMA_DIMS_MAX = 4,
	SCHEMA_CHANNELS_MAX = 32,      /* of an image, a mask or a raster */
	SCHEMA_SIDE_MAX = 65535,       /* pixels */
	SCHEMA_COLUMNS_MAX = 256,      /* fields of a file */
	SCHEMA_ROW_SIZE_MAX = 1 << 30, /* bytes of a row, or of a value without rows */
	SCHEMA_TEXT_MAX = 32768,       /* bytes of canonical text, terminator included */
	SCHEMA_ERROR_MAX = 256,        /* bytes of an error message, terminator included */
	SCHEMA_OF_NONE = 0xffff,
};

enum schema_role {
	SCHEMA_IMAGE = 1, /* pixels, which transforms of pixels change */
	SCHEMA_MASK,      /* a number for each pixel of an image, such as its class */
	SCHEMA_RASTER,    /* measurements for each pixel, such as depth */
	SCHEMA_BOXES,
	SCHEMA_KEYPOINTS,
	SCHEMA_POLYGONS, /* vertices */
	SCHEMA_CLASS,    /* class numbers */
	SCHEMA_VALUE,    /* other numbers */
	SCHEMA_TEXT,
	SCHEMA_BYTES,
	SCHEMA_KEY,    /* name of the sample's source */
	SCHEMA_NUMBER, /* number of the sample in the dataset */
	SCHEMA_JSON,
	SCHEMA_ROLES,
};

/* The first four are those of the ring. */
enum schema_element {
	SCHEMA_NO_ELEMENT = 0, /* text and bytes */
	SCHEMA_U8 = 1,
	SCHEMA_F16,
	SCHEMA_BF16,
	SCHEMA_F32,
	SCHEMA_U16,
	SCHEMA_I16,
	SCHEMA_I32,
	SCHEMA_I64,
	SCHEMA_U64,
	SCHEMA_F64,
	SCHEMA_ELEMENTS,
};

/* Where a file stores a value. */
enum schema_store {
	SCHEMA_IN_INDEX = 1, /* data of the index record */
	SCHEMA_IN_IMAGES,    /* section `images` */
	SCHEMA_IN_COLUMN,
	SCHEMA_IN_LABEL,  /* label of the index record */
	SCHEMA_IN_SOURCE, /* section `sources` */
	SCHEMA_IN_NUMBER, /* not stored */
	SCHEMA_STORES,
};

/* Meaning of the numbers in the last dimension of boxes, keypoints and polygons. */
enum schema_format {
	SCHEMA_NO_FORMAT = 0,
	SCHEMA_XYXY = 1, /* boxes: left, top, right, bottom */
	SCHEMA_XYWH,     /* left, top, width, height */
	SCHEMA_CXCYWH,   /* centre, width, height */
	SCHEMA_CXCYWHR,  /* the same, and a rotation in degrees */
	SCHEMA_XY = 1,   /* keypoints and polygons */
	SCHEMA_XYV,      /* the same, and a visibility */
};

enum schema_flag {
	SCHEMA_SPARSE = 1,     /* samples may lack the value */
	SCHEMA_NORMALIZED = 2, /* coordinates are fractions of width and height, 0..1 */
};

struct schema_value {
	char name[SCHEMA_NAME_MAX + 1]; /* UTF-8 without control characters */
	enum schema_role role;
	enum schema_element element;
	enum schema_store store;
	enum schema_format format;
	unsigned flags; /* enum schema_flag */
	unsigned dims;
	/*
	 * 0 where it differs from sample to sample: height and width of images, masks and rasters,
	 * which come first, and the first dimension of other values ("rows")
	 */
	uint32_t shape[SCHEMA_DIMS_MAX];
	uint16_t number; /* field if SCHEMA_IN_COLUMN, image if SCHEMA_IN_IMAGES, else 0 */
	uint16_t of;     /* earlier value with the same pixels or rows, or SCHEMA_OF_NONE */
	/*
	 * Maxima over the samples of the dataset; 0 without samples. longest is in rows, or in
	 * bytes for values without an element; UINT64_MAX in the implied schema of a file that does
	 * not record it (PACKIMG_LONGEST_UNKNOWN). width and height are in pixels.
	 */
	uint64_t longest;
	uint32_t width, height;
};

struct schema {
	unsigned count;
	struct schema_value values[SCHEMA_VALUES_MAX];
};

struct schema_error {
	int position; /* byte offset in the text; -1 if the error has no position */
	char text[SCHEMA_ERROR_MAX];
};

/*
 * Parses text that need not be terminated, and checks every rule of SPEC.md, "Schema". A line is
 *
 *	NAME: ROLE[(NAME)] [ELEMENT[SHAPE]] [FORMAT] [sparse] [normalized]
 *
 * '#' starts a comment. Names other than [A-Za-z_][A-Za-z0-9_.]* are in double quotes, in which
 * '\' quotes the next character. Assigns stores: the first image to the index record, the first
 * scalar class of i32 to the label. Adds label, sample and key unless the text has them:
 * schema_add_implied(). Returns -EINVAL with a position, or -E2BIG for too many values. error may
 * be NULL.
 */
int schema_parse(const char *text, size_t size, struct schema *ret_schema,
		 struct schema_error *error);
/*
 * Writes the canonical text: one line for each value, in order, each with its element and shape.
 * Parsing it gives an equal schema. Returns its length without the terminator, below
 * SCHEMA_TEXT_MAX; truncates like snprintf().
 */
size_t schema_print(const struct schema *schema, char *text, size_t size);
/* Writes the canonical line of one value, without a line feed. Returns as schema_print(). */
size_t schema_print_value(const struct schema *schema, unsigned value, char *text, size_t size);

/* Appends a value without checking it. Returns -E2BIG if there are 64. */
int schema_add(struct schema *schema, const struct schema_value *value);
/*
 * Appends each of "label: class i32", "sample: number u64" and "key: key", which every file has,
 * unless the schema has a value with that store. If the name is taken, leaves the value out or, if
 * `all` is set, prefixes as many '_' as needed; the caller ensures that not all such names are
 * taken. Returns -E2BIG as schema_add().
 */
int schema_add_implied(struct schema *schema, bool all);
/*
 * Writes the longest name of an implied value: the word, prefixed with '_' up to SCHEMA_NAME_MAX
 * bytes. Returns the start of the word in it; from each '_' before it begins the next longer name.
 */
const char *schema_longest_name(const char *word, char longest[SCHEMA_NAME_MAX + 1]);
/*
 * True if both have the same values in the same order. Compares what the text contains: neither
 * stores nor largest sizes.
 */
bool schema_equal(const struct schema *a, const struct schema *b);

/* Returns the index of the value of that name, or -1. */
int schema_find(const struct schema *schema, const char *name);
/* Returns the name that a misspelt name most likely means, or NULL. */
const char *schema_nearest(const struct schema *schema, const char *name);
/* Returns the first value with that store and number, or -1. */
int schema_stored(const struct schema *schema, enum schema_store store, unsigned number);
/* Returns the number of values in section `images`. */
unsigned schema_image_count(const struct schema *schema);
/*
 * Returns the value's frame: the image or raster to whose pixels its own pixels or coordinates
 * refer, possibly the value itself; -1 if it has none.
 */
int schema_frame(const struct schema *schema, unsigned value);
/*
 * Returns the first value of the chain of values that share their rows, the value itself if it is
 * the first or shares none; -1 if its number of rows is fixed. Polygons of objects share the
 * objects.
 */
int schema_rows(const struct schema *schema, unsigned value);
/*
 * True for polygons f32[*,2] that belong to a value with rows, each of which is an object with any
 * number of polygons: polygons.h.
 */
bool schema_has_polygons_of_objects(const struct schema *schema, unsigned value);

/* True for images u8[h,w,3], whose pixels are RGB. */
bool schema_is_rgb(const struct schema_value *value);
/* True for images, masks and rasters. */
bool schema_has_pixels(const struct schema_value *value);
/* True if the number of rows differs from sample to sample. */
bool schema_has_rows(const struct schema_value *value);
/*
 * Bytes of a row, or of the whole value if its shape is fixed; 1 for values without an element. Not
 * for images, masks and rasters.
 */
size_t schema_row_size(const struct schema_value *value);
/* Bytes of an element; 1 for SCHEMA_NO_ELEMENT. */
size_t schema_element_size(enum schema_element element);
const char *schema_role_name(enum schema_role role);
const char *schema_element_name(enum schema_element element);

/*
 * Section 8 of a file: this head, then `values` records, then the names, concatenated in the order
 * of the values.
 */
struct schema_head {
	uint32_t version; /* SCHEMA_VERSION */
	uint32_t values;
	uint32_t names_size; /* bytes */
	uint32_t reserved;
};

struct schema_record {
	uint8_t role, element, dims, store;
	uint16_t number, of;
	uint32_t shape[SCHEMA_DIMS_MAX];
	uint8_t format, flags;
	uint16_t name_size;
	uint32_t name_offset; /* from the first byte of the names */
	uint64_t longest;
	uint32_t width, height;
	uint8_t reserved[16];
};

static_assert(sizeof(struct schema_head) == 16, "SPEC.md, Schema");
static_assert(sizeof(struct schema_record) == 64, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, number) == 4, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, of) == 6, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, shape) == 8, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, format) == 24, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, flags) == 25, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, name_size) == 26, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, name_offset) == 28, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, longest) == 32, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, width) == 40, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, height) == 44, "SPEC.md, Schema");
static_assert(offsetof(struct schema_record, reserved) == 48, "SPEC.md, Schema");

enum {
	SCHEMA_VERSION = 1,
	SCHEMA_SIZE_MAX = sizeof(struct schema_head) +
			  SCHEMA_VALUES_MAX * (sizeof(struct schema_record) + SCHEMA_NAME_MAX),
};

/* Writes a checked schema to bytes, which has room for SCHEMA_SIZE_MAX. Returns the size. */
size_t schema_pack(const struct schema *schema, void *bytes);
/*
 * Checks and reads bytes, which must not change meanwhile. Returns -EBADMSG if they break a rule,
 * -ENOTSUP if their version is higher, with a message. error may be NULL.
 */
int schema_unpack(const void *bytes, size_t size, struct schema *ret_schema,
		  struct schema_error *error);

#ifdef __cplusplus
}
#endif
