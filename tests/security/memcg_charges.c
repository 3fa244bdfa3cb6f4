/*
 * Which cgroup is charged for the pages of datasets and rings, and for replies. The service runs in
 * a memory cgroup and may grant more ring memory than the cgroup's limit. ALICE makes the worker
 * read sparse in-memory files, takes rings without touching them, and requests replies without
 * reading them. She keeps them all, in total more than the limit. Pages that the worker touches
 * first would be charged to the service's cgroup until its OOM killer acts. BOB's feed must
 * continue, no worker may end, and afterwards the charge must be about the same as before.
 */
#include "format/base/system/io.h"
#include "format/packimg.h"
#include "proto/framing.h"
#include "tests/dataset.h"
#include "tests/integration/loaderd/control_client.h"
#include "tests/security/attack.h"
#include "tests/security/memcg.h"
#include "tests/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
	SIDE = 1024,
	IMAGES = 20, /* 3 MiB of zeroes each, 60 MiB per file */
	FILES = 20,  /* 1.2 GiB in total */
	MIB_MAX = 900,
	/* Tolerated increase of the charge: heaps of the workers, and kernel memory for them. */
	LEFT_MIB = 32,
	WARM_BATCHES = 4,
	PATIENCE_MS = 60000,
	METADATA = 200 << 10, /* bytes of metadata, so that replies are long */
	SKIPPED = 77,
};

static struct memcg group;
static struct stage here;
static pid_t owner;

static int used_mib(void)
{
	return (int)(memcg_usage(&group) >> 20);
}

/* Writes a dataset of black images, which can be stored as holes. */
static void write_black(const char *path)
{
	static const uint8_t black[SIDE * SIDE * 3];
	static char text[METADATA + 1];
	const struct packimg_item item = test_item(black, SIDE, SIDE);
	struct test_dataset data;
	test_dataset_begin(&data, path, 0);
	for (unsigned i = 0; i < IMAGES; i++)
		test_dataset_add(&data, &item);
	memset(text, 'x', METADATA);
	assert_int_equal(packimg_writer_metadata(data.writer, "text", text, NULL), 0);
	test_dataset_finish(&data);
	assert_int_equal(chmod(path, 0444), 0);
}

static int new_memfd(void)
{
	return memfd_create("sparse", MFD_CLOEXEC);
}

static int new_file_on_tmpfs(void)
{
	return open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* Copies the dataset and makes each page of zeroes a hole. */
static int new_sparse(const char *black, int (*new_file)(void))
{
	enum { PAGE = 4096 };
	static const uint8_t zeroes[PAGE];
	uint8_t page[PAGE];
	struct stat status;
	int from = open(black, O_RDONLY | O_CLOEXEC), to = new_file();
	assert_true(from >= 0 && to >= 0);
	assert_int_equal(fstat(from, &status), 0);
	assert_int_equal(ftruncate(to, status.st_size), 0);
	for (off_t at = 0; at < status.st_size; at += PAGE) {
		int64_t size = io_read_at(from, page, PAGE, (uint64_t)at);
		assert_true(size > 0);
		if (memcmp(page, zeroes, (size_t)size) != 0)
			assert_int_equal(pwrite(to, page, (size_t)size, at), size);
	}
	close(from);
	return to;
}

/* Makes the service read the whole file `epochs` times. */
static struct feed *open_over(const struct stage *stage, int file, uint64_t epochs)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	struct feed_options options = fixture_options(&stage->fixture, path, "resize(8x8)");
	options.batch_size = 4;
	options.epoch_end = epochs;
	return fixture_open(&options);
}

static void read_all(struct feed *feed)
{
	while (fixture_hash_next(feed) != 0)
		;
	feed_close(feed);
}

static void read_sparse_memfds(const struct stage *stage, const char *black, unsigned files)
{
	for (unsigned i = 0; i < files; i++)
		read_all(open_over(stage, new_sparse(black, new_memfd), 1));
}

static void read_sparse_files(const struct stage *stage, const char *black, unsigned files)
{
	for (unsigned i = 0; i < files; i++)
		read_all(open_over(stage, new_sparse(black, new_file_on_tmpfs), 1));
}

/*
 * ALICE allocates all pages before the worker reads the file. Then she punches them out repeatedly
 * while the worker reads: the images must still be black.
 */
