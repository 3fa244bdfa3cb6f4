#include "tools/packimg/source/foreign.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define TO_TAR                                                                                     \
	"write its images to files, or with their labels to a WebDataset tar, and convert that"

static const struct row {
	struct foreign foreign;
	const char *magic; /* NULL: by name, or as foreign_of_head() says */
	size_t magic_size, offset;
	const char *endings[4];
} rows[] = {
	{{"a Parquet file", TO_TAR}, "PAR1", 4, 0, {".parquet", ".pq"}},
	{{"an Arrow file", TO_TAR}, "ARROW1", 6, 0, {".arrow", ".feather"}},
	{{"an Arrow stream", TO_TAR}, "\xff\xff\xff\xff", 4, 0, {0}},
	{{"a NumPy array", TO_TAR}, "\x93NUMPY", 6, 0, {".npy", ".npz"}},
	{{"an HDF5 file", TO_TAR}, "\x89HDF\r\n\x1a\n", 8, 0, {".h5", ".hdf5"}},
	{{"an LMDB database", TO_TAR}, "\xde\xc0\xef\xbe", 4, 16, {".mdb", ".lmdb"}},
	{{"an SQLite database", TO_TAR}, "SQLite format 3", 16, 0, {".sqlite", ".db"}},
	{{"a RecordIO file", TO_TAR}, "\x0a\x23\xd7\xce", 4, 0, {".rec"}},
	{{"a MATLAB file", TO_TAR}, "MATLAB 5.0 MAT-file", 19, 0, {".mat"}},
	{{"an idx file, as of MNIST", TO_TAR}, "\0\0\x08", 3, 0, {"ubyte", "ubyte.gz", ".idx"}},
	{{"a TFRecord file", TO_TAR}, NULL, 0, 0, {".tfrecord", ".tfrecords", ".tfrec"}},
	{{"a pickle of Python", TO_TAR}, "\x80\x02", 2, 0, {".pkl", ".pickle"}},
	{{"a pickle of Python", TO_TAR}, "\x80\x03", 2, 0, {0}},
	{{"a pickle of Python", TO_TAR}, "\x80\x04", 2, 0, {0}},
	{{"a pickle of Python", TO_TAR}, "\x80\x05", 2, 0, {0}},
	{{"a dataset of packimg already", "packimg merge makes one of several, packimg extract "
					  "files"},
	 "\x89PIMG\r\n\x1a",
	 8,
	 0,
	 {".pimg"}},
	{{"a 7z archive", "unpack it, and convert the folder"},
	 "7z\xbc\xaf\x27\x1c",
	 6,
	 0,
	 {".7z"}},
	{{"a RAR archive", "unpack it, and convert the folder"}, "Rar!\x1a\x07", 6, 0, {".rar"}},
	{{"an archive", "give such archives themselves as SRC, with --class-from archive where "
			"each is a class"},
	 NULL,
	 0,
	 0,
	 {".tar", ".tgz", ".zip"}},
	{{"a PDF", "export its images to files"}, "%PDF-", 5, 0, {".pdf"}},
	{{"a JSON text", "write a table of it, a CSV with the columns path and label, and convert "
			 "that"},
	 "{",
	 1,
	 0,
	 {".jsonl", ".json", ".ndjson"}},
	{{"a JSON text", "write a table of it, a CSV with the columns path and label, and convert "
			 "that"},
	 "[",
	 1,
	 0,
	 {0}},
};

enum { ROWS = sizeof(rows) / sizeof(*rows) };

/* CRC-32C (RFC 3720, B.4), bit by bit: it is of eight bytes. */
static uint32_t crc32c(const uint8_t *bytes, size_t size)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < size; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
	}
	return ~crc;
}

/*
 * A TFRecord file begins with the first record's length and the masked CRC-32C of that
 * (tensorflow/core/lib/io/record_writer.h, lib/hash/crc32c.h).
 */
static bool is_tfrecord(const uint8_t *head, size_t size)
{
	if (size < 12)
		return false;
	uint32_t crc = crc32c(head, 8), stored = 0;
	for (int i = 0; i < 4; i++)
		stored |= (uint32_t)head[8 + i] << 8 * i;
	return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8) == stored;
}

const struct foreign *foreign_of_head(const uint8_t *head, size_t size)
{
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *row = &rows[i];

		if (row->magic && size >= row->offset + row->magic_size &&
		    memcmp(head + row->offset, row->magic, row->magic_size) == 0)
			return &row->foreign;
	}
	return is_tfrecord(head, size) ? foreign_of_name("-.tfrecord") : NULL;
}

const struct foreign *foreign_of_name(const char *name)
{
	size_t size = strlen(name);

	for (size_t i = 0; i < ROWS; i++)
		for (const char *const *ending = rows[i].endings; *ending; ending++)
			if (size > strlen(*ending) &&
			    strcasecmp(name + size - strlen(*ending), *ending) == 0)
				return &rows[i].foreign;
	return NULL;
}
