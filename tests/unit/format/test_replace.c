/*
 * Crash safety of replacing a dataset. Kills the writer before each change that it makes to the
 * folder: afterwards either the old or the new dataset must open, by name and by folder, and the
 * next writer cleans up. This program wraps and counts the system calls that change a folder.
 */
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { KILLED = 77 };

static int steps_left = -1; /* changes to the folder before the process exits; -1 for no limit */
static bool links_fail, copies_fail;
static int shade;

static void step(void)
{
	if (steps_left == 0)
		_exit(KILLED);
	if (steps_left > 0)
		steps_left--;
}

int rename(const char *from, const char *to)
{
	step();
	return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path)
{
	step();
	return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int folder, const char *path, int flags)
{
	step();
	return (int)syscall(SYS_unlinkat, folder, path, flags);
}

int link(const char *from, const char *to)
{
	step();
	if (links_fail) {
		errno = EPERM;
		return -1;
	}
	return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t size,
			unsigned flags)
{
	step();
	if (copies_fail) {
		errno = ENOSPC;
		return -1;
	}
	return syscall(SYS_copy_file_range, in, in_offset, out, out_offset, size / 2 + 1, flags);
}

static void empty_directory(void)
{
	struct dirent *entry;
	DIR *listing = opendir(directory);

	while ((entry = readdir(listing)))
		unlinkat(dirfd(listing), entry->d_name, 0);
	closedir(listing);
}

