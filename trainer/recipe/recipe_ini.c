#include "trainer/recipe/recipe_value.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <jansson.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { LINES_MAX = 10000 };

/*
 * State of reading a file through inih, with data that inih lacks: line numbers, and lines that it
 * would truncate.
 */
struct ini_reader {
	struct recipe *recipe;
	const char *name;
	FILE *file;
	unsigned line;
	bool continues; /* the line starts with a blank and continues the previous value */
	const struct recipe_key *key; /* key whose value is being read, or NULL */
	char value[RECIPE_TEXT_MAX];
	unsigned set_on[RECIPE_KEYS_MAX]; /* line on which each key was set; 0 if not set */
	char *error;
	int result;
};

static void refuse(struct ini_reader *reading, const char *text)
{
	if (reading->result)
		return;
	reading->result =
		recipe_fail(reading->error, "%s:%u: %s", reading->name, reading->line, text);
}

/*
 * True for lines with control characters, which no recipe contains. Detects a NUL byte by a string
 * that ends before the line does.
 */
static bool is_binary(const char *text, int size, FILE *file)
{
	size_t length = strlen(text);
	for (const char *at = text; *at; at++)
		if ((unsigned char)*at < ' ' && !strchr("\t\n\r", *at))
			return true;
	return length < (size_t)size - 1 && (!length || text[length - 1] != '\n') && !feof(file);
}

/*
 * Replaces fgets() for inih. Checks section lines here, since inih does not report empty sections.
 */
static char *read_line(char *text, int size, void *user)
{
	struct ini_reader *reading = user;
	if (reading->result || !fgets(text, size, reading->file))
		return NULL;
	if (++reading->line > LINES_MAX) {
		refuse(reading, "too many lines for a recipe");
		return NULL;
	}
	if (is_binary(text, size, reading->file)) {
		refuse(reading, "is not text, but a recipe is an INI file; use data.train=FILE for "
				"a packed dataset, model.pretrained=FILE for weights");
		return NULL;
	}
	size_t length = strlen(text);
	if (length == (size_t)size - 1 && text[length - 1] != '\n') {
		char problem[128];
		snprintf(problem, sizeof(problem),
			 "the line is longer than %d bytes; continue it on an indented line, "
			 "within a word after a \\ at the end of the line",
			 size - 2);
		refuse(reading, problem);
		return NULL;
	}
	reading->continues = text[0] == ' ' || text[0] == '\t';
	const char *start = text + strspn(text, " \t");
	if (*start == '[' && !reading->continues) {
		size_t end = strcspn(start, "]\n");
		if (start[end] != ']') {
			refuse(reading, "expected ] at the end of [section]");
		} else {
			char where[512], section[64];
			snprintf(where, sizeof(where), "%s:%u", reading->name, reading->line);
			snprintf(section, sizeof(section), "%.*s", (int)end - 1, start + 1);
			if (!recipe_find_section(section))
				reading->result =
					recipe_fail_section(where, section, reading->error);
		}
	}
	return reading->result ? NULL : text;
}

/* Sets the key after the last line of its value was read. */
static int finish(struct ini_reader *reading)
{
	char where[512];
	const struct recipe_key *key = reading->key;
	reading->key = NULL;
	if (reading->result || !key)
		return reading->result;
	snprintf(where, sizeof(where), "%s:%u", reading->name, reading->set_on[key - recipe_keys]);
	reading->result = recipe_set(reading->recipe, key, where, reading->value, reading->error);
	return reading->result;
}

/* Appends a continuation line to the value: after a blank, or directly if the value ends in \. */
static void append_continuation(struct ini_reader *reading, const char *text)
{
	size_t length = strlen(reading->value);
	bool within = length && reading->value[length - 1] == '\\';
	length -= within;
	size_t room = sizeof(reading->value) - length;
	if ((size_t)snprintf(reading->value + length, room, "%s%s", length && !within ? " " : "",
			     text) >= room)
		refuse(reading, "value too long");
}

static int begin(struct ini_reader *reading, const char *section, const char *name,
		 const char *text)
{
	char where[512];
	snprintf(where, sizeof(where), "%s:%u", reading->name, reading->line);
	if (!*section)
		return recipe_fail(reading->error, "%s: %s precedes the first [section]", where,
				   name);
	const struct recipe_key *key = recipe_find_key(section, name);
	if (!key)
		return recipe_fail_key(where, section, name, reading->error);
	unsigned *set_on = &reading->set_on[key - recipe_keys];
	if (*set_on)
		return recipe_fail(reading->error, "%s: %s.%s was already set on line %u", where,
				   section, name, *set_on);
	*set_on = reading->line;
	reading->key = key;
	snprintf(reading->value, sizeof(reading->value), "%s", text);
	return 0;
}

/* Callback of inih; returns 0 to stop with an error. */
static int handle(void *user, const char *section, const char *name, const char *text)
{
	struct ini_reader *reading = user;
	if (reading->result)
		return 0;
	if (reading->continues && reading->key)
		append_continuation(reading, text);
	else if (!finish(reading))
		reading->result = begin(reading, section, name, text);
	return !reading->result;
}

