/*
 * Where images come from. A source lists images one by one with what is known of each (name, class,
 * fields) and the place of its bytes in the store; it does not read the images. Each kind is a file
 * of its own behind the same functions: folder, manifest (CSV or TSV), archive (tar, zip),
 * WebDataset shard. The order is deterministic: of sorted names in a folder, of rows in a manifest,
 * of members in an archive. One thread; an item's pointers are valid until the next call.
 */
#pragma once

#include "tools/packimg/common/brace_expand.h"
#include "tools/packimg/source/blob_store.h"
#include "tools/packimg/source/filter.h"

#include <stdint.h>

enum value_kind {
	VALUE_INTEGER, /* text of an int64 */
	VALUE_REAL,    /* text of a float64 */
	VALUE_TEXT,    /* UTF-8, or else bytes that were meant to be */
	VALUE_BYTES,
	VALUE_JSON, /* text of a JSON value */
	VALUE_KINDS,
};

struct source_field {
	const char *name;
	enum value_kind kind;
	const char *text;
	size_t size;
};

/* What became of an image's label. */
enum item_label {
	LABEL_NONE,
	LABEL_CLASS, /* its class, by number or name */
	LABEL_FIELD, /* a field, because it is no class */
};

struct source_item {
	const char *name;       /* terminated; recorded with the sample */
	const char *class_name; /* NULL: none */
	bool class_of_name;     /* its folders name its class (class_names.h) */
	int64_t class_number;   /* -1: none */
	enum item_label label;  /* that a table or a shard gave */
	const char *label_name; /* of its column or field; NULL: none */
	struct blob_location location;
	const struct source_field *fields;
	size_t field_count;
	enum filter_verdict verdict;
};

enum source_kind {
	SOURCE_AUTO,
	SOURCE_FOLDER,
	SOURCE_MANIFEST,
	SOURCE_ARCHIVE,
	SOURCE_WEBDATASET,
};

enum class_from {
	CLASS_AUTO,    /* what class_names.h makes of all names */
	CLASS_TOP,     /* first folder of the name */
	CLASS_PARENT,  /* last folder of the name */
	CLASS_ARCHIVE, /* the archive's own name without its extension */
	CLASS_NONE,
};

/* What labels in tables and shards become. */
enum label_use {
	LABELS_AUTO, /* classes, but a field where they are numbers that are not whole */
	LABELS_CLASSES,
	LABELS_FIELD,
};

struct source_options {
	enum source_kind kind;
	enum class_from class_from;
	enum label_use labels;
	const char *manifest; /* for folders: the table of their images; NULL: none */
	/* for manifests: where relative paths begin; NULL: the manifest's folder */
	const char *root;
	char separator;        /* of manifests; 0: found out */
	bool random_access;    /* images will not be read in the listed order */
	struct filter *filter; /* NULL: every image is wanted */
	/* of manifests: columns by name, or by number from 1; NULL: found out */
	const char *path_column, *label_column;
	const char
		*path_suffix; /* what the names in a manifest lack, such as ".jpg"; NULL: nothing */
	/* receives sentences for the summary: what was decided that may have been meant otherwise
	 */
	struct string_list *notes;
};

enum {
	SOURCE_END = 1,
	SOURCE_SKIP = 2,    /* the item cannot be used: its name is set, the reason is in error */
	SOURCE_IGNORED = 3, /* the item is passed over: its name and verdict are set */
};

struct source;

/* A kind of source: what begins with a struct source, and what it does. */
struct source_ops {
	size_t size;
	int (*open)(struct source *source, const char *path, struct packimg_error *error);
	int (*next)(struct source *source, struct source_item *ret_item,
		    struct packimg_error *error);
	/* of what open() made, all or a part */
	void (*close)(struct source *source);
};

struct source {
	const struct source_ops *ops;
	struct blob_store *blobs;
	const struct source_options *options;
};

extern const struct source_ops source_folder_ops, source_manifest_ops, source_archive_ops,
	source_webdataset_ops;

/*
 * Opens the source of the kind that options or the path itself says. The store and the options must
 * outlive it.
 */
int source_new(struct blob_store *blobs, const char *path, const struct source_options *options,
	       struct source **ret_source, struct packimg_error *error);
void source_free(struct source *source);
/*
 * 0, SOURCE_END, SOURCE_SKIP, SOURCE_IGNORED, or a negative errno after which the source is of no
 * more use.
 */
int source_next(struct source *source, struct source_item *ret_item, struct packimg_error *error);

/* What the text of a number or of anything else is. */
enum value_kind source_value_kind(const char *text);
/*
 * Whether a label's text stands for none: empty, or a word that pandas writes or reads as a missing
 * value ("NaN", "None", "null", "N/A"; the case counts: "none" is a class).
 */
bool source_label_is_missing(const char *text);
/* Whether the name ends like a label or a description in a WebDataset shard. */
bool source_name_is_companion(const char *name);
/* Whether the name ends like an image's, of any kind that has a name (image_format.h). */
bool source_name_is_image(const char *name);
