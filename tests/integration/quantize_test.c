// SPDX-License-Identifier: Apache-2.0
// tools/quantize from the outside: what it writes is a checkpoint that berth runs, its codes are
// what a small calculation here says, and what it cannot do it refuses in one line and leaves
// nothing behind.
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/convert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/model.h"
#include "support/changed_checkpoint.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/tensor_file.h"
#include "support/test.h"

#define QUANTIZE (TEST_BUILD "/quantize")
#define MODELS   "tests/data/models"
#define LLAMA    MODELS "/llama"
#define GPTJ     MODELS "/gptj"
#define MAMBA    MODELS "/mamba"
#define WORDS    8 // of a command line behind OUT

typedef struct kind {
    const char *name;
    const char *model;
    const char *words[WORDS];
    double loss; // by which it may differ from that of the floats
    int64_t group;
    bool is_asymmetric;
} kind;

// Measured: 0.0014, 0.0058, 0.018, 0.003 and 0.0015. One bit of codes more or less is a factor of
// two.
static const kind kinds[] = {
    {"int8",               LLAMA, {"--scheme", "int8"},                            0.003, 0,  false},
    {"fp8",                LLAMA, {"--scheme", "fp8"},                             0.01,  0,  false},
    {"int4-32",            MAMBA, {"--scheme", "int4", "--group", "32"},           0.03,  32, false},
    {"int4-64",            GPTJ,  {"--scheme=int4", "--group=64"},                 0.05,  64, false},
    {"int4-32-asymmetric", MAMBA, {"--scheme=int4", "--group=32", "--asymmetric"}, 0.03,  32, true },
};

static void quantize(program *p, const char *in, const char *out, const char *const *words) {
    const char *arguments[WORDS + 4] = {QUANTIZE, in, out};
    for (size_t i = 0; i < WORDS && words[i] != NULL; ++i) {
        arguments[3 + i] = words[i];
    }
    program_run(p, PROGRAM_ENV("BERTH_PLUGINS="), arguments);
}

static void make(program *p, const kind *of, const char *out) {
    quantize(p, of->model, out, of->words);
    if (p->status != 0) {
        print_error("%s", p->err);
    }
    CHECK_INT(p->status, 0);
    CHECK_STR(p->err, ""); // progress is for terminals
}

// ---- what it computes ---------------------------------------------------------------------------

static double loss_error(const char *model, const char *golden) {
    program p;
    double error = 0;
    PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_PLUGINS="), BERTH, "eval", "--model", model, "--golden",
                golden, "--loss", MODELS "/validation.json", "--allow-fallback", "--json");
    CHECK_INT(p.status, 1); // its logits are not those of the floats
    berth_json *report = program_json(&p);
    CHECK_OK(berth_json_get_f64(report, "loss.error", &error));
    berth_json_destroy(report);
    return error;
}

static void check_kind_loss(void **state) {
    const kind *of = *state;
    sandbox box;
    program p;
    char golden[160];
    sandbox_make(&box);
    const char *out = sandbox_path(&box, "out");
    (void)snprintf(golden, sizeof golden, "%s/golden.json", of->model);
    make(&p, of, out);
    const double error = loss_error(out, golden);
    print_message("%s: the loss differs by %.5f\n", of->name, error);
    CHECK(error > 0);
    CHECK(error <= of->loss);
    sandbox_remove(&box);
}

TEST_CASES(quantized_checkpoint_has_nearly_the_loss_of_its_floats) {
    for (size_t i = 0; i < BERTH_COUNT(kinds); ++i) {
        test_add(cases, kinds[i].name, check_kind_loss, (void *)(uintptr_t)&kinds[i]);
    }
}

// ---- its codes ----------------------------------------------------------------------------------

