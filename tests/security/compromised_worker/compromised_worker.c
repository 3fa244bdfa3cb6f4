/*
 * One user's worker is compromised and tries everything that it can; the test prints the attempts.
 * The service, which runs as an unprivileged user, must keep running, and another user's feed must
 * deliver the right batches in time. Needs root, to switch users.
 */
#include "proto/framing.h"
#include "tests/integration/loaderd/control_client.h"
#include "tests/security/compromised_worker/agent.h"
#include "tests/security/compromised_worker/peers.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
	SERVICE = 54321,
	ATTACKER,
	BYSTANDER,
	NEWCOMER, /* user who opens a feed after each attack */
	LINES_MAX = 4096,
	OPEN_MAX_MS = 1000,
	GROWTH_MAX_KIB = 16384,
	GRACE_MS = 300,
	SHARE = 4, /* the control client takes one in this many batches that it could have */
	ANSWER_WITHIN_MS = 60000,
};

struct scene {
	struct fixture fixture;
	struct feed_options options;
	char dataset[PATH_MAX], log[PATH_MAX + 16];
	struct control_client *control;
	uint64_t expected; /* hash of the newcomer's batches */
};

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Sets the effective uid, which SO_PEERCRED reports. */
static void become(uid_t uid)
{
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(seteuid(uid), 0);
}

static int connect_as(const struct scene *scene, uid_t uid)
{
	become(uid);
	int fd = fixture_connect(&scene->fixture);
	become(0);
	return fd;
}

static void send_command(int fd, const char *command)
{
	char line[512];
	int n = snprintf(line, sizeof(line), AGENT_MAGIC "%s\n", command);
	/* on failure the reply is missing, which the caller detects */
	(void)send(fd, line, (size_t)n, MSG_NOSIGNAL);
}

/*
 * Prints the lines of a reply. Returns the number of bad lines, or -1 if the worker hung up before
 * AGENT_END.
 */
static int read_answer(int fd)
{
	FILE *file = fdopen(dup(fd), "r");
	char line[1024];
	int bad = 0, all = 0;
	assert_non_null(file);
	for (;;) {
		struct timeval patience = {.tv_sec = ANSWER_WITHIN_MS / 1000};
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		if (!fgets(line, sizeof(line), file)) {
			bad = -1;
			break;
		}
		if (strcmp(line, AGENT_END "\n") == 0)
			break;
		print_message("  %s", line);
		bad += strncmp(line, "ok ", 3) != 0;
		all++;
	}
	fclose(file);
	print_message("  %d answers, %d of them bad\n", all, bad);
	return bad;
}

/* Sends a command and returns the result of read_answer(). */
static int command_once(const struct scene *scene, const char *text)
{
	print_message("%s\n", text);
	int fd = connect_as(scene, ATTACKER);
	send_command(fd, text);
	int bad = read_answer(fd);
	close(fd);
	return bad;
}

/* Retries: a user whose workers end repeatedly gets a new one at most twice a second. */
static int command(const struct scene *scene, const char *text)
{
	int bad = -1;
	for (unsigned i = 0; bad < 0 && i < 40; i++) {
		if (i > 0)
			usleep(500000);
		bad = command_once(scene, text);
	}
	return bad;
}

static unsigned long status_of(pid_t pid, const char *key)
{
	char path[64], line[256];
	unsigned long value = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, key, strlen(key)) == 0)
			value = strtoul(line + strlen(key) + 1, NULL, 10);
	fclose(file);
	return value;
}

/* Returns the CPU time used by a process. */
static uint64_t used_ms(pid_t pid)
{
	char path[64];
	unsigned long user = 0, system = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file,
				"%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				&user, &system),
			 2);
	fclose(file);
	return (user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK);
}

