/*
 * The samples to convert, from all sources, with class and fields, in the order and with the
 * numbers with which they will be written. One thread fills the catalogue from sources, finishes it
 * once (numbers the classes, decides field types) and orders it; after that it is read-only. Takes
 * about a hundred bytes per sample plus names and field values, all charged to its arena.
 */
#pragma once

#include "tools/packimg/common/name_table.h"
#include "tools/packimg/source/source.h"

/* Class of a sample whose class will be derived from its name. */
#define CATALOG_CLASS_OF_NAME (UINT32_MAX - 1)

struct catalog_value {
	uint32_t field;
	uint32_t size;
	const char *text; /* null-terminated, in the notation of catalog.fields[field].type */
	uint8_t kind;     /* enum value_kind found by listing */
};

struct catalog_sample {
	const char *name;
	struct blob_location location;
	const struct catalog_value *values;
	uint32_t value_count;
	int32_t label; /* label; set by catalog_finish(), PACKIMG_LABEL_NONE if there is none */
	/*
	 * while listing: number in class_names, CATALOG_CLASS_OF_NAME, or UINT32_MAX for no class
	 */
	uint32_t class;
	uint32_t part; /* part of a split; UINT32_MAX if left out */
};

struct catalog_field {
	bool kinds[VALUE_KINDS];      /* kinds of values that occurred */
	bool binary;                  /* some text value is not valid UTF-8 */
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
	 * name of the first sample whose label became a class, and of the first whose label became
	 * a field; NULL if there is none
	 */
	const char *label_class_sample, *label_field_sample;
	const char *label_field; /* name of the field that such a label became */
	/* the first sample whose labels became a list; NULL if there is none */
	const char *label_list_sample;
	bool lists_are_numbers; /* of classes, else of names; of all such samples */
	/* Set by catalog_finish(): */
	const char **classes; /* class names by label */
	uint32_t class_count;
	bool numbered_by_name; /* classes are numbered by name, because there are no other numbers
				*/
};

enum {
	/* the format cannot hold the item; error contains the reason, without the item's name */
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
 * Numbers the classes: by given[0..given_count) if not NULL (a name that is missing there is an
 * error), else by the numbers of the sources, else by names in bytewise order. Decides field types.
 */
int catalog_finish(struct catalog *catalog, const char *const *given, uint32_t given_count,
		   struct packimg_error *error);
/* Reorders the samples by a random permutation. */
int catalog_shuffle(struct catalog *catalog, uint64_t seed);
/* Returns the classes of a sample with a list of them, and sets their number; NULL without one. */
const int32_t *catalog_class_list(const struct catalog *catalog,
				  const struct catalog_sample *sample, size_t *ret_count);
/* Converts a value for the writer. JSON text for a field of mixed types is stored in scratch. */
int catalog_value(const struct catalog *catalog, const struct catalog_value *value,
		  struct buffer *scratch, struct packimg_value *ret_value);
