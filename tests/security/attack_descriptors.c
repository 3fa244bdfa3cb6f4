/*
 * Passes fds that are not regular files as dataset files, and fds at the wrong time, at the wrong
 * position or in the wrong number.
 */
#include "proto/framing.h"
#include "tests/integration/loaderd/control_client.h"
#include "tests/security/attack.h"
#include "tests/security/fuse.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

/*
 * "At once" on a busy machine, less than the 12 s for which sockets linger. With a sanitizer the
 * worker takes so long to end feeds that the user stays at its limit until they have lingered: then
 * these tests only check that the daemon goes on.
 */
static uint64_t at_once_ms(void)
{
	return sanitized() ? 15000 : 1000;
}

static const char pipeline[] = "random_resized_crop(32)";

static int fifo_alone(const struct stage *stage)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%.200s/fifo", stage->alice_folder);
	unlink(path);
	if (mkfifo(path, 0600) < 0)
		return -1;
	return open(path, O_RDWR | O_CLOEXEC); /* reading from it blocks forever */
}

static int pipe_end(const struct stage *stage)
{
	int fds[2];
	return pipe2(fds, O_CLOEXEC) < 0 ? -1 : fds[0]; /* the write end stays open */
}

static int socket_end(const struct stage *stage)
{
	int fds[2];
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ? -1 : fds[0];
}

static int tcp_socket(const struct stage *stage)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int null_device(const struct stage *stage)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int zero_device(const struct stage *stage)
{
	return open("/dev/zero", O_RDONLY | O_CLOEXEC);
}

static int directory(const struct stage *stage)
{
	return open(stage->alice_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int path_only(const struct stage *stage)
{
	return open(stage->images, O_PATH | O_CLOEXEC);
}

static int write_only(const struct stage *stage)
{
	return open(stage->images, O_WRONLY | O_CLOEXEC);
}

static int event(const struct stage *stage)
{
	return eventfd(0, EFD_CLOEXEC);
}

static int an_epoll(const struct stage *stage)
{
	return epoll_create1(EPOLL_CLOEXEC);
}

static int timer(const struct stage *stage)
{
	return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
}

static int an_inotify(const struct stage *stage)
{
	return inotify_init1(IN_CLOEXEC);
}

static int pid_descriptor(const struct stage *stage)
{
	return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

static int io_ring(const struct stage *stage)
{
	uint32_t parameters[30] = {0}; /* struct io_uring_params */
	return (int)syscall(SYS_io_uring_setup, 4, parameters);
}

static int own_memory(const struct stage *stage)
{
	return open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
}

static int proc_file(const struct stage *stage)
{
	return open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
}

static int empty_memory(const struct stage *stage)
{
	return memfd_create("empty", MFD_CLOEXEC);
}

static int sparse_file(const struct stage *stage)
{
	int fd = memfd_create("sparse", MFD_CLOEXEC);
	return ftruncate(fd, (off_t)1 << 40) < 0 ? -1 : fd;
}

static int huge_pages(const struct stage *stage)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	return fd >= 0 && ftruncate(fd, (off_t)1 << 30) < 0 ? -1 : fd;
}

static int secret_memory(const struct stage *stage)
{
	int fd = (int)syscall(SYS_memfd_secret, O_CLOEXEC);
	return fd >= 0 && ftruncate(fd, (off_t)1 << 20) < 0 ? -1 : fd;
}

static int sysfs_file(const struct stage *stage)
{
	return open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
}

static int name_space(const struct stage *stage)
{
	return open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
}

static int signals(const struct stage *stage)
{
	sigset_t none;
	sigemptyset(&none);
	return signalfd(-1, &none, SFD_CLOEXEC);
}

static int message_queue(const struct stage *stage)
{
	mqd_t queue = mq_open("/loaderd-attack", O_RDONLY | O_CREAT | O_CLOEXEC, 0600, NULL);
	mq_unlink("/loaderd-attack");
	return queue;
}

static int open_userfaultfd(const struct stage *stage)
{
	enum { USER_MODE_ONLY = 1 };
	return (int)syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE_ONLY);
}

static int copy_to(int from, int fd)
{
	struct stat status;
	if (fstat(from, &status) < 0 ||
	    sendfile(fd, from, NULL, (size_t)status.st_size) != status.st_size)
		return -1;
	return fd;
}

static int good_memory(const struct stage *stage)
{
	int from = open(stage->images, O_RDONLY | O_CLOEXEC),
	    fd = copy_to(from, memfd_create("good", MFD_CLOEXEC));
	close(from);
	return fd;
}

static int file_on_tmpfs(const struct stage *stage)
{
	int from = open(stage->images, O_RDONLY | O_CLOEXEC),
	    fd = copy_to(from, open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	close(from);
	return fd;
}

static bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return done;
}

/* Mounts a file system in new user and mount namespaces. */
static bool mount_alone(const char *folder, bool overlay)
{
	static const char *const parts[] = {"lower", "upper", "work"};
	char map[32], path[PATH_MAX], options[PATH_MAX];
	snprintf(map, sizeof(map), "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
	/*
	 * A change of user clears the dumpable flag, without which the process cannot access its
	 * files in /proc.
	 */
	prctl(PR_SET_DUMPABLE, 1);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || !put("/proc/self/setgroups", "deny") ||
	    !put("/proc/self/uid_map", map) || !put("/proc/self/gid_map", map))
		return false;
	if (!overlay)
		return mount("ramfs", folder, "ramfs", 0, NULL) == 0;
	if (mount("tmpfs", folder, "tmpfs", 0, NULL) < 0)
		return false;
	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		snprintf(path, sizeof(path), "%.200s/%s", folder, parts[i]);
		if (mkdir(path, 0700) < 0)
			return false;
	}
	snprintf(options, sizeof(options),
		 "lowerdir=%.200s/lower,upperdir=%.200s/upper,workdir=%.200s/work,userxattr",
		 folder, folder, folder);
	return mount("overlay", folder, "overlay", 0, options) == 0;
}

