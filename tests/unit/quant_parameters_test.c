// SPDX-License-Identifier: Apache-2.0
// model/divide and what parameters of a quantized layer ask of the loader: shards and ranks of
// packed words, of scales of blocks and tensors, by whatever order the file has them in.
#include "model/parameters.h"

#include <math.h>
#include <string.h>

#include "base/array.h"
#include "support/sandbox.h"
#include "support/tensor_file.h"
#include "support/test.h"

static const berth_weight_rule q = {
    .size = sizeof(berth_weight_rule), .from = ".q.", .to = ".qk.", .shard = "q"};
static const berth_weight_rule k = {
    .size = sizeof(berth_weight_rule), .from = ".k.", .to = ".qk.", .shard = "k"};
static const berth_weight_rule all_q = {
    .size = sizeof(berth_weight_rule), .from = ".*.q.", .to = ".qk_", .shard = "q"};
static const berth_weight_rule all_k = {
    .size = sizeof(berth_weight_rule), .from = ".*.k.", .to = ".qk_", .shard = "k"};
static const berth_weight_rule *const rules[] = {&all_q, &all_k, &q, &k};

static const berth_model model = {
    .size = sizeof(berth_model),
    .architecture = "ToyForCausalLM",
    .weight_rules = rules,
    .weight_rule_count = BERTH_COUNT(rules),
};

typedef struct fixture {
    sandbox box;
    berth_checkpoint *checkpoint;
    berth_arena *arena;
    berth_parameters *parameters;
} fixture;

static void start(fixture *f, const tensor_row *rows, size_t count) {
    *f = (fixture){0};
    sandbox_make(&f->box);
    sandbox_write(&f->box, "config.json", "{\"architectures\": [\"ToyForCausalLM\"]}");
    tensor_file_write(sandbox_path(&f->box, "model.safetensors"), rows, count);
    CHECK_OK(berth_checkpoint_open(f->box.dir, &f->checkpoint));
    CHECK_OK(berth_arena_create((size_t)64 << 10, (size_t)16 << 20, &f->arena));
    CHECK_OK(
        berth_parameters_create(f->checkpoint, &model, BERTH_DTYPE_F32, f->arena, &f->parameters));
}

static void end(fixture *f) {
    berth_parameters_destroy(f->parameters);
    berth_arena_destroy(f->arena);
    berth_checkpoint_close(f->checkpoint);
    sandbox_remove(&f->box);
}

// Of a layer of 32 outputs and 64 inputs.
static const int64_t shape[] = {32, 64};

static berth_parameter declare(const char *name, const char *dtype) {
    return (berth_parameter){
        .size = sizeof(berth_parameter),
        .name = name,
        .shape = shape,
        .ndim = 2,
        .output_dim = 0,
        .input_dim = 1,
        .role = BERTH_PARAMETER_STORED,
        .dtype = dtype,
    };
}

static void load(fixture *f, const berth_parameter *declared, void *out, size_t bytes) {
    berth_weight *weight = NULL;
    CHECK_OK(berth_parameters_take(f->parameters, declared, &weight));
    CHECK_UINT(weight->bytes, bytes);
    CHECK_OK(berth_weight_load(weight, out));
}

// ---- ranks --------------------------------------------------------------------------------------

// The words [32, 8] of 8 fields along the inputs, and scales [8, 4] of blocks of 4 rows and 16
// columns: number i is i.
static void check_rank(fixture *f, int64_t size, int64_t rank, bool is_input) {
    const int64_t part[] = {is_input ? 32 : 32 / size, is_input ? 64 / size : 64};
    const int64_t words = part[1] / 8;
    const int64_t columns = part[1] / 16;
    int32_t codes[256];
    float scales[32];
    berth_parameter packed = declare("a.words", "i32");
    packed.shape = part;
    packed.input_factor = 8;
    if (size > 1 && is_input) {
        packed.stored_input_offset = rank * part[1];
        packed.stored_input_extent = 64;
    } else if (size > 1) {
        packed.stored_output_offset = rank * part[0];
        packed.stored_output_extent = 32;
    }
    berth_parameter blocks = packed;
    blocks.name = "a.scales";
    blocks.dtype = "f32";
    blocks.output_factor = 4;
    blocks.input_factor = 16;
    load(f, &packed, codes, (size_t)(part[0] * words) * sizeof codes[0]);
    load(f, &blocks, scales, (size_t)(part[0] / 4 * columns) * sizeof scales[0]);
    const int64_t row = is_input ? 0 : rank * part[0];
    const int64_t column = is_input ? rank * words : 0;
    for (int64_t i = 0; i < part[0] * words; ++i) {
        CHECK_INT(codes[i], (row + i / words) * 8 + column + i % words);
    }
    for (int64_t i = 0; i < part[0] / 4 * columns; ++i) {
        CHECK_INT((int)scales[i],
                  (row / 4 + i / columns) * 4 + (is_input ? rank * columns : 0) + i % columns);
    }
}

