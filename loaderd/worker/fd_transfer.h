/*
 * Transfers descriptors from the client, which opens files with its own credentials: for each part
 * of a feed, the dataset's files, and the lists of its choice. The worker asks for one kind of file
 * of one part after the other, as many as fit a frame at a time. Used by the control thread, and by
 * the job that takes the descriptors. proto/SPEC.md, "Files".
 */
#pragma once

#include "proto/feed.pb-c.h"
#include "proto/framing.h"

#include <stdbool.h>
#include <stdint.h>

/* Descriptors of one kind, of one part. */
struct fd_group {
	uint32_t part;
	Loaderd__PartFile file;
	uint32_t max;   /* most to ask for */
	bool direct;    /* opened with O_DIRECT */
	int *fds;       /* owned, as are those that are not negative */
	uint32_t count; /* received so far */
	uint32_t total; /* files that there are; 0 until the first have come */
};

struct fd_transfer {
	struct fd_group *groups; /* owned */
	uint32_t group_count;
	uint32_t current; /* the group that is being received; group_count when all have come */
};

/* Adds a group to be asked for. -ENOMEM. */
int fd_transfer_add(struct fd_transfer *transfer, uint32_t part, Loaderd__PartFile file,
		    uint32_t max, bool direct);
/* Closes the descriptors that were not taken over. On a job thread: close() may block. */
void fd_transfer_deinit(struct fd_transfer *transfer);
bool fd_transfer_complete(const struct fd_transfer *transfer);
/* Descriptors of the current group that are still to come; valid after its first ones. */
uint32_t fd_transfer_left(const struct fd_transfer *transfer);
/* The highest descriptor that the last message brought. */
int fd_transfer_newest(const struct fd_transfer *transfer);
/* All dataset files that have come or are known to come. */
uint64_t fd_transfer_files(const struct fd_transfer *transfer);
/* Fills in the request for the next descriptors. */
void fd_transfer_ask(const struct fd_transfer *transfer, Loaderd__NeedFiles *ret_need);
/*
 * Takes the descriptors of a message from its frame. -EPROTO: not those that were asked for;
 * -EDQUOT: the datasets have more files than `limit`; -ENOMEM.
 */
int fd_transfer_take(struct fd_transfer *transfer, const Loaderd__Files *files,
		     struct frame_reader *reader, uint64_t limit);
/* The group of this kind, or NULL. */
struct fd_group *fd_transfer_find(struct fd_transfer *transfer, uint32_t part,
				  Loaderd__PartFile file);