static const berth_stored_tensor *find(const berth_checkpoint *checkpoint, const char *module,
                                       const char *leaf) {
    char name[192];
    (void)snprintf(name, sizeof name, "%s.%s", module, leaf);
    for (size_t i = 0; i < berth_checkpoint_count(checkpoint); ++i) {
        if (strcmp(berth_checkpoint_at(checkpoint, i)->name, name) == 0) {
            return berth_checkpoint_at(checkpoint, i);
        }
    }
    return NULL;
}

static double number_at(const berth_stored_tensor *tensor, int64_t index) {
    float number = 0;
    const int64_t width = (int64_t)BERTH_DTYPE_BITS(tensor->dtype) / 8;
    berth_convert(tensor->dtype, (const char *)tensor->data + index * width, BERTH_DTYPE_F32,
                  &number, 1);
    return (double)number;
}

static int byte_at(const berth_stored_tensor *tensor, int64_t index) {
    return ((const uint8_t *)tensor->data)[index];
}

// The number of a field or code without its scale.
static double code_number(const kind *of, const berth_stored_tensor *codes, int64_t index) {
    if (of->group > 0) {
        return byte_at(codes, index / 2) >> (index % 2 * 4) & 15;
    }
    const int byte = byte_at(codes, index);
    return codes->dtype == BERTH_DTYPE_I8 ? (int8_t)byte
                                          : (double)berth_float_of_e4m3((uint8_t)byte);
}

// All numbers that a code stands for; returns how many.
static size_t list_numbers(const kind *of, berth_dtype dtype, double numbers[256]) {
    size_t count = 0;
    for (int i = 0; i < 256; ++i) {
        const double number = of->group > 0             ? i
                              : dtype == BERTH_DTYPE_I8 ? i - 128
                                                        : (double)berth_float_of_e4m3((uint8_t)i);
        if (isfinite(number) && (of->group == 0 || i < 16)) {
            numbers[count++] = number;
        }
    }
    return count;
}

typedef struct weight {
    const kind *of;
    const berth_stored_tensor *from;
    const berth_stored_tensor *codes;
    const berth_stored_tensor *scales;
    const berth_stored_tensor *zeros;
    double numbers[256];
    size_t number_count;
} weight;

static double zero_of(const weight *w, int64_t row, int64_t group, int64_t groups) {
    if (w->of->group == 0) {
        return 0;
    }
    if (w->zeros == NULL) {
        return 8;
    }
    return byte_at(w->zeros, (row / 8 * groups + group) * 4 + row % 8 / 2) >> (row % 2 * 4) & 15;
}

// No other code is nearer to the number than the one that was chosen.
static double check_code(const weight *w, int64_t index, double scale, double zero) {
    const double number = number_at(w->from, index);
    const double miss = fabs(number - (code_number(w->of, w->codes, index) - zero) * scale);
    for (size_t i = 0; i < w->number_count; ++i) {
        CHECK(miss <= fabs(number - (w->numbers[i] - zero) * scale) * (1 + 1e-6) + 1e-12);
    }
    return miss;
}

static void check_group(const weight *w, int64_t row, int64_t group, int64_t size) {
    const int64_t groups = w->scales->shape[1];
    const int64_t first = row * w->from->shape[1] + group * size;
    const double scale = number_at(w->scales, row * groups + group);
    const double zero = zero_of(w, row, group, groups);
    double most = 0;
    double squares = 0;
    double plain = 0; // of rounding to a scale that covers all numbers
    for (int64_t k = 0; k < size; ++k) {
        most = fmax(most, fabs(number_at(w->from, first + k)));
    }
    const double largest = w->of->group > 0 ? 7.5 : w->codes->dtype == BERTH_DTYPE_I8 ? 127 : 448;
    CHECK(scale > 0);
    for (int64_t k = 0; k < size; ++k) {
        const double number = number_at(w->from, first + k);
        const double miss = check_code(w, first + k, scale, zero);
        const double code = fmin(rint(number * largest / most), 7);
        squares += miss * miss;
        plain += (number - code * most / largest) * (number - code * most / largest);
    }
    if (w->of->group == 0) {
        CHECK_NEAR(scale, most / largest, most / largest / 256); // one half of bf16's last place
    } else if (!w->of->is_asymmetric) {
        CHECK(squares <= plain * 1.02); // the scale that it was compared with is one of bf16
    }
}

