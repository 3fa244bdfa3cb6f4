/* safetensors: written files read back, and every kind of damage is refused with a reason. */
#include "tests/test.h"
#include "trainer/checkpoint/safetensors.h"

#include <endian.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static char folder[] = "/tmp/test_safetensors.XXXXXX";
static char path[128], error[SAFETENSORS_ERROR_MAX];

/*
 * Simulated disk: pread() fails with errno `failing` (EINTR only once), or reads at most 1000
 * bytes.
 */
static int failing;
static bool little_by_little;

ssize_t __real_pread64(int fd, void *data, size_t size, off_t offset);
ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset);

ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset)
{
	if (failing) {
		errno = failing;
		failing = failing == EINTR ? 0 : failing;
		return -1;
	}
	return __real_pread64(fd, data, little_by_little && size > 1000 ? 1000 : size, offset);
}

static int setup(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/x.safetensors", folder);
	return 0;
}

static int teardown(void **state)
{
	unlink(path);
	return rmdir(folder); /* fails if a temporary file is left */
}

static void put(const char *header, size_t claimed, size_t data_size)
{
	FILE *file = fopen(path, "w");
	uint64_t size = htole64(claimed);
	fwrite(&size, 8, 1, file);
	fputs(header, file);
	for (size_t i = 0; i < data_size; i++)
		fputc((int)i, file);
	fclose(file);
}

static void refused(const char *header, size_t data_size, const char *expected)
{
	struct safetensors *file = NULL;
	put(header, strlen(header), data_size);
	int r = safetensors_open(path, &file, error);
	if (r != -EBADMSG)
		fail_msg("%s: %d", header, r);
	assert_null(file);
	if (!strstr(error, expected))
		fail_msg("\"%s\" does not say \"%s\"", error, expected);
}

TEST(round_trip)
{
	float a[6] = {1, -2.5f, 3e-40f, 0, 5, 6};
	uint8_t b[3] = {1, 2, 3};
	double scalar = 0.1;
	struct safetensors_tensor tensors[] = {
		{"layer.\"odd\" name \xc3\xa9", SAFETENSORS_F32, 2, {2, 3}, a, sizeof(a)},
		{"b", SAFETENSORS_U8, 1, {3}, b, sizeof(b)},
		{"scalar", SAFETENSORS_F64, 0, {0}, &scalar, sizeof(scalar)},
		{"empty", SAFETENSORS_F32, 2, {0, 5}, "", 0},
	};
	struct safetensors_entry metadata[] = {{"recipe", "[data]\ntrain = \"x\"\n"},
					       {"step", "12"}};
	struct safetensors_writer writer = {tensors, 4, metadata, 2, NULL, NULL};
	if (safetensors_write(path, &writer, error))
		fail_msg("%s", error);
	struct safetensors *file;
	if (safetensors_open(path, &file, error))
		fail_msg("%s", error);
	assert_int_equal(safetensors_count(file), 4);
	for (int i = 0; i < 4; i++) {
		const struct safetensors_tensor *t = safetensors_find(file, tensors[i].name);
		assert_non_null(t);
		assert_int_equal(t->type, tensors[i].type);
		assert_int_equal(t->rank, tensors[i].rank);
		assert_memory_equal(t->shape, tensors[i].shape, sizeof(t->shape[0]) * t->rank);
		assert_int_equal(t->size, tensors[i].size);
		uint8_t bytes[64];
		assert_true(t->size <= sizeof(bytes));
		assert_int_equal(safetensors_read(file, t, bytes, error), 0);
		assert_memory_equal(bytes, tensors[i].data, t->size);
	}
	assert_null(safetensors_find(file, "c"));
	assert_string_equal(safetensors_metadata(file, "recipe"), metadata[0].value);
	assert_null(safetensors_metadata(file, "none"));
	safetensors_close(file);
}

static const void *fill(void *user, size_t index)
{
	static uint32_t value;
	if (index == *(size_t *)user)
		return NULL;
	value = (uint32_t)index;
	return &value;
}

