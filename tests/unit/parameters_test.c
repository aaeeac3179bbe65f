// SPDX-License-Identifier: Apache-2.0
// model/parameters, weight_names, convert and load: which tensors make which weight, in which type,
// and what is said when they do not fit.
#include "model/parameters.h"
#include "model/pieces.h"

#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/convert.h"
#include "support/sandbox.h"
#include "support/tensor_file.h"
#include "support/test.h"

#define RULE(from_text, to_text, shard_id)                                                         \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (from_text), .to = (to_text),                   \
        .shard = (shard_id),                                                                       \
    }

static const berth_weight_rule *const rules[] = {
    RULE(".q_proj.", ".qkv.", "q"),
    RULE(".k_proj.", ".qkv.", "k"),
    RULE("inv_freq", NULL, NULL),
    RULE("old.", "new.", NULL),
    RULE(".experts.*.gate.", ".experts.w13.", "w1"),
    RULE(".experts.*.up.", ".experts.w13.", "w3"),
    RULE(".experts.*.down.", ".experts.w2.", NULL),
    &(const berth_weight_rule){
                               .size = sizeof(berth_weight_rule), .from = ".t.",    .to = ".t.",   .is_transposed = 1},
    &(const berth_weight_rule){
                               .size = sizeof(berth_weight_rule), .from = "maybe.", .to = "sure.", .when = "rank"    },
};

static const berth_weight_rule *const decay_rules[] = {
    &(const berth_weight_rule){
                               .size = sizeof(berth_weight_rule), .from = ".A_log", .to = ".A", .is_log_decay = 1},
};

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

static void start(fixture *f, const tensor_row *rows, size_t count, berth_dtype activation) {
    *f = (fixture){0};
    sandbox_make(&f->box);
    sandbox_write(&f->box, "config.json", "{\"architectures\": [\"ToyForCausalLM\"]}");
    tensor_file_write(sandbox_path(&f->box, "model.safetensors"), rows, count);
    CHECK_OK(berth_checkpoint_open(f->box.dir, &f->checkpoint));
    CHECK_OK(berth_arena_create((size_t)64 << 10, (size_t)16 << 20, &f->arena));
    CHECK_OK(berth_parameters_create(f->checkpoint, &model, activation, f->arena, &f->parameters));
}

static void end(fixture *f) {
    berth_parameters_destroy(f->parameters);
    berth_arena_destroy(f->arena);
    berth_checkpoint_close(f->checkpoint);
    sandbox_remove(&f->box);
}

static berth_weight *take(fixture *f, const berth_parameter *declared) {
    berth_weight *weight = NULL;
    CHECK_OK(berth_parameters_take(f->parameters, declared, &weight));
    CHECK(weight != NULL);
    return weight;
}

// Writes the resident form; rows taken by themselves, however many at a time, are the same bytes.
static void load(const berth_weight *weight, void *loaded) {
    CHECK_OK(berth_weight_load(weight, loaded));
    if (!berth_weight_has_rows(weight)) {
        return;
    }
    unsigned char buffer[1024];
    const int64_t last = weight->type.dims[weight->type.ndim - 1].b;
    const uint64_t row_bytes = (uint64_t)last * BERTH_DTYPE_BITS(weight->type.dtype) / 8;
    const uint64_t rows = weight->bytes / row_bytes;
    CHECK(weight->bytes <= sizeof buffer);
    for (uint64_t first = 0; first < rows; ++first) {
        for (uint64_t count = 1; first + count <= rows; ++count) {
            CHECK_BYTES(berth_weight_rows(weight, first, count, buffer),
                        (const unsigned char *)loaded + first * row_bytes, count * row_bytes);
            berth_weight_drop_rows(weight, first, count);
        }
    }
}

static berth_parameter matrix(const char *name, const int64_t *shape) {
    return (berth_parameter){
        .size = sizeof(berth_parameter),
        .name = name,
        .shape = shape,
        .ndim = 2,
        .output_dim = 0,
        .input_dim = 1,
    };
}

