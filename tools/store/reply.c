#include "tools/store/reply.h"

#include <expat.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reply_deinit(struct reply *reply)
{
	free(reply->body);
	*reply = (struct reply){.total = STORE_SIZE_UNKNOWN};
}

/* Copies a header's value without blanks around it; "" if it does not fit. */
static void copy_value(const char *value, size_t size, char *to, size_t capacity)
{
	while (size && strchr(" \t\r\n", value[size - 1]))
		size--;
	while (size && (*value == ' ' || *value == '\t'))
		value++, size--;
	to[0] = '\0';
	if (size < capacity) {
		memcpy(to, value, size);
		to[size] = '\0';
	}
}

/* Content-Range: bytes FIRST-LAST/TOTAL */
static void take_range(struct reply *reply, const char *text)
{
	uint64_t first, last, total = STORE_SIZE_UNKNOWN;
	int end = 0;

	if (sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%n", &first, &last, &end) != 2 || !end)
		return;
	if (strcmp(text + end, "*") != 0) {
		char rest;

		if (sscanf(text + end, "%" SCNu64 "%c", &total, &rest) != 1 || total <= last)
			return;
	}
	if (last < first || last >= (uint64_t)1 << 60)
		return;
	reply->has_range = true;
	reply->first = first;
	reply->last = last;
	reply->total = total;
}

bool reply_take_header(struct reply *reply, const char *line, size_t size)
{
	const char *colon = memchr(line, ':', size);
	char value[STORE_VERSION_MAX];

	reply->header_bytes += size;
	if (reply->header_bytes > REPLY_HEADERS_MAX)
		return false;
	if (size >= 5 && strncmp(line, "HTTP/", 5) == 0) {
		/* of a redirect's target, after the redirect's own; or after 100 Continue */
		size_t bytes = reply->header_bytes;

		reply_deinit(reply);
		reply->header_bytes = bytes;
		copy_value(line, size, value, sizeof(value));
		sscanf(value, "HTTP/%*s %3ld", &reply->status);
		return true;
	}
	if (!colon)
		return true;
	size_t name = (size_t)(colon - line);
#define HEADER_IS(text) (name == strlen(text) && strncasecmp(line, text, name) == 0)
	copy_value(colon + 1, size - name - 1, value, sizeof(value));
	if (HEADER_IS("content-range"))
		take_range(reply, value);
	else if (HEADER_IS("content-encoding"))
		reply->encoded = value[0] && strcasecmp(value, "identity") != 0 &&
				 strcasecmp(value, "aws-chunked") != 0;
	else if (HEADER_IS("etag"))
		strcpy(reply->etag, value);
	else if (HEADER_IS("last-modified"))
		strcpy(reply->modified, value);
	else if (HEADER_IS("x-amz-bucket-region"))
		copy_value(value, strlen(value), reply->region, sizeof(reply->region));
#undef HEADER_IS
	return true;
}

bool reply_take_body(struct reply *reply, const char *bytes, size_t size)
{
	size_t room = REPLY_BODY_MAX - reply->body_size, kept = size < room ? size : room;
	char *body = realloc(reply->body, reply->body_size + kept + 1);

	if (!body)
		return false;
	reply->body = body;
	memcpy(body + reply->body_size, bytes, kept);
	reply->body_size += kept;
	body[reply->body_size] = '\0';
	reply->dropped += size - kept;
	return reply->dropped <= REPLY_DROPPED_MAX;
}

/* Parsing: elements below the root element. */
struct parse {
	XML_Parser parser;
	struct reply_fields *fields;
	unsigned depth;
	char *to; /* the element that is being read; NULL if it does not matter */
	size_t room;
};

static void on_start(void *context, const char *name, const char **attributes)
{
	struct parse *parse = context;
	const struct {
		const char *name;
		char *to;
		size_t size;
	} elements[] = {
		{"Code", parse->fields->code, sizeof(parse->fields->code)},
		{"Message", parse->fields->message, sizeof(parse->fields->message)},
		{"Region", parse->fields->region, sizeof(parse->fields->region)},
		{"UploadId", parse->fields->upload_id, sizeof(parse->fields->upload_id)},
	};

	(void)attributes;
	parse->to = NULL;
	if (++parse->depth != 2)
		return;
	for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++) {
		if (strcmp(name, elements[i].name) != 0)
			continue;
		parse->to = elements[i].to;
		parse->room = elements[i].size - 1;
		parse->to[0] = '\0';
	}
}

static void on_end(void *context, const char *name)
{
	struct parse *parse = context;

	(void)name;
	parse->depth--;
	parse->to = NULL;
}