/*
 * Opens a dataset on a file system that any user may mount. A child that shares only the fd table
 * mounts the file system. Its namespaces end when it exits, but the file stays open.
 */
static int file_on_mount(const struct stage *stage, bool overlay)
{
	char path[PATH_MAX];
	int status, from = open(stage->images, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%.200s/file", stage->alice_folder);
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		int fd = -1;
		if (mount_alone(stage->alice_folder, overlay))
			fd = copy_to(from, open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
		_exit(fd < 0 ? 0 : fd);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(from);
	return WIFEXITED(status) && WEXITSTATUS(status) > 0 ? WEXITSTATUS(status) : -1;
}

static int file_on_ramfs(const struct stage *stage)
{
	return file_on_mount(stage, false);
}

static int file_on_overlay(const struct stage *stage)
{
	return file_on_mount(stage, true);
}

static int unlinked_file(const struct stage *stage)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%.200s/nameless", stage->alice_folder);
	if (link(stage->images, path) < 0)
		return -1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unlink(path);
	return fd;
}

static const struct kind {
	const char *name;
	int (*make)(const struct stage *stage);
	bool served;
} kinds[] = {
	{"FIFO", fifo_alone, false},
	{"pipe", pipe_end, false},
	{"socket", socket_end, false},
	{"TCP socket", tcp_socket, false},
	{"/dev/null", null_device, false},
	{"/dev/zero", zero_device, false},
	{"directory", directory, false},
	{"O_PATH", path_only, false},
	{"write-only", write_only, false},
	{"eventfd", event, false},
	{"epoll", an_epoll, false},
	{"timerfd", timer, false},
	{"inotify", an_inotify, false},
	{"pidfd", pid_descriptor, false},
	{"io_uring", io_ring, false},
	{"/proc/self/mem", own_memory, false},
	{"/proc/self/maps", proc_file, false},
	{"sysfs", sysfs_file, false},
	{"namespace", name_space, false},
	{"signalfd", signals, false},
	{"message queue", message_queue, false},
	{"userfaultfd", open_userfaultfd, false},
	{"huge pages", huge_pages, false},
	{"secret memory", secret_memory, false},
	{"ramfs", file_on_ramfs, false},
	{"overlay", file_on_overlay, false},
	{"empty memfd", empty_memory, false},
	{"sparse memfd", sparse_file, false},
	{"memfd with a dataset", good_memory, true},
	{"file on tmpfs", file_on_tmpfs, true},
	{"unlinked file", unlinked_file, true},
};

/*
 * Like attack_open(), but retries while the user is at a limit: a feed counts until its worker has
 * ended it, some milliseconds after its client has hung up.
 */
static int open_within_limits(const struct stage *stage, int file, const char *text)
{
	uint64_t until_ms = attack_now_ms() + 5 * at_once_ms();
	int code;
	while ((code = attack_open(stage, file, text, NULL, NULL)) == EDQUOT &&
	       attack_now_ms() < until_ms)
		usleep(1000);
	return code;
}

/* True for a list that takes seconds to read, or has more than [limits] order_bytes. */
static bool is_huge(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 && status.st_size >= 1 << 30;
}

/* Opens a feed of the user's dataset, with a list of samples in `fd`. Retries likewise. */
static int open_with_list(const struct stage *stage, int fd)
{
	uint64_t until_ms = attack_now_ms() + 5 * at_once_ms();
	const int files[4] = {open(stage->images, O_RDONLY | O_CLOEXEC), fd, fd, fd};
	Loaderd__Choice choice = LOADERD__CHOICE__INIT;
	Loaderd__Part part = LOADERD__PART__INIT, *parts[] = {&part};
	Loaderd__OpenFeed request = LOADERD__OPEN_FEED__INIT;
	int code;
	choice.listed = true;
	part.dataset = (char *)stage->images;
	part.choice = &choice;
	request.version = PROTO_VERSION;
	request.pipeline = (char *)pipeline;
	request.batch_size = 1;
	request.slots = 2;
	request.parts = parts;
	request.n_parts = 1;
	while ((code = attack_open_order(stage, &request, files, NULL)) == EDQUOT &&
	       attack_now_ms() < until_ms)
		usleep(1000);
	close(files[0]);
	return code;
}

/*
 * Requests a feed and the dataset's description with every kind of fd, and passes it as a list. The
 * daemon must refuse each at once, or serve it.
 */
static void pass_every_kind(const struct stage *stage)
{
	uint64_t until_ms = attack_deadline();
	bool first = true;
	do {
		for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
			int fd = kinds[i].make(stage);
			if (fd < 0) {
				/* this machine does not support this kind */
				if (first)
					print_message("no %s here\n", kinds[i].name);
				continue;
			}
			uint64_t start_ms = attack_now_ms();
			int feed = open_within_limits(stage, fd, pipeline);
			int facts = open_within_limits(stage, fd, NULL);
			int list = is_huge(fd) ? EDQUOT : open_with_list(stage, fd);
			uint64_t took_ms = attack_now_ms() - start_ms;
			if ((feed == 0) != kinds[i].served || (facts == 0) != kinds[i].served)
				fail_msg("%s: answered with %d for a feed, %d for its facts",
					 kinds[i].name, feed, facts);
			if (list == 0)
				fail_msg("%s: accepted as a list", kinds[i].name);
			if (took_ms > 5 * at_once_ms())
				fail_msg("%s: answered after %llu ms", kinds[i].name,
					 (unsigned long long)took_ms);
			close(fd);
		}
		first = false;
	} while (attack_now_ms() < until_ms);
}