/* A write that fails halfway leaves the old file and no temporary one. */
TEST(failed_write_leaves_the_old_file)
{
	struct safetensors_tensor tensors[] = {
		{"a", SAFETENSORS_U32, 1, {1}, NULL, 4},
		{"b", SAFETENSORS_U32, 1, {1}, NULL, 4},
	};
	size_t bad = 99;
	struct safetensors_writer writer = {tensors, 2, NULL, 0, fill, &bad};
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	bad = 1;
	writer.count = 2;
	tensors[0].name = "z";
	assert_int_equal(safetensors_write(path, &writer, error), -EIO);
	struct safetensors *file;
	assert_int_equal(safetensors_open(path, &file, error), 0);
	const struct safetensors_tensor *b = safetensors_find(file, "b");
	assert_non_null(b);
	uint32_t value;
	assert_int_equal(safetensors_read(file, b, &value, error), 0);
	assert_int_equal(value, 1);
	assert_non_null(safetensors_find(file, "a"));
	safetensors_close(file);
	tensors[1].name = "z";
	assert_int_equal(safetensors_write(path, &writer, error), -EINVAL);
	tensors[1].name = "b";
	tensors[1].size = 8;
	assert_int_equal(safetensors_write(path, &writer, error), -EINVAL);
	assert_int_equal(
		safetensors_write("/nonexistent/x", &(struct safetensors_writer){0}, error),
		-ENOENT);
}

/* A full disk, simulated by a limit on file sizes, leaves the old file. */
TEST(full_disk_leaves_the_old_file)
{
	static char bytes[1 << 16];
	struct safetensors_tensor tensor = {"a", SAFETENSORS_U8, 1, {4}, "old", 4};
	struct safetensors_writer writer = {&tensor, 1, NULL, 0, NULL, NULL};
	struct rlimit before, limit;
	struct safetensors *file;
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 4096;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	tensor.data = bytes;
	tensor.size = tensor.shape[0] = sizeof(bytes);
	int r = safetensors_write(path, &writer, error);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(r, -EFBIG);
	assert_non_null(strstr(error, path));
	assert_int_equal(safetensors_open(path, &file, error), 0);
	assert_int_equal(safetensors_read(file, safetensors_find(file, "a"), bytes, error), 0);
	assert_string_equal(bytes, "old");
	safetensors_close(file);
}

/* A file that shrinks, or a disk that fails, is an error that names the tensor being read. */
TEST(failing_reads)
{
	static const float values[4096] = {1, 2, 3};
	static float read[4096];
	struct safetensors_tensor tensors[] = {
		{"a", SAFETENSORS_F32, 1, {4096}, values, sizeof(values)},
		{"b", SAFETENSORS_F32, 1, {4096}, values, sizeof(values)},
	};
	struct safetensors_writer writer = {tensors, 2, NULL, 0, NULL, NULL};
	struct safetensors *file;
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	failing = EIO;
	assert_int_equal(safetensors_open(path, &file, error), -EIO);
	failing = 0;
	assert_int_equal(safetensors_open(path, &file, error), 0);
	const struct safetensors_tensor *a = safetensors_find(file, "a"),
					*b = safetensors_find(file, "b");
	little_by_little = true;
	failing = EINTR;
	assert_int_equal(safetensors_read(file, b, read, error), 0);
	assert_memory_equal(read, values, sizeof(values));
	failing = EIO;
	assert_int_equal(safetensors_read(file, a, read, error), -EIO);
	assert_non_null(strstr(error, path));
	assert_non_null(strstr(error, "cannot be read at byte "));
	failing = 0;
	little_by_little = false;
	assert_int_equal(truncate(path, (off_t)b->offset + 4096), 0);
	assert_int_equal(safetensors_read(file, a, read, error), 0);
	assert_int_equal(safetensors_read(file, b, read, error), -EBADMSG);
	assert_non_null(strstr(error, "when it was opened"));
	safetensors_close(file);
}

/* A file of torch.save(), PyTorch's default format, is refused with a hint. */
TEST(of_torch_save)
{
	static const char zip[] = "PK\3\4 and whatever follows";
	struct safetensors *file;
	FILE *out = fopen(path, "w");
	fwrite(zip, 1, sizeof(zip), out);
	fclose(out);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	assert_non_null(strstr(error, "safetensors.torch.save_file(state_dict, path)"));
}

TEST(texts_must_be_utf8)
{
	struct safetensors_entry metadata = {"note", "caf\xe9"};
	struct safetensors_tensor tensor = {"\xff", SAFETENSORS_U8, 1, {1}, "", 1};
	struct safetensors_writer writer = {NULL, 0, &metadata, 1, NULL, NULL};
	assert_int_equal(safetensors_write(path, &writer, error), -EINVAL);
	assert_non_null(strstr(error, "note occurs twice or is not UTF-8"));
	writer = (struct safetensors_writer){&tensor, 1, NULL, 0, NULL, NULL};
	assert_int_equal(safetensors_write(path, &writer, error), -EINVAL);
	assert_non_null(strstr(error, "\xff occurs twice or is not UTF-8"));
}