static void on_text(void *context, const char *text, int length)
{
	struct parse *parse = context;
	size_t size = (size_t)length;

	if (!parse->to)
		return;
	if (size > parse->room)
		size = parse->room;
	strncat(parse->to, text, size);
	parse->room -= size;
}

/* No store sends a document type, and entities could be defined in it. */
static void on_doctype(void *context, const char *name, const char *system, const char *public,
		       int internal)
{
	struct parse *parse = context;

	(void)name, (void)system, (void)public, (void)internal;
	XML_StopParser(parse->parser, XML_FALSE);
}

void reply_parse(const char *xml, size_t size, struct reply_fields *ret_fields)
{
	struct parse parse = {.parser = XML_ParserCreate(NULL), .fields = ret_fields};

	*ret_fields = (struct reply_fields){""};
	if (!parse.parser)
		return;
	XML_SetUserData(parse.parser, &parse);
	XML_SetElementHandler(parse.parser, on_start, on_end);
	XML_SetCharacterDataHandler(parse.parser, on_text);
	XML_SetStartDoctypeDeclHandler(parse.parser, on_doctype);
	if (XML_Parse(parse.parser, xml, (int)size, 1) != XML_STATUS_OK)
		*ret_fields = (struct reply_fields){""};
	XML_ParserFree(parse.parser);
}

bool reply_retryable(const struct reply *reply, const struct reply_fields *fields)
{
	static const long statuses[] = {408, 425, 429, 500, 502, 503, 504, 509};

	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (reply->status == statuses[i])
			return true;
	/* S3's own time-out; and an error in the body of a reply of success */
	return strcmp(fields->code, "RequestTimeout") == 0 ||
	       strcmp(fields->code, "InternalError") == 0 || strcmp(fields->code, "SlowDown") == 0;
}

bool reply_expired(const struct reply *reply, const struct reply_fields *fields)
{
	return (reply->status == 400 || reply->status == 401 || reply->status == 403) &&
	       (strcmp(fields->code, "ExpiredToken") == 0 ||
		strcmp(fields->code, "TokenRefreshRequired") == 0 ||
		strcmp(fields->code, "InvalidToken") == 0);
}

/* What the reply's body says about the reason, in parentheses, or "". */
static void write_reason(const struct reply_fields *fields, char *to, size_t size)
{
	to[0] = '\0';
	if (fields->code[0] && fields->message[0])
		snprintf(to, size, " (%.64s: %.128s)", fields->code, fields->message);
	else if (fields->code[0])
		snprintf(to, size, " (%.64s)", fields->code);
}

static int fail_access(const struct reply_fields *fields, const struct store_object *object,
		       const char *reason, bool is_signed, const char *origin,
		       struct packimg_error *error)
{
	const char *name = object->address.shown;

	if (!object->address.s3)
		return packimg_fail(error, -EACCES, "%.160s: the server refuses access%s", name,
				    reason);
	if (!is_signed)
		return packimg_fail(error, -EACCES,
				    "%.160s: access denied to requests without credentials; "
				    "looked for some in %s",
				    name, origin);
	if (strcmp(fields->code, "RequestTimeTooSkewed") == 0)
		return packimg_fail(error, -EACCES,
				    "%.160s: this machine's clock is wrong by more than the "
				    "store allows; set it%s",
				    name, reason);
	return packimg_fail(error, -EACCES, "%.160s: access denied%s with the credentials of %s",
			    name, reason, origin);
}

int reply_fail(const struct reply *reply, const struct reply_fields *fields,
	       const struct store_object *object, bool is_signed, const char *origin,
	       struct packimg_error *error)
{
	const char *name = object->address.shown;
	char reason[256];

	write_reason(fields, reason, sizeof(reason));
	switch (reply->status) {
	case 401:
	case 403:
		return fail_access(fields, object, reason, is_signed, origin, error);
	case 404:
		return packimg_fail(error, -ENOENT, "%.200s: no such object%s", name, reason);
	case 412:
		return packimg_fail(error, -ESTALE, "%.200s was replaced while it was read", name);
	case 416:
		return packimg_fail(error, object->size == STORE_SIZE_UNKNOWN ? -EBADMSG : -ESTALE,
				    object->size == STORE_SIZE_UNKNOWN
					    ? "%.200s is empty"
					    : "%.200s has become shorter while it was read",
				    name);
	case 301:
	case 302:
	case 307:
	case 308:
		return packimg_fail(error, -EIO,
				    "%.200s: the store redirects to another endpoint%s; set "
				    "AWS_REGION or AWS_ENDPOINT_URL_S3",
				    name, reason);
	default:
		return packimg_fail(error, -EIO, "%.200s: the server answers with status %ld%s",
				    name, reply->status, reason);
	}
}
