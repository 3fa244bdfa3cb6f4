/*
 * Opening datasets from fds: the library refuses shards in the wrong order and anything but regular
 * files, and opens nothing by path.
 */
#include "format/layout.h"
#include "format/packimg.h"
#include "tests/test.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <xxhash.h>

enum { SHARDS = 3 };

static struct packimg_error error;
static int fds[SHARDS], full;

static int open_golden(const char *name)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/good/%s", getenv("PIMG_GOLDEN"), name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static int setup(void **state)
{
	for (int i = 0; i < SHARDS; i++) {
		char name[64];
		snprintf(name, sizeof(name), "set-%05d-of-%05d.pimg", i, SHARDS);
		fds[i] = open_golden(name);
	}
	full = open_golden("full.pimg");
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < SHARDS; i++)
		close(fds[i]);
	close(full);
	return 0;
}

/* Opens a dataset from duplicates of the given fds; on success the dataset owns them. */
static int open_copies(const int *given, uint32_t count, struct packimg **ret_dataset)
{
	int copies[SHARDS + 1] = {0};

	for (uint32_t i = 0; i < count; i++)
		copies[i] = fcntl(given[i], F_DUPFD_CLOEXEC, 3);
	int r = packimg_open_fds("NAME", copies, count, ret_dataset, &error);
	/* on failure the caller still owns the fds, and they are open */
	for (uint32_t i = 0; r < 0 && i < count; i++)
		assert_int_equal(close(copies[i]), 0);
	return r;
}

TEST(identify)
{
	struct packimg_identity identity;
	struct packimg *dataset;

	assert_int_equal(open_copies(fds, SHARDS, &dataset), 0);
	for (uint32_t i = 0; i < SHARDS; i++) {
		struct packimg_shard shard;
		assert_int_equal(packimg_identify(fds[i], "NAME", &identity, &error), 0);
		assert_int_equal(packimg_shard(dataset, i, &shard), 0);
		assert_int_equal(identity.shard, i);
		assert_int_equal(identity.shard_count, SHARDS);
		assert_int_equal(identity.sample_count, packimg_count(dataset));
		assert_int_equal(identity.file_size, shard.size);
		assert_memory_equal(identity.set_uuid, packimg_uuid(dataset), 16);
		assert_string_equal(shard.path, "NAME");
	}
	packimg_close(dataset);
}

TEST(order)
{
	int swapped[] = {fds[1], fds[0], fds[2]}, twice[] = {fds[0], fds[1], fds[1]},
	    many[] = {fds[0], fds[1], fds[2], fds[2]}, foreign[] = {fds[0], full, fds[2]};
	struct packimg *dataset;

	assert_int_equal(open_copies(swapped, 3, &dataset), -EBADMSG);
	assert_non_null(strstr(error.text, "NAME, shard 0: is shard 1"));
	assert_int_equal(open_copies(twice, 3, &dataset), -EBADMSG);
	assert_non_null(strstr(error.text, "NAME, shard 2: is shard 1"));
	assert_int_equal(open_copies(foreign, 3, &dataset), -EBADMSG);
	assert_non_null(strstr(error.text, "NAME, shard 1: belongs to another set"));
	assert_int_equal(open_copies(many, 4, &dataset), -EBADMSG);
	assert_non_null(strstr(error.text, "a set of 3 shards, and 4 were given"));
	assert_int_equal(open_copies(fds, 1, &dataset), -EBADMSG);
	assert_non_null(strstr(error.text, "a set of 3 shards, and 1 were given"));
	assert_int_equal(open_copies(fds, 0, &dataset), -EINVAL);
	assert_int_equal(open_copies(&full, 1, &dataset), 0);
	packimg_close(dataset);
}

