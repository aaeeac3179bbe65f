// SPDX-License-Identifier: Apache-2.0
// quantize IN OUT --scheme int8|fp8|int4: see `details` below. Nothing but this file prints or
// decides the exit status.
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/option.h"
#include "base/thread.h"
#include "quantizer/quantizer.h"

#define ARENA_BLOCK ((size_t)64 << 10)
#define ARENA_LIMIT ((size_t)1 << 30)
#define TEXT_LIMIT  ((size_t)64 << 20)
#define MEGABYTE    UINT64_C(1000000)

extern const berth_plugin *const berth_core_plugins[]; // generated from plugins/core-*
extern const size_t berth_core_plugins_count;

// ---- the command line ---------------------------------------------------------------------------

typedef struct choices {
    int32_t scheme;
    int32_t group;
    bool is_asymmetric;
    int64_t file_megabytes;
    int64_t threads;
    bool wants_help;
} choices;

static const char *const schemes[] = {"int8", "fp8", "int4", NULL};
static const char *const groups[] = {"32", "64", "128", NULL};

static const berth_option rows[] = {
    {
     .name = "scheme",
     .value_name = "NAME",
     .help = "int8 (W8A8 dynamic), fp8 (e4m3, dynamic), int4 (weights alone)",
     .choices = schemes,
     .default_text = "int8",
     .commands = 1,
     .offset = offsetof(choices, scheme),
     .type = BERTH_OPTION_ENUM,
     },
    {
     .name = "group",
     .value_name = "N",
     .help = "inputs that share a scale, of int4",
     .choices = groups,
     .default_text = "128",
     .commands = 1,
     .offset = offsetof(choices, group),
     .type = BERTH_OPTION_ENUM,
     },
    {
     .name = "asymmetric",
     .help = "zero points, of int4",
     .commands = 1,
     .offset = offsetof(choices,                  is_asymmetric),
     .type = BERTH_OPTION_FLAG,
     },
    {
     .name = "file-size",
     .value_name = "MB",
     .help = "most tensors in one file; more than one get an index",
     .default_text = "5000",
     .minimum = 1,
     .maximum = 1e9,
     .commands = 1,
     .offset = offsetof(choices, file_megabytes),
     .type = BERTH_OPTION_I64,
     },
    {
     .name = "threads",
     .value_name = "N",
     .help = "threads, 0: one for each CPU",
     .default_text = "0",
     .minimum = 0,
     .maximum = 64,
     .commands = 1,
     .offset = offsetof(choices, threads),
     .type = BERTH_OPTION_I64,
     },
    {
     .name = "help",
     .help = "print this",
     .commands = 1,
     .offset = offsetof(choices, wants_help),
     .type = BERTH_OPTION_FLAG,
     .short_name = 'h',
     },
};

// clang-format off
static const char details[] =
    "usage: quantize IN OUT --scheme int8|fp8|int4 [--group 32|64|128] [--asymmetric]\n"
    "                [--file-size MB] [--threads N]\n"
    "\n"
    "Makes of IN, a folder with a checkpoint in bf16, f16 or f32, the checkpoint OUT in the form of\n"
    "compressed-tensors. All linear layers get codes; embeddings, heads, routers and norms stay as\n"
    "they are. OUT must not exist; it is complete or absent.\n"
    "\n"
    "  int8  i8 with a scale for each output, inputs in i8 by token at run time\n"
    "  fp8   e4m3, the same\n"
    "  int4  4 bits with a scale for each group of inputs, the scale of the least squared error of\n"
    "        22 around the one that covers the group's numbers; inputs stay as they are\n"
    "\n"
    "Prints the error of every layer, root of the mean square of what the codes miss beside that of\n"
    "the weight, the worst last, and the mean.\n"
    "\n"
    "Exit status: 0 done; 2 usage; 3 no such folder; 5 the checkpoint cannot be quantized; 7 OUT\n"
    "cannot be written; 130, 143 interrupted.\n"
    "\n";
// clang-format on

// ---- the flow -----------------------------------------------------------------------------------

// The exit status of a failure in each stage.
typedef enum stage {
    STAGE_USAGE = 2,
    STAGE_FOLDER = 3,
    STAGE_CHECKPOINT = 5,
    STAGE_OUTPUT = 7,
} stage;

typedef struct job {
    stage stage;
    berth_arena *arena;
    choices choices;
    berth_options options;
    const char *in;
    const char *out;
    berth_config config; // all defaults
    berth_registry *registry;
    berth_checkpoint *checkpoint;
    quantizer_plan plan;
    uint64_t from_bytes;
    bool has_progress;
    bool is_interrupted;
} job;

