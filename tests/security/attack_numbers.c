/*
 * Floods, slow or unfinished requests, and other ways in which a process can disturb processes of
 * another user.
 */
#include "proto/framing.h"
#include "tests/security/attack.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { FLOODERS = 4, CONNECTIONS = 60 };

static const char pipeline[] = "random_resized_crop(32)";

/* Runs the function in several processes at the same time. */
static void together(const struct stage *stage, void (*run)(const struct stage *stage))
{
	pid_t pids[FLOODERS];
	for (unsigned i = 0; i < FLOODERS; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run(stage);
			_exit(0);
		}
	}
	for (unsigned i = 0; i < FLOODERS; i++) {
		int status;
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
}

static void connect_and_leave(const struct stage *stage)
{
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;) {
		int fd = attack_connect_now(stage);
		if (fd >= 0)
			close(fd);
	}
}

static void flood_with_connections(const struct stage *stage)
{
	together(stage, connect_and_leave);
}

/* Opens many more connections than one user may have, and sends nothing on any of them. */
static void hold_idle_connections(const struct stage *stage)
{
	enum { MANY = 600 };
	static int fds[MANY];
	for (unsigned i = 0; i < MANY; i++)
		fds[i] = attack_connect_now(stage);
	for (uint64_t until_ms = attack_deadline(), i = 0; attack_now_ms() < until_ms; i++) {
		/* Reopens refused connections. */
		if (fds[i % MANY] >= 0)
			close(fds[i % MANY]);
		fds[i % MANY] = attack_connect_now(stage);
		usleep(100);
	}
	for (unsigned i = 0; i < MANY; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void half_frames(const struct stage *stage)
{
	static uint8_t large[1 << 20];
	int fds[CONNECTIONS];
	/* length prefix of a 1 MiB frame; all but its last bytes follow */
	memcpy(large, "\0\0\x10\0", 4);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		fds[i] = attack_connect(stage);
		for (size_t sent = 0; fds[i] >= 0 && sent < (i % 3 == 0 ? sizeof(large) : i % 3);) {
			size_t part = i % 3 == 0 ? sizeof(large) - sent : i % 3;
			ssize_t n = send(fds[i], large + sent, part, MSG_NOSIGNAL);
			if (n < 0)
				break;
			sent += (size_t)n;
		}
	}
	usleep(attack_ms() * 1000);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Sends a 1 MiB frame byte by byte on every connection. */
static void send_bytewise(const struct stage *stage)
{
	int fds[CONNECTIONS];
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		fds[i] = attack_connect(stage);
		if (fds[i] >= 0)
			(void)send(fds[i], "\0\0\x10\0", 4, MSG_NOSIGNAL);
	}
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		for (unsigned i = 0; i < CONNECTIONS; i++)
			if (fds[i] >= 0)
				(void)send(fds[i], "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Sends requests on every connection for as long as the socket accepts them, and reads no reply. */
static void ask_and_not_listen(const struct stage *stage)
{
	static uint8_t many[6 * 500];
	int fds[CONNECTIONS];
	for (size_t i = 0; i < sizeof(many); i += 6)
		memcpy(many + i, "\2\0\0\0\x12\0", 6);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		fds[i] = attack_connect(stage);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		for (unsigned i = 0; i < CONNECTIONS; i++)
			if (fds[i] >= 0)
				(void)send(fds[i], many, sizeof(many), MSG_NOSIGNAL | MSG_DONTWAIT);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/*
 * Sends doorbells for the duration of an attack; drops those that do not fit into the socket
 * buffer.
 */
static void send_doorbells(int socket)
{
	static uint8_t many[6 * 1000];
	for (size_t i = 0; i < sizeof(many); i += 6)
		memcpy(many + i, "\2\0\0\0\x22\0", 6);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		(void)send(socket, many, sizeof(many), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Uses a connection with a feed, so that the daemon has to handle each doorbell. */
static void ring_doorbells(const struct stage *stage)
{
	int fds[2], socket, file = open(stage->images, O_RDONLY | O_CLOEXEC);
	if (attack_open(stage, file, pipeline, &socket, fds) != 0)
		fail_msg("no feed");
	(void)send(socket, "\2\0\0\0\x32\0", 6, MSG_NOSIGNAL);
	send_doorbells(socket);
}

/*
 * Baseline without a daemon: the peer never reads, just as a worker soon stops reading from a
 * client that sends this many doorbells.
 */
static void fill_a_socket(const struct stage *stage)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	send_doorbells(pair[0]);
}

static void fill_sockets(const struct stage *stage)
{
	together(stage, fill_a_socket);
}

static void flood_with_doorbells(const struct stage *stage)
{
	together(stage, ring_doorbells);
}

/* Hangs up without waiting for the reply. */
static void open_and_leave(const struct stage *stage)
{
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (uint64_t until_ms = attack_deadline(), n = 0; attack_now_ms() < until_ms; n++)
		(void)attack_open(stage, file, n % 2 ? pipeline : NULL, NULL, NULL);
}

static void flood_with_requests(const struct stage *stage)
{
	together(stage, open_and_leave);
}

/* Sends requests for a dataset's description one after the other, on connections that stay open. */
static void flood_with_questions(const struct stage *stage)
{
	int fds[CONNECTIONS], file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		fds[i] = attack_connect(stage);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			if (fds[i] < 0 || !attack_ask(fds[i], stage->images, NULL, 0))
				continue;
			loaderd__reply__free_unpacked(attack_reply(fds[i], NULL), NULL);
			(void)attack_files(fds[i], 0, 1, false, &file, 1);
			loaderd__reply__free_unpacked(attack_reply(fds[i], NULL), NULL);
		}
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

enum { WANT_SAMPLES = 4096 };

/* Opens a wanted feed with batches of up to WANT_SAMPLES. Returns the socket; -1 if refused. */
static int open_wanted(const struct stage *stage, int file)
{
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	int socket = attack_connect(stage);
	if (socket < 0)
		return -1;
	open.version = PROTO_VERSION_OLDEST;
	open.dataset = (char *)stage->images;
	open.pipeline = (char *)"resize(8x8)";
	open.batch_size = WANT_SAMPLES;
	open.slots = 2;
	open.wanted = true;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	Loaderd__Reply *reply =
		attack_send(socket, &request, NULL, 0) ? attack_reply(socket, NULL) : NULL;
	while (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
		bool passed = attack_files(socket, reply->need_files->first, 1,
					   reply->need_files->direct, &file, 1);
		loaderd__reply__free_unpacked(reply, NULL);
		reply = passed ? attack_reply(socket, NULL) : NULL;
	}
	bool opened = reply && reply->kind_case == LOADERD__REPLY__KIND_FEED_OPENED;
	loaderd__reply__free_unpacked(reply, NULL);
	if (opened)
		return socket;
	close(socket);
	return -1;
}

/* Encodes a frame with a Want of the same sample, WANT_SAMPLES times. Returns its size. */
static size_t encode_want(uint8_t *frame, uint64_t *samples)
{
	Loaderd__Want want = LOADERD__WANT__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	want.epoch = UINT64_MAX;
	want.samples = samples;
	want.n_samples = WANT_SAMPLES;
	request.kind_case = LOADERD__REQUEST__KIND_WANT;
	request.want = &want;
	uint32_t size = (uint32_t)loaderd__request__pack(&request, frame + sizeof(size));
	memcpy(frame, &size, sizeof(size));
	return sizeof(size) + size;
}

/*
 * Sends Wants without ever taking a batch. Sends Forgets in between. Every other feed exceeds the
 * number of waiting Wants, which ends it.
 */
static void want_and_forget(const struct stage *stage)
{
	static uint64_t samples[WANT_SAMPLES];
	static uint8_t frame[3 * WANT_SAMPLES];
	static const uint8_t forget[] = "\2\0\0\0\x4a\0";
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	size_t size = encode_want(frame, samples);
	unsigned opened = 0;
	for (uint64_t until_ms = attack_deadline(), n = 0; attack_now_ms() < until_ms; n++) {
		int socket = open_wanted(stage, file);
		if (socket < 0)
			continue;
		opened++;
		for (unsigned i = 0; i < 1000 && attack_now_ms() < until_ms; i++) {
			if (send(socket, frame, size, MSG_NOSIGNAL) < 0)
				break; /* the daemon has hung up */
			for (unsigned j = 0; n % 2 == 0 && i >= 15 && j < 1000; j++)
				(void)send(socket, forget, 6, MSG_NOSIGNAL | MSG_DONTWAIT);
		}
		close(socket);
	}
	assert_true(opened > 0);
}

static void flood_with_wants(const struct stage *stage)
{
	together(stage, want_and_forget);
}

/* Stops clients that hold batches with a signal. */
static void stop_clients(const struct stage *stage)
{
	pid_t pids[FLOODERS];
	for (unsigned i = 0; i < FLOODERS; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] > 0)
			continue;
		struct feed_batch batch = {.size = sizeof(batch)};
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		struct feed *feed = attack_open_feed(&stage->alice);
		for (unsigned held = 0; held < i; held++)
			assert_int_equal(feed_next(feed, 10000, &batch), 0);
		raise(SIGSTOP);
	}
	usleep(attack_ms() * 1000);
	for (unsigned i = 0; i < FLOODERS; i++) {
		int status;
		assert_int_equal(waitpid(pids[i], &status, WUNTRACED), pids[i]);
		assert_true(WIFSTOPPED(status));
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

/* ALICE opens as many feeds as she may have; her status lists only her own. */
static void take_all_feeds(const struct stage *stage)
{
	enum { FEEDS = 16 };
	struct feed *feeds[FEEDS], *more;
	struct feed_options options = stage->alice;
	options.slots = 2;
	for (unsigned i = 0; i < FEEDS; i++) {
		feeds[i] = attack_open_feed(&options);
		/* the status lists a feed once it has delivered its first batch */
		assert_true(fixture_hash(feeds[i], 1) != 0);
	}
	assert_int_equal(feed_open(&options, &more, NULL), -EDQUOT);
	Loaderd__Reply *reply = fixture_status(&stage->fixture);
	assert_int_equal(reply->status->n_feeds, FEEDS);
	uint64_t bytes = 0;
	for (size_t i = 0; i < reply->status->n_feeds; i++) {
		assert_int_equal(reply->status->feeds[i]->uid, ALICE);
		assert_string_equal(reply->status->feeds[i]->dataset, stage->images);
		bytes += reply->status->feeds[i]->bytes;
	}
	assert_int_equal(reply->status->shared_bytes, bytes);
	loaderd__reply__free_unpacked(reply, NULL);
	usleep(attack_ms() * 1000);
	for (unsigned i = 0; i < FEEDS; i++)
		feed_close(feeds[i]);
}

/*
 * Sends signals and tries other operations that require permission over a process. Each must fail
 * with the expected errno.
 */
static void attack_process(pid_t pid)
{
	static const int signals[] = {0, SIGTERM, SIGKILL, SIGSTOP, SIGHUP, SIGUSR1};
	const struct rlimit limit = {1, 1};
	char path[64], byte;
	struct iovec ours = {&byte, 1}, theirs = {(void *)(uintptr_t)4096, 1};
	unsigned long cpus = 1;
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		assert_int_equal(kill(pid, signals[i]), -1);
		assert_int_equal(errno, EPERM);
		assert_true(pidfd < 0 ||
			    syscall(SYS_pidfd_send_signal, pidfd, signals[i], NULL, 0) < 0);
	}
	assert_true(pidfd < 0 || syscall(SYS_pidfd_getfd, pidfd, 3, 0) < 0);
	assert_true(ptrace(PTRACE_ATTACH, pid, NULL, NULL) < 0);
	assert_true(process_vm_readv(pid, &ours, 1, &theirs, 1, 0) < 0 && errno == EPERM);
	assert_true(setpriority(PRIO_PROCESS, (id_t)pid, 19) < 0);
	assert_true(syscall(SYS_sched_setaffinity, pid, sizeof(cpus), &cpus) < 0 && errno == EPERM);
	assert_true(syscall(SYS_prlimit64, pid, RLIMIT_NOFILE, &limit, NULL) < 0 && errno == EPERM);
	static const char *const files[] = {"mem", "environ", "maps", "fd", "map_files", "exe"};
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
		assert_true(open(path, O_RDONLY | O_CLOEXEC) < 0);
	}
	if (pidfd >= 0)
		close(pidfd);
}

static void attack_processes(const struct stage *stage)
{
	pid_t workers[] = {fixture_worker_of(&stage->fixture, ALICE),
			   fixture_worker_of(&stage->fixture, BOB), stage->fixture.daemon};
	char admin[PATH_MAX];
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		for (size_t i = 0; i < sizeof(workers) / sizeof(*workers); i++)
			attack_process(workers[i]);
	/* Attacks the administrator's socket and the public one. */
	snprintf(admin, sizeof(admin), "%.200s.admin", stage->fixture.socket);
	assert_true(access(admin, R_OK) < 0 && access(admin, W_OK) < 0);
	assert_true(unlink(stage->fixture.socket) < 0 && unlink(admin) < 0);
	int socket = attack_connect(stage);
	assert_int_equal(frame_send(socket, (const uint8_t *)"\x2a\0", 2, NULL, 0, 1000), 0);
	Loaderd__Reply *reply = attack_reply(socket, NULL); /* reply to Shutdown */
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_ERROR);
	assert_int_equal(reply->error->code, EPERM);
	loaderd__reply__free_unpacked(reply, NULL);
	close(socket);
}

const struct attack attacks_by_numbers[] = {
	{"connections at full speed", flood_with_connections, NULL, NULL, .processes = FLOODERS,
	 .without_daemon = flood_with_connections},
	{"idle connections", hold_idle_connections, NULL, NULL},
	{"incomplete frames", half_frames, NULL, NULL},
	{"frames byte by byte", send_bytewise, NULL, NULL, .without_daemon = send_bytewise},
	{"requests without reading replies", ask_and_not_listen, NULL, NULL,
	 .without_daemon = ask_and_not_listen},
	{"doorbells", flood_with_doorbells, NULL, NULL, .processes = FLOODERS,
	 .without_daemon = fill_sockets},
	{"OpenFeed and GetDataset at full speed", flood_with_requests, NULL, NULL,
	 .processes = FLOODERS},
	{"GetDataset on many connections", flood_with_questions, NULL, NULL},
	{"Wants and Forgets at full speed", flood_with_wants, NULL, NULL, .processes = FLOODERS},
	{"stopped clients", stop_clients, NULL, NULL},
	{"all feeds that one user may have", take_all_feeds, NULL, NULL},
	{"signals, tracing, and the administrator's socket", attack_processes, NULL, NULL},
	{0},
};