/* One shard is enough to read the description of the whole set, but no samples. */
TEST(info)
{
	struct packimg *dataset, *info;
	struct packimg_sample sample;
	struct packimg_shard shard;
	struct packimg_value value;
	const char *name;
	size_t size;

	assert_int_equal(open_copies(fds, SHARDS, &dataset), 0);
	int fd = fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
	assert_int_equal(packimg_open_info(fd, "NAME", &info, &error), 0);
	assert_int_equal(packimg_count(info), packimg_count(dataset));
	assert_int_equal(packimg_shard_count(info), SHARDS);
	assert_string_equal(packimg_metadata(info), packimg_metadata(dataset));
	assert_int_equal(packimg_class_count(info), packimg_class_count(dataset));
	for (uint32_t i = 0; i < packimg_class_count(info); i++)
		assert_string_equal(packimg_class_name(info, i), packimg_class_name(dataset, i));
	assert_int_equal(packimg_field_count(info), packimg_field_count(dataset));
	assert_memory_equal(packimg_uuid(info), packimg_uuid(dataset), 16);
	assert_int_equal(packimg_sample(info, 0, &sample), -ERANGE);
	assert_int_equal(packimg_source(info, 0, &name, &size), -ERANGE);
	assert_int_equal(packimg_value(info, 0, 0, &value), -ERANGE);
	assert_int_equal(packimg_shard(info, 0, &shard), -ERANGE);
	assert_int_equal(packimg_check(info, &error), -ERANGE);
	packimg_close(info);
	packimg_close(dataset);
}

static void refuse(int fd, int expected, const char *text)
{
	struct packimg_identity identity;
	struct packimg *dataset;

	assert_int_equal(packimg_identify(fd, "NAME", &identity, &error), expected);
	if (!strstr(error.text, text))
		fail_msg("%s", error.text);
	assert_int_equal(packimg_open_fds("NAME", &fd, 1, &dataset, &error), expected);
	assert_int_equal(packimg_open_info(fd, "NAME", &dataset, &error), expected);
	assert_int_equal(close(fd), 0);
}

TEST(kinds)
{
	char path[64];
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	refuse(ends[0], -EINVAL, "NAME: not a regular file");
	close(ends[1]);
	refuse(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), -EINVAL, "not a regular file");
	refuse(open("/dev/zero", O_RDONLY | O_CLOEXEC), -EINVAL, "not a regular file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", full);
	refuse(open(path, O_PATH | O_CLOEXEC), -EINVAL, "not open for reading");
	int file = memfd_create("written", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	refuse(open(path, O_WRONLY | O_CLOEXEC), -EINVAL, "not open for reading");
	refuse(file, -EBADMSG, "shorter than a header");
	file = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	if (file >= 0)
		refuse(file, -EINVAL, "hugetlbfs");
	assert_int_equal(fcntl(12345, F_GETFD), -1);
	struct packimg_identity identity;
	assert_int_equal(packimg_identify(12345, "NAME", &identity, &error), -EINVAL);
}

/* A file shorter than its header says. */
TEST(short)
{
	uint8_t header[1024];

	assert_int_equal(pread(full, header, sizeof(header), 0), sizeof(header));
	int file = memfd_create("short", MFD_CLOEXEC);
	assert_int_equal(write(file, header, sizeof(header)), sizeof(header));
	refuse(file, -EBADMSG, "truncated, 1024 of");
}

/* The error names known foreign formats. */
TEST(foreign)
{
	static const struct {
		size_t offset, size;
		const char *bytes, *said;
	} kinds[] = {
		{257, 5, "ustar", "but an archive: give it to packimg convert"},
		{0, 4, "PK\3\4", "but a zip archive"},
		{0, 4, "PAR1", "but a Parquet file"},
		{0, 8, "\x89HDF\r\n\x1a\n", "but an HDF5 file"},
		{0, 6, "\x93NUMPY", "but a NumPy array"},
		{0, 10, "\x40\0\0\0\0\0\0\0{\"", "but a safetensors file"},
		{0, 0, "", "wrong magic"},
	};
	uint8_t header[2048];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		int file = memfd_create("foreign", MFD_CLOEXEC);
		memset(header, 1, sizeof(header));
		memcpy(header + kinds[i].offset, kinds[i].bytes, kinds[i].size);
		assert_int_equal(write(file, header, sizeof(header)), sizeof(header));
		refuse(file, -EBADMSG, kinds[i].said);
	}
	int file = memfd_create("foreign", MFD_CLOEXEC);
	assert_int_equal(write(file, "path,label\n", 11), 11);
	refuse(file, -EBADMSG, "but a text file");
}

