/*
 * A user's program that links both libraries: it asks each for something that does not exist and
 * prints the error.
 */
#include <errno.h>
#include <feed.h>
#include <packimg.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	struct feed_options options;
	struct feed *feed;
	struct packimg *set;
	struct packimg_error packimg_error;
	char error[FEED_ERROR_MAX];

	feed_options_init(&options);
	options.dataset = "none.pimg";
	options.socket = "/nonexistent/loaderd.sock";
	if (feed_open(&options, &feed, error) >= 0 || !strstr(error, options.socket))
		return 1;
	if (packimg_open("none.pimg", &set, &packimg_error) != -ENOENT)
		return 2;
	puts(error);
	return 0;
}