static size_t check_weight(const kind *of, const berth_stored_tensor *from,
                           const berth_checkpoint *made) {
    char module[160];
    (void)snprintf(module, sizeof module, "%.*s", (int)(strlen(from->name) - strlen(".weight")),
                   from->name);
    weight w = {
        .of = of,
        .from = from,
        .codes = find(made, module, of->group > 0 ? "weight_packed" : "weight"),
        .scales = find(made, module, "weight_scale"),
        .zeros = find(made, module, "weight_zero_point"),
    };
    if (w.scales == NULL) { // it stayed as it was
        w.codes = find(made, module, "weight");
        CHECK(w.codes != NULL);
        assert(w.codes != NULL); // an analyzer does not see CHECK
        CHECK_UINT(w.codes->bytes, from->bytes);
        CHECK_BYTES(w.codes->data, from->data, from->bytes);
        return 0;
    }
    const int64_t size = of->group > 0 ? of->group : from->shape[1];
    CHECK(w.codes != NULL);
    assert(w.codes != NULL);
    CHECK((w.zeros != NULL) == of->is_asymmetric);
    CHECK_INT(w.scales->shape[0], from->shape[0]);
    CHECK_INT(w.scales->shape[1], from->shape[1] / size);
    if (of->group > 0) {
        CHECK_BYTES(find(made, module, "weight_shape")->data, from->shape, 16);
    }
    w.number_count = list_numbers(of, w.codes->dtype, w.numbers);
    for (int64_t row = 0; row < from->shape[0]; row += 7) {
        for (int64_t group = 0; group < w.scales->shape[1]; ++group) {
            check_group(&w, row, group, size);
        }
    }
    return 1;
}

static void check_kind_codes(void **state) {
    const kind *of = *state;
    sandbox box;
    program p;
    berth_checkpoint *from = NULL;
    berth_checkpoint *made = NULL;
    size_t quantized = 0;
    sandbox_make(&box);
    const char *out = sandbox_path(&box, "out");
    make(&p, of, out);
    CHECK_OK(berth_checkpoint_open(of->model, &from));
    CHECK_OK(berth_checkpoint_open(out, &made));
    for (size_t i = 0; i < berth_checkpoint_count(from); ++i) {
        const berth_stored_tensor *tensor = berth_checkpoint_at(from, i);
        if (tensor->ndim == 2 && strstr(tensor->name, ".weight") != NULL) {
            quantized += check_weight(of, tensor, made);
        }
    }
    CHECK_UINT(quantized, strcmp(of->model, LLAMA) == 0  ? 21
                          : strcmp(of->model, GPTJ) == 0 ? 18
                                                         : 6);
    berth_checkpoint_close(made);
    berth_checkpoint_close(from);
    sandbox_remove(&box);
}

TEST_CASES(every_code_is_the_nearest_to_its_number) {
    for (size_t i = 0; i < BERTH_COUNT(kinds); ++i) {
        test_add(cases, kinds[i].name, check_kind_codes, (void *)(uintptr_t)&kinds[i]);
    }
}

// ---- its files ----------------------------------------------------------------------------------

static void check_text(const berth_json *config, const char *path, const char *wanted) {
    berth_str text = {0};
    CHECK_OK(berth_json_get_str(config, path, &text));
    CHECK_STR(text.data, wanted);
}

