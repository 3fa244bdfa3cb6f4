/*
 * Accounting of ring memory. A ring that a client keeps after its feed has closed counts until the
 * last reference is gone, whatever the kind of reference. The daemon allocates no page of a ring,
 * whatever a client fails to allocate or punches out.
 */
#include "tests/security/attack.h"
#include "tests/test.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
	RINGS = 2, /* 4 slots of 16 images, 12.6 MB per ring: a third ring exceeds the limit of 32
		      MB per user */
	FREE_WITHIN_MS = 10000,
};

static const char pipeline[] = "random_resized_crop(256)";

struct held_ring {
	void *map;
	size_t size;
	int fds[2]; /* fds of ring and ack page */
};

/* Opens a feed, maps its ring, and hangs up. */
static struct held_ring keep(const struct stage *stage, int file)
{
	struct held_ring kept;
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

static void forget_fds(struct held_ring *kept)
{
	close(kept->fds[0]);
	close(kept->fds[1]);
}

/* Asserts that no further ring is granted, now or later, and that the error names the limit. */
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

/*
 * Sends a packet on each CPU: the kernel may free a connection's buffers only when the next packet
 * arrives on the CPU that allocated them (net.core.skb_defer_max).
 */
static void stir_network(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	cpu_set_t all;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		cpu_set_t one;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (!CPU_ISSET(cpu, &all) || sched_setaffinity(0, sizeof(one), &one) < 0)
			continue;
		(void)sendto(fd, "x", 1, 0, (struct sockaddr *)&address, size);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	close(fd);
}

/* Asserts that all of the user's memory is available again: RINGS rings can be opened. */
static void assert_released(const struct stage *stage, int file)
{
	uint64_t until_ms = attack_now_ms() + FREE_WITHIN_MS;
	for (unsigned have = 0; have < RINGS;) {
		int socket, fds[2];
		int r = attack_open(stage, file, pipeline, &socket, fds);
		if (r == 0) {
			have++;
			continue; /* held until the process exits */
		}
		assert_int_equal(r, EDQUOT);
		if (attack_now_ms() > until_ms)
			fail_msg("memory that no process holds is still counted");
		stir_network();
	}
}

static void keep_by_mapping(const struct stage *stage)
{
	struct held_ring kept[RINGS];
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
	struct held_ring kept[RINGS];
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
	int pairs[RINGS][2], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < RINGS; i++) {
		struct held_ring kept = keep(stage, file);
		attack_put_in_flight(kept.fds[0], pairs[i]);
		forget_fds(&kept);
		munmap(kept.map, kept.size);
	}
	assert_counted(stage, file);
	for (unsigned i = 0; i < RINGS; i++) {
		close(pairs[i][0]);
		close(pairs[i][1]);
	}
	assert_released(stage, file);
}

/* The ack page is writable, and counts like the ring. */
static void keep_ack_pages(const struct stage *stage)
{
	struct held_ring kept[RINGS];
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

/* Keeps pages in pipes by means of splice(). */
static void keep_in_pipes(const struct stage *stage)
{
	int pipes[RINGS][2], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < RINGS; i++) {
		struct held_ring kept = keep(stage, file);
		off_t at = (off_t)kept.size / 2;
		assert_int_equal(pipe2(pipes[i], O_CLOEXEC), 0);
		assert_true(splice(kept.fds[0], &at, pipes[i][1], NULL, 1, 0) == 1);
		forget_fds(&kept);
		munmap(kept.map, kept.size);
	}
	assert_counted(stage, file);
	for (unsigned i = 0; i < RINGS; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
	assert_released(stage, file);
}

/* Creates a loopback connection that is never read. */
static void new_connection(int ret_ends[2])
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	ret_ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(ret_ends[0], (struct sockaddr *)&address, size), 0);
	ret_ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(ret_ends[1] >= 0);
	fcntl(ret_ends[0], F_SETFL, O_NONBLOCK);
	close(listener);
}

/* Keeps pages in socket buffers by means of sendfile(). */
static void keep_in_connections(const struct stage *stage)
{
	int ends[RINGS][2], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < RINGS; i++) {
		struct held_ring kept = keep(stage, file);
		off_t at = 0;
		new_connection(ends[i]);
		assert_true(sendfile(ends[i][0], kept.fds[0], &at, kept.size) > 0);
		forget_fds(&kept);
		munmap(kept.map, kept.size);
	}
	assert_counted(stage, file);
	for (unsigned i = 0; i < RINGS; i++) {
		/* Close the receiver first: its reset makes the sender drop its buffers. */
		close(ends[i][1]);
		close(ends[i][0]);
	}
	assert_released(stage, file);
}

