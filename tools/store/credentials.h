/*
 * Credentials for requests to S3, from the first of these that has any:
 *
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *   2. the profile in the shared credentials file, then in the configuration file
 *   3. the container's agent: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI,
 *      AWS_CONTAINER_AUTHORIZATION_TOKEN or _TOKEN_FILE
 *   4. the instance's metadata service (IMDSv2), unless AWS_EC2_METADATA_DISABLED is true
 *
 * Profiles that assume a role, use IAM Identity Center or start a process are refused with a
 * remedy. Requests are unsigned without credentials, as public buckets take them.
 *
 * Secrets stay in this structure and in libcurl. No message contains them. One thread.
 */
#pragma once

#include "tools/store/settings.h"

#include <stdbool.h>
#include <stdint.h>

enum { STORE_TOKEN_MAX = 8192 };

struct store_credentials {
	char key[256], secret[512];  /* key: "" if requests are unsigned */
	char token[STORE_TOKEN_MAX]; /* of temporary credentials, else "" */
	char origin[320]; /* for messages: where they are from, or where was looked for some */
	/* CLOCK_REALTIME in seconds when to read them again; 0 if they do not expire */
	int64_t renew_s;
};

/* -EINVAL, -EBADMSG, -ENOTSUP (see above); -ETIMEDOUT, -EIO from an agent. Takes up to seconds. */
int store_credentials_read(const struct store_settings *settings,
			   struct store_credentials *ret_credentials, struct packimg_error *error);
/* Overwrites the secrets. */
void store_credentials_clear(struct store_credentials *credentials);
