#include "tools/store/credentials.h"
#include "format/base/system/io.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	REPLY_MAX = 16384,       /* bytes of an agent's reply */
	RENEW_BEFORE_S = 300,    /* before temporary credentials expire */
	AGENT_TIMEOUT_MS = 5000, /* of a container's agent, which is configured */
	/* of the metadata service, which is not there on most machines */
	METADATA_TIMEOUT_MS = 1000,
};

#define METADATA_HOST  "http://169.254.169.254"
#define CONTAINER_HOST "http://169.254.170.2"

struct agent_reply {
	char text[REPLY_MAX + 1];
	size_t size;
};

static size_t on_reply(char *bytes, size_t unit, size_t count, void *context)
{
	struct agent_reply *reply = context;

	(void)unit;
	if (count > REPLY_MAX - reply->size)
		return 0;
	memcpy(reply->text + reply->size, bytes, count);
	reply->size += count;
	reply->text[reply->size] = '\0';
	return count;
}

/*
 * Makes a request to an agent on this machine or its network, which no proxy may see. Returns the
 * HTTP status, or 0 without one.
 */
static long agent_ask(const char *url, bool put, const char *header, long timeout_ms,
		      struct agent_reply *reply)
{
	struct curl_slist *headers = header ? curl_slist_append(NULL, header) : NULL;
	CURL *easy = curl_easy_init();
	long status = 0;

	reply->size = 0;
	reply->text[0] = '\0';
	if (easy && (headers || !header)) {
		curl_easy_setopt(easy, CURLOPT_URL, url);
		curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
		curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
		curl_easy_setopt(easy, CURLOPT_PROXY, "");
		curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms);
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_reply);
		curl_easy_setopt(easy, CURLOPT_WRITEDATA, reply);
		if (put)
			curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "PUT");
		if (curl_easy_perform(easy) == CURLE_OK)
			curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	}
	curl_easy_cleanup(easy);
	curl_slist_free_all(headers);
	return status;
}

static int copy_secret(const char *name, const char *value, char *to, size_t size,
		       struct packimg_error *error)
{
	if (strlen(value) >= size)
		return packimg_fail(error, -EINVAL, "%s is longer than %zu bytes", name, size - 1);
	if (strpbrk(value, "\r\n"))
		return packimg_fail(error, -EINVAL, "%s contains a line break", name);
	strcpy(to, value);
	return 0;
}

/* Steps of the search return 1 if they have found credentials, 0 if not, or a negative errno. */
static int read_environment(const struct store_settings *settings,
			    struct store_credentials *credentials, struct packimg_error *error)
{
	const char *key = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");
	const char *token = getenv("AWS_SESSION_TOKEN");
	bool has_key = key && *key, has_secret = secret && *secret;

	(void)settings;
	if (!has_key && !has_secret)
		return 0;
	if (!has_key || !has_secret)
		return packimg_fail(error, -EINVAL, "%s is set and %s is not: set both or neither",
				    has_key ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
				    has_key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
	int r = copy_secret("AWS_ACCESS_KEY_ID", key, credentials->key, sizeof(credentials->key),
			    error);
	if (!r)
		r = copy_secret("AWS_SECRET_ACCESS_KEY", secret, credentials->secret,
				sizeof(credentials->secret), error);
	if (!r && token)
		r = copy_secret("AWS_SESSION_TOKEN", token, credentials->token,
				sizeof(credentials->token), error);
	snprintf(credentials->origin, sizeof(credentials->origin),
		 "the environment variable AWS_ACCESS_KEY_ID");
	return r ? r : 1;
}

/* What a profile may have instead of keys. */
static const struct {
	const char *key, *remedy;
} indirect_keys[] = {
	{"role_arn", "assumes a role"},
	{"credential_process", "gets its credentials from a program"},
	{"sso_session", "uses IAM Identity Center"},
	{"sso_start_url", "uses IAM Identity Center"},
	{"web_identity_token_file", "uses a web identity"},
};

static int read_profile_file(const char *path, const char *profile,
			     struct store_credentials *credentials, struct packimg_error *error)
{
	enum { INDIRECT = sizeof(indirect_keys) / sizeof(indirect_keys[0]) };
	char indirect[INDIRECT][STORE_SETTING_MAX] = {""};
	struct store_setting rows[4 + INDIRECT] = {
		{"aws_access_key_id", credentials->key, sizeof(credentials->key)},
		{"aws_secret_access_key", credentials->secret, sizeof(credentials->secret)},
		{"aws_session_token", credentials->token, sizeof(credentials->token)},
	};

