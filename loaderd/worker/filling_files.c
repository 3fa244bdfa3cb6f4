#include "loaderd/worker/filling_files.h"

#include "format/join.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* No process can truncate the file under a mapping, nor add seals that forbid writing. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static uint32_t part_count(const Loaderd__OpenFeed *request)
{
	return request->n_parts > 0 ? (uint32_t)request->n_parts : 1;
}

/* The only dataset of a feed needs no mark of its own. */
static bool is_filling(const Loaderd__OpenFeed *request, uint32_t part)
{
	return request->filling != 0 && (request->n_parts <= 1 || request->parts[part]->filling);
}

/* Returns the first part from `part` on that is being filled, part_count() if there is none. */
static uint32_t next_filling(const Loaderd__OpenFeed *request, uint32_t part)
{
	while (part < part_count(request) && !is_filling(request, part))
		part++;
	return part;
}

static uint32_t count_filling(const Loaderd__OpenFeed *request)
{
	uint32_t count = 0;
	for (uint32_t p = 0; p < part_count(request); p++)
		count += is_filling(request, p);
	return count;
}

int filling_files_admit(const Loaderd__OpenFeed *request, struct refusal *refusal)
{
	uint32_t count = count_filling(request);
	if (request->filling > FILLING_VERSION)
		return refuse_request(refusal, EINVAL, "filling",
				      "filling %u is not known; this daemon knows up to %d",
				      request->filling, FILLING_VERSION);
	if (request->filling != 0 && count == 0)
		return refuse_request(refusal, EINVAL, "filling",
				      "none of the %zu parts says that its files are being filled",
				      request->n_parts);
	if (count > FILLING_DATASETS)
		return refuse_request(refusal, EINVAL, "filling",
				      "the files of %u parts are being filled, but a feed may have "
				      "%d such parts; fetch some of the datasets first",
				      count, FILLING_DATASETS);
	for (uint32_t p = 0; request->filling == 0 && p < request->n_parts; p++)
		if (request->parts[p]->filling)
			return refuse_request(refusal, EINVAL, "filling",
					      "filling is 0, but part %u is being filled", p);
	return 0;
}

int filling_files_ask(const Loaderd__OpenFeed *request, struct fd_transfer *files)
{
	int r = 0;
	for (uint32_t p = 0; r == 0 && p < part_count(request); p++)
		if (is_filling(request, p))
			r = fd_transfer_add(files, p, LOADERD__PART_FILE__PART_FILLING_MAP, 1,
					    false);
	return r
		       ?: fd_transfer_add(files, next_filling(request, 0),
					  LOADERD__PART_FILE__PART_FILLING_PAGE, 1, false);
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

int filling_files_check(const Loaderd__OpenFeed *request, struct dataset *dataset,
			struct refusal *refusal)
{
	struct packimg_sample sample;
	int r = 0;
	sigbus_guard_enter(&dataset->guard);
	for (uint32_t p = 0; r == 0 && p < part_count(request); p++) {
		const struct packimg *part = packimg_part(dataset->image, p);
		uint64_t first = packimg_part_first(dataset->image, p), count = packimg_count(part);
		if (!is_filling(request, p) || count == 0)
			continue;
		r = packimg_sample(dataset->image, first, &sample);
		r = r ?: packimg_sample(dataset->image, first + count - 1, &sample);
	}
	if (sigbus_guard_leave() || r < 0)
		return refuse_request(refusal, EBADMSG, "dataset",
				      "%.300s: its index is incomplete or damaged" FILLING_NEEDS,
				      dataset->path);
	return 0;
}

/* Checks the map of a part, and takes over its descriptor. */
static int take_map(struct fd_transfer *files, uint32_t part, struct filling_part *to,
		    struct refusal *refusal)
{
	struct fd_group *map = fd_transfer_find(files, part, LOADERD__PART_FILE__PART_FILLING_MAP);
	uint8_t turn;
	int r = check_file(map->fds[0], "map", to->count, refusal);
	if (r < 0)
		return r;
	if (to->count > 0 && pread(map->fds[0], &turn, 1, 0) != 1)
		return refuse_request(refusal, EINVAL, "filling", "the map cannot be read: %s",
				      strerror(errno));
	to->map_fd = map->fds[0];
	map->fds[0] = -1;
	return 0;
}

/* Takes the maps of all parts that are being filled; the caller frees them, also on failure. */
static int take_maps(const Loaderd__OpenFeed *request, struct fd_transfer *files,
		     const struct packimg *image, struct filling_options *options,
		     struct refusal *refusal)
{
	options->parts = calloc(count_filling(request), sizeof(*options->parts));
	if (!options->parts)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	int r = 0;
	for (uint32_t p = next_filling(request, 0); r == 0 && p < part_count(request);
	     p = next_filling(request, p + 1)) {
		struct filling_part *part = &options->parts[options->part_count++];
		*part = (struct filling_part){.first = packimg_part_first(image, p),
					      .count = packimg_count(packimg_part(image, p)),
					      .map_fd = -1};
		r = take_map(files, p, part, refusal);
	}
	return r;
}

static int map_page(int fd, struct filling_page **ret_page, struct refusal *refusal)
{
	int r = check_file(fd, "page", FILLING_PAGE_SIZE, refusal);
	if (r < 0)
		return r;
	void *memory = mmap(NULL, FILLING_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return refuse_request(refusal, EINVAL, "filling", "the page cannot be mapped: %s",
				      strerror(errno));
	*ret_page = memory;
	return 0;
}

int filling_files_open(const Loaderd__OpenFeed *request, struct fd_transfer *files,
		       const struct filling_options *options, struct filling **ret_filling,
		       struct refusal *refusal)
{
	const struct fd_group *page = fd_transfer_find(files, next_filling(request, 0),
						       LOADERD__PART_FILE__PART_FILLING_PAGE);
	struct filling_options complete = *options;
	int r = take_maps(request, files, options->dataset->image, &complete, refusal);
	r = r ?: map_page(page->fds[0], &complete.page, refusal);
	if (r < 0) {
		filling_parts_free(complete.parts, complete.part_count);
		return r;
	}
	if (filling_new(&complete, ret_filling) < 0)
		return refuse_request(refusal, ENOMEM, NULL, "the daemon is out of memory");
	return 0;
}
