// SPDX-License-Identifier: Apache-2.0
// Checkpoints that mean harm: whatever their files say, one clear line, the exit status of a
// checkpoint, and no more time and memory than their size explains.
#include "support/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/str.h"
#include "base/text.h"
#include "support/program.h"
#include "support/sandbox.h"

#define LLAMA      "tests/data/models/llama"
#define WEIGHTS    "model.safetensors"
#define INDEX      "model.safetensors.index.json"
#define FILE_LIMIT ((size_t)1 << 28)
#define TENSORS    1000000
#define PEAK_LIMIT ((size_t)3 << 30) // under ASan, too

static const char *const model_files[] = {"config.json", "generation_config.json", WEIGHTS,
                                          "tokenizer.json", "tokenizer_config.json"};

// llama's files as links, but for one.
static void link_all_but(const sandbox *box, const char *without) {
    for (size_t i = 0; i < BERTH_COUNT(model_files); ++i) {
        char source[PATH_MAX];
        char relative[PATH_MAX];
        (void)snprintf(relative, sizeof relative, LLAMA "/%s", model_files[i]);
        if (strcmp(model_files[i], without) != 0) {
            CHECK(realpath(relative, source) != NULL);
            CHECK_INT(symlink(source, sandbox_path(box, model_files[i])), 0);
        }
    }
}

static void check_refused(const sandbox *box, const char *part) {
    program p;
    PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_PLUGIN_DIRS=/nonexistent"), BERTH, "run", "--model",
                box->dir, "--prompt", "x", "--allow-fallback");
    if (p.status != 5) {
        print_error("%s%s", p.out, p.err);
    }
    CHECK_INT(p.status, 5);
    CHECK_CONTAINS(p.err, part);
    CHECK_STR(p.out, "");
    CHECK(strncmp(p.err, "berth: ", 7) == 0);
    CHECK(strchr(p.err, '\n') == p.err + strlen(p.err) - 1);
    CHECK(p.peak < PEAK_LIMIT);
}

// llama with one file that holds these bytes.
static void check_file(const char *name, berth_str bytes, const char *part) {
    sandbox box;
    sandbox_make(&box);
    link_all_but(&box, name);
    CHECK_OK(berth_file_write(sandbox_path(&box, name), bytes));
    check_refused(&box, part);
    sandbox_remove(&box);
}

// ---- counts -------------------------------------------------------------------------------------

// A header, its size before it, and bytes that it speaks of.
static void check_weights(const berth_text *header, size_t bytes, const char *part) {
    berth_text file;
    const uint64_t size = header->size;
    berth_text_init(&file, FILE_LIMIT);
    for (unsigned i = 0; i < sizeof size; ++i) {
        berth_text_add_char(&file, (char)(size >> (8 * i)));
    }
    berth_text_add(&file, berth_text_str(header));
    for (size_t i = 0; i < bytes; ++i) {
        berth_text_add_char(&file, '\0');
    }
    CHECK_OK(berth_text_finish(&file, NULL));
    check_file(WEIGHTS, berth_text_str(&file), part);
    berth_text_deinit(&file);
}

TEST(hostile_a_million_tensors) {
    berth_text header;
    berth_text_init(&header, FILE_LIMIT);
    for (int i = 0; i < TENSORS; ++i) {
        berth_text_add_format(&header,
                              "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                              i > 0 ? ',' : '{', i, i, i + 1);
    }
    berth_text_add_char(&header, '}');
    check_weights(&header, TENSORS, "1000000 tensors unknown to the model");
    berth_text_deinit(&header);
}

TEST(hostile_a_shape_of_a_million_dimensions) {
    berth_text header;
    berth_text_init(&header, FILE_LIMIT);
    berth_text_add_cstr(&header, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1");
    for (int i = 1; i < TENSORS; ++i) {
        berth_text_add_cstr(&header, ",1");
    }
    berth_text_add_cstr(&header, "]}}");
    check_weights(&header, 1, WEIGHTS);
    berth_text_deinit(&header);
}

// ---- shapes -------------------------------------------------------------------------------------

// llama's weights with one text of the header in the place of another of the same size.
static void check_exchanged(const char *from, const char *to, const char *part) {
    char *data = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read(LLAMA "/" WEIGHTS, FILE_LIMIT, &data, &size));
    char *found = memmem(data, size, from, strlen(from));
    CHECK(found != NULL && strlen(from) == strlen(to));
    memcpy(found, to, strlen(to));
    check_file(WEIGHTS, (berth_str){.data = data, .size = size}, part);
    berth_free(data);
}

TEST(hostile_shapes_that_are_exchanged) {
    check_exchanged("[512,64]", "[64,512]", "model.embed_tokens.weight");
    check_exchanged("[688,64]", "[64,688]", "mlp.gate_proj.weight");
}

// ---- files that are something else --------------------------------------------------------------

TEST(hostile_an_index_that_names_itself) {
    static const char *const shards[] = {INDEX, ".", "../x.safetensors", "/etc/passwd", ""};
    for (size_t i = 0; i < BERTH_COUNT(shards); ++i) {
        sandbox box;
        char index[512];
        sandbox_make(&box);
        link_all_but(&box, WEIGHTS);
        (void)snprintf(index, sizeof index, "{\"weight_map\":{\"lm_head.weight\":\"%s\"}}",
                       shards[i]);
        (void)sandbox_write(&box, INDEX, index);
        check_refused(&box, "");
        sandbox_remove(&box);
    }
}

TEST(hostile_a_file_that_is_a_link_to_itself) {
    for (size_t i = 0; i < BERTH_COUNT(model_files); ++i) {
        sandbox box;
        sandbox_make(&box);
        link_all_but(&box, model_files[i]);
        CHECK_INT(symlink(model_files[i], sandbox_path(&box, model_files[i])), 0);
        if (strcmp(model_files[i], "generation_config.json") != 0 &&
            strcmp(model_files[i], "tokenizer_config.json") != 0) {
            check_refused(&box, model_files[i]);
        }
        sandbox_remove(&box);
    }
}

TEST(hostile_random_bytes_in_every_file) {
    uint64_t random = 88172645463325252u;
    char bytes[4096];
    for (size_t i = 0; i < sizeof bytes; ++i) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        bytes[i] = (char)(random >> 32);
    }
    for (size_t i = 0; i < BERTH_COUNT(model_files); ++i) {
        check_file(model_files[i], (berth_str){.data = bytes, .size = sizeof bytes},
                   model_files[i]);
    }
}

TEST(hostile_numbers_that_are_none) {
    static const char *const configs[] = {
        "{\"architectures\":[\"LlamaForCausalLM\"],\"rms_norm_eps\":NaN}",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"rms_norm_eps\":1e999}",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"rope_theta\":-Infinity}",
    };
    for (size_t i = 0; i < BERTH_COUNT(configs); ++i) {
        check_file("config.json", berth_str_from(configs[i]), "config.json");
    }
}
