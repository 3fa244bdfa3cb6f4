/*
 * The file of tuned plans: stored plans are found again, only for the device they were tuned on;
 * damaged lines are reported and skipped.
 */
#include "trainer/device/cuda/cudnn/plan_cache.h"

#include "tests/test.h"
#include "trainer/device/device.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define GPU   "NVIDIA H200, compute 9.0, cuDNN 91900"
#define OTHER "NVIDIA H200, compute 9.0, cuDNN 91801"

struct fixture {
	char folder[64], path[128], error[DEVICE_ERROR_MAX];
	struct plan_cache file;
};

static void open_fixture(struct fixture *f)
{
	strcpy(f->folder, "/tmp/loaderd-plans-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->path, sizeof(f->path), "%s/sub/plans", f->folder);
	strcpy(f->error, "not written");
}

static void close_fixture(struct fixture *f)
{
	char path[128];

	unlink(f->path);
	snprintf(path, sizeof(path), "%s/sub/plans.lock", f->folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/sub", f->folder);
	/* no temporary file is left */
	assert_true(rmdir(path) == 0 || errno == ENOENT);
	assert_int_equal(rmdir(f->folder), 0);
}

static struct conv_problem problem_of(uint32_t channels, uint32_t pad)
{
	struct conv_problem problem;

	conv_problem_init(&problem);
	problem.element = problem.gradient = CUDA_F16;
	problem.n = 256;
	problem.h = problem.w = 56;
	problem.c = problem.k = channels;
	problem.r = problem.s = 3;
	problem.stride = 1;
	problem.pad = pad;
	problem.p = problem.q = 56 + 2 * pad - 2;
	return problem;
}

static void expect(struct fixture *f, const char *device, const struct conv_problem *problem,
		   const char *tag, float ms)
{
	struct plan_cache file;

	assert_int_equal(plan_cache_init(&file, f->path, device, f->error), 0);
	assert_string_equal(f->error, "");
	const struct plan_line *line = plan_cache_find(&file, problem, false);
	if (!tag) {
		assert_null(line);
	} else {
		assert_non_null(line);
		assert_string_equal(line->tag, tag);
		assert_true(line->ms > ms * 0.99999f && line->ms < ms * 1.00001f);
	}
	plan_cache_deinit(&file);
}

static void put(struct fixture *f, const char *device, const struct conv_problem *problem,
		const char *tag, float ms)
{
	struct plan_cache file;

	plan_cache_init(&file, f->path, device, f->error);
	assert_int_equal(plan_cache_store(&file, problem, false, tag, ms), 0);
	assert_non_null(plan_cache_find(&file, problem, false));
	plan_cache_deinit(&file);
}

TEST(round_trip)
{
	struct conv_problem a = problem_of(64, 1), b = problem_of(64, 0), c = a;
	struct fixture f;

	open_fixture(&f);
	expect(&f, GPU, &a, NULL, 0);
	put(&f, GPU, &a, "62:2=5,14=1", 0.125f);
	put(&f, GPU, &b, "1", 3.25e-3f);
	put(&f, OTHER, &a, "7:1=1", 2);
	expect(&f, GPU, &a, "62:2=5,14=1", 0.125f);
	expect(&f, GPU, &b, "1", 3.25e-3f);
	expect(&f, OTHER, &a, "7:1=1", 2);
	expect(&f, OTHER, &b, NULL, 0);
	/* tuned again */
	put(&f, GPU, &a, "63", 0.0625f);
	expect(&f, GPU, &a, "63", 0.0625f);
	expect(&f, OTHER, &a, "7:1=1", 2);
	c.deterministic = true;
	expect(&f, GPU, &c, NULL, 0);
	close_fixture(&f);
}

/* Two processes with different plans: neither overwrites the other's. */
TEST(shared)
{
	struct conv_problem a = problem_of(64, 1), b = problem_of(128, 1);
	struct plan_cache first, second;
	struct fixture f;

	open_fixture(&f);
	assert_int_equal(plan_cache_init(&first, f.path, GPU, f.error), 0);
	assert_int_equal(plan_cache_init(&second, f.path, GPU, f.error), 0);
	assert_int_equal(plan_cache_store(&first, &a, false, "1", 1), 0);
	assert_int_equal(plan_cache_store(&second, &b, false, "2", 2), 0);
	plan_cache_deinit(&first);
	plan_cache_deinit(&second);
	expect(&f, GPU, &a, "1", 1);
	expect(&f, GPU, &b, "2", 2);
	close_fixture(&f);
}

/* No other user can open the lock and hold it, also if an earlier version created it. */
TEST(lock_is_ours)
{
	struct conv_problem a = problem_of(64, 1);
	struct stat status;
	struct fixture f;
	char path[128];

	open_fixture(&f);
	snprintf(path, sizeof(path), "%s/sub/plans.lock", f.folder);
	for (int again = 0; again < 2; again++) {
		put(&f, GPU, &a, "1", 1);
		assert_int_equal(stat(path, &status), 0);
		assert_int_equal(status.st_mode & 07777, 0600);
		assert_int_equal(chmod(path, 0644), 0);
	}
	close_fixture(&f);
}

/* Many processes store at once, like the ranks of a run: nothing is lost. */
TEST(stored_at_once)
{
	enum { PROCESSES = 4, EACH = 8 };
	struct fixture f;

	open_fixture(&f);
	for (uint32_t i = 0; i < PROCESSES; i++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid)
			continue;
		for (uint32_t k = 0; k < EACH; k++) {
			struct conv_problem problem = problem_of(8 + i * EACH + k, 1);

			put(&f, GPU, &problem, "1", 1);
		}
		_exit(0);
	}
	for (int i = 0, status; i < PROCESSES; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	for (uint32_t i = 0; i < PROCESSES * EACH; i++) {
		struct conv_problem problem = problem_of(8 + i, 1);

		expect(&f, GPU, &problem, "1", 1);
	}
	close_fixture(&f);
}

static void expect_line(const struct plan_cache *file, const struct conv_problem *problem,
			const char *tag)
{
	const struct plan_line *line = plan_cache_find(file, problem, false);

	if (tag && line)
		assert_string_equal(line->tag, tag);
	else
		assert_true(!tag && !line);
}

/*
 * Another process's lines take precedence over this one's, and patterns that it did not unfuse are
 * fused again; the file does not change.
 */
TEST(adopted)
{
	struct conv_problem problems[5];
	struct plan_cache from, to;
	struct fixture f;
	char *text;
	size_t size;

	for (uint32_t i = 0; i < 5; i++)
		problems[i] = problem_of(8 * (i + 1), 1);
	open_fixture(&f);
	put(&f, OTHER, &problems[0], PLAN_UNFUSED, 1);
	put(&f, GPU, &problems[0], "1", 1);
	put(&f, GPU, &problems[1], "2", 1);
	put(&f, GPU, &problems[2], PLAN_UNFUSED, 1);
	put(&f, GPU, &problems[3], PLAN_UNFUSED, 1);
	assert_int_equal(plan_cache_init(&to, f.path, GPU, f.error), 0);
	assert_int_equal(plan_cache_init(&from, "", GPU, f.error), 0);
	assert_int_equal(plan_cache_store(&from, &problems[0], false, "5:6=7", 2), 0);
	assert_int_equal(plan_cache_store(&from, &problems[3], false, PLAN_UNFUSED, 2), 0);
	assert_int_equal(plan_cache_store(&from, &problems[4], false, PLAN_UNFUSED, 2), 0);
	assert_int_equal(plan_cache_write(&from, &text, &size), 0);
	/* an invalid text changes nothing */
	assert_int_equal(plan_cache_merge(&to, text, size - 1), -EBADMSG);
	expect_line(&to, &problems[2], PLAN_UNFUSED);
	assert_int_equal(plan_cache_merge(&to, text, size), 0);
	free(text);
	expect_line(&to, &problems[0], "5:6=7");
	expect_line(&to, &problems[1], "2");
	expect_line(&to, &problems[2], NULL);
	expect_line(&to, &problems[3], PLAN_UNFUSED);
	expect_line(&to, &problems[4], PLAN_UNFUSED);
	expect(&f, GPU, &problems[0], "1", 1);
	expect(&f, GPU, &problems[2], PLAN_UNFUSED, 1);
	expect(&f, GPU, &problems[4], NULL, 0);
	/* an empty text */
	assert_int_equal(plan_cache_merge(&to, NULL, 0), 0);
	expect_line(&to, &problems[0], "5:6=7");
	expect_line(&to, &problems[4], NULL);
	expect(&f, OTHER, &problems[0], PLAN_UNFUSED, 1);
	plan_cache_deinit(&from);
	plan_cache_deinit(&to);
	close_fixture(&f);
}

/* plan_cache_write() omits the lines of other devices. */
TEST(written)
{
	struct conv_problem problem = problem_of(8, 1);
	struct plan_cache file;
	struct fixture f;
	char *text;
	size_t size;

	open_fixture(&f);
	put(&f, OTHER, &problem, "1", 1);
	assert_int_equal(plan_cache_init(&file, f.path, GPU, f.error), 0);
	assert_int_equal(plan_cache_write(&file, &text, &size), 0);
	assert_int_equal(size, 0);
	free(text);
	plan_cache_deinit(&file);
	close_fixture(&f);
}

static void write_text(const char *path, const char *text, size_t length)
{
	FILE *to = fopen(path, "w");

	assert_non_null(to);
	assert_int_equal(fwrite(text, 1, length, to), length);
	assert_int_equal(fclose(to), 0);
}

TEST(damage)
{
#define LINE GPU "\tforward\t62\t0.5\n"
	static const struct {
		const char *text;
		int line;
	} damages[] = {
		{"", 1},
		{"loaderd plans 2\n", 1},
		{"loaderd plans 1", 1},
		{"loaderd plans 1\n" LINE GPU "\tforward\t62\t0.5", 3},
		{"loaderd plans 1\n" GPU "\tforward\t62\n", 2},
		{"loaderd plans 1\n" GPU "\tforward\t62\t0.5\textra\n", 2},
		{"loaderd plans 1\n" GPU "\tforward\t\t0.5\n", 2},
		{"loaderd plans 1\n" GPU "\tforward\t62\tfast\n", 2},
		{"loaderd plans 1\n" GPU "\tforward\t62\t-1\n", 2},
		{"loaderd plans 1\n" GPU "\tforward\t62\tnan\n", 2},
		{"loaderd plans 1\n" LINE "\n", 3},
	};
	struct conv_problem problem = problem_of(64, 1);

	for (size_t i = 0; i <= sizeof(damages) / sizeof(damages[0]); i++) {
		bool zeroes = i == sizeof(damages) / sizeof(damages[0]);
		const char *text = zeroes ? "loaderd plans 1\n" LINE : damages[i].text;
		char folder[128], line[32], bytes[512];
		struct fixture f;

		open_fixture(&f);
		snprintf(folder, sizeof(folder), "%s/sub", f.folder);
		assert_int_equal(mkdir(folder, 0755), 0);
		memcpy(bytes, text, strlen(text));
		if (zeroes)
			bytes[20] = '\0';
		write_text(f.path, bytes, strlen(text));
		assert_int_equal(plan_cache_init(&f.file, f.path, GPU, f.error), -EBADMSG);
		snprintf(line, sizeof(line), "line %d:", zeroes ? 2 : damages[i].line);
		assert_non_null(strstr(f.error, line));
		assert_non_null(strstr(f.error, f.path));
		assert_null(plan_cache_find(&f.file, &problem, false));
		/* tuning rewrites it */
		assert_int_equal(plan_cache_store(&f.file, &problem, false, "5", 1), 0);
		plan_cache_deinit(&f.file);
		expect(&f, GPU, &problem, "5", 1);
		close_fixture(&f);
	}
}

/* Opening a FIFO does not block. */
TEST(fifo)
{
	char folder[128];
	struct fixture f;

	open_fixture(&f);
	snprintf(folder, sizeof(folder), "%s/sub", f.folder);
	assert_int_equal(mkdir(folder, 0755), 0);
	assert_int_equal(mkfifo(f.path, 0600), 0);
	alarm(20);
	assert_int_equal(plan_cache_init(&f.file, f.path, GPU, f.error), -EBADF);
	alarm(0);
	assert_non_null(strstr(f.error, "is not a regular file"));
	plan_cache_deinit(&f.file);
	close_fixture(&f);
}

/* Plans that cannot be written remain known to the process that tuned them. */
TEST(unwritable)
{
	struct conv_problem problem = problem_of(64, 1), other = problem_of(128, 1);
	struct fixture f;
	char folder[128];

	open_fixture(&f);
	/* a file in place of a directory */
	snprintf(folder, sizeof(folder), "%s/sub", f.folder);
	write_text(folder, "", 0);
	assert_int_equal(plan_cache_init(&f.file, f.path, GPU, f.error), -ENOTDIR);
	assert_non_null(strstr(f.error, f.path));
	assert_int_equal(plan_cache_store(&f.file, &problem, false, "5", 1), 0);
	assert_non_null(strstr(f.file.cache_error, f.path));
	assert_non_null(strstr(f.file.cache_error, strerror(ENOTDIR)));
	assert_string_equal(plan_cache_find(&f.file, &problem, false)->tag, "5");
	/* once the file can be written, all known plans are stored */
	assert_int_equal(unlink(folder), 0);
	assert_int_equal(plan_cache_store(&f.file, &other, false, "6", 1), 0);
	assert_string_equal(f.file.cache_error, "");
	plan_cache_deinit(&f.file);
	expect(&f, GPU, &problem, "5", 1);
	expect(&f, GPU, &other, "6", 1);
	close_fixture(&f);
}

TEST(places)
{
	struct conv_problem problem = problem_of(64, 1);
	struct fixture f;
	char expected[128];

	open_fixture(&f);
	assert_int_equal(plan_cache_init(&f.file, "", GPU, f.error), 0);
	assert_null(f.file.path);
	assert_int_equal(plan_cache_store(&f.file, &problem, false, "5", 1), 0);
	assert_non_null(plan_cache_find(&f.file, &problem, false));
	plan_cache_deinit(&f.file);

	setenv("XDG_CACHE_HOME", f.folder, 1);
	assert_int_equal(plan_cache_init(&f.file, NULL, GPU, f.error), 0);
	snprintf(expected, sizeof(expected), "%s/loaderd/cudnn-plans", f.folder);
	assert_string_equal(f.file.path, expected);
	plan_cache_deinit(&f.file);

	setenv("XDG_CACHE_HOME", "relative", 1);
	setenv("HOME", f.folder, 1);
	assert_int_equal(plan_cache_init(&f.file, NULL, GPU, f.error), 0);
	snprintf(expected, sizeof(expected), "%s/.cache/loaderd/cudnn-plans", f.folder);
	assert_string_equal(f.file.path, expected);
	plan_cache_deinit(&f.file);

	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");
	assert_int_equal(plan_cache_init(&f.file, NULL, GPU, f.error), 0);
	assert_null(f.file.path);
	plan_cache_deinit(&f.file);
	close_fixture(&f);
}
