#include "trainer/log/progress.h"

#include "format/base/system/clock.h"
#include "format/base/text/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const double BAR_SECONDS = 0.1, PLAIN_SECONDS = 10;

void progress_init(struct progress *progress, enum recipe_progress mode)
{
	const char *terminal = getenv("TERM");
	bool tty = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
	*progress = (struct progress){
		.on = mode != RECIPE_PROGRESS_OFF,
		.bar = mode == RECIPE_PROGRESS_BAR || (mode == RECIPE_PROGRESS_AUTO && tty),
		.plain_at = clock_s(CLOCK_MONOTONIC) + PLAIN_SECONDS,
	};
}

bool progress_due(const struct progress *progress)
{
	return progress->on &&
	       clock_s(CLOCK_MONOTONIC) >= (progress->bar ? progress->draw_at : progress->plain_at);
}

void progress_step(struct progress *progress, uint64_t step, uint64_t steps, const char *text)
{
	char track[25];
	double now = clock_s(CLOCK_MONOTONIC);
	if (!progress->bar) {
		fprintf(stderr, "%s\n", text);
		progress->plain_at = now + PLAIN_SECONDS;
		return;
	}
	struct winsize size;
	int columns = !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : 100;
	size_t filled = steps ? (size_t)(step * (sizeof(track) - 1) / steps) : 0;
	memset(track, '.', sizeof(track) - 1);
	memset(track, '=', filled < sizeof(track) - 1 ? filled : sizeof(track) - 1);
	track[sizeof(track) - 1] = '\0';
	char line[320];
	snprintf(line, sizeof(line), "[%s] %s", track, text);
	fprintf(stderr, "\r%.*s\033[K", columns - 1, line);
	progress->drawn = true;
	progress->draw_at = now + BAR_SECONDS;
}

void progress_line(struct progress *progress, const char *format, ...)
{
	if (!progress->on)
		return;
	progress_end(progress);
	va_list arguments;
	char *line;
	va_start(arguments, format);
	if (vasprintf(&line, format, arguments) >= 0) {
		printable_line(stderr, "%s", line);
		free(line);
	}
	va_end(arguments);
	progress->plain_at = clock_s(CLOCK_MONOTONIC) + PLAIN_SECONDS;
}

void progress_end(struct progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}
