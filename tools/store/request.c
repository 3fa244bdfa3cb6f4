/* An attempt's request: address, signature, headers, limits. */
#include "tools/store/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
	CONNECT_TIMEOUT_MS = 10000,
	FAMILY_FIRST_MS = 200, /* before an address of the other family is tried, too */
	FAMILY_MIN_MS = 10,    /* RFC 8305, section 5 */
	STALL_TIMEOUT_S = 30,  /* without a byte */
	REDIRECTS_MAX = 5,
	RECEIVE_BUFFER = 1 << 17,
	URL_MAX = 2 * STORE_SETTING_MAX + 3 * STORE_ADDRESS_MAX,
};

/* SHA-256 of nothing. Bodies are not hashed, because TLS protects them. */
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static const char *region_of(const struct store *store, const struct store_object *object)
{
	return object->region[0] ? object->region : store->settings.region;
}

/*
 * Buckets with a dot in their name do not match AWS's certificates as a part of the host's name.
 */
static void write_s3_url(const struct transfer *transfer, char url[URL_MAX])
{
	const struct store_settings *settings = &transfer->store->settings;
	const struct store_address *address = &transfer->request.object->address;
	const char *query = transfer->request.query, *endpoint = settings->endpoint;
	char own[STORE_SETTING_MAX];

	if (!endpoint[0]) {
		const char *region = region_of(transfer->store, transfer->request.object);

		snprintf(own, sizeof(own), "https://s3.%s.amazonaws.com%s", region,
			 strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
		endpoint = own;
	}
	const char *host = strstr(endpoint, "://") + 3;
	if (settings->path_style || strchr(address->bucket, '.'))
		snprintf(url, URL_MAX, "%s/%s/%s%s%s", endpoint, address->bucket, address->path,
			 query ? "?" : "", query ? query : "");
	else
		snprintf(url, URL_MAX, "%.*s%s.%s/%s%s%s", (int)(host - endpoint), endpoint,
			 address->bucket, host, address->path, query ? "?" : "",
			 query ? query : "");
}

static int add_header(struct attempt *attempt, const char *name, const char *value)
{
	char line[STORE_TOKEN_MAX + 64];

	snprintf(line, sizeof(line), "%s: %s", name, value);
	struct curl_slist *headers = curl_slist_append(attempt->headers, line);
	explicit_bzero(line, sizeof(line));
	if (!headers)
		return -ENOMEM;
	attempt->headers = headers;
	return 0;
}

static int add_version(struct attempt *attempt)
{
	const struct store_request *request = &attempt->transfer->request;
	const struct store_object *object = request->object;

	if (request->method != STORE_GET)
		return 0;
	if (object->etag[0])
		return add_header(attempt, "If-Match", object->etag);
	if (object->modified[0])
		return add_header(attempt, "If-Unmodified-Since", object->modified);
	return 0;
}

static int sign(struct attempt *attempt)
{
	const struct store_request *request = &attempt->transfer->request;
	const struct store *store = attempt->transfer->store;
	bool has_body = request->body_size != 0;
	char provider[128];

	snprintf(provider, sizeof(provider), "aws:amz:%s:s3", region_of(store, request->object));
	curl_easy_setopt(attempt->easy, CURLOPT_AWS_SIGV4, provider);
	curl_easy_setopt(attempt->easy, CURLOPT_USERNAME, store->credentials.key);
	curl_easy_setopt(attempt->easy, CURLOPT_PASSWORD, store->credentials.secret);
	int r = add_header(attempt, "x-amz-content-sha256",
			   has_body ? "UNSIGNED-PAYLOAD" : EMPTY_SHA256);
	if (!r && store->credentials.token[0])
		r = add_header(attempt, "x-amz-security-token", store->credentials.token);
	return r;
}

static void set_method(CURL *easy, const struct store_request *request)
{
	switch (request->method) {
	case STORE_GET:
		break;
	case STORE_HEAD:
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
		return;
	case STORE_PUT:
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "PUT");
		break;
	case STORE_POST:
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		break;
	case STORE_DELETE:
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
		return;
	}
	if (request->method == STORE_GET)
		return;
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_size);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body ? request->body : "");
}

/*
 * How long a connection may take before one to an address of the other family is tried, IPv4 or
 * IPv6: somewhat longer than the last one took. libcurl looks at all new connections when that time
 * is over, and reads what has come by then, whatever its rank: so it is over before the reply.
 */
static long family_ms(const struct store *store)
{
	int64_t ms = FAMILY_MIN_MS + store->connect_us * 3 / 2000;

	return store->connect_us == 0 || ms > FAMILY_FIRST_MS ? FAMILY_FIRST_MS : (long)ms;
}

static void set_limits(const struct attempt *attempt)
{
	const struct transfer *transfer = attempt->transfer;
	const struct store_address *address = &transfer->request.object->address;
	CURL *easy = attempt->easy;

	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, address->tls ? "https" : "http,https");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, address->s3 ? 0L : 1L);
	curl_easy_setopt(easy, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
	curl_easy_setopt(easy, CURLOPT_HAPPY_EYEBALLS_TIMEOUT_MS, family_ms(transfer->store));
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)STALL_TIMEOUT_S);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_BUFFER);
	/* with large bodies, several connections are faster than several streams of one */
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	if (transfer->store->settings.ca_bundle[0])
		curl_easy_setopt(easy, CURLOPT_CAINFO, transfer->store->settings.ca_bundle);
}

/* Reads the credentials on first use, and before they expire. */
static int ready_credentials(struct store *store, struct packimg_error *error)
{
	int64_t renew_s = store->credentials.renew_s;

	if (store->has_credentials && (renew_s == 0 || time(NULL) < renew_s))
		return 0;
	int r = store_credentials_read(&store->settings, &store->credentials, error);
	store->has_credentials = !r;
	return r;
}

int attempt_prepare(struct attempt *attempt, struct packimg_error *error)
{
	const struct transfer *transfer = attempt->transfer;
	const struct store_request *request = &transfer->request;
	bool s3 = request->object->address.s3;
	char url[URL_MAX], range[64];
	int r = s3 ? ready_credentials(transfer->store, error) : 0;

	if (r)
		return r;
	attempt->easy = curl_easy_init();
	if (!attempt->easy)
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (s3)
		write_s3_url(transfer, url);
	curl_easy_setopt(attempt->easy, CURLOPT_URL, s3 ? url : request->object->address.path);
	set_limits(attempt);
	set_method(attempt->easy, request);
	if (request->method == STORE_GET) {
		snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64,
			 request->offset + attempt->at, request->offset + request->size - 1);
		curl_easy_setopt(attempt->easy, CURLOPT_RANGE, range);
	}
	r = add_version(attempt);
	if (!r && request->body_size)
		r = add_header(attempt, "Content-Type", "application/octet-stream");
	if (!r && s3 && transfer->store->credentials.key[0])
		r = sign(attempt);
	if (r)
		return packimg_fail(error, r, "out of memory");
	curl_easy_setopt(attempt->easy, CURLOPT_HTTPHEADER, attempt->headers);
	return 0;
}
