/*
 * Runs that are killed, stopped, damaged or changed, and then resumed, give the losses of an
 * uninterrupted run bit for bit.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <signal.h>

/* Killed at many points and resumed each time, also before the first checkpoint. */
TEST(killed)
{
	unsigned kills = 0;
	expect(finish(start("killed", "--dry-run", NULL), "killed"), 0);
	assert_false(exists("killed", "log.jsonl"));
	for (unsigned step = 3; step < STEPS; step += 9, kills++) {
		pid_t pid = start("killed", "--resume", NULL);
		wait_for_step("killed", pid, step);
		usleep(step * 300);
		kill(pid, SIGKILL);
		int status = finish(pid, "killed");
		if (status == 0)
			break;
		expect(status, -SIGKILL);
	}
	assert_true(kills > 0);
	expect(run("killed", "--resume", NULL), 0);
	expect_output("resumed at step");
	same_losses("unbroken", "killed");
	same_file("unbroken", "killed", "model.safetensors");
	same_file("unbroken", "killed", "best.safetensors");
}

TEST(stopped)
{
	for (int i = 0; i < 2; i++) {
		pid_t pid = start("stopped", "--resume", NULL);
		wait_for_step("stopped", pid, 11 + 12 * (unsigned)i);
		kill(pid, i ? SIGINT : SIGTERM);
		expect(finish(pid, "stopped"), STOPPED);
		expect_output("--resume to continue");
	}
	expect(run("stopped", "--resume", NULL), 0);
	same_losses("unbroken", "stopped");
	same_file("unbroken", "stopped", "model.safetensors");
	expect(run("stopped", "--resume", NULL), 0);
	same_losses("unbroken", "stopped");
}

/* A run continues with another learning rate only with --allow-changes. Also tests --overwrite. */
TEST(changed)
{
	pid_t pid = start("changed", NULL);
	wait_for_step("changed", pid, 8);
	kill(pid, SIGTERM);
	expect(finish(pid, "changed"), STOPPED);
	expect(run("changed", "--resume", "--allow-changes", "optim.lr=0.01", NULL), 0);
	/* --overwrite deletes nothing before all checks have passed */
	expect(run("changed", "--overwrite", "data.train=/nonexistent.pimg", NULL), 1);
	assert_true(exists("changed", "checkpoint-00000040.safetensors"));
	assert_true(exists("changed", "model.safetensors"));
	pid = start("changed", "--overwrite", NULL);
	wait_until_gone("changed", pid, "checkpoint-00000040.safetensors");
	wait_until_gone("changed", pid, "model.safetensors");
	wait_for_step("changed", pid, 2);
	kill(pid, SIGKILL);
	finish(pid, "changed");
	expect(run("changed", "--overwrite", NULL), 0);
	same_losses("unbroken", "changed");
}

/* A resumed run accepts another number of threads and reports the effect. */
TEST(other_threads)
{
	pid_t pid = start("threads", NULL);
	wait_for_step("threads", pid, 8);
	kill(pid, SIGTERM);
	expect(finish(pid, "threads"), STOPPED);
	expect(run("threads", "--resume", "--dry-run", NULL), 0);
	assert_int_equal(count_output("bitwise"), 0);
	expect(run("threads", "--resume", "--evaluate", "train.threads=1", NULL), 0);
	assert_int_equal(count_output("bitwise"), 0);
	expect(run("threads", "--resume", "train.threads=1", NULL), 0);
	expect_output("the checkpoint was written with 2 threads, and this run has 1: its losses "
		      "are equivalent to those of an uninterrupted run, but not bitwise equal; use "
		      "train.threads=2 for bitwise equality");
	expect(run("threads", "--resume", "--dry-run", NULL), 0);
	expect_output("the checkpoint was written with 1 thread, and this run has 2");
}

/* If a checkpoint is truncated, the one before it is used. */
TEST(damaged)
{
	expect(run("damaged", "checkpoint.keep=3", NULL), 0);
	assert_int_equal(truncate(run_path("damaged", "checkpoint-00000040.safetensors"), 5000), 0);
	expect(run("damaged", "--resume", NULL), 0);
	expect_output("trying the previous checkpoint");
	same_losses("unbroken", "damaged");
	char argument[PATH_MAX + 400];
	assert_int_equal(truncate(run_path("damaged", "checkpoint-00000040.safetensors"), 50000),
			 0);
	snprintf(argument, sizeof(argument), "--resume=%s",
		 run_path("damaged", "checkpoint-00000040.safetensors"));
	expect(run("damaged", argument, NULL), 1);
	expect_output("truncated");
}

/* Unreadable checkpoints do not count when the run removes older ones. */
TEST(damaged_ones_are_set_aside)
{
	expect(run("aside", "checkpoint.keep=3", NULL), 0);
	assert_int_equal(truncate(run_path("aside", "checkpoint-00000035.safetensors"), 5000), 0);
	assert_int_equal(truncate(run_path("aside", "checkpoint-00000040.safetensors"), 5000), 0);
	pid_t pid = start("aside", "--resume", "checkpoint.keep=1", NULL);
	wait_until_gone("aside", pid, "checkpoint-00000028.safetensors");
	wait_for_step("aside", pid, 37);
	kill(pid, SIGKILL);
	if (finish(pid, "aside") == -SIGKILL) {
		expect(run("aside", "--resume", NULL), 0);
		expect_output("resumed at step");
	}
	assert_true(exists("aside", "checkpoint-00000035.safetensors.unreadable"));
	assert_true(exists("aside", "checkpoint-00000040.safetensors.unreadable"));
	same_losses("unbroken", "aside");
}

/* Resuming from an older checkpoint deletes the later ones, but only if requested. */
TEST(older)
{
	char argument[PATH_MAX + 400];
	expect(run("older", "checkpoint.keep=9", NULL), 0);
	snprintf(argument, sizeof(argument), "--resume=%s",
		 run_path("older", "checkpoint-00000014.safetensors"));
	expect(run("older", argument, NULL), 1);
	expect_output("or --overwrite to remove the later checkpoints");
	assert_true(exists("older", "checkpoint-00000040.safetensors"));
	pid_t pid = start("older", argument, "--overwrite", "checkpoint.keep=1", NULL);
	wait_until_gone("older", pid, "checkpoint-00000040.safetensors");
	wait_for_step("older", pid, 23);
	kill(pid, SIGKILL);
	if (finish(pid, "older") == -SIGKILL) {
		expect(run("older", "--resume", NULL), 0);
		expect_output("resumed at step");
	}
	same_losses("unbroken", "older");
}

static int setup(void **state)
{
	trainer_threads = 2;
	return trainer_setup_unbroken(state);
}

TEST_MAIN(setup, trainer_teardown)
