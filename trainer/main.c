/*
 * trainer(1): trains a model from a recipe. This file parses the command line and starts runs
 * (run.h).
 */
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "trainer/device/graph.h"
#include "trainer/estimate/estimate.h"
#include "trainer/log/plot.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

enum {
	OVERRIDES_MAX = 128,
	EXIT_STOPPED = 3,
	/* first step that --trace records by default; earlier ones warm up */
	TRACE_FIRST = 11,
	TRACE_LAST = 15,
	TRACED_MAX = 1000, /* maximum number of traced steps */
	/* how long other ranks wait for rank 0 to report why a run ends */
	LEADER_SECONDS = 60,
};

enum option_key {
	OPTION_RESUME = 'r',
	OPTION_OUTPUT = 'o',
	OPTION_EVALUATE = 256,
	OPTION_HELP_RECIPE,
	OPTION_SIZE,
	OPTION_RANKS,
	OPTION_TRACE_STEPS,
};

struct arguments {
	const char *recipe, *seed, *device, *fusion;
	bool autotune, deterministic;
	const char *overrides[OVERRIDES_MAX];
	unsigned override_count;
	bool print;
	struct run_options run;
	struct estimate_options plan; /* used if --plan names a device */
	/* file for a plot of runs; `recipe` and `overrides` then name the runs' folders */
	const char *plot;
	const char *join; /* folder of a sharded checkpoint */
};

/* argp, in the C library, refers to this variable. */
__attribute__((visibility("default"))) const char *argp_program_version =
	"trainer " TRAINER_VERSION;

#define AT(field) offsetof(struct arguments, field)

