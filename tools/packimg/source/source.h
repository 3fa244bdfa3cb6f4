/*
 * A source lists images one by one with their known properties (name, class, fields) and the
 * location of their bytes in the store; it does not read them. Each kind of source has its own file
 * that implements the same functions: folder, manifest (CSV or TSV), archive (tar, zip), WebDataset
 * shard, file of raw pixels (idx, CIFAR). The order is deterministic: sorted names of a folder,
 * rows of a manifest, members of an archive. One thread; the pointers in an item are valid until
 * the next call.
 */
#pragma once

#include "tools/packimg/common/brace_expand.h"
#include "tools/packimg/source/blob_store.h"
#include "tools/packimg/source/filter.h"

#include <stdint.h>

enum value_kind {
	VALUE_INTEGER, /* text of an int64 */
	VALUE_REAL,    /* text of a float64 */
	VALUE_TEXT,    /* UTF-8, or bytes that should be UTF-8 */
	VALUE_BYTES,
	VALUE_JSON, /* text of a JSON value */
	/* classes of the sample: uint32_t each, while listing the number of a name or of a class */
	VALUE_CLASSES,
	VALUE_KINDS,
};

struct source_field {
	const char *name;
	enum value_kind kind;
	const char *text;
	size_t size;
};

/* How the label of an image was used. */
enum item_label {
	LABEL_NONE,
	LABEL_CLASS, /* as its class, given by number or name */
	LABEL_FIELD, /* as a field, because it is no class */
	LABEL_LIST,  /* as a list of classes, in a field */
};

struct source_item {
	const char *name;          /* null-terminated; recorded with the sample */
	const char *class_name;    /* name of the class; NULL if there is none */
	bool class_of_name;        /* derive the class from the name's folders (class_names.h) */
	int64_t class_number;      /* number of the class; -1 if there is none */
	enum item_label label;     /* how a label from a table or a shard was used */
	const char *label_name;    /* column or field of the label; NULL if there is none */
	const char *const *labels; /* of LABEL_LIST: names of classes, or whole numbers as text */
	size_t label_count;
	bool labels_are_numbers; /* in all items of the source */
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
	SOURCE_PIXELS, /* detected by SOURCE_AUTO; no value of --format */
};

enum class_from {
	CLASS_AUTO,    /* class by the rule that class_names.h derives from all names */
	CLASS_TOP,     /* class is the first folder of the name */
	CLASS_PARENT,  /* class is the last folder of the name */
	CLASS_ARCHIVE, /* class is the name of the archive without extension */
	CLASS_NONE,
};

/* How to use labels in tables and shards. */
enum label_use {
	LABELS_AUTO, /* as classes, or as a field if they are fractional numbers */
	LABELS_CLASSES,
	LABELS_FIELD,
};

enum label_separator {
	LABEL_SEPARATOR_AUTO = 0,
	LABEL_SEPARATOR_NONE = '\n', /* each cell is one label */
};

struct source_options {
	enum source_kind kind;
	enum class_from class_from;
	enum label_use labels;
	const char *manifest; /* for folders: the table that describes their images; NULL if there
				 is none */
	/* for manifests: folder to which paths are relative; NULL for the manifest's folder */
	const char *root;
	char separator;        /* separator of manifests; 0 to detect it */
	bool random_access;    /* images will not be read in the order in which they are listed */
	struct filter *filter; /* NULL if every image is wanted */
	/* columns of manifests, by name or by number from 1; NULL to detect them */
	const char *path_column, *label_column;
	/* suffix missing from the names in a manifest, such as ".jpg"; NULL for none */
	const char *path_suffix;
	/*
	 * separator of several labels in a cell: a character, or of enum label_separator (0: where
	 * that is plain)
	 */
	char label_separator;
	/*
	 * receives notes about automatic decisions that the user may not have intended, for the
	 * summary
	 */
	struct string_list *notes;
};

enum {
	SOURCE_END = 1,
	SOURCE_SKIP =
		2, /* the item cannot be used: its name is set, and error contains the reason */
	SOURCE_IGNORED = 3, /* the item is ignored: its name and verdict are set */
};

struct source;

/*
 * Operations of a kind of source. `size` is the size of its object, which begins with a struct
 * source.
 */
struct source_ops {
	size_t size;
	int (*open)(struct source *source, const char *path, struct packimg_error *error);
	int (*next)(struct source *source, struct source_item *ret_item,
		    struct packimg_error *error);
	/* closes everything that open() has opened, even if open() failed */
	void (*close)(struct source *source);
};

struct source {
	const struct source_ops *ops;
	struct blob_store *blobs;
	const struct source_options *options;
};

extern const struct source_ops source_folder_ops, source_manifest_ops, source_archive_ops,
	source_webdataset_ops, source_pixels_ops;

/*
 * Opens a source of the kind given by options, or detected from the path. The store and the options
 * must outlive it.
 */
int source_new(struct blob_store *blobs, const char *path, const struct source_options *options,
	       struct source **ret_source, struct packimg_error *error);
void source_free(struct source *source);
/*
 * Returns 0, SOURCE_END, SOURCE_SKIP, SOURCE_IGNORED, or a negative errno, after which the source
 * is unusable.
 */
int source_next(struct source *source, struct source_item *ret_item, struct packimg_error *error);

/* Returns the kind of a value given as text: INTEGER, REAL or TEXT. */
enum value_kind source_value_kind(const char *text);
/*
 * Returns true if the text of a label means a missing value: empty, or a word that pandas writes or
 * reads as missing ("NaN", "None", "null", "N/A"). Case-sensitive: "none" is a class.
 */
bool source_label_is_missing(const char *text);
/* Returns true if the name has the extension of a label or description in a WebDataset shard. */
bool source_name_is_companion(const char *name);
/* Returns true if the name has the extension of any known kind of image (image_format.h). */
bool source_name_is_image(const char *name);