static void read_while_holes_are_made(const struct stage *stage, const char *black, unsigned files)
{
	enum { EPOCHS = 6, HOLES = IMAGES / 4 * 2 };
	for (unsigned i = 0; i < files; i++) {
		int file = new_sparse(black, new_memfd);
		struct stat status;
		const off_t first = SIDE * SIDE; /* keep the header and the pages after the range */
		const off_t size = (off_t)(IMAGES - 1) * SIDE * SIDE * 3 - first;
		assert_int_equal(fstat(file, &status), 0);
		assert_int_equal(fallocate(file, 0, 0, status.st_size), 0);
		struct feed *feed = open_over(stage, file, EPOCHS);
		for (unsigned batch = 0; batch < HOLES; batch++) {
			assert_int_equal(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						   first, size),
					 0);
			assert_true(fixture_hash_next(feed) != 0);
		}
		read_all(feed);
	}
}

/* Takes rings of 100 MiB and reports them as mapped without touching any page. */
static void take_untouched_rings(const struct stage *stage, const char *black, unsigned files)
{
	int file = open(black, O_RDONLY | O_CLOEXEC);
	assert_true(file >= 0);
	for (unsigned i = 0; i < files; i++) {
		int fds[2], socket = attack_take_ring(stage, file, "resize(1500x1500)", fds);
		attack_send_mapped(socket);
		Loaderd__Reply *reply = attack_reply_bare(socket, NULL);
		/* Leaves the connection and the ring's fds open. */
		assert_true(!reply || reply->kind_case == LOADERD__REPLY__KIND_ERROR);
		loaderd__reply__free_unpacked(reply, NULL);
	}
}

/*
 * The service closes each connection once the client stops sending; ALICE's end stays open. The
 * service closes connections beyond the limit for unread replies without a reply.
 */
static void leave_replies_unread(const struct stage *stage, const char *black, unsigned files)
{
	enum { CONNECTIONS = 150, REQUESTS = 400 };
	static const uint8_t get_status[] = {0x12, 0};
	for (unsigned i = 0; i < files * CONNECTIONS; i++) {
		int socket = attack_connect(stage), sent = 0;
		assert_true(socket >= 0);
		while (sent < REQUESTS &&
		       frame_send(socket, get_status, sizeof(get_status), NULL, 0, 0) == 0)
			sent++;
		shutdown(socket, SHUT_WR);
		struct pollfd hangup = {.fd = socket};
		assert_int_equal(poll(&hangup, 1, PATIENCE_MS), 1);
	}
}

static void recv_all(int socket, void *data, size_t size)
{
	assert_int_equal(recv(socket, data, size, MSG_WAITALL), size);
}

/* Splices up to `size` bytes into the pipe; returns the number that it accepted. */
static uint32_t move(int socket, int pipe, uint32_t size)
{
	struct pollfd both[] = {{.fd = socket, .events = POLLIN}, {.fd = pipe, .events = POLLOUT}};
	uint32_t moved = 0;
	while (moved < size && poll(&both[0], 1, PATIENCE_MS) == 1 && poll(&both[1], 1, 0) == 1) {
		ssize_t n = splice(socket, NULL, pipe, NULL, size - moved, SPLICE_F_NONBLOCK);
		assert_true(n > 0 || errno == EAGAIN);
		moved += n > 0 ? (uint32_t)n : 0;
	}
	return moved;
}

/*
 * Splices the pages of long replies from the connection into pipes, up to their capacity, and reads
 * the rest. A page in a pipe stays charged to the sender's cgroup.
 */
static void splice_replies(const struct stage *stage, const char *black, unsigned files)
{
	enum { PIPES = 40 };
	static uint8_t rest[METADATA + 4096];
	int file = open(black, O_RDONLY | O_CLOEXEC), socket = attack_connect(stage);
	assert_true(file >= 0 && socket >= 0);
	for (unsigned i = 0; i < files * PIPES; i++) {
		int pipe_fds[2];
		uint32_t size;
		assert_true(attack_ask(socket, black, NULL, 0));
		Loaderd__Reply *reply = attack_reply_bare(socket, NULL);
		assert_true(reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES);
		loaderd__reply__free_unpacked(reply, NULL);
		assert_true(attack_files(socket, 0, 1, false, &file, 1));
		recv_all(socket, &size, sizeof(size));
		assert_in_range(size, METADATA, sizeof(rest));
		assert_int_equal(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
		recv_all(socket, rest, size - move(socket, pipe_fds[1], size));
	}
}

/* BOB's client; counts its batches in memory shared with the test. */
static pid_t consume(const struct feed_options *options, _Atomic unsigned *taken)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	fixture_become(BOB);
	struct feed *feed = fixture_open(options);
	for (;;) {
		struct feed_batch batch = {.size = sizeof(batch)};
		if (feed_next(feed, PATIENCE_MS, &batch) != 0 || feed_release(feed, &batch) != 0)
			_exit(1);
		atomic_fetch_add(taken, 1);
	}
}

