/*
 * Addresses of objects in stores: s3://BUCKET/KEY, https://HOST/PATH and http://HOST/PATH.
 * Stateless, any thread.
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
	char path[3 *
		  STORE_ADDRESS_MAX]; /* of s3://: the key, percent-encoded; else the whole URL */
	/* for messages: without a query, which may contain a signature */
	char shown[STORE_ADDRESS_MAX];
};

/*
 * Parses an address. -EINVAL: unknown scheme, no bucket or key, credentials in the address, a
 * fragment, blanks or control characters; -ENAMETOOLONG.
 */
int store_address_parse(const char *text, struct store_address *ret_address,
			struct packimg_error *error);