static const struct options_row options[] = {
	{"resume", OPTION_RESUME, "CHECKPOINT|auto",
	 "Resume from a checkpoint, by default (auto) the newest in the output folder; start from "
	 "the beginning if there is none",
	 .flags = OPTION_ARG_OPTIONAL},
	{"output", OPTION_OUTPUT, "DIR",
	 "Folder for log, checkpoints and weights (default: runs/NAME for NAME.ini; for a run's "
	 "recipe.ini, the folder of that run)"},
	{"socket", 's', "PATH", "Socket of a running loaderd (default: a private daemon)",
	 OPTIONS_TEXT, AT(run.socket)},
	{"seed", 0, "N", "Same as train.seed=N", OPTIONS_TEXT, AT(seed)},
	{"device", 0, "cpu|cuda[:N]",
	 "Same as train.device=..., with the number of the GPU (default: the best available "
	 "device)",
	 OPTIONS_TEXT, AT(device)},
	{"fusion", 0, "none|b|c", "Same as train.fusion=...", OPTIONS_TEXT, AT(fusion)},
	{"autotune", 0, NULL, "Same as train.autotune=yes", OPTIONS_FLAG, AT(autotune)},
	{"deterministic", 0, NULL, "Same as train.deterministic=yes", OPTIONS_FLAG,
	 AT(deterministic)},
	{"evaluate", OPTION_EVALUATE, NULL,
	 "Evaluate model.pretrained, or with --resume a checkpoint, on data.val, print the result "
	 "and exit; writes no files"},
	{"predictions", 0, "NAME",
	 "With --evaluate: write the prediction for each image to NAME.csv, precision, recall and "
	 "confusions of each class to NAME.json, and a plot of the confusion matrix to NAME.svg",
	 OPTIONS_TEXT, AT(run.predictions)},
	{"onnx", 0, "FILE",
	 "With --evaluate: export the network to FILE in ONNX format, for onnxruntime and other "
	 "runtimes",
	 OPTIONS_TEXT, AT(run.onnx)},
	{"find-lr", 0, "NAME",
	 "Train for up to 100 steps with a learning rate that grows from 1e-6 to 10, write the "
	 "losses to NAME.csv and NAME.svg, suggest an optim.lr and exit; does not touch the output "
	 "folder",
	 OPTIONS_TEXT, AT(run.find_lr)},
	{"find-batch-size", 0, "NAME",
	 "Find the batch sizes that fit into device memory, measure their speed and the gradient "
	 "noise scale, write NAME.csv and NAME.svg, suggest a data.batch_size and exit; does not "
	 "touch the output folder",
	 OPTIONS_TEXT, AT(run.find_batch_size)},
	{"overfit-batch", 0, NULL,
	 "Train on the first batch only, without regularisation, report whether the network "
	 "memorises it and exit; does not touch the output folder",
	 OPTIONS_FLAG, AT(run.overfit_batch)},
	{"check-gradients", 0, NULL,
	 "Compare the gradients of the first batch with finite differences of its loss, in fp32, "
	 "for each parameter, and exit; does not touch the output folder",
	 OPTIONS_FLAG, AT(run.check_gradients)},
	{"dry-run", 0, NULL,
	 "Open dataset, device and model, plan the first step, print the plan and exit",
	 OPTIONS_FLAG, AT(run.dry)},
	{"print-recipe", 0, NULL,
	 "Print the complete recipe with all keys, report conflicts between them and exit",
	 OPTIONS_FLAG, AT(print)},
	{"help-recipe", OPTION_HELP_RECIPE, NULL, "Describe every key of the recipe and exit"},
	{"overwrite", 0, NULL,
	 "Start from the beginning in a folder that holds a run; with --resume=CHECKPOINT, remove "
	 "its later checkpoints",
	 OPTIONS_FLAG, AT(run.overwrite)},
	{"allow-changes", 0, NULL, "Resume even if keys that change future losses differ",
	 OPTIONS_FLAG, AT(run.allow_changes)},
	{"detect-anomaly", 0, NULL, "Report the first tensor that is not finite (slow)",
	 OPTIONS_FLAG, AT(run.detect_anomaly)},
	{"profile", 0, NULL, "Time every layer and print a table at the end", OPTIONS_FLAG,
	 AT(run.profile)},
	{"trace", 0, "FILE.json",
	 "Trace the loop and the device, layer by layer, during some steps, for Perfetto and "
	 "chrome://tracing",
	 OPTIONS_TEXT, AT(run.trace)},
	{"trace-steps", OPTION_TRACE_STEPS, "FIRST-LAST",
	 "With --trace: steps to trace, counted from the start of this process (default: 11-15)"},
	{"plan", 0, "DEVICE.json",
	 "Print the operations, memory and time that the described GPU would need for a step, and "
	 "exit; the GPU need not be present",
	 OPTIONS_TEXT, AT(plan.device)},
	{"ranks", OPTION_RANKS, "N",
	 "With --plan: print how N such GPUs can divide a step, with memory, bytes sent and "
	 "images/s, "
	 "best first"},
	{"plot", 0, "FILE.svg",
	 "Plot losses and accuracies of the runs in the given folders and exit", OPTIONS_TEXT,
	 AT(plot)},
	{"join", 0, "DIR",
	 "Make one file, which --output names, of the sharded checkpoint in a folder, and exit; "
	 "needs no recipe and no GPU",
	 OPTIONS_TEXT, AT(join)},
	{"size", OPTION_SIZE, "N",
	 "With --plan: image size N x N (default: the size that data.pipeline produces, else 224, "
	 "or 32 for networks for small images)"},
	{0},
};

static const char doc[] =
	"Train the model of RECIPE.ini on a packed dataset served by loaderd. Any key of the "
	"recipe can be set on the command line.\vExit status: 0 finished, 1 failed, 3 stopped by a "
	"signal after writing a checkpoint, from which --resume continues, 75 another rank went "
	"away: start again with --resume=auto. See trainer(1).";

static int parse_size(const char *text, struct argp_state *state)
{
	char *end;
	unsigned long size = strtoul(text, &end, 10);
	if (*end || size < 1 || size > ESTIMATE_SIDE_MAX)
		argp_error(state, "--size=%s: expected a number of pixels from 1 to %d", text,
			   ESTIMATE_SIDE_MAX);
	return (int)size;
}

static uint32_t parse_ranks(const char *text, struct argp_state *state)
{
	char *end;
	unsigned long ranks = strtoul(text, &end, 10);
	if (*end || ranks < 1 || ranks > ESTIMATE_RANKS_MAX)
		argp_error(state, "--ranks=%s: expected a number of GPUs from 1 to %d", text,
			   ESTIMATE_RANKS_MAX);
	return (uint32_t)ranks;
}

