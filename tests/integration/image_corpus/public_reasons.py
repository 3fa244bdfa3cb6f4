"""Expected outcomes for images in public collections, and the reason if they differ from Pillow's."""

EQUAL, WITHIN, DEEP = "equal", "within the bound", "16-bit grey, high byte"
NEITHER, HERE, THERE, DIFFERS = "refused by both", "refused by packimg alone", "refused by Pillow alone", "differs"

KINDS = "packimg(1) names this kind as one that is not read"
NUMBERS = "packimg(1): unsigned integers of 1 to 16 bits; other numbers have no known range, and Pillow clips them"
TORN = "damaged on purpose, as a test of readers"
CUT = "the file ends before its image does, or has none"
MASKS = "packimg reads any masks, Pillow those that it lists; within 1 of the collection's own PNG"
SAMPLES = "packimg reads 1 to 16 bits a sample, Pillow few of them; the same as tifffile 2026.3.3 makes of it"
RUNS = "pixels beyond the end of a row, or a jump out of the picture: the format's text does not say what they would be; Pillow makes something of them"
SHOWN = "Pillow shows what it can of damaged data"

# (pattern of corpus/name, verdict, regular expression for the details, reason); the first match counts
REASONS = [
    # in every collection
    ("*", NEITHER, "^packimg: .*image; what is read is", KINDS),
    ("*", HERE, "image; what is read is", KINDS),
    ("*", NEITHER, "^packimg: not supported", "neither reads this sort, and packimg says so"),
    ("*.tif*", HERE, "^not supported: .*(sample format [23]|32-bit samples)", NUMBERS),
    ("*", NEITHER, "^packimg: (its size of|.* pixels are more than)", "packimg(1): sides of 1 to 65535, and --max-pixels"),
    ("*/big_g4.tif", HERE, "^its size of 1x65537", "a dataset holds sides of up to 65535"),
    # BMP: jsummers+bmpsuite, and Pillow's copy of it
    ("*/b/badrle*.bmp", HERE, "^damaged BMP", RUNS),
    ("*/b/pal8badindex.bmp", HERE, "not in its table", "packimg(1): colours that a table lacks are damage; Pillow makes up some"),
    ("*/b/shortfile.bmp", NEITHER, "ends within its pixels", CUT),
    ("*/b/badpalettesize.bmp", THERE, "Palette size", "more colours than 8 bits can name: the others are passed over"),
    ("*/q/pal8oversizepal.bmp", THERE, "palette size", "more colours than 8 bits can name: the others are passed over"),
    ("*/b/rgb16-880.bmp", THERE, "bitfields", "a mask for blue that is empty gives no blue; Pillow knows a few masks only"),
    ("*/g/rgb32bf.bmp", THERE, "bitfields", MASKS),
    ("*/q/rgb*.bmp", THERE, "bitfields", MASKS),
    ("*/q/pal[48]rlecut.bmp", THERE, "not enough image data", "the file ends its picture early: what it leaves out has the first colour; Pillow wants all lines"),
    # robert-ancell+pygif
    ("*/test-suite/image-zero-*.gif", NEITHER, "damaged GIF", "the frame promises a table of colours, and the file ends"),
    ("*/test-suite/invalid-code.gif", NEITHER, "damaged GIF", "an undefined code"),
    ("*/test-suite/invalid-colors.gif", HERE, "not in its table", "packimg(1): colours that a table lacks are damage"),
    ("*/test-suite/max-codes.gif", HERE, "^not supported: GIF whose codes", "giflib reads up to 8 bits a pixel"),
    ("*/test-suite/overflow-codes*.gif", NEITHER, "longer than 12 bits", "the format has no longer codes"),
    # image-rs+image-gif
    ("image-rs+image-gif/tests/crashtest/*.gif", NEITHER, "damaged GIF", TORN),
    # image-rs+image-tiff
    ("*/fuzz_images/*", NEITHER, "damaged TIFF", TORN),
    ("*/libtiffpic/text.tif", NEITHER, "Not enough data", "the last strip has the codes of 36 rows of 39"),
    ("*/usda_naip_256_webp_z3.tif", THERE, "decoder error", "WebP in TIFF, which the libtiff of Pillow's wheel lacks; the same as tifffile 2026.3.3 makes of it"),
    ("*/cmyk-*c-*.tiff", THERE, "no such image", "CMYK with alpha, which is dropped"),
    ("*/BigTIFFMotorola.tif", THERE, "no such image", "BigTIFF with the high byte first; the same as tifffile 2026.3.3 makes of it"),
    ("*/cramps-tile.tif", THERE, "truncated", "tiles that are whole; the same as tifffile 2026.3.3 makes of it"),
    ("*/dscf0013.tif", THERE, "truncated", "Pillow takes uncompressed YCbCr of 4:2:0 or 4:2:2 for cut"),
    ("*/minisblack-2c-8b-alpha.tiff", THERE, "La to L", "grey multiplied by alpha, which Pillow does not convert"),
    ("*/subsubifds.tif", THERE, "La to L", "grey multiplied by alpha, which Pillow does not convert"),
    ("*/flower-rgb-planar-16.tif", DIFFERS, "", "Pillow takes the low bytes of planes of 16 bits; the same as flower-rgb-contig-16.tif, and as tifffile 2026.3.3 makes of it"),
    ("*/flower-separated-planar-16.tif", DIFFERS, "", "Pillow takes the low bytes of planes of 16 bits; the same as flower-separated-contig-16.tif"),
    # tlnagy+exampletiffs
    ("*/house.tif", THERE, "no such image", "grey and alpha, with private tags that have no values; the same as tifffile 2026.3.3 makes of it"),
    # AOMediaCodec+libavif
    ("*/alpha_noispe.avif", NEITHER, "damaged AVIF", "its alpha lacks the size that the format demands"),
    ("*/circle-trns-before-plte.png", HERE, "invalid chunk position", "tRNS must follow PLTE"),
    ("*/paris_icc_exif_xmp.png", THERE, "fromhex", "the raw profile in its text holds a character that is no digit: packimg takes no orientation from it"),
    ("*/clap_irot_imir_non_essential.avif", THERE, "no such image", "libavif 1.4.2 wants rotation and mirroring to be marked as essential, 0.11.1 applies them as they are"),
    ("*/pyramid_pymd.avif", THERE, "no such image", "libavif 1.4.2 refuses a group of images, 0.11.1 passes over it: the image is whole"),
    ("*/*gainmap*.avif", THERE, "tone mapped", "the image is whole; packimg reads no gain map"),
    # AOMediaCodec+av1-avif
    ("*/non_compliant/truncated_elementary_stream.avif", HERE, "^not supported: AVIF.*too large", "an item is larger than the image, beyond what packimg gives memory to"),
    # python-pillow+Pillow
    ("*/hopper_webp.tif", THERE, "decoder error", "WebP in TIFF, which the libtiff of Pillow's wheel lacks"),
    ("*/apng/chunk_no_fctl.png", THERE, "frame sequence", "the still picture is whole; packimg passes over frames"),
    ("*/apng/syntax_num_frames_zero.png", NEITHER, "damaged PNG", CUT),
    ("*/avif/xmp_tags_orientation.avif", DIFFERS, "", "packimg(1): in AVIF rotation and mirroring count (ISO/IEC 23008-12), and what XMP says does not"),
    ("*/broken*.png", NEITHER, "damaged PNG", CUT),
    ("*/truncated_*.png", NEITHER, "damaged PNG", CUT),
    ("*/unknown_compression_method.png", NEITHER, "checksum", "a byte was changed, and the chunk's checksum was not"),
    ("*/png_decompression_dos.png", THERE, "MAX_TEXT_CHUNK", "text of 64 MiB unpacked is more than Pillow reads, and within what packimg reads"),
    ("*/images/crash-*.tif", NEITHER, "damaged TIFF", TORN),
    ("*/images/crash-*.tif", HERE, "Line length mismatch", SHOWN),
    ("*/images/oom-*.tif", NEITHER, "damaged TIFF", TORN),
    ("*/libtiff_segfault.tif", NEITHER, "too much memory", TORN),
    ("*/seek_too_large.tif", NEITHER, "damaged TIFF", TORN),
    ("*/tiff_overflow_rows_per_strip.tif", NEITHER, "damaged TIFF", TORN),
    ("*/images/decompression_bomb.gif", NEITHER, "damaged GIF", CUT),
    ("*/images/zero_width.gif", NEITHER, "damaged GIF", CUT),
    ("*/images/issue_2811.gif", HERE, "^not supported: GIF whose codes", "giflib reads up to 8 bits a pixel"),
    ("*/hopper_bad_exif.jpg", HERE, "bad Huffman code", SHOWN + ": its header says grey, its data are of more; in every row bytes remain or codes are wrong"),
    ("*/truncated_jpeg.jpg", THERE, "truncated", "the end marker is missing and nothing else (format/SPEC.md, Complete JPEGs)"),
    ("*/ultrahdr.jpg", NEITHER, "truncated or damaged", CUT),
    ("*/hopper_rle8_row_overflow.bmp", HERE, "^damaged BMP", RUNS),
    ("*/mmap_error.bmp", HERE, "not in its table", "packimg(1): colours that a table lacks are damage; Pillow makes up some"),
    ("*/l2rgb_read.bmp", NEITHER, "ends within its colours", CUT),
    ("*/negative_size.ppm", NEITHER, "not an image", "no white space after P6"),
    # unusual numbers of bits per sample
    ("*.tif*", THERE, "no such image", SAMPLES),
]