static berth_parameter vector(const char *name, const int64_t *length) {
    return (berth_parameter){
        .size = sizeof(berth_parameter),
        .name = name,
        .shape = length,
        .ndim = 1,
        .is_vector = 1,
        .output_dim = -1,
        .input_dim = -1,
    };
}

#define SHARD(shard_id, shard_offset, shard_extent)                                                \
    &(const berth_shard) {                                                                         \
        .size = sizeof(berth_shard), .id = (shard_id), .offset = (shard_offset),                   \
        .extent = (shard_extent),                                                                  \
    }

static const berth_shard *const two_and_one[] = {SHARD("q", 0, 2), SHARD("k", 2, 1)};

// ---- what becomes of the numbers ----------------------------------------------------------------

// bf16 of small whole numbers: 1, 2, 3, 4, 5, 6.
static const uint16_t counting[] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
static const float six[] = {1, 2, 3, 4, 5, 6};

TEST(weight_of_a_matrix_stays_as_it_is_stored) {
    static const tensor_row rows[] = {
        {"w", "BF16", "[2, 3]", 12, counting}
    };
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t shape[] = {2, 3};
    const berth_parameter declared = matrix("w", shape);
    const berth_weight *weight = take(&f, &declared);
    CHECK_STR(weight->name, "w");
    CHECK_UINT(weight->type.dtype, BERTH_DTYPE_BF16);
    CHECK_UINT(weight->type.ndim, 2);
    CHECK_INT(weight->type.dims[1].b, 3);
    CHECK_UINT(weight->bytes, 12);
    CHECK(!weight->is_vector);
    uint16_t loaded[6];
    load(weight, loaded);
    CHECK_BYTES(loaded, counting, 12);
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

TEST(weight_that_needs_no_change_is_found_where_it_is_stored) {
    // One more letter in the header, and the other one is at an odd address.
    static const tensor_row rows[][1] = {
        {{"w", "BF16", "[2, 3]", 12, counting}},
        {{"ww", "BF16", "[2, 3]", 12, counting}},
    };
    const int64_t shape[] = {2, 3};
    size_t found = 0;
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        fixture f;
        start(&f, rows[i], 1, BERTH_DTYPE_F32);
        const berth_parameter declared = matrix(rows[i]->name, shape);
        const void *stored = berth_weight_stored(take(&f, &declared));
        if (stored != NULL) {
            ++found;
            CHECK_UINT((uintptr_t)stored % 2, 0);
            CHECK_BYTES(stored, counting, 12);
        }
        end(&f);
    }
    CHECK_UINT(found, 1);
}

TEST(weight_of_a_vector_takes_the_type_of_activations) {
    static const tensor_row rows[] = {
        {"v", "BF16", "[6]", 12, counting}
    };
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t length = 6;
    const berth_parameter declared = vector("v", &length);
    const berth_weight *weight = take(&f, &declared);
    CHECK_UINT(weight->type.dtype, BERTH_DTYPE_F32);
    CHECK_UINT(weight->bytes, 24);
    CHECK(weight->is_vector);
    float loaded[6];
    CHECK_NULL(berth_weight_stored(weight));
    load(weight, loaded);
    CHECK_BYTES(loaded, six, 24);
    end(&f);
}

TEST(weight_of_the_other_16_bit_type_is_converted) {
    static const tensor_row rows[] = {
        {"w", "BF16", "[1, 2]", 4, counting}
    };
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F16);
    const int64_t shape[] = {1, 2};
    const berth_parameter declared = matrix("w", shape);
    const berth_weight *weight = take(&f, &declared);
    CHECK_UINT(weight->type.dtype, BERTH_DTYPE_F16);
    uint16_t loaded[2];
    load(weight, loaded);
    CHECK_UINT(loaded[0], 0x3c00);
    CHECK_UINT(loaded[1], 0x4000);
    end(&f);
}