/* Rejects options that conflict with those that train or measure from the initial weights. */
static void check_alone(const struct arguments *arguments, const struct argp_state *state)
{
	const struct run_options *run = &arguments->run;
	const struct {
		const char *option;
		bool given;
	} all[] = {
		{"--find-lr", run->find_lr},
		{"--find-batch-size", run->find_batch_size},
		{"--overfit-batch", run->overfit_batch},
		{"--check-gradients", run->check_gradients},
		/* options that conflict with each of the exclusive ones */
		{"--trace", run->trace},
		{"--resume", run->resume},
		{"--evaluate", run->evaluate},
		{"--plan", arguments->plan.device},
		{"--dry-run", run->dry && !run->evaluate},
	};
	enum { ALONE = 4, ALL = sizeof(all) / sizeof(all[0]) };
	for (size_t i = 0; i < ALONE; i++)
		for (size_t j = i + 1; j < ALL; j++)
			if (all[i].given && all[j].given)
				argp_error(state,
					   "%s starts from the initial weights and does nothing "
					   "else: it cannot be combined with %s",
					   all[i].option, all[j].option);
}

static void parse_trace_steps(const char *text, struct argp_state *state, struct run_options *run)
{
	unsigned long long first = 0, last = 0;
	int end = 0;
	if (text[strspn(text, "0123456789-")] || text[0] == '-' || strstr(text, "--") ||
	    sscanf(text, "%19llu-%19llu%n", &first, &last, &end) != 2 || text[end] || !first ||
	    last < first || last - first >= TRACED_MAX)
		argp_error(state,
			   "--trace-steps=%s: expected FIRST-LAST, the first and the last step to "
			   "trace, counted from 1, at most %d steps",
			   text, TRACED_MAX);
	run->trace_first = first;
	run->trace_last = last;
}

