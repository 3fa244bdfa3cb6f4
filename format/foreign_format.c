#include "format/foreign_format.h"

#include <string.h>
#include <strings.h>

#define TO_TAR                                                                                     \
	"write its images with loaderd.Writer in Python, to files, or with their labels to a "     \
	"WebDataset tar, and convert that"
#define BY_CONVERTER "\"python -m loaderd.convert\" with its name writes a dataset from it"
#define OF_CIFAR                                                                                   \
	"if it is of CIFAR, \"python -m loaderd.convert\" with its name writes a "                 \
	"dataset from it; else loaderd.Writer does, from Python"
#define FROM_MATLAB                                                                                \
	"scipy.io.loadmat() in Python reads it: write its labels to a CSV with the columns path "  \
	"and label, or its images with loaderd.Writer"
#define ARCHIVES                                                                                   \
	"give it to packimg convert as a SRC, with --class-from archive where each is a class"

static const struct row {
	struct foreign foreign;
	const char
		*magic; /* bytes that identify the format; NULL if a function below recognises it */
	size_t magic_size, offset;
	const char *endings[4];
} rows[] = {
	/*
	 * first, because a tar file begins with the name of its first member, which may look like
	 * other magic
	 */
	{{"an archive", ARCHIVES, true}, "ustar", 5, 257, {".tar", ".tgz"}},
	{{"a Parquet file", BY_CONVERTER}, "PAR1", 4, 0, {".parquet", ".pq"}},
	{{"an Arrow file", BY_CONVERTER}, "ARROW1", 6, 0, {".arrow", ".feather"}},
	{{"an Arrow stream", BY_CONVERTER}, "\xff\xff\xff\xff", 4, 0, {0}},
	{{"a NumPy array", BY_CONVERTER}, "\x93NUMPY", 6, 0, {".npy", ".npz"}},
	{{"an HDF5 file", TO_TAR}, "\x89HDF\r\n\x1a\n", 8, 0, {".h5", ".hdf5"}},
	{{"an LMDB database", TO_TAR}, "\xde\xc0\xef\xbe", 4, 16, {".mdb", ".lmdb"}},
	{{"an SQLite database", TO_TAR}, "SQLite format 3", 16, 0, {".sqlite", ".db"}},
	{{"a RecordIO file", TO_TAR}, "\x0a\x23\xd7\xce", 4, 0, {".rec"}},
	{{"a MATLAB file", FROM_MATLAB}, "MATLAB 5.0 MAT-file", 19, 0, {".mat"}},
	{{"an idx file, as of MNIST",
	  "give the file of the images to packimg convert, which finds the labels beside it"},
	 "\0\0\x08",
	 3,
	 0,
	 {"ubyte", "ubyte.gz", ".idx"}},
	{{"a TFRecord file", BY_CONVERTER}, NULL, 0, 0, {".tfrecord", ".tfrecords", ".tfrec"}},
	{{"a dataset of FFCV", BY_CONVERTER}, NULL, 0, 0, {".beton"}},
	{{"a pickle of Python", OF_CIFAR}, "\x80\x02", 2, 0, {".pkl", ".pickle"}},
	{{"a pickle of Python", OF_CIFAR}, "\x80\x03", 2, 0, {0}},
	{{"a pickle of Python", OF_CIFAR}, "\x80\x04", 2, 0, {0}},
	{{"a pickle of Python", OF_CIFAR}, "\x80\x05", 2, 0, {0}},
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
	{{"a zip archive (.npz and .pt files are, too)", ARCHIVES, true}, "PK\3\4", 4, 0, {".zip"}},
	{{"a JPEG image", "packimg convert packs a folder of them", true},
	 "\xff\xd8\xff",
	 3,
	 0,
	 {0}},
	{{"a PNG image", "packimg convert packs a folder of them", true},
	 "\x89PNG\r\n\x1a\n",
	 8,
	 0,
	 {0}},
	{{"compressed with gzip", "unpack it first", true}, "\x1f\x8b", 2, 0, {0}},
	{{"compressed with zstd", "unpack it first", true}, "\x28\xb5\x2f\xfd", 4, 0, {0}},
	{{"a JSON text",
	  "if it is Hugging Face's metadata.jsonl, \"python -m loaderd.convert\" with "
	  "its name takes it; else write a table of it, a CSV with the columns "
	  "path and label, and convert that"},
	 NULL,
	 0,
	 0,
	 {".jsonl", ".json", ".ndjson"}},
	{{"a PDF", "export its images to files"}, "%PDF-", 5, 0, {".pdf"}},
};

enum { ROWS = sizeof(rows) / sizeof(*rows) };

/* CRC-32C (RFC 3720, B.4), bit by bit: the input has only eight bytes. */
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
 * Recognises a TFRecord file: it begins with the length of the first record and the masked CRC-32C
 * of the length (tensorflow/core/lib/io/record_writer.h, lib/hash/crc32c.h).
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

/*
 * Recognises FFCV's files: version 2, the number of fields, the size of a page, a power of two, and
 * behind 24 bytes the type of the first field, at most 6 or 255 (ffcv/types.py).
 */
static bool is_beton(const uint8_t *head, size_t size)
{
	if (size < 32 || head[0] != 2 || head[1] != 0 || head[2] == 0 || head[3] != 0)
		return false;
	uint32_t page = head[4] | (uint32_t)head[5] << 8 | (uint32_t)head[6] << 16 |
			(uint32_t)head[7] << 24;
	return page >= 4096 && (page & (page - 1)) == 0 && (head[24] <= 6 || head[24] == 255) &&
	       head[25] > ' ' && head[25] < 0x7f;
}

/*
 * Recognises safetensors: an 8-byte little-endian length, then a JSON object, which safetensors
 * limits to 100 MB.
 */
static bool is_safetensors(const uint8_t *head, size_t size)
{
	static const uint8_t none[4];

	return size > 8 && head[8] == '{' && memcmp(head + 4, none, sizeof(none)) == 0;
}

static bool is_text(const uint8_t *head, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((head[i] < ' ' && !memchr("\t\n\r\f", head[i], 4)) || head[i] == 0x7f)
			return false;
	return size > 0;
}

const struct foreign *foreign_format_of_head(const uint8_t *head, size_t size)
{
	static const struct foreign weights = {"a safetensors file",
					       "it holds weights, and no images", false},
				    text = {"a text file",
					    "packimg convert packs what a manifest lists", true};

	for (size_t i = 0; i < ROWS; i++) {
		const struct row *row = &rows[i];

		if (row->magic && size >= row->offset + row->magic_size &&
		    memcmp(head + row->offset, row->magic, row->magic_size) == 0)
			return &row->foreign;
	}
	if (is_tfrecord(head, size))
		return foreign_format_of_name("-.tfrecord");
	if (is_safetensors(head, size))
		return &weights;
	if (is_beton(head, size))
		return foreign_format_of_name("-.beton");
	if (!is_text(head, size))
		return NULL;
	return *head == '{' || *head == '[' ? foreign_format_of_name("-.json") : &text;
}

const struct foreign *foreign_format_of_name(const char *name)
{
	size_t size = strlen(name);

	for (size_t i = 0; i < ROWS; i++)
		for (const char *const *ending = rows[i].endings; *ending; ending++)
			if (size > strlen(*ending) &&
			    strcasecmp(name + size - strlen(*ending), *ending) == 0)
				return &rows[i].foreign;
	return NULL;
}
