/*
 * A hand-written FUSE file system with one file, data.pimg, that mirrors another file and whose
 * server stops answering some requests. Root mounts it with access for all users, the worst
 * configuration that a user can be allowed. A separate process serves it until fuse_stop().
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum fuse_silence {
	FUSE_NO_READS,  /* no read is answered */
	FUSE_NO_MIDDLE, /* no read of the middle third is answered */
	FUSE_NO_CLOSE,  /* no flush on close is answered: close() blocks uninterruptibly */
};

struct fuse {
	char folder[4096];
	pid_t server;
};

/* Returns false if the file system cannot be mounted. */
bool fuse_start(struct fuse *fuse, const char *folder, const char *backing,
		enum fuse_silence silence);
/* Aborts pending requests and unmounts. */
void fuse_stop(struct fuse *fuse);
