#include "tools/packimg/common/brace_expand.h"

#include "tools/packimg/common/memory.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void string_list_deinit(struct string_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->strings[i]);
	free(list->strings);
	*list = (struct string_list){0};
}

int string_list_add(struct string_list *list, const char *word)
{
	if (array_reserve(&list->strings, list->count, &list->capacity, sizeof(*list->strings)))
		return -ENOMEM;
	list->strings[list->count] = strdup(word);
	if (!list->strings[list->count])
		return -ENOMEM;
	list->count++;
	return 0;
}

int string_list_add_format(struct string_list *list, const char *format, ...)
{
	va_list arguments;
	char *text;

	va_start(arguments, format);
	int r = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (r < 0)
		return -ENOMEM;
	r = string_list_add(list, text);
	free(text);
	return r;
}

/* A brace expression in a word: its bounds and whether it has top-level commas. */
struct brace {
	const char *open, *close;
	bool list;
};

/* Finds the first '{' whose matching '}' closes a list or a range. */
static bool brace_expand_find(const char *word, struct brace *ret_brace)
{
	for (const char *open = strchr(word, '{'); open; open = strchr(open + 1, '{')) {
		struct brace brace = {.open = open};
		int depth = 0;

		for (const char *p = open; *p && !brace.close; p++) {
			if (*p == '{')
				depth++;
			else if (*p == '}' && --depth == 0)
				brace.close = p;
			else if (*p == ',' && depth == 1)
				brace.list = true;
		}
		if (!brace.close)
			continue;
		if (!brace.list) {
			const char *p = open + 1;
			size_t low = strspn(p, "0123456789");

			if (!low || low > 18 || p[low] != '.' || p[low + 1] != '.')
				continue;
			size_t high = strspn(p + low + 2, "0123456789");
			if (!high || high > 18 || p + low + 2 + high != brace.close)
				continue;
		}
		*ret_brace = brace;
		return true;
	}
	return false;
}

static int brace_expand_join(const char *word, const struct brace *brace, const char *middle,
			     int middle_size, struct string_list *list, struct packimg_error *error)
{
	char *joined;

	if (asprintf(&joined, "%.*s%.*s%s", (int)(brace->open - word), word, middle_size, middle,
		     brace->close + 1) < 0)
		return -ENOMEM;
	int r = brace_expand(joined, list, error);
	free(joined);
	return r;
}

static int brace_expand_range(const char *word, const struct brace *brace, struct string_list *list,
			      struct packimg_error *error)
{
	const char *low_text = brace->open + 1, *high_text = strstr(low_text, "..") + 2;
	int low_size = (int)(high_text - 2 - low_text), high_size = (int)(brace->close - high_text);
	long long low = atoll(low_text), high = atoll(high_text), step = low <= high ? 1 : -1;
	int width = 0, r = 0;

	if ((low_size > 1 && *low_text == '0') || (high_size > 1 && *high_text == '0'))
		width = low_size > high_size ? low_size : high_size;
	for (long long i = low; !r; i += step) {
		char number[32];
		int n = snprintf(number, sizeof(number), "%0*lld", width, i);

		r = brace_expand_join(word, brace, number, n, list, error);
		if (i == high)
			break;
	}
	return r;
}

static int brace_expand_list(const char *word, const struct brace *brace, struct string_list *list,
			     struct packimg_error *error)
{
	const char *start = brace->open + 1;
	int depth = 1, r = 0;

	for (const char *p = start; !r && p <= brace->close; p++) {
		if (*p == '{')
			depth++;
		if ((*p == ',' && depth == 1) || p == brace->close) {
			r = brace_expand_join(word, brace, start, (int)(p - start), list, error);
			start = p + 1;
		}
		if (*p == '}')
			depth--;
	}
	return r;
}

int brace_expand(const char *word, struct string_list *list, struct packimg_error *error)
{
	struct brace brace;

	if (list->count >= BRACE_EXPAND_MAX)
		return packimg_fail(error, -E2BIG, "%s: braces expand to more than %d names", word,
				    BRACE_EXPAND_MAX);
	if (!brace_expand_find(word, &brace))
		return string_list_add(list, word);
	return brace.list ? brace_expand_list(word, &brace, list, error)
			  : brace_expand_range(word, &brace, list, error);
}