static int load(struct recipe *recipe, const char *name, FILE *file, char *error)
{
	struct ini_reader *reading = calloc(1, sizeof(*reading));
	if (!reading)
		return -ENOMEM;
	*reading =
		(struct ini_reader){.recipe = recipe, .name = name, .file = file, .error = error};
	errno = 0;
	int line = ini_parse_stream(read_line, reading, handle, reading);
	if (!reading->result && line > 0) {
		reading->line = (unsigned)line;
		refuse(reading, "expected [section] or key = value");
	}
	if (!reading->result && (line < 0 || ferror(file)))
		reading->result = recipe_fail(error, "%s: cannot be read: %s", name,
					      strerror(ferror(file) ? errno : ENOMEM));
	int r = finish(reading);
	free(reading);
	return r;
}

/* Checks that the descriptor is a file or a pipe, and removes O_NONBLOCK. */
static int check_text(int fd)
{
	struct stat status;
	struct statfs system;
	if (fstat(fd, &status) < 0 || fstatfs(fd, &system) < 0)
		return -errno;
	bool pipe = S_ISFIFO(status.st_mode) && system.f_type == PIPEFS_MAGIC;
	/* accept a folder: reading it fails with a clear error */
	if (!pipe && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
		return -EINVAL;
	return fcntl(fd, F_SETFL, 0) < 0 ? -errno : 0;
}

/*
 * Opens a regular file, or a pipe as in trainer <(sed ... recipe.ini). Opens without blocking,
 * because a named FIFO without a writer would block forever. -EINVAL if the path is neither a file
 * nor a pipe.
 */
static int open_text(const char *path, FILE **ret_file)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	int r = check_text(fd);
	FILE *file = r < 0 ? NULL : fdopen(fd, "r");
	if (!file) {
		r = r < 0 ? r : -errno;
		close(fd);
		return r;
	}
	*ret_file = file;
	return 0;
}

int recipe_load(struct recipe *recipe, const char *path, char *error)
{
	FILE *file = NULL;
	int r = open_text(path, &file);
	if (r == -EINVAL)
		return recipe_fail(error, "%s: neither a regular file nor a pipe", path);
	if (r < 0) {
		snprintf(error, RECIPE_ERROR_MAX, "%s: %s", path, strerror(-r));
		return r;
	}
	r = load(recipe, path, file, error);
	fclose(file);
	return r;
}

int recipe_load_text(struct recipe *recipe, const char *name, const char *text, char *error)
{
	if (!*text)
		return 0;
	FILE *file = fmemopen((void *)text, strlen(text), "r");
	if (!file)
		return -errno;
	int r = load(recipe, name, file, error);
	fclose(file);
	return r;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

enum { WIDTH = 150 /* bytes of a value per line; inih accepts lines of up to 198 */ };

/*
 * Returns the length of the part of a value that fits on one line: the whole value, or up to a
 * break that the reader undoes. Prefers to break at a single blank; otherwise breaks within a word
 * and sets *ret_within. Returns 0 if no break is possible.
 */
static size_t line_length(const char *text, bool *ret_within)
{
	size_t length = strlen(text);
	*ret_within = false;
	if (length <= WIDTH)
		return length;
	for (size_t cut = WIDTH; cut > 0; cut--)
		if (text[cut] == ' ' && !is_blank(text[cut - 1]) && text[cut - 1] != '\\' &&
		    !strchr(" \t;#", text[cut + 1]))
			return cut;
	*ret_within = true;
	for (size_t cut = WIDTH; cut > 0; cut--) {
		/* cut is inside a UTF-8 sequence */
		bool inside = ((unsigned char)text[cut] & 0xc0) == 0x80;
		if (!inside && !strchr(" \t;#", text[cut]))
			return cut;
	}
	return 0;
}

const char *recipe_text_problem(const char *text)
{
	json_t *json = json_string(text);
	bool within;
	json_decref(json);
	if (!json)
		return "is not UTF-8, as logs and checkpoints require";
	if (is_blank(*text) || (*text && is_blank(text[strlen(text) - 1])))
		return "begins or ends with a blank, which a recipe file would lose";
	for (const char *at = text; *at; at++) {
		if (*at != '\t' && ((unsigned char)*at < ' ' || *at == 0x7f))
			return "has a control character, such as an end of line";
		if (*at == ';' && (at == text || is_blank(at[-1])))
			return "has a word that begins with ;, which begins a comment in a recipe "
			       "file";
	}
	for (size_t length; *text; text += length) {
		length = line_length(text, &within);
		if (!length)
			return "has more than 150 blanks, # or ; in a row";
		if (text[length] && !within)
			length++;
	}
	return NULL;
}

/* Writes a value, wrapped into lines that read_line() and handle() join again. */
static void write_value(FILE *file, const char *name, const char *text)
{
	bool within;
	fprintf(file, "%s =", name);
	do {
		size_t length = line_length(text, &within);
		fprintf(file, " %.*s%s\n", (int)length, text, within ? "\\" : "");
		text += length;
		if (*text)
			fputc('\t', file);
		if (*text && !within)
			text++;
	} while (*text);
}

int recipe_write(const struct recipe *recipe, FILE *file)
{
	char text[RECIPE_TEXT_MAX];
	const char *section = "";
	for (size_t i = 0; i < recipe_keys_count; i++) {
		const struct recipe_key *key = &recipe_keys[i];
		int r = recipe_key_text(recipe, key, text, sizeof(text));
		if (r < 0)
			return r;
		if (strcmp(section, key->section) != 0) {
			fprintf(file, "%s[%s]\n", *section ? "\n" : "", key->section);
			section = key->section;
		}
		write_value(file, key->name, text);
	}
	return ferror(file) ? -EIO : 0;
}
