/*
 * How to reach stores, from the environment and the files that other S3 clients read. Names and
 * precedence are those of the AWS SDKs (their reference guide, "Configuration and authentication
 * settings"):
 *
 *   AWS_PROFILE, AWS_CONFIG_FILE (~/.aws/config), AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials)
 *   AWS_REGION, AWS_DEFAULT_REGION, region
 *   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url
 *   AWS_CA_BUNDLE, ca_bundle; else CURL_CA_BUNDLE, SSL_CERT_FILE
 *   AWS_EC2_METADATA_DISABLED
 *   LOADERD_S3_ADDRESSING: path or virtual, where the bucket's name goes. Default: path with an
 *   endpoint, virtual without.
 *
 * Proxies are libcurl's: http_proxy, https_proxy, no_proxy, ALL_PROXY.
 *
 * One thread.
 */
#pragma once

#include "format/error.h"

#include <stdbool.h>

enum { STORE_SETTING_MAX = 2048 }; /* bytes of a setting, terminator included */

struct store_settings {
	char profile[256];
	bool profile_named; /* by AWS_PROFILE: then it must exist */
	char region[64];
	char endpoint[STORE_SETTING_MAX];  /* "" for AWS; without a '/' at its end */
	char ca_bundle[STORE_SETTING_MAX]; /* "" for the system's */
	char config_file[STORE_SETTING_MAX], credentials_file[STORE_SETTING_MAX];
	bool path_style, metadata_disabled;
};

/* A key of a section of an INI file, for settings_lookup(). */
struct store_setting {
	const char *key;
	char *to; /* [size], unchanged if the section lacks the key */
	size_t size;
};

/* -EINVAL for a value that cannot be used, -EBADMSG for a file that is not an INI file. */
int store_settings_read(struct store_settings *ret_settings, struct packimg_error *error);
/*
 * Reads keys of a profile's section in ~/.aws/config or ~/.aws/credentials; `settings` ends with a
 * zeroed row. Returns 1, or 0 without such a section or file. -EBADMSG; -ENAMETOOLONG; -EACCES.
 */
int store_profile_read(const char *path, const char *profile, const struct store_setting *settings,
		       struct packimg_error *error);
