#include "format/augment/grammar/policy.h"

/* Short names, defined only in this file, to keep the tables readable. */
#define OP(name, probability, bin)                                                                 \
	{                                                                                          \
		POLICY_##name, probability, bin                                                    \
	}

/*
 * Policies for ImageNet, CIFAR-10 and SVHN: the tables in the paper's appendix, as in torchvision.
 */
const struct policy_auto policy_learned[TRANSFORM_LEARNED_COUNT][POLICY_AUTO_PAIRS][2] =
	{
		[TRANSFORM_LEARNED_IMAGENET] =
			{
				{OP(POSTERIZE, 0.4, 8), OP(ROTATE, 0.6, 9)},
				{OP(SOLARIZE, 0.6, 5), OP(AUTOCONTRAST, 0.6, 0)},
				{OP(EQUALIZE, 0.8, 0), OP(EQUALIZE, 0.6, 0)},
				{OP(POSTERIZE, 0.6, 7), OP(POSTERIZE, 0.6, 6)},
				{OP(EQUALIZE, 0.4, 0), OP(SOLARIZE, 0.2, 4)},
				{OP(EQUALIZE, 0.4, 0), OP(ROTATE, 0.8, 8)},
				{OP(SOLARIZE, 0.6, 3), OP(EQUALIZE, 0.6, 0)},
				{OP(POSTERIZE, 0.8, 5), OP(EQUALIZE, 1, 0)},
				{OP(ROTATE, 0.2, 3), OP(SOLARIZE, 0.6, 8)},
				{OP(EQUALIZE, 0.6, 0), OP(POSTERIZE, 0.4, 6)},
				{OP(ROTATE, 0.8, 8), OP(COLOR, 0.4, 0)},
				{OP(ROTATE, 0.4, 9), OP(EQUALIZE, 0.6, 0)},
				{OP(EQUALIZE, 0, 0), OP(EQUALIZE, 0.8, 0)},
				{OP(INVERT, 0.6, 0), OP(EQUALIZE, 1, 0)},
				{OP(COLOR, 0.6, 4), OP(CONTRAST, 1, 8)},
				{OP(ROTATE, 0.8, 8), OP(COLOR, 1, 2)},
				{OP(COLOR, 0.8, 8), OP(SOLARIZE, 0.8, 7)},
				{OP(SHARPNESS, 0.4, 7), OP(INVERT, 0.6, 0)},
				{OP(SHEAR_X, 0.6, 5), OP(EQUALIZE, 1, 0)},
				{OP(COLOR, 0.4, 0), OP(EQUALIZE, 0.6, 0)},
				{OP(EQUALIZE, 0.4, 0), OP(SOLARIZE, 0.2, 4)},
				{OP(SOLARIZE, 0.6, 5), OP(AUTOCONTRAST, 0.6, 0)},
				{OP(INVERT, 0.6, 0), OP(EQUALIZE, 1, 0)},
				{OP(COLOR, 0.6, 4), OP(CONTRAST, 1, 8)},
				{OP(EQUALIZE, 0.8, 0), OP(EQUALIZE, 0.6, 0)},
			},
		[TRANSFORM_LEARNED_CIFAR10] =
			{
				{OP(INVERT, 0.1, 0), OP(CONTRAST, 0.2, 6)},
				{OP(ROTATE, 0.7, 2), OP(TRANSLATE_X, 0.3, 9)},
				{OP(SHARPNESS, 0.8, 1), OP(SHARPNESS, 0.9, 3)},
				{OP(SHEAR_Y, 0.5, 8), OP(TRANSLATE_Y, 0.7, 9)},
				{OP(AUTOCONTRAST, 0.5, 0), OP(EQUALIZE, 0.9, 0)},
				{OP(SHEAR_Y, 0.2, 7), OP(POSTERIZE, 0.3, 7)},
				{OP(COLOR, 0.4, 3), OP(BRIGHTNESS, 0.6, 7)},
				{OP(SHARPNESS, 0.3, 9), OP(BRIGHTNESS, 0.7, 9)},
				{OP(EQUALIZE, 0.6, 0), OP(EQUALIZE, 0.5, 0)},
				{OP(CONTRAST, 0.6, 7), OP(SHARPNESS, 0.6, 5)},
				{OP(COLOR, 0.7, 7), OP(TRANSLATE_X, 0.5, 8)},
				{OP(EQUALIZE, 0.3, 0), OP(AUTOCONTRAST, 0.4, 0)},
				{OP(TRANSLATE_Y, 0.4, 3), OP(SHARPNESS, 0.2, 6)},
				{OP(BRIGHTNESS, 0.9, 6), OP(COLOR, 0.2, 8)},
				{OP(SOLARIZE, 0.5, 2), OP(INVERT, 0, 0)},
				{OP(EQUALIZE, 0.2, 0), OP(AUTOCONTRAST, 0.6, 0)},
				{OP(EQUALIZE, 0.2, 0), OP(EQUALIZE, 0.6, 0)},
				{OP(COLOR, 0.9, 9), OP(EQUALIZE, 0.6, 0)},
				{OP(AUTOCONTRAST, 0.8, 0), OP(SOLARIZE, 0.2, 8)},
				{OP(BRIGHTNESS, 0.1, 3), OP(COLOR, 0.7, 0)},
				{OP(SOLARIZE, 0.4, 5), OP(AUTOCONTRAST, 0.9, 0)},
				{OP(TRANSLATE_Y, 0.9, 9), OP(TRANSLATE_Y, 0.7, 9)},
				{OP(AUTOCONTRAST, 0.9, 0), OP(SOLARIZE, 0.8, 3)},
				{OP(EQUALIZE, 0.8, 0), OP(INVERT, 0.1, 0)},
				{OP(TRANSLATE_Y, 0.7, 9), OP(AUTOCONTRAST, 0.9, 0)},
			},
		[TRANSFORM_LEARNED_SVHN] =
			{
				{OP(SHEAR_X, 0.9, 4), OP(INVERT, 0.2, 0)},
				{OP(SHEAR_Y, 0.9, 8), OP(INVERT, 0.7, 0)},
				{OP(EQUALIZE, 0.6, 0), OP(SOLARIZE, 0.6, 6)},
				{OP(INVERT, 0.9, 0), OP(EQUALIZE, 0.6, 0)},
				{OP(EQUALIZE, 0.6, 0), OP(ROTATE, 0.9, 3)},
				{OP(SHEAR_X, 0.9, 4), OP(AUTOCONTRAST, 0.8, 0)},
				{OP(SHEAR_Y, 0.9, 8), OP(INVERT, 0.4, 0)},
				{OP(SHEAR_Y, 0.9, 5), OP(SOLARIZE, 0.2, 6)},
				{OP(INVERT, 0.9, 0), OP(AUTOCONTRAST, 0.8, 0)},
				{OP(EQUALIZE, 0.6, 0), OP(ROTATE, 0.9, 3)},
				{OP(SHEAR_X, 0.9, 4), OP(SOLARIZE, 0.3, 3)},
				{OP(SHEAR_Y, 0.8, 8), OP(INVERT, 0.7, 0)},
				{OP(EQUALIZE, 0.9, 0), OP(TRANSLATE_Y, 0.6, 6)},
				{OP(INVERT, 0.9, 0), OP(EQUALIZE, 0.6, 0)},
				{OP(CONTRAST, 0.3, 3), OP(ROTATE, 0.8, 4)},
				{OP(INVERT, 0.8, 0), OP(TRANSLATE_Y, 0, 2)},
				{OP(SHEAR_Y, 0.7, 6), OP(SOLARIZE, 0.4, 8)},
				{OP(INVERT, 0.6, 0), OP(ROTATE, 0.8, 4)},
				{OP(SHEAR_Y, 0.3, 7), OP(TRANSLATE_X, 0.9, 3)},
				{OP(SHEAR_X, 0.1, 6), OP(INVERT, 0.6, 0)},
				{OP(SOLARIZE, 0.7, 2), OP(TRANSLATE_Y, 0.6, 7)},
				{OP(SHEAR_Y, 0.8, 4), OP(INVERT, 0.8, 0)},
				{OP(SHEAR_X, 0.7, 9), OP(TRANSLATE_Y, 0.8, 3)},
				{OP(SHEAR_Y, 0.8, 5), OP(AUTOCONTRAST, 0.7, 0)},
				{OP(SHEAR_X, 0.7, 2), OP(INVERT, 0.1, 0)},
			},
};
