#include "tests/security/memcg.h"
#include "tests/test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

static bool write_text(const char *folder, const char *name, const char *text)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return false;
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return written;
}

static size_t read_text(const char *folder, const char *name, char *text, size_t room)
{
	char path[PATH_MAX];
	size_t size = 0;
	if (snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path)) {
		FILE *file = fopen(path, "re");
		if (file) {
			size = fread(text, 1, room - 1, file);
			fclose(file);
		}
	}
	text[size] = '\0';
	return size;
}

/* Returns the number after a name at the start of a line; 0 if there is no such line. */
static uint64_t field_of(const char *folder, const char *file, const char *name)
{
	char text[16384];
	const size_t length = strlen(name);
	uint64_t value = 0;
	read_text(folder, file, text, sizeof(text));
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			(void)sscanf(line + length, "%" SCNu64, &value);
	}
	return value;
}

/*
 * Finds the directory of this process's memory cgroup. Version 1 uses a hierarchy mounted at
 * .../memory; a version 2 cgroup must have the memory controller enabled.
 */
static bool find_own(struct memcg *group)
{
	char text[4096], controllers[1024];
	if (read_text("/proc/self", "cgroup", text, sizeof(text)) == 0)
		return false;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *path = strrchr(line, ':');
		if (!path)
			continue;
		path++;
		if (strstr(line, ":memory:")) {
			group->version = 1;
			snprintf(group->outside, sizeof(group->outside), "/sys/fs/cgroup/memory%s",
				 path);
			return true;
		}
		if (strncmp(line, "0::", 3) != 0)
			continue;
		read_text("/sys/fs/cgroup", "cgroup.controllers", controllers, sizeof(controllers));
		if (!strstr(controllers, "memory"))
			continue;
		group->version = 2;
		snprintf(group->outside, sizeof(group->outside), "/sys/fs/cgroup%s", path);
		return true;
	}
	return false;
}

bool memcg_new(struct memcg *group, const char *name, uint64_t limit_bytes)
{
	char limit[32];
	*group = (struct memcg){0};
	if (!find_own(group))
		return false;
	/*
	 * Only the root cgroup can both contain processes and enable controllers for its children.
	 */
	const char *parent = group->version == 1 ? group->outside : "/sys/fs/cgroup";
	/* A container's /sys does not show the cgroups above its own. */
	if (access(group->outside, W_OK) < 0) {
		parent = group->version == 1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
		strcpy(group->outside, parent);
	}
	if (group->version == 2)
		(void)write_text(parent, "cgroup.subtree_control", "+memory");
	if (snprintf(group->path, sizeof(group->path), "%s/%s-%d", parent, name, (int)getpid()) >=
		    (int)sizeof(group->path) ||
	    mkdir(group->path, 0755) < 0)
		return false;
	snprintf(limit, sizeof(limit), "%" PRIu64, limit_bytes);
	if (write_text(group->path, group->version == 1 ? "memory.limit_in_bytes" : "memory.max",
		       limit))
		return true;
	rmdir(group->path);
	return false;
}

static void move_to(const char *folder)
{
	char pid[16];
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (!write_text(folder, "cgroup.procs", pid))
		fail_msg("%s: cannot be entered: %s", folder, strerror(errno));
}

void memcg_enter(const struct memcg *group)
{
	move_to(group->path);
}

void memcg_leave(const struct memcg *group)
{
	move_to(group->outside);
}

uint64_t memcg_usage(const struct memcg *group)
{
	char text[32];
	uint64_t bytes = 0;
	read_text(group->path, group->version == 1 ? "memory.usage_in_bytes" : "memory.current",
		  text, sizeof(text));
	(void)sscanf(text, "%" SCNu64, &bytes);
	return bytes;
}

uint64_t memcg_shared(const struct memcg *group)
{
	return field_of(group->path, "memory.stat", "shmem");
}

uint64_t memcg_kills(const struct memcg *group)
{
	return field_of(group->path, group->version == 1 ? "memory.oom_control" : "memory.events",
			"oom_kill");
}

void memcg_free(const struct memcg *group)
{
	/* A process that has just exited stays in the cgroup for a moment. */
	for (unsigned i = 0; i < 1000 && rmdir(group->path) < 0 && errno == EBUSY; i++)
		usleep(10000);
}
