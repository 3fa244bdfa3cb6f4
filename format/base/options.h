/*
 * argp_parse() for every program of the house: an option that there is not ends the program with
 * the one that was probably meant. Reads and writes getopt(3)'s variables, so it is for the main
 * thread, before others begin.
 */
#pragma once

#include <argp.h>

/*
 * As argp_parse() without flags. What it refuses it says on standard error, and exits with
 * argp_err_exit_status.
 */
void options_parse(const struct argp *argp, int argc, char **argv, void *input);