static void wait_for(const _Atomic unsigned *taken, unsigned count)
{
	uint64_t until_ms = attack_now_ms() + PATIENCE_MS;
	while (atomic_load(taken) < count) {
		if (attack_now_ms() > until_ms)
			fail_msg("BOB gets no batches: %u", atomic_load(taken));
		usleep(1000);
	}
}

/* Starts a process of ALICE, which stops itself when run() returns and keeps its files open. */
static pid_t start_alice(const struct stage *stage, const char *black,
			 void (*run)(const struct stage *, const char *, unsigned), unsigned files)
{
	struct rlimit descriptors;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		assert_int_equal(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
		descriptors.rlim_cur = descriptors.rlim_max;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
		run(stage, black, files);
		raise(SIGSTOP);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	if (!WIFSTOPPED(status))
		fail_msg("ALICE was not served: status %#x", (unsigned)status);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static const struct row {
	const char *name;
	void (*run)(const struct stage *stage, const char *black, unsigned files);
} rows[] = {
	{"sparse memfds", read_sparse_memfds},
	{"sparse files on a tmpfs", read_sparse_files},
	{"holes punched while the worker reads", read_while_holes_are_made},
	{"rings that are opened but not touched", take_untouched_rings},
	{"replies that are never read", leave_replies_unread},
	{"replies that are moved into pipes", splice_replies},
};

/*
 * Runs one row. Returns false if the memory is charged to the service or another process is
 * affected.
 */
static bool run_row(struct stage *stage, const struct row *row, const char *black,
		    const _Atomic unsigned *taken)
{
	pid_t bob_folder = fixture_worker_of(&stage->fixture, BOB);
	/* Warm up, so that heaps have their final size. */
	end(start_alice(stage, black, row->run, 1));
	pid_t alice_folder = fixture_worker_of(&stage->fixture, ALICE);
	int before = used_mib();
	unsigned batches = atomic_load(taken);
	pid_t alice = start_alice(stage, black, row->run, FILES);
	int after = used_mib();
	bool ended = fixture_worker_of(&stage->fixture, BOB) != bob_folder ||
		     fixture_worker_of(&stage->fixture, ALICE) != alice_folder;
	if (waitpid(stage->fixture.daemon, NULL, WNOHANG) != 0) {
		stage->fixture.daemon = 0;
		fail_msg("%s: the supervisor has ended", row->name);
	}
	wait_for(taken, batches + WARM_BATCHES);
	print_message("%-44s %4d MiB before, %4d after; BOB %u batches%s\n", row->name, before,
		      after, atomic_load(taken) - batches, ended ? "; A WORKER HAS ENDED" : "");
	end(alice);
	return !ended && after <= before + LEFT_MIB;
}

TEST(memory_kept_by_clients_is_not_charged_to_the_service)
{
	char black[PATH_MAX];
	unsigned bad = 0;
	_Atomic unsigned *taken = mmap(NULL, sizeof(*taken), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(taken != MAP_FAILED);
	attack_stage(&here);
	snprintf(black, sizeof(black), "%.200s/black.pimg", here.fixture.folder);
	write_black(black);
	memcg_enter(&group);
	fixture_start(&here.fixture, NULL, "--threads", "2", "--set", "daemon.idle_ms=600000",
		      "--limit", "shared_memory=32G", NULL);
	memcg_leave(&group);
	pid_t bob = consume(&here.bob, taken);
	wait_for(taken, WARM_BATCHES);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		bad += !run_row(&here, &rows[i], black, taken);
	assert_int_equal(waitpid(bob, NULL, WNOHANG), 0);
	end(bob);
	assert_int_equal(fixture_stop(&here.fixture, SIGTERM), 0);
	assert_int_equal(bad, 0);
}

static int tear_down(void **state)
{
	/* A child whose assertion failed also calls this function. */
	if (getpid() != owner)
		return 0;
	fixture_deinit(&here.fixture);
	memcg_free(&group);
	return 0;
}

int main(void)
{
	owner = getpid();
	if (geteuid() != 0) {
		print_message("needs root, to be several users in turn\n");
		return SKIPPED;
	}
	if (sanitized()) {
		print_message("a sanitizer keeps memory that was freed\n");
		return SKIPPED;
	}
	if (!memcg_new(&group, "loaderd-charges", (uint64_t)MIB_MAX << 20)) {
		print_message("needs a memory control group, in which it may make another\n");
		return SKIPPED;
	}
	return test_run(NULL, tear_down);
}