static berth_status read_options(job *j, int argc, char **argv) {
    berth_option_source source;
    BERTH_TRY(berth_options_init(&j->options, rows, BERTH_COUNT(rows), &j->choices, j->arena));
    BERTH_TRY(berth_options_apply_argv(&j->options, 1, argc - 1, argv + 1));
    if (j->choices.wants_help) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_options_source(&j->options, "scheme", &source));
    if (j->options.positional_count != 2 || source.origin == BERTH_ORIGIN_DEFAULT) {
        return BERTH_FAIL(INVALID_ARGUMENT, "needs IN OUT --scheme int8|fp8|int4, try --help");
    }
    const bool has_form = j->choices.is_asymmetric || strcmp(groups[j->choices.group], "128") != 0;
    if (has_form && j->choices.scheme != QUANTIZER_INT4) {
        return BERTH_FAIL(INVALID_ARGUMENT, "--group and --asymmetric are of --scheme int4");
    }
    char *out = berth_arena_strdup(j->arena, j->options.positional[1]);
    if (out == NULL) {
        return berth_arena_exhausted(j->arena, "names of files");
    }
    for (size_t end = strlen(out); end > 1 && out[end - 1] == '/'; --end) {
        out[end - 1] = 0;
    }
    j->in = j->options.positional[0];
    j->out = out;
    return BERTH_OK;
}

static berth_status check_folders(job *j) {
    j->stage = STAGE_FOLDER;
    if (!berth_path_is_dir(j->in)) {
        return BERTH_FAIL(NOT_FOUND,
                          "%s: there is no such directory, name the folder of a checkpoint", j->in);
    }
    j->stage = STAGE_OUTPUT;
    return berth_path_exists(j->out)
               ? BERTH_FAIL(ALREADY_EXISTS, "%s: exists already; name a folder that does not",
                            j->out)
               : BERTH_OK;
}

static berth_status open_checkpoint(job *j) {
    j->stage = STAGE_CHECKPOINT;
    BERTH_TRY(berth_config_init(&j->config, j->arena));
    BERTH_TRY(berth_registry_create(&j->config, NULL, &j->registry));
    BERTH_TRY(berth_registry_add_core(j->registry, berth_core_plugins, berth_core_plugins_count));
    BERTH_TRY(berth_registry_freeze(j->registry));
    return berth_checkpoint_open(j->in, &j->checkpoint);
}

static berth_status make_plan(job *j) {
    j->plan = (quantizer_plan){
        .form =
            {
                   .scheme = (quantizer_scheme)j->choices.scheme,
                   .group = strtol(groups[j->choices.group], NULL, 10),
                   .is_asymmetric = j->choices.is_asymmetric,
                   },
        .arena = j->arena,
        .registry = j->registry,
        .config = &j->config,
        .from = j->checkpoint,
    };
    for (size_t i = 0; i < berth_checkpoint_count(j->checkpoint); ++i) {
        j->from_bytes += berth_checkpoint_at(j->checkpoint, i)->bytes;
    }
    return quantizer_plan_make(&j->plan, (uint64_t)j->choices.file_megabytes * MEGABYTE);
}

// ---- progress -----------------------------------------------------------------------------------

static void erase_progress(job *j) {
    if (j->has_progress) {
        fputs("\r\033[K", stderr);
    }
}

// Between two tensors is where an interrupt is taken.
static berth_status show_progress(void *context, const quantizer_item *item, uint64_t done_bytes) {
    job *j = context;
    j->is_interrupted = berth_interrupt_signal() != 0;
    if (j->is_interrupted) {
        return BERTH_FAIL(UNAVAILABLE, "interrupted");
    }
    erase_progress(j);
    j->has_progress = isatty(STDERR_FILENO);
    if (j->has_progress) {
        fprintf(stderr, "%3.0f %%  %.60s", 100.0 * (double)done_bytes / (double)j->from_bytes,
                item->module != NULL ? item->module : item->from->name);
        (void)fflush(stderr);
    }
    return BERTH_OK;
}

static berth_status write_checkpoint(job *j) {
    const quantizer_output output = {
        .directory = j->out,
        .threads = j->choices.threads > 0 ? (uint32_t)j->choices.threads : berth_thread_cpus(),
        .progress = show_progress,
        .context = j,
    };
    j->stage = STAGE_OUTPUT;
    const berth_status status = quantizer_write(&j->plan, &output);
    erase_progress(j);
    // What is wrong with the numbers or the files of IN is no fault of OUT.
    j->stage =
        status == BERTH_IO || status == BERTH_OUT_OF_MEMORY ? STAGE_OUTPUT : STAGE_CHECKPOINT;
    return status;
}

