/*
 * libjpeg support shared by decoder and encoder: an error manager that uses longjmp to return to
 * the function that called the library, and a memory manager that keeps its memory between images.
 * Both belong to one codec state, hence to one thread. A longjmp never leaves the calling
 * function's frame, and never skips one of our frames that owns resources.
 */
#pragma once

#include "format/codec/scratch.h"
#include "format/packimg.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

struct jpeg_trap {
	struct jpeg_error_mgr manager; /* must be first: libjpeg passes back a pointer to it */
	jmp_buf jump;
	int code; /* negative errno of the last failure */
	char text[JMSG_LENGTH_MAX];
};

/*
 * Turns errors into -EBADMSG, -ENOTSUP or -ENOMEM. Treats warnings as errors, except those that
 * SPEC.md, "Complete JPEGs", allows.
 */
void jpeg_trap_init(struct jpeg_trap *trap);
/* Raises an error with our own message. */
_Noreturn void jpeg_trap_raise(j_common_ptr cinfo, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Width and height of a component's blocks after the inverse transform, in samples. libjpeg-turbo
 * with the API of libjpeg 7 or 8, as in Ubuntu, has a field for each, with equal values.
 */
static inline int jpeg_block_size(const jpeg_component_info *component)
{
#if JPEG_LIB_VERSION >= 70
	return component->DCT_h_scaled_size;
#else
	return component->DCT_scaled_size;
#endif
}

/* The smallest jpeg_block_size() of all components. */
static inline int jpeg_block_size_min(const struct jpeg_decompress_struct *cinfo)
{
#if JPEG_LIB_VERSION >= 70
	return cinfo->min_DCT_h_scaled_size;
#else
	return cinfo->min_DCT_scaled_size;
#endif
}

struct jpeg_arena_chunk;

/*
 * Arena for the memory of one image at a time: allocates sequentially, frees everything at once,
 * and keeps the memory for the next image unless there is much of it.
 */
struct jpeg_arena {
	struct jpeg_memory_mgr *manager; /* libjpeg's manager, with our methods */
	struct jpeg_memory_mgr original;
	struct scratch_budget *budget;   /* budget charged for the memory; NULL if unlimited */
	struct jpeg_arena_chunk *chunks; /* newest first */
	size_t used;                     /* bytes allocated since the last reset */
	struct jvirt_barray_control *arrays;
};

/*
 * Replaces the memory manager of a newly created cinfo. jpeg_abort() then frees all allocations.
 * cinfo->client_data points to the arena. budget may be NULL.
 */
void jpeg_arena_attach(struct jpeg_arena *arena, struct scratch_budget *budget, j_common_ptr cinfo);
/* Restores the memory manager of cinfo, so that cinfo can be destroyed, and frees everything. */
void jpeg_arena_detach(struct jpeg_arena *arena);
