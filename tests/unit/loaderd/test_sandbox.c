/*
 * In the sandbox a sanitizer still reports errors with location and function names: the additional
 * system calls allowed in its build are sufficient. Other builds allow nothing in addition.
 */
#include "format/base/sandbox/syscall_filter.h"
#include "loaderd/worker/sandbox.h"
#include "tests/test.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
enum { ADDRESS = 0, THREAD = 1 };
#elif defined(__SANITIZE_ADDRESS__)
enum { ADDRESS = 1, THREAD = 0 };
#else
enum { ADDRESS = 0, THREAD = 0 };
#endif

static volatile int ten = 10;
static int shared;
static struct sigaction before_cmocka; /* the sanitizer's handlers, before cmocka replaces them */

/* volatile, so that the compiler neither warns about the invalid access nor removes it. */
static volatile char *volatile bytes;

static void *overflow_here(void *argument)
{
	bytes = malloc((size_t)ten);
	bytes[ten] = 1;
	free((void *)bytes);
	return argument;
}

static void *use_after_free(void *argument)
{
	bytes = malloc((size_t)ten);
	free((void *)bytes);
	bytes[0] = 1;
	return argument;
}

static void *write_unmapped(void *argument)
{
	*(volatile char *)((uintptr_t)ten << 40) = 1;
	return argument;
}

static void *stack_here(void *argument)
{
	char few[10];
	bytes = few;
	bytes[ten] = 1;
	return argument;
}

static void *race_here(void *argument)
{
	for (int i = 0; i < 1000; i++)
		(*(volatile int *)&shared)++;
	return argument;
}

static void in_another_thread(void *(*act)(void *))
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, act, NULL) != 0)
		_exit(3);
	if (act == race_here)
		race_here(NULL);
	pthread_join(thread, NULL);
}

static void in_this_thread(void *(*act)(void *))
{
	act(NULL);
}

/* Returns the output of a process that enters the sandbox and then commits an error. */
static int do_inside(void (*where)(void *(*)(void *)), void *(*act)(void *), char *text,
		     size_t size)
{
	int fds[2], status;
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const struct sandbox_limits limits = {1 << 30, 64};
		struct config_error problem;
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		sigaction(SIGSEGV, &before_cmocka, NULL);
		if (sandbox_prepare(&problem) < 0 || sandbox_enter(&limits, &problem) < 0) {
			fprintf(stderr, "%s\n", problem.text);
			_exit(2);
		}
		where(act);
		_exit(0);
	}
	close(fds[1]);
	size_t length = 0;
	for (ssize_t n = 1; n > 0 && length < size - 1;) {
		n = read(fds[0], text + length, size - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	}
	text[length] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("expected \"%s\" in:\n%s", part, text);
}

TEST(reports_are_whole)
{
	static const struct {
		void *(*act)(void *);
		const char *kind, *place;
		int sanitizer;
	} cases[] = {
		{overflow_here, "AddressSanitizer: heap-buffer-overflow", "in overflow_here ",
		 ADDRESS},
		{use_after_free, "AddressSanitizer: heap-use-after-free", "in use_after_free ",
		 ADDRESS},
		{stack_here, "AddressSanitizer: stack-buffer-overflow", "in stack_here ", ADDRESS},
		{write_unmapped, "AddressSanitizer: SEGV on unknown address", "in write_unmapped ",
		 ADDRESS},
		{use_after_free, "ThreadSanitizer: heap-use-after-free", "use_after_free ", THREAD},
		{race_here, "ThreadSanitizer: data race", "race_here ", THREAD},
	};
	static char text[1 << 16];
	if (!ADDRESS && !THREAD)
		skip();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int other = 0; cases[i].sanitizer && other < 2; other++) {
			if (cases[i].act == race_here && !other)
				continue;
			int status = do_inside(other ? in_another_thread : in_this_thread,
					       cases[i].act, text, sizeof(text));
			contains(text, cases[i].kind);
			contains(text, cases[i].place);
			contains(text, "test_sandbox.c:");
			contains(text, "SUMMARY: ");
			/* Reporting caused no further error. */
			assert_null(strstr(text, "CHECK failed"));
			assert_null(strstr(text, "nested bug"));
			if (ADDRESS)
				assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
		}
}

