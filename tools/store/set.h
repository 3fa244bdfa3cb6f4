/*
 * The files of a dataset in a store: one object, or the shards of a set. The headers of a set come
 * with one request from its set file, NAME.pimg.set (format/SPEC.md, "Set files"); without one, or
 * if the store refuses to say whether there is one, from the shards. Requests for shards are made
 * many at once. Memory grows with the shards that were found, whatever their number in a name is.
 * One thread.
 */
#pragma once

#include "format/layout.h"
#include "tools/store/copy.h"

struct store_set {
	uint32_t count;               /* of files: 1, or the shards of a set */
	struct store_object *objects; /* [count], in the order of shards */
	struct pimg_header *headers;  /* [count], as stored: header_read() checks them */
	char *set_file;               /* for messages: whose headers they are; NULL: the objects' */
};

/* For waiting: called at least ten times a second. It returns false to give up, with -EINTR. */
struct store_set_waiting {
	bool (*go_on)(void *context);
	void *context;
};

/*
 * Reads the headers of the dataset at the address of a file, of any shard of a set, or of a set
 * file. `unsealed` ignores the set file. Errors as of store.h; -ENOENT for the first shard that is
 * missing; -EFBIG for impossible sizes; -EBADMSG and -ENOTSUP for a set file that cannot be used.
 */
int store_set_open(struct store *store, const char *address, bool unsealed,
		   const struct store_set_waiting *waiting, struct store_set *ret_set,
		   struct packimg_error *error);
/* Accepts a zeroed set. */
void store_set_deinit(struct store_set *set);
/*
 * Fetches the sections that the copies of the files, which have the objects' sizes and headers,
 * lack; the headers must have been checked. With a set file each shard is asked for something, so
 * that its version is known, and compared: -ESTALE if it is not the one that the set file
 * describes. on_bytes as of store_copy(), with the bytes to fetch.
 */
int store_set_fetch_sections(struct store *store, struct store_set *set, const int *fds,
			     bool (*on_bytes)(void *context, uint64_t done, uint64_t total),
			     void *context, struct packimg_error *error);
/* Compares the headers of copies that are complete with the set file's, if there is one. */
int store_set_compare(const struct store_set *set, const int *fds, struct packimg_error *error);
