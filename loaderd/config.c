#include "loaderd/config.h"

#include "format/base/text/nearest.h"
#include "format/base/text/number.h"
#include "loaderd/cpus.h"
#include "loaderd/log.h"
#include "proto/socket_path.h"

#include <errno.h>
#include <ini.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum key_type {
	KEY_NUMBER,
	KEY_OCTAL,
	KEY_BYTES,
	KEY_TEXT,
	KEY_LOG_LEVEL,
	KEY_IO,
	KEY_BOOL,
	KEY_NICE,
	KEY_GONE
};

struct choice {
	const char *name;
	uint64_t value;
};

struct key {
	const char *section, *name;
	enum key_type type;
	size_t offset, size;
	enum config_takes takes;
	uint64_t least, most;
};

/* Names of the values, for key types with a fixed set; terminated by a NULL name. */
static const struct choice *const choices[] = {
	[KEY_LOG_LEVEL] = (const struct choice[]){{"error", LOG_LEVEL_ERROR},
						  {"warning", LOG_LEVEL_WARNING},
						  {"info", LOG_LEVEL_INFO},
						  {"debug", LOG_LEVEL_DEBUG},
						  {NULL, 0}},
	[KEY_IO] = (const struct choice[]){{"auto", CONFIG_IO_AUTO},
					   {"mmap", CONFIG_IO_MMAP},
					   {"uring", CONFIG_IO_URING},
					   {NULL, 0}},
};

#define GIB (UINT64_C(1) << 30)

static const struct key keys[] = {
#define KEY(kind, section, name, field, takes, usual, least, most)                                 \
	{section,                                                                                  \
	 name,                                                                                     \
	 KEY_##kind,                                                                               \
	 offsetof(struct config, field),                                                           \
	 sizeof(((struct config *)NULL)->field),                                                   \
	 CONFIG_TAKES_##takes,                                                                     \
	 least,                                                                                    \
	 most},
#define GONE(section, name) {section, name, KEY_GONE, 0, 0, CONFIG_TAKES_NOW, 0, 0},
#include "loaderd/config_keys.inc"
};
enum { KEY_COUNT = sizeof(keys) / sizeof(keys[0]) };

void config_init(struct config *config)
{
	*config = (struct config){
#define KEY(kind, section, name, field, takes, usual, ...) .field = usual,
#define GONE(section, name)
#include "loaderd/config_keys.inc"
	};
	socket_to_listen(config->socket);
}