/* Rejects combinations of options that conflict. */
static void check(const struct arguments *arguments, const struct argp_state *state)
{
	static const char ending[] = ".safetensors";
	if (arguments->join && !arguments->run.output)
		argp_error(state, "--join=%s requires --output=FILE: the file to make",
			   arguments->join);
	if (arguments->join && (arguments->recipe || arguments->plot))
		argp_error(state, "--join only needs --output=FILE: it reads no recipe, and cannot "
				  "be combined with --plot");
	if (arguments->run.evaluate && arguments->plan.device)
		argp_error(state, "--evaluate and --plan cannot be combined: --plan runs no model");
	if (arguments->run.predictions && !arguments->run.evaluate)
		argp_error(state, "--predictions=%s requires --evaluate",
			   arguments->run.predictions);
	if (arguments->run.onnx && !arguments->run.evaluate)
		argp_error(state, "--onnx=%s requires --evaluate", arguments->run.onnx);
	check_alone(arguments, state);
	if (arguments->run.trace && (arguments->run.evaluate || arguments->plan.device ||
				     (arguments->run.dry && !arguments->run.evaluate)))
		argp_error(state, "--trace records training: it cannot be combined with "
				  "--evaluate, --plan or --dry-run");
	if (arguments->run.trace_first && !arguments->run.trace)
		argp_error(state, "--trace-steps=%llu-%llu requires --trace",
			   (unsigned long long)arguments->run.trace_first,
			   (unsigned long long)arguments->run.trace_last);
	if (arguments->plan.size && !arguments->plan.device)
		argp_error(
			state,
			"--size=%u requires --plan; training uses the image size of data.pipeline",
			arguments->plan.size);
	if (arguments->plan.ranks && !arguments->plan.device)
		argp_error(state,
			   "--ranks=%u requires --plan; mpirun -n %u trains with that many ranks",
			   arguments->plan.ranks, arguments->plan.ranks);
	for (unsigned i = 0; !arguments->plot && i < arguments->override_count; i++) {
		const char *text = arguments->overrides[i];
		size_t length = strlen(text), end = strlen(ending);
		if (!strchr(text, '=') && length > end && strcmp(text + length - end, ending) == 0)
			argp_error(state,
				   "\"%s\": expected section.key=value; use --resume=%s for a "
				   "checkpoint, model.pretrained=%s for weights",
				   text, text, text);
	}
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	switch (key) {
	case OPTION_RESUME:
		arguments->run.resume = true;
		arguments->run.resume_path =
			argument && strcmp(argument, "auto") != 0 ? argument : NULL;
		return 0;
	case OPTION_OUTPUT:
		if (!*argument)
			argp_error(state, "--output is empty: expected a folder");
		arguments->run.output = argument;
		return 0;
	case OPTION_EVALUATE:
		arguments->run.evaluate = arguments->run.dry = true;
		arguments->run.allow_changes = true; /* no training follows */
		return 0;
	case OPTION_HELP_RECIPE:
		recipe_help(stdout);
		exit(EXIT_SUCCESS);
	case OPTION_SIZE:
		arguments->plan.size = (uint32_t)parse_size(argument, state);
		return 0;
	case OPTION_RANKS:
		arguments->plan.ranks = parse_ranks(argument, state);
		return 0;
	case OPTION_TRACE_STEPS:
		parse_trace_steps(argument, state, &arguments->run);
		return 0;
	case ARGP_KEY_ARG:
		if (!arguments->recipe) {
			arguments->recipe = argument;
			return 0;
		}
		if (arguments->override_count == OVERRIDES_MAX)
			argp_error(state, "too many overrides: at most %d are allowed",
				   OVERRIDES_MAX);
		arguments->overrides[arguments->override_count++] = argument;
		return 0;
	case ARGP_KEY_SUCCESS:
		check(arguments, state);
		return 0;
	case ARGP_KEY_NO_ARGS:
		if (arguments->join)
			return 0;
		argp_error(state, arguments->plot ? "--plot: missing the folder of a run"
						  : "missing the recipe");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static volatile int stop;

static void on_signal(int number)
{
	stop = 1;
}

/*
 * The first SIGINT or SIGTERM asks the run to stop; the second ends the program (SA_RESETHAND).
 * SIGUSR1, which launchers and schedulers forward, only asks to stop.
 */
static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	action.sa_flags = 0;
	sigaction(SIGUSR1, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* let writes beyond the limit fail with EFBIG */
}

/* Splits cuda:N into device and GPU index. The index is not part of the recipe. */
static int choose_device(const char **device, struct run_options *run, char *error)
{
	const char *colon = *device ? strchr(*device, ':') : NULL;
	char *end;
	if (!colon)
		return 0;
	unsigned long index = strtoul(colon + 1, &end, 10);
	if (strncmp(*device, "cuda:", 5) != 0 || colon[1] < '0' || colon[1] > '9' || *end ||
	    index > 1023)
		return sentence_fail(error, RECIPE_ERROR_MAX, -EINVAL,
				     "--device=%s: expected cpu, cuda, or cuda:N, where N is the "
				     "number of a GPU",
				     *device);
	run->device_index = (unsigned)index;
	*device = "cuda";
	return 0;
}

/* Sets the recipe keys that options imply. */
static int apply_options(struct recipe *recipe, const struct arguments *arguments, char *error)
{
	char text[96];
	bool finds = arguments->run.find_lr, overfits = arguments->run.overfit_batch;
	bool checks = arguments->run.check_gradients;
	const struct {
		const char *key, *value; /* value NULL: the option was not given */
	} settings[] = {
		/* --find-lr varies the rate through a factor on optim.lr */
		{"optim.lr", finds ? "1" : NULL},
		{"optim.lr_base_size", finds ? "0" : NULL},
		{"schedule.name", finds || overfits ? "constant" : NULL},
		{"schedule.warmup", finds || overfits ? "0" : NULL},
		{"schedule.base_momentum", finds || overfits ? "0" : NULL},
		/* disable what prevents memorising a batch */
		{"data.colout", overfits ? "0" : NULL},
		/* the batch size search uses synthetic images, with all transforms applied */
		{"data.augment", arguments->run.find_batch_size ? "daemon" : NULL},
		/* use the full image size, which the run reaches in the end */
		{"data.initial_scale", overfits || arguments->run.find_batch_size ? "1" : NULL},
		{"model.drop_path", overfits ? "0" : NULL},
		{"model.dropout", overfits ? "0" : NULL},
		{"model.attention_dropout", overfits ? "0" : NULL},
		{"train.selective_backprop",
		 overfits || checks || arguments->run.find_batch_size ? "0" : NULL},
		{"train.label_smoothing", overfits ? "0" : NULL},
		{"train.mixup", overfits ? "0" : NULL},
		{"train.cutmix", overfits ? "0" : NULL},
		{"train.teacher", overfits ? "" : NULL},
		{"train.teacher_recipe", overfits ? "" : NULL},
		{"train.accumulate", arguments->run.find_batch_size ? "auto" : NULL},
		/* these read gradients of this rank alone */
		{"train.shard", checks || arguments->run.find_batch_size ? "none" : NULL},
		/* compute in fp32, since lower precision hides small derivatives */
		{"train.precision", checks ? "fp32" : NULL},
		{"train.tf32", checks ? "no" : NULL},
		{"train.seed", arguments->seed},
		{"train.device", arguments->device},
		{"train.fusion", arguments->fusion},
		{"train.autotune", arguments->autotune ? "yes" : NULL},
		{"train.deterministic", arguments->deterministic ? "yes" : NULL},
	};
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		if (!settings[i].value)
			continue;
		snprintf(text, sizeof(text), "%s=%.60s", settings[i].key, settings[i].value);
		int r = recipe_override(recipe, text, error);
		if (r < 0)
			return r;
	}
	return 0;
}

static int load(struct recipe *recipe, struct arguments *arguments, char *error)
{
	int r = recipe_load(recipe, arguments->recipe, error);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < arguments->override_count; i++) {
		r = recipe_override(recipe, arguments->overrides[i], error);
		if (r < 0)
			return r;
	}
	r = choose_device(&arguments->device, &arguments->run, error);
	return r < 0 ? r : apply_options(recipe, arguments, error);
}