TEST(config_says_what_the_codes_are_and_keeps_the_rest) {
    sandbox box;
    program p;
    berth_json *config = NULL;
    int64_t number = 0;
    bool truth = true;
    char *mine = NULL;
    char *its = NULL;
    size_t size = 0;
    sandbox_make(&box);
    make(&p, &kinds[4], sandbox_path(&box, "out"));
    CHECK_OK(berth_json_load(sandbox_path(&box, "out/config.json"), NULL, &config));
    check_text(config, "model_type", "mamba");
    check_text(config, "quantization_config.quant_method", "compressed-tensors");
    check_text(config, "quantization_config.format", "pack-quantized");
    check_text(config, "quantization_config.config_groups.group_0.targets.0", "Linear");
    check_text(config, "quantization_config.config_groups.group_0.weights.strategy", "group");
    CHECK(!berth_json_has(config, "quantization_config.config_groups.group_0.input_activations"));
    CHECK_OK(berth_json_get_i64(
        config, "quantization_config.config_groups.group_0.weights.group_size", &number));
    CHECK_INT(number, 32);
    CHECK_OK(berth_json_get_bool(
        config, "quantization_config.config_groups.group_0.weights.symmetric", &truth));
    CHECK(!truth);
    check_text(config, "quantization_config.ignore.0", "backbone.layers.0.mixer.dt_proj");
    const berth_json *ignored = berth_json_find(config, "quantization_config.ignore");
    CHECK_UINT(berth_json_size(ignored), 7); // two of each layer, and the head
    berth_json_destroy(config);
    CHECK_OK(
        berth_file_read(sandbox_path(&box, "out/tokenizer.json"), (size_t)1 << 24, &mine, &size));
    CHECK_OK(berth_file_read(MAMBA "/tokenizer.json", (size_t)1 << 24, &its, &size));
    CHECK_STR(mine, its);
    berth_free(its);
    berth_free(mine);
    sandbox_remove(&box);
}

// The tensors of a checkpoint in two files and an index.
static void split(const sandbox *box, const char *model) {
    berth_checkpoint *from = NULL;
    tensor_row list[2][64];
    char shapes[128][48];
    size_t counts[2] = {0};
    static char index[16384];
    size_t used = (size_t)snprintf(index, sizeof index, "{\"metadata\": {}, \"weight_map\": {");
    CHECK_OK(berth_checkpoint_open(model, &from));
    for (size_t i = 0; i < berth_checkpoint_count(from); ++i) {
        const berth_stored_tensor *tensor = berth_checkpoint_at(from, i);
        (void)snprintf(shapes[i], sizeof shapes[i], tensor->ndim == 1 ? "[%d]" : "[%d, %d]",
                       (int)tensor->shape[0], tensor->ndim == 1 ? 0 : (int)tensor->shape[1]);
        CHECK(tensor->ndim <= 2);
        list[i % 2][counts[i % 2]++] = (tensor_row){
            tensor->name, "BF16", shapes[i], tensor->bytes, tensor->data,
        };
        used +=
            (size_t)snprintf(index + used, sizeof index - used, "%s\"%s\": \"part%d.safetensors\"",
                             i == 0 ? "" : ", ", tensor->name, (int)(i % 2));
    }
    CHECK(used + 2 < sizeof index);
    (void)snprintf(index + used, sizeof index - used, "}}");
    (void)sandbox_write(box, "in/model.safetensors.index.json", index);
    tensor_file_write(sandbox_path(box, "in/part0.safetensors"), list[0], counts[0]);
    tensor_file_write(sandbox_path(box, "in/part1.safetensors"), list[1], counts[1]);
    berth_checkpoint_close(from);
}

