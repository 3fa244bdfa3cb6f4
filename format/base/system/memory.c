#include "format/base/system/memory.h"

#include "format/base/system/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct memory_files machine = {.meminfo_fd = -1};
static struct cgroup_limits limits;

static void open_nodes(const char *root, struct memory_files *files)
{
	char path[PATH_MAX];
	unsigned number;
	int length;
	snprintf(path, sizeof(path), "%s/sys/devices/system/node", root);
	DIR *nodes = opendir(path);
	if (!nodes)
		return;
	for (struct dirent *entry = readdir(nodes); entry; entry = readdir(nodes)) {
		if (files->node_count == MEMORY_NODES_MAX ||
		    sscanf(entry->d_name, "node%u%n", &number, &length) != 1 ||
		    entry->d_name[length] != '\0')
			continue;
		snprintf(path, sizeof(path), "node%u/meminfo", number);
		int fd = openat(dirfd(nodes), path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			files->node_fds[files->node_count++] = fd;
	}
	closedir(nodes);
}

void memory_files_open(const char *root, struct memory_files *ret_files)
{
	char path[PATH_MAX];
	struct memory_files files = {0};
	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	files.meminfo_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (files.meminfo_fd < 0)
		open_nodes(root, &files);
	*ret_files = files;
}

void memory_files_close(struct memory_files *files)
{
	if (files->meminfo_fd >= 0)
		close(files->meminfo_fd);
	for (unsigned i = 0; i < files->node_count; i++)
		close(files->node_fds[i]);
	*files = (struct memory_files){.meminfo_fd = -1};
}

/* Reads a file that the kernel generates; "" on failure. */
static void read_text(int fd, char *text, size_t size)
{
	ssize_t n = pread(fd, text, size - 1, 0);
	text[n < 0 ? 0 : n] = '\0';
}

/* Returns the bytes of a line such as "Node 0 MemFree:  14172572 kB", given " MemFree:". */
static uint64_t bytes_of(const char *text, const char *name)
{
	unsigned long long kib;
	const char *line = strstr(text, name);
	return line && sscanf(line + strlen(name), "%llu kB", &kib) == 1 ? kib << 10 : 0;
}

/*
 * Adds up what Linux counts as available, si_mem_available() in mm/show_mem.c: free memory, page
 * cache of files, and reclaimable memory of the kernel. Leaves out what Linux subtracts, some
 * watermarks of each zone, because only /proc has these.
 */
static uint64_t node_available(const char *text)
{
	/* KReclaimable includes SReclaimable, and exists from Linux 4.20 on. */
	uint64_t kernel = bytes_of(text, " KReclaimable:");
	if (!kernel)
		kernel = bytes_of(text, " SReclaimable:");
	return bytes_of(text, " MemFree:") + bytes_of(text, " Active(file):") +
	       bytes_of(text, " Inactive(file):") + kernel;
}

uint64_t memory_files_available(const struct memory_files *files)
{
	char text[4096];
	uint64_t sum = 0;
	if (files->meminfo_fd >= 0) {
		read_text(files->meminfo_fd, text, sizeof(text));
		return bytes_of(text, "MemAvailable:");
	}
	for (unsigned i = 0; i < files->node_count; i++) {
		read_text(files->node_fds[i], text, sizeof(text));
		sum += node_available(text);
	}
	return sum;
}

static void open_all(void)
{
	memory_files_open("", &machine);
	cgroup_read("", &limits);
}

void memory_init(void)
{
	pthread_once(&once, open_all);
}

uint64_t memory_available(void)
{
	memory_init();
	uint64_t available = memory_files_available(&machine);
	if (!available)
		available = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	return available < limits.memory ? available : limits.memory;
}
