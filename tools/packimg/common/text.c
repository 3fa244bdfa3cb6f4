#include "tools/packimg/common/text.h"

#include "format/base/text/number.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int text_error_prefix(struct packimg_error *error, int code, const char *format, ...)
{
	va_list arguments;

	if (!error)
		return code;
	struct packimg_error before = *error;
	va_start(arguments, format);
	int n = vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	if (n >= 0 && (size_t)n < sizeof(error->text))
		snprintf(error->text + n, sizeof(error->text) - (size_t)n, ": %.*s",
			 (int)(sizeof(error->text) - (size_t)n), before.text);
	return code;
}

bool text_ends_with(const char *name, const char *end)
{
	const size_t size = strlen(name), end_size = strlen(end);

	return size > end_size && strcasecmp(name + size - end_size, end) == 0;
}

const char *text_after_sample(const char *sentence)
{
	static const char word[] = "sample ";
	const char *number = sentence + strlen(word);

	if (strncmp(sentence, word, strlen(word)) != 0)
		return sentence;
	size_t digits = strspn(number, "0123456789");

	return digits && strncmp(number + digits, ": ", 2) == 0 ? number + digits + 2 : sentence;
}

const char *text_bytes(struct text_buffer *buffer, uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes;
	unsigned unit = 0;

	while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	snprintf(buffer->text, sizeof(buffer->text), unit ? "%.1f %s" : "%.0f %s", value,
		 units[unit]);
	return buffer->text;
}

const char *text_count(struct text_buffer *buffer, uint64_t count)
{
	return number_grouped(count, buffer->text);
}

const char *text_plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

const char *text_duration(struct text_buffer *buffer, double seconds)
{
	uint64_t whole = seconds > 0 ? (uint64_t)(seconds + 0.5) : 0;

	if (seconds < 60)
		snprintf(buffer->text, sizeof(buffer->text), "%.*f s", seconds < 10 ? 2 : 0,
			 seconds);
	else if (whole < 3600)
		snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 ":%02" PRIu64, whole / 60,
			 whole % 60);
	else
		snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64,
			 whole / 3600, whole / 60 % 60, whole % 60);
	return buffer->text;
}

const char *codec_name(enum packimg_codec codec)
{
	static const char *const names[] = {
		[PACKIMG_CODEC_JPEG] = "jpeg",
		[PACKIMG_CODEC_RAW] = "raw",
		[PACKIMG_CODEC_RAW_ZSTD] = "raw+zstd",
		[PACKIMG_CODEC_RASTER] = "raster",
	};

	return codec >= PACKIMG_CODEC_JPEG && codec <= PACKIMG_CODEC_RASTER ? names[codec]
									    : "unknown";
}