	for (size_t i = 0; i < INDIRECT; i++)
		rows[3 + i] = (struct store_setting){indirect_keys[i].key, indirect[i],
						     sizeof(indirect[i])};
	int r = store_profile_read(path, profile, rows, error);
	if (r <= 0)
		return r;
	if (credentials->key[0] && credentials->secret[0]) {
		snprintf(credentials->origin, sizeof(credentials->origin),
			 "profile %.64s of %.200s", profile, path);
		return 1;
	}
	if (credentials->key[0] || credentials->secret[0])
		return packimg_fail(error, -EINVAL,
				    "%s: profile %s has only one of aws_access_key_id and "
				    "aws_secret_access_key",
				    path, profile);
	for (size_t i = 0; i < INDIRECT; i++)
		if (indirect[i][0])
			return packimg_fail(
				error, -ENOTSUP,
				"%s: profile %s %s (%s), which is not supported: export temporary "
				"credentials with `eval \"$(aws configure export-credentials "
				"--profile %s --format env)\"`",
				path, profile, indirect_keys[i].remedy, indirect_keys[i].key,
				profile);
	return 0;
}

static int read_profile(const struct store_settings *settings,
			struct store_credentials *credentials, struct packimg_error *error)
{
	int r = read_profile_file(settings->credentials_file, settings->profile, credentials,
				  error);
	if (!r)
		r = read_profile_file(settings->config_file, settings->profile, credentials, error);
	if (!r && settings->profile_named)
		return packimg_fail(error, -EINVAL,
				    "AWS_PROFILE is %s; neither %s nor %s has credentials for it",
				    settings->profile, settings->credentials_file,
				    settings->config_file);
	return r;
}

/* Parses an ISO 8601 time in UTC, "2026-01-31T12:00:00Z". Returns 0 for other text. */
static int64_t parse_time_s(const char *text)
{
	struct tm tm = {0};
	const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;

	return end ? timegm(&tm) : 0;
}

/* Takes an agent's reply, which both kinds of agents give in the same JSON. */
static int take_reply(const struct agent_reply *reply, const char *agent,
		      struct store_credentials *credentials, struct packimg_error *error)
{
	const char *key = NULL, *secret = NULL, *token = "", *expiration = NULL;
	json_t *json = json_loadb(reply->text, reply->size, 0, NULL);
	int r = -EBADMSG;

