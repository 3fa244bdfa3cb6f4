/*
 * Header of a .pimg file (SPEC.md, "Header" and "Section table"). Reads the header once, with one
 * pread(), validates the copy and uses only that copy. Functions use only the descriptor passed in;
 * any thread. They make only the system calls fcntl, fstat, fstatfs and pread, so they work in a
 * sandbox that denies all others.
 */
#pragma once

#include "format/layout.h"
#include "format/packimg.h"

/*
 * Reads and validates the whole header, including the section table against the file size. Error
 * messages begin with name. -EINVAL if fd is not a regular file, is on hugetlbfs, or is not open
 * for reading; -EBADMSG; -ENOTSUP.
 */
int header_read(int fd, const char *name, struct pimg_header *ret_header,
		struct packimg_error *error);
/*
 * Returns the table entry of a section of a known type, or NULL if the file has no such section.
 * The table must be validated.
 */
const struct pimg_section *header_section(const struct pimg_header *header, uint32_t type);
/* Reads exactly size bytes; -EBADMSG if the file has shrunk. */
int header_pread(int fd, const char *name, void *bytes, uint64_t size, uint64_t offset,
		 struct packimg_error *error);
