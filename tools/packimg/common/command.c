#include "tools/packimg/common/command.h"

#include "format/base/printable.h"
#include "tools/packimg/common/text.h"

#include <ctype.h>
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

/* Whether name is STEM-ddddd-of-ddddd.pimg. */
static bool is_shard_of(const char *name, const char *stem, size_t stem_size)
{
	static const char pattern[] = "-ddddd-of-ddddd.pimg";

	if (strlen(name) != stem_size + sizeof(pattern) - 1 || memcmp(name, stem, stem_size) != 0)
		return false;
	name += stem_size;
	for (size_t i = 0; i < sizeof(pattern) - 1; i++) {
		if (pattern[i] == 'd' ? !isdigit((unsigned char)name[i]) : name[i] != pattern[i])
			return false;
	}
	return true;
}

/* Whether name is that of a notice that stands for STEM.pimg (SPEC.md, "Replacing a dataset"). */
static bool is_notice_of(const char *name, const char *base)
{
	size_t size = strlen(base);

	return name[0] == '.' && strncmp(name + 1, base, size) == 0 &&
	       strcmp(name + 1 + size, ".replaced") == 0;
}

int command_check_output(const char *path, bool force, struct packimg_error *error)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	size_t size = strlen(base);
	struct dirent *entry;
	int r = 0;

	if (size < 6 || strcmp(base + size - 5, ".pimg") != 0)
		return packimg_fail(error, -EINVAL, "%s: the name of a dataset ends in .pimg",
				    path);
	char *folder = strndup(path, (size_t)(base - path));
	if (!folder)
		return packimg_fail(error, -ENOMEM, "out of memory");
	DIR *directory = opendir(*folder ? folder : ".");
	if (!directory) {
		r = packimg_fail(error, -errno, "%s: the folder to write to: %s",
				 *folder ? folder : ".", strerror(errno));
		free(folder);
		return r;
	}
	while (!force && !r && (entry = readdir(directory))) {
		if (strcmp(entry->d_name, base) == 0 ||
		    is_shard_of(entry->d_name, base, size - 5) || is_notice_of(entry->d_name, base))
			r = packimg_fail(error, -EEXIST, "%s%s exists; --force replaces it", folder,
					 entry->d_name);
	}
	closedir(directory);
	free(folder);
	return r;
}

int command_print_json(json_t *json)
{
	/* what is not ASCII is escaped, for the sake of terminals */
	int r = json ? json_dumpf(json, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII) : -1;

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