	if (json_unpack(json, "{s:s, s:s, s?s, s?s}", "AccessKeyId", &key, "SecretAccessKey",
			&secret, "Token", &token, "Expiration", &expiration) != 0) {
		packimg_say(error, "%s does not answer with credentials", agent);
	} else {
		r = copy_secret("AccessKeyId", key, credentials->key, sizeof(credentials->key),
				error);
		if (!r)
			r = copy_secret("SecretAccessKey", secret, credentials->secret,
					sizeof(credentials->secret), error);
		if (!r)
			r = copy_secret("Token", token, credentials->token,
					sizeof(credentials->token), error);
		int64_t expires_s = parse_time_s(expiration);
		credentials->renew_s = expires_s ? expires_s - RENEW_BEFORE_S : 0;
		snprintf(credentials->origin, sizeof(credentials->origin), "%s", agent);
	}
	json_decref(json);
	return r ? r : 1;
}

/* Agents other than the container's own may only be asked on this machine, or by TLS. */
static bool agent_allowed(const char *url)
{
	static const char *const prefixes[] = {
		"https://",          "http://127.0.0.1:",     "http://127.0.0.1/",
		"http://localhost:", "http://localhost/",     "http://[::1]:",
		"http://[::1]/",     "http://169.254.170.2/", "http://169.254.170.23/"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(url, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* Writes the header that authorises the request to the container's agent; "" if there is none. */
static int container_header(char *header, size_t size, struct packimg_error *error)
{
	const char *path = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	char text[STORE_TOKEN_MAX];

	header[0] = '\0';
	if (path && *path) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		int64_t length = fd < 0 ? -errno : io_read_at(fd, text, sizeof(text) - 1, 0);

		io_close(fd);
		if (length < 0)
			return packimg_fail(error, (int)length,
					    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %s: %s", path,
					    strerror((int)-length));
		text[length] = '\0';
		text[strcspn(text, "\r\n")] = '\0';
		token = text;
	}
	if (token && *token && snprintf(header, size, "Authorization: %s", token) >= (int)size)
		return packimg_fail(error, -EINVAL, "the container's token is too long");
	return 0;
}

static int read_container(const struct store_settings *settings,
			  struct store_credentials *credentials, struct packimg_error *error)
{
	const char *relative = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	char url[STORE_SETTING_MAX], header[STORE_TOKEN_MAX + 32];
	struct agent_reply reply;

	(void)settings;
	if (relative && *relative)
		snprintf(url, sizeof(url), "%s%s", CONTAINER_HOST, relative);
	else if (full && *full)
		snprintf(url, sizeof(url), "%s", full);
	else
		return 0;
	if (!agent_allowed(url))
		return packimg_fail(error, -EINVAL,
				    "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https:// nor "
				    "on this machine");
	int r = container_header(header, sizeof(header), error);
	if (r)
		return r;
	long status = agent_ask(url, false, header[0] ? header : NULL, AGENT_TIMEOUT_MS, &reply);
	if (status != 200)
		return packimg_fail(error, -EIO,
				    "the container's credentials agent answers with status %ld",
				    status);
	return take_reply(&reply, "the container's credentials agent", credentials, error);
}

static int read_metadata(const struct store_settings *settings,
			 struct store_credentials *credentials, struct packimg_error *error)
{
	static const char role_path[] = "/latest/meta-data/iam/security-credentials/";
	char url[STORE_SETTING_MAX], header[STORE_TOKEN_MAX + 32];
	struct agent_reply reply;

	if (settings->metadata_disabled)
		return 0;
	if (agent_ask(METADATA_HOST "/latest/api/token", true,
		      "X-aws-ec2-metadata-token-ttl-seconds: 21600", METADATA_TIMEOUT_MS,
		      &reply) != 200)
		return 0;
	reply.text[strcspn(reply.text, "\r\n")] = '\0';
	snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %.*s", STORE_TOKEN_MAX,
		 reply.text);
	snprintf(url, sizeof(url), "%s%s", METADATA_HOST, role_path);
	if (agent_ask(url, false, header, AGENT_TIMEOUT_MS, &reply) != 200)
		return 0; /* the instance has no role */
	reply.text[strcspn(reply.text, "\r\n")] = '\0';
	if (!reply.text[0] || strpbrk(reply.text, "/?# "))
		return 0;
	snprintf(url, sizeof(url), "%s%s%.1024s", METADATA_HOST, role_path, reply.text);
	if (agent_ask(url, false, header, AGENT_TIMEOUT_MS, &reply) != 200)
		return packimg_fail(error, -EIO,
				    "the instance's metadata service does not give "
				    "the role's credentials");
	return take_reply(&reply, "the instance's metadata service", credentials, error);
}

int store_credentials_read(const struct store_settings *settings,
			   struct store_credentials *ret_credentials, struct packimg_error *error)
{
	static int (*const steps[])(const struct store_settings *, struct store_credentials *,
				    struct packimg_error *) = {read_environment, read_profile,
							       read_container, read_metadata};
	struct store_credentials credentials = {0};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(steps) / sizeof(steps[0]); i++)
		r = steps[i](settings, &credentials, error);
	if (r == 0) {
		credentials.key[0] = credentials.secret[0] = credentials.token[0] = '\0';
		snprintf(credentials.origin, sizeof(credentials.origin),
			 "AWS_ACCESS_KEY_ID, %.200s, and a container's or instance's role",
			 settings->credentials_file);
	}
	if (r >= 0)
		*ret_credentials = credentials;
	store_credentials_clear(&credentials);
	return r < 0 ? r : 0;
}

void store_credentials_clear(struct store_credentials *credentials)
{
	explicit_bzero(credentials, sizeof(*credentials));
}
