/*
 * A dataset for tests of filters: six samples, with every kind of value, absent values, special
 * numbers and long texts. where_dataset.c has its table.
 */
#pragma once

enum { WHERE_SAMPLES = 6 };

/* Writes the dataset to path. Aborts if it cannot. */
void where_dataset_write(const char *path);
