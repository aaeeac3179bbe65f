// SPDX-License-Identifier: Apache-2.0
// model/checkpoint: a folder with one file or with shards, and one line for every folder that is no
// checkpoint.
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/model.h"
#include "support/sandbox.h"
#include "support/tensor_file.h"
#include "support/test.h"

#define CONFIG "{\"architectures\": [\"ToyForCausalLM\"], \"rope_theta\": 5}"

static const tensor_row first[] = {
    {.name = "a", .dtype = "F32", .shape = "[2]", .bytes = 8},
    {.name = "b", .dtype = "F32", .shape = "[1]", .bytes = 4},
};
static const tensor_row second[] = {
    {.name = "c", .dtype = "U8", .shape = "[3]", .bytes = 3}
};

// A folder with two shards and this index.
static void make_shards(const sandbox *box, const char *index) {
    sandbox_write(box, "config.json", CONFIG);
    sandbox_write(box, "model.safetensors.index.json", index);
    tensor_file_write(sandbox_path(box, "m-1-of-2.safetensors"), first, BERTH_COUNT(first));
    tensor_file_write(sandbox_path(box, "m-2-of-2.safetensors"), second, BERTH_COUNT(second));
}

static void check_refused(const sandbox *box, berth_status status, const char *words) {
    berth_checkpoint *checkpoint = NULL;
    CHECK_STATUS(berth_checkpoint_open(box->dir, &checkpoint), status);
    CHECK_NULL(checkpoint);
    CHECK_CONTAINS(berth_status_message(), words);
    CHECK_NULL(strchr(berth_status_message(), '\n'));
}

TEST(checkpoint_of_one_file_gives_config_architecture_and_tensors) {
    sandbox box;
    sandbox_make(&box);
    sandbox_write(&box, "config.json", CONFIG);
    tensor_file_write(sandbox_path(&box, "model.safetensors"), first, BERTH_COUNT(first));
    berth_checkpoint *checkpoint = NULL;
    CHECK_OK(berth_checkpoint_open(box.dir, &checkpoint));
    CHECK_STR(berth_checkpoint_directory(checkpoint), box.dir);
    CHECK_STR(berth_checkpoint_architecture(checkpoint), "ToyForCausalLM");
    CHECK(berth_json_has(berth_checkpoint_config(checkpoint), "rope_parameters.rope_theta"));
    CHECK_UINT(berth_checkpoint_count(checkpoint), 2);
    CHECK_STR(berth_checkpoint_at(checkpoint, 1)->name, "b");
    berth_checkpoint_close(checkpoint);
    berth_checkpoint_close(NULL);
    sandbox_remove(&box);
}

TEST(checkpoint_of_shards_gives_the_tensors_of_all) {
    sandbox box;
    sandbox_make(&box);
    make_shards(&box, "{\"metadata\": {\"total_size\": 15}, \"weight_map\": {"
                      "\"a\": \"m-1-of-2.safetensors\", \"c\": \"m-2-of-2.safetensors\", "
                      "\"b\": \"m-1-of-2.safetensors\"}}");
    berth_checkpoint *checkpoint = NULL;
    CHECK_OK(berth_checkpoint_open(box.dir, &checkpoint));
    CHECK_UINT(berth_checkpoint_count(checkpoint), 3);
    CHECK_STR(berth_checkpoint_at(checkpoint, 2)->name, "c");
    CHECK_UINT(berth_checkpoint_at(checkpoint, 2)->bytes, 3);
    berth_checkpoint_close(checkpoint);
    sandbox_remove(&box);
}

// An index, and what is said of it.
typedef struct bad_index {
    const char *index;
    const char *words;
} bad_index;

#define BAD(text, wanted_words)                                                                    \
    { .index = (text), .words = (wanted_words) }

TEST(checkpoint_refuses_an_index_that_differs_from_its_shards) {
    static const bad_index rows[] = {
        BAD("[]", "weight_map is missing"),
        BAD("{\"weight_map\": 3}", "weight_map is missing"),
        BAD("{\"weight_map\": {\"a\": 3}}", "is not the name of a .safetensors file"),
        BAD("{\"weight_map\": {\"a\": \"../m.safetensors\"}}",
            "is not the name of a .safetensors file"),
        BAD("{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "is not the name of a .safetensors file"),
        BAD("{\"weight_map\": {\"a\": \"config.json\"}}", "is not the name of a .safetensors file"),
        BAD("{\"weight_map\": {\"d\": \"m-1-of-2.safetensors\"}}",
            "tensor 'd' is not in m-1-of-2.safetensors"),
        BAD("{\"weight_map\": {\"a\": \"m-1-of-2.safetensors\"}}",
            "tensor 'b' is in m-1-of-2.safetensors, but the index does not say so"),
        BAD("{\"weight_map\": {\"a\": \"m-1-of-2.safetensors\", \"b\": \"m-2-of-2.safetensors\"}}",
            "tensor 'b' is not in m-2-of-2.safetensors"),
    };
    sandbox box;
    sandbox_make(&box);
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        make_shards(&box, rows[i].index);
        check_refused(&box, BERTH_CORRUPT, rows[i].words);
    }
    make_shards(&box, "{\"weight_map\": {\"a\": \"m-3-of-2.safetensors\"}}");
    check_refused(&box, BERTH_NOT_FOUND, "m-3-of-2.safetensors: no such file");
    sandbox_remove(&box);
}