// Whatever files the floats come in and the codes go to, the tensors are the same.
TEST(several_files_in_and_out_hold_what_one_does) {
    sandbox box;
    program p;
    char *config = NULL;
    size_t size = 0;
    berth_checkpoint *one = NULL;
    berth_checkpoint *several = NULL;
    sandbox_make(&box);
    CHECK_OK(berth_file_read(LLAMA "/config.json", (size_t)1 << 20, &config, &size));
    (void)sandbox_write(&box, "in/config.json", config);
    berth_free(config);
    split(&box, LLAMA);
    quantize(&p, LLAMA, sandbox_path(&box, "one"), (const char *const[]){"--scheme=fp8", NULL});
    CHECK_INT(p.status, 0);
    quantize(&p, sandbox_path(&box, "in"), sandbox_path(&box, "several/"),
             (const char *const[]){"--scheme=fp8", "--file-size=1", "--threads=3", NULL});
    CHECK_INT(p.status, 0);
    CHECK(!berth_path_exists(sandbox_path(&box, "several/part0.safetensors")));
    CHECK_OK(berth_checkpoint_open(sandbox_path(&box, "one"), &one));
    CHECK_OK(berth_checkpoint_open(sandbox_path(&box, "several"), &several));
    CHECK_UINT(berth_checkpoint_count(one), berth_checkpoint_count(several));
    for (size_t i = 0; i < berth_checkpoint_count(one); ++i) {
        const berth_stored_tensor *tensor = berth_checkpoint_at(one, i);
        const berth_stored_tensor *other = NULL;
        for (size_t k = 0; k < berth_checkpoint_count(several); ++k) {
            const berth_stored_tensor *candidate = berth_checkpoint_at(several, k);
            other = strcmp(candidate->name, tensor->name) == 0 ? candidate : other;
        }
        CHECK(other != NULL);
        assert(other != NULL);
        CHECK_UINT(other->bytes, tensor->bytes);
        CHECK_BYTES(other->data, tensor->data, tensor->bytes);
    }
    berth_checkpoint_close(several);
    berth_checkpoint_close(one);
    sandbox_remove(&box);
}

TEST(tensors_beyond_one_file_go_to_numbered_ones_with_an_index) {
    sandbox box;
    program p;
    berth_checkpoint *made = NULL;
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", sandbox_path(&box, "in"), "--shape",
                 "narrow");
    quantize(&p, sandbox_path(&box, "in"), sandbox_path(&box, "out"),
             (const char *const[]){"--scheme=int8", "--file-size=1", NULL});
    CHECK_INT(p.status, 0);
    CHECK(berth_path_exists(sandbox_path(&box, "out/model.safetensors.index.json")));
    CHECK(!berth_path_exists(sandbox_path(&box, "out/model.safetensors")));
    CHECK_OK(berth_checkpoint_open(sandbox_path(&box, "out"), &made)); // which checks the index
    for (size_t i = 0; i < berth_checkpoint_count(made); ++i) {
        const berth_stored_tensor *tensor = berth_checkpoint_at(made, i);
        CHECK_CONTAINS(berth_path_name(berth_safetensors_path(tensor->file)), "-of-0000");
    }
    berth_checkpoint_close(made);
    sandbox_remove(&box);
}

// ---- its report ---------------------------------------------------------------------------------

TEST(report_has_every_layer_the_worst_last_and_the_mean) {
    sandbox box;
    program p;
    double before = 0;
    double sum = 0;
    double mean = 0;
    size_t count = 0;
    sandbox_make(&box);
    make(&p, &kinds[2], sandbox_path(&box, "out"));
    const char *line = p.out;
    for (; strncmp(line, "backbone.", 9) == 0; line = strchr(line, '\n') + 1) {
        double error = 0;
        CHECK_INT(sscanf(line, "%*s [%*d, %*d] %lf %%", &error), 1);
        CHECK(error >= before);
        before = error;
        sum += error;
        ++count;
    }
    CHECK_UINT(count, 6);
    CHECK_INT(sscanf(line, "6 layers, mean %lf %%", &mean), 1);
    CHECK_NEAR(mean, sum / 6, 1e-3);
    CHECK_CONTAINS(line, "(scales that cover all numbers: ");
    sandbox_remove(&box);
}

// ---- refusals -----------------------------------------------------------------------------------

typedef struct refusal {
    const char *name;
    const char *in;
    const char *out; // in the sandbox
    const char *words[WORDS];
    int status;
    const char *says;
} refusal;

