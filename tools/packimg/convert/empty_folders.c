/*
 * Folders that would be classes if they contained images. A folder without any file becomes a
 * class, so that the classes after it have the same numbers as where the folder is not empty. A
 * folder with only other files does not become a class. The summary names both.
 */
#include "format/base/text/text.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	NAMED_MAX = 5, /* maximum number of classes in a note */
};

/*
 * Classes without images, and the files in their folders. The arrays are in the catalogue's arena.
 */
struct empty_classes {
	struct name_table names;
	uint64_t *files;      /* arrays by class number */
	const char **folders; /* the folder with the most files, the first of several */
};

/* Marks the folders that contain an image at any depth. */
static int mark_folders_of_images(const struct catalog *catalog, const struct name_table *folders,
				  bool *marks)
{
	struct buffer folder = {0};
	const char *before = "";
	size_t before_size = 0, longest = 0;
	uint32_t number;
	int r = 0;

	for (uint32_t i = 0; i < folders->count; i++)
		longest = strlen(folders->names[i]) > longest ? strlen(folders->names[i]) : longest;

	for (uint64_t i = 0; !r && i < catalog->count; i++) {
		const char *name = catalog->samples[i].name, *slash = strrchr(name, '/');
		size_t size = slash ? (size_t)(slash - name + 1) : 0;

		if (size == before_size && memcmp(name, before, size) == 0)
			continue;
		before = name;
		before_size = size;
		folder.size = 0;
		r = buffer_append(&folder, name, size) || buffer_append(&folder, "", 1) ? -ENOMEM
											: 0;
		for (; !r && size; size--) {
			folder.data[size] = 0;
			if (size <= longest && folder.data[size - 1] == '/' &&
			    !name_table_find(folders, (const char *)folder.data, &number))
				marks[number] = true;
		}
	}
	buffer_deinit(&folder);
	return r;
}

/* Collects folders without images, by the class that the rule derives from their names. */
static int find_empty(struct convert *convert, const bool *taken, struct empty_classes *empty)
{
	const struct ignored_files *ignored = &convert->ignored;
	struct buffer class_name = {0};
	uint32_t number;
	int r = 0;

	for (uint32_t i = 0; !r && i < ignored->folders.count; i++) {
		const char *folder = ignored->folders.names[i];
		bool added;

		r = buffer_reserve(&class_name, strlen(folder) + 1);
		const char *name =
			r ? NULL
			  : class_rule_apply(&convert->class_rule, folder, (char *)class_name.data);
		if (!name || taken[i] || strlen(name) > PACKIMG_CLASS_NAME_MAX ||
		    !text_is_utf8(name, strlen(name)) ||
		    !name_table_find(&convert->catalog.class_names, name, &number))
			continue;
		r = name_table_add(&empty->names, name, &number, &added);
		if (r)
			break;
		if (added || ignored->folder_files[i] > empty->files[number]) {
			empty->folders[number] = folder;
			empty->files[number] = ignored->folder_files[i];
		}
	}
	buffer_deinit(&class_name);
	return r;
}

/* Lists the classes with files as "b" (3 files in b/), or those without files as "c". */
static char *list_empty(const struct empty_classes *empty, bool with_files, uint32_t *ret_count)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	*ret_count = 0;
	for (uint32_t i = 0; file && i < empty->names.count; i++) {
		if ((empty->files[i] > 0) != with_files || (*ret_count)++ >= NAMED_MAX)
			continue;
		fprintf(file, "%s\"%s\"", *ret_count > 1 ? ", " : "", empty->names.names[i]);
		if (with_files)
			fprintf(file, " (%s file%s in %s)", text_count(TEXT, empty->files[i]),
				text_plural(empty->files[i]), empty->folders[i]);
	}
	if (file && *ret_count > NAMED_MAX)
		fputs(" and more", file);
	if (file)
		fclose(file);
	return text;
}

static int note_empty(struct convert *convert, const struct empty_classes *empty)
{
	uint32_t without, with;
	char *classes = list_empty(empty, false, &without),
	     *others = list_empty(empty, true, &with);
	int r = classes && others ? 0 : -ENOMEM;

	if (!r && without)
		r = string_list_add_format(
			&convert->notes,
			"%s empty folder%s: %s; a class without images keeps its "
			"number, and --exclude leaves it out",
			text_count(TEXT, without), without == 1 ? " is a class" : "s are classes",
			classes);
	if (!r && with)
		r = string_list_add_format(
			&convert->notes,
			"%s folder%s that would be %s hold%s no image and %s left out: %s",
			text_count(TEXT, with), text_plural(with),
			with == 1 ? "a class" : "classes", with == 1 ? "s" : "",
			with == 1 ? "is" : "are", others);
	free(classes);
	free(others);
	return r;
}

/* `taken` has one element per folder, initially zero. */
static int add_empty_classes(struct convert *convert, bool *taken, struct empty_classes *empty)
{
	struct catalog *catalog = &convert->catalog;
	uint32_t number;

	int r = mark_folders_of_images(catalog, &convert->ignored.folders, taken);
	if (r)
		return r;
	r = find_empty(convert, taken, empty);
	if (r)
		return r;
	r = note_empty(convert, empty);
	for (uint32_t i = 0; !r && i < empty->names.count; i++)
		if (!empty->files[i])
			r = name_table_add(&catalog->class_names, empty->names.names[i], &number,
					   NULL);
	return r;
}

int convert_add_empty_classes(struct convert *convert)
{
	struct catalog *catalog = &convert->catalog;
	struct arena *arena = &catalog->arena;
	const uint32_t count = convert->ignored.folders.count;
	struct empty_classes empty;

	convert->first_empty_class = catalog->class_names.count;
	if (!catalog->class_names.count || !count)
		return 0;
	name_table_init(&empty.names, arena);
	empty.files = arena_array(arena, count * sizeof(*empty.files));
	empty.folders = arena_array(arena, count * sizeof(*empty.folders));
	bool *taken = arena_array(arena, count * sizeof(*taken));
	int r = empty.files && empty.folders && taken ? add_empty_classes(convert, taken, &empty)
						      : -ENOMEM;
	name_table_deinit(&empty.names);
	arena_release(arena, empty.files);
	arena_release(arena, empty.folders);
	arena_release(arena, taken);
	return r;
}