TEST(weight_gets_its_shards_one_below_the_other) {
    static const tensor_row rows[] = {
        {"a.k_proj.w", "BF16", "[1, 2]", 4, counting + 4},
        {"a.q_proj.w", "BF16", "[2, 2]", 8, counting    },
    };
    fixture f;
    start(&f, rows, 2, BERTH_DTYPE_F32);
    const int64_t shape[] = {3, 2};
    berth_parameter declared = matrix("a.qkv.w", shape);
    declared.shards = two_and_one;
    declared.shard_count = 2;
    const berth_weight *weight = take(&f, &declared);
    CHECK_UINT(weight->type.dtype, BERTH_DTYPE_BF16);
    uint16_t loaded[6];
    CHECK_NULL(berth_weight_stored(weight));
    load(weight, loaded);
    CHECK_BYTES(loaded, counting, 12);
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

TEST(weight_gets_its_shards_side_by_side_when_outputs_are_columns) {
    static const uint16_t q[] = {0x3f80, 0x4000, 0x4080, 0x40a0}; // 1 2 / 4 5
    static const float k[] = {3, 6};
    static const tensor_row rows[] = {
        {"a.q_proj.w", "BF16", "[2, 2]", 8, q},
        {"a.k_proj.w", "F32",  "[2, 1]", 8, k},
    };
    fixture f;
    start(&f, rows, 2, BERTH_DTYPE_F32);
    const int64_t shape[] = {2, 3};
    berth_parameter declared = matrix("a.qkv.w", shape);
    declared.output_dim = 1;
    declared.input_dim = 0;
    declared.shards = two_and_one;
    declared.shard_count = 2;
    const berth_weight *weight = take(&f, &declared);
    CHECK_UINT(weight->type.dtype, BERTH_DTYPE_F32); // the shards disagree
    float loaded[6];
    load(weight, loaded);
    CHECK_BYTES(loaded, six, 24);
    end(&f);
}

TEST(weight_that_is_stored_fused_is_taken_whole) {
    static const tensor_row rows[] = {
        {"a.qkv.w", "BF16", "[3, 2]", 12, counting}
    };
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t shape[] = {3, 2};
    berth_parameter declared = matrix("a.qkv.w", shape);
    declared.shards = two_and_one;
    declared.shard_count = 2;
    uint16_t loaded[6];
    load(take(&f, &declared), loaded);
    CHECK_BYTES(loaded, counting, 12);
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

TEST(weight_rule_renames_and_a_rule_without_a_target_ignores) {
    static const tensor_row rows[] = {
        {"old.w",         "BF16", "[3, 2]", 12, counting},
        {"rope.inv_freq", "F64",  "[1]",    8,  NULL    },
    };
    fixture f;
    start(&f, rows, 2, BERTH_DTYPE_F32);
    const int64_t shape[] = {3, 2};
    const berth_parameter declared = matrix("new.w", shape);
    CHECK_UINT(take(&f, &declared)->piece_count, 1);
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

TEST(weight_that_is_tied_may_be_stored_under_either_name_or_both) {
    static const tensor_row rows[] = {
        {"embed.weight", "BF16", "[3, 2]", 12, counting},
        {"head.weight",  "BF16", "[3, 2]", 12, NULL    },
    };
    static const size_t firsts[] = {0, 1, 0};
    static const size_t counts[] = {1, 1, 2};
    const int64_t shape[] = {3, 2};
    for (size_t i = 0; i < 3; ++i) {
        fixture f;
        start(&f, rows + firsts[i], counts[i], BERTH_DTYPE_F32);
        berth_parameter embed = matrix("embed.weight", shape);
        embed.alias = "head.weight";
        berth_parameter head = matrix("head.weight", shape);
        head.alias = "embed.weight";
        berth_weight *weight = take(&f, &embed);
        CHECK_PTR(take(&f, &head), weight);
        CHECK_UINT(weight->piece_count, 1);
        CHECK_STR(weight->pieces[0].tensor->name, rows[firsts[i]].name);
        CHECK_OK(berth_parameters_check(f.parameters));
        const berth_weight *weights = NULL;
        size_t count = 0;
        CHECK_OK(berth_parameters_list(f.parameters, &weights, &count));
        CHECK_UINT(count, 1);
        end(&f);
    }
}

TEST(conversion_between_floats_rounds_to_nearest_even) {
    static const struct {
        berth_dtype from;
        berth_dtype to;
        uint32_t in;
        uint32_t out;
    } rows[] = {
        {BERTH_DTYPE_F32,  BERTH_DTYPE_BF16, 0x3f808000, 0x3f80    }, // tie to even
        {BERTH_DTYPE_F32,  BERTH_DTYPE_BF16, 0x3f818000, 0x3f82    }, // tie to even, up
        {BERTH_DTYPE_F32,  BERTH_DTYPE_BF16, 0x3f808001, 0x3f81    }, // above the tie
        {BERTH_DTYPE_F32,  BERTH_DTYPE_BF16, 0x7f7fffff, 0x7f80    }, // too large
        {BERTH_DTYPE_F32,  BERTH_DTYPE_BF16, 0x7f800001, 0x7fc0    }, // NaN stays one
        {BERTH_DTYPE_F32,  BERTH_DTYPE_BF16, 0xffffffff, 0xffff    }, // NaN stays one
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x3f801000, 0x3c00    }, // tie to even
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x3f803000, 0x3c02    }, // tie to even, up
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x477fe000, 0x7bff    }, // 65504
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x477ff000, 0x7c00    }, // 65520: infinite
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x38800000, 0x0400    }, // smallest normal
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x33800000, 0x0001    }, // smallest subnormal
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x33000000, 0x0000    }, // half of it: tie to even
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0xb3000001, 0x8001    }, // more than half of it
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x80000000, 0x8000    }, // minus zero
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F16,  0x7f800001, 0x7e00    }, // NaN stays one
        {BERTH_DTYPE_F16,  BERTH_DTYPE_F32,  0x0001,     0x33800000}, // subnormal
        {BERTH_DTYPE_F16,  BERTH_DTYPE_F32,  0x83ff,     0xb87fc000}, // largest subnormal, negative
        {BERTH_DTYPE_F16,  BERTH_DTYPE_F32,  0xfc00,     0xff800000}, // infinite
        {BERTH_DTYPE_F16,  BERTH_DTYPE_BF16, 0x3c00,     0x3f80    }, // 1
        {BERTH_DTYPE_BF16, BERTH_DTYPE_F16,  0x477f,     0x7bf8    }, // 65280
        {BERTH_DTYPE_BF16, BERTH_DTYPE_F32,  0xbf80,     0xbf800000}, // -1
        {BERTH_DTYPE_F32,  BERTH_DTYPE_F32,  0x7f800001, 0x7f800001}, // a copy is a copy
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        uint32_t out = 0;
        berth_convert(rows[i].from, &rows[i].in, rows[i].to, &out, 1);
        CHECK_UINT(out, rows[i].out);
    }
}

