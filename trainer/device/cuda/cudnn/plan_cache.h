/*
 * The file of tuned plans. A text file:
 *
 *     loaderd plans 1
 *     DEVICE <tab> PROBLEM <tab> TAG <tab> MILLISECONDS
 *
 * DEVICE is the GPU's name, its compute capability and cuDNN's version. PROBLEM encodes every field
 * of struct conv_problem. TAG is an engine configuration's tag, or PLAN_UNFUSED if the problem runs
 * faster unfused; MILLISECONDS is then the unfused time. Lines of other devices are preserved.
 *
 * The file is read once at init. plan_cache_store() rereads it, merges its line and replaces the
 * file by rename, so readers always see a complete file. A lock on PATH.lock serializes writers.
 */
#pragma once

#include "trainer/device/cuda/conv.h"
#include "trainer/device/device.h"

#define PLAN_TAG_MAX 192 /* bytes, terminator included */
#define PLAN_UNFUSED "apart"

struct plan_line {
	char device[192], problem[224], tag[PLAN_TAG_MAX];
	float ms;
};

struct plan_cache {
	char *path; /* NULL if there is no file */
	char device[192];
	struct plan_line *lines;
	size_t count, capacity;
	/*
	 * reason why the last line could not be written to disk and is known only to this process;
	 * "" if it was written
	 */
	char cache_error[DEVICE_ERROR_MAX];
};

/*
 * `path` as in struct engines_options; `device` must not contain tabs. A missing file counts as
 * empty. -EBADMSG if the file is damaged; it then counts as empty and `error` has a description.
 * -ENOMEM; read errors, which also leave it empty. The object is usable after any of these.
 */
int plan_cache_init(struct plan_cache *file, const char *path, const char *device, char *error);
void plan_cache_deinit(struct plan_cache *file);
/* Returns NULL if the problem has not been tuned on this device. */
const struct plan_line *plan_cache_find(const struct plan_cache *file,
					const struct conv_problem *problem, bool tf32);
/* Returns the lines of this device as text; the caller frees it. -ENOMEM. */
int plan_cache_write(const struct plan_cache *file, char **ret_text, size_t *ret_size);
/*
 * Merges the text of another process's plan_cache_write(): its lines replace lines for the same
 * problems, and PLAN_UNFUSED lines of this device that it lacks are dropped. The file on disk is
 * unchanged; the next plan_cache_store() adds the new lines. -EBADMSG if the text is invalid;
 * nothing changes then. -ENOMEM.
 */
int plan_cache_merge(struct plan_cache *file, const char *text, size_t size);
/*
 * Stores a tuning result. -ENOMEM. An unwritable file is not an error; it is reported in
 * `cache_error`.
 */
int plan_cache_store(struct plan_cache *file, const struct conv_problem *problem, bool tf32,
		     const char *tag, float ms);
