/*
 * The subcommands, and what their command lines have in common: exit statuses, interrupts, worker
 * counts, where datasets may be written. Everything here belongs to the main thread unless it says
 * otherwise.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/name_table.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum command_status {
	COMMAND_OK = 0,
	COMMAND_SKIPPED = 1, /* done, but something was left out or found damaged */
	COMMAND_FAILED = 2,
};

/* Each takes the arguments from the subcommand's name on. */
int command_advise(int argc, char **argv);
int command_convert(int argc, char **argv);
int command_index(int argc, char **argv);
int command_info(int argc, char **argv);
int command_list(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_extract(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_split(int argc, char **argv);

/* Says "packimg: ..." on standard error and returns COMMAND_FAILED. */
int command_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* From now on SIGINT and SIGTERM only set a flag, which any thread may ask for. */
void command_catch_interrupts(void);
bool command_interrupted(void);
/*
 * After cleaning up: ends the process the way the signal would have, so that a shell sees it, and
 * says what there is now. Returns if there was none.
 */
void command_die_of_interrupt(const char *outcome);
#define COMMAND_NOTHING_WRITTEN "nothing was written"

/* What options of several commands have in common. */
enum {
	COMMAND_JOBS_MAX = 1024,
	COMMAND_SHARD_MIN = 1 << 16, /* bytes */
};
#define COMMAND_NO_JOBS     "is not a number from 1 to 1024"
#define COMMAND_NO_SHARD    "is not a size of at least 64K, such as 512M"
#define COMMAND_NO_ON_ERROR "is neither skip nor fail"
extern const char *const command_on_error[]; /* fail, skip */

/* CPUs that this process may use. */
unsigned command_cpu_count(void);

/*
 * Refuses, without force, to write a dataset where one is: path itself, or the shards of a set of
 * that name. path must end in ".pimg".
 */
int command_check_output(const char *path, bool force, struct packimg_error *error);
/*
 * The same for several, all of one folder, which is read once. ret_alone, which may be NULL: of
 * each, whether it has nothing there that a rename does not replace, as the option of a writer.
 */
int command_check_outputs(const struct name_table *paths, bool force, bool *ret_alone,
			  struct packimg_error *error);

/* Prints JSON on standard output, and whether that worked. Drops the reference. */
int command_print_json(json_t *json);
/* Members of an object: a number, a name as json_text() has it, and what is said to people. */
void json_put_count(json_t *json, const char *key, uint64_t count);
void json_put_text(json_t *json, const char *key, const char *text);
void json_put_sentence(json_t *json, const char *key, const char *sentence);