/*
 * While a feed of the dataset is open, passes its file as an fd without read permission: the worker
 * must not share the open dataset with a client that cannot read it.
 */
static void share_unreadable(const struct stage *stage)
{
	struct feed *feed = attack_open_feed(&stage->alice);
	for (unsigned i = 0; i < 2; i++) {
		int fd = i == 0 ? path_only(stage) : write_only(stage);
		int socket = attack_connect(stage), fds[2] = {-1, -1};
		assert_true(attack_ask(socket, stage->images, pipeline, 16));
		Loaderd__Reply *reply = attack_reply(socket, NULL);
		while (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
			(void)attack_files(socket, 0, 1, reply->need_files->direct, &fd, 1);
			loaderd__reply__free_unpacked(reply, NULL);
			reply = attack_reply(socket, fds);
		}
		if (reply && reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED)
			fail_msg("served to a client with %s descriptor",
				 i == 0 ? "an O_PATH" : "a write-only");
		loaderd__reply__free_unpacked(reply, NULL);
		close(socket);
		close(fd);
	}
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		assert_true(fixture_hash(feed, 1) != 0);
	feed_close(feed);
}

/* Retries: a user who exceeds the connection rate limit is refused for some milliseconds. */
static void open_at_once(const struct stage *stage)
{
	struct feed *feed;
	char error[FEED_ERROR_MAX];
	int r;
	uint64_t start_ms = attack_now_ms();
	while ((r = feed_open(&stage->alice, &feed, error)) == -EDQUOT &&
	       attack_now_ms() - start_ms < 2 * at_once_ms())
		usleep(1000);
	if (r < 0)
		fail_msg("another feed of the same user: %s", error);
	uint64_t took_ms = attack_now_ms() - start_ms;
	assert_true(fixture_hash(feed, 3) != 0);
	feed_close(feed);
	if (took_ms > 2 * at_once_ms())
		fail_msg("another feed of the same user was opened only after %llu ms",
			 (unsigned long long)took_ms);
}

