#include "tools/store/settings.h"

#include <ini.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct profile_search {
	const char *profile;
	const struct store_setting *settings;
	const char *too_long; /* the key whose value does not fit */
	bool found;
};

/* Sections are [NAME] in credentials, and [default] and [profile NAME] in config. */
static bool section_is(const char *section, const char *profile)
{
	static const char prefix[] = "profile ";

	if (strncmp(section, prefix, strlen(prefix)) == 0)
		section += strlen(prefix) + strspn(section + strlen(prefix), " \t");
	return strcmp(section, profile) == 0;
}

static int on_setting(void *context, const char *section, const char *name, const char *value)
{
	struct profile_search *search = context;

	if (!section_is(section, search->profile))
		return 1;
	search->found = true;
	for (const struct store_setting *setting = search->settings; setting->key; setting++) {
		if (strcmp(name, setting->key) != 0)
			continue;
		if (strlen(value) >= setting->size)
			search->too_long = setting->key;
		else
			strcpy(setting->to, value);
	}
	return 1;
}

int store_profile_read(const char *path, const char *profile, const struct store_setting *settings,
		       struct packimg_error *error)
{
	struct profile_search search = {.profile = profile, .settings = settings};
	FILE *file = fopen(path, "re");

	if (!file && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (!file)
		return packimg_fail(error, -errno, "%s: %s", path, strerror(errno));
	int line = ini_parse_file(file, on_setting, &search);
	fclose(file);
	if (line)
		return packimg_fail(error, -EBADMSG,
				    "%s: line %d is neither [SECTION] nor KEY = "
				    "VALUE",
				    path, line);
	if (search.too_long)
		return packimg_fail(error, -ENAMETOOLONG, "%s: %s of profile %s is too long", path,
				    search.too_long, profile);
	return search.found;
}

/* Copies the first of these variables that is set and not empty. Returns whether there is one. */
static int copy_variable(const char *const *names, char *to, size_t size,
			 struct packimg_error *error)
{
	for (; *names; names++) {
		const char *value = getenv(*names);

		if (!value || !*value)
			continue;
		if (strlen(value) >= size)
			return packimg_fail(error, -EINVAL, "%s is longer than %zu bytes", *names,
					    size - 1);
		strcpy(to, value);
		return 1;
	}
	return 0;
}

#define COPY_VARIABLE(to, error, ...)                                                              \
	copy_variable((const char *const[]){__VA_ARGS__, NULL}, (to), sizeof(to), (error))

/* Sets a file's path from a variable, else below the home directory. */
static int find_file(const char *variable, const char *name, char to[STORE_SETTING_MAX],
		     struct packimg_error *error)
{
	int r = copy_variable((const char *const[]){variable, NULL}, to, STORE_SETTING_MAX, error);
	const char *home = getenv("HOME");

	if (r)
		return r < 0 ? r : 0;
	if (!home || !*home) {
		const struct passwd *user = getpwuid(getuid());

		home = user ? user->pw_dir : "/";
	}
	if (snprintf(to, STORE_SETTING_MAX, "%s/.aws/%s", home, name) >= STORE_SETTING_MAX)
		return packimg_fail(error, -EINVAL, "HOME is too long");
	return 0;
}

static int read_addressing(struct store_settings *settings, struct packimg_error *error)
{
	const char *text = getenv("LOADERD_S3_ADDRESSING");

	settings->path_style = settings->endpoint[0] != '\0';
	if (!text || !*text)
		return 0;
	if (strcmp(text, "path") != 0 && strcmp(text, "virtual") != 0)
		return packimg_fail(error, -EINVAL,
				    "LOADERD_S3_ADDRESSING is \"%s\"; it is path or virtual", text);
	settings->path_style = text[0] == 'p';
	return 0;
}

static int check_endpoint(struct store_settings *settings, struct packimg_error *error)
{
	size_t length = strlen(settings->endpoint);

	while (length && settings->endpoint[length - 1] == '/')
		settings->endpoint[--length] = '\0';
	if (length && strncmp(settings->endpoint, "https://", 8) != 0 &&
	    strncmp(settings->endpoint, "http://", 7) != 0)
		return packimg_fail(error, -EINVAL,
				    "the S3 endpoint \"%s\" (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL "
				    "or endpoint_url) does not begin with https:// or http://",
				    settings->endpoint);
	if (strpbrk(settings->endpoint, "?#@ "))
		return packimg_fail(error, -EINVAL,
				    "the S3 endpoint contains '?', '#', '@' or a blank; write "
				    "https://HOST or https://HOST:PORT");
	return 0;
}

/* A region is part of a host name and of what is signed. */
static int check_region(const struct store_settings *settings, struct packimg_error *error)
{
	size_t valid = strspn(settings->region, "abcdefghijklmnopqrstuvwxyz0123456789-");

	if (settings->region[valid] == '\0')
		return 0;
	return packimg_fail(error, -EINVAL,
			    "the region \"%s\" (AWS_REGION, AWS_DEFAULT_REGION or region) is not a "
			    "name such as eu-central-1",
			    settings->region);
}

int store_settings_read(struct store_settings *ret_settings, struct packimg_error *error)
{
	struct store_settings settings = {.profile = "default", .region = "us-east-1"};
	const struct store_setting rows[] = {
		{"region", settings.region, sizeof(settings.region)},
		{"endpoint_url", settings.endpoint, sizeof(settings.endpoint)},
		{"ca_bundle", settings.ca_bundle, sizeof(settings.ca_bundle)},
		{0},
	};
	const char *disabled = getenv("AWS_EC2_METADATA_DISABLED");
	int r = COPY_VARIABLE(settings.profile, error, "AWS_PROFILE", "AWS_DEFAULT_PROFILE");

	if (r < 0)
		return r;
	settings.profile_named = r > 0;
	settings.metadata_disabled = disabled && strcasecmp(disabled, "true") == 0;
	r = find_file("AWS_CONFIG_FILE", "config", settings.config_file, error);
	if (!r)
		r = find_file("AWS_SHARED_CREDENTIALS_FILE", "credentials",
			      settings.credentials_file, error);
	if (r)
		return r;
	/* the other variables of CA certificates are second to the profile's */
	r = COPY_VARIABLE(settings.ca_bundle, error, "CURL_CA_BUNDLE", "SSL_CERT_FILE");
	if (r >= 0)
		r = store_profile_read(settings.config_file, settings.profile, rows, error);
	if (r >= 0)
		r = COPY_VARIABLE(settings.region, error, "AWS_REGION", "AWS_DEFAULT_REGION");
	if (r >= 0)
		r = COPY_VARIABLE(settings.endpoint, error, "AWS_ENDPOINT_URL_S3",
				  "AWS_ENDPOINT_URL");
	if (r >= 0)
		r = COPY_VARIABLE(settings.ca_bundle, error, "AWS_CA_BUNDLE");
	if (r >= 0)
		r = check_endpoint(&settings, error);
	if (!r)
		r = check_region(&settings, error);
	if (!r)
		r = read_addressing(&settings, error);
	if (!r)
		*ret_settings = settings;
	return r;
}
