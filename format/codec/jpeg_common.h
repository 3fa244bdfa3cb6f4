/*
 * What decoder and encoder share of libjpeg: an error manager that jumps back into the function
 * that called the library, and a memory manager that keeps its memory between images. Both belong
 * to one codec state, hence to one thread; the jump never leaves that function's frame, and no
 * frame of ours is jumped over that owns anything.
 */
#pragma once

#include "format/codec/scratch.h"
#include "format/packimg.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

struct jpeg_trap {
	struct jpeg_error_mgr manager; /* first: libjpeg hands back a pointer to it */
	jmp_buf jump;
	int code; /* negative errno of the last failure */
	char text[JMSG_LENGTH_MAX];
};

/*
 * Errors become -EBADMSG, -ENOTSUP or -ENOMEM, and so do warnings, save those that SPEC.md,
 * "Complete JPEGs", lets pass.
 */
void jpeg_trap_init(struct jpeg_trap *trap);
/* Jumps with a sentence of our own. */
_Noreturn void jpeg_trap_raise(j_common_ptr cinfo, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

struct jpeg_arena_chunk;

/*
 * Memory of one image at a time: handed out front to back, taken back all at once, kept for the
 * next unless it is much.
 */
struct jpeg_arena {
	struct jpeg_memory_mgr *manager; /* libjpeg's own; its methods are replaced */
	struct jpeg_memory_mgr original;
	struct scratch_budget *budget;   /* that pays; NULL: none */
	struct jpeg_arena_chunk *chunks; /* newest first */
	size_t used;                     /* bytes handed out since the last reset */
	struct jvirt_barray_control *arrays;
};

/*
 * Takes over the memory of cinfo, which was just created; jpeg_abort() takes back what was handed
 * out. The arena is found again through cinfo->client_data. budget may be NULL.
 */
void jpeg_arena_attach(struct jpeg_arena *arena, struct scratch_budget *budget, j_common_ptr cinfo);
/* Gives cinfo its own manager back, so that it can be destroyed, and frees everything. */
void jpeg_arena_detach(struct jpeg_arena *arena);
