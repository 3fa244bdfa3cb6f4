#include "tools/packimg/common/command.h"

#include "format/base/shard_set.h"
#include "format/base/text/json_text.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/text.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const command_on_error[] = {"fail", "skip", NULL};

int command_fail(const char *format, ...)
{
	va_list arguments;

	char *sentence;

	va_start(arguments, format);
	if (vasprintf(&sentence, format, arguments) >= 0) {
		printable_line(stderr, "packimg: %s", sentence);
		free(sentence);
	}
	va_end(arguments);
	return COMMAND_FAILED;
}

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal)
{
	interrupted = signal;
}

void command_catch_interrupts(void)
{
	/*
	 * A second signal ends the process immediately, so that a blocked clean-up cannot keep the
	 * user waiting.
	 */
	struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND};

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

bool command_interrupted(void)
{
	return interrupted != 0;
}

void command_die_of_interrupt(const char *outcome)
{
	if (!interrupted)
		return;
	fprintf(stderr, "packimg: interrupted, %s\n", outcome);
	signal(interrupted, SIG_DFL);
	raise(interrupted);
}

unsigned command_cpu_count(void)
{
	cpu_set_t set;

	/* Fails with EINVAL on machines with more CPUs than the set holds. */
	if (sched_getaffinity(0, sizeof(set), &set)) {
		long online = sysconf(_SC_NPROCESSORS_ONLN);

		return online > 0 ? (unsigned)online : 1;
	}
	return (unsigned)CPU_COUNT(&set);
}

/* How a file in the output folder relates to a dataset. */
enum relation {
	RELATION_NONE,
	RELATION_FILE,     /* the whole dataset in a single file */
	RELATION_PART,     /* a shard or a commit record */
	RELATION_LEFTOVER, /* temporary file left behind by a killed writer */
};

static bool find_output(const struct name_table *paths, const char *folder, const char *file,
			size_t size, uint32_t *ret_number)
{
	char path[SHARD_SET_PATH_MAX];

	int n = snprintf(path, sizeof(path), "%s%.*s.pimg", folder, (int)size, file);
	return n < (int)sizeof(path) && name_table_find(paths, path, ret_number) == 0;
}

/* Classifies a hidden file by the suffix after the dataset's name (shard_set.h, temp_files.h). */
static enum relation temporary_of(const char *file, size_t *ret_size)
{
	static const char record[] = ".pimg.replaced", leftover[] = ".pimg.partial.";
	size_t size = strlen(file), record_size = sizeof(record) - 1;
	const char *last = NULL;

	if (size > record_size && strcmp(file + size - record_size, record) == 0) {
		*ret_size = size - record_size;
		return RELATION_PART;
	}
	for (const char *p = file; (p = strstr(p, leftover)); p++)
		last = p;
	*ret_size = last ? (size_t)(last - file) : 0;
	return last ? RELATION_LEFTOVER : RELATION_NONE;
}

static enum relation related_output(const struct name_table *paths, const char *folder,
				    const char *file, uint32_t *ret_number)
{
	size_t size = strlen(file);
	struct shard_name shard;
	enum relation relation;

	if (file[0] == '.') {
		relation = temporary_of(file + 1, &size);
		if (relation && find_output(paths, folder, file + 1, size, ret_number))
			return relation;
		size = strlen(file);
	}
	if (size > 5 && strcmp(file + size - 5, ".pimg") == 0 &&
	    find_output(paths, folder, file, size - 5, ret_number))
		return RELATION_FILE;
	if (shard_name_parse(file, &shard) == 0 &&
	    find_output(paths, folder, shard.base, strlen(shard.base), ret_number))
		return RELATION_PART;
	return RELATION_NONE;
}

/* Returns the folder part of a path, with its slash; "" for the current folder. */
static int folder_of(const char *path, char ret_folder[SHARD_SET_PATH_MAX],
		     struct packimg_error *error)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t size = strlen(name);

	if (size < 6 || strcmp(name + size - 5, ".pimg") != 0)
		return packimg_fail(error, -EINVAL, "%s: the name of a dataset ends in .pimg",
				    path);
	snprintf(ret_folder, SHARD_SET_PATH_MAX, "%.*s", (int)(name - path), path);
	return 0;
}

int command_check_outputs(const struct name_table *paths, bool force, bool *ret_alone,
			  struct packimg_error *error)
{
	char folder[SHARD_SET_PATH_MAX];
	struct dirent *entry;
	uint32_t number;
	int r = 0;

	for (uint32_t i = 0; i < paths->count; i++) {
		r = folder_of(paths->names[i], folder, error);
		if (r)
			return r;
		if (ret_alone)
			ret_alone[i] = true;
	}
	DIR *directory = opendir(*folder ? folder : ".");
	if (!directory)
		return packimg_fail(error, -errno, "%s: cannot open the output folder: %s",
				    *folder ? folder : ".", strerror(errno));
	while (!r && (entry = readdir(directory))) {
		enum relation relation = related_output(paths, folder, entry->d_name, &number);

		if (!force && (relation == RELATION_FILE || relation == RELATION_PART))
			r = packimg_fail(error, -EEXIST, "%s%s exists; --force replaces it", folder,
					 entry->d_name);
		if (ret_alone && relation > RELATION_FILE)
			ret_alone[number] = false;
	}
	closedir(directory);
	return r;
}

int command_check_output(const char *path, bool force, struct packimg_error *error)
{
	struct arena arena = {0};
	struct name_table paths;
	uint32_t number;

	name_table_init(&paths, &arena);
	int r = name_table_add(&paths, path, &number, NULL);
	r = r ? packimg_fail(error, r, "out of memory")
	      : command_check_outputs(&paths, force, NULL, error);
	name_table_deinit(&paths);
	arena_deinit(&arena);
	return r;
}

int command_print_json(json_t *json)
{
	int r = json ? json_print(json, stdout, JSON_INDENT(2)) : -1;

	json_decref(json);
	if (r || putchar('\n') == EOF || fflush(stdout))
		return command_fail("writing to standard output: %s", strerror(errno));
	return 0;
}

void json_put_count(json_t *json, const char *key, uint64_t count)
{
	json_object_set_new(json, key, json_integer((json_int_t)count));
}

void json_put_text(json_t *json, const char *key, const char *text)
{
	json_object_set_new(json, key, json_text(text, strlen(text)));
}

void json_put_sentence(json_t *json, const char *key, const char *sentence)
{
	json_object_set_new(json, key, json_sentence(sentence));
}
