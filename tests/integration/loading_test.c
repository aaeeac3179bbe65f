// SPDX-License-Identifier: Apache-2.0
// Loading from the outside: a checkpoint in several files is the same checkpoint.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/text.h"
#include "model/model.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/tensor_file.h"
#include "support/test.h"

#define LLAMA   "tests/data/models/llama-rope3" // untied, with biases
#define GOLDEN  LLAMA "/golden.json"
#define SHARDS  3
#define TENSORS 128

// ---- shards -------------------------------------------------------------------------------------

static void link_file(const sandbox *box, const char *name) {
    char path[256];
    char target[4096];
    (void)snprintf(path, sizeof path, LLAMA "/%s", name);
    CHECK(realpath(path, target) != NULL);
    CHECK_INT(symlink(target, sandbox_path(box, name)), 0);
}

static const char *shape_text(const berth_stored_tensor *tensor, char text[64]) {
    int used = snprintf(text, 64, "[");
    for (uint64_t i = 0; i < tensor->ndim; ++i) {
        used += snprintf(text + used, 64 - (size_t)used, "%s%lld", i > 0 ? ", " : "",
                         (long long)tensor->shape[i]);
    }
    (void)snprintf(text + used, 64 - (size_t)used, "]");
    return text;
}

static void shard_name(size_t shard, char name[64]) {
    (void)snprintf(name, 64, "model-%05zu-of-%05d.safetensors", shard + 1, SHARDS);
}

// Every SHARDS-th tensor, so that those of one product lie in different files.
static void write_shard(const sandbox *box, const berth_safetensors *whole, size_t shard,
                        berth_text *index) {
    tensor_row rows[TENSORS];
    char shapes[TENSORS][64];
    char name[64];
    size_t count = 0;
    shard_name(shard, name);
    for (size_t i = shard; i < berth_safetensors_count(whole); i += SHARDS) {
        const berth_stored_tensor *tensor = berth_safetensors_at(whole, i);
        CHECK(count < TENSORS && tensor->dtype == BERTH_DTYPE_BF16);
        rows[count] = (tensor_row){
            .name = tensor->name,
            .dtype = "BF16",
            .shape = shape_text(tensor, shapes[count]),
            .bytes = tensor->bytes,
            .data = tensor->data,
        };
        ++count;
        berth_text_add_format(index, "%s\"%s\": \"%s\"", i == 0 ? "" : ", ", tensor->name, name);
    }
    tensor_file_write(sandbox_path(box, name), rows, count);
}

static void write_shards(const sandbox *box) {
    berth_safetensors *whole = NULL;
    berth_text index;
    CHECK_OK(berth_safetensors_open(LLAMA "/model.safetensors", &whole));
    berth_text_init(&index, (size_t)1 << 20);
    berth_text_add_cstr(&index, "{\"metadata\": {\"total_size\": 0}, \"weight_map\": {");
    for (size_t shard = 0; shard < SHARDS; ++shard) {
        write_shard(box, whole, shard, &index);
    }
    berth_text_add_cstr(&index, "}}");
    CHECK_OK(berth_text_finish(&index, NULL));
    sandbox_write(box, "model.safetensors.index.json", index.data);
    berth_text_deinit(&index);
    berth_safetensors_close(whole);
}

TEST(loading_from_several_files_gives_the_same_model) {
    program whole;
    program parts;
    sandbox box;
    sandbox_make(&box);
    link_file(&box, "config.json");
    link_file(&box, "tokenizer.json");
    link_file(&box, "tokenizer_config.json");
    write_shards(&box);
    PROGRAM_MUST(&whole, NULL, BERTH, "eval", "--model", LLAMA, "--golden", GOLDEN,
                 "--allow-fallback", "--json");
    PROGRAM_MUST(&parts, NULL, BERTH, "eval", "--model", box.dir, "--golden", GOLDEN,
                 "--allow-fallback", "--json");
    CHECK_CONTAINS(parts.out, "\"passed\": true");
    CHECK_STR(parts.out, whole.out); // to the last digit of every error
    PROGRAM_MUST(&parts, NULL, BERTH, "run", "--model", box.dir, "--allow-fallback", "--prompt",
                 "ROMEO:", "-n", "8");
    PROGRAM_MUST(&whole, NULL, BERTH, "run", "--model", LLAMA, "--allow-fallback", "--prompt",
                 "ROMEO:", "-n", "8");
    CHECK_STR(parts.out, whole.out);
    sandbox_remove(&box);
}

TEST(loading_names_the_file_that_an_index_has_and_the_folder_has_not) {
    program p;
    sandbox box;
    char name[64];
    sandbox_make(&box);
    link_file(&box, "config.json");
    link_file(&box, "tokenizer.json");
    write_shards(&box);
    shard_name(1, name);
    CHECK_INT(unlink(sandbox_path(&box, name)), 0);
    PROGRAM_RUN(&p, NULL, BERTH, "run", "--model", box.dir, "--allow-fallback", "--prompt", "a");
    CHECK_INT(p.status, 5);
    CHECK_CONTAINS(p.err, name);
    CHECK_STR(p.out, "");
    sandbox_remove(&box);
}