TEST(conversion_takes_any_count_at_any_address) {
    enum { COUNT = 3001 };
    static uint8_t halves[2 * COUNT + 1];
    static uint8_t floats[4 * COUNT + 1];
    for (size_t i = 0; i < COUNT; ++i) {
        const float value = (float)i;
        memcpy(floats + 1 + 4 * i, &value, sizeof value);
    }
    berth_convert(BERTH_DTYPE_F32, floats + 1, BERTH_DTYPE_F16, halves + 1, COUNT);
    memset(floats, 0, sizeof floats);
    berth_convert(BERTH_DTYPE_F16, halves + 1, BERTH_DTYPE_F32, floats + 1, COUNT);
    for (size_t i = 0; i < COUNT; ++i) {
        float value = 0;
        memcpy(&value, floats + 1 + 4 * i, sizeof value);
        CHECK_NEAR(value, i, i < 2049 ? 0 : 1); // whole numbers to 2048 are exact in f16
    }
}

// ---- what does not fit --------------------------------------------------------------------------

static void check_refused(fixture *f, const berth_parameter *declared, berth_status status,
                          const char *words) {
    berth_weight *weight = NULL;
    CHECK_STATUS(berth_parameters_take(f->parameters, declared, &weight), status);
    CHECK_CONTAINS(berth_status_message(), words);
    CHECK_NULL(strchr(berth_status_message(), '\n'));
}