/* Returns the number of the service's processes, without the supervisor. */
static unsigned workers(const struct scene *scene)
{
	unsigned count = 0;
	DIR *directory = opendir("/proc");
	assert_non_null(directory);
	for (struct dirent *entry; (entry = readdir(directory));) {
		char path[300];
		struct stat status;
		int pid = atoi(entry->d_name);
		snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		if (pid <= 0 || stat(path, &status) < 0)
			continue;
		FILE *file = fopen(path, "re");
		int parent = 0;
		if (file && fscanf(file, "%*d (%*[^)]) %*c %d", &parent) == 1)
			count += parent == scene->fixture.daemon;
		if (file)
			fclose(file);
	}
	closedir(directory);
	return count;
}

/* Asserts that a new user can open a feed soon and gets the right batches. */
static void expect_others_served(struct scene *scene)
{
	int64_t start_ms = now_ms();
	become(NEWCOMER);
	struct feed *feed = fixture_open(&scene->options);
	int64_t open_ms = now_ms() - start_ms;
	assert_int_equal(fixture_hash(feed, 5), scene->expected);
	feed_close(feed);
	become(0);
	control_client_wait(scene->control, 3);
	print_message("  another user's feed opened after %lld ms; supervisor %lu KiB, %u "
		      "descriptors, %u workers\n",
		      (long long)open_ms, status_of(scene->fixture.daemon, "RssAnon:"),
		      fixture_descriptors(scene->fixture.daemon), workers(scene));
	if (!sanitized())
		assert_in_range(open_ms, 0, OPEN_MAX_MS);
}

/*
 * Kills all workers except those of the control client and the newcomer, because the attacker's
 * worker may no longer accept commands.
 */
static void kill_workers_of_attacker(const struct scene *scene, pid_t newcomer)
{
	DIR *directory = opendir("/proc");
	for (struct dirent *entry; (entry = readdir(directory));) {
		char path[300];
		int pid = atoi(entry->d_name), parent = 0;
		snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		FILE *file = pid > 0 ? fopen(path, "re") : NULL;
		if (!file)
			continue;
		if (fscanf(file, "%*d (%*[^)]) %*c %d", &parent) == 1 &&
		    parent == scene->fixture.daemon && pid != newcomer &&
		    pid != scene->control->daemon)
			kill(pid, SIGKILL);
		fclose(file);
	}
	closedir(directory);
}

static void end_worker_of_attacker(struct scene *scene)
{
	enum { TRIES = 12000, APART_US = 5000 };
	become(NEWCOMER);
	pid_t newcomer = fixture_worker(&scene->fixture);
	become(0);
	/* Repeats, because a pending connection starts another worker. */
	for (unsigned i = 0; i < TRIES && workers(scene) > 2; i++) {
		kill_workers_of_attacker(scene, newcomer);
		usleep(APART_US);
	}
	assert_int_equal(workers(scene), 2);
}

