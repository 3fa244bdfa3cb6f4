/* Source: a tar or zip archive of images, plain or compressed. */
#include "tools/packimg/source/source_archive.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Spills a member that can be read only once, or that will be read out of order. */
static int spill_member(struct archive_source *archive, struct blob_location *location,
			struct packimg_error *error)
{
	struct blob_store *blobs = archive->source.blobs;

	location->kind = LOCATION_SPILL;
	location->offset = blobs->containers[archive->container].spill_size;
	archive->bytes.size = 0;
	int r = archive_reader_read(archive->archive, blobs->limits.file_max, &archive->bytes,
				    &location->size, error);
	return r ? r
		 : blob_store_spill(blobs, archive->container, archive->bytes.data,
				    archive->bytes.size, error);
}

int archive_source_locate(struct archive_source *archive, const struct archive_member *member,
			  struct blob_location *ret_location, struct packimg_error *error)
{
	struct blob_location location = {.kind = LOCATION_RANGE, .container = archive->container};

	if (archive_reader_range(archive->archive, &location.offset, &location.size)) {
		location.size = member->size;
		if (archive->source.options->random_access || archive->is_pipe) {
			int r = spill_member(archive, &location, error);
			if (r)
				return r;
		} else {
			location.kind = LOCATION_STREAM;
			location.offset = member->number;
			archive->bytes.size = 0;
		}
	}
	*ret_location = location;
	return 0;
}

int archive_source_open(struct source *source, const char *path, struct packimg_error *error)
{
	struct archive_source *archive = (struct archive_source *)source;
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	size_t size = strcspn(base, ".");

	struct stat status;

	archive->is_pipe =
		strcmp(path, "-") == 0 || (stat(path, &status) == 0 && !S_ISREG(status.st_mode));
	archive->stem = strndup(base, size ? size : strlen(base));
	if (!archive->stem)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = blob_store_add(source->blobs, strcmp(path, "-") == 0 ? "/dev/stdin" : path, false,
			       &archive->container, error);
	return r ? r : archive_reader_open(path, &source->blobs->limits, &archive->archive, error);
}

void archive_source_close(struct source *source)
{
	struct archive_source *archive = (struct archive_source *)source;

	archive_reader_close(archive->inner);
	archive_reader_close(archive->archive);
	buffer_deinit(&archive->inner_folder);
	buffer_deinit(&archive->bytes);
	free(archive->stem);
}

/*
 * Returns true if an unreadable member may have been an image or, as a link without extension, a
 * folder of images.
 */
static bool may_be_images(const struct archive_member *member, enum filter_verdict verdict)
{
	const char *slash = strrchr(member->name, '/');

	return verdict == FILTER_TAKE || (member->is_link && verdict == FILTER_OTHER &&
					  !strchr(slash ? slash : member->name, '.'));
}

/*
 * Handles a member that is a folder: sets the item's name, always with a trailing '/', and verdict.
 * Returns SOURCE_IGNORED if the folder may contain wanted files, else 0.
 */
static int pass_folder(struct archive_source *archive, const struct archive_member *member,
		       struct source_item *ret_item, struct packimg_error *error)
{
	size_t size = strlen(member->name);

	while (size && member->name[size - 1] == '/')
		size--;
	archive->bytes.size = 0;
	if (buffer_append(&archive->bytes, member->name, size) ||
	    buffer_append(&archive->bytes, "/", sizeof("/")))
		return packimg_fail(error, -ENOMEM, "out of memory");
	ret_item->name = (const char *)archive->bytes.data;
	ret_item->verdict = filter_folder(archive->source.options->filter, ret_item->name);
	return ret_item->verdict == FILTER_FOLDER ? SOURCE_IGNORED : 0;
}

/*
 * Opens a member that is an uncompressed tar, such as the one for each class in
 * ILSVRC2012_img_train.tar. Its files are named as in a folder with the tar's name. Returns false
 * without an error if the member is not such an archive, or none of its files is wanted.
 */
