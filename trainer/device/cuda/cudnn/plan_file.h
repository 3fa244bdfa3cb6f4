/*
 * The file of tuned plans. Text, a line each:
 *
 *     loaderd plans 1
 *     DEVICE <tab> PROBLEM <tab> TAG <tab> MILLISECONDS
 *
 * where DEVICE names the GPU, its compute capability and cuDNN's version, PROBLEM every field of a
 * struct conv_problem, and TAG a candidate, or PLAN_APART: the problem is faster unfused, and takes
 * MILLISECONDS then. Lines of other devices are kept. The file is read once; plan_file_store()
 * reads it again, adds to it and replaces it by rename, so that readers see a whole file. A lock on
 * PATH.lock makes processes that store take turns.
 */
#pragma once

#include "trainer/device/cuda/conv.h"
#include "trainer/device/device.h"

#define PLAN_TAG_MAX 192 /* bytes, terminator included */
#define PLAN_APART   "apart"

struct plan_line {
	char device[192], problem[224], tag[PLAN_TAG_MAX];
	float ms;
};

struct plan_file {
	char *path; /* NULL for no file */
	char device[192];
	struct plan_line *lines;
	size_t count, capacity;
	/*
	 * why the last line could not be written and is known only to this process; "" if it was
	 * written
	 */
	char unkept[DEVICE_ERROR_MAX];
};

/*
 * path as in struct engines_options; device: no tabs in it. A file that is not there is empty.
 * -EBADMSG: it is damaged, taken as empty, and error says so. -ENOMEM; other errors of reading:
 * taken as empty too. After any of them the file may be used.
 */
int plan_file_init(struct plan_file *file, const char *path, const char *device, char *error);
void plan_file_deinit(struct plan_file *file);
/* NULL if nothing is known about the problem on this device. */
const struct plan_line *plan_file_find(const struct plan_file *file,
				       const struct conv_problem *problem, bool tf32);
/* Returns the lines of this device as text, to be freed. -ENOMEM. */
int plan_file_write(const struct plan_file *file, char **ret_text, size_t *ret_size);
/*
 * Takes over the text of another process's plan_file_write(): its lines replace those for the same
 * problems, and PLAN_APART lines missing in it are dropped. The file on disk keeps its lines; new
 * ones are added by the next plan_file_store(). -EBADMSG if the text is invalid, then nothing
 * changes. -ENOMEM.
 */
int plan_file_adopt(struct plan_file *file, const char *text, size_t size);
/* -ENOMEM. An unwritable file is not a failure; `unkept` reports it. */
int plan_file_store(struct plan_file *file, const struct conv_problem *problem, bool tf32,
		    const char *tag, float ms);
