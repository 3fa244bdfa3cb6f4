/*
 * The configuration: built-in defaults, then an INI file, then command-line flags, each overriding
 * the one before. Each key is one row of config_keys.inc, which the parser, `--set` and the error
 * messages share. struct config is a plain value: copy it freely, there is nothing to free.
 * loaderd.conf(5) documents the keys.
 */
#pragma once

#include "format/base/text/sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
	CONFIG_TEXT_MAX = 1024,
	CONFIG_ERROR_MAX = 1024,
	CONFIG_NICE_MAX = 1024, /* entries of [users] nice */
};
#define CONFIG_PATH "/etc/loaderd/loaderd.conf"

enum config_io { CONFIG_IO_AUTO, CONFIG_IO_MMAP, CONFIG_IO_URING };

/* Nice values of workers, per user, as for nice(2). */
struct config_nice {
	bool given;       /* `default_nice` is set; if not, workers inherit the daemon's value */
	int default_nice; /* for users that are not listed */
	unsigned named;
	struct {
		uint32_t uid;
		int nice;
	} users[CONFIG_NICE_MAX];
};

/* The field of struct config for each kind of key. */
#define CONFIG_NUMBER(field)    uint64_t field;
#define CONFIG_OCTAL(field)     uint64_t field;
#define CONFIG_BYTES(field)     uint64_t field;
#define CONFIG_TEXT(field)      char field[CONFIG_TEXT_MAX];
#define CONFIG_LOG_LEVEL(field) uint64_t field; /* enum log_level */
#define CONFIG_IO(field)        uint64_t field; /* enum config_io */
#define CONFIG_BOOL(field)      bool field;
#define CONFIG_NICE(field)      struct config_nice field;
struct config {
#define KEY(kind, section, name, field, ...) CONFIG_##kind(field)
#define GONE(section, name)
#include "loaderd/config_keys.inc"
};

/* When a change of a key on reload takes effect. */
enum config_takes {
	CONFIG_TAKES_NOW,
	CONFIG_TAKES_WORKER, /* in workers that start afterwards */
	CONFIG_TAKES_RESTART,
};

/* One key whose value differs between two configurations. */
struct config_change {
	unsigned key; /* index for config_put() */
	const char *section, *name;
	enum config_takes takes;
	bool is_number;
	uint64_t value; /* new value, if is_number */
};

struct cpus;

struct config_error {
	char text[CONFIG_ERROR_MAX];
};

/*
 * config_say() formats a sentence into error. config_fail() does too, and evaluates to `code`, so
 * that callers can return it.
 */
#define config_say(error, ...)        sentence_write((error)->text, sizeof((error)->text), __VA_ARGS__)
#define config_fail(error, code, ...) (config_say(error, __VA_ARGS__), (code))

void config_init(struct config *config);
/*
 * Looks up the nice value of a user's workers. Returns false if none is configured: the workers
 * then inherit the daemon's.
 */
bool config_nice(const struct config *config, uint32_t uid, int *ret_nice);
/*
 * Resolves [pool] cpus to the CPUs that workers may use. Returns errors as cpus_init() does, with a
 * sentence in error.
 */
int config_cpus(const struct config *config, struct cpus *ret_cpus, struct config_error *error);
/* Sets one key. Returns -EINVAL with "[section] key: ..." in error if key or value is invalid. */
int config_set(struct config *config, const char *section, const char *key, const char *value,
	       struct config_error *error);
/*
 * Reads an INI file over the current values. Returns -EINVAL with "file:line: ..." in error if it
 * is invalid, -ENOENT or another -errno if it cannot be opened.
 */
int config_read(struct config *config, const char *path, struct config_error *error);
/* Calls visit for each key whose values differ. */
void config_compare(const struct config *before, const struct config *after,
		    void (*visit)(void *context, const struct config_change *change),
		    void *context);
/* Copies the keys that a reload cannot change (CONFIG_TAKES_RESTART) from `running`. */
void config_keep_restart_keys(struct config *config, const struct config *running);
/* Sets a numeric key to the value that config_compare() reported. */
void config_put(struct config *config, unsigned key, uint64_t value);
/* Prints all keys in a form that config_read() accepts. */
void config_print(const struct config *config, FILE *file);