TEST(weight_of_another_shape_is_refused_with_both_shapes) {
    static const tensor_row rows[] = {
        {"w",          "BF16", "[2, 3]", 12, counting},
        {"a.q_proj.w", "BF16", "[1, 2]", 4,  NULL    },
        {"a.k_proj.w", "BF16", "[1, 2]", 4,  NULL    },
        {"v",          "BF16", "[6]",    12, counting},
    };
    fixture f;
    start(&f, rows, 4, BERTH_DTYPE_F32);
    const int64_t wide[] = {2, 4};
    berth_parameter declared = matrix("w", wide);
    check_refused(&f, &declared, BERTH_CORRUPT,
                  "tensor 'w' has the shape [2, 3], the model needs [2, 4]");
    declared = matrix("v", wide);
    check_refused(&f, &declared, BERTH_CORRUPT, "has the shape [6], the model needs [2, 4]");
    const int64_t stacked[] = {3, 2};
    declared = matrix("a.qkv.w", stacked);
    declared.shards = two_and_one;
    declared.shard_count = 2;
    check_refused(&f, &declared, BERTH_CORRUPT,
                  "tensor 'a.q_proj.w' has the shape [1, 2], the model needs [2, 2]");
    end(&f);
}

TEST(weight_of_a_type_that_cannot_be_loaded_is_refused) {
    static const tensor_row rows[] = {
        {"w", "I8", "[2, 3]", 6, NULL}
    };
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t shape[] = {2, 3};
    const berth_parameter declared = matrix("w", shape);
    check_refused(&f, &declared, BERTH_UNSUPPORTED, "tensor 'w' is i8");
    end(&f);
}

TEST(weight_that_two_tensors_claim_is_refused) {
    static const tensor_row rows[] = {
        {"old.w", "BF16", "[3, 2]", 12, counting},
        {"new.w", "BF16", "[3, 2]", 12, counting},
    };
    fixture f;
    start(&f, rows, 2, BERTH_DTYPE_F32);
    const int64_t shape[] = {3, 2};
    const berth_parameter declared = matrix("new.w", shape);
    check_refused(&f, &declared, BERTH_CORRUPT, "are the same weight");
    end(&f);
}

TEST(weights_that_are_missing_or_left_over_are_all_reported) {
    static const tensor_row rows[] = {
        {"extra",      "F32", "[1]",    4, NULL},
        {"a.k_proj.w", "F32", "[1, 2]", 8, NULL},
    };
    fixture f;
    start(&f, rows, 2, BERTH_DTYPE_F32);
    const int64_t shape[] = {3, 2};
    berth_parameter declared = matrix("a.qkv.w", shape);
    declared.shards = two_and_one;
    declared.shard_count = 2;
    (void)take(&f, &declared);
    static const char *const names[] = {"one", "two", "three", "four"};
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        declared = matrix(names[i], shape);
        CHECK_UINT(take(&f, &declared)->piece_count, 0);
    }
    CHECK_STATUS(berth_parameters_check(f.parameters), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), f.box.dir);
    CHECK_CONTAINS(berth_status_message(), "ToyForCausalLM");
    CHECK_CONTAINS(berth_status_message(),
                   "5 tensors missing: 'a.q_proj.w', 'one', 'two', 'three' and 1 more");
    CHECK_CONTAINS(berth_status_message(), "1 tensor unknown to the model: 'extra'");
    CHECK_NULL(strchr(berth_status_message(), '\n'));
    end(&f);
}