/*
 * Sends Files{total: 1} in two parts. The fd arrives with the first byte, so the daemon holds its
 * only copy before the last byte arrives.
 */
static void pass_for_good(int socket, int fd)
{
	static const char frame[] = "\4\0\0\0\x3a\2\x10\1";
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec byte = {(char *)frame, 1};
	struct msghdr message = {.msg_iov = &byte,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), 1);
	usleep(1000);
	close(fd);
	assert_int_equal(send(socket, frame + 1, 7, MSG_NOSIGNAL), 7);
}

/*
 * Requests a feed, or a dataset's description if text is NULL, until the daemon asks for files:
 * while feeds of an earlier attack end, the user is at a limit. Returns the connection.
 */
static int ask_until_needed(const struct stage *stage, const char *text)
{
	uint64_t until_ms = attack_now_ms() + 5 * at_once_ms();
	for (;;) {
		int socket = attack_connect(stage);
		assert_true(attack_ask(socket, stage->images, text, 16));
		Loaderd__Reply *reply = attack_reply(socket, NULL);
		bool needed = reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES;
		loaderd__reply__free_unpacked(reply, NULL);
		if (needed)
			return socket;
		close(socket);
		assert_true(attack_now_ms() < until_ms);
		usleep(1000);
	}
}

static void pass_lingering_sockets(const struct stage *stage)
{
	enum { SOCKETS = 8 };
	for (unsigned i = 0; i < SOCKETS; i++) {
		int fd = lingering_socket(12);
		int socket = ask_until_needed(stage, i % 2 ? pipeline : NULL);
		pass_for_good(socket, fd);
		close(socket);
	}
	open_at_once(stage);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		open_at_once(stage);
}

/*
 * Passes fds before the daemon requests files: with messages that carry none, more than a frame may
 * carry, and on a connection that is closed immediately afterwards.
 */
static void pass_unrequested(const struct stage *stage)
{
	static const uint8_t get_status[] = {0x12, 0};
	int fds[FRAME_FDS_MAX];
	for (uint64_t until_ms = attack_deadline(), n = 0; attack_now_ms() < until_ms || n < 8;
	     n++) {
		int socket = attack_connect(stage);
		unsigned count = n % 2 ? FRAME_FDS_MAX : 1;
		if (socket < 0)
			continue;
		for (unsigned i = 0; i < FRAME_FDS_MAX; i++)
			fds[i] = n % 4 == 0 ? socket : STDERR_FILENO;
		(void)frame_send(socket, get_status, sizeof(get_status), fds, count, 1000);
		(void)attack_ask(socket, stage->images, pipeline, 16);
		(void)frame_send(socket, get_status, sizeof(get_status), fds, count, 0);
		(void)frame_send(socket, get_status, 1, fds, count, 0);
		if (n % 3 == 0)
			loaderd__reply__free_unpacked(attack_reply(socket, NULL), NULL);
		(void)frame_send(socket, get_status, sizeof(get_status), fds, count, 0);
		close(socket);
	}
	open_at_once(stage);
}

