#include "format/write/publish.h"
#include "format/base/shard_set.h"
#include "format/base/system/io.h"
#include "format/write/replace.h"

#include <string.h>
#include <unistd.h>

/* Returns the path without its extension. */
static void base_of(const struct publication *publication, char ret_base[SHARD_SET_PATH_MAX])
{
	size_t size = strlen(publication->path);

	strcpy(ret_base, publication->path);
	if (size > 5 && strcmp(ret_base + size - 5, ".pimg") == 0)
		ret_base[size - 5] = '\0';
}

/* Returns the final name of a shard: the path, or NAME-00000-of-0000N.pimg. */
static int final_path(const struct publication *publication, uint32_t shard,
		      char ret_path[SHARD_SET_PATH_MAX])
{
	char base[SHARD_SET_PATH_MAX];

	if (!publication->set) {
		strcpy(ret_path, publication->path);
		return 0;
	}
	base_of(publication, base);
	return shard_name_path(base, shard, publication->shard_count, ret_path);
}

/* Renames every shard to its final name. Sets ret_done to the number of shards renamed. */
static int rename_shards(const struct publication *publication, struct temp_files *temp_files,
			 uint32_t *ret_done)
{
	char path[SHARD_SET_PATH_MAX];

	for (*ret_done = 0; *ret_done < publication->shard_count; ++*ret_done) {
		int r = final_path(publication, *ret_done, path);
		if (r < 0)
			return r;
		r = temp_files_commit(temp_files, *ret_done, path);
		if (r < 0)
			return r;
	}
	return 0;
}

static int publish_first(const struct publication *publication, struct temp_files *temp_files,
			 bool *ret_renamed)
{
	char path[SHARD_SET_PATH_MAX];
	uint32_t done;

	int r = rename_shards(publication, temp_files, &done);
	if (r < 0) {
		for (uint32_t i = 0; i < done; i++)
			if (final_path(publication, i, path) == 0)
				unlink(path);
		return r;
	}
	*ret_renamed = true;
	return io_sync_folder(temp_files->directory);
}

/* A rename can only replace one file by one file; other existing files need replace_commit(). */
int publish(const struct publication *publication, struct temp_files *temp_files, bool *ret_renamed)
{
	char base[SHARD_SET_PATH_MAX];
	struct shard_name name;

	/*
	 * The path can have neither shards nor a commit record, or the caller guarantees that it
	 * has none.
	 */
	if (publication->alone ||
	    (!publication->set && (shard_name_parse(publication->path, &name) == 0 ||
				   shard_set_base(publication->path, base) < 0)))
		return publish_first(publication, temp_files, ret_renamed);
	base_of(publication, base);
	int r = replace_is_needed(base, publication->set);
	if (r < 0)
		return r;
	return r > 0 ? replace_commit(temp_files, base, publication->set)
		     : publish_first(publication, temp_files, ret_renamed);
}
