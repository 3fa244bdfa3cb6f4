/*
 * The header of a .pimg file: read once, with one pread(), and checked in that copy, from which
 * everything is then used. SPEC.md, "Header" and "Section table". Pure functions on a descriptor;
 * any thread. They make no other system calls than fcntl, fstat, fstatfs and pread, so that they
 * work where a sandbox has taken everything else away.
 */
#pragma once

#include "format/layout.h"
#include "format/packimg.h"

/*
 * -EINVAL: not a regular file, on hugetlbfs, or not open for reading; -EBADMSG; -ENOTSUP. All of
 * the header is checked, the section table against the file's size too. name begins the texts.
 */
int header_read(int fd, const char *name, struct pimg_header *ret_header,
		struct packimg_error *error);
/* Entry of a section that this version knows; NULL: the file has none. The table was checked. */
const struct pimg_section *header_section(const struct pimg_header *header, uint32_t type);
/* Reads exactly size bytes; a file that has become shorter is -EBADMSG. */
int header_pread(int fd, const char *name, void *bytes, uint64_t size, uint64_t offset,
		 struct packimg_error *error);
