/*
 * A store's reply to one attempt: its status, the headers that matter, and the body of anything but
 * a range. Bounded, whatever a server sends. One thread.
 */
#pragma once

#include "tools/store/store.h"

enum {
	REPLY_BODY_MAX = 1 << 16,    /* bytes kept */
	REPLY_HEADERS_MAX = 1 << 18, /* bytes of all headers */
	REPLY_DROPPED_MAX = 1 << 20, /* bytes of an error's body that are read and dropped */
	REPLY_FIELD_MAX = 512,       /* bytes of an element of an XML body, terminator included */
};

struct reply {
	long status;                 /* 0 before there is one */
	bool has_range;              /* Content-Range was there and is understood */
	uint64_t first, last, total; /* of Content-Range; total: STORE_SIZE_UNKNOWN for '*' */
	bool encoded;                /* Content-Encoding */
	char etag[STORE_VERSION_MAX], modified[STORE_VERSION_MAX];
	char region[64]; /* x-amz-bucket-region */
	size_t header_bytes, dropped;
	char *body; /* terminated; NULL if empty */
	size_t body_size;
};

/* The elements of an S3 error, or of the reply to a request, "" where there is none. */
struct reply_fields {
	char code[REPLY_FIELD_MAX], message[REPLY_FIELD_MAX], region[64];
	char upload_id[REPLY_FIELD_MAX];
};

void reply_deinit(struct reply *reply);
/* Takes a line of the headers. False if they are too many. */
bool reply_take_header(struct reply *reply, const char *line, size_t size);
/* Keeps a part of the body. False if it is too long, or memory is out. */
bool reply_take_body(struct reply *reply, const char *bytes, size_t size);
/* Parses XML; fields are "" if it is none. */
void reply_parse(const char *xml, size_t size, struct reply_fields *ret_fields);
/* A status that is worth another attempt. */
bool reply_retryable(const struct reply *reply, const struct reply_fields *fields);
/* The credentials have expired. */
bool reply_expired(const struct reply *reply, const struct reply_fields *fields);
/* Returns the errno of a status and says it, with a remedy. origin: of the credentials. */
int reply_fail(const struct reply *reply, const struct reply_fields *fields,
	       const struct store_object *object, bool is_signed, const char *origin,
	       struct packimg_error *error);
