/*
 * Arbitrary bytes as a store's reply: lines of headers to the first empty one, then the body, of
 * which the parts come as they would from a socket. What was understood must be within its limits.
 */
#include "tests/fuzz/fuzz.h"
#include "tools/store/reply.h"

#include <stdlib.h>
#include <string.h>

/* Returns the bytes of the headers. */
static size_t take_headers(struct reply *reply, const char *text, size_t size)
{
	size_t at = 0;

	while (at < size) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t length = end ? (size_t)(end - text) + 1 - at : size - at;
		/* a copy of its own, so that a sanitizer sees what is read beyond the line */
		char *line = malloc(length);

		if (!line)
			abort();
		memcpy(line, text + at, length);
		bool more = reply_take_header(reply, line, length) && length > 1;
		free(line);
		at += length;
		if (!more)
			break;
	}
	return at;
}

static void take_body(struct reply *reply, const char *text, size_t size)
{
	for (size_t at = 0, part; at < size; at += part) {
		part = 1 + (uint8_t)text[at];
		part = part < size - at ? part : size - at;
		if (!reply_take_body(reply, text + at, part))
			break;
	}
}

static void check(const struct reply *reply, const struct reply_fields *fields)
{
	if (reply->has_range && (reply->first > reply->last || reply->total <= reply->last))
		abort();
	if (reply->body_size > REPLY_BODY_MAX || (reply->body && reply->body[reply->body_size]))
		abort();
	if (!memchr(reply->etag, 0, sizeof(reply->etag)) ||
	    !memchr(reply->modified, 0, sizeof(reply->modified)) ||
	    !memchr(reply->region, 0, sizeof(reply->region)) ||
	    !memchr(fields->code, 0, sizeof(fields->code)) ||
	    !memchr(fields->message, 0, sizeof(fields->message)) ||
	    !memchr(fields->region, 0, sizeof(fields->region)) ||
	    !memchr(fields->upload_id, 0, sizeof(fields->upload_id)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct store_object object = {.size = STORE_SIZE_UNKNOWN,
				      .address = {.s3 = true, .shown = (char[]){"s3://b/k"}}};
	struct packimg_error error;
	struct reply_fields fields;
	struct reply reply = {0};
	size_t headers = take_headers(&reply, text, size);

	take_body(&reply, text + headers, size - headers);
	reply_parse(reply.body ? reply.body : "", reply.body_size, &fields);
	check(&reply, &fields);
	reply_retryable(&reply, &fields);
	reply_expired(&reply, &fields);
	if (reply_fail(&reply, &fields, &object, true, "the environment", &error) >= 0 ||
	    !memchr(error.text, 0, sizeof(error.text)))
		abort();
	reply_deinit(&reply);
	return 0;
}
