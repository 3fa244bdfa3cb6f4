#include "format/base/sandbox/landlock.h"
#include "format/base/system/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Rights that kernels may know and these headers do not. */
#define FS_REFER     ((uint64_t)1 << 13) /* ABI 2 */
#define FS_TRUNCATE  ((uint64_t)1 << 14) /* ABI 3 */
#define FS_IOCTL_DEV ((uint64_t)1 << 15) /* ABI 5 */
#define NET_BIND     ((uint64_t)1 << 0)  /* ABI 4 */
#define NET_CONNECT  ((uint64_t)1 << 1)
#define SCOPED_ALL   ((uint64_t)3) /* ABI 6: abstract sockets and signals of others */

/* Rights that a rule for a file may have; those of folders have all. */
#define OF_FILES                                                                                   \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |                              \
	 LANDLOCK_ACCESS_FS_READ_FILE | FS_TRUNCATE)
#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE                                                                                      \
	(READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |                      \
	 LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                            \
	 LANDLOCK_ACCESS_FS_REMOVE_DIR | FS_REFER | FS_TRUNCATE)

enum { RULESET_VERSION = 1, RESTRICT_ALL_THREADS = 1 << 3 };

static const uint64_t rights[] = {
	[LANDLOCK_READ] = READ,
	[LANDLOCK_WRITE] = WRITE,
	[LANDLOCK_REMOVE] = LANDLOCK_ACCESS_FS_REMOVE_FILE,
};

static int add_rule(int rules, const struct landlock_path *path, uint64_t handled)
{
	int fd = open(path->path, O_PATH | O_CLOEXEC);
	struct stat status;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : -errno;
	int r = fstat(fd, &status) ? -errno : 0;
	const struct landlock_path_beneath_attr rule = {
		.allowed_access = rights[path->access] & handled &
				  (S_ISDIR(status.st_mode) ? ~0ull : OF_FILES),
		.parent_fd = fd,
	};
	if (!r && rule.allowed_access &&
	    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
		r = -errno;
	io_close(fd);
	return r;
}

int landlock_restrict(const struct landlock_path *paths, size_t count, bool connect)
{
	struct {
		uint64_t fs, net, scoped;
	} handled = {0};
	const int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, RULESET_VERSION);

	if (abi < 1)
		return 0;
	handled.fs = FS_REFER - 1;
	handled.fs |= abi < 2 ? 0 : FS_REFER;
	handled.fs |= abi < 3 ? 0 : FS_TRUNCATE;
	handled.fs |= abi < 5 ? 0 : FS_IOCTL_DEV;
	handled.net = abi < 4 ? 0 : NET_BIND | (connect ? 0 : NET_CONNECT);
	handled.scoped = abi < 6 ? 0 : SCOPED_ALL;
	size_t size = abi < 4 ? 8 : abi < 6 ? 16 : 24;
	int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
	if (rules < 0)
		return -errno;
	int r = 0;
	for (size_t i = 0; !r && i < count; i++)
		r = add_rule(rules, &paths[i], handled.fs);
	if (!r && syscall(SYS_landlock_restrict_self, rules, abi < 8 ? 0 : RESTRICT_ALL_THREADS))
		r = -errno;
	io_close(rules);
	return r ? r : abi;
}
