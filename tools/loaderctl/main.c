/* loaderctl: shows the status of a running loaderd and stops it. */
#include "format/base/text/nearest.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/loaderctl/ask.h"
#include "tools/loaderctl/remote.h"
#include "tools/loaderctl/render.h"

#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STOP_TIMEOUT_MS = 60000 };

__attribute__((visibility("default"))) const char *argp_program_version =
	"loaderctl " LOADERD_VERSION;

struct command_line {
	const char *socket;
	bool json, all;
	double watch_s; /* 0 prints once */
	const char *command, *path;
};

#define AT(member) offsetof(struct command_line, member)

static const struct options_row options[] = {
	{"socket", 's', "SOCKET",
	 "Socket of the daemon, @NAME for an abstract one (default: $LOADERD_SOCKET, then this "
	 "user's own daemon, then the system's)",
	 OPTIONS_TEXT, AT(socket)},
	{"json", 'j', NULL, "Print JSON, one line per answer", OPTIONS_FLAG, AT(json)},
	{"all", 'a', NULL, "status: show all users' feeds; for root and the daemon's own user",
	 OPTIONS_FLAG, AT(all)},
	{"watch", 'w', "SECONDS", "status: repeat every SECONDS (default 1), with rates",
	 .flags = OPTION_ARG_OPTIONAL},
	{0},
};

static error_t loaderctl_parse_option(int key, char *argument, struct argp_state *state)
{
	struct command_line *line = state->input;
	char *end;
	switch (key) {
	case 'w':
		line->watch_s = !argument ? 1 : strtod(argument, &end);
		if (argument &&
		    (*end != '\0' || !(line->watch_s >= 0.05 && line->watch_s <= 86400)))
			argp_error(state,
				   "--watch=%s: must be a number of seconds from 0.05 to 86400",
				   argument);
		return 0;
	case ARGP_KEY_ARG:
		if (!line->command)
			line->command = argument;
		else if (!line->path && (strcmp(line->command, "dataset") == 0 ||
					 strcmp(line->command, "clear") == 0))
			line->path = argument;
		else
			argp_error(state, "%s: unexpected argument", argument);
		return 0;
	case ARGP_KEY_END:
		if (!line->command)
			line->command = "status";
		if (strcmp(line->command, "dataset") == 0 && !line->path)
			argp_error(state, "dataset: the path of a dataset is required");
		if (line->watch_s > 0 && strcmp(line->command, "status") != 0)
			argp_error(state, "--watch requires status");
		if (line->all && strcmp(line->command, "status") != 0)
			argp_error(state, "--all requires status");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void pause_s(double seconds)
{
	struct timespec t = {.tv_sec = (time_t)seconds};
	t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
	nanosleep(&t, NULL);
}

static int loaderctl_status(const struct command_line *line, char *error)
{
	Loaderd__Reply *before = NULL;
	bool screen = line->watch_s > 0 && !line->json && isatty(STDOUT_FILENO);
	int r;
	do {
		Loaderd__Reply *reply;
		r = line->all ? ask_status_of_all(line->socket, &reply, error)
			      : ask_status(line->socket, &reply, error);
		if (r < 0)
			break;
		if (screen)
			fputs("\033[H\033[J",
			      stdout); /* cursor to the top left; clear the screen */
		if (line->json)
			r = render_status_json(reply->status);
		else
			render_status(reply->status, !before ? NULL : before->status, line->all);
		fflush(stdout);
		if (before)
			loaderd__reply__free_unpacked(before, NULL);
		before = reply;
		if (line->watch_s > 0) {
			pause_s(line->watch_s);
			if (!screen && !line->json)
				putchar('\n');
		}
	} while (r == 0 && line->watch_s > 0 && !ferror(stdout));
	if (before)
		loaderd__reply__free_unpacked(before, NULL);
	return r;
}

static int loaderctl_bad(const struct command_line *line, char *error)
{
	Loaderd__Reply *reply;
	int r = ask_status(line->socket, &reply, error);
	if (r < 0)
		return r;
	if (line->json)
		r = render_bad_json(reply->status);
	else
		render_bad_samples(reply->status);
	loaderd__reply__free_unpacked(reply, NULL);
	return r;
}

static int loaderctl_dataset(const struct command_line *line, char *error)
{
	Loaderd__Reply *reply;
	int r = ask_dataset(line->socket, line->path, &reply, error);
	if (r < 0)
		return r;
	if (line->json)
		r = render_dataset_json(reply->dataset);
	else
		render_dataset(reply->dataset);
	loaderd__reply__free_unpacked(reply, NULL);
	return r;
}

static int loaderctl_stop(const struct command_line *line, char *error)
{
	return ask_shutdown(line->socket, STOP_TIMEOUT_MS, error);
}

static int loaderctl_remote(const struct command_line *line, char *error)
{
	return remote_status(line->json, error);
}

static int loaderctl_clear(const struct command_line *line, char *error)
{
	return remote_clear(line->path, line->json, error);
}

static const struct {
	const char *name;
	int (*run)(const struct command_line *line, char *error);
} commands[] = {
	{"status", loaderctl_status}, {"bad", loaderctl_bad},       {"dataset", loaderctl_dataset},
	{"stop", loaderctl_stop},     {"remote", loaderctl_remote}, {"clear", loaderctl_clear},
};

static int fail_unknown(const char *name)
{
	struct nearest nearest = nearest_to(name);
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		nearest_offer(&nearest, commands[i].name);
	if (nearest.meant)
		printable_line(stderr, "loaderctl: unknown command %s; did you mean %s?", name,
			       nearest.meant);
	else
		printable_line(stderr,
			       "loaderctl: unknown command %s; use status, bad, dataset, remote, "
			       "clear or stop",
			       name);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = loaderctl_parse_option,
		.args_doc = "[status | bad | dataset PATH | stop | remote | clear [URL]]",
		.doc = "Show the status of a running loaderd, or stop it; show or clear the cache "
		       "of datasets in stores.\v"
		       "  status        show the daemon and its feeds; the default\n"
		       "  bad           list samples that could not be decoded\n"
		       "  dataset PATH  show the properties of a dataset\n"
		       "  stop          let the daemon finish its batches, and wait until it has "
		       "ended\n"
		       "  remote        show what loaderd-fetch does, and its cache\n"
		       "  clear [URL]   remove a dataset, or all, from this cache\n\n"
		       "Exit status: 0, 1 (the daemon cannot be reached or refuses), 2 (usage).\n"
		       "See loaderctl(1).",
	};
	struct command_line line = {0};
	char error[FEED_ERROR_MAX] = "";
	argp_err_exit_status = 2;
	setlocale(LC_ALL, "");
	options_read(options, &argp, argc, argv, &line);
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (strcmp(line.command, commands[i].name) != 0)
			continue;
		int r = commands[i].run(&line, error);
		if (r < 0)
			printable_line(stderr, "loaderctl: %s",
				       error[0] != '\0' ? error : strerror(-r));
		else if (fflush(stdout) != 0 || ferror(stdout))
			r = -EIO;
		return r < 0 ? 1 : 0;
	}
	return fail_unknown(line.command);
}