#define T(name, type, shape, begin, end)                                                           \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin        \
	"," end "]}"

TEST(good_headers)
{
	static const struct {
		const char *header;
		size_t data;
	} good[] = {
		{"{}", 0},
		{"{\"__metadata__\":{}}   ", 0},
		{"{" T("a", "F32", "[2]", "0", "8") "," T("b", "I8", "[]", "8", "9") "}", 9},
		{"{" T("b", "BF16", "[1,2]", "4", "8") "," T("a", "BOOL", "[4]", "0", "4") "}", 8},
	};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct safetensors *file;
		put(good[i].header, strlen(good[i].header), good[i].data);
		if (safetensors_open(path, &file, error))
			fail_msg("%s", error);
		safetensors_close(file);
	}
}

TEST(bad_headers)
{
	refused("{" T("a", "F32", "[2]", "0", "8") "}", 7, "ends at byte 8 of 7");
	refused("{" T("a", "F32", "[2]", "0", "8") "}", 9, "bytes after the last tensor");
	refused("{" T("a", "F32", "[2]", "4", "12") "}", 12, "bytes before tensor a");
	refused("{" T("a", "F32", "[3]", "0", "8") "}", 8, "do not match its shape");
	refused("{" T("a", "F33", "[2]", "0", "8") "}", 8, "dtype \"F33\" is unknown");
	refused("{" T("a", "F32", "[-2]", "0", "8") "}", 8, "dimension 0");
	refused("{" T("a", "F32", "[2.0]", "0", "8") "}", 8, "dimension 0");
	refused("{" T("a", "F32", "2", "0", "8") "}", 8, "shape is not a list");
	refused("{" T("a", "F32", "[1,1,1,1,1,1,1,1,2]", "0", "8") "}", 8, "shape is not a list");
	refused("{" T("a", "F32", "[2]", "8", "0") "}", 8, "data_offsets");
	refused("{" T("a", "F32", "[2]", "-8", "0") "}", 8, "data_offsets");
	refused("{" T("a", "F32", "[4611686018427387904,4]", "0", "0") "}", 0,
		"its shape has too many elements");
	refused("{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[2]", "4", "12") "}", 12,
		"overlaps");
	refused("{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[2]", "0", "8") "}", 8,
		"overlaps");
	refused("{" T("a", "U8", "[1]", "0", "1") "," T("a", "U8", "[1]", "1", "2") "}", 2,
		"duplicate");
	refused("{\"a\":[]}", 0, "expected dtype, shape and data_offsets");
	refused("{\"a\":{\"dtype\":\"U8\"}}", 0, "expected dtype");
	refused("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: a is not a text");
	refused("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
	refused("{" T("a\\u001b[2J", "U8", "[1]", "0", "1") "}", 1,
		"tensor a\x1b[2J: its name has control characters");
	refused("{" T("a", "\\u009b\\u001bc", "[1]", "0", "1") "}", 1, "\x1b\x63\" is unknown");
	refused("[]", 0, "");
	refused("{", 10, "header");
	refused("{}x", 0, "header");
}

TEST(bad_lengths)
{
	struct safetensors *file = NULL;
	put("{}", 3, 0);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	put("{}", SIZE_MAX, 0);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	put("", 0, 2);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	put("", 0, 0);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	assert_int_equal(safetensors_open("/dev/null", &file, error), -EBADMSG);
	assert_int_equal(safetensors_open("/nonexistent", &file, error), -ENOENT);
	put("", (size_t)SAFETENSORS_HEADER_MAX + 1, 0);
	assert_int_equal(truncate(path, 1 << 30), 0);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	assert_non_null(strstr(error, "a header of 33554433 bytes; at most 33554432 are read"));
}

/* A FIFO without a writer must not block the trainer. */
TEST(fifo)
{
	struct safetensors *file = NULL;
	unlink(path);
	assert_int_equal(mkfifo(path, 0666), 0);
	alarm(60);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	assert_non_null(strstr(error, "not a regular file"));
	alarm(0);
	unlink(path);
}

/*
 * A small header with many values is refused, because each takes a hundred times its bytes in
 * memory.
 */