// ---- the report ---------------------------------------------------------------------------------

static double relative(double squares, double energy) {
    return energy > 0 ? sqrt(squares / energy) : 0;
}

static int compare_errors(const void *a, const void *b) {
    const quantizer_error *left = &(*(const quantizer_item *const *)a)->error;
    const quantizer_error *right = &(*(const quantizer_item *const *)b)->error;
    const double x = relative(left->squares, left->energy);
    const double y = relative(right->squares, right->energy);
    return (x > y) - (x < y);
}

static void print_layers(const quantizer_item *const *layers, size_t count, berth_text *text) {
    double sum = 0;
    double plain = 0;
    for (size_t i = 0; i < count; ++i) {
        const quantizer_item *layer = layers[i];
        const double error = relative(layer->error.squares, layer->error.energy);
        berth_text_add_format(text, "%-56s [%lld, %lld]  %.3f %%\n", layer->module,
                              (long long)layer->from->shape[0], (long long)layer->from->shape[1],
                              100 * error);
        sum += error;
        plain += relative(layer->error.plain, layer->error.energy);
    }
    berth_text_add_format(text, "%zu layers, mean %.3f %%", count, 100 * sum / (double)count);
    if (plain > sum) {
        berth_text_add_format(text, " (scales that cover all numbers: %.3f %%)",
                              100 * plain / (double)count);
    }
}

static berth_status print_report(job *j) {
    const quantizer_plan *plan = &j->plan;
    const quantizer_item **layers =
        BERTH_ARENA_ARRAY(j->arena, const quantizer_item *, plan->count);
    size_t count = 0;
    if (layers == NULL) {
        return berth_arena_exhausted(j->arena, "the report");
    }
    for (size_t i = 0; i < plan->count; ++i) {
        if (plan->items[i].module != NULL) {
            layers[count++] = &plan->items[i];
        }
    }
    qsort(layers, count, sizeof *layers, compare_errors);
    berth_text text;
    berth_text_init(&text, TEXT_LIMIT);
    print_layers(layers, count, &text);
    berth_text_add_format(&text, "; %.1f MB of tensors in place of %.1f\n",
                          (double)plan->total_bytes / (double)MEGABYTE,
                          (double)j->from_bytes / (double)MEGABYTE);
    const char *all = NULL;
    berth_status status = berth_text_finish(&text, &all);
    if (status == BERTH_OK && (fputs(all, stdout) < 0 || fflush(stdout) != 0)) {
        status = BERTH_FAIL(IO, "standard output: cannot be written; %s is complete", j->out);
    }
    berth_text_deinit(&text);
    return status;
}

// ---- the program --------------------------------------------------------------------------------

static berth_status print_help(const job *j) {
    berth_text text;
    berth_text_init(&text, TEXT_LIMIT);
    berth_text_add_cstr(&text, details);
    berth_options_print_help(&j->options, 1, &text);
    const char *all = NULL;
    const berth_status status = berth_text_finish(&text, &all);
    if (status == BERTH_OK) {
        (void)fputs(all, stdout);
    }
    berth_text_deinit(&text);
    return status;
}

static berth_status run(job *j, int argc, char **argv) {
    j->stage = STAGE_USAGE;
    BERTH_TRY(berth_arena_create(ARENA_BLOCK, ARENA_LIMIT, &j->arena));
    BERTH_TRY(read_options(j, argc, argv));
    if (j->choices.wants_help) {
        return print_help(j);
    }
    berth_interrupt_watch();
    BERTH_TRY(check_folders(j));
    BERTH_TRY(open_checkpoint(j));
    BERTH_TRY(make_plan(j));
    BERTH_TRY(write_checkpoint(j));
    j->stage = STAGE_OUTPUT;
    return print_report(j);
}

int main(int argc, char **argv) {
    job j = {.stage = STAGE_USAGE};
    const berth_status status = run(&j, argc, argv);
    int result = 0;
    if (j.is_interrupted) {
        result = 128 + berth_interrupt_signal();
    } else if (status != BERTH_OK) {
        fprintf(stderr, "quantize: %s\n", berth_status_message());
        result = (int)j.stage;
    }
    quantizer_plan_deinit(&j.plan);
    berth_checkpoint_close(j.checkpoint);
    berth_registry_destroy(j.registry);
    berth_arena_destroy(j.arena);
    return result;
}
