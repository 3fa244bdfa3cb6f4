/* Hashes of files, which identify a teacher's weights. */
#include "tests/test.h"
#include "trainer/run/hash.h"

#include <sys/stat.h>

enum { SIZE = 200001 };

static char path[] = "/tmp/test_hash.XXXXXX";

static int setup(void **state)
{
	return mkdtemp(path) && chdir(path) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	unlink("file");
	unlink("fifo");
	return rmdir(path);
}

/* Changes of any byte change the hash, also across the 65536 bytes read at a time. */
TEST(every_byte_counts)
{
	static const long places[] = {0, 65535, 65536, 131072, SIZE - 1};
	uint64_t first, hash;
	FILE *file = fopen("file", "w+");
	for (int i = 0; i < SIZE; i++)
		fputc(i % 251, file);
	fflush(file);
	assert_int_equal(hash_file("file", &first), 0);
	assert_int_equal(hash_file("file", &hash), 0);
	assert_true(hash == first);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		fseek(file, places[i], SEEK_SET);
		fputc(252, file);
		fflush(file);
		assert_int_equal(hash_file("file", &hash), 0);
		assert_true(hash != first);
		first = hash;
	}
	fclose(file);
}

/* If another process replaces the file by a FIFO after the check, opening it does not block. */
TEST(nobody_is_waited_for)
{
	uint64_t hash = 7;
	assert_int_equal(mkfifo("fifo", 0600), 0);
	alarm(20);
	assert_int_equal(hash_file("fifo", &hash), -EBADF);
	alarm(0);
	assert_int_equal(hash_file(".", &hash), -EBADF);
	assert_int_equal(hash_file("nothing", &hash), -ENOENT);
	assert_true(hash == 7);
}

TEST_MAIN(setup, teardown)
