/*
 * Configuration: built-in values, then an INI file, then flags, each overriding the one before.
 * Every key is one row of a table in config.c, which the parser, `--set` and the error texts share.
 * Plain value; read-only once the daemon runs. loaderd.conf(5).
 */
#pragma once

#include "format/base/sentence.h"

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

struct config {
	/* [daemon] */
	/* path, or "@name"; socket_to_listen() unless told otherwise */
	char socket[CONFIG_TEXT_MAX];
	uint64_t socket_mode;
	char socket_group[CONFIG_TEXT_MAX];
	uint64_t log_level; /* enum log_level */
	uint64_t grace_ms;  /* for clients to take what is finished, when stopping */
	uint64_t idle_ms;   /* after which a user's worker ends that has no connection */
	/* [pool] */
	uint64_t threads; /* 0: as many as CPUs are granted */
	char cpus[CONFIG_TEXT_MAX];
	/* [io] */
	uint64_t io;              /* enum config_io */
	uint64_t readahead_bytes; /* per feed */
	uint64_t queue_depth;     /* reads under way, per feed */
	/* [access] */
	bool writable_rings;
	/* [users] */
	struct config_nice nice;
	char control_group[CONFIG_TEXT_MAX]; /* "": none */
	/* [limits] */
	uint64_t users; /* at a time */
	uint64_t feeds_per_user, connections_per_user;
	uint64_t shards;       /* files of a dataset */
	uint64_t decode_bytes; /* of one sample, on one thread */
	uint64_t slots;
	uint64_t batch_size;
	uint64_t image_side;
	uint64_t pipeline_length;
	/* bytes, all feeds together; 0: half of what the machine or cgroup has */
	uint64_t shared_memory;
	uint64_t shared_memory_per_user; /* 0: half of that, all of it in a private daemon */
	uint64_t fields, field_bytes;
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
/* Prints every key with its value, as a file that config_read() accepts. */
void config_print(const struct config *config, FILE *file);
