#include "tests/security/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_NODE = 2, BUFFER_SIZE = 1 << 20 };

struct service {
	int fd, backing;
	uint64_t size;
	enum fuse_silence silence;
};

static void reply(const struct service *service, const struct fuse_in_header *in, int error,
		  const void *data, size_t size)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + size), .error = error, .unique = in->unique};
	struct iovec parts[2] = {{&out, sizeof(out)}, {(void *)data, size}};
	ssize_t n = writev(service->fd, parts, size > 0 ? 2 : 1);
	(void)n; /* fails if the requesting process has exited */
}

static struct fuse_attr attributes(const struct service *service, uint64_t node)
{
	bool is_file = node == FILE_NODE;
	return (struct fuse_attr){
		.ino = node,
		.size = is_file ? service->size : 0,
		.mode = is_file ? S_IFREG | 0666 : S_IFDIR | 0777,
		.nlink = 1,
		.blksize = 4096,
	};
}

static void reply_init(const struct service *service, const struct fuse_in_header *in)
{
	const struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
					  .minor = 31,
					  .max_readahead = 4096,
					  .max_write = 4096,
					  .max_background = 64,
					  .congestion_threshold = 48};
	reply(service, in, 0, &out, sizeof(out));
}

static void reply_read(const struct service *service, const struct fuse_in_header *in)
{
	static uint8_t bytes[BUFFER_SIZE];
	const struct fuse_read_in *args = (const void *)(in + 1);
	uint64_t third = service->size / 3;
	if (service->silence == FUSE_NO_READS ||
	    (service->silence == FUSE_NO_MIDDLE && args->offset + args->size > third &&
	     args->offset < 2 * third))
		return;
	size_t size = args->size < sizeof(bytes) ? args->size : sizeof(bytes);
	ssize_t n = pread(service->backing, bytes, size, (off_t)args->offset);
	reply(service, in, n < 0 ? -EIO : 0, bytes, n < 0 ? 0 : (size_t)n);
}

static void answer(const struct service *service, const struct fuse_in_header *in)
{
	const struct fuse_entry_out entry = {.nodeid = FILE_NODE,
					     .entry_valid = 1000,
					     .attr_valid = 1000,
					     .attr = attributes(service, FILE_NODE)};
	const struct fuse_attr_out attr = {.attr_valid = 1000,
					   .attr = attributes(service, in->nodeid)};
	/* Without FOPEN_KEEP_CACHE, another open would wait for the pending read. */
	const struct fuse_open_out opened = {.open_flags = FOPEN_KEEP_CACHE};
	const struct fuse_statfs_out statfs = {.st = {.bsize = 4096, .namelen = 255}};
	switch (in->opcode) {
	case FUSE_INIT:
		reply_init(service, in);
		break;
	case FUSE_LOOKUP:
		reply(service, in, 0, &entry, sizeof(entry));
		break;
	case FUSE_GETATTR:
		reply(service, in, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		reply(service, in, 0, &opened, sizeof(opened));
		break;
	case FUSE_STATFS:
		reply(service, in, 0, &statfs, sizeof(statfs));
		break;
	case FUSE_READ:
		reply_read(service, in);
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		if (service->silence != FUSE_NO_CLOSE)
			reply(service, in, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT: /* interrupted requests are not answered either */
		break;
	default:
		reply(service, in, -ENOSYS, NULL, 0);
	}
}

static void serve(struct service *service)
{
	uint8_t *request = malloc(BUFFER_SIZE);
	for (;;) {
		ssize_t n = read(service->fd, request, BUFFER_SIZE);
		if (n < 0 && errno != EINTR && errno != EAGAIN && errno != ENOENT)
			_exit(0); /* the file system was unmounted */
		if (n >= (ssize_t)sizeof(struct fuse_in_header))
			answer(service, (const void *)request);
	}
}

static bool mount_it(const char *folder, int fd)
{
	char options[128];
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 fd);
	return mount("loaderd-attack", folder, "fuse", MS_NOSUID | MS_NODEV, options) == 0;
}

bool fuse_start(struct fuse *fuse, const char *folder, const char *backing,
		enum fuse_silence silence)
{
	struct service service = {.silence = silence};
	struct stat status;
	int ready[2];
	char byte;
	snprintf(fuse->folder, sizeof(fuse->folder), "%s", folder);
	if (mkdir(folder, 0777) < 0 && errno != EEXIST)
		return false;
	if (pipe2(ready, O_CLOEXEC) < 0)
		return false;
	fuse->server = fork();
	if (fuse->server == 0) {
		/*
		 * Only this process has the FUSE device open: when it exits, the kernel aborts the
		 * connection.
		 */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		service.fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
		service.backing = open(backing, O_RDONLY | O_CLOEXEC);
		if (service.fd < 0 || fstat(service.backing, &status) < 0 ||
		    !mount_it(folder, service.fd))
			_exit(1);
		service.size = (uint64_t)status.st_size;
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		close(ready[1]);
		serve(&service);
	}
	close(ready[1]);
	bool mounted = fuse->server > 0 && read(ready[0], &byte, 1) == 1;
	close(ready[0]);
	if (!mounted && fuse->server > 0)
		waitpid(fuse->server, NULL, 0);
	return mounted;
}

void fuse_stop(struct fuse *fuse)
{
	kill(fuse->server, SIGKILL);
	waitpid(fuse->server, NULL, 0);
	umount2(fuse->folder, MNT_DETACH);
	rmdir(fuse->folder);
}