/* True if the recipe is the recipe.ini in a run's folder. */
static bool is_recipe_of_run(const char *recipe, size_t folder, const char *name)
{
	char log[4096];
	return strcmp(name, "recipe.ini") == 0 &&
	       snprintf(log, sizeof(log), "%.*slog.jsonl", (int)folder, recipe) <
		       (int)sizeof(log) &&
	       access(log, F_OK) == 0;
}

/*
 * Default of --output: the run's folder if the recipe is in one, else runs/NAME for PATH/NAME.ini.
 */
static int default_output(const char *recipe, char *ret_path, size_t size)
{
	const char *name = strrchr(recipe, '/');
	name = name ? name + 1 : recipe;
	size_t length = strlen(name), folder = (size_t)(name - recipe);
	if (is_recipe_of_run(recipe, folder, name))
		return snprintf(ret_path, size, "%.*s", folder > 1 ? (int)folder - 1 : 1,
				folder ? recipe : ".") < (int)size
			       ? 0
			       : -ENAMETOOLONG;
	if (length > 4 && strcmp(name + length - 4, ".ini") == 0)
		length -= 4;
	return snprintf(ret_path, size, "runs/%.*s", (int)length, name) < (int)size ? 0
										    : -ENAMETOOLONG;
}

static void print_profile(const struct run *run)
{
	struct device_layer_info layer;
	printf("%-32s %-28s %10s %10s %10s  %s\n", "layer", "kind", "fwd us", "bwd us", "GFLOP/s",
	       "engine");
	for (uint32_t i = 0; !device_graph_layer(run->network.train.graph, i, &layer); i++) {
		double runs = layer.runs ? (double)layer.runs : 1;
		double ns = (double)(layer.forward_ns + layer.backward_ns);
		printf("%-32s %-28s %10.1f %10.1f %10.1f  %s\n", layer.name, layer.kind,
		       (double)layer.forward_ns / runs * 1e-3,
		       (double)layer.backward_ns / runs * 1e-3,
		       ns > 0 ? (layer.flops_forward + layer.flops_backward) * runs / ns : 0,
		       layer.engine ? layer.engine : "");
	}
}

/*
 * Reports that another rank went away, or failed on a machine on which nobody has reported that.
 */
static void report_end(const struct comm *comm, const char *text)
{
	if (comm->ended == COMM_LOST)
		printable_line(stderr, "trainer: rank %u of %u: %s", comm->rank, comm->world, text);
	else if (!comm->ended_here && comm->local_rank == 0)
		printable_line(stderr, "trainer: %s", text);
}