TEST(crowded_header)
{
	struct safetensors *file = NULL;
	uint64_t values = SAFETENSORS_VALUES_MAX + 2;
	char *text = malloc(2 * values + 100), *at = stpcpy(text, "{\"a\":[0");
	for (uint64_t i = 1; i < values; i++)
		at = stpcpy(at, ",0");
	strcpy(at, "]}");
	put(text, strlen(text), 0);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
	assert_non_null(strstr(error, "header: more than 262144 values"));
	/* commas in strings separate no values */
	at = stpcpy(text, "{\"__metadata__\":{\"a\":\"\\\"");
	memset(at, ',', 2 * values);
	strcpy(at + 2 * values, "\"}}");
	put(text, strlen(text), 0);
	free(text);
	assert_int_equal(safetensors_open(path, &file, error), 0);
	assert_int_equal(strlen(safetensors_metadata(file, "a")), 2 * values + 1);
	safetensors_close(file);
	/* deep nesting is refused too */
	text = calloc(1, 100001);
	memset(text, '[', 100000);
	memcpy(text, "{\"a\":", 5);
	put(text, strlen(text), 0);
	free(text);
	assert_int_equal(safetensors_open(path, &file, error), -EBADMSG);
}

/*
 * Does not write through a link that another user, who knows the temporary file's name, placed
 * there.
 */
TEST(links_are_not_written_through)
{
	struct safetensors_writer writer = {NULL, 0, NULL, 0, NULL, NULL};
	char temporary[256], other[256];
	struct stat status;
	snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
	snprintf(other, sizeof(other), "%s/other", folder);
	fclose(fopen(other, "w"));
	assert_int_equal(symlink(other, temporary), 0);
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	assert_int_equal(stat(other, &status), 0);
	assert_int_equal(status.st_size, 0);
	assert_int_equal(lstat(path, &status), 0);
	assert_true(S_ISREG(status.st_mode));
	unlink(other);
}

/*
 * Every truncation, and every single damaged byte of the header, is either refused or leaves the
 * file consistent; nothing crashes.
 */
TEST(damage)
{
	float a[4] = {1, 2, 3, 4};
	struct safetensors_tensor tensors[] = {{"a", SAFETENSORS_F32, 1, {4}, a, sizeof(a)}};
	struct safetensors_writer writer = {tensors, 1, NULL, 0, NULL, NULL};
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	unsigned char bytes[512];
	FILE *file = fopen(path, "r");
	size_t size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	for (size_t cut = 0; cut < size; cut++) {
		struct safetensors *st;
		file = fopen(path, "w");
		fwrite(bytes, 1, cut, file);
		fclose(file);
		assert_int_equal(safetensors_open(path, &st, error), -EBADMSG);
	}
	for (size_t at = 0; at < size - sizeof(a); at++) {
		for (int bit = 0; bit < 8; bit++) {
			struct safetensors *st;
			bytes[at] ^= (unsigned char)(1 << bit);
			file = fopen(path, "w");
			fwrite(bytes, 1, size, file);
			fclose(file);
			if (!safetensors_open(path, &st, error)) {
				for (size_t i = 0; i < safetensors_count(st); i++)
					assert_true(safetensors_at(st, i)->size <= sizeof(a));
				safetensors_close(st);
			}
			bytes[at] ^= (unsigned char)(1 << bit);
		}
	}
}

/* CPU time to look up this many tensors by name. Absent names are not found. */
static double find_ns(unsigned count)
{
	enum { FINDS = 20000 };
	struct safetensors *file;
	struct timespec before, after;
	char name[32];
	FILE *out = fopen(path, "w");
	assert_non_null(out);
	fseek(out, 8, SEEK_SET);
	for (unsigned i = 0; i < count; i++)
		fprintf(out,
			"%c\"%u.conv1.weight\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,"
			"0]}",
			i ? ',' : '{', i);
	fputc('}', out);
	uint64_t size = htole64((uint64_t)ftell(out) - 8);
	rewind(out);
	fwrite(&size, 8, 1, out);
	assert_int_equal(fclose(out), 0);
	if (safetensors_open(path, &file, error))
		fail_msg("%s", error);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	for (unsigned i = 0; i < FINDS; i++) {
		snprintf(name, sizeof(name), "%u.conv1.weight",
			 (unsigned)(i * 2654435761u) % count);
		assert_string_equal(safetensors_find(file, name)->name, name);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	assert_null(safetensors_find(file, ".conv1.weight"));
	safetensors_close(file);
	return (double)(after.tv_sec - before.tv_sec) * 1e9 +
	       (double)(after.tv_nsec - before.tv_nsec);
}

/* Looking up every tensor of an untrusted file must not take quadratic time. */
TEST(many_names)
{
	double few = find_ns(500), many = find_ns(50000);
	if (many > 20 * few)
		fail_msg("%.0f ns among 500 tensors, %.0f ns among 50000", few, many);
}

TEST_MAIN(setup, teardown)
