/*
 * The file of tuned plans. Text, a line each:
 *
 *     loaderd plans 1
 *     DEVICE <tab> PROBLEM <tab> TAG <tab> MILLISECONDS
 *
 * where DEVICE names the GPU, its compute capability and cuDNN's version, PROBLEM every field of a struct conv_problem, and TAG a
 * candidate, or says that what is fused in the problem is better taken apart (PLAN_APART), which then takes as long. Lines of other devices are kept. It is read once; plan_file_store() reads it again, adds to it and puts the new one in its
 * place by rename, so that readers see a whole file. Processes that store do it one after the other, by a lock on PATH.lock.
 */
#pragma once

#include "conv.h"
#include "device.h"

#define PLAN_TAG_MAX 192 /* bytes, terminator included */
#define PLAN_APART   "apart"

struct plan_line {
	char device[192], problem[224], tag[PLAN_TAG_MAX];
	float ms;
};

struct plan_file {
	char *path; /* NULL: none is kept */
	char device[192];
	struct plan_line *lines;
	size_t count, capacity;
	char unkept[DEVICE_ERROR_MAX]; /* why what was stored last is known to this process alone; "": it is not */
};

/*
 * path as in struct engines_options; device: no tabs in it. A file that is not there is empty. -EBADMSG: it is damaged, taken as empty, and error says so.
 * -ENOMEM; other errors of reading: taken as empty too. After any of them the file may be used.
 */
int plan_file_init(struct plan_file *file, const char *path, const char *device, char *error);
void plan_file_deinit(struct plan_file *file);
/* NULL: nothing is known of the problem on this device. */
const struct plan_line *plan_file_find(const struct plan_file *file, const struct conv_problem *problem, bool tf32);
/* The lines of this device as text, to be freed. -ENOMEM. */
int plan_file_write(const struct plan_file *file, char **ret_text, size_t *ret_size);
/*
 * Takes what another process wrote so: its lines replace those of the same problems, and what it does not say to be better taken apart no longer is. On disk
 * what is there stays; the rest is added with the next line that is stored. -EBADMSG: not such text, and nothing was taken. -ENOMEM.
 */
int plan_file_adopt(struct plan_file *file, const char *text, size_t size);
/* -ENOMEM. A file that cannot be written is no failure: `unkept` says so. */
int plan_file_store(struct plan_file *file, const struct conv_problem *problem, bool tf32, const char *tag, float ms);