/*
 * After a failed run: reports the reason, unless rank 0 reports it, and aborts the other ranks if
 * they do not know of the failure.
 */
static void report_failure(const struct run *run, int r)
{
	struct comm *comm = run->ctx.comm;
	const char *text = *run->ctx.error ? run->ctx.error : strerror(-r);
	if (comm->ended) {
		report_end(comm, text);
		return;
	}
	if (run->ctx.agreed && comm->rank)
		return;
	/* Rank 0 detects the same error at about the same time, reports it and ends this rank. */
	if (run->ctx.on_every_rank && comm->rank && comm_await_end(comm, LEADER_SECONDS))
		return;
	if (run->ctx.agreed || run->ctx.on_every_rank || comm->world == 1)
		printable_line(stderr, "trainer: %s", text);
	else
		printable_line(stderr, "trainer: rank %u of %u: %s", comm->rank, comm->world, text);
	if (!run->ctx.agreed && comm->world > 1)
		comm_abort(comm, text);
}

/* Performs the action that the options select on an open run. */
static int perform_action(struct run *run)
{
	const struct run_options *run_options = &run->ctx.options;
	FILE *file = run_options->dry ? stdout : stderr;
	if (run_options->evaluate)
		return run_evaluate_alone(run, stdout);
	if (run_options->find_lr)
		return run_find_lr(run, stdout);
	if (run_options->find_batch_size)
		return run_find_batch_size(run, stdout);
	if (run_options->overfit_batch)
		return run_overfit_batch(run, stdout);
	if (run_options->check_gradients)
		return run_check_gradients(run, stdout);
	if (run->ctx.comm->rank == 0) {
		run_describe(run, file);
		run_print_hints(run, file);
	}
	return run_options->dry ? 0 : run_train(run);
}

static int train(const struct recipe *recipe, const struct run_options *run_options)
{
	bool leads = run_options->comm->rank == 0;
	struct run *run = calloc(1, sizeof(*run));
	if (!run)
		return -ENOMEM;
	int r = run_open(run, recipe, run_options);
	if (r == 0)
		r = perform_action(run);
	progress_end(&run->ctx.progress);
	if (r >= 0 && run_options->profile && !run_options->dry && leads)
		print_profile(run);
	if (r < 0)
		report_failure(run, r);
	else if (r == RUN_STOPPED && leads)
		fprintf(stderr, "trainer: stopped at step %llu; use --resume to continue\n",
			(unsigned long long)run->state.step);
	run_close(run);
	free(run);
	return r;
}

/* Rank 0 reads the recipe and broadcasts it. */
static int make_recipe(struct recipe *recipe, struct arguments *arguments, char *error)
{
	struct comm *comm = arguments->run.comm;
	char problem[RECIPE_ERROR_MAX] = "";
	int r = ranks_check_build(comm, error);
	if (r < 0)
		return r;
	if (comm->rank == 0) {
		r = load(recipe, arguments, problem);
		if (r == 0 && !arguments->print)
			r = recipe_check(recipe, !arguments->run.evaluate, problem);
	}
	if (r < 0)
		snprintf(error, RANKS_ERROR_MAX, "%s", problem);
	r = ranks_agree(comm, r, error);
	return r < 0 ? r : ranks_share_recipe(comm, recipe, error);
}

/* --print-recipe: -EINVAL if keys contradict each other. */
static int print_recipe(const struct recipe *recipe, bool leads, char *error)
{
	int r = leads ? recipe_write(recipe, stdout) : 0;
	return r < 0 ? r : recipe_check(recipe, false, error);
}

static bool is_search_or_dry(const struct run_options *run_options)
{
	return run_options->dry || run_options->find_lr || run_options->find_batch_size ||
	       run_options->overfit_batch || run_options->check_gradients;
}

/* Sets run_options->output; without --output, to a default stored in `path`. */
static int choose_output(const char *recipe, struct run_options *run_options, char *path,
			 size_t size)
{
	if (run_options->output)
		return 0;
	run_options->output = path;
	return default_output(recipe, path, size);
}