static const struct key *find_key(const char *section, const char *name)
{
	for (unsigned i = 0; i < KEY_COUNT; i++)
		if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

/*
 * Finds the most similar key. A wrong section counts less than any misspelling. Returns NULL if
 * none is similar.
 */
static const struct key *nearest_key(const char *section, const char *name)
{
	const struct key *nearest = NULL;
	unsigned best = NEAREST_NONE;
	for (unsigned i = 0; i < KEY_COUNT; i++) {
		unsigned slips = nearest_distance(name, keys[i].name);
		if (slips == NEAREST_NONE)
			continue;
		slips = 2 * slips + (strcmp(section, keys[i].section) != 0);
		if (slips < best) {
			nearest = &keys[i];
			best = slips;
		}
	}
	return nearest;
}

static int fail_key(const char *section, const char *name, struct config_error *error)
{
	const struct key *nearest = nearest_key(section, name);
	char what[160], remedy[160] = "loaderd.conf(5) lists them";
	if (section[0] == '\0')
		snprintf(what, sizeof(what), "%.64s: stands before any [section]", name);
	else
		snprintf(what, sizeof(what), "[%.64s] %.64s: no such key", section, name);
	if (nearest && section[0] == '\0' && strcmp(name, nearest->name) == 0)
		snprintf(remedy, sizeof(remedy), "it belongs after a line [%s]", nearest->section);
	else if (nearest)
		snprintf(remedy, sizeof(remedy), "did you mean [%s] %s?", nearest->section,
			 nearest->name);
	return config_fail(error, -EINVAL, "%s; %s", what, remedy);
}

/* Accepts whole numbers only: a fraction of a byte is a mistake. */
static int parse_bytes(const char *text, uint64_t *ret_value)
{
	const char *end;
	uint64_t value;
	if (number_begin(text, 10, &value, &end) < 0)
		return -EINVAL;
	unsigned shift = number_unit(&end);
	if (value > UINT64_MAX >> shift)
		return -EINVAL;
	if (shift > 0 && *end == 'B')
		end++;
	if (*end != '\0')
		return -EINVAL;
	*ret_value = value << shift;
	return 0;
}

static int set_choice(void *at, const struct key *key, const char *value,
		      struct config_error *error)
{
	char known[256] = "";
	for (const struct choice *choice = choices[key->type]; choice->name; choice++) {
		if (strcmp(choice->name, value) == 0) {
			*(uint64_t *)at = choice->value;
			return 0;
		}
		size_t length = strlen(known);
		snprintf(known + length, sizeof(known) - length, "%s%s", length > 0 ? ", " : "",
			 choice->name);
	}
	return config_fail(error, -EINVAL, "[%s] %s = %.200s: must be one of %s", key->section,
			   key->name, value, known);
}

static int config_set_number(void *at, const struct key *key, const char *value,
			     struct config_error *error)
{
	const char *end = "";
	uint64_t number = 0;
	int r = key->type == KEY_BYTES
			? parse_bytes(value, &number)
			: number_begin(value, key->type == KEY_OCTAL ? 8 : 10, &number, &end);
	if (r < 0 || *end != '\0' || number < key->least || number > key->most) {
		const char *kind = key->type == KEY_BYTES
					   ? "a number of bytes (K, M, G or T may follow)"
				   : key->type == KEY_OCTAL ? "an octal number"
							    : "a number";
		const char *range =
			key->type == KEY_OCTAL ? "%s from %llo to %llo" : "%s from %llu to %llu";
		char what[160];
		/* Both formats above take a string and two unsigned long long. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(what, sizeof(what), range, kind, (unsigned long long)key->least,
			 (unsigned long long)key->most);
#pragma GCC diagnostic pop
		return config_fail(error, -EINVAL, "[%s] %s = %.200s: must be %s", key->section,
				   key->name, value, what);
	}
	*(uint64_t *)at = number;
	return 0;
}

static int set_bool(void *at, const struct key *key, const char *value, struct config_error *error)
{
	if (strcmp(value, "yes") == 0 || strcmp(value, "true") == 0 || strcmp(value, "1") == 0) {
		*(bool *)at = true;
	} else if (strcmp(value, "no") == 0 || strcmp(value, "false") == 0 ||
		   strcmp(value, "0") == 0) {
		*(bool *)at = false;
	} else {
		return config_fail(error, -EINVAL, "[%s] %s = %.200s: must be yes or no",
				   key->section, key->name, value);
	}
	return 0;
}

static int config_set_text(void *at, const struct key *key, const char *value,
			   struct config_error *error)
{
	size_t length = strlen(value);
	if (length < key->least || length > key->most)
		return config_fail(error, -EINVAL, "[%s] %s: must have from %llu to %llu bytes",
				   key->section, key->name, (unsigned long long)key->least,
				   (unsigned long long)key->most);
	memcpy(at, value, length + 1);
	return 0;
}

bool config_nice(const struct config *config, uint32_t uid, int *ret_nice)
{
	const struct config_nice *nice = &config->nice;
	for (unsigned i = 0; i < nice->named; i++)
		if (nice->users[i].uid == uid) {
			*ret_nice = nice->users[i].nice;
			return true;
		}
	if (nice->given)
		*ret_nice = nice->default_nice;
	return nice->given;
}

int config_cpus(const struct config *config, struct cpus *ret_cpus, struct config_error *error)
{
	int r = cpus_init(ret_cpus, config->cpus);
	if (r < 0)
		config_say(error,
			   r == -ENODEV
				   ? "[pool] cpus = %.200s: this process may not use any of them"
				   : "[pool] cpus = %.200s: expected a list such as 0-3,8",
			   config->cpus);
	return r;
}

/* Sets the nice value of one user, replacing an earlier one. */
static int set_user_nice(struct config_nice *nice, uint32_t uid, int value)
{
	unsigned i = 0;
	while (i < nice->named && nice->users[i].uid != uid)
		i++;
	if (i == CONFIG_NICE_MAX)
		return -E2BIG;
	nice->users[i].uid = uid;
	nice->users[i].nice = value;
	nice->named += i == nice->named;
	return 0;
}

/* Parses one word: "NUMBER" or "UID:NUMBER". */
static int set_nice_word(struct config_nice *nice, const char *word)
{
	const char *colon = strchr(word, ':'), *number = colon ? colon + 1 : word;
	const char *end = "";
	uint64_t uid = 0, value;
	const bool minus = number[0] == '-';
	/* The highest uid is not a user: the kernel uses it as "none". */
	if (colon && (number_begin(word, 10, &uid, &end) < 0 || end != colon || uid >= UINT32_MAX))
		return -EINVAL;
	if (number_begin(number + minus, 10, &value, &end) < 0 || *end != '\0' ||
	    value > 19u + minus)
		return -EINVAL;
	const int signed_value = minus ? -(int)value : (int)value;
	if (colon)
		return set_user_nice(nice, (uint32_t)uid, signed_value);
	nice->default_nice = signed_value;
	nice->given = true;
	return 0;
}

/* Parses a list of nice values and adds it to the earlier ones; an empty value clears them. */
static int set_nice(void *at, const struct key *key, const char *value, struct config_error *error)
{
	static const char blanks[] = " \t";
	struct config_nice *nice = at;
	char word[32];
	const char *next = value + strspn(value, blanks);
	int r = 0;
	if (*next == '\0')
		*nice = (struct config_nice){0};
	while (r == 0 && *next != '\0') {
		size_t length = strcspn(next, blanks);
		snprintf(word, sizeof(word), "%.*s", (int)length, next);
		r = length >= sizeof(word) ? -EINVAL : set_nice_word(nice, word);
		if (r == 0)
			next += length + strspn(next + length, blanks);
	}
	if (r == -E2BIG)
		config_say(error, "[%s] %s: lists more than %d users", key->section, key->name,
			   CONFIG_NICE_MAX);
	else if (r < 0)
		config_say(error,
			   "[%s] %s = %.200s: \"%s\" must be a number from -20 to 19 (for all "
			   "users) or UID:NUMBER (for one user; id -u prints the UID)",
			   key->section, key->name, value, word);
	return r < 0 ? -EINVAL : 0;
}

/* Refuses a removed key with the reason: clients open the files themselves. */
static int refuse_removed(const struct key *key, struct config_error *error)
{
	return config_fail(
		error, -EINVAL,
		"[%s] %s: was removed: clients open the files themselves; give users read access "
		"by a group or an access list, for example setfacl -R -m g:GROUP:rX FOLDER",
		key->section, key->name);
}

int config_set(struct config *config, const char *section, const char *key_name, const char *value,
	       struct config_error *error)
{
	const struct key *key = find_key(section, key_name);
	if (!key)
		return fail_key(section, key_name, error);
	void *at = (char *)config + key->offset;
	switch (key->type) {
	case KEY_NUMBER:
	case KEY_OCTAL:
	case KEY_BYTES:
		return config_set_number(at, key, value, error);
	case KEY_LOG_LEVEL:
	case KEY_IO:
		return set_choice(at, key, value, error);
	case KEY_BOOL:
		return set_bool(at, key, value, error);
	case KEY_TEXT:
		return config_set_text(at, key, value, error);
	case KEY_NICE:
		return set_nice(at, key, value, error);
	case KEY_GONE:
		return refuse_removed(key, error);
	}
	return -EINVAL;
}

struct ini_reader {
	struct config *config;
	FILE *file;
	unsigned line; /* number of the last line read */
	bool too_long;
	int result;
	struct config_error inner;
};

/* Reads a line for inih, which would split one longer than its buffer into several. */
static char *config_read_line(char *buffer, int size, void *user)
{
	struct ini_reader *reading = user;
	char *got = fgets(buffer, size, reading->file);
	if (!got)
		return NULL;
	reading->line++;
	if (!strchr(got, '\n') && !feof(reading->file))
		reading->too_long = true;
	return reading->too_long ? NULL : got;
}

static int on_key(void *user, const char *section, const char *name, const char *value)
{
	struct ini_reader *reading = user;
	if (reading->result == 0)
		reading->result =
			config_set(reading->config, section, name, value, &reading->inner);
	return reading->result == 0;
}

int config_read(struct config *config, const char *path, struct config_error *error)
{
	struct ini_reader reading = {.config = config, .file = fopen(path, "re")};
	if (!reading.file) {
		int r = -errno;
		return config_fail(error, r, "%s: %s", path, strerror(-r));
	}
	int line = ini_parse_stream(config_read_line, &reading, on_key,
				    &reading); /* line of the first error, or 0 */
	fclose(reading.file);
	if (reading.too_long)
		return config_fail(error, -EINVAL, "%s:%u: the line is too long", path,
				   reading.line);
	if (reading.result < 0) {
		return config_fail(error, reading.result, "%.400s:%d: %.500s", path, line,
				   reading.inner.text);
	}
	if (line != 0)
		return config_fail(error, -EINVAL,
				   "%s:%d: expected \"[section]\", \"key = value\" or a comment",
				   path, line);
	return 0;
}

static bool is_equal_nice(const struct config_nice *before, const struct config_nice *after)
{
	return before->given == after->given && before->default_nice == after->default_nice &&
	       before->named == after->named &&
	       memcmp(before->users, after->users, after->named * sizeof(after->users[0])) == 0;
}

/* Compares two values. Ignores the unused bytes of strings and lists. */
static bool is_equal(const struct key *key, const void *before, const void *after)
{
	if (key->type == KEY_TEXT)
		return strcmp(before, after) == 0;
	if (key->type == KEY_NICE)
		return is_equal_nice(before, after);
	return memcmp(before, after, key->size) == 0;
}

static bool is_number(const struct key *key)
{
	return key->type != KEY_TEXT && key->type != KEY_NICE && key->type != KEY_GONE;
}

static uint64_t number_at(const struct key *key, const void *at)
{
	return key->type == KEY_BOOL ? *(const bool *)at : *(const uint64_t *)at;
}

void config_compare(const struct config *before, const struct config *after,
		    void (*visit)(void *context, const struct config_change *change), void *context)
{
	for (unsigned i = 0; i < KEY_COUNT; i++) {
		const struct key *key = &keys[i];
		const void *at = (const char *)after + key->offset;
		if (is_equal(key, (const char *)before + key->offset, at))
			continue;
		const struct config_change change = {
			.key = i,
			.section = key->section,
			.name = key->name,
			.takes = key->takes,
			.is_number = is_number(key),
			.value = is_number(key) ? number_at(key, at) : 0,
		};
		visit(context, &change);
	}
}

void config_keep_restart_keys(struct config *config, const struct config *running)
{
	for (unsigned i = 0; i < KEY_COUNT; i++)
		if (keys[i].takes == CONFIG_TAKES_RESTART)
			memcpy((char *)config + keys[i].offset,
			       (const char *)running + keys[i].offset, keys[i].size);
}

void config_put(struct config *config, unsigned key, uint64_t value)
{
	if (key >= KEY_COUNT || !is_number(&keys[key]))
		return;
	void *at = (char *)config + keys[key].offset;
	if (keys[key].type == KEY_BOOL)
		*(bool *)at = value != 0;
	else
		*(uint64_t *)at = value;
}

/*
 * Prints one line per value, because line length is limited. The first line clears values from an
 * earlier file.
 */
static void print_nice(const struct config_nice *nice, const struct key *key, FILE *file)
{
	fprintf(file, "%s =\n", key->name);
	if (nice->given)
		fprintf(file, "%s = %d\n", key->name, nice->default_nice);
	for (unsigned i = 0; i < nice->named; i++)
		fprintf(file, "%s = %u:%d\n", key->name, (unsigned)nice->users[i].uid,
			nice->users[i].nice);
}

static void config_print_value(const struct config *config, const struct key *key, FILE *file)
{
	const void *at = (const char *)config + key->offset;
	const uint64_t *number = at;
	switch (key->type) {
	case KEY_NUMBER:
	case KEY_BYTES:
		fprintf(file, "%s = %llu\n", key->name, (unsigned long long)*number);
		break;
	case KEY_OCTAL:
		fprintf(file, "%s = %llo\n", key->name, (unsigned long long)*number);
		break;
	case KEY_TEXT:
		fprintf(file, "%s = %s\n", key->name, (const char *)at);
		break;
	case KEY_BOOL:
		fprintf(file, "%s = %s\n", key->name, *(const bool *)at ? "yes" : "no");
		break;
	case KEY_LOG_LEVEL:
	case KEY_IO:
		for (const struct choice *choice = choices[key->type]; choice->name; choice++)
			if (choice->value == *number)
				fprintf(file, "%s = %s\n", key->name, choice->name);
		break;
	case KEY_NICE:
		print_nice(at, key, file);
		break;
	case KEY_GONE:
		break;
	}
}

void config_print(const struct config *config, FILE *file)
{
	const char *section = "";
	for (unsigned i = 0; i < KEY_COUNT; i++) {
		if (strcmp(section, keys[i].section) != 0)
			fprintf(file, "%s[%s]\n", i == 0 ? "" : "\n", keys[i].section);
		section = keys[i].section;
		config_print_value(config, &keys[i], file);
	}
}
