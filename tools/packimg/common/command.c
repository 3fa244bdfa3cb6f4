#include "tools/packimg/common/command.h"

#include "format/base/set.h"
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
	/* A second signal ends the process at once: clean-up must not be able to trap a person. */
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

void command_die_of_interrupt(void)
{
	if (!interrupted)
		return;
	fprintf(stderr, "packimg: interrupted, nothing was written\n");
	signal(interrupted, SIG_DFL);
	raise(interrupted);
}

unsigned command_cpu_count(void)
{
	cpu_set_t set;

	/* Machines with more CPUs than the set holds answer EINVAL. */
	if (sched_getaffinity(0, sizeof(set), &set)) {
		long online = sysconf(_SC_NPROCESSORS_ONLN);

		return online > 0 ? (unsigned)online : 1;
	}
	return (unsigned)CPU_COUNT(&set);
}

int command_check_output(const char *path, bool force, struct packimg_error *error)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	int folder_size = (int)(name - path), size = (int)strlen(name) - 5;
	struct dirent *entry;
	struct set_name shard;
	char folder[SET_PATH_MAX], notice[SET_PATH_MAX];
	int r = 0;

	if (size < 1 || strcmp(name + size, ".pimg") != 0)
		return packimg_fail(error, -EINVAL, "%s: the name of a dataset ends in .pimg",
				    path);
	snprintf(folder, sizeof(folder), "%.*s", folder_size, path);
	snprintf(notice, sizeof(notice), ".%s.replaced", name);
	DIR *directory = opendir(*folder ? folder : ".");
	if (!directory)
		return packimg_fail(error, -errno, "%s: the folder to write to: %s",
				    *folder ? folder : ".", strerror(errno));
	while (!force && !r && (entry = readdir(directory))) {
		bool is_shard = set_name_parse(entry->d_name, &shard) == 0 &&
				strlen(shard.base) == (size_t)size &&
				strncmp(shard.base, name, (size_t)size) == 0;

		if (strcmp(entry->d_name, name) == 0 || strcmp(entry->d_name, notice) == 0 ||
		    is_shard)
			r = packimg_fail(error, -EEXIST, "%s%s exists; --force replaces it", folder,
					 entry->d_name);
	}
	closedir(directory);
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

json_t *command_json_text(const char *bytes, size_t size)
{
	json_t *json = json_stringn(bytes, size);

	if (json)
		return json;
	/* Not UTF-8 somewhere. */
	char *text = printable_copy(bytes, size);
	json = text ? json_string(text) : NULL;
	free(text);
	return json;
}

void json_put_count(json_t *json, const char *key, uint64_t count)
{
	json_object_set_new(json, key, json_integer((json_int_t)count));
}

void json_put_text(json_t *json, const char *key, const char *text)
{
	json_object_set_new(json, key, command_json_text(text, strlen(text)));
}