static int run_recipe(struct arguments *arguments, struct recipe *recipe)
{
	struct run_options *run_options = &arguments->run;
	char error[RANKS_ERROR_MAX] = "", output[4096];
	bool leads = run_options->comm->rank == 0, trains = false;
	int r = make_recipe(recipe, arguments, error);
	if (r == 0 && arguments->print) {
		r = print_recipe(recipe, leads, error);
	} else if (r == 0 && arguments->plan.device) {
		r = leads ? estimate_recipe(recipe, &arguments->plan, stdout, error) : 0;
	} else if (r == 0) {
		trains = true;
		r = choose_output(arguments->recipe, run_options, output, sizeof(output));
	}
	if (r < 0 && run_options->comm->ended)
		report_end(run_options->comm, error);
	else if (r < 0 && leads)
		printable_line(stderr, "trainer: %s", *error ? error : strerror(-r));
	if (r < 0 || !trains)
		return r;
	run_options->dry = is_search_or_dry(run_options);
	if (!run_options->trace_first) {
		run_options->trace_first = TRACE_FIRST;
		run_options->trace_last = TRACE_LAST;
	}
	catch_signals();
	return train(recipe, run_options);
}

static int plot(const struct arguments *arguments)
{
	const char *folders[OVERRIDES_MAX + 1] = {arguments->recipe};
	char error[PLOT_ERROR_MAX] = "";
	memcpy(folders + 1, arguments->overrides, arguments->override_count * sizeof(folders[0]));
	int r = plot_runs(arguments->plot, folders, arguments->override_count + 1, error);
	if (r < 0)
		printable_line(stderr, "trainer: %s", error);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The file is made under another name and renamed, which would replace a device or a link. */
static int join_check_output(const char *path, bool overwrite, char *error)
{
	struct stat status;
	if (lstat(path, &status))
		return 0;
	if (!S_ISREG(status.st_mode))
		return sentence_fail(error, CHECKPOINT_ERROR_MAX, -EEXIST,
				     "%.900s exists and is not a regular file: use another "
				     "--output",
				     path);
	return overwrite ? 0
			 : sentence_fail(error, CHECKPOINT_ERROR_MAX, -EEXIST,
					 "%.900s exists: use another --output, or --overwrite to "
					 "replace it",
					 path);
}

static int join(const struct arguments *arguments)
{
	const char *path = arguments->run.output;
	char error[CHECKPOINT_ERROR_MAX] = "";
	signal(SIGXFSZ, SIG_IGN); /* as in catch_signals() */
	int r = join_check_output(path, arguments->run.overwrite, error);
	if (r == 0)
		r = checkpoint_join(arguments->join, path, error);
	if (r < 0)
		printable_line(stderr, "trainer: %s", error);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The exit status of a failure. Launchers may start again what failed because of another rank. */
static int failure_status(int r, const struct comm *comm)
{
	bool missed = !comm && (r == -ETIMEDOUT || r == -ECONNRESET);

	return missed || (comm && comm->ended == COMM_LOST) ? EX_TEMPFAIL : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse,
		.args_doc = "RECIPE.ini [SECTION.KEY=VALUE...]\n--plot=FILE.svg RUN...\n"
			    "--join=DIR --output=FILE",
		.doc = doc};
	struct arguments arguments = {.run = {.stop = &stop}};
	struct recipe recipe;
	char error[COMM_ERROR_MAX] = "";
	argp_err_exit_status = EXIT_FAILURE;
	options_read(options, &argp, argc, argv, &arguments);
	if (arguments.plot)
		return plot(&arguments);
	if (arguments.join)
		return join(&arguments);
	if (recipe_init(&recipe) < 0)
		return EXIT_FAILURE;
	int status, r = comm_open(&arguments.run.comm, error);
	if (r < 0) {
		printable_line(stderr, "trainer: %s", error);
		status = failure_status(r, NULL);
	} else {
		r = run_recipe(&arguments, &recipe);
		status = r < 0 ? failure_status(r, arguments.run.comm)
			       : (r == RUN_STOPPED ? EXIT_STOPPED : EXIT_SUCCESS);
		comm_close(arguments.run.comm);
	}
	recipe_deinit(&recipe);
	return status;
}
