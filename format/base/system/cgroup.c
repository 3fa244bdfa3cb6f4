#include "format/base/system/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A mounted cgroup hierarchy. */
struct mount {
	char *root; /* cgroup at the mount point */
	char *point;
	char *options; /* for version 1, they include the controllers */
	bool unified;  /* version 2 */
};

/* Reads the first line of a file in a cgroup's folder; false if there is none. */
static bool read_line(const char *folder, const char *name, char *text, size_t size)
{
	char path[PATH_MAX + 64];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "re");
	bool read = file && fgets(text, (int)size, file);
	if (file)
		fclose(file);
	return read;
}

static void read_memory(struct cgroup_limits *limits, const char *folder, const char *name)
{
	char text[64];
	unsigned long long bytes;
	/*
	 * "max" is not a number, and version 1's value for unlimited exceeds any machine's memory
	 */
	if (read_line(folder, name, text, sizeof(text)) && sscanf(text, "%llu", &bytes) == 1 &&
	    bytes < limits->memory)
		limits->memory = bytes;
}

static void read_quota(struct cgroup_limits *limits, double quota, double period)
{
	if (quota <= 0 || period <= 0)
		return;
	double cpus = quota / period;
	if (cpus >= limits->cpus)
		return;
	limits->cpus = (unsigned)cpus;
	limits->cpus += (double)limits->cpus < cpus;
}

static void read_cpus(struct cgroup_limits *limits, const char *folder, bool unified)
{
	char text[64], more[64];
	double quota, period;
	/* "max 100000" or "150000 100000"; -1 means no limit in version 1 */
	if (unified && read_line(folder, "cpu.max", text, sizeof(text)) &&
	    sscanf(text, "%lf %lf", &quota, &period) == 2)
		read_quota(limits, quota, period);
	if (!unified && read_line(folder, "cpu.cfs_quota_us", text, sizeof(text)) &&
	    read_line(folder, "cpu.cfs_period_us", more, sizeof(more)) &&
	    sscanf(text, "%lf", &quota) == 1 && sscanf(more, "%lf", &period) == 1)
		read_quota(limits, quota, period);
}

/* True if a comma-separated list contains the word. */
static bool lists(const char *list, const char *word)
{
	size_t size = strlen(word);
	for (const char *at = list; (at = strstr(at, word)); at += size)
		if ((at == list || at[-1] == ',') && strchr(",\n", at[size]))
			return true;
	return false;
}

static bool both_list(const char *a, const char *b, const char *word)
{
	return lists(a, word) && lists(b, word);
}

/*
 * Returns the path of the cgroup relative to the mount: "" for the mounted cgroup itself, and for a
 * cgroup outside the mount, because a container sees no more.
 */
static const char *cgroup_is_below(const char *group, const char *mounted)
{
	size_t size = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
	bool inside = strncmp(group, mounted, size) == 0 && (group[size] == '/' || !group[size]);
	return inside && strcmp(group + size, "/") != 0 && !strstr(group, "/..") ? group + size
										 : "";
}

/* Reads the limits of all cgroups from the process's own up to the mount point. */
static void read_groups(struct cgroup_limits *limits, const char *root, const struct mount *mount,
			const char *group)
{
	bool memory = mount->unified || lists(mount->options, "memory");
	bool cpu = mount->unified || lists(mount->options, "cpu");
	char folder[PATH_MAX];
	int top = snprintf(folder, sizeof(folder), "%s%s", root, mount->point);
	int n = snprintf(folder, sizeof(folder), "%s%s%s", root, mount->point,
			 cgroup_is_below(group, mount->root));
	if (n < 0 || n >= PATH_MAX)
		return;
	for (;;) {
		if (memory)
			read_memory(limits, folder,
				    mount->unified ? "memory.max" : "memory.limit_in_bytes");
		if (cpu)
			read_cpus(limits, folder, mount->unified);
		char *slash = strrchr(folder, '/');
		if (!slash || slash - folder < top)
			return;
		*slash = '\0';
	}
}

/* The process's cgroup is on a line such as "4:memory:/a/b" or, for version 2, "0::/a/b". */
static void read_mount(struct cgroup_limits *limits, const char *root, const struct mount *mount)
{
	char path[PATH_MAX], *line = NULL;
	size_t room = 0;
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	FILE *file = fopen(path, "re");
	while (file && getline(&line, &room, file) > 0) {
		char *controllers = strchr(line, ':');
		char *group = !controllers ? NULL : strchr(controllers + 1, ':');
		if (!group)
			continue;
		*controllers++ = *group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (mount->unified ? *controllers == '\0'
				   : both_list(mount->options, controllers, "memory") ||
					     both_list(mount->options, controllers, "cpu"))
			read_groups(limits, root, mount, group);
	}
	free(line);
	if (file)
		fclose(file);
}

/* Unescapes \040 and similar in place. */
static char *unescape(char *text)
{
	char *to = text;
	for (const char *from = text; *from != '\0'; to++) {
		unsigned code;
		if (from[0] == '\\' && sscanf(from + 1, "%3o", &code) == 1 && strlen(from) >= 4) {
			*to = (char)code;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
	return text;
}

/*
 * Parses a line of mountinfo: "35 31 0:32 ROOT POINT rw,relatime shared:4 - TYPE SOURCE OPTIONS".
 * Returns false if it is not a cgroup mount.
 */
static bool parse_mount(char *line, struct mount *ret_mount)
{
	char *field[5], *rest = strstr(line, " - "), *save = NULL;
	if (!rest)
		return false;
	*rest = '\0';
	rest += strlen(" - ");
	for (int i = 0; i < 5; i++) {
		field[i] = strtok_r(i == 0 ? line : NULL, " ", &save);
		if (!field[i])
			return false;
	}
	const char *type = strtok_r(rest, " ", &save);
	const char *source = strtok_r(NULL, " ", &save);
	char *options = strtok_r(NULL, " \n", &save);
	if (!type || !source || !options)
		return false;
	*ret_mount = (struct mount){
		.root = unescape(field[3]),
		.point = unescape(field[4]),
		.options = options,
		.unified = strcmp(type, "cgroup2") == 0,
	};
	return ret_mount->unified || strcmp(type, "cgroup") == 0;
}

void cgroup_read(const char *root, struct cgroup_limits *ret_limits)
{
	struct cgroup_limits limits = {UINT64_MAX, UINT_MAX};
	char path[PATH_MAX], *line = NULL;
	struct mount mount;
	size_t room = 0;
	snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
	FILE *file = fopen(path, "re");
	while (file && getline(&line, &room, file) > 0)
		if (parse_mount(line, &mount))
			read_mount(&limits, root, &mount);
	free(line);
	if (file)
		fclose(file);
	*ret_limits = limits;
}