/* Readers copy the class names, so the size that a sparse file may claim for them is limited. */
TEST(classes_limit)
{
	struct pimg_header header;
	const uint64_t limit = PIMG_CLASSES_SIZE_MAX, offset = 1 << 20;

	assert_int_equal(pread(full, &header, sizeof(header), 0), sizeof(header));
	for (uint32_t i = 0; i < header.section_count; i++)
		if (header.sections[i].type == PIMG_SECTION_CLASSES) {
			header.sections[i].offset = offset;
			header.sections[i].size = limit + 1;
		}
	header.file_size = offset + limit + 1;
	header.header_xxh3 = XXH3_64bits(&header, offsetof(struct pimg_header, header_xxh3));
	int file = memfd_create("classes", MFD_CLOEXEC);
	assert_int_equal(write(file, &header, sizeof(header)), sizeof(header));
	assert_int_equal(ftruncate(file, (off_t)header.file_size), 0);
	refuse(file, -EBADMSG, "the class names take 268435457 bytes, at most 268435456");
}

#define FORBID(call)                                                                               \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                                     \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static int enter_sandbox(void)
{
	static struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		FORBID(openat),
#ifdef SYS_open
		FORBID(open),
		FORBID(stat),
		FORBID(lstat),
		FORBID(readlink),
#endif
		FORBID(newfstatat),
		FORBID(statx),
		FORBID(readlinkat),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static const struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

static int use_all(void)
{
	struct packimg_identity identity;
	struct packimg_sample sample;
	struct packimg *dataset, *info;

	if (packimg_identify(fds[0], "NAME", &identity, &error) < 0 ||
	    packimg_open_info(full, "NAME", &info, &error) < 0 ||
	    packimg_open_fds("NAME", fds, SHARDS, &dataset, &error) < 0)
		return 1;
	for (uint64_t i = 0; i < packimg_count(dataset); i++)
		if (packimg_sample(dataset, i, &sample) < 0 || packimg_sample_check(&sample) < 0)
			return 2;
	if (packimg_check(dataset, &error) < 0)
		return 3;
	packimg_close(info);
	packimg_close(dataset);
	return 0;
}

TEST(sandbox)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(enter_sandbox() < 0 ? 77 : use_all());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Counts the process's mappings whose line in /proc/self/maps contains the name. */
static unsigned mappings_of(const char *name)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[8192];
	unsigned count = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, name) != NULL;
	fclose(file);
	return count;
}

static int open_unmapped(const int *given, uint32_t count, struct packimg **ret_dataset)
{
	int copies[SHARDS];

	for (uint32_t i = 0; i < count; i++)
		copies[i] = fcntl(given[i], F_DUPFD_CLOEXEC, 3);
	return packimg_open_unmapped("NAME", copies, count, ret_dataset, &error);
}

/* Compares bytes of an unmapped dataset with those of the mapped one. */
static void same_bytes(const struct packimg *unmapped, uint64_t index, const void *at,
		       const void *expected, size_t size)
{
	uint8_t *bytes = malloc(size + 1);

	assert_non_null(bytes);
	assert_int_equal(packimg_read(unmapped, index, at, bytes, size), 0);
	assert_memory_equal(bytes, expected, size);
	free(bytes);
}

static void same_values(const struct packimg *a, const struct packimg *b, uint64_t index)
{
	struct packimg_value x, y;
	const char *of_a, *of_b;
	size_t size_a, size_b;

	for (uint32_t f = 0; f < packimg_field_count(a); f++) {
		assert_int_equal(packimg_value(a, index, f, &x), 0);
		assert_int_equal(packimg_value(b, index, f, &y), 0);
		assert_int_equal(x.present, y.present);
		assert_int_equal(x.int64, y.int64);
		assert_memory_equal(&x.float64, &y.float64, sizeof(x.float64));
		assert_int_equal(x.size, y.size);
		if (x.size > 0)
			same_bytes(b, index, y.bytes, x.bytes, x.size);
	}
	assert_int_equal(packimg_source(a, index, &of_a, &size_a), 0);
	assert_int_equal(packimg_source(b, index, &of_b, &size_b), 0);
	assert_int_equal(size_a, size_b);
	if (size_a > 0)
		same_bytes(b, index, of_b, of_a, size_a);
}

