// SPDX-License-Identifier: Apache-2.0
// What a run of a quantized checkpoint holds at most: little more than its files and its KV cache,
// so no form is kept twice, and none as floats. The checkpoints are made by tools/quantize. Of the
// 32 MiB beside them 24 are the caches' of 6 layers: platform-cpu gives each a large page at once.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/test.h"

#define MIB           ((size_t)1 << 20)
#define PROMPT_TOKENS 16
#define OUTPUT_TOKENS 64
#define TOKEN_BYTES   ((size_t)6 * 2 * 256 * 2) // of keys and values, in bf16

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

static void check_form(const sandbox *box, const form *of) {
    program p;
    PROGRAM_MUST(&p, PROGRAM_ENV("BERTH_PLUGINS="), TEST_BUILD "/quantize",
                 sandbox_path(box, "floats"), sandbox_path(box, of->name), of->words[0],
                 of->words[1] == NULL ? "--threads=0" : of->words[1],
                 of->words[2] == NULL ? "--threads=0" : of->words[2]);
    const size_t floats = file_size(sandbox_path(box, "floats/model.safetensors"));
    char name[64];
    (void)snprintf(name, sizeof name, "%s/model.safetensors", of->name);
    const size_t file = file_size(sandbox_path(box, name));
    const size_t cache = (PROMPT_TOKENS + OUTPUT_TOKENS) * TOKEN_BYTES;
    const size_t bound = file + file * 15 / 100 + cache + 32 * MIB;
    PROGRAM_MUST(&p, NULL, BERTH, "run", "--model", sandbox_path(box, of->name), "--platform",
                 "cpu", "--prompt", "abcdefghijklmnop", "-n", "64", "--threads", "2");
    print_message("%s: %.1f MiB for a checkpoint of %.1f, at most %.1f\n", of->name,
                  (double)p.peak / MIB, (double)file / MIB, (double)bound / MIB);
    CHECK(bound < floats); // what would be floats again would be too much
    CHECK(p.peak > file);
    CHECK(p.peak <= bound);
}

TEST(a_run_of_codes_holds_little_more_than_its_checkpoint) {
    program p;
    sandbox box;
    if (strcmp(TEST_MODE, "release") != 0) {
        SKIP("sanitizers have memory of their own");
    }
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", sandbox_path(&box, "floats"),
                 "--hidden", "1024", "--intermediate", "2816", "--heads", "16", "--kv-heads", "4",
                 "--layers", "6", "--vocab", "16000");
    for (size_t i = 0; i < BERTH_COUNT(forms); ++i) {
        check_form(&box, &forms[i]);
    }
    sandbox_remove(&box);
}
