#include "loaderd/worker/filling_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* No process can truncate the file under a mapping, nor add seals that forbid writing. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

int filling_files_admit(const Loaderd__OpenFeed *request, struct refusal *refusal)
{
	if (request->filling > FILLING_VERSION)
		return refuse_request(refusal, EINVAL, "filling",
				      "filling %u is not known; this daemon knows up to %d",
				      request->filling, FILLING_VERSION);
	if (request->filling != 0 && request->n_parts > 1)
		return refuse_request(refusal, EINVAL, "filling",
				      "a feed of %zu parts cannot read files that are being "
				      "filled; give one part, or fetch the datasets first",
				      request->n_parts);
	return 0;
}

int filling_files_ask(struct fd_transfer *files)
{
	int r = fd_transfer_add(files, 0, LOADERD__PART_FILE__PART_FILLING_MAP, 1, false);
	return r ?: fd_transfer_add(files, 0, LOADERD__PART_FILE__PART_FILLING_PAGE, 1, false);
}

/*
 * Checks that this is a memory file of exactly this size, on tmpfs: seals do not protect readers of
 * hugetlbfs or secret memory. Calls the system call directly: glibc's fstat() uses newfstatat(),
 * which the sandbox forbids.
 */
static int check_file(int fd, const char *what, uint64_t size, struct refusal *refusal)
{
	struct stat status;
	struct statfs system;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || syscall(SYS_fstat, fd, &status) < 0 || fstatfs(fd, &system) < 0 ||
	    (uint32_t)system.f_type != TMPFS_MAGIC)
		return refuse_request(refusal, EINVAL, "filling",
				      "the %s is not a memory file (memfd_create)", what);
	if ((seals & SEALS) != SEALS)
		return refuse_request(refusal, EINVAL, "filling",
				      "the %s lacks seals: it needs F_SEAL_SHRINK, F_SEAL_GROW and "
				      "F_SEAL_SEAL",
				      what);
	if ((uint64_t)status.st_size != size)
		return refuse_request(refusal, EINVAL, "filling", "the %s has %llu bytes, not %llu",
				      what, (unsigned long long)status.st_size,
				      (unsigned long long)size);
	return 0;
}

int filling_files_check(struct dataset *dataset, struct refusal *refusal)
{
	struct packimg_sample sample;
	sigbus_guard_enter(&dataset->guard);
	int r = packimg_sample(dataset->image, 0, &sample);
	r = r ?: packimg_sample(dataset->image, dataset->count - 1, &sample);
	if (sigbus_guard_leave() || r < 0)
		return refuse_request(refusal, EBADMSG, "dataset",
				      "%.300s: its index is incomplete or damaged" FILLING_NEEDS,
				      dataset->path);
	return 0;
}

int filling_files_open(struct fd_transfer *files, const struct filling_options *options,
		       struct filling **ret_filling, struct refusal *refusal)
{
	struct fd_group *map = fd_transfer_find(files, 0, LOADERD__PART_FILE__PART_FILLING_MAP);
	const struct fd_group *page =
		fd_transfer_find(files, 0, LOADERD__PART_FILE__PART_FILLING_PAGE);
	struct filling_options complete = *options;
	uint8_t turn;
	int r = check_file(map->fds[0], "map", options->dataset->count, refusal);
	r = r ?: check_file(page->fds[0], "page", FILLING_PAGE_SIZE, refusal);
	if (r < 0)
		return r;
	if (pread(map->fds[0], &turn, 1, 0) != 1)
		return refuse_request(refusal, EINVAL, "filling", "the map cannot be read: %s",
				      strerror(errno));
	void *memory =
		mmap(NULL, FILLING_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page->fds[0], 0);
	if (memory == MAP_FAILED)
		return refuse_request(refusal, EINVAL, "filling", "the page cannot be mapped: %s",
				      strerror(errno));
	complete.page = memory;
	complete.map_fd = map->fds[0];
	map->fds[0] = -1;
	if (filling_new(&complete, ret_filling) < 0)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	return 0;
}