static void start(struct scene *scene)
{
	char text[32];
	snprintf(scene->log, sizeof(scene->log), "%s/log", scene->fixture.folder);
	int log = open(scene->log, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
	int kept = dup(STDERR_FILENO);
	assert_true(log >= 0 && kept >= 0);
	snprintf(text, sizeof(text), "%d", SERVICE);
	setenv("AGENT_SERVICE", text, 1);
	snprintf(text, sizeof(text), "%d", ATTACKER);
	setenv("AGENT_USER", text, 1);
	dup2(log, STDERR_FILENO);
	fixture_start(&scene->fixture, NULL, "--threads", "2", "--set", "daemon.grace_ms=300",
		      "--limit", "feeds_per_user=8", "--limit", "users=8", NULL);
	dup2(kept, STDERR_FILENO);
	close(log);
	close(kept);
}

static int set_up(void **state)
{
	static struct scene scene;
	if (geteuid() != 0)
		return 0;
	*state = &scene;
	fixture_init(&scene.fixture);
	chown(scene.fixture.folder, SERVICE, SERVICE);
	chmod(scene.fixture.folder, 0755);
	strcpy(scene.dataset, fixture_dataset(&scene.fixture, "compromised", 200, FIXTURE_JPEG, 0));
	start(&scene);
	scene.options = fixture_options(&scene.fixture, scene.dataset,
					"random_resized_crop(32) hflip(0.5)");
	become(NEWCOMER);
	struct feed *feed = fixture_open(&scene.options);
	scene.expected = fixture_hash(feed, 5);
	feed_close(feed);
	become(BYSTANDER);
	scene.control = control_client_start_as(&scene.fixture, &scene.options, 0, SHARE);
	become(0);
	return 0;
}

/* Returns the test's scene; skips the test if it could not be set up. */
static struct scene *scene_of(void **state)
{
	if (!*state) {
		print_message("not root: skipped\n");
		skip();
	}
	return *state;
}

TEST(calls)
{
	struct scene *scene = scene_of(state);
	char text[PATH_MAX + 64];
	snprintf(text, sizeof(text), "calls %d %s.admin", (int)scene->control->daemon,
		 scene->fixture.socket);
	assert_int_equal(command(scene, text), 0);
	assert_int_equal(command_once(scene, "foreign i386"), -1);
	end_worker_of_attacker(scene);
	assert_int_equal(command_once(scene, "foreign x32"), -1);
	end_worker_of_attacker(scene);
	expect_others_served(scene);
}

TEST(records)
{
	struct scene *scene = scene_of(state);
	static const char *const kinds[] = {"records giants", "records random", "records ends",
					    "records ways",   "records flood",  "rings",
					    "records halves"};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		assert_int_equal(command(scene, kinds[i]), 0);
		expect_others_served(scene);
		/* The supervisor must not answer requests of this worker to the next one. */
		end_worker_of_attacker(scene);
	}
	assert_int_equal(command(scene, "records storm"), 0);
	uint64_t before_ms = used_ms(scene->fixture.daemon);
	sleep(2);
	expect_others_served(scene);
	uint64_t used = used_ms(scene->fixture.daemon) - before_ms;
	print_message("  the supervisor used %llu ms of two seconds for it\n",
		      (unsigned long long)used);
	if (!sanitized())
		assert_in_range(used, 0, 1000);
	end_worker_of_attacker(scene);
	/* The rings of the ended worker are free again. */
	assert_int_equal(command(scene, "rings"), 0);
	end_worker_of_attacker(scene);
}

/*
 * The number of workers that report to be idle and then ignore the order to exit must be limited:
 * each new client would start one more.
 */
TEST(workers_that_ignore_the_order_to_exit)
{
	struct scene *scene = scene_of(state);
	enum { OTHERS = 2, STAYING_MAX = 4 };
	/* Beyond the limit, the service closes the user's connections. */
	for (unsigned i = 0; i < 12; i++)
		(void)command_once(scene, "records idle");
	expect_others_served(scene);
	unsigned count = workers(scene);
	assert_in_range(count, OTHERS, OTHERS + STAYING_MAX);
	for (int64_t until = now_ms() + 20000; count > 3 && now_ms() < until;
	     count = workers(scene))
		usleep(10000);
	assert_in_range(count, 2, 3);
	end_worker_of_attacker(scene);
}

/* Clients of the worker's own user, which share rings with it and read its replies. */
TEST(clients)
{
	struct scene *scene = scene_of(state);
	const struct peers peers = {scene->fixture.socket, scene->dataset, getenv("LOADERCTL"),
				    ATTACKER};
	unsigned rows = 0, bad = 0;
	int r = 0;
	while (r != -ENOENT) {
		char text[32];
		snprintf(text, sizeof(text), "bad_feed %u", rows);
		r = -EAGAIN;
		for (unsigned i = 0; r == -EAGAIN && i < 40; i++) {
			if (i > 0)
				usleep(500000);
			int fd = connect_as(scene, ATTACKER);
			send_command(fd, text);
			r = peers_try(&peers, fd);
			close(fd);
		}
		assert_int_not_equal(r, -EAGAIN);
		bad += r > 0;
		rows += r >= 0;
	}
	print_message("  %u bad feeds, %u of them bad\n", rows, bad);
	assert_int_equal(bad, 0);
	assert_true(rows > 50);
	expect_others_served(scene);
	end_worker_of_attacker(scene);
}

