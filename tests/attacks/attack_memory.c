/*
 * Rings that are kept after their feeds are closed, in every way: they count until nobody has them.
 */
#include "tests/attacks/attack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	RINGS = 2, /* of 16 * 4 images, 12.6 MB: a third is beyond the 32 MB of one user */
	FREE_WITHIN_MS = 10000,
};

static const char pipeline[] = "random_resized_crop(256)";

struct kept {
	void *map;
	size_t size;
	int fds[2]; /* ring, ack page */
};

/* Opens a feed, and hangs up. */
static struct kept keep(const struct stage *stage, int file)
{
	struct kept kept;
	int socket;
	int r = attack_open(stage, file, pipeline, &socket, kept.fds);
	if (r != 0)
		fail_msg("no feed: %d", r);
	kept.size = (size_t)lseek(kept.fds[0], 0, SEEK_END);
	kept.map = mmap(NULL, kept.size, PROT_READ, MAP_SHARED, kept.fds[0], 0);
	assert_true(kept.map != MAP_FAILED);
	close(socket);
	return kept;
}

static void forget_fds(struct kept *kept)
{
	close(kept->fds[0]);
	close(kept->fds[1]);
}

/* No further ring is to be had, now or a while later, and the refusal says which limit it is. */
static void assert_counted(const struct stage *stage, int file)
{
	uint64_t until_ms = attack_deadline();
	do {
		int socket = attack_connect(stage);
		assert_true(attack_ask(socket, stage->images, pipeline, 16));
		Loaderd__Reply *reply = attack_reply(socket, NULL);
		while (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
			(void)attack_files(socket, reply->need_files->first, 1,
					   reply->need_files->direct, &file, 1);
			loaderd__reply__free_unpacked(reply, NULL);
			reply = attack_reply(socket, NULL);
		}
		assert_non_null(reply);
		if (reply->kind_case != LOADERD__REPLY__KIND_ERROR)
			fail_msg("one more ring, beyond the limit");
		assert_int_equal(reply->error->code, EDQUOT);
		assert_non_null(strstr(reply->error->text, "[limits] shared_memory_per_user"));
		loaderd__reply__free_unpacked(reply, NULL);
		close(socket);
	} while (attack_now_ms() < until_ms);
}

/* As many as before. */
static void assert_released(const struct stage *stage, int file)
{
	uint64_t until_ms = attack_now_ms() + FREE_WITHIN_MS;
	for (unsigned have = 0; have < RINGS;) {
		int socket, fds[2];
		int r = attack_open(stage, file, pipeline, &socket, fds);
		if (r == 0) {
			have++;
			continue; /* it is held until the process ends */
		}
		assert_int_equal(r, EDQUOT);
		if (attack_now_ms() > until_ms)
			fail_msg("what nobody has any more still counts");
	}
}

static void keep_by_mapping(const struct stage *stage)
{
	struct kept kept[RINGS];
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < RINGS; i++) {
		kept[i] = keep(stage, file);
		forget_fds(&kept[i]);
	}
	assert_counted(stage, file);
	for (unsigned i = 0; i < RINGS; i++)
		munmap(kept[i].map, kept[i].size);
	assert_released(stage, file);
}

static void keep_by_a_child(const struct stage *stage)
{
	struct kept kept[RINGS];
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < RINGS; i++)
		kept[i] = keep(stage, file);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
	}
	for (unsigned i = 0; i < RINGS; i++) {
		forget_fds(&kept[i]);
		munmap(kept[i].map, kept[i].size);
	}
	assert_counted(stage, file);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_released(stage, file);
}

static void keep_in_flight(const struct stage *stage)
{
	int pair[2], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	for (unsigned i = 0; i < RINGS; i++) {
		struct kept kept = keep(stage, file);
		union {
			struct cmsghdr header;
			char space[CMSG_SPACE(sizeof(int))];
		} control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
		struct iovec byte = {(char *)"x", 1};
		struct msghdr message = {.msg_iov = &byte,
					 .msg_iovlen = 1,
					 .msg_control = &control,
					 .msg_controllen = sizeof(control)};
		memcpy(CMSG_DATA(&control.header), &kept.fds[0], sizeof(int));
		assert_int_equal(sendmsg(pair[0], &message, 0), 1);
		forget_fds(&kept);
		munmap(kept.map, kept.size);
	}
	assert_counted(stage, file);
	close(pair[0]);
	close(pair[1]);
	assert_released(stage, file);
}

/* The ack page, which is written, counts as the ring does. */
static void keep_ack_pages(const struct stage *stage)
{
	struct kept kept[RINGS];
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < RINGS; i++) {
		kept[i] = keep(stage, file);
		munmap(kept[i].map, kept[i].size);
		close(kept[i].fds[0]);
	}
	assert_counted(stage, file);
	for (unsigned i = 0; i < RINGS; i++)
		close(kept[i].fds[1]);
	assert_released(stage, file);
}

const struct attack attacks_on_memory[] = {
	{"rings kept by mappings", keep_by_mapping, NULL, NULL},
	{"rings kept by a child", keep_by_a_child, NULL, NULL},
	{"rings kept in flight", keep_in_flight, NULL, NULL},
	{"ack pages kept", keep_ack_pages, NULL, NULL},
	{0},
};
