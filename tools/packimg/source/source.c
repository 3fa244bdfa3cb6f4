#include "tools/packimg/source/source.h"
#include "format/base/text/text.h"

#include "format/base/text/number.h"
#include "format/foreign_format.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image_format.h"
#include "tools/packimg/source/archive_reader.h"
#include "tools/packimg/source/known_lists.h"
#include "tools/packimg/source/source_pixels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool ends_with_any(const char *name, const char *const *ends)
{
	for (; *ends; ends++)
		if (text_ends_with(name, *ends))
			return true;
	return false;
}

bool source_name_is_image(const char *name)
{
	return image_kind_of_name(name) != IMAGE_KINDS;
}

enum value_kind source_value_kind(const char *text)
{
	int64_t integer;
	double real;

	if (!number_i64(text, &integer))
		return VALUE_INTEGER;
	return number_double(text, &real) ? VALUE_TEXT : VALUE_REAL;
}

bool source_label_is_missing(const char *text)
{
	static const char *const words[] = {"NaN",  "nan", "-NaN", "-nan", "None", "NULL",
					    "null", "N/A", "n/a",  "NA",   "#N/A", "<NA>"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcmp(text, words[i]) == 0)
			return true;
	return !text[0];
}

static bool name_is_manifest(const char *name)
{
	static const char *const ends[] = {".csv", ".tsv", ".txt", ".lst", NULL};

	return ends_with_any(name, ends);
}

enum {
	PEEK_MEMBERS =
		/*
		 * maximum number of members examined to distinguish a WebDataset shard from an
		 * archive of folders
		 */
	64,
};

bool source_name_is_companion(const char *name)
{
	static const char *const companions[] = {".cls", ".json",    ".cls.txt",
						 ".txt", ".caption", NULL};

	return ends_with_any(name, companions);
}

struct peeked {
	char *key;
	bool is_image;
};

/*
 * Adds a member. Sets *ret_pair if the members so far include an image and a companion file with
 * the same key.
 */
static int peek_key(struct peeked *peeked, size_t *count, const char *key, size_t size,
		    bool is_image, bool *ret_pair)
{
	for (size_t i = 0; i < *count; i++)
		if (strlen(peeked[i].key) == size && memcmp(peeked[i].key, key, size) == 0 &&
		    peeked[i].is_image != is_image)
			*ret_pair = true;
	peeked[*count] = (struct peeked){strndup(key, size), is_image};
	return peeked[*count].key ? (*count)++, 0 : -ENOMEM;
}

/*
 * Detects a WebDataset shard, which stores a label or description with each image: KEY.cls,
 * KEY.json or KEY.txt with KEY.jpg. KEY is the name up to the first dot of its last component. Here
 * they need not be adjacent; reading the shard rejects samples whose members are not.
 */
static int peek_archive(const struct blob_store *blobs, const char *path,
			enum source_kind *ret_kind, struct packimg_error *error)
{
	struct peeked peeked[PEEK_MEMBERS];
	struct archive_reader *archive;
	struct archive_member member;
	size_t count = 0;
	bool pair = false;

	*ret_kind = SOURCE_ARCHIVE;
	int r = archive_reader_open(path, &blobs->limits, &archive, error);
	if (r)
		return r;
	for (int i = 0; i < PEEK_MEMBERS && !pair; i++) {
		r = archive_reader_next(archive, &member, error);
		if (r)
			break;
		const char *base = strrchr(member.name, '/');
		const char *dot = strchr(base ? base + 1 : member.name, '.');
		bool image = source_name_is_image(member.name);
		if (member.unread || !dot || (!image && !source_name_is_companion(member.name)))
			continue;
		r = peek_key(peeked, &count, member.name, (size_t)(dot - member.name), image,
			     &pair);
		if (r)
			break;
	}
	if (pair)
		*ret_kind = SOURCE_WEBDATASET;
	while (count)
		free(peeked[--count].key);
	archive_reader_close(archive);
	/* Ignores damage, which is reported with its location when the archive is read. */
	return r < 0 && r != -EBADMSG && r != -EFBIG ? r : 0;
}

