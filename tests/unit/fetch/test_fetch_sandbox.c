/*
 * What a fetcher can still do in its sandbox, and what it cannot. Each attempt runs in a process of
 * its own, whose status is the attempt's errno.
 */
#include "tests/test.h"
#include "tools/fetch/sandbox.h"

#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

static char folder[64], cache_folder[128], credentials[128], outside[128];

/* Returns the errno of a call that has failed, else 0. */
static int code(long result)
{
	return result < 0 ? errno : 0;
}

static void put_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "[default]\n", 10), 10);
	close(fd);
}

static int setup(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/fetch-sandbox-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(cache_folder, sizeof(cache_folder), "%s/cache", folder);
	snprintf(credentials, sizeof(credentials), "%s/credentials", folder);
	snprintf(outside, sizeof(outside), "%s/outside", folder);
	put_file(credentials);
	put_file(outside);
	setenv("LOADERD_CACHE", cache_folder, 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", credentials, 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

/* In a child: the sandbox of a fetcher that listens in `folder`. */
static struct fetch_sandbox *enter(void)
{
	static struct fetch_sandbox sandbox;
	static struct cache cache;
	const struct store_options options = {0};
	struct packimg_error error;
	struct store *store;
	char socket[PATH_MAX];

	snprintf(socket, sizeof(socket), "%s/run/socket", folder);
	if (cache_init(&cache, &error) || store_open(&options, &store, &error) ||
	    fetch_sandbox_enter(&cache, store, socket, &sandbox, &error)) {
		fprintf(stderr, "%s\n", error.text);
		_exit(255);
	}
	return &sandbox;
}

static int do_inside(int (*attempt)(const struct fetch_sandbox *sandbox))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(attempt(enter()));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int has_landlock(const struct fetch_sandbox *sandbox)
{
	return strstr(sandbox->text, "no Landlock") == NULL;
}

static int open_outside(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return code(open(outside, O_RDONLY | O_CLOEXEC));
}

static int make_outside(const struct fetch_sandbox *sandbox)
{
	char path[256];

	(void)sandbox;
	snprintf(path, sizeof(path), "%s/new", folder);
	return code(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int remove_outside(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return code(unlink(outside));
}

static int write_credentials(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return code(open(credentials, O_WRONLY | O_CLOEXEC));
}

static int listen_on_a_port(const struct fetch_sandbox *sandbox)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)sandbox;
	return code(bind(fd, (struct sockaddr *)&any, sizeof(any)));
}

TEST(files_outside_stay_closed)
{
	int (*const attempts[])(const struct fetch_sandbox *) = {
		open_outside, make_outside, remove_outside, write_credentials, listen_on_a_port};

	if (!do_inside(has_landlock))
		skip();
	for (size_t i = 0; i < sizeof(attempts) / sizeof(*attempts); i++)
		if (do_inside(attempts[i]) != EACCES)
			fail_msg("attempt %zu", i);
}

static int run_program(const struct fetch_sandbox *sandbox)
{
	char *arguments[] = {(char[]){"true"}, NULL};

	(void)sandbox;
	return code(execve("/bin/true", arguments, arguments + 1));
}

static int start_process(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return code(fork());
}

static int trace(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return code(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
}

static int kill_parent(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return code(kill(getppid(), 0));
}

/* Whoever connects to the user's session bus can have programs started. */
static int talk_to_services(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return code(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int talk_by_datagrams(const struct fetch_sandbox *sandbox)
{
	int fds[2];

	(void)sandbox;
	return code(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds));
}

static int map_code(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
			       MAP_FAILED
		       ? errno
		       : 0;
}

static int use_io_uring(const struct fetch_sandbox *sandbox)
{
	(void)sandbox;
	return code(syscall(SYS_io_uring_setup, 8, NULL));
}

TEST(calls_are_refused)
{
	int (*const attempts[])(const struct fetch_sandbox *) = {
		run_program,      start_process,     trace,    kill_parent,
		talk_to_services, talk_by_datagrams, map_code, use_io_uring};

	for (size_t i = 0; i < sizeof(attempts) / sizeof(*attempts); i++)
		if (do_inside(attempts[i]) != EPERM)
			fail_msg("attempt %zu", i);
}

/* Files of the cache, temporary ones included, can be opened again for reading, and removed. */
static int use_cache(const struct fetch_sandbox *sandbox)
{
	char path[256], other[300], link[64];
	int fd = open(sandbox->paths[0], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	snprintf(path, sizeof(path), "%s/entry", cache_folder);
	snprintf(other, sizeof(other), "%s/file", path);
	if (fd < 0 || open(link, O_RDONLY | O_CLOEXEC) < 0 || mkdir(path, 0700))
		return errno;
	fd = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (fd < 0 || ftruncate(fd, 8192) || open(link, O_RDONLY | O_CLOEXEC) < 0)
		return errno;
	return code(unlink(other) || rmdir(path) ? -1 : 0);
}

static int resolve_and_connect(const struct fetch_sandbox *sandbox)
{
	struct addrinfo *found = NULL;
	int r = getaddrinfo("localhost", "1", NULL, &found);

	(void)sandbox;
	if (r)
		return 254;
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	r = code(fd < 0 ? -1 : connect(fd, found->ai_addr, found->ai_addrlen));
	freeaddrinfo(found);
	return r == ECONNREFUSED ? 0 : r; /* nobody listens on port 1 */
}

static int read_credentials(const struct fetch_sandbox *sandbox)
{
	if (fetch_sandbox_outdated(sandbox))
		return 254;
	return code(open(credentials, O_RDONLY | O_CLOEXEC));
}

TEST(what_a_fetcher_needs_is_left)
{
	assert_int_equal(do_inside(use_cache), 0);
	assert_int_equal(do_inside(resolve_and_connect), 0);
	assert_int_equal(do_inside(read_credentials), 0);
}

/* 0 if it takes notice of what the parent does meanwhile. */
static int notices(void (*change)(void))
{
	int go[2], status;
	char byte = 0;

	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const struct fetch_sandbox *sandbox = enter();

		if (fetch_sandbox_outdated(sandbox))
			_exit(2);
		if (write(go[1], &byte, 1) != 1)
			_exit(3);
		while (!fetch_sandbox_outdated(sandbox)) /* the test's time-out ends it */
			usleep(1000);
		_exit(0);
	}
	assert_int_equal(read(go[0], &byte, 1), 1);
	change();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(go[0]);
	close(go[1]);
	return status;
}

static void replace_credentials(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s.new", credentials);
	put_file(path);
	assert_int_equal(rename(path, credentials), 0);
}

static void remove_cache(void)
{
	assert_int_equal(rmdir(cache_folder), 0);
}

TEST(files_that_are_replaced_are_noticed)
{
	assert_int_equal(notices(replace_credentials), 0);
	assert_int_equal(notices(remove_cache), 0);
}

TEST_MAIN(setup, teardown)
