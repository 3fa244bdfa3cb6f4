/*
 * What a conversion will convert: every sample of every source, its class, its fields, in the order
 * and number in which it will be written. Filled by one thread from sources, then finished once
 * (classes numbered, field types settled), ordered, and from then on only read. About a hundred
 * bytes a sample plus its name and field values, all of which its arena holds and is charged with.
 */
#pragma once

#include "tools/packimg/common/name_table.h"
#include "tools/packimg/source/source.h"

/* Of a sample whose class its name will give. */
#define CATALOG_CLASS_OF_NAME (UINT32_MAX - 1)

struct catalog_value {
	uint32_t field;
	uint32_t size;
	const char *text; /* terminated; in catalog.fields[field].type's notation */
	uint8_t kind;     /* enum value_kind as listed */
};

struct catalog_sample {
	const char *name;
	struct blob_location location;
	const struct catalog_value *values;
	uint32_t value_count;
	int32_t label; /* after catalog_finish(); PACKIMG_LABEL_NONE for none */
	/* while listing: number in class_names, CATALOG_CLASS_OF_NAME, or UINT32_MAX: none */
	uint32_t class;
	uint32_t part; /* of a split; UINT32_MAX: left out */
};

struct catalog_field {
	bool kinds[VALUE_KINDS];      /* that were seen */
	bool binary;                  /* a text among them that is none */
	enum packimg_field_type type; /* after catalog_finish() */
};

struct catalog {
	struct blob_store blobs;
	struct arena arena;
	struct name_table class_names, field_names;
	struct catalog_field fields[PACKIMG_FIELDS_MAX];
	struct catalog_sample *samples;
	size_t count, capacity;
	/*
	 * The first sample whose label is a class, and the first whose label is a field; NULL:
	 * none.
	 */
	const char *label_class_sample, *label_field_sample;
	const char *label_field; /* its name */
	/* After catalog_finish(). */
	const char **classes; /* by label */
	uint32_t class_count;
	bool numbered_by_name; /* nothing else has given them numbers */
};

enum {
	/* the format cannot hold the item; the reason, without its name, is in error */
	CATALOG_SKIP = 1,
};

void catalog_init(struct catalog *catalog);
void catalog_deinit(struct catalog *catalog);
/* 0, CATALOG_SKIP, -E2BIG for too many classes, -ENOMEM. */
int catalog_add(struct catalog *catalog, const struct source_item *item,
		struct packimg_error *error);
/* Gives a sample its class; NULL: none. Results as of catalog_add(). */
int catalog_classify(struct catalog *catalog, struct catalog_sample *sample, const char *class_name,
		     struct packimg_error *error);
/*
 * Numbers the classes: as given[0..given_count) says when it is not NULL (a name that is not there
 * is an error), otherwise by the numbers that sources gave, otherwise in bytewise order of names.
 * Settles field types.
 */
int catalog_finish(struct catalog *catalog, const char *const *given, uint32_t given_count,
		   struct packimg_error *error);
/* Reorders by permutation. */
int catalog_shuffle(struct catalog *catalog, uint64_t seed);
/* A value in the form that the writer takes; JSON text for a mixed field is put into scratch. */
int catalog_value(const struct catalog *catalog, const struct catalog_value *value,
		  struct buffer *scratch, struct packimg_value *ret_value);