static void check_log(const struct scene *scene)
{
	char line[8192];
	unsigned count = 0;
	FILE *file = fopen(scene->log, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		for (const char *p = line; *p != '\0'; p++)
			if ((unsigned char)*p < ' ' || *p == 0x7f ||
			    ((unsigned char)*p == 0xc2 && (unsigned char)p[1] < 0xa0))
				fail_msg("the log has a control character: %s", line);
		if (strncmp(line, "20", 2) != 0 || !strstr(line, " loaderd: "))
			fail_msg("a line of the log that the service did not write: %s", line);
		if (strstr(line, "forged") && !strstr(line, "user 54322: "))
			fail_msg("a line of the log does not say whose it is: %s", line);
		count++;
	}
	long size = ftell(file);
	fclose(file);
	print_message("  the log has %u lines, %ld bytes\n", count, size);
	assert_true(count > 3);
	assert_in_range(size, 1, 4 << 20);
}

TEST(logs)
{
	struct scene *scene = scene_of(state);
	assert_int_equal(command(scene, "log escapes"), 0);
	assert_int_equal(command(scene, "log flood"), 0);
	expect_others_served(scene);
	end_worker_of_attacker(scene);
	check_log(scene);
}

/* Checks that loaderctl's output is safe for a terminal. */
static void check_status(const struct scene *scene, const char *format)
{
	char line[4096];
	size_t size = 0;
	int status;
	snprintf(line, sizeof(line), "exec %.900s --socket %.900s status --all %s",
		 getenv("LOADERCTL"), scene->fixture.socket, format);
	FILE *file = popen(line, "re");
	assert_non_null(file);
	for (int c; (c = fgetc(file)) != EOF; size++)
		if ((c < ' ' && c != '\n') || c == 0x7f)
			fail_msg("loaderctl prints character %d", c);
	status = pclose(file);
	print_message("  loaderctl status --all %s: %zu bytes\n", format, size);
	assert_int_equal(status, 0);
	assert_in_range(size, 500, 1 << 20);
}

TEST(pages)
{
	struct scene *scene = scene_of(state);
	static const char *const kinds[] = {"page torn", "page changing"};
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(command(scene, kinds[i]), 0);
		for (unsigned n = 0; n < 10; n++)
			check_status(scene, n % 2 == 0 ? "" : "--json");
		expect_others_served(scene);
	}
	end_worker_of_attacker(scene);
}

TEST(exhaustion)
{
	struct scene *scene = scene_of(state);
	if (!sanitized())
		assert_int_equal(command(scene, "memory 1099511627776"), 0);
	end_worker_of_attacker(scene);
	if (!sanitized())
		assert_int_equal(command(scene, "threads 20000"), 0);
	expect_others_served(scene);
	end_worker_of_attacker(scene);
	assert_int_equal(command(scene, "spin 8"), 0);
	expect_others_served(scene);
	end_worker_of_attacker(scene);
}

/* A worker stops reading. Only the clients of its user have to wait, and they are disconnected. */
TEST(silence)
{
	struct scene *scene = scene_of(state);
	enum { CONNECTIONS = 1000 };
	static int fds[CONNECTIONS];
	assert_int_equal(command(scene, "silence"), 0);
	unsigned refused = 0;
	for (unsigned i = 0; i < CONNECTIONS; i++)
		fds[i] = connect_as(scene, ATTACKER);
	expect_others_served(scene);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		struct pollfd p = {.fd = fds[i], .events = POLLIN};
		refused += poll(&p, 1, 0) == 1;
		close(fds[i]);
	}
	print_message("  %u of %d connections hung up on\n", refused, CONNECTIONS);
	assert_in_range(refused, 1, CONNECTIONS);
	end_worker_of_attacker(scene);
}

/*
 * Makes the supervisor the last owner of a connection with an unread socket whose last close blocks
 * for a minute.
 */
