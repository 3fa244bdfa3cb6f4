/*
 * Lists of well-known datasets that packimg would take for something else, by the names of their
 * files, so that a message can say what they are and which command takes them. Reads no contents.
 */
#pragma once

struct known_list {
	const char *name;   /* shell pattern of the last components of the path */
	const char *beside; /* a file that is in the same folder; NULL if none has to be */
	const char *what;   /* such as "CelebA's attributes" */
	const char *remedy; /* what the user can do, an imperative sentence */
	/* dataset whose images those of the folder then are; NULL if other images may be there */
	const char *dataset;
};

/* Returns NULL if the file is none. */
const struct known_list *known_list_find(const char *path);
