#include "format/augment/grammar/transforms.h"
#include "format/base/schema.h"
#include "tests/test.h"

static struct pipeline *parse(const char *text)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	if (pipeline_parse(text, &pipeline, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return pipeline;
}

static void expect_error(const char *text, int result, int position, const char *words)
{
	struct pipeline *pipeline = (struct pipeline *)1;
	struct pipeline_error error = {.position = -2};
	int r = pipeline_parse(text, &pipeline, &error);

	if (r != result || error.position != position || !strstr(error.text, words))
		fail_msg("'%s': got %d at %d, \"%s\"; expected %d at %d, \"%s\"", text, r,
			 error.position, error.text, result, position, words);
	assert_ptr_equal(pipeline, (struct pipeline *)1);
	assert_int_equal(pipeline_parse(text, &pipeline, NULL), result);
}

TEST(values_are_named)
{
	struct pipeline *t = parse("random_crop(8) mask , depth:fill(255) to(f32)\n depth : "
				   "filter(bilinear) clamp_boxes boxes: sanitize_boxes(3) "
				   "x.y_2: fill(-0.5) mask: to(i64) x.y_2: to(u8) "
				   "x.y_2: filter(bicubic)");
	const struct pipeline_value *values;
	unsigned count;

	values = pipeline_values(t, &count);
	assert_int_equal(count, 4);
	assert_string_equal(values[0].name, "mask");
	assert_int_equal(values[0].position, 15);
	assert_int_equal(values[0].fill_position, 28);
	assert_int_equal(values[0].filter_position, -1);
	assert_string_equal(values[1].name, "depth");
	assert_true(values[0].fill == 255 && values[1].fill == 255);
	assert_int_equal(values[0].filter, PIPELINE_NEAREST);
	assert_int_equal(values[1].filter, PIPELINE_BILINEAR);
	assert_int_equal(values[2].boxes_position, 91);
	assert_int_equal(values[2].fill_position, -1);
	assert_true(values[3].fill == -0.5);
	assert_int_equal(values[3].filter, PIPELINE_BICUBIC);
	assert_int_equal(values[0].element, SCHEMA_I64);
	assert_int_equal(values[1].element, 0);
	assert_int_equal(values[1].to_position, -1);
	assert_int_equal(values[3].element, SCHEMA_U8);
	assert_int_equal(t->element, PIPELINE_F32);
	assert_int_equal(t->transform_count, 3);
	assert_int_equal(t->transforms[1].values, 0);
	assert_int_equal(t->transforms[2].values, 1u << 2);
	assert_true(t->transforms[2].min_size == 3);
	pipeline_free(t);
}

TEST(iou_crops_have_torchvisions_arguments)
{
	static const double usual[] = {0, 0.1, 0.3, 0.5, 0.7, 0.9, 1};
	struct pipeline *t = parse("random_iou_crop");
	const struct transform *crop = pipeline_iou_crop(t);

	assert_true(crop->scale[0] == 0.3 && crop->scale[1] == 1 && crop->ratio[0] == 0.5 &&
		    crop->ratio[1] == 2);
	assert_int_equal(crop->trials, 40);
	assert_int_equal(crop->overlaps.count, 7);
	assert_memory_equal(crop->overlaps.numbers, usual, sizeof(usual));
	assert_int_equal(crop->values, 0);
	pipeline_free(t);
	t = parse("hflip b: random_iou_crop(0.2, 0.2, 1, 3, 2:0.25, trials=7) a: clamp_boxes");
	crop = pipeline_iou_crop(t);
	assert_true(crop->scale[0] == 0.2 && crop->scale[1] == 0.2 && crop->ratio[1] == 3);
	assert_int_equal(crop->overlaps.count, 2);
	assert_true(crop->overlaps.numbers[0] == 2 && crop->overlaps.numbers[1] == 0.25);
	assert_int_equal(crop->trials, 7);
	assert_int_equal(crop->values, 1);
	pipeline_free(t);
	t = parse("random_iou_crop(sampler_options=0.5)");
	assert_int_equal(pipeline_iou_crop(t)->overlaps.count, 1);
	pipeline_free(t);
	t = parse("hflip");
	assert_null(pipeline_iou_crop(t));
	pipeline_free(t);
}

TEST(iou_crops_that_cannot_be_are_refused)
{
	expect_error("random_iou_crop(0.5, 0.3)", -EINVAL, 21,
		     "min_scale of 0.5 is above max_scale, 0.3");
	expect_error("random_iou_crop(max_scale=0.25)", -EINVAL, 26,
		     "min_scale of 0.3 is above max_scale, 0.25");
	expect_error("random_iou_crop(min_aspect_ratio=3)", -EINVAL, 33,
		     "min_aspect_ratio of 3 is above max_aspect_ratio, 2");
	expect_error("random_iou_crop(max_scale=1.5)", -EINVAL, 26, "max_scale is from 0.001 to 1");
	expect_error("random_iou_crop(trials=0)", -EINVAL, 23, "trials is from 1 to 1000");
	expect_error("random_iou_crop(sampler_options=0.1:-1)", -EINVAL, 36,
		     "sampler_options is from 0 to 10");
	expect_error("random_iou_crop(sampler_options=1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1)", -EINVAL,
		     63, "sampler_options has at most 16 numbers");
	expect_error("random_iou_crop(sampler_options=[0.1, 0.3])", -EINVAL, 32,
		     "several are written without brackets, with ':' between them");
	expect_error("random_iou_crop hflip random_iou_crop(0.5)", -EINVAL, 22,
		     "random_iou_crop is given twice");
	expect_error("a, b: random_iou_crop", -EINVAL, 0,
		     "random_iou_crop chooses by the boxes of one value: name one");
	expect_error("IoUCrop", -EINVAL, 0, "did you mean 'random_iou_crop'?");
	expect_error("RandomIoUCrop", -EINVAL, 0, "did you mean 'random_iou_crop'?");
}

TEST(names_are_refused_where_they_mean_nothing)
{
	char many[17 * 10 + 1] = "", longest[80];

	expect_error("hflip fill(3)", -EINVAL, 6,
		     "fill is for single values: write their names before it, as in 'mask: "
		     "fill(...)'");
	expect_error("filter(nearest)", -EINVAL, 0, "filter is for single values");
	expect_error("a, mask: hflip", -EINVAL, 0,
		     "hflip acts on all values of a sample, so that they stay together: write it "
		     "without names before it");
	expect_error("left: random_rotation(4)", -EINVAL, 0,
		     "random_rotation acts on all values of a sample, so that they stay together");
	expect_error("hflip left: rand_augment", -EINVAL, 6, "rand_augment acts on all images");
	expect_error("left: layout(nchw)", -EINVAL, 0, "layout acts on all images");
	expect_error("a: fill(1) b, a: fill(2)", -EINVAL, 17, "fill of 'a' is given twice");
	expect_error("mask: fill", -EINVAL, 6, "fill needs its argument value");
	expect_error("mask: filter(cubic)", -EINVAL, 13,
		     "expected one of nearest|bilinear|bicubic");
	expect_error("mask:", -EINVAL, 5, "expected the name of a transform");
	expect_error("mask: a: fill(1)", -EINVAL, 6, "there is no transform 'a'");
	expect_error("mask, : fill(1)", -EINVAL, 0, "there is no transform 'mask'");
	expect_error("3: fill(1)", -EINVAL, 0, "expected the name of a transform");
	for (int i = 0; i < 17; i++)
		sprintf(many + strlen(many), "%c:fill(1) ", 'a' + i);
	expect_error(many, -E2BIG, 160, "a pipeline names at most 16 values");
	memset(longest, 'n', 64);
	strcpy(longest + 64, ": fill(1)");
	expect_error(longest, -EINVAL, 0, "the name of a value has at most 63 bytes");
}

TEST(transforms_are_read)
{
	struct pipeline *t =
		parse("random_resized_crop(224, scale=0.08:1, ratio=0.75:1.3333) hflip(0.5)\n"
		      "\tvflip( p = 1e-1 )pad(3x4,fill=1:2:255) random_crop(32x16, padding=4) "
		      "channels(4) to(f16) layout(nchw) normalize(mean=0.5, std=0.1:0.2:.25)");

	assert_int_equal(t->transform_count, 5);
	assert_int_equal(t->transforms[0].kind, TRANSFORM_RANDOM_RESIZED_CROP);
	assert_int_equal(t->transforms[0].sizes[0].width, 224);
	assert_int_equal(t->transforms[0].sizes[0].height, 224);
	assert_true(t->transforms[0].scale[0] == 0.08 && t->transforms[0].scale[1] == 1);
	assert_true(t->transforms[0].ratio[0] == 0.75 && t->transforms[0].ratio[1] == 1.3333);
	assert_int_equal(t->transforms[1].kind, TRANSFORM_HFLIP);
	assert_true(t->transforms[1].probability == 0.5);
	assert_int_equal(t->transforms[2].kind, TRANSFORM_VFLIP);
	assert_true(t->transforms[2].probability == 0.1);
	assert_int_equal(t->transforms[3].pad[0], 3);
	assert_int_equal(t->transforms[3].pad[1], 4);
	assert_memory_equal(t->transforms[3].fill, "\1\2\xff", 3);
	assert_int_equal(t->transforms[4].sizes[0].width, 32);
	assert_int_equal(t->transforms[4].sizes[0].height, 16);
	assert_int_equal(t->transforms[4].pad[0], 4);
	assert_int_equal(t->transforms[4].pad[1], 4);
	assert_int_equal(t->channels, 4);
	assert_int_equal(t->element, PIPELINE_F16);
	assert_int_equal(t->layout, PIPELINE_NCHW);
	assert_true(t->mean[0] == 0.5 && t->mean[2] == 0.5);
	assert_true(t->std[0] == 0.1 && t->std[1] == 0.2 && t->std[2] == 0.25);
	pipeline_free(t);
	t = parse("hflip() vflip pad(2x0) normalize(imagenet) to(bf16)");
	assert_true(t->transforms[0].probability == 0.5 && t->transforms[1].probability == 0.5);
	assert_true(t->transforms[2].pad[0] == 2 && t->transforms[2].pad[1] == 0);
	assert_true(t->mean[1] == 0.456 && t->std[1] == 0.224);
	pipeline_free(t);
	t = parse("random_resized_crop(96, ratio=1:1)");
	assert_true(t->transforms[0].scale[0] == 0.08 && t->transforms[0].scale[1] == 1);
	pipeline_free(t);
}

TEST(errors_say_where)
{
	expect_error("random_resized_crop(224, scale=x:1)", -EINVAL, 31,
		     "at byte 31: expected a number after 'scale=', found 'x'");
	expect_error("random_resized_crop(224, scale=0.08)", -EINVAL, 35,
		     "expected ':' and the upper end");
	expect_error("random_resized_crop(224, scale=1:0.5)", -EINVAL, 31, "from low to high");
	expect_error("random_resized_crop(224, scale=0:1)", -EINVAL, 31, "scale is from");
	expect_error("random_resized_crop(224, chroma=slow)", -EINVAL, 32,
		     "expected one of exact|fast");
	expect_error("center_crop(224, chroma=fast)", -EINVAL, 17, "has no argument 'chroma'");
	expect_error("random_resized_crop", -EINVAL, 0, "needs its argument size");
	expect_error("random_resized_crop()", -EINVAL, 0, "needs its argument size");
	expect_error("resize(", -EINVAL, 7, "found the end of the text");
	expect_error("resize(abc)", -EINVAL, 7, "expected a size such as 224, 224x192");
	expect_error("resize(224x)", -EINVAL, 11, "expected a height after '224x', found ')'");
	expect_error("resize(0)", -EINVAL, 7, "a size of 0");
	expect_error("resize(224", -EINVAL, 10, "expected ',' or ')'");
	expect_error("resize(224 192)", -EINVAL, 11, "expected ',' or ')'");
	expect_error("resize(224, 192)", -EINVAL, 7, "as WIDTHxHEIGHT: 224x192");
	expect_error("resize(224, size=192)", -EINVAL, 12, "size is given twice");
	expect_error("resize(5000)", -E2BIG, 7, "at most 4096");
	expect_error("resize(99999999999999999999)", -E2BIG, 7, "at most 4096");
	expect_error("hflip(1.5)", -EINVAL, 6, "p is from 0 to 1");
	expect_error("hflip(0.5", -EINVAL, 9, "expected ',' or ')'");
	expect_error("hflip, vflip", -EINVAL, 5, "expected the name of a transform, found ','");
	expect_error("224", -EINVAL, 0, "expected the name of a transform, found '224'");
	expect_error("hflip \x01", -EINVAL, 6, "byte 0x01");
	expect_error("pad(2, fill=300)", -EINVAL, 12, "fill is from 0 to 255");
	expect_error("pad(2, fill=1:2)", -EINVAL, 15, "one number or three");
	expect_error("pad(2, fill=mirror)", -EINVAL, 12,
		     "expected one of reflect after 'fill=', found 'mirror'");
	expect_error("hflip(alternating)", -EINVAL, 6, "expected one of alternate for p");
	expect_error("resize(8x6) pad(2x6, fill=reflect)", -EINVAL, 12,
		     "a border of 2x6 pixels cannot reflect a picture of 8 x 6: it is at most 7x5");
	expect_error("to(f64)", -EINVAL, 3,
		     "expected one of u8|f16|bf16|f32|u16|i16|i32|i64 for type, found 'f64'");
	expect_error("hflip to(i64)", -EINVAL, 9,
		     "images are u8, f16, bf16 or f32; i64 is for single masks and rasters: write "
		     "their names before it, as in 'mask: to(i64)'");
	expect_error("mask: to(bf16)", -EINVAL, 9,
		     "masks and rasters are u8, u16, i16, i32, i64 or f32, and bf16 is for images, "
		     "without names");
	expect_error("mask: to(i64) depth, mask: to(i32)", -EINVAL, 27,
		     "to of 'mask' is given twice");
	expect_error("to(f)", -EINVAL, 3, "expected one of");
	expect_error("to(type=)", -EINVAL, 8, "after 'type=', found ')'");
	expect_error("channels(2)", -EINVAL, 9, "expected one of 3|4");
	expect_error("color_jitter(-0.4)", -EINVAL, 13, "brightness is from 0 to 1000");
	expect_error("color_jitter(hue=0.6)", -EINVAL, 17, "hue is from -0.5 to 0.5");
	expect_error("color_jitter(hue=-0.1)", -EINVAL, 17,
		     "give a positive number, or a range such as -0.1:0.1");
	expect_error("color_jitter(contrast=1.2:0.8)", -EINVAL, 22, "from low to high");
	expect_error("random_photometric_distort(0.4)", -EINVAL, 30,
		     "':' and the upper end of brightness");
	expect_error("random_photometric_distort(hue=0:0.6)", -EINVAL, 33,
		     "hue is from -0.5 to 0.5");
	expect_error("random_posterize(4.5)", -EINVAL, 17, "bits is a whole number, not 4.5");
	expect_error("random_posterize(9)", -EINVAL, 17, "bits is from 0 to 8");
	expect_error("random_solarize", -EINVAL, 0, "needs its argument threshold");
	expect_error("to(f16) random_invert", -EINVAL, 8, "random_invert must stand before");
	expect_error("gaussian_blur", -EINVAL, 0, "needs its argument kernel_size");
	expect_error("gaussian_blur(22)", -EINVAL, 14, "not 22, but 21 or 23");
	expect_error("gaussian_blur(3x8)", -EINVAL, 14, "not 8, but 7 or 9");
	expect_error("gaussian_blur(129)", -E2BIG, 14, "at most 127");
	expect_error("gaussian_blur(5, 0.1..2.0)", -EINVAL, 20, "sigma is written with ':'");
	expect_error("gaussian_blur(5, sigma=(0.1, 2.0))", -EINVAL, 23,
		     "without brackets, with ':' between them");
	expect_error("gaussian_blur(5, sigma=0)", -EINVAL, 23, "sigma is from 0.01 to 100");
	expect_error("random_rotation(-10)", -EINVAL, 16, "or a range such as -10:10");
	expect_error("random_rotation(10, cubic)", -EINVAL, 20,
		     "expected one of nearest|bilinear for interpolation, found 'cubic'");
	expect_error("random_affine(0, shear=1:2:3)", -EINVAL, 28, "(four numbers) after 'shear='");
	expect_error("random_affine(0, shear=1:2:3:2)", -EINVAL, 23, "3 is above 2");
	expect_error("random_affine(0, translate=1.5)", -EINVAL, 27, "translate is from 0 to 1");
	expect_error("random_erasing(value=300)", -EINVAL, 21,
		     "after normalize it is in the result's units");
	expect_error("random_erasing(value=noise)", -EINVAL, 21,
		     "expected one of random after 'value='");
	expect_error("random_erasing(scale=0.1:2)", -EINVAL, 25, "scale is from 0 to 1");
	expect_error("cutout(0)", -EINVAL, 7, "a size of 0");
	expect_error("rand_augment(2, 31)", -EINVAL, 16,
		     "magnitude 31 needs num_magnitude_bins=32 or more");
	expect_error("rand_augment(num_magnitude_bins=5)", -EINVAL, 32, "a magnitude of at most 4");
	expect_error("rand_augment(0)", -EINVAL, 13, "num_ops is from 1 to 16");
	expect_error("auto_augment(flowers)", -EINVAL, 13, "expected one of imagenet|cifar10|svhn");
	expect_error("aug_mix(11)", -EINVAL, 8, "severity is from 1 to 10");
	expect_error("aug_mix(all_ops=1)", -EINVAL, 16, "expected one of true|false");
	expect_error("aug_mix(3, 16, 8) aug_mix(3, 16, 8)", -E2BIG, 18, "more than 256 operations");
	expect_error("TrivialAugmentWide", -EINVAL, 0, "did you mean 'trivial_augment_wide'?");
	expect_error("RandomErasing()", -EINVAL, 0, "did you mean 'random_erasing'?");
}

TEST(augmentations_are_read)
{
	struct pipeline *t = parse(
		"random_affine(10:20, translate=0.1:0.2, scale=0.5:2, shear=-1:2:3:4, "
		"interpolation="
		"bilinear, fill=1:2:3) gaussian_blur(23, 0.1:2.0, p=0.5) "
		"random_affine(5, 0.25, shear=7) gaussian_blur(3x5, 1) random_erasing(0.25) "
		"to(f16) normalize(imagenet) random_erasing(value=random) cutout(8x4, value=-1)");
	const struct transform *s = t->transforms;

	assert_int_equal(t->transform_count, 7);
	assert_true(s[0].warp.degrees[0] == 10 && s[0].warp.degrees[1] == 20);
	assert_true(s[0].warp.translate[0] == 0.1 && s[0].warp.translate[1] == 0.2);
	assert_true(s[0].warp.scale[0] == 0.5 && s[0].warp.scale[1] == 2);
	assert_true(s[0].warp.shear_x[0] == -1 && s[0].warp.shear_x[1] == 2);
	assert_true(s[0].warp.shear_y[0] == 3 && s[0].warp.shear_y[1] == 4);
	assert_true(s[0].warp.bilinear && s[0].warp.filled);
	assert_memory_equal(s[0].fill, "\1\2\3", 3);
	assert_true(s[1].kernel[0] == 23 && s[1].kernel[1] == 23 && s[1].probability == 0.5);
	assert_true(s[1].sigma[0] == 0.1 && s[1].sigma[1] == 2);
	assert_true(s[2].warp.degrees[0] == -5 && s[2].warp.degrees[1] == 5 && !s[2].warp.bilinear);
	assert_true(s[2].warp.translate[0] == 0.25 && s[2].warp.translate[1] == 0.25);
	assert_true(s[2].warp.shear_x[0] == -7 && s[2].warp.shear_x[1] == 7 &&
		    s[2].warp.shear_y[1] == 0);
	assert_true(s[3].kernel[0] == 3 && s[3].kernel[1] == 5);
	assert_true(s[3].sigma[0] == 1 && s[3].sigma[1] == 1 && s[3].probability == 1);
	assert_true(s[4].probability == 0.25 && s[4].scale[1] == 0.33 && s[4].ratio[0] == 0.3);
	assert_true(!s[4].finished && !s[4].noise && s[5].finished && s[5].noise);
	assert_true(s[6].finished && s[6].pad[0] == 8 && s[6].pad[1] == 4 && s[6].value[2] == -1);
	pipeline_free(t);
}

TEST(sides_in_two_arguments)
{
	expect_error("resize(32,32)", -EINVAL, 7, "did you mean 32x32?");
	expect_error("hflip random_resized_crop( 32 , 32 , ratio=1:1)", -EINVAL, 27,
		     "random_resized_crop takes both sides in one argument; did you mean 32x32?");
	expect_error("center_crop(224, 192)", -EINVAL, 12,
		     "as WIDTHxHEIGHT: 224x192, or 192x224 for what torchvision calls (224, 192)");
	expect_error("cutout(8, 8)", -EINVAL, 7, "did you mean 8x8?");
	/* second arguments, valid and invalid */
	pipeline_free(parse("random_crop(32, 4)"));
	pipeline_free(parse("cutout(8, 1)"));
	expect_error("resize(32, chroma)", -EINVAL, 11, "expected one of exact|fast for chroma");
	expect_error("resize(32x32, 32)", -EINVAL, 14, "expected one of exact|fast for chroma");
	expect_error("resize(32, chroma=32)", -EINVAL, 18, "expected one of exact|fast");
	pipeline_free(parse("resize(32, interpolation=bicubic)"));
	expect_error("resize(32, interpolation=cubic)", -EINVAL, 25,
		     "expected one of bilinear|bicubic");
	expect_error("hflip resize(32, fast, bicubic)", -EINVAL, 6,
		     "interpolation=bicubic resizes pixels as Pillow does, and chroma=fast planes");
	expect_error("color_jitter(2, 2000)", -EINVAL, 16, "contrast is from");
}

TEST(misspelt_names_are_guessed)
{
	expect_error("random_resize_crop(224)", -EINVAL, 0, "did you mean 'random_resized_crop'?");
	expect_error("RandomResizedCrop(224)", -EINVAL, 0, "did you mean 'random_resized_crop'?");
	expect_error("hflip RandomHorizontalFlip()", -EINVAL, 6, "did you mean 'hflip'?");
	expect_error("hfilp", -EINVAL, 0, "did you mean 'hflip'?");
	expect_error("rezise(3)", -EINVAL, 0, "did you mean 'resize'?");
	expect_error("normalise(imagenet)", -EINVAL, 0, "did you mean 'normalize'?");
	expect_error("ColorJitter(0.4)", -EINVAL, 0, "did you mean 'color_jitter'?");
	expect_error("RandomPhotometricDistort", -EINVAL, 0,
		     "did you mean 'random_photometric_distort'?");
	expect_error("PhotoMetricDistortion()", -EINVAL, 0,
		     "did you mean 'random_photometric_distort'?");
	expect_error("colour_jitter(0.4)", -EINVAL, 0, "did you mean 'color_jitter'?");
	expect_error("grayscale", -EINVAL, 0, "did you mean 'random_grayscale'?");
	expect_error("deform(1)", -EINVAL, 0, "expected one of random_resized_crop, resize");
	expect_error("random_resized_crop(224, scales=0.1:1)", -EINVAL, 25,
		     "did you mean 'scale'?");
	expect_error("random_resized_crop(224, interpolation=2)", -EINVAL, 39,
		     "expected one of bilinear|bicubic");
	expect_error("random_resized_crop(224, antialias=1)", -EINVAL, 25,
		     "expected one of size, scale, ratio");
	expect_error("a_name_of_a_step_that_is_longer_than_any_buffer_could_ever_hold(1)", -EINVAL,
		     0, "there is no transform");
}

TEST(rules_between_transforms)
{
	expect_error("resize(8x8) normalize(imagenet)", -EINVAL, 12,
		     "needs a float output: add to(f16)");
	expect_error("normalize(imagenet) to(u8)", -EINVAL, 0, "needs a float output");
	expect_error("normalize to(f16)", -EINVAL, 0,
		     "needs mean= and std=, or imagenet, or dataset");
	expect_error("normalize(mean=0.5) to(f16)", -EINVAL, 0, "needs mean= and std=");
	expect_error("normalize(imagenet, mean=0.5, std=1) to(f16)", -EINVAL, 10, "not both");
	expect_error("normalize(mean=123.7, std=0.5) to(f32)", -EINVAL, 15,
		     "divide means of 0 to 255 by 255");
	expect_error("normalize(mean=0.5, std=58) to(f32)", -EINVAL, 24,
		     "divide those of 0 to 255 by 255");
	expect_error("normalize(mean=0.5, std=0) to(f32)", -EINVAL, 24, "std is from 1e-06 to 1");
	expect_error("to(f16) hflip", -EINVAL, 8,
		     "hflip must stand before 'to(f16)': it works on a picture of bytes, 0 to 255");
	expect_error("to(f32) layout(nchw) color_jitter(0.4)", -EINVAL, 21,
		     "color_jitter must stand before 'to(f32)'");
	expect_error("normalize(mean=0.5:0.5:0.5, std=0.25:0.25:0.25) resize(8)", -EINVAL, 48,
		     "resize must stand before 'normalize(mean=0.5:0.5:0.5, std=0.25:0.2'");
	expect_error("to(f16) to(f32)", -EINVAL, 8, "to is given twice");
	expect_error("resize(32x32) random_crop(64)", -EINVAL, 14,
		     "does not fit into 32 x 32 pixels");
	expect_error("resize(4000x4000) pad(100)", -E2BIG, -1, "4200 x 4200");
	pipeline_free(parse("to(f32) layout(nchw) normalize(imagenet) channels(4)"));
	pipeline_free(parse("resize(32x32) random_crop(64, padding=16)"));
}

static const struct pipeline_batch *parse_batch(const char *text)
{
	static struct pipeline_batch batch;
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	if (pipeline_parse_views(text, &pipeline, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	batch = *pipeline_batch(pipeline);
	pipeline_free(pipeline);
	return &batch;
}

TEST(steps_for_batches)
{
	const struct pipeline_batch *batch = parse_batch("hflip");

	assert_int_equal(batch->position, -1);
	assert_int_equal(batch->targets, PIPELINE_NO_TARGETS);
	batch = parse_batch("resize(8x8) mixup(0.2)");
	assert_int_equal(batch->position, 12);
	assert_true(batch->mix.mixup == 0.2 && batch->mix.cutmix == 0);
	assert_true(batch->mix.prob == 1 && batch->mix.switch_prob == 0);
	assert_int_equal(batch->targets, PIPELINE_TARGETS_DENSE);
	assert_int_equal(batch->classes, 0);
	batch = parse_batch("cutmix targets(dense, label_smoothing=0.1, num_classes=7) mixup");
	assert_true(batch->mix.mixup == 1 && batch->mix.cutmix == 1);
	assert_true(batch->mix.prob == 1 && batch->mix.switch_prob == 0.5);
	assert_true(batch->label_smoothing == 0.1);
	assert_int_equal(batch->classes, 7);
	batch = parse_batch("mixup(p=0.25) cutmix");
	assert_true(batch->mix.prob == 1 && batch->mix.switch_prob == 0.75);
	batch = parse_batch("mixup(p=0.25) cutmix(p=0.25)");
	assert_true(batch->mix.prob == 0.5 && batch->mix.switch_prob == 0.5);
	batch = parse_batch("mixup(p=0) targets(pairs)");
	assert_true(batch->mix.prob == 0);
	assert_int_equal(batch->targets, PIPELINE_TARGETS_PAIRS);
}

/* As expect_error(), for programs that make batches. */
static void expect_batch_error(const char *text, int position, const char *words)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error = {.position = -2};
	int r = pipeline_parse_views(text, &pipeline, &error);

	if (r != -EINVAL || error.position != position || !strstr(error.text, words))
		fail_msg("'%s': got %d at %d, \"%s\"; expected position %d, \"%s\"", text, r,
			 error.position, error.text, position, words);
}

TEST(steps_for_batches_are_checked)
{
	expect_batch_error("mixup hflip", 6, "hflip must stand before mixup, cutmix and targets");
	expect_batch_error("mixup to(f16)", 6, "to must stand before mixup");
	expect_batch_error("mixup mask: fill(255)", 12, "fill must stand before mixup");
	expect_batch_error("mixup mixup(0.5)", 6, "mixup is given twice");
	expect_batch_error("targets targets(pairs)", 8, "targets is given twice");
	expect_batch_error("image: mixup", 0, "mixup acts on whole batches");
	expect_batch_error("mixup(0)", 6, "alpha is from 0.001 to 100");
	expect_batch_error("mixup(p=0.75) cutmix(p=0.5)", 0, "0.75 and 0.5 may add up to 1");
	expect_batch_error("targets(pairs, label_smoothing=0.1)", 0,
			   "leave label_smoothing out, and smooth in the loss");
	expect_batch_error("targets(pairs, num_classes=3)", 0, "leave num_classes out");
	expect_batch_error("mixup view a { hflip }", 0, "leave them or the views out");
	expect_batch_error("view a { hflip cutmix }", 15, "leave them or the views out");
	expect_error("hflip mixup", -EINVAL, 6, "are for batches: leave them out");
	expect_batch_error("copy_paste hflip", 11, "hflip must stand before copy_paste");
	expect_batch_error("copy_paste boxes: sanitize_boxes", 18, "must stand before copy_paste");
	expect_batch_error("mixup copy_paste", 6, "copy_paste must stand before mixup");
	expect_batch_error("copy_paste copy_paste", 11, "copy_paste is given twice");
	expect_batch_error("copy_paste cutmix", 11, "which copy_paste pastes: leave one of them");
	expect_batch_error("mosaic(8) copy_paste", 10, "mosaic joins four: leave one");
	expect_batch_error("copy_paste view a { hflip }", 0, "leave them or the views out");
	expect_batch_error("view a { copy_paste }", 9, "leave them or the views out");
	expect_batch_error("copy_paste(0.5, -1)", 16, "bbox_occluded_thr is from 0 to 4096");
	expect_error("hflip copy_paste", -EINVAL, 6, "copy_paste pastes objects of another");
	expect_error("copypaste", -EINVAL, 0, "did you mean 'copy_paste'");
	expect_error("mix_up", -EINVAL, 0, "did you mean 'mixup'");
}

TEST(limits_hold)
{
	char text[PIPELINE_TEXT_MAX + 2];

	memset(text, ' ', sizeof(text));
	text[PIPELINE_TEXT_MAX] = 0;
	pipeline_free(parse(text));
	text[PIPELINE_TEXT_MAX] = ' ';
	text[PIPELINE_TEXT_MAX + 1] = 0;
	expect_error(text, -E2BIG, PIPELINE_TEXT_MAX, "at most 4096 bytes");
	size_t used = 0;

	for (int i = 0; i < PIPELINE_TRANSFORMS_MAX; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "hflip ");
	pipeline_free(parse(text));
	snprintf(text + used, sizeof(text) - used, "vflip");
	expect_error(text, -E2BIG, (int)used, "at most 32 transforms");
	used = (size_t)snprintf(text, sizeof(text), "random_resized_crop(8@0");
	for (int i = 1; i < TRANSFORM_SIZES_MAX; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, ";8@%d", i);
	snprintf(text + used, sizeof(text) - used, ")");
	pipeline_free(parse(text));
	snprintf(text + used, sizeof(text) - used, ";8@99)");
	expect_error(text, -E2BIG, (int)used + 1, "at most 16 sizes");
}

TEST(shapes_follow_epochs)
{
	struct pipeline *t =
		parse("random_resized_crop(128@0;160x96@6;192@12) to(bf16) channels(4)");
	struct pipeline_shape shape;
	static const uint32_t expected[][3] = {{0, 128, 128}, {5, 128, 128},  {6, 160, 96},
					       {11, 160, 96}, {12, 192, 192}, {1000000, 192, 192}};

	assert_true(pipeline_has_size(t));
	for (unsigned i = 0; i < 6; i++) {
		pipeline_shape(t, expected[i][0], &shape);
		assert_int_equal(shape.width, expected[i][1]);
		assert_int_equal(shape.height, expected[i][2]);
		assert_int_equal(shape.channels, 4);
		assert_int_equal(shape.element, PIPELINE_BF16);
		assert_int_equal(shape.layout, PIPELINE_NHWC);
		assert_int_equal(shape.sample_size, expected[i][1] * expected[i][2] * 8);
	}
	assert_int_equal(pipeline_sample_size_max(t), 192 * 192 * 8);
	pipeline_free(t);
	/* with two schedules, the maximum covers every combination of their ranges of epochs */
	t = parse("resize(300@0;200@10) random_crop(64@0;100@5;32@10) pad(2)");
	assert_int_equal(pipeline_sample_size_max(t), 104 * 104 * 3);
	pipeline_shape(t, 10, &shape);
	assert_int_equal(shape.width, 36);
	pipeline_free(t);
	expect_error("resize(8@1)", -EINVAL, 9, "starts at epoch 0");
	expect_error("resize(8@0;9@0)", -EINVAL, 13, "must grow: 0 after 0");
	expect_error("resize(8@0;9)", -EINVAL, 12, "expected '@' and an epoch");
	expect_error("resize(8@)", -EINVAL, 9, "expected an epoch after '@'");
	expect_error("resize(64x64@0;32x32@3) random_crop(48)", -EINVAL, 24,
		     "does not fit into 32 x 32");
}

TEST(sizes_can_be_fixed)
{
	static const struct {
		const char *text;
		int has;
		uint32_t width, height; /* expected size for a stored image of 50 x 30 */
	} cases[] = {
		{"", 0, 50, 30},
		{"hflip", 0, 50, 30},
		{"pad(1x2)", 0, 52, 34},
		{"resize(15)", 0, 25, 15},
		{"resize(20x9)", 1, 20, 9},
		{"resize(7) center_crop(6)", 1, 6, 6},
		{"center_crop(80)", 1, 80, 80},
		{"random_crop(20, padding=3)", 1, 20, 20},
		{"random_zoom_out random_resized_crop(9)", 1, 9, 9},
		{"to(f32)", 0, 50, 30},
	};
	struct pipeline_error error;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pipeline *t = parse(cases[i].text);
		struct pipeline_shape shape;

		assert_int_equal(pipeline_has_size(t), cases[i].has);
		if (!cases[i].has) {
			pipeline_shape(t, 0, &shape);
			assert_int_equal(shape.sample_size, 0);
		}
		assert_int_equal(pipeline_fix_size(t, 50, 30, &error), 0);
		pipeline_shape(t, 3, &shape);
		assert_int_equal(shape.width, cases[i].width);
		assert_int_equal(shape.height, cases[i].height);
		pipeline_free(t);
	}
	struct pipeline *t = parse("random_crop(64)");

	assert_int_equal(pipeline_fix_size(t, 63, 100, &error), -EINVAL);
	assert_non_null(strstr(error.text, "does not fit into 63 x 100"));
	assert_int_equal(pipeline_fix_size(t, 0, 100, &error), -EINVAL);
	assert_int_equal(pipeline_fix_size(t, 64, 64, &error), 0);
	pipeline_free(t);
	t = parse("random_crop(4, padding=4, fill=reflect)");
	assert_int_equal(pipeline_fix_size(t, 4, 5, &error), -EINVAL);
	assert_non_null(strstr(error.text, "cannot reflect a picture of 4 x 5"));
	assert_int_equal(pipeline_fix_size(t, 5, 5, &error), 0);
	pipeline_free(t);
	t = parse("resize(20x20) random_zoom_out hflip");
	assert_int_equal(pipeline_fix_size(t, 50, 30, &error), -EINVAL);
	assert_non_null(strstr(error.text, "such as resize(50x30), after random_zoom_out"));
	pipeline_free(t);
	t = parse("resize(20x20) random_zoom_out random_iou_crop color_jitter(0.1)");
	assert_int_equal(pipeline_fix_size(t, 50, 30, &error), -EINVAL);
	assert_non_null(strstr(error.text, "such as resize(50x30), after random_iou_crop"));
	pipeline_free(t);
	t = parse("");
	assert_int_equal(pipeline_fix_size(t, 5000, 8, &error), -E2BIG);
	pipeline_free(t);
}

TEST(statistics_can_be_fixed)
{
	const double mean[3] = {127.5, 51, 0}, std[3] = {51, 25.5, 255}, zero[3] = {0};
	struct pipeline *t = parse("resize(8x8) normalize(dataset) to(f32)");
	struct pipeline_error error;

	assert_true(pipeline_needs_statistics(t));
	assert_int_equal(pipeline_fix_statistics(t, mean, zero, &error), -EINVAL);
	assert_true(pipeline_needs_statistics(t));
	assert_int_equal(pipeline_fix_statistics(t, mean, std, &error), 0);
	assert_false(pipeline_needs_statistics(t));
	assert_true(t->mean[0] == 0.5 && t->mean[1] == 0.2 && t->std[1] == 0.1);
	pipeline_free(t);
	t = parse("resize(8x8) normalize(imagenet) to(f32)");
	assert_false(pipeline_needs_statistics(t));
	assert_int_equal(pipeline_fix_statistics(t, mean, std, &error), 0);
	assert_true(t->mean[0] == 0.485);
	pipeline_free(t);
}