/* Keeps O_PATH fds, which permit no access but hold the inode. */
static void keep_by_path(const struct stage *stage)
{
	int paths[RINGS], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	char path[64];
	for (unsigned i = 0; i < RINGS; i++) {
		struct held_ring kept = keep(stage, file);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", kept.fds[0]);
		paths[i] = open(path, O_PATH | O_CLOEXEC);
		assert_true(paths[i] >= 0);
		forget_fds(&kept);
		munmap(kept.map, kept.size);
	}
	assert_counted(stage, file);
	for (unsigned i = 0; i < RINGS; i++)
		close(paths[i]);
	assert_released(stage, file);
}

/* The kernel must refuse an inotify watch, which would also hold the inode. */
static void watch_rings(const struct stage *stage)
{
	int socket, fds[2], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	int inotify = inotify_init1(IN_CLOEXEC);
	char path[64];
	assert_true(inotify >= 0);
	assert_int_equal(attack_open(stage, file, pipeline, &socket, fds), 0);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[i]);
		assert_int_equal(inotify_add_watch(inotify, path, IN_ALL_EVENTS), -1);
		assert_int_equal(open(path, O_RDONLY | O_CLOEXEC), -1);
		assert_int_equal(open(path, O_RDWR | O_CLOEXEC), -1);
	}
	close(socket);
}

static off_t blocks(const int fds[2])
{
	struct stat ring, ack;
	assert_int_equal(fstat(fds[0], &ring), 0);
	assert_int_equal(fstat(fds[1], &ack), 0);
	return ring.st_blocks + ack.st_blocks;
}

static void assert_refused(int socket)
{
	Loaderd__Reply *reply = attack_reply_bare(socket, NULL);
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_ERROR);
	assert_int_equal(reply->error->code, EINVAL);
	assert_non_null(strstr(reply->error->text, "read every page"));
	loaderd__reply__free_unpacked(reply, NULL);
}

static void touch(int fd, off_t from, off_t to)
{
	char *map = mmap(NULL, (size_t)to, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	for (off_t at = from; at < to; at += 4096)
		(void)*(volatile char *)(map + at);
	munmap(map, (size_t)to);
}

/* Leaves all or some pages of the rings unallocated. */
static void leave_pages_out(const struct stage *stage)
{
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned left_out = 0; left_out < 4; left_out++) {
		int fds[2], socket = attack_take_ring(stage, file, pipeline, fds);
		off_t size = lseek(fds[0], 0, SEEK_END);
		if (left_out == 1)
			touch(fds[1], 0, 4096);
		if (left_out >= 2)
			touch(fds[0], left_out == 2 ? 4096 : 0, size);
		off_t before = blocks(fds);
		attack_send_mapped(socket);
		assert_refused(socket);
		/* The kernel may drop clean pages once no process maps them. */
		assert_true(blocks(fds) <= before);
		close(socket);
		forget_fds(&(struct held_ring){.fds = {fds[0], fds[1]}});
	}
}

/*
 * Repeatedly punches out the ack page, which the daemon reads all the time: each next read by the
 * daemon would allocate the page.
 */
static void punch_ack_page(const struct stage *stage)
{
	enum { PUNCH = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE };
	int socket, fds[2], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	assert_int_equal(attack_open(stage, file, pipeline, &socket, fds), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(fallocate(fds[i], PUNCH, 0, 4096), -1);
		assert_int_equal(ftruncate(fds[i], 0), -1);
	}
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0),
			 MAP_FAILED);
	close(socket);
}

const struct attack attacks_on_memory[] = {
	{"rings kept by mappings", keep_by_mapping, NULL, NULL},
	{"rings kept by a child", keep_by_a_child, NULL, NULL},
	{"rings kept in unreceived messages", keep_in_flight, NULL, NULL},
	{"ack pages kept", keep_ack_pages, NULL, NULL},
	{"pages of rings kept in pipes", keep_in_pipes, NULL, NULL},
	{"pages of rings kept in connections", keep_in_connections, NULL, NULL},
	{"rings kept by paths", keep_by_path, NULL, NULL},
	{"rings that are watched", watch_rings, NULL, NULL},
	{"pages of rings left out", leave_pages_out, NULL, NULL},
	{"ack pages taken away", punch_ack_page, NULL, NULL},
	{0},
};
