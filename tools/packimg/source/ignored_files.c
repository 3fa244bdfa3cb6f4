#include "tools/packimg/source/ignored_files.h"

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	ENDING_MAX = 12, /* maximum length of an extension; a longer suffix is not one */
};

void ignored_files_init(struct ignored_files *ignored, struct arena *arena)
{
	*ignored = (struct ignored_files){.arena = arena};
	name_table_init(&ignored->kind_names, arena);
	name_table_init(&ignored->folders, arena);
}

void ignored_files_deinit(struct ignored_files *ignored)
{
	name_table_deinit(&ignored->kind_names);
	name_table_deinit(&ignored->folders);
	arena_release(ignored->arena, ignored->folder_files);
}

/* Returns a name's extension in lower case, or a description if it has none. */
static const char *kind_of(const char *name, enum filter_verdict verdict,
			   char ending[static ENDING_MAX + 2])
{
	const char *base = strrchr(name, '/');

	base = base ? base + 1 : name;
	const char *dot = strrchr(base, '.');
	size_t size = dot ? strlen(dot) : 0;
	if (verdict == FILTER_HIDDEN)
		return "hidden";
	if (size < 2 || dot == base || size > ENDING_MAX + 1)
		return "without an ending";
	for (size_t i = 0; i <= size; i++)
		ending[i] = (char)tolower((unsigned char)dot[i]);
	return ending;
}

static int add_folder(struct ignored_files *ignored, const char *name, unsigned files)
{
	const char *slash = strrchr(name, '/');
	char *folder = slash ? strndup(name, (size_t)(slash - name + 1)) : NULL;
	uint32_t number;
	bool added;

	if (!slash)
		return 0;
	int r = folder ? name_table_add(&ignored->folders, folder, &number, &added) : -ENOMEM;
	free(folder);
	if (r)
		return r;
	if (arena_reserve(ignored->arena, &ignored->folder_files, number, &ignored->folder_capacity,
			  sizeof(*ignored->folder_files)))
		return -ENOMEM;
	if (added)
		ignored->folder_files[number] = 0;
	ignored->folder_files[number] += files;
	return 0;
}

/* Returns true for files that operating systems create in any folder. */
static bool is_system_file(const char *name)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;

	return strcasecmp(base, "Thumbs.db") == 0 || strcasecmp(base, "desktop.ini") == 0;
}

int ignored_files_add(struct ignored_files *ignored, const char *name, enum filter_verdict verdict)
{
	char ending[ENDING_MAX + 2];
	uint32_t number;

	if (verdict == FILTER_EXCLUDED) {
		ignored->excluded++;
		return 0;
	}
	if (verdict == FILTER_FOLDER)
		return add_folder(ignored, name, 0);
	ignored->files++;
	if (name_table_find(&ignored->kind_names, kind_of(name, verdict, ending), &number)) {
		const char *word = ignored->kind_names.count < IGNORED_KINDS_MAX
					   ? kind_of(name, verdict, ending)
					   : "of other kinds";

		if (name_table_add(&ignored->kind_names, word, &number, NULL))
			return -ENOMEM;
	}
	struct ignored_kind *kind = &ignored->kinds[number];
	kind->files++;
	if (!kind->first) {
		kind->name = ignored->kind_names.names[number];
		kind->first = arena_copy(ignored->arena, name, strnlen(name, PACKIMG_SOURCE_MAX));
		if (!kind->first)
			return -ENOMEM;
	}
	return verdict == FILTER_OTHER && !is_system_file(name) ? add_folder(ignored, name, 1) : 0;
}

static int kind_compare(const void *a, const void *b)
{
	const struct ignored_kind *p = a, *q = b;

	if (p->files != q->files)
		return p->files < q->files ? 1 : -1;
	return strcmp(p->name, q->name);
}

void ignored_files_sort(struct ignored_files *ignored)
{
	qsort(ignored->kinds, ignored->kind_names.count, sizeof(*ignored->kinds), kind_compare);
}