TEST(rank_has_its_part_of_packed_words_and_of_scales_of_blocks) {
    static int32_t words[256];
    static float scales[32];
    for (int i = 0; i < 256; ++i) {
        words[i] = i;
        scales[i % 32] = (float)(i % 32);
    }
    const tensor_row rows[] = {
        {"a.words",  "I32", "[32, 8]", sizeof words,  words },
        {"a.scales", "F32", "[8, 4]",  sizeof scales, scales},
    };
    for (int64_t size = 1; size <= 8; size *= 2) {
        for (int64_t rank = 0; rank < size; ++rank) {
            for (int is_input = 0; is_input < (size <= 4 ? 2 : 1); ++is_input) {
                fixture f; // one rank knows nothing of the others
                start(&f, rows, BERTH_COUNT(rows));
                check_rank(&f, size, rank, is_input != 0);
                end(&f);
            }
        }
    }
}

TEST(rank_that_begins_inside_of_a_group_is_refused) {
    static const float scales[32];
    const tensor_row rows[] = {
        {"a.scales", "F32", "[32, 1]", sizeof scales, scales},
    };
    fixture f;
    start(&f, rows, BERTH_COUNT(rows));
    const int64_t part[] = {32, 32};
    berth_weight *weight = NULL;
    berth_parameter declared = declare("a.scales", "f32");
    declared.shape = part;
    declared.input_factor = 64;
    declared.stored_input_offset = 32;
    declared.stored_input_extent = 64;
    CHECK_STATUS(berth_parameters_take(f.parameters, &declared, &weight), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "begins or ends at 32, inside of one of the 64");
    end(&f);
}

// ---- shards -------------------------------------------------------------------------------------

#define SHARD(shard_id, shard_offset, shard_extent)                                                \
    &(const berth_shard) {                                                                         \
        .size = sizeof(berth_shard), .id = (shard_id), .offset = (shard_offset),                   \
        .extent = (shard_extent),                                                                  \
    }
static const berth_shard *const halves[] = {SHARD("q", 0, 16), SHARD("k", 16, 16)};