/* Rejects known formats that cannot be read. Damage is reported when the file is read. */
static int check_foreign(const char *path, struct packimg_error *error)
{
	uint8_t head[FOREIGN_HEAD];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, head, sizeof(head));

	if (fd >= 0)
		close(fd);
	const struct foreign *foreign =
		size > 0 ? foreign_format_of_head(head, (size_t)size) : NULL;
	return foreign && !foreign->is_source
		       ? packimg_fail(error, -EINVAL,
				      "%s: it is %s, which packimg does not read; %s", path,
				      foreign->what, foreign->remedy)
		       : 0;
}

/* Rejects lists of well-known datasets that are no table of images and classes. */
static int check_known(const char *path, struct packimg_error *error)
{
	const struct known_list *known = known_list_find(path);

	return known ? packimg_fail(error, -EINVAL,
				    "%s: by its name it is %s: %s; --format manifest reads it as "
				    "a table nevertheless",
				    path, known->what, known->remedy)
		     : 0;
}

static int no_file(const char *path, int code, struct packimg_error *error)
{
	if (text_is_address(path))
		return packimg_fail(error, -EINVAL,
				    "%s: it is a URL, and packimg reads only files; download it, "
				    "or pipe an archive to \"packimg convert - -o FILE\"",
				    path);
	return packimg_fail(error, -code, "%s: %s", path, strerror(code));
}

static int find_kind(const struct blob_store *blobs, const char *path,
		     const struct source_options *options, enum source_kind *ret_kind,
		     struct packimg_error *error)
{
	struct stat status;

	*ret_kind = options->kind;
	if (options->kind != SOURCE_AUTO)
		return 0;
	if (strcmp(path, "-") == 0) {
		*ret_kind = SOURCE_ARCHIVE;
		return 0;
	}
	if (stat(path, &status))
		return no_file(path, errno, error);
	/*
	 * Does not examine a pipe, such as <(command) in a shell, because it can be read only once.
	 */
	if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) {
		*ret_kind = name_is_manifest(path) ? SOURCE_MANIFEST : SOURCE_ARCHIVE;
		return 0;
	}
	if (S_ISDIR(status.st_mode) && options->manifest) {
		*ret_kind = SOURCE_MANIFEST;
		return check_known(options->manifest, error);
	}
	if (S_ISDIR(status.st_mode))
		*ret_kind = SOURCE_FOLDER;
	else if (source_name_is_image(path))
		*ret_kind = SOURCE_FOLDER;
	else if (name_is_manifest(path)) {
		*ret_kind = SOURCE_MANIFEST;
		return check_known(path, error);
	} else if (source_is_pixels(path))
		*ret_kind = SOURCE_PIXELS;
	else {
		int r = check_foreign(path, error);
		return r ? r : peek_archive(blobs, path, ret_kind, error);
	}
	return 0;
}

int source_new(struct blob_store *blobs, const char *path, const struct source_options *options,
	       struct source **ret_source, struct packimg_error *error)
{
	static const struct source_ops *const kinds[] = {
		[SOURCE_FOLDER] = &source_folder_ops,
		[SOURCE_MANIFEST] = &source_manifest_ops,
		[SOURCE_ARCHIVE] = &source_archive_ops,
		[SOURCE_WEBDATASET] = &source_webdataset_ops,
		[SOURCE_PIXELS] = &source_pixels_ops,
	};
	enum source_kind kind;

	int r = find_kind(blobs, path, options, &kind, error);
	if (r)
		return r;
	struct source *source = calloc(1, kinds[kind]->size);
	if (!source)
		return packimg_fail(error, -ENOMEM, "out of memory");
	*source = (struct source){kinds[kind], blobs, options};
	r = source->ops->open(source, path, error);
	if (r)
		source_free(source);
	else
		*ret_source = source;
	return r;
}

void source_free(struct source *source)
{
	if (source)
		source->ops->close(source);
	free(source);
}

int source_next(struct source *source, struct source_item *ret_item, struct packimg_error *error)
{
	*ret_item = (struct source_item){.class_number = -1};
	return source->ops->next(source, ret_item, error);
}
