// SPDX-License-Identifier: Apache-2.0
// What a run of a quantized checkpoint holds at most: little more than its files and its KV cache,
// so no form is kept twice, and none as floats; of many layers, too, whose caches are nearly empty.
// The checkpoints are made by tools/quantize.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/test.h"

#define MIB           ((size_t)1 << 20)
#define PROMPT_TOKENS 16
#define OUTPUT_TOKENS 64
#define TOKEN_BYTES   ((size_t)2 * 256 * 2) // of a layer's keys and values, in bf16

typedef struct form {
    const char *name;
    const char *words[4]; // for tools/quantize
} form;

static const form forms[] = {
    {"int8",            {"--scheme=int8"}                              },
    {"fp8",             {"--scheme=fp8"}                               },
    {"int4-32",         {"--scheme=int4", "--group=32"}                },
    {"int4-128",        {"--scheme=int4"}                              },
    {"int4-asymmetric", {"--scheme=int4", "--group=32", "--asymmetric"}},
};

static size_t file_size(const char *path) {
    struct stat file;
    CHECK_INT(stat(path, &file), 0);
    return (size_t)file.st_size;
}

static void check_form(const sandbox *box, const form *of, size_t layers) {
    program p;
    PROGRAM_MUST(&p, PROGRAM_ENV("BERTH_PLUGINS="), TEST_BUILD "/quantize",
                 sandbox_path(box, "floats"), sandbox_path(box, of->name), of->words[0],
                 of->words[1] == NULL ? "--threads=0" : of->words[1],
                 of->words[2] == NULL ? "--threads=0" : of->words[2]);
    const size_t floats = file_size(sandbox_path(box, "floats/model.safetensors"));
    char name[64];
    (void)snprintf(name, sizeof name, "%s/model.safetensors", of->name);
    const size_t file = file_size(sandbox_path(box, name));
    const size_t cache = (PROMPT_TOKENS + OUTPUT_TOKENS) * layers * TOKEN_BYTES;
    const size_t bound = file + file * 15 / 100 + cache + 32 * MIB;
    PROGRAM_MUST(&p, NULL, BERTH, "run", "--model", sandbox_path(box, of->name), "--platform",
                 "cpu", "--prompt", "abcdefghijklmnop", "-n", "64", "--threads", "2");
    print_message("%s: %.1f MiB for a checkpoint of %.1f, at most %.1f\n", of->name,
                  (double)p.peak / MIB, (double)file / MIB, (double)bound / MIB);
    CHECK(bound < floats); // what would be floats again would be too much
    CHECK(p.peak > file);
    CHECK(p.peak <= bound);
}

static void check_forms(const char *layers, const char *vocabulary, size_t count) {
    program p;
    sandbox box;
    if (strcmp(TEST_MODE, "release") != 0) {
        SKIP("sanitizers have memory of their own");
    }
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", sandbox_path(&box, "floats"),
                 "--hidden", "1024", "--intermediate", "2816", "--heads", "16", "--kv-heads", "4",
                 "--layers", layers, "--vocab", vocabulary);
    for (size_t i = 0; i < count; ++i) {
        check_form(&box, &forms[i], strtoul(layers, NULL, 10));
    }
    sandbox_remove(&box);
}

TEST(a_run_of_codes_holds_little_more_than_its_checkpoint) {
    check_forms("6", "16000", BERTH_COUNT(forms));
}

TEST(a_run_of_many_layers_of_codes_holds_little_more_than_its_checkpoint) {
    check_forms("16", "1024", 3);
}