static void same_samples(const struct packimg *a, const struct packimg *b)
{
	assert_int_equal(packimg_count(a), packimg_count(b));
	for (uint64_t i = 0; i < packimg_count(a); i++) {
		struct packimg_sample x, y;
		assert_int_equal(packimg_sample(a, i, &x), 0);
		assert_int_equal(packimg_sample(b, i, &y), 0);
		same_bytes(b, i, y.data, x.data, x.data_size);
		assert_int_equal(!x.side, !y.side);
		if (x.side)
			same_bytes(b, i, y.side, x.side, x.side_size);
		assert_int_equal(x.index, y.index);
		assert_int_equal(x.data_size, y.data_size);
		assert_int_equal(x.side_size, y.side_size);
		assert_int_equal(x.label, y.label);
		assert_int_equal(x.shard, y.shard);
		assert_int_equal(x.data_offset, y.data_offset);
		same_values(a, b, i);
	}
}

/*
 * All functions work the same without a mapping. Code that wrongly accesses the file in place is
 * detected.
 */
TEST(unmapped)
{
	struct packimg *mapped, *unmapped;
	struct packimg_sample sample;
	uint8_t byte;
	int status;

	for (int whole = 0; whole < 2; whole++) {
		const int *files = whole ? &full : fds;
		uint32_t count = whole ? 1 : SHARDS;
		assert_int_equal(open_unmapped(files, count, &unmapped), 0);
		assert_int_equal(mappings_of(".pimg"), 0);
		assert_false(packimg_is_mapped(unmapped));
		assert_int_equal(open_copies(files, count, &mapped), 0);
		assert_int_equal(mappings_of(".pimg"), count);
		assert_true(packimg_is_mapped(mapped));
		same_samples(mapped, unmapped);
		packimg_close(mapped);
		assert_int_equal(packimg_sample(unmapped, 0, &sample), 0);
		assert_int_equal(packimg_read(unmapped, 0, sample.data, &byte, SIZE_MAX), -ERANGE);
		assert_int_equal(packimg_read(unmapped, 0, &byte, &byte, 1), -ERANGE);
		assert_int_equal(
			packimg_read(unmapped, packimg_count(unmapped), sample.data, &byte, 1),
			-ERANGE);
		assert_int_equal(packimg_check(unmapped, &error), -ENOTSUP);
		pid_t child = fork();
		if (child == 0) {
			signal(SIGSEGV, SIG_DFL);
			_exit(*(const volatile uint8_t *)sample.data);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		packimg_close(unmapped);
	}
}

/* Truncating an open unmapped file causes no signal. */
TEST(unmapped_cut)
{
	struct packimg *dataset;
	struct packimg_sample sample;
	struct packimg_value value;
	uint8_t bytes[4096], byte;
	ssize_t size;
	int file = memfd_create("cut", MFD_CLOEXEC);

	for (off_t at = 0; (size = pread(full, bytes, sizeof(bytes), at)) > 0; at += size)
		assert_int_equal(pwrite(file, bytes, (size_t)size, at), size);
	assert_int_equal(packimg_open_unmapped("NAME", &file, 1, &dataset, &error), 0);
	assert_int_equal(packimg_sample(dataset, 0, &sample), 0);
	assert_int_equal(ftruncate(file, 1024), 0);
	assert_int_equal(packimg_read(dataset, 0, sample.data, &byte, 1), -EBADMSG);
	assert_int_equal(packimg_sample(dataset, 0, &sample), -EBADMSG);
	assert_int_equal(packimg_value(dataset, 0, 0, &value), -EBADMSG);
	packimg_close(dataset);
}

TEST_MAIN(setup, teardown)
