/*
 * Configuration: built-in values, then an INI file, then flags, each overriding the one before.
 * Every key is one row of config_keys.inc, which the parser, `--set` and the error texts share.
 * Plain value. loaderd.conf(5).
 */
#pragma once

#include "format/base/text/sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
	CONFIG_TEXT_MAX = 1024,
	CONFIG_ERROR_MAX = 1024,
	CONFIG_NICE_MAX = 1024, /* users who are named */
};
#define CONFIG_PATH "/etc/loaderd/loaderd.conf"

enum config_io { CONFIG_IO_AUTO, CONFIG_IO_MMAP, CONFIG_IO_URING };

/* How nice the workers of users are to each other, as nice(2) has it. */
struct config_nice {
	bool given;    /* for everybody; false: as nice as the daemon */
	int everybody; /* who is not named */
	unsigned named;
	struct {
		uint32_t uid;
		int nice;
	} users[CONFIG_NICE_MAX];
};

/* What a kind of key is kept in. */
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

/* When a daemon that runs takes another value of a key. */
enum config_takes {
	CONFIG_TAKES_NOW,
	CONFIG_TAKES_WORKER, /* when a worker starts */
	CONFIG_TAKES_RESTART,
};

/* One key that has two values. */
struct config_change {
	unsigned key; /* of config_put() */
	const char *section, *name;
	enum config_takes takes;
	bool is_number;
	uint64_t value; /* the new one, of a number */
};

struct cpus;

struct config_error {
	char text[CONFIG_ERROR_MAX];
};

/* Puts a sentence there; config_fail() has the value that code is, for whoever returns it. */
#define config_say(error, ...)        sentence_write((error)->text, sizeof((error)->text), __VA_ARGS__)
#define config_fail(error, code, ...) (config_say(error, __VA_ARGS__), (code))

void config_init(struct config *config);
/* The value of a user's workers. False: none is given, and they are as nice as the daemon. */
bool config_nice(const struct config *config, uint32_t uid, int *ret_nice);
/* The CPUs that it leaves to workers. Errors of cpus_init(), with a sentence in error. */
int config_cpus(const struct config *config, struct cpus *ret_cpus, struct config_error *error);
/* Sets one key. -EINVAL with "[section] key: ..." in error. */
int config_set(struct config *config, const char *section, const char *key, const char *value,
	       struct config_error *error);
/* -EINVAL with "file:line: ..." in error; -ENOENT and other errors of opening it. */
int config_read(struct config *config, const char *path, struct config_error *error);
/* Calls visit for each key whose values differ. */
void config_compare(const struct config *before, const struct config *after,
		    void (*visit)(void *context, const struct config_change *change),
		    void *context);
/* Copies what only a restart takes. */
void config_keep(struct config *config, const struct config *running);
/* Sets a number to a value that config_compare() has told. */
void config_put(struct config *config, unsigned key, uint64_t value);
/* Prints every key with its value, as a file that config_read() accepts. */
void config_print(const struct config *config, FILE *file);
