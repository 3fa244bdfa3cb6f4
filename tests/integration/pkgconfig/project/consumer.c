/*
 * A user's program that links both libraries. It asks each for something that does not exist and
 * prints the error. It uses a schema with the installed headers only.
 */
#include <errno.h>
#include <feed.h>
#include <packimg.h>
#include <packimg/schema.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	struct feed_options options;
	struct feed *feed;
	struct packimg *set;
	struct packimg_error packimg_error;
	static const char text[] = "image: image";
	static struct schema schema;
	char error[FEED_ERROR_MAX];

	feed_options_init(&options);
	options.dataset = "none.pimg";
	options.socket = "/nonexistent/loaderd.sock";
	if (feed_open(&options, &feed, error) >= 0 || !strstr(error, options.socket))
		return 1;
	if (packimg_open("none.pimg", &set, &packimg_error) != -ENOENT)
		return 2;
	if (schema_parse(text, strlen(text), &schema, NULL) < 0 ||
	    schema_find(&schema, "image") != 0)
		return 3;
	puts(error);
	return 0;
}
