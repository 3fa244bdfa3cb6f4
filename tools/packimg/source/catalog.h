/*
 * The samples to convert, from all sources, with class and fields, in the order and number in which
 * they will be written. One thread fills it from sources, finishes it once (numbers the classes,
 * decides field types) and orders it; after that it is read-only. Takes about a hundred bytes per
 * sample plus name and field values, all charged to its arena.
 */
#pragma once

#include "tools/packimg/common/name_table.h"
#include "tools/packimg/source/source.h"

/* Class of a sample that will be derived from its name. */
#define CATALOG_CLASS_OF_NAME (UINT32_MAX - 1)

struct catalog_value {
	uint32_t field;
	uint32_t size;
	const char *text; /* terminated, in the notation of catalog.fields[field].type */
	uint8_t kind;     /* enum value_kind as listed */
};

struct catalog_sample {
	const char *name;
	struct blob_location location;
	const struct catalog_value *values;
	uint32_t value_count;
	int32_t label; /* set by catalog_finish(); PACKIMG_LABEL_NONE if none */
	/* while listing: number in class_names, CATALOG_CLASS_OF_NAME, or UINT32_MAX if none */
	uint32_t class;
	uint32_t part; /* of a split; UINT32_MAX if left out */
};

struct catalog_field {
	bool kinds[VALUE_KINDS];      /* kinds seen */
	bool binary;                  /* some text value is not valid text */
	enum packimg_field_type type; /* set by catalog_finish() */
};

struct catalog {
	struct blob_store blobs;
	struct arena arena;
	struct name_table class_names, field_names;
	struct catalog_field fields[PACKIMG_FIELDS_MAX];
	struct catalog_sample *samples;
	size_t count, capacity;
	/*
	 * first sample whose label became a class, and first whose label became a field; NULL if
	 * none
	 */
	const char *label_class_sample, *label_field_sample;
	const char *label_field; /* name of that field */
	/* Set by catalog_finish(): */
	const char **classes; /* by label */
	uint32_t class_count;
	bool numbered_by_name; /* the classes were numbered by name, for lack of other numbers */
};

enum {
	/* the format cannot hold the item; the reason, without its name, is in error */
	CATALOG_SKIP = 1,
};

void catalog_init(struct catalog *catalog);
void catalog_deinit(struct catalog *catalog);
/* Returns 0, CATALOG_SKIP, -E2BIG for too many classes, or -ENOMEM. */
int catalog_add(struct catalog *catalog, const struct source_item *item,
		struct packimg_error *error);
/* Sets the class of a sample; NULL for none. Returns as catalog_add(). */
int catalog_classify(struct catalog *catalog, struct catalog_sample *sample, const char *class_name,
		     struct packimg_error *error);
/*
 * Numbers the classes: by given[0..given_count) if not NULL (a name missing there is an error),
 * else by the numbers from the sources, else in bytewise order of names. Decides field types.
 */
int catalog_finish(struct catalog *catalog, const char *const *given, uint32_t given_count,
		   struct packimg_error *error);
/* Reorders the samples by a random permutation. */
int catalog_shuffle(struct catalog *catalog, uint64_t seed);
/* Converts a value for the writer; JSON text for a mixed field goes to scratch. */
int catalog_value(const struct catalog *catalog, const struct catalog_value *value,
		  struct buffer *scratch, struct packimg_value *ret_value);
