#include "tools/packimg/common/progress.h"

#include "format/base/system/clock.h"
#include "tools/packimg/common/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

void progress_init(struct progress *progress, const char *verb, uint64_t total, bool quiet)
{
	double now = clock_s(CLOCK_MONOTONIC);

	*progress = (struct progress){
		.verb = verb,
		.total = total,
		.quiet = quiet,
		.terminal = isatty(STDERR_FILENO),
		.start_s = now,
		.last_s = now,
	};
}

static int terminal_width(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 20)
		return 80;
	return size.ws_col;
}

/* The width of the bar depends only on the terminal, so that the text next to it does not move. */
static void draw_bar(const struct progress *progress, double done, const char *text)
{
	int width = terminal_width() >= 110 ? 30 : 10;

	fputs("\r\033[K", stderr);
	if (progress->total) {
		int filled = (int)(done * width + 0.5);

		fputc('[', stderr);
		for (int i = 0; i < width; i++)
			fputc(i < filled ? '#' : '.', stderr);
		fputs("] ", stderr);
	}
	fprintf(stderr, "%.*s", terminal_width() - width - 4, text);
	fflush(stderr);
}

void progress_init_bytes(struct progress *progress, const char *verb, bool quiet)
{
	progress_init(progress, verb, 0, quiet);
	progress->in_bytes = true;
}

static const char *amount(const struct progress *progress, struct text_buffer *buffer,
			  uint64_t count)
{
	return progress->in_bytes ? text_bytes(buffer, count) : text_count(buffer, count);
}

/* Writes the line; returns the part that is done, from 0 to 1. */
static double write_line(const struct progress *progress, uint64_t images, uint64_t bytes,
			 double elapsed, char *text, size_t size)
{
	uint64_t count = progress->in_bytes ? bytes : images;
	double done = 0, rate = (double)count / elapsed;
	size_t n = (size_t)snprintf(text, size, "%s %s", progress->verb,
				    amount(progress, TEXT, count));

	if (progress->total) {
		done = (double)count / (double)progress->total;
		n += (size_t)snprintf(text + n, size - n, " of %s (%.0f %%)",
				      amount(progress, TEXT, progress->total), done * 100);
	}
	if (!progress->in_bytes)
		n += (size_t)snprintf(text + n, size - n, "  %.0f images/s", rate);
	if (bytes)
		n += (size_t)snprintf(text + n, size - n, "  %.1f MB/s",
				      (double)bytes / elapsed / 1e6);
	if (progress->total && count && count <= progress->total)
		snprintf(text + n, size - n, "  ETA %s",
			 text_duration(TEXT, (double)(progress->total - count) / rate));
	return done < 1 ? done : 1;
}

void progress_update(struct progress *progress, uint64_t images, uint64_t bytes)
{
	char text[256];

	if (progress->quiet)
		return;
	double now = clock_s(CLOCK_MONOTONIC);
	if (now - progress->last_s < (progress->terminal ? 0.1 : 10))
		return;
	progress->last_s = now;
	double done =
		write_line(progress, images, bytes, now - progress->start_s, text, sizeof(text));
	if (progress->terminal)
		draw_bar(progress, done, text);
	else
		fprintf(stderr, "%s\n", text);
	progress->shown = progress->terminal;
}

void progress_clear(struct progress *progress)
{
	if (progress->shown)
		fputs("\r\033[K", stderr);
	progress->shown = false;
}

double progress_elapsed_s(const struct progress *progress)
{
	return clock_s(CLOCK_MONOTONIC) - progress->start_s;
}
