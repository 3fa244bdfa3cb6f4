/*
 * Addresses of objects in stores: s3://BUCKET/KEY, https://HOST/PATH and http://HOST/PATH. Each
 * takes as much memory as it has text, since a set has up to 99,999 of them. Any thread.
 */
#pragma once

#include "format/error.h"

#include <stdbool.h>

enum {
	STORE_ADDRESS_MAX = 4096, /* bytes of an address, terminator included */
	STORE_BUCKET_MAX = 64,    /* bytes of a bucket's name, terminator included */
};

struct store_address {
	bool s3;                       /* requests are made to the S3 API, and signed */
	bool tls;                      /* https:// */
	char bucket[STORE_BUCKET_MAX]; /* of s3:// */
	char *path;  /* of s3://: the key, percent-encoded; else the whole URL; owned */
	char *shown; /* for messages: without a query, which may contain a signature; owned */
};

/*
 * Parses an address. -EINVAL: unknown scheme, no bucket or key, credentials in the address, a
 * fragment, blanks or control characters; -ENAMETOOLONG; -ENOMEM. The caller frees what it is made
 * of with store_address_deinit().
 */
int store_address_parse(const char *text, struct store_address *ret_address,
			struct packimg_error *error);
/* Accepts a zeroed address. */
void store_address_deinit(struct store_address *address);
