/* packimg: creates and maintains image datasets. Each subcommand has its own file. */
#include "format/base/text/nearest.h"
#include "tools/packimg/common/command.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

const char *argp_program_version = "packimg " PACKIMG_TOOL_VERSION;

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{"advise", command_advise, "measure encodings on a sample of images, and recommend one"},
	{"convert", command_convert, "pack images from folders, manifests, archives or shards"},
	{"info", command_info, "show the contents of a dataset"},
	{"list", command_list, "list the samples of a dataset"},
	{"index", command_index, "add the index that makes JPEGs fast to decode"},
	{"verify", command_verify, "check every checksum, image and index"},
	{"extract", command_extract, "write images back to files"},
	{"view", command_view, "show samples as pictures, on a page and on a contact sheet"},
	{"fetch", command_fetch, "copy a dataset from a store (s3://, https://) into files"},
	{"seal", command_seal, "write the set file, with which a set in a store opens fast"},
	{"merge", command_merge, "merge several datasets into one"},
	{"split", command_split, "split one dataset into several"},
};

static void usage(FILE *stream)
{
	fputs("Usage: packimg COMMAND ...\n\n", stream);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(stream, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fputs("\nSee packimg COMMAND --help and packimg(1).\n", stream);
}

static int fail_unknown(const char *name)
{
	struct nearest nearest = nearest_to(name);

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		nearest_offer(&nearest, commands[i].name);
	if (nearest.meant)
		return command_fail("unknown command \"%s\"; did you mean %s?", name,
				    nearest.meant);
	usage(stderr);
	return command_fail("unknown command \"%s\"", name);
}

int main(int argc, char **argv)
{
	struct packimg_error error;
	char name[64];

	argp_err_exit_status = COMMAND_FAILED;
	if (argc < 2) {
		usage(stderr);
		return COMMAND_FAILED;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		usage(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		puts(argp_program_version);
		return 0;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		if (packimg_isa_check(&error))
			return command_fail("%s", error.text);
		snprintf(name, sizeof(name), "packimg %s", commands[i].name);
		argv[1] = name;
		return commands[i].run(argc - 1, argv + 1);
	}
	return fail_unknown(argv[1]);
}