/* An invalid answer to NeedFiles. */
struct files_reply {
	uint32_t first, total;
	bool direct;
	unsigned count; /* number of fds */
	int code;       /* expected errno */
};

static void tell(const struct stage *stage, const struct files_reply *lie, int file)
{
	int fds[FRAME_FDS_MAX], code = ECONNRESET;
	int socket = attack_connect(stage);
	for (unsigned i = 0; i < FRAME_FDS_MAX; i++)
		fds[i] = file;
	assert_true(attack_ask(socket, stage->images, pipeline, 16));
	Loaderd__Reply *reply = attack_reply(socket, NULL);
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_NEED_FILES);
	loaderd__reply__free_unpacked(reply, NULL);
	assert_true(attack_files(socket, lie->first, lie->total, lie->direct, fds, lie->count));
	reply = attack_reply(socket, NULL);
	if (reply && reply->kind_case == LOADERD__REPLY__KIND_ERROR) {
		code = reply->error->code;
		if (code == EDQUOT)
			assert_non_null(strstr(reply->error->text, "[limits] shards"));
	} else if (reply) {
		code = 0;
	}
	if (code != lie->code)
		fail_msg("first %u, total %u, %u descriptors: answered with %d", lie->first,
			 lie->total, lie->count, code);
	loaderd__reply__free_unpacked(reply, NULL);
	close(socket);
}

static void send_invalid_files(const struct stage *stage)
{
	static const struct files_reply lies[] = {
		{1, 1, false, 1, ECONNRESET},
		{UINT32_MAX, 1, false, 1, ECONNRESET},
		{0, 0, false, 1, ECONNRESET},
		{0, 1, true, 1, ECONNRESET},
		{0, 1, false, 0, ECONNRESET},
		{0, 1, false, 2, ECONNRESET},
		{0, 3, false, FRAME_FDS_MAX, ECONNRESET},
		{0, 60001, false, 1, EDQUOT},
		{0, UINT32_MAX, false, 1, EDQUOT},
		{0, 2, false, 2, EBADMSG},
	};
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	uint64_t until_ms = attack_deadline();
	do
		for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++)
			tell(stage, &lies[i], file);
	while (attack_now_ms() < until_ms);
	/* Sends files that the daemon did not request. */
	int socket = attack_connect(stage);
	assert_true(attack_files(socket, 0, 1, false, NULL, 0));
	assert_null(attack_reply(socket, NULL));
	close(socket);
}

/*
 * Requests feeds but sends no files, or only some: the feeds count against the limit until their
 * connections close.
 */
static void withhold_files(const struct stage *stage)
{
	enum { FEEDS = 16 };
	int sockets[FEEDS], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < FEEDS; i++) {
		sockets[i] = attack_connect(stage);
		assert_true(attack_ask(sockets[i], stage->images, pipeline, 16));
		loaderd__reply__free_unpacked(attack_reply(sockets[i], NULL), NULL);
		if (i % 2)
			assert_true(attack_files(sockets[i], 0, 300, false, &file, 1));
	}
	assert_int_equal(attack_open(stage, file, pipeline, NULL, NULL), EDQUOT);
	usleep(attack_ms() * 1000);
	for (unsigned i = 0; i < FEEDS; i++)
		close(sockets[i]);
}

/* Passes more fds than the worker's fd table has room for. */
static void fill_the_table(const struct stage *stage)
{
	enum { SETS = 4, SHARDS = 32768 };
	int file = open(stage->images, O_RDONLY | O_CLOEXEC), fds[FRAME_FDS_MAX], sockets[SETS];
	for (unsigned i = 0; i < FRAME_FDS_MAX; i++)
		fds[i] = file;
	for (unsigned s = 0; s < SETS; s++) {
		sockets[s] = attack_connect(stage);
		assert_true(attack_ask(sockets[s], stage->images, pipeline, 16));
		Loaderd__Reply *reply = attack_reply(sockets[s], NULL);
		while (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES &&
		       reply->need_files->first < SHARDS - 1000) {
			(void)attack_files(sockets[s], reply->need_files->first, SHARDS, false, fds,
					   reply->need_files->most);
			loaderd__reply__free_unpacked(reply, NULL);
			reply = attack_reply(sockets[s], NULL);
		}
		loaderd__reply__free_unpacked(reply, NULL);
	}
	for (unsigned s = 0; s < SETS; s++)
		close(sockets[s]);
}

