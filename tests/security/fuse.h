/*
 * A minimal FUSE file system with one file, data.pimg, that mirrors another file and whose server
 * stops answering some requests. Root mounts it with access for all users, which is the worst
 * configuration that a user can be allowed. A separate process serves it until fuse_stop().
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum fuse_silence {
	FUSE_NO_READS,  /* answers no read */
	FUSE_NO_MIDDLE, /* answers no read of the middle third */
	FUSE_NO_CLOSE,  /* answers no FLUSH: close() blocks uninterruptibly */
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
