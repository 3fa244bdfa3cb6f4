#include "loaderd/worker/fd_transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int fd_transfer_add(struct fd_transfer *transfer, uint32_t part, Loaderd__PartFile file,
		    uint32_t max, bool direct)
{
	struct fd_group *groups =
		realloc(transfer->groups, (transfer->group_count + 1) * sizeof(*groups));
	if (!groups)
		return -ENOMEM;
	transfer->groups = groups;
	groups[transfer->group_count++] =
		(struct fd_group){.part = part, .file = file, .max = max, .direct = direct};
	return 0;
}

void fd_transfer_deinit(struct fd_transfer *transfer)
{
	for (uint32_t g = 0; g < transfer->group_count; g++) {
		struct fd_group *group = &transfer->groups[g];
		for (uint32_t i = 0; i < group->count; i++)
			if (group->fds[i] >= 0)
				close(group->fds[i]);
		free(group->fds);
	}
	free(transfer->groups);
	*transfer = (struct fd_transfer){0};
}

bool fd_transfer_complete(const struct fd_transfer *transfer)
{
	return transfer->current == transfer->group_count;
}

static uint32_t group_wanted(const struct fd_group *group)
{
	return group->total < group->max ? group->total : group->max;
}

uint32_t fd_transfer_left(const struct fd_transfer *transfer)
{
	const struct fd_group *group = &transfer->groups[transfer->current];
	return fd_transfer_complete(transfer) ? 0 : group_wanted(group) - group->count;
}

int fd_transfer_newest(const struct fd_transfer *transfer)
{
	uint32_t last = transfer->current;
	if (fd_transfer_complete(transfer) || transfer->groups[last].count == 0)
		last--;
	return transfer->groups[last].fds[transfer->groups[last].count - 1];
}

uint64_t fd_transfer_files(const struct fd_transfer *transfer)
{
	uint64_t files = 0;
	for (uint32_t g = 0; g < transfer->group_count; g++)
		if (transfer->groups[g].file == LOADERD__PART_FILE__PART_DATASET)
			files += transfer->groups[g].total;
	return files;
}

void fd_transfer_ask(const struct fd_transfer *transfer, Loaderd__NeedFiles *ret_need)
{
	const struct fd_group *group = &transfer->groups[transfer->current];
	uint32_t left = group->total == 0 ? group->max : group_wanted(group) - group->count;
	loaderd__need_files__init(ret_need);
	ret_need->first = group->count;
	ret_need->most = left < FRAME_FDS_MAX ? left : FRAME_FDS_MAX;
	ret_need->direct = group->direct;
	ret_need->part = group->part;
	ret_need->file = group->file;
}

int fd_transfer_take(struct fd_transfer *transfer, const Loaderd__Files *files,
		     struct frame_reader *reader, uint64_t limit)
{
	struct fd_group *group = &transfer->groups[transfer->current];
	unsigned count = frame_fd_count(reader);
	if (count == 0 || files->first != group->count || files->direct != group->direct ||
	    files->part != group->part || files->file != group->file || files->total == 0 ||
	    (group->total != 0 && files->total != group->total))
		return -EPROTO;
	if (group->total == 0) {
		group->total = files->total;
		if (fd_transfer_files(transfer) > limit)
			return -EDQUOT;
	}
	if (count > group_wanted(group) - group->count)
		return -EPROTO;
	int *fds = realloc(group->fds, (group->count + count) * sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	group->fds = fds;
	for (unsigned i = 0; i < count; i++)
		fds[group->count + i] = frame_take_fd(reader, i);
	group->count += count;
	if (group->count == group_wanted(group))
		transfer->current++;
	return 0;
}

struct fd_group *fd_transfer_find(struct fd_transfer *transfer, uint32_t part,
				  Loaderd__PartFile file)
{
	for (uint32_t g = 0; g < transfer->group_count; g++)
		if (transfer->groups[g].part == part && transfer->groups[g].file == file)
			return &transfer->groups[g];
	return NULL;
}