TEST(declaration_that_no_weight_can_have_is_refused) {
    fixture f;
    start(&f, NULL, 0, BERTH_DTYPE_F32);
    const int64_t none[] = {0, 2};
    const int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 40};
    const int64_t shape[] = {3, 2};
    const int64_t other[] = {2, 3};
    berth_parameter declared = matrix("w", none);
    check_refused(&f, &declared, BERTH_CORRUPT, "a dimension of 0 elements");
    declared = matrix("w", huge);
    check_refused(&f, &declared, BERTH_CORRUPT, "a dimension of 1099511627776 elements");
    declared.ndim = BERTH_MAX_DIMS + 1;
    check_refused(&f, &declared, BERTH_INTERNAL, "at most 8 dimensions");
    const berth_shard *const gap[] = {SHARD("q", 0, 1), SHARD("k", 2, 1)};
    const berth_shard *const rest[] = {SHARD("q", 0, 1), SHARD("k", 1, 1)};
    const berth_shard *const beyond[] = {SHARD("q", 0, 2), SHARD("k", 2, 2)};
    declared = matrix("w", shape);
    declared.shard_count = 2;
    declared.shards = gap;
    check_refused(&f, &declared, BERTH_INTERNAL, "shard 'k' does not follow");
    declared.shards = beyond;
    check_refused(&f, &declared, BERTH_INTERNAL, "shard 'k' does not follow");
    declared.shards = rest;
    check_refused(&f, &declared, BERTH_INTERNAL, "leave a gap");
    declared.output_dim = -1;
    check_refused(&f, &declared, BERTH_INTERNAL, "shards without a dimension");
    declared = matrix("w", shape);
    (void)take(&f, &declared);
    declared = matrix("w", other);
    check_refused(&f, &declared, BERTH_INTERNAL, "which has another shape");
    end(&f);
}

TEST(weight_rule_without_a_text_to_look_for_is_a_defect_of_the_model) {
    const berth_weight_rule *const empty[] = {RULE("", "x", NULL)};
    const berth_model broken = {
        .size = sizeof(berth_model),
        .architecture = "BrokenForCausalLM",
        .weight_rules = empty,
        .weight_rule_count = 1,
    };
    fixture f;
    start(&f, NULL, 0, BERTH_DTYPE_F32);
    berth_parameters *parameters = NULL;
    CHECK_STATUS(
        berth_parameters_create(f.checkpoint, &broken, BERTH_DTYPE_F32, f.arena, &parameters),
        BERTH_INTERNAL);
    CHECK_CONTAINS(berth_status_message(), "model 'BrokenForCausalLM': weight rule 0");
    end(&f);
}

// ---- slices, exchanged dimensions, names that differ --------------------------------------------

static berth_parameter experts(const char *name, const int64_t *shape) {
    berth_parameter declared = matrix(name, shape);
    declared.ndim = 3;
    declared.output_dim = 1;
    declared.input_dim = 2;
    return declared;
}

static const berth_shard *const gate_and_up[] = {SHARD("w1", 0, 1), SHARD("w3", 1, 1)};

static const float ones[] = {1, 1, 1, 1, 1, 1};

