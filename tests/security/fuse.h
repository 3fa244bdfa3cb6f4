/*
 * A FUSE file system by hand, with one file, data.pimg, whose bytes are those of another file, and
 * whose server stops answering. Mounted by root so that everybody may use it, which is the worst
 * that a user can be allowed; served by a process of its own until fuse_stop().
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum fuse_silence {
	FUSE_NO_READS,  /* no reading of any of it is answered */
	FUSE_NO_MIDDLE, /* reading the middle third is not */
	FUSE_NO_CLOSE,  /* closing is not: close() then waits, and nothing interrupts it */
};

struct fuse {
	char folder[4096];
	pid_t server;
};

/* False where it cannot be mounted. */
bool fuse_start(struct fuse *fuse, const char *folder, const char *backing,
		enum fuse_silence silence);
/* Aborts what waits, and unmounts. */
void fuse_stop(struct fuse *fuse);
