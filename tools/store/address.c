#include "tools/store/address.h"
#include "format/base/text/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Schemes of stores that have an S3 or HTTPS endpoint, and how to reach them. */
static const struct {
	const char *scheme, *remedy;
} other_schemes[] = {
	{"gs", "write s3://BUCKET/KEY, and set AWS_ENDPOINT_URL_S3=https://storage.googleapis.com "
	       "and an HMAC key of Google Cloud Storage as AWS_ACCESS_KEY_ID and "
	       "AWS_SECRET_ACCESS_KEY"},
	{"az", "write the blob's https:// URL with a SAS token"},
	{"abfs", "write the blob's https:// URL with a SAS token"},
	{"abfss", "write the blob's https:// URL with a SAS token"},
	{"r2", "write s3://BUCKET/KEY, and set AWS_ENDPOINT_URL_S3 to the account's endpoint"},
	{"s3a", "write s3://BUCKET/KEY"},
	{"s3n", "write s3://BUCKET/KEY"},
	{"hf", "write https://huggingface.co/datasets/NAME/resolve/main/FILE"},
	{"file", "write the path alone"},
};

static size_t scheme_length(const char *text)
{
	size_t length = 0;

	while (isalnum((unsigned char)text[length]) ||
	       (length && strchr("+-.", text[length]) && text[length]))
		length++;
	return length && strncmp(text + length, "://", 3) == 0 ? length : 0;
}

static int fail_scheme(const char *text, size_t length, struct packimg_error *error)
{
	char scheme[16];

	snprintf(scheme, sizeof(scheme), "%.*s", (int)length, text);
	for (size_t i = 0; i < sizeof(other_schemes) / sizeof(other_schemes[0]); i++)
		if (strcasecmp(scheme, other_schemes[i].scheme) == 0)
			return packimg_fail(error, -EINVAL, "%s:// is not supported; %s", scheme,
					    other_schemes[i].remedy);
	return packimg_fail(error, -EINVAL,
			    "%s:// is not supported; addresses begin with s3://, https:// or "
			    "http://",
			    scheme);
}

/*
 * Percent-encodes a key as SigV4 wants it: everything but unreserved characters and '/'. The caller
 * frees it; NULL if out of memory.
 */
static char *encode_key(const char *key)
{
	static const char digits[] = "0123456789ABCDEF";
	char *encoded = malloc(3 * strlen(key) + 1), *to = encoded;

	if (!encoded)
		return NULL;
	for (; *key; key++) {
		unsigned char byte = (unsigned char)*key;

		if (isalnum(byte) || strchr("-._~/", byte)) {
			*to++ = (char)byte;
			continue;
		}
		*to++ = '%';
		*to++ = digits[byte >> 4];
		*to++ = digits[byte & 15];
	}
	*to++ = '\0';
	to = realloc(encoded, (size_t)(to - encoded));
	return to ? to : encoded;
}

static bool bucket_valid(const char *name, size_t length)
{
	if (length < 3 || length >= STORE_BUCKET_MAX || !isalnum((unsigned char)name[0]))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("-._", name[i]))
			return false;
	return true;
}

/* libcurl and servers resolve segments of dots, and then ask for another key. */
static bool has_dot_segment(const char *key)
{
	for (const char *at = key; at; at = strchr(at, '/')) {
		at += *at == '/';
		size_t length = strcspn(at, "/");

		if ((length == 1 && at[0] == '.') || (length == 2 && strncmp(at, "..", 2) == 0))
			return true;
	}
	return false;
}

/* Parsers leave path or shown NULL if memory is out. */
static int parse_s3(const char *text, struct store_address *address, struct packimg_error *error)
{
	const char *bucket = text + strlen("s3://");
	size_t length = strcspn(bucket, "/");
	const char *key = bucket + length + (bucket[length] == '/');

	if (!bucket_valid(bucket, length))
		return packimg_fail(error, -EINVAL,
				    "%s: \"%.*s\" is not the name of a bucket: 3 to 63 letters, "
				    "digits, '-', '.' and '_'",
				    text, (int)length, bucket);
	if (!*key)
		return packimg_fail(error, -EINVAL, "%s has no key: write s3://BUCKET/KEY", text);
	if (has_dot_segment(key))
		return packimg_fail(error, -EINVAL,
				    "%s: keys with \".\" or \"..\" between slashes "
				    "cannot be requested",
				    text);
	address->s3 = true;
	memcpy(address->bucket, bucket, length);
	address->path = encode_key(key);
	address->shown = strdup(text);
	return 0;
}

static int parse_http(const char *text, struct store_address *address, struct packimg_error *error)
{
	const char *host = strstr(text, "://") + 3;
	size_t host_length = strcspn(host, "/?#"), shown = strcspn(text, "?");

	if (asprintf(&address->shown, "%.*s%s", (int)shown, text, text[shown] ? "?..." : "") < 0) {
		address->shown = NULL;
		return 0;
	}
	if (host_length == 0)
		return packimg_fail(error, -EINVAL, "%s has no host", address->shown);
	if (memchr(host, '@', host_length))
		return packimg_fail(error, -EINVAL,
				    "an address with a password in it is refused, because every "
				    "user of the machine can read command lines");
	if (strchr(text, '#'))
		return packimg_fail(error, -EINVAL,
				    "%s: '#' begins a fragment, which servers do "
				    "not see: write %%23",
				    address->shown);
	address->tls = strncasecmp(text, "https", 5) == 0;
	address->path = strdup(text);
	return 0;
}

int store_address_parse(const char *text, struct store_address *ret_address,
			struct packimg_error *error)
{
	struct store_address address = {0};
	size_t scheme = scheme_length(text);
	int r;

	if (strlen(text) >= STORE_ADDRESS_MAX)
		return packimg_fail(error, -ENAMETOOLONG, "an address has at most %d bytes",
				    STORE_ADDRESS_MAX - 1);
	if (scheme == 2 && strncasecmp(text, "s3", 2) == 0) {
		for (const char *at = text; *at; at++)
			if (iscntrl((unsigned char)*at))
				return packimg_fail(error, -EINVAL,
						    "an address with control characters in it is "
						    "refused");
		r = parse_s3(text, &address, error);
	} else if ((scheme == 4 && strncasecmp(text, "http", 4) == 0) ||
		   (scheme == 5 && strncasecmp(text, "https", 5) == 0)) {
		for (const char *at = text; *at; at++)
			if (*at <= ' ' || *at == 0x7f)
				return packimg_fail(error, -EINVAL,
						    "blanks, control characters and characters "
						    "outside ASCII in an https:// address must be "
						    "written as %%20 and the like");
		r = parse_http(text, &address, error);
	} else {
		return fail_scheme(text, scheme, error);
	}
	if (!r && (!address.path || !address.shown))
		r = packimg_fail(error, -ENOMEM, "out of memory");
	if (r)
		store_address_deinit(&address);
	else
		*ret_address = address;
	return r;
}

void store_address_deinit(struct store_address *address)
{
	free(address->path);
	free(address->shown);
}