TEST(weight_of_all_experts_takes_the_tensors_of_every_one) {
    static const float gate1[] = {10, 11, 12};
    static const float up0[] = {20, 21, 22};
    static const float up1[] = {30, 31, 32};
    static const tensor_row rows[] = {
        {"m.experts.1.up.weight",   "F32", "[1, 3]", 12, up1  },
        {"m.experts.0.gate.weight", "F32", "[1, 3]", 12, six  },
        {"m.experts.1.gate.weight", "F32", "[1, 3]", 12, gate1},
        {"m.experts.0.up.weight",   "F32", "[1, 3]", 12, up0  },
    };
    static const float wanted[] = {1, 2, 3, 20, 21, 22, 10, 11, 12, 30, 31, 32};
    fixture f;
    start(&f, rows, 4, BERTH_DTYPE_F32);
    const int64_t shape[] = {2, 2, 3};
    berth_parameter declared = experts("m.experts.w13.weight", shape);
    declared.shards = gate_and_up;
    declared.shard_count = 2;
    float loaded[12];
    load(take(&f, &declared), loaded);
    CHECK_BYTES(loaded, wanted, sizeof wanted);
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

TEST(weight_of_all_experts_names_the_tensors_that_it_lacks) {
    static const tensor_row rows[] = {
        {"m.experts.1.down.weight", "F32", "[2, 3]", 24, six},
        {"m.experts.7.down.weight", "F32", "[2, 3]", 24, six},
    };
    fixture f;
    start(&f, rows, 2, BERTH_DTYPE_F32);
    const int64_t shape[] = {2, 2, 3};
    const berth_parameter declared = experts("m.experts.w2.weight", shape);
    (void)take(&f, &declared);
    CHECK_STATUS(berth_parameters_check(f.parameters), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "missing: 'm.experts.0.down.weight'");
    CHECK_CONTAINS(berth_status_message(), "unknown to the model: 'm.experts.7.down.weight'");
    end(&f);
}

TEST(weight_of_more_experts_than_there_are_tensors_reserves_nothing_for_them) {
    static const tensor_row rows[] = {
        {"m.experts.0.down.weight", "F32", "[2, 3]", 24, six},
    };
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t shape[] = {1 << 30, 2, 3};
    const berth_parameter declared = experts("m.experts.w2.weight", shape);
    (void)take(&f, &declared);
    CHECK_STATUS(berth_parameters_check(f.parameters), BERTH_CORRUPT);
    end(&f);
}

TEST(weight_of_one_expert_may_lack_the_dimension_of_experts) {
    static const tensor_row rows[] = {
        {"one", "F32", "[2, 3]", 24, six},
    };
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t shape[] = {1, 2, 3};
    const berth_parameter declared = experts("one", shape);
    float loaded[6];
    load(take(&f, &declared), loaded);
    CHECK_BYTES(loaded, six, sizeof six);
    end(&f);
}

TEST(weight_that_is_stored_the_other_way_round_is_turned) {
    static const tensor_row rows[] = {
        {"a.t.weight", "F32",  "[2, 3]",    24, six     },
        {"a.t.bias",   "F32",  "[3]",       12, six     },
        {"b.t.weight", "BF16", "[1, 2, 3]", 12, counting},
    };
    static const float wanted[] = {1, 4, 2, 5, 3, 6};
    static const uint16_t turned[] = {0x3f80, 0x4080, 0x4000, 0x40a0, 0x4040, 0x40c0};
    fixture f;
    start(&f, rows, 3, BERTH_DTYPE_F32);
    const int64_t shape[] = {3, 2};
    const int64_t shape_of_one[] = {1, 3, 2};
    const berth_parameter a = matrix("a.t.weight", shape);
    const berth_parameter bias = vector("a.t.bias", shape);
    const berth_parameter b = experts("b.t.weight", shape_of_one);
    float loaded[6];
    uint16_t stored[6];
    const berth_weight *weight = take(&f, &a);
    CHECK_NULL(berth_weight_stored(weight));
    load(weight, loaded);
    CHECK_BYTES(loaded, wanted, sizeof wanted);
    load(take(&f, &bias), loaded);
    CHECK_BYTES(loaded, six, 12);
    load(take(&f, &b), stored);
    CHECK_BYTES(stored, turned, sizeof turned);
    end(&f);
}

TEST(weight_of_experts_in_a_turned_tensor_comes_by_rows) {
    static const float twelve[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const tensor_row rows[] = {
        {"e.t.weight", "F32", "[2, 2, 3]", 48, twelve},
    };
    static const float wanted[] = {1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12};
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t shape[] = {2, 3, 2};
    const berth_parameter all = experts("e.t.weight", shape);
    float loaded[12];
    const berth_weight *weight = take(&f, &all);
    CHECK(berth_weight_has_rows(weight));
    load(weight, loaded);
    CHECK_BYTES(loaded, wanted, sizeof wanted);
    end(&f);
}

TEST(weight_of_shards_in_a_turned_tensor_takes_its_columns) {
    static const tensor_row rows[] = {
        {"m.t.weight", "F32", "[2, 3]", 24, six},
    };
    static const float wanted[] = {2, 5, 3, 6};
    const berth_shard shards[] = {
        {.size = sizeof shards[0], .id = "q", .extent = 1,             .stored_offset = 1,   .stored_extent = 2},
        {.size = sizeof shards[0],                        .id = "k",          .offset = 1, .extent = 1},
    };
    const berth_shard *const list[] = {&shards[0], &shards[1]};
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t shape[] = {2, 2};
    berth_parameter declared = matrix("m.t.weight", shape);
    declared.shards = list;
    declared.shard_count = 2;
    float loaded[4];
    load(take(&f, &declared), loaded);
    CHECK_BYTES(loaded, wanted, sizeof wanted);
    end(&f);
}

TEST(weight_of_a_vector_may_be_stored_less_a_constant) {
    static const tensor_row rows[] = {
        {"norm", "F32", "[6]", 24, six},
    };
    static const float wanted[] = {2, 3, 4, 5, 6, 7};
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_F32);
    const int64_t length = 6;
    berth_parameter declared = vector("norm", &length);
    declared.addend = 1;
    float loaded[6];
    const berth_weight *weight = take(&f, &declared);
    CHECK_NULL(berth_weight_stored(weight));
    load(weight, loaded);
    CHECK_BYTES(loaded, wanted, sizeof wanted);
    end(&f);
}

TEST(weight_of_decays_is_stored_as_their_logarithms) {
    static const uint16_t logs[] = {0x0000, 0x3f80, 0xbf80, 0x4000}; // 0, 1, -1, 2
    static const float wanted[] = {-1, -2.7182817F, -0.36787945F, -7.389056F};
    static const tensor_row rows[] = {
        {"m.A_log", "BF16", "[2,2]", 8, logs},
    };
    const berth_model decays = {
        .size = sizeof decays,
        .architecture = "ToyForCausalLM",
        .weight_rules = decay_rules,
        .weight_rule_count = BERTH_COUNT(decay_rules),
    };
    const int64_t shape[] = {2, 2};
    const berth_parameter declared = matrix("m.A", shape);
    berth_parameters *parameters = NULL;
    berth_weight *weight = NULL;
    float loaded[4];
    fixture f;
    start(&f, rows, 1, BERTH_DTYPE_BF16);
    CHECK_OK(
        berth_parameters_create(f.checkpoint, &decays, BERTH_DTYPE_BF16, f.arena, &parameters));
    CHECK_OK(berth_parameters_take(parameters, &declared, &weight));
    CHECK_UINT(weight->type.dtype, BERTH_DTYPE_F32); // whatever is stored
    CHECK_NULL(berth_weight_stored(weight));
    load(weight, loaded);
    for (size_t i = 0; i < 4; ++i) {
        CHECK(fabsf(loaded[i] - wanted[i]) < 1e-6F * fabsf(wanted[i]));
    }
    berth_parameters_destroy(parameters);
    end(&f);
}

TEST(weight_is_found_without_and_inside_another_model_s_prefix) {
    static const tensor_row rows[] = {
        {"norm.a.weight",                      "F32", "[6]", 24, six },
        {"language_model.model.norm.b.weight", "F32", "[6]", 24, six },
        {"model.language_model.norm.c.weight", "F32", "[6]", 24, ones},
    };
    static const char *const names[] = {"model.norm.a.weight", "model.norm.b.weight",
                                        "model.norm.c.weight"};
    fixture f;
    start(&f, rows, 3, BERTH_DTYPE_F32);
    const int64_t length = 6;
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        const berth_parameter declared = vector(names[i], &length);
        CHECK_UINT(take(&f, &declared)->piece_count, 1);
    }
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}

TEST(weight_rule_may_depend_on_a_key_and_tensors_may_be_left) {
    static const tensor_row rows[] = {
        {"maybe.a",       "F32", "[6]", 24, six},
        {"layers.9.norm", "F32", "[6]", 24, six},
    };
    fixture f;
    start(&f, rows, 2, BERTH_DTYPE_F32);
    const int64_t length = 6;
    const berth_parameter declared = vector("maybe.a", &length);
    CHECK_UINT(take(&f, &declared)->piece_count, 1);
    CHECK_STATUS(berth_parameters_check(f.parameters), BERTH_CORRUPT);
    berth_parameters_ignore(f.parameters, "layers.9.");
    CHECK_OK(berth_parameters_check(f.parameters));
    end(&f);
}