static void *forget_here(void *argument)
{
	bytes = malloc((size_t)ten);
	bytes = NULL;
	exit(0);
	return argument;
}

/* A leak check would fail in the sandbox, and look like a failure of the worker. */
TEST(exit_in_sandbox_checks_no_leaks)
{
	char text[4096];
	int status = do_inside(in_this_thread, forget_here, text, sizeof(text));
	assert_string_equal(text, "");
	assert_int_equal(status, 0);
}

static void *open_something(void *argument)
{
	errno = 0;
	_exit(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0 ? 10 : errno);
	return argument;
}

static void *start_something(void *argument)
{
	char *arguments[] = {(char[]){"true"}, NULL};
	execve("/bin/true", arguments, arguments + 1);
	_exit(errno);
	return argument;
}

static void *fork_something(void *argument)
{
	_exit(fork() >= 0 ? 10 : errno);
	return argument;
}

/* Returns the number of capabilities in the bounding set. */
static int count_bounding_set(void)
{
	int count = 0;
	for (unsigned long i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		count += prctl(PR_CAPBSET_READ, i, 0, 0, 0);
	return count;
}

/* The process itself cannot ask once it has entered the sandbox. */
TEST(the_bounding_set_is_empty)
{
	enum { CANNOT_DROP = 200 };
	struct config_error problem;
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool can_drop = geteuid() == 0 || unshare(CLONE_NEWUSER) == 0;
		if (sandbox_prepare(&problem) < 0)
			_exit(255);
		_exit(can_drop ? count_bounding_set() : CANNOT_DROP);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == CANNOT_DROP)
		skip(); /* without CAP_SETPCAP the set stays */
	assert_int_equal(WEXITSTATUS(status), 0);
}

static struct __user_cap_header_struct capabilities = {.version = _LINUX_CAPABILITY_VERSION_3};

static bool has_capabilities(void)
{
	const struct __user_cap_data_struct none[2] = {{0}};
	struct __user_cap_data_struct now[2] = {{1, 1, 1}};
	return syscall(SYS_capget, &capabilities, now) < 0 || memcmp(now, none, sizeof(none)) != 0;
}

/* Denies what the service's unit denies: RestrictNamespaces=, and SystemCallFilter= of capset(). */
static void restrict_as_unit(void)
{
	scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
	if (!context || seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(capset), 0) < 0 ||
	    seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 0) < 0 ||
	    seccomp_load(context) < 0)
		_exit(254);
	seccomp_release(context);
}

/* Returns what sandbox_prepare() returns, negated, or 253 if it leaves capabilities. */
static int prepare_in_child(bool with_capabilities, bool in_unit)
{
	const struct __user_cap_data_struct none[2] = {{0}};
	struct config_error problem;
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (!with_capabilities && syscall(SYS_capset, &capabilities, none) < 0)
			_exit(255);
		if (in_unit)
			restrict_as_unit();
		int r = sandbox_prepare(&problem);
		_exit(r == 0 && has_capabilities() ? 253 : -r);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

TEST(capabilities_are_dropped)
{
	assert_int_equal(prepare_in_child(false, false), 0);
	assert_int_equal(prepare_in_child(true, false), 0);
	/* The unit leaves none to drop. */
	assert_int_equal(prepare_in_child(false, true), 0);
	if (has_capabilities())
		assert_int_equal(prepare_in_child(true, true), EPERM);
}

TEST(walls_stand)
{
	void *(*const acts[])(void *) = {open_something, start_something, fork_something};
	char text[4096];
	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++) {
		int status = do_inside(in_this_thread, acts[i], text, sizeof(text));
		if (!WIFEXITED(status) || WEXITSTATUS(status) != EPERM)
			fail_msg("case %zu: status %#x, %s", i, (unsigned)status, text);
	}
}

TEST(exceptions_are_named)
{
	print_message("%s\n", syscall_filter_exceptions());
	if (ADDRESS)
		contains(syscall_filter_exceptions(), ": sigaltstack");
	if (THREAD)
		contains(syscall_filter_exceptions(), ": none");
	assert_int_equal(syscall_filter_exceptions()[0] != '\0', ADDRESS || THREAD);
}

int main(void)
{
	sigaction(SIGSEGV, NULL, &before_cmocka);
	return test_run(NULL, NULL);
}
