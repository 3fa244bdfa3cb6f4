/*
 * The subcommands of packimg, and their shared code: exit statuses, interrupts, worker counts,
 * checks of output paths. Main thread only, unless stated otherwise.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/name_table.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum command_status {
	COMMAND_OK = 0,
	COMMAND_SKIPPED = 1, /* finished, but some items were skipped or found damaged */
	COMMAND_FAILED = 2,
};

/* The subcommands. argv[0] is the subcommand's name. */
int command_advise(int argc, char **argv);
int command_convert(int argc, char **argv);
int command_index(int argc, char **argv);
int command_fetch(int argc, char **argv);
int command_info(int argc, char **argv);
int command_list(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_extract(int argc, char **argv);
int command_seal(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_split(int argc, char **argv);
int command_view(int argc, char **argv);

/* Prints "packimg: ..." on standard error and returns COMMAND_FAILED. */
int command_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* From this call on, SIGINT and SIGTERM only set a flag, which any thread may query. */
void command_catch_interrupts(void);
bool command_interrupted(void);
/*
 * Call after cleaning up. If a signal arrived, prints outcome and ends the process with that
 * signal, so that a shell sees it; otherwise returns.
 */
void command_die_of_interrupt(const char *outcome);
#define COMMAND_NOTHING_WRITTEN "nothing was written"

/* Limits of options that several commands share, and their error texts. */
enum {
	COMMAND_JOBS_MAX = 1024,
	COMMAND_SHARD_MIN = 1 << 16, /* bytes */
};
#define COMMAND_NO_JOBS     "is not a number from 1 to 1024"
#define COMMAND_NO_SHARD    "is not a size of at least 64K, such as 512M"
#define COMMAND_NO_ON_ERROR "is neither skip nor fail"
extern const char *const command_on_error[]; /* values of the option: fail, skip */

/* Returns the number of CPUs available to this process. */
unsigned command_cpu_count(void);

/*
 * Unless `force` is set, refuses to overwrite a dataset: the file at path, or the shards of a set
 * of that name. path must end in ".pimg".
 */
int command_check_output(const char *path, bool force, struct packimg_error *error);
/*
 * Same for several paths in one folder, which is read only once. ret_alone (may be NULL) receives
 * for each path whether the folder contains no shards, commit records or leftovers of that dataset,
 * for the option `alone` of packimg_writer_options.
 */
int command_check_outputs(const struct name_table *paths, bool force, bool *ret_alone,
			  struct packimg_error *error);

/*
 * Prints JSON on standard output; consumes the reference. Returns 0, or COMMAND_FAILED after an
 * error message.
 */
int command_print_json(json_t *json);
/* Add members to an object: a number, a name converted by json_text(), and a message for people. */
void json_put_count(json_t *json, const char *key, uint64_t count);
void json_put_text(json_t *json, const char *key, const char *text);
void json_put_sentence(json_t *json, const char *key, const char *sentence);