static void pass_blocking_connection(const struct scene *scene)
{
	int fd = -1, lingering = lingering_socket(60);
	char byte;
	for (unsigned i = 0; i < 40; i++) {
		if (i > 0)
			usleep(500000);
		fd = connect_as(scene, ATTACKER);
		send_command(fd, "leave");
		if (recv(fd, &byte, 1, MSG_PEEK) == 1)
			break;
		close(fd);
	}
	assert_int_equal(frame_send(fd, (const uint8_t *)"x", 1, &lingering, 1, 1000), 0);
	close(lingering);
	assert_int_equal(read_answer(fd), 0); /* the worker closes the connection next */
	usleep(20000);
	close(fd);
}

/*
 * The supervisor's close of such a connection may block. That must not delay closing other fds, or
 * the service runs out of fds.
 */
TEST(leaving)
{
	struct scene *scene = scene_of(state);
	enum { LEFT = 4, MORE = 500, OTHERS = 20, CLOSED_WITHIN_MS = 10000 };
	unsigned before = fixture_descriptors(scene->fixture.daemon), open;
	for (unsigned i = 0; i < LEFT; i++)
		pass_blocking_connection(scene);
	for (unsigned i = 0; i < MORE; i++)
		close(connect_as(scene, ATTACKER));
	expect_others_served(scene);
	int64_t start_ms = now_ms();
	while ((open = fixture_descriptors(scene->fixture.daemon)) > before + OTHERS &&
	       now_ms() < start_ms + CLOSED_WITHIN_MS)
		usleep(10000);
	print_message("  %u descriptors before, %u after %lld ms\n", before, open,
		      (long long)(now_ms() - start_ms));
	assert_in_range(open, 1, before + OTHERS);
	end_worker_of_attacker(scene);
}

/* A worker that ignores the order to drain is killed. */
TEST(stubbornness)
{
	struct scene *scene = scene_of(state);
	assert_int_equal(command(scene, "spin 1"), 0);
	become(BYSTANDER);
	control_client_finish(scene->control);
	become(0);
	int64_t start_ms = now_ms();
	assert_int_equal(fixture_stop(&scene->fixture, SIGTERM), 0);
	print_message("  stopped after %lld ms\n", (long long)(now_ms() - start_ms));
	assert_in_range(now_ms() - start_ms, GRACE_MS, 30000);
}

/* Returns true if a request as this user is answered in time. Leaves the connection open. */
static bool is_answered(const struct scene *scene, uid_t uid, int within_ms)
{
	static const uint8_t get_status[] = {0x12, 0};
	int fd = connect_as(scene, uid);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char byte;
	(void)frame_send(fd, get_status, sizeof(get_status), NULL, 0, 0);
	return poll(&p, 1, within_ms) == 1 && recv(fd, &byte, 1, MSG_PEEK) == 1;
}

/*
 * Few fds: connections that a worker does not accept are in flight or pending. The service limits
 * both kinds by the number of fds that all its processes may have.
 */
TEST(silent_worker_with_few_fds)
{
	struct scene *scene = scene_of(state);
	enum { CONNECTIONS = 300, OTHERS = 5 };
	static int fds[CONNECTIONS];
	scene->fixture.descriptors = 200;
	start(scene);
	/* The worker is started first, which takes longer on a busy machine. */
	assert_true(is_answered(scene, BYSTANDER, ANSWER_WITHIN_MS));
	pid_t worker = fixture_worker_of(&scene->fixture, BYSTANDER);
	assert_int_equal(command(scene, "silence"), 0);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		fds[i] = connect_as(scene, ATTACKER);
	unsigned answered = 0;
	for (unsigned i = 0; i < OTHERS; i++)
		answered += is_answered(scene, BYSTANDER, OPEN_MAX_MS);
	print_message(
		"  %u of %d connections of another user's answered; supervisor %u descriptors\n",
		answered, OTHERS, fixture_descriptors(scene->fixture.daemon));
	assert_int_equal(answered, OTHERS);
	assert_int_equal(fixture_worker_of(&scene->fixture, BYSTANDER), worker);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		close(fds[i]);
	assert_true(fixture_stop(&scene->fixture, SIGTERM) == 0);
}

static int tear_down(void **state)
{
	if (*state)
		fixture_deinit(&((struct scene *)*state)->fixture);
	return 0;
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return test_run(set_up, tear_down);
}