static bool open_inner(struct archive_source *archive, const struct archive_member *member,
		       int *ret_status, struct packimg_error *error)
{
	const char *path = archive->source.blobs->containers[archive->container].path;
	struct buffer *folder = &archive->inner_folder;
	const size_t size = strlen(member->name);
	uint64_t offset, bytes;
	char *name;

	if (member->unread || size < sizeof(".tar") ||
	    strcasecmp(member->name + size - strlen(".tar"), ".tar") != 0)
		return false;
	folder->size = 0;
	if (buffer_append(folder, member->name, size - strlen(".tar")) ||
	    buffer_append(folder, "/", sizeof("/")) ||
	    asprintf(&name, "%s: %s", path, member->name) < 0) {
		*ret_status = packimg_fail(error, -ENOMEM, "out of memory");
		return true;
	}
	struct filter *filter = archive->source.options->filter;
	bool is_open = !filter_excludes_folder(filter, member->name) &&
		       !filter_excludes_folder(filter, (const char *)folder->data) &&
		       filter_file(NULL, (const char *)folder->data) != FILTER_HIDDEN &&
		       !archive_reader_range(archive->archive, &offset, &bytes);
	if (is_open)
		*ret_status = archive_reader_open_range(path, name, offset, bytes,
							&archive->source.blobs->limits,
							&archive->inner, error);
	free(name);
	archive->inner_folder_size = folder->size - 1;
	archive->inner_count += is_open;
	return is_open;
}

/*
 * Returns the next member of the inner archive. Closes it and returns ARCHIVE_READER_END at its
 * end.
 */
static int next_inner(struct archive_source *archive, struct archive_member *ret_member,
		      struct packimg_error *error)
{
	struct buffer *folder = &archive->inner_folder;

	int r = archive_reader_next(archive->inner, ret_member, error);
	if (r) {
		archive_reader_close(archive->inner);
		archive->inner = NULL;
		return r;
	}
	folder->size = archive->inner_folder_size;
	const char *name = filter_plain_name(ret_member->name);
	if (buffer_append(folder, name, strlen(name) + 1))
		return packimg_fail(error, -ENOMEM, "out of memory");
	ret_member->name = (const char *)folder->data;
	return 0;
}

/* Returns the next member that is not an archive. */
static int next_member(struct archive_source *archive, struct archive_member *ret_member,
		       struct packimg_error *error)
{
	for (;;) {
		int r = archive->inner ? next_inner(archive, ret_member, error)
				       : ARCHIVE_READER_END;
		if (r != ARCHIVE_READER_END)
			return r;
		r = archive_reader_next(archive->archive, ret_member, error);
		if (r || !open_inner(archive, ret_member, &r, error) || r)
			return r;
	}
}

static int note_inner(const struct archive_source *archive)
{
	const struct source_options *options = archive->source.options;

	if (!archive->inner_count || !options->notes)
		return 0;
	return string_list_add_format(
		options->notes, "%s: %s tar%s in it count%s as %s",
		archive->source.blobs->containers[archive->container].path,
		text_count(TEXT, archive->inner_count), text_plural(archive->inner_count),
		archive->inner_count == 1 ? "s" : "",
		archive->inner_count == 1 ? "a folder of its name" : "folders of their names");
}

/* Locates a member of the inner archive, which the outer one stores uncompressed. */
static int locate_inner(struct archive_source *archive, struct blob_location *ret_location,
			struct packimg_error *error)
{
	ret_location->kind = LOCATION_RANGE;
	ret_location->container = archive->container;
	return archive_reader_range(archive->inner, &ret_location->offset, &ret_location->size)
		       ? packimg_fail(error, SOURCE_SKIP,
				      "it is empty, sparse or compressed in an "
				      "inner archive; unpack that")
		       : 0;
}

static int source_archive_next(struct source *source, struct source_item *ret_item,
			       struct packimg_error *error)
{
	struct archive_source *archive = (struct archive_source *)source;
	bool named = source->options->class_from == CLASS_ARCHIVE;
	struct archive_member member;

	do {
		int r = next_member(archive, &member, error);
		if (r == ARCHIVE_READER_END)
			return note_inner(archive) ? packimg_fail(error, -ENOMEM, "out of memory")
						   : SOURCE_END;
		if (r)
			return r;
		r = member.is_folder ? pass_folder(archive, &member, ret_item, error) : 0;
		if (r)
			return r;
	} while (member.is_folder);
	ret_item->name = member.name;
	ret_item->verdict = filter_file(source->options->filter, member.name);
	if (member.unread && may_be_images(&member, ret_item->verdict))
		return packimg_fail(error, SOURCE_SKIP, "%s", member.unread);
	if (ret_item->verdict)
		return SOURCE_IGNORED;
	ret_item->class_name = named ? archive->stem : NULL;
	ret_item->class_of_name = !named;
	if (archive->inner)
		return locate_inner(archive, &ret_item->location, error);
	int r = archive_source_locate(archive, &member, &ret_item->location, error);
	return r == -EFBIG ? SOURCE_SKIP : r;
}

const struct source_ops source_archive_ops = {sizeof(struct archive_source), archive_source_open,
					      source_archive_next, archive_source_close};
