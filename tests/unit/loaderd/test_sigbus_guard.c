/* SIGBUS is recorded inside a guarded section over the right mapping, and fatal everywhere else. */
#include "loaderd/io/sigbus_guard.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static long page;

/* cmocka installs its signal handlers before every test. */
static void install(void)
{
	assert_int_equal(sigbus_guard_install(), 0);
}

/* Maps a file of four pages and truncates the last two. */
static volatile uint8_t *cut_file(void)
{
	char name[] = "/tmp/loaderd-guard-XXXXXX";
	int fd = mkstemp(name);
	assert_true(fd >= 0);
	unlink(name);
	assert_int_equal(ftruncate(fd, 4 * page), 0);
	volatile uint8_t *map = mmap(NULL, (size_t)(4 * page), PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(ftruncate(fd, 2 * page), 0);
	close(fd);
	return map;
}

TEST(notes)
{
	volatile uint8_t *map = cut_file();
	install();
	struct sigbus_guard_region region = {(uintptr_t)map,
					     (uintptr_t)map + (uintptr_t)(4 * page)};
	struct sigbus_guard_map guard = {.regions = &region, .count = 1};
	sigbus_guard_enter(&guard);
	assert_int_equal(map[0] + map[page], 0);
	assert_false(sigbus_guard_leave());
	sigbus_guard_enter(&guard);
	assert_int_equal(map[2 * page + 17], 0);
	assert_int_equal(map[3 * page], 0);
	assert_true(sigbus_guard_leave());
	assert_int_equal(guard.faults, 2);
	/*
	 * The guard has mapped the pages: later readers can detect the fault only by the counter.
	 */
	sigbus_guard_enter(&guard);
	assert_int_equal(map[2 * page], 0);
	assert_false(sigbus_guard_leave());
	assert_int_equal(guard.faults, 2);
	munmap((void *)map, (size_t)(4 * page));
}

TEST(any)
{
	volatile uint8_t *map = cut_file();
	install();
	sigbus_guard_enter(NULL);
	assert_int_equal(map[3 * page], 0);
	assert_true(sigbus_guard_leave());
	munmap((void *)map, (size_t)(4 * page));
}

static void assert_killed_by_sigbus(void (*what)(void))
{
	pid_t pid = fork();
	int status;
	if (pid == 0) {
		struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		what();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
}

static void outside_section(void)
{
	volatile uint8_t *map = cut_file();
	(void)map[3 * page];
}

static void other_mapping(void)
{
	volatile uint8_t *map = cut_file(), *other = cut_file();
	struct sigbus_guard_region region = {(uintptr_t)map,
					     (uintptr_t)map + (uintptr_t)(4 * page)};
	struct sigbus_guard_map guard = {.regions = &region, .count = 1};
	sigbus_guard_enter(&guard);
	(void)other[3 * page];
}

static void sent_by_kill(void)
{
	struct sigbus_guard_map guard = {0};
	sigbus_guard_enter(&guard);
	kill(getpid(), SIGBUS);
	pause();
}

TEST(fatal)
{
	install();
	assert_killed_by_sigbus(outside_section);
	assert_killed_by_sigbus(other_mapping);
	assert_killed_by_sigbus(sent_by_kill);
}

int main(void)
{
	page = sysconf(_SC_PAGESIZE);
	return test_run(NULL, NULL);
}
