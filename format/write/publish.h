/* Gives complete files of a dataset their final names. One thread. */
#pragma once

#include "format/write/temp_files.h"

#include <stdbool.h>
#include <stdint.h>

struct publication {
	const char *path; /* of the file; of a set: its name, with or without ".pimg" */
	bool set;
	uint32_t shard_count; /* 1 unless set */
	/* The path has neither shards nor a commit record; see packimg_writer_options. */
	bool alone;
};

/*
 * Renames the files, replacing an older dataset of that name (replace.h). Sets *ret_renamed if they
 * have their names, also if the folder could not be synced afterwards. If one rename fails, removes
 * the files already renamed.
 */
int publish(const struct publication *publication, struct temp_files *temp_files,
	    bool *ret_renamed);