static const refusal refusals[] = {
    {"no scheme",                  LLAMA,               "out",           {NULL},                          2, "needs IN OUT --scheme"                                                                    },
    {"unknown scheme",             LLAMA,               "out",           {"--scheme", "int9"},            2, "int8"                                                                                     },
    {"unknown group",              LLAMA,               "out",           {"--scheme=int4", "--group=48"}, 2, "128"                                                                                      },
    {"group of 8 bits",            LLAMA,               "out",           {"--scheme=int8", "--group=32"}, 2, "are of --scheme int4"                                                                     },
    {"no folder",                  MODELS "/absent",    "out",           {"--scheme=int8"},               3, "there is no such directory"                                                               },
    {"no safetensors",             "tests/data/graphs", "out",           {"--scheme=int8"},               5, "config.json"                                                                              },
    {"already quantized",
     "tests/data/quant/gptq-4bit-act",                  "out",
     {"--scheme=int8"},
     5,                                                                                                      "already quantized ('gptq')"                                                               },
    {"group that does not divide",
     LLAMA,                                             "out",
     {"--scheme=int4"},
     5,                                                                                                      "'model.layers.0.self_attn.q_proj.weight' has 64 inputs, which groups of 128 do not divide"},
    {"existing output",            LLAMA,               "",              {"--scheme=int8"},               7, "exists already"                                                                           },
    {"output nowhere",             LLAMA,               "no/such/place", {"--scheme=int8"},               7, "No such file or directory"                                                                },
};

// One line, and nothing beside what was there.
static void check_refused(const program *p, const sandbox *box, int status, const char *says) {
    berth_arena *arena = NULL;
    berth_dir_listing listing = {0};
    CHECK_INT(p->status, status);
    CHECK_STR(p->out, "");
    CHECK_CONTAINS(p->err, says);
    CHECK(strncmp(p->err, "quantize: ", 10) == 0);
    CHECK(strchr(p->err, '\n') == p->err + strlen(p->err) - 1);
    CHECK_OK(berth_arena_create(4096, 1 << 20, &arena));
    CHECK_OK(berth_dir_list(box->dir, arena, &listing));
    for (size_t i = 0; i < listing.count; ++i) {
        CHECK_STR(listing.names[i], "in");
    }
    berth_arena_destroy(arena);
}

static void check_refusal(void **state) {
    const refusal *of = *state;
    sandbox box;
    program p;
    sandbox_make(&box);
    quantize(&p, of->in, of->out[0] != 0 ? sandbox_path(&box, of->out) : box.dir, of->words);
    check_refused(&p, &box, of->status, of->says);
    sandbox_remove(&box);
}

TEST_CASES(what_cannot_be_done_is_refused_in_one_line) {
    for (size_t i = 0; i < BERTH_COUNT(refusals); ++i) {
        test_add(cases, refusals[i].name, check_refusal, (void *)(uintptr_t)&refusals[i]);
    }
}

// Found only while codes are made: what was written by then is gone.
TEST(number_that_is_not_finite_is_refused_and_leaves_nothing) {
    static const char *const files[] = {"config.json", "model.safetensors", NULL};
    const tensor_change change = {
        .tensor = "model.layers.2.mlp.up_proj.weight",
        .data = "\xc0\x7f",
        .data_bytes = 2,
        .at = 3 * 256,
    };
    sandbox box;
    sandbox in;
    program p;
    sandbox_make(&box);
    sandbox_make(&in);
    changed_checkpoint_write(&in, LLAMA, files, NULL, &change);
    quantize(&p, in.dir, sandbox_path(&box, "out"), (const char *const[]){"--scheme=int8", NULL});
    check_refused(&p, &box, 5,
                  "'model.layers.2.mlp.up_proj.weight' has a number that is not finite in row ");
    sandbox_remove(&in);
    sandbox_remove(&box);
}

TEST(help_is_printed_to_standard_output) {
    program p;
    PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_PLUGINS="), QUANTIZE, "--help");
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.out, "usage: quantize IN OUT --scheme");
    CHECK_CONTAINS(p.out, "--file-size");
}