/* Counts files whose names begin with a dot (hidden) and all others (plain). */
static void count_files(unsigned *ret_plain, unsigned *ret_hidden)
{
	struct dirent *entry;
	DIR *listing = opendir(directory);

	*ret_plain = *ret_hidden = 0;
	while ((entry = readdir(listing)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			++*(entry->d_name[0] == '.' ? ret_hidden : ret_plain);
	closedir(listing);
}

/* A sample exceeds the shard size, so each one gets its own shard. */
static int write_dataset(unsigned shards, unsigned samples)
{
	static uint8_t pixels[64 * 64 * 3];
	struct packimg_writer_options options = {.shard_size = shards ? sizeof(pixels) / 2 : 0};
	struct packimg_item item = {
		.data = pixels,
		.data_size = sizeof(pixels),
		.width = 64,
		.height = 64,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = 1,
	};
	struct packimg_writer *writer;

	/* shards of different datasets must differ */
	memset(pixels, shade, sizeof(pixels));
	assert_int_equal(packimg_writer_new(path_of("d.pimg"), &options, &writer, &error), 0);
	for (unsigned i = 0; i < (shards ? shards : samples); i++)
		assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	int r = packimg_writer_finish(writer, &error);
	packimg_writer_free(writer);
	return r;
}

/* Opens the dataset, checks all checksums and returns the number of samples. */
static uint64_t samples_at(const char *path)
{
	struct packimg *dataset;
	struct packimg_sample sample;

	if (packimg_open(path, &dataset, &error) < 0)
		fail_msg("%s", error.text);
	if (packimg_check(dataset, &error) < 0)
		fail_msg("%s", error.text);
	uint64_t count = packimg_count(dataset);
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(packimg_sample(dataset, i, &sample), 0);
		assert_int_equal(packimg_sample_check(&sample), 0);
	}
	packimg_close(dataset);
	return count;
}

/*
 * Arguments are numbers of shards; 0 means a single file. Single files have 10 samples in the old
 * dataset and 11 in the new one.
 */
static void kill_everywhere(unsigned old_shards, unsigned new_shards)
{
	uint64_t old_samples = old_shards ? old_shards : 10,
		 new_samples = new_shards ? new_shards : 11;
	unsigned plain, hidden, news = 0;
	int status = KILLED;

	for (int steps = 0; status == KILLED; steps++) {
		empty_directory();
		assert_int_equal(write_dataset(old_shards, 10), 0);
		pid_t child = fork();
		if (child == 0) {
			shade = 1;
			steps_left = steps;
			_exit(write_dataset(new_shards, 11) < 0);
		}
		waitpid(child, &status, 0);
		status = WEXITSTATUS(status);
		assert_true(status == KILLED || status == 0);

		uint64_t count = samples_at(path_of("d.pimg"));
		/* once the new dataset is visible it stays so */
		assert_true(count == new_samples || (count == old_samples && !news));
		if (old_samples != new_samples)
			news += count == new_samples;
		assert_int_equal(samples_at(directory), count);

		/* the next writer cleans up all leftovers */
		assert_int_equal(write_dataset(3, 0), 0);
		assert_int_equal(samples_at(path_of("d.pimg")), 3);
		count_files(&plain, &hidden);
		assert_int_equal(plain, 3);
		assert_int_equal(hidden, 0);
	}
	assert_true(news > 0 || old_samples == new_samples);
}

TEST(killed)
{
	static const unsigned shards[] = {0, 1, 2, 4};

	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			kill_everywhere(shards[i], shards[k]);
}

TEST(killed_without_links)
{
	links_fail = true;
	kill_everywhere(2, 4);
	kill_everywhere(4, 2);
	kill_everywhere(0, 2);
	links_fail = false;
}

/* Kills writers repeatedly while they replace the leftovers of killed writers. */
TEST(killed_in_a_row)
{
	unsigned shards = 2;
	int status;

	empty_directory();
	assert_int_equal(write_dataset(4, 0), 0);
	for (int steps = 0; steps < 60; steps++) {
		uint64_t before = samples_at(path_of("d.pimg"));
		shards = shards % 5 + 1;
		shade = steps;
		pid_t child = fork();
		if (child == 0) {
			steps_left = steps * 7 % 30;
			_exit(write_dataset(shards, 0) < 0);
		}
		waitpid(child, &status, 0);
		uint64_t after = samples_at(path_of("d.pimg"));
		assert_true(after == before || after == shards);
		assert_int_equal(samples_at(directory), after);
	}
}

/*
 * If the files cannot be renamed to their final names, the new dataset opens all the same, and the
 * next finish repairs the names.
 */
TEST(fails_after_commit_record)
{
	unsigned plain, hidden;

	empty_directory();
	assert_int_equal(write_dataset(4, 0), 0);
	links_fail = copies_fail = true;
	assert_int_equal(write_dataset(2, 0), -ENOSPC);
	links_fail = copies_fail = false;
	assert_int_equal(samples_at(path_of("d.pimg")), 2);
	/* a writer that is freed before its finish changes nothing */
	struct packimg_writer *writer;
	assert_int_equal(packimg_writer_new(path_of("d.pimg"), NULL, &writer, &error), 0);
	packimg_writer_free(writer);
	assert_int_equal(samples_at(path_of("d.pimg")), 2);
	assert_int_equal(write_dataset(0, 5), 0);
	assert_int_equal(samples_at(path_of("d.pimg")), 5);
	count_files(&plain, &hidden);
	assert_int_equal(plain, 1);
	assert_int_equal(hidden, 0);
}

static void put_commit_record(const char *text)
{
	FILE *file = fopen(path_of(".d.pimg.replaced"), "w");

	fputs(text, file);
	fclose(file);
}

/*
 * A commit record must name a file in the same folder whose name starts with a dot and the
 * dataset's name. Any other record is ignored.
 */
TEST(commit_records)
{
	static const char *const bad[] = {
		"",
		"\n",
		".d.pimg.x.pimg",
		"e.pimg\n",
		"./e.pimg\n",
		"../e.pimg\n",
		".e.pimg\n",
		".d.pimg.gone\n",
		".d.pimg.folder\n",
		".d.pimg.link\n",
	};
	char from[4096];

	empty_directory();
	assert_int_equal(write_dataset(0, 10), 0);
	snprintf(from, sizeof(from), "%s", path_of("d.pimg"));
	assert_int_equal(rename(from, path_of("e.pimg")), 0);
	snprintf(from, sizeof(from), "%s", path_of("e.pimg"));
	assert_int_equal(link(from, path_of(".e.pimg")), 0);
	assert_int_equal(link(from, path_of(".d.pimg.x.pimg")), 0);
	assert_int_equal(mkdir(path_of(".d.pimg.folder"), 0777), 0);
	assert_int_equal(symlink("e.pimg", path_of(".d.pimg.link")), 0);
	assert_int_equal(write_dataset(0, 7), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put_commit_record(bad[i]);
		assert_int_equal(samples_at(path_of("d.pimg")), 7);
	}
	put_commit_record(".d.pimg.x.pimg\n");
	assert_int_equal(samples_at(path_of("d.pimg")), 10);
	unlink(path_of(".d.pimg.replaced"));
	assert_int_equal(mkfifo(path_of(".d.pimg.replaced"), 0666), 0);
	assert_int_equal(samples_at(path_of("d.pimg")), 7);
	unlink(path_of(".d.pimg.replaced"));
	rmdir(path_of(".d.pimg.folder"));

	/* in a world-writable folder, only commit records of trusted owners count */
	put_commit_record(".d.pimg.x.pimg\n");
	if (geteuid() != 0)
		return;
	assert_int_equal(chown(path_of(".d.pimg.replaced"), 12345, 12345), 0);
	assert_int_equal(chmod(directory, 01777), 0);
	assert_int_equal(samples_at(path_of("d.pimg")), 7);
	assert_int_equal(chown(directory, 12345, 12345), 0);
	assert_int_equal(samples_at(path_of("d.pimg")), 10);
	assert_int_equal(chown(directory, 0, 0), 0);
	assert_int_equal(chmod(directory, 0755), 0);
	assert_int_equal(samples_at(path_of("d.pimg")), 10);
}

TEST_MAIN(directory_setup, directory_teardown)
