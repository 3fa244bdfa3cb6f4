#include "format/base/exif.h"
#include "format/base/copy_once.h"

#include <stdbool.h>
#include <string.h>

enum {
	TAG_ORIENTATION = 0x0112,
	IFD_ENTRY_SIZE = 12,
	UPRIGHT = 1,
};

/* TIFF 6.0, section 2. An IFD has the format of a LONG. */
enum tiff_type {
	TIFF_BYTE = 1,
	TIFF_ASCII,
	TIFF_RATIONAL = 5,
	TIFF_UNDEFINED = 7,
	TIFF_SRATIONAL = 10,
	TIFF_FLOAT,
	TIFF_DOUBLE,
	TIFF_TYPES = 14,
};

/* Size of a value in bytes, by type. */
static const uint8_t type_sizes[TIFF_TYPES] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4};

static uint64_t exif_get(const uint8_t *from, int size, bool little)
{
	uint8_t bytes[8];
	uint64_t value = 0;

	copy_once(bytes, from, (size_t)size);
	for (int i = 0; i < size; i++)
		value = value << 8 | bytes[little ? size - 1 - i : i];
	return value;
}

static double real_value(enum tiff_type type, const uint8_t *value, bool little)
{
	if (type == TIFF_FLOAT) {
		uint32_t bits = (uint32_t)exif_get(value, 4, little);
		float number;

		memcpy(&number, &bits, sizeof(number));
		return (double)number;
	}
	if (type == TIFF_DOUBLE) {
		uint64_t bits = exif_get(value, 8, little);
		double number;

		memcpy(&number, &bits, sizeof(number));
		return number;
	}
	uint64_t above = exif_get(value, 4, little), below = exif_get(value + 4, 4, little);
	/* A negative SRATIONAL is read as unsigned, and is then far outside 1 .. 8. */
	return below == 0 ? 0 : (double)above / (double)below;
}

/* Converts the first value of a tag. */
static uint8_t number_orientation(enum tiff_type type, const uint8_t *value, bool little)
{
	double number = 0;

	if (type == TIFF_FLOAT || type == TIFF_DOUBLE || type == TIFF_RATIONAL ||
	    type == TIFF_SRATIONAL)
		number = real_value(type, value, little);
	else if (type != TIFF_BYTE && type != TIFF_ASCII && type != TIFF_UNDEFINED)
		number = (double)exif_get(value, type_sizes[type], little);
	for (uint8_t orientation = UPRIGHT; orientation <= 8; orientation++)
		if (number == orientation)
			return orientation;
	return UPRIGHT;
}

/* Returns 0 if the entry is unreadable. */
static uint8_t entry_orientation(const uint8_t *tiff, size_t size, const uint8_t *entry,
				 bool little)
{
	uint32_t type = (uint32_t)exif_get(entry + 2, 2, little);
	uint32_t count = (uint32_t)exif_get(entry + 4, 4, little);
	const uint8_t *value = entry + 8;

	if (type >= TIFF_TYPES || type_sizes[type] == 0 || count == 0)
		return 0;
	uint64_t bytes = (uint64_t)count * type_sizes[type];
	if (bytes > 4) {
		uint64_t offset = exif_get(value, 4, little);

		if (offset > size || bytes > size - offset)
			return 0;
		value = tiff + offset;
	}
	return number_orientation((enum tiff_type)type, value, little);
}

uint8_t exif_orientation(const uint8_t *data, size_t size)
{
	uint8_t found = 0;

	if (size >= 6 && memcmp(data, "Exif\0", 5) == 0) {
		data += 6;
		size -= 6;
	}
	if (size < 8)
		return 0;
	bool little = memcmp(data, "II", 2) == 0;
	if ((!little && memcmp(data, "MM", 2) != 0) || exif_get(data + 2, 2, little) != 42)
		return 0;
	size_t ifd = (size_t)exif_get(data + 4, 4, little);
	if (ifd > size || size - ifd < 2)
		return 0;
	size_t count = (size_t)exif_get(data + ifd, 2, little);
	size_t room = (size - ifd - 2) / IFD_ENTRY_SIZE;
	for (size_t i = 0; i < count && i < room; i++) {
		const uint8_t *entry = data + ifd + 2 + i * IFD_ENTRY_SIZE;
		uint8_t orientation = 0;

		if (exif_get(entry, 2, little) == TAG_ORIENTATION)
			orientation = entry_orientation(data, size, entry, little);
		if (orientation != 0)
			found = orientation;
	}
	return found;
}

uint8_t xmp_orientation(const uint8_t *text, size_t size)
{
	static const char name[] = "tiff:Orientation";
	const uint8_t *end = text + size, *found = text;

	while ((found = memmem(found, (size_t)(end - found), name, sizeof(name) - 1))) {
		uint8_t following[3] = {0};

		found += sizeof(name) - 1;
		size_t room = (size_t)(end - found);
		copy_once(following, found, room < sizeof(following) ? room : sizeof(following));
		int digit = following[0] == '>'                          ? following[1]
			    : following[0] == '=' && following[1] == '"' ? following[2]
									 : 0;
		if (digit >= '0' && digit <= '9')
			return digit >= '1' && digit <= '8' ? (uint8_t)(digit - '0') : UPRIGHT;
	}
	return 0;
}

uint8_t orientation_of(uint8_t exif, uint8_t xmp)
{
	return exif ? exif : xmp ? xmp : UPRIGHT;
}