TEST(checkpoint_refuses_one_tensor_in_two_shards) {
    sandbox box;
    sandbox_make(&box);
    make_shards(&box, "{\"weight_map\": {\"a\": \"m-1-of-2.safetensors\", "
                      "\"b\": \"m-2-of-2.safetensors\"}}");
    tensor_file_write(sandbox_path(&box, "m-2-of-2.safetensors"), first, BERTH_COUNT(first));
    check_refused(&box, BERTH_CORRUPT, "tensor 'b' is in m-1-of-2.safetensors, but the index");
    sandbox_remove(&box);
}

// What the fuzzer starts from: there is an answer, and a text when it is no.
TEST(checkpoint_reads_or_refuses_the_indexes_of_the_fuzzer) {
    static const tensor_row of_first[] = {
        {.name = "a", .dtype = "U8", .shape = "[1]", .bytes = 1},
        {.name = "b", .dtype = "U8", .shape = "[1]", .bytes = 1},
    };
    static const tensor_row of_second[] = {
        {.name = "c", .dtype = "U8", .shape = "[1]", .bytes = 1},
    };
    sandbox box;
    berth_arena *arena = NULL;
    berth_dir_listing files = {0};
    size_t read = 0;
    sandbox_make(&box);
    sandbox_write(&box, "config.json", CONFIG);
    tensor_file_write(sandbox_path(&box, "m-1.safetensors"), of_first, BERTH_COUNT(of_first));
    tensor_file_write(sandbox_path(&box, "m-2.safetensors"), of_second, BERTH_COUNT(of_second));
    CHECK_OK(berth_arena_create(4096, (size_t)1 << 20, &arena));
    CHECK_OK(berth_dir_list("tests/fuzz/index", arena, &files));
    for (size_t i = 0; i < files.count; ++i) {
        char *text = NULL;
        size_t size = 0;
        berth_checkpoint *checkpoint = NULL;
        const char *path = berth_path_join(arena, "tests/fuzz/index", files.names[i]);
        CHECK_OK(berth_file_read(path, (size_t)1 << 20, &text, &size));
        sandbox_write(&box, "model.safetensors.index.json", text);
        if (berth_checkpoint_open(box.dir, &checkpoint) == BERTH_OK) {
            ++read;
        } else {
            CHECK(berth_status_message()[0] != '\0');
        }
        berth_checkpoint_close(checkpoint);
        berth_free(text);
    }
    CHECK(read > 0 && read < files.count);
    berth_arena_destroy(arena);
    sandbox_remove(&box);
}

TEST(checkpoint_says_what_a_folder_lacks) {
    sandbox box;
    sandbox_make(&box);
    check_refused(&box, BERTH_NOT_FOUND, "config.json: no such file");
    sandbox_write(&box, "config.json", CONFIG);
    check_refused(&box, BERTH_NOT_FOUND, "has neither model.safetensors nor");
    sandbox_write(&box, "model.safetensors", "");
    check_refused(&box, BERTH_CORRUPT, "model.safetensors: 0 bytes are too few");
    static const char *const configs[] = {
        "{}", "{\"architectures\": []}", "{\"architectures\": \"Toy\"}", "{\"architectures\": [1]}",
        "{\"architectures\": [\"\"]}"};
    for (size_t i = 0; i < BERTH_COUNT(configs); ++i) {
        sandbox_write(&box, "config.json", configs[i]);
        check_refused(&box, BERTH_CORRUPT, "architectures is missing or no list of names");
    }
    sandbox_write(&box, "config.json", "{\"architectures\": [");
    check_refused(&box, BERTH_CORRUPT, "config.json");
    sandbox_remove(&box);
}

TEST(checkpoint_says_when_the_folder_is_not_there) {
    berth_checkpoint *checkpoint = NULL;
    CHECK_STATUS(berth_checkpoint_open("tests/data/none", &checkpoint), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "tests/data/none: no such directory");
    CHECK_STATUS(berth_checkpoint_open("tests/data/models/llama/config.json", &checkpoint),
                 BERTH_NOT_FOUND);
}
