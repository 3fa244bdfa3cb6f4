/*
 * Runs on a full disk or with a limit on file sizes. The error names the file, the reason, the
 * remaining checkpoint and how to continue; continuing works.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void put(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

/* Enters a new mount namespace; returns false if that is not permitted. */
static bool leave_mounts(void)
{
	char users[64], groups[64];
	snprintf(users, sizeof(users), "%u %u 1", getuid(), getuid());
	snprintf(groups, sizeof(groups), "%u %u 1", getgid(), getgid());
	if (unshare(CLONE_NEWNS) != 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
			return false;
		put("/proc/self/uid_map", users);
		put("/proc/self/setgroups", "deny");
		put("/proc/self/gid_map", groups);
	}
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* Mounts a file system of limited size at a run's directory. */
static bool mount_disk(const char *run, off_t bytes, unsigned long flags)
{
	char options[64];
	mkdir(run_path(run, ""), 0777);
	snprintf(options, sizeof(options), "size=%lld", (long long)bytes);
	return mount("tmpfs", run_path(run, ""), "tmpfs", flags, options) == 0;
}

static off_t size_of(const char *run, const char *name)
{
	struct stat status;
	assert_int_equal(stat(run_path(run, name), &status), 0);
	return status.st_size;
}

/* Asserts that the error names the newest checkpoint, and that there is no partial file. */
static void check_last(const char *run, unsigned step)
{
	char text[PATH_MAX + 400];
	snprintf(text, sizeof(text),
		 ". The last complete checkpoint is %s/%s//checkpoint-%08u.safetensors, of step %u "
		 "(epoch %.3f): ",
		 fixture.folder, run, step, step, step / 20.0);
	expect_output(text);
	DIR *dir = opendir(run_path(run, ""));
	for (struct dirent *entry; (entry = readdir(dir));) {
		unsigned other;
		assert_null(strstr(entry->d_name, ".tmp"));
		if (sscanf(entry->d_name, "checkpoint-%u.safetensors", &other) == 1)
			assert_true(other <= step);
	}
	closedir(dir);
}

TEST(full)
{
	const char *const name = "full";
	off_t checkpoint = size_of("unbroken", "checkpoint-00000040.safetensors");
	if (!leave_mounts() || !mount_disk(name, checkpoint / 2, 0))
		skip();
	expect(run(name, NULL), 1);
	expect_output("full//checkpoint-00000007.safetensors: cannot be written: No space left on "
		      "device. This run has no complete checkpoint yet: free space on that disk, "
		      "then repeat the same command to start again");
	/* room for two checkpoints and the best weights */
	assert_true(mount_disk(name, checkpoint * 2 + checkpoint * 3 / 4, MS_REMOUNT));
	expect(run(name, "checkpoint.keep=9", NULL), 1);
	expect_output("full//checkpoint-00000020.safetensors: cannot be written: No space left on "
		      "device");
	check_last(name, 14);
	expect_output("free space on that disk, then repeat the same command with --resume to "
		      "continue from it");
	/* the disk fills up while a third checkpoint is written */
	expect(run(name, "checkpoint.keep=9", "--resume", NULL), 1);
	check_last(name, 14);
	/* also if the checkpoint to resume from is in another directory */
	assert_true(mount_disk("elsewhere", checkpoint / 2, 0));
	char argument[PATH_MAX + 400];
	snprintf(argument, sizeof(argument), "--resume=%s",
		 run_path(name, "checkpoint-00000014.safetensors"));
	expect(run("elsewhere", argument, NULL), 1);
	expect_output(
		"full/checkpoint-00000014.safetensors, of step 14 (epoch 0.700): free space on "
		"that disk, then repeat the same command with that --resume to continue from it");
	assert_true(mount_disk(name, checkpoint * 20, MS_REMOUNT));
	expect(run(name, "checkpoint.keep=9", "--resume", NULL), 0);
	same_losses("unbroken", name);
}

/* The limit is set during the run. */
TEST(limited)
{
	fixture_start(
		&fixture, NULL,
		NULL); /* start the daemon separately, so that the limit does not apply to it */
	struct rlimit limit = {4096, 4096};
	pid_t pid = start("limited", "--overwrite", "--socket", fixture.socket, NULL);
	wait_for_step("limited", pid, 8);
	assert_int_equal(prlimit(pid, RLIMIT_FSIZE, &limit, NULL), 0);
	expect(finish(pid, "limited"), 1);
	expect_output("limited//log.jsonl: cannot be written: File too large. The last complete "
		      "checkpoint is ");
	expect_output("raise the limit on the size of files (ulimit -f), then repeat the same "
		      "command with --resume instead of --overwrite to continue from it");
	const char *step = strstr(said, ", of step ");
	check_last("limited", (unsigned)strtoul(step + 10, NULL, 10));
	expect(run("limited", "--resume", "--socket", fixture.socket, NULL), 0);
	same_losses("unbroken", "limited");
	fixture_stop(&fixture, SIGTERM);
}

static int teardown(void **state)
{
	umount2(run_path("full", ""), MNT_DETACH);
	umount2(run_path("elsewhere", ""), MNT_DETACH);
	return trainer_teardown(state);
}

TEST_MAIN(trainer_setup_unbroken, teardown)