TEST(scale_per_tensor_is_one_number_a_shard_with_or_without_a_dimension) {
    static const float one = 1;
    static const float two = 2;
    const tensor_row rows[] = {
        {"a.k.scale", "F32", "[1]", 4, &two},
        {"a.q.scale", "F32", "[]",  4, &one},
    };
    fixture f;
    float scales[2] = {0};
    start(&f, rows, BERTH_COUNT(rows));
    berth_parameter declared = declare("a.qk.scale", "f32");
    declared.shards = halves;
    declared.shard_count = 2;
    declared.is_per_tensor = 1;
    load(&f, &declared, scales, sizeof scales);
    CHECK_INT((int)scales[0], 1);
    CHECK_INT((int)scales[1], 2);
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

TEST(scale_per_tensor_of_a_fused_tensor_is_for_all_shards) {
    static const float two = 2;
    const tensor_row rows[] = {
        {"a.qk.scale", "F32", "[1]", 4, &two},
    };
    fixture f;
    float scales[2] = {0};
    start(&f, rows, BERTH_COUNT(rows));
    berth_parameter declared = declare("a.qk.scale", "f32");
    declared.shards = halves;
    declared.shard_count = 2;
    declared.is_per_tensor = 1;
    load(&f, &declared, scales, sizeof scales);
    CHECK_INT((int)scales[0], 2);
    CHECK_INT((int)scales[1], 2);
    end(&f);
}

TEST(last_shard_may_end_with_its_tensor_inside_of_a_block) {
    static const float of_q[] = {1};
    static const float of_k[] = {2, 3};
    static const tensor_row rows[] = {
        {"a.k.scale", "F32", "[2, 1]", sizeof of_k, of_k},
        {"a.q.scale", "F32", "[1, 1]", sizeof of_q, of_q},
    };
    static const berth_shard stored_q = {
        .size = sizeof stored_q, .id = "q", .extent = 12, .stored_extent = 12};
    static const berth_shard stored_k = {
        .size = sizeof stored_k, .id = "k", .offset = 12, .extent = 20, .stored_extent = 20};
    const berth_shard *const both[] = {&stored_q, &stored_k};
    fixture f;
    float scales[3] = {0};
    start(&f, rows, BERTH_COUNT(rows));
    berth_parameter declared = declare("a.qk.scale", "f32");
    declared.shards = both;
    declared.shard_count = 2;
    declared.output_factor = 12;
    declared.input_factor = 64;
    load(&f, &declared, scales, sizeof scales);
    CHECK_INT((int)scales[0], 1);
    CHECK_INT((int)scales[2], 3);
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

TEST(shard_that_ends_inside_of_a_block_is_refused_by_its_name) {
    fixture f;
    const tensor_row rows[] = {
        {"a.q.scale", "F32", "[1]", 4, NULL},
    };
    start(&f, rows, BERTH_COUNT(rows));
    berth_weight *weight = NULL;
    berth_parameter declared = declare("a.qk.scale", "f32");
    declared.shards = halves;
    declared.shard_count = 2;
    declared.output_factor = 12;
    CHECK_STATUS(berth_parameters_take(f.parameters, &declared, &weight), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(),
                   "parameter 'a.qk.scale': shard 'q' begins or ends at 16");
    end(&f);
}

TEST(modules_of_a_fused_layer_have_the_names_of_the_file) {
    fixture f;
    const tensor_row rows[] = {
        {"a.q.weight", "F32", "[1]", 4, NULL},
    };
    start(&f, rows, BERTH_COUNT(rows));
    CHECK_STR(berth_parameters_module(f.parameters, "m.qk", "q"), "m.q");
    CHECK_STR(berth_parameters_module(f.parameters, "m.qk", "k"), "m.k");
    CHECK_NULL(berth_parameters_module(f.parameters, "m.other", NULL));
    end(&f);
}

// ---- stacks -------------------------------------------------------------------------------------

// Of 4 experts of 32 outputs and 64 inputs: words [4, 32, 8] and scales of blocks [4, 8, 4], number
// i being i. A rank has whole experts, or a part of each one's outputs or inputs.
typedef enum stack_part { OF_EXPERTS, OF_OUTPUTS, OF_INPUTS, STACK_PARTS } stack_part;

static void check_stack(fixture *f, int64_t size, int64_t rank, stack_part part) {
    static const int64_t whole[STACK_PARTS] = {4, 32, 64};
    int64_t own[] = {4, 32, 64};
    int64_t first[STACK_PARTS] = {0};
    int64_t stored[STACK_PARTS] = {0};
    int32_t codes[1024];
    float scales[128];
    own[part] /= size;
    first[part] = rank * own[part];
    stored[part] = size > 1 ? whole[part] : 0;
    berth_parameter packed = declare("a.w13_words", "i32");
    packed.shape = own;
    packed.ndim = 3;
    packed.output_dim = 1;
    packed.input_dim = 2;
    packed.input_factor = 8;
    packed.stored_slice_offset = first[OF_EXPERTS];
    packed.stored_slice_extent = stored[OF_EXPERTS];
    packed.stored_output_offset = first[OF_OUTPUTS];
    packed.stored_output_extent = stored[OF_OUTPUTS];
    packed.stored_input_offset = first[OF_INPUTS];
    packed.stored_input_extent = stored[OF_INPUTS];
    berth_parameter blocks = packed;
    blocks.name = "a.w13_scales";
    blocks.dtype = "f32";
    blocks.output_factor = 4;
    blocks.input_factor = 16;
    load(f, &packed, codes, (size_t)(own[0] * own[1] * own[2] / 8) * sizeof codes[0]);
    load(f, &blocks, scales, (size_t)(own[0] * own[1] / 4 * own[2] / 16) * sizeof scales[0]);
    const int64_t words = own[2] / 8;
    for (int64_t i = 0; i < own[0] * own[1] * words; ++i) {
        const int64_t expert = first[0] + i / words / own[1];
        const int64_t row = first[1] + i / words % own[1];
        CHECK_INT(codes[i], (expert * 32 + row) * 8 + first[2] / 8 + i % words);
    }
    const int64_t rows = own[1] / 4;
    const int64_t columns = own[2] / 16;
    for (int64_t i = 0; i < own[0] * rows * columns; ++i) {
        const int64_t expert = first[0] + i / columns / rows;
        const int64_t row = first[1] / 4 + i / columns % rows;
        CHECK_INT((int)scales[i], (expert * 8 + row) * 4 + first[2] / 16 + i % columns);
    }
}

TEST(rank_has_its_part_of_packed_words_and_of_scales_of_experts) {
    static const int64_t most[STACK_PARTS] = {4, 8, 4};
    static int32_t words[1024];
    static float scales[128];
    for (int i = 0; i < 1024; ++i) {
        words[i] = i;
        scales[i % 128] = (float)(i % 128);
    }
    const tensor_row rows[] = {
        {"a.w13_words",  "I32", "[4, 32, 8]", sizeof words,  words },
        {"a.w13_scales", "F32", "[4, 8, 4]",  sizeof scales, scales},
    };
    for (stack_part part = OF_EXPERTS; part < STACK_PARTS; ++part) {
        for (int64_t size = 1; size <= most[part]; size *= 2) {
            for (int64_t rank = 0; rank < size; ++rank) {
                fixture f;
                start(&f, rows, BERTH_COUNT(rows));
                check_stack(&f, size, rank, part);
                end(&f);
            }
        }
    }
}

TEST(scale_per_tensor_of_a_stack_is_one_number_a_shard_and_a_layer) {
    static const int64_t stack[] = {2, 32, 64};
    static const float numbers[] = {1, 2, 3, 4};
    const tensor_row rows[] = {
        {"a.1.k.scale", "F32", "[1]", 4, &numbers[3]},
        {"a.0.q.scale", "F32", "[]",  4, &numbers[0]},
        {"a.1.q.scale", "F32", "[1]", 4, &numbers[2]},
        {"a.0.k.scale", "F32", "[1]", 4, &numbers[1]},
    };
    fixture f;
    float scales[4] = {0};
    start(&f, rows, BERTH_COUNT(rows));
    berth_parameter declared = declare("a.qk_scale", "f32");
    declared.shape = stack;
    declared.ndim = 3;
    declared.output_dim = 1;
    declared.input_dim = 2;
    declared.shards = halves;
    declared.shard_count = 2;
    declared.is_per_tensor = 1;
    load(&f, &declared, scales, sizeof scales);
    for (int i = 0; i < 4; ++i) {
        CHECK_INT((int)scales[i], i + 1);
    }
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

// ---- what may be absent, what must be right -----------------------------------------------------

TEST(parameter_that_is_absent_has_its_default_or_is_missing) {
    static const float one = 1;
    const tensor_row rows[] = {
        {"used", "F32", "[1]", 4, &one},
    };
    fixture f;
    float numbers[2048];
    start(&f, rows, BERTH_COUNT(rows));
    berth_parameter declared = declare("a.offset", "f32");
    declared.is_optional = 1;
    declared.default_value = -1;
    load(&f, &declared, numbers, sizeof numbers);
    CHECK_INT((int)numbers[0], -1);
    CHECK_INT((int)numbers[2047], -1);
    declared.name = "a.scale";
    declared.is_optional = 0;
    berth_weight *weight = NULL;
    CHECK_OK(berth_parameters_take(f.parameters, &declared, &weight));
    CHECK_STATUS(berth_parameters_check(f.parameters), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "1 tensor missing: 'a.scale'");
    end(&f);
}

static void check_scale(float bad, const char *words) {
    const float numbers[] = {1, bad};
    const tensor_row rows[] = {
        {"a.scale", "F32", "[2, 1]", sizeof numbers, numbers},
    };
    static const int64_t two[] = {2, 1};
    fixture f;
    float out[2];
    start(&f, rows, BERTH_COUNT(rows));
    berth_weight *weight = NULL;
    berth_parameter declared = declare("a.scale", "f32");
    declared.shape = two;
    declared.is_scale = 1;
    CHECK_OK(berth_parameters_take(f.parameters, &declared, &weight));
    CHECK_NULL(berth_weight_stored(weight)); // so that nobody reads it unchecked
    CHECK_STATUS(berth_weight_load(weight, out), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), words);
    end(&f);
}

TEST(scale_that_is_none_is_refused_by_tensor_and_place) {
    check_scale(0, "tensor 'a.scale': number 1 is 0; a scale must be finite and greater than zero");
    check_scale(NAN, "tensor 'a.scale': number 1 is ");
    check_scale(INFINITY, "tensor 'a.scale': number 1 is inf");
    check_scale(-1, "tensor 'a.scale': number 1 is -1");
}

TEST(tensor_of_another_type_than_the_scheme_needs_is_refused_with_both) {
    fixture f;
    const tensor_row rows[] = {
        {"a.words", "I64", "[32, 64]", (size_t)32 * 64 * 8, NULL},
    };
    start(&f, rows, BERTH_COUNT(rows));
    berth_weight *weight = NULL;
    const berth_parameter declared = declare("a.words", "i32");
    CHECK_STATUS(berth_parameters_take(f.parameters, &declared, &weight), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "tensor 'a.words' is i64; i32 can be loaded");
    end(&f);
}
