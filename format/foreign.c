#include "format/foreign.h"

#include <stdbool.h>
#include <string.h>

static const struct {
	size_t offset, size;
	const char *magic, *kind;
} kinds[] = {
	{257, 5, "ustar", "a tar archive: packimg convert packs it"},
	{0, 4, "PK\3\4",
	 "a zip archive (or what is one, .npz and .pt): packimg convert packs images"},
	{0, 4, "PAR1", "a Parquet file: write its images to a folder or a tar, and pack that"},
	{0, 8, "\x89HDF\r\n\x1a\n",
	 "an HDF5 file: write its images to a folder or a tar, and pack that"},
	{0, 6, "\x93NUMPY", "a NumPy array: write its images to a folder or a tar, and pack that"},
	{0, 3, "\xff\xd8\xff", "a JPEG image: packimg convert packs a folder of them"},
	{0, 8, "\x89PNG\r\n\x1a\n", "a PNG image: packimg convert packs a folder of them"},
	{0, 2, "\x1f\x8b", "compressed with gzip: unpack it first"},
	{0, 4, "\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"},
};

/* A length of 8 bytes, little-endian, and an object of JSON, of which safetensors allows 100 MB. */
static bool is_safetensors(const uint8_t *bytes, size_t size)
{
	static const uint8_t none[4];
	return size > 8 && bytes[8] == '{' && memcmp(bytes + 4, none, sizeof(none)) == 0;
}

static bool is_text(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((bytes[i] < ' ' && !memchr("\t\n\r\f", bytes[i], 4)) || bytes[i] == 0x7f)
			return false;
	return size > 0;
}

const char *foreign_kind(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].offset + kinds[i].size <= size &&
		    memcmp(bytes + kinds[i].offset, kinds[i].magic, kinds[i].size) == 0)
			return kinds[i].kind;
	if (is_safetensors(bytes, size))
		return "a safetensors file: it holds weights, and no images";
	if (is_text(bytes, size))
		return "a text file: packimg convert packs what a manifest lists";
	return NULL;
}