static struct fuse fuse;
static bool fuse_there;

static void mount_silent(struct stage *stage, enum fuse_silence silence)
{
	char folder[PATH_MAX];
	snprintf(folder, sizeof(folder), "%.200s/fuse", stage->alice_folder);
	fuse_there = fuse_start(&fuse, folder, stage->images, silence);
	if (!fuse_there)
		print_message("no FUSE here: the next row attacks nothing\n");
}

static void mount_no_reads(struct stage *stage)
{
	mount_silent(stage, FUSE_NO_READS);
}

static void mount_no_middle(struct stage *stage)
{
	mount_silent(stage, FUSE_NO_MIDDLE);
}

static void mount_no_close(struct stage *stage)
{
	mount_silent(stage, FUSE_NO_CLOSE);
}

static void unmount(struct stage *stage)
{
	if (fuse_there)
		fuse_stop(&fuse);
}

/*
 * Passes the file and exits, so that the daemon closes the last copy. Runs in a separate process,
 * which may be unable to exit until the mount is aborted.
 */
static void pass_silent_file(const struct stage *stage, const char *requested_pipeline)
{
	int ready[2];
	char byte;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char path[PATH_MAX];
		snprintf(path, sizeof(path), "%.200s/fuse/data.pimg", stage->alice_folder);
		int fd = open(path, O_RDONLY | O_CLOEXEC), socket = attack_connect(stage);
		if (fd < 0 || socket < 0 || !attack_ask(socket, path, requested_pipeline, 16))
			_exit(1);
		loaderd__reply__free_unpacked(attack_reply(socket, NULL), NULL);
		(void)attack_files(socket, 0, 1, false, &fd, 1);
		usleep(50000); /* time for the daemon to start reading it */
		ssize_t n = write(ready[1], "", 1);
		_exit(n != 1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
}

static void pass_silent_files(const struct stage *stage)
{
	enum { FILES = 6 };
	if (!fuse_there)
		return;
	for (unsigned i = 0; i < FILES; i++)
		pass_silent_file(stage, i % 2 ? pipeline : NULL);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		open_at_once(stage);
}

static void consume(const struct stage *stage, const char *path, int ready)
{
	struct feed_options options = stage->alice;
	struct feed_batch batch = {.size = sizeof(batch)};
	options.dataset = path;
	struct feed *feed = attack_open_feed(&options);
	assert_int_equal(write(ready, "", 1), 1);
	for (;;)
		if (feed_next(feed, 1000, &batch) == 0)
			feed_release(feed, &batch);
}

/* A feed whose file stops answering halfway does not delay other feeds of the same user. */
static void read_the_middle(const struct stage *stage)
{
	char path[PATH_MAX], byte;
	int ready[2];
	if (!fuse_there)
		return;
	snprintf(path, sizeof(path), "%.200s/fuse/data.pimg", stage->alice_folder);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		consume(stage, path, ready[1]);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	usleep(50000);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		open_at_once(stage);
	kill(pid, SIGKILL);
}

const struct attack attacks_with_descriptors[] = {
	{"descriptors of every kind", pass_every_kind, NULL, NULL},
	{"unreadable descriptors of a served file", share_unreadable, NULL, NULL},
	{"sockets that linger for 12 s", pass_lingering_sockets, NULL, NULL},
	{"unrequested descriptors", pass_unrequested, NULL, NULL},
	{"invalid answers to NeedFiles", send_invalid_files, NULL, NULL},
	{"files that are never sent", withhold_files, NULL, NULL},
	{"sets of tens of thousands of files", fill_the_table, NULL, NULL},
	{"a FUSE file that is never read", pass_silent_files, mount_no_reads, unmount},
	{"a FUSE file whose close() hangs", pass_silent_files, mount_no_close, unmount},
	{"a FUSE file that stops responding", read_the_middle, mount_no_middle, unmount},
	{0},
};
