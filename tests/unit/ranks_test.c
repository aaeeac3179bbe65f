// SPDX-License-Identifier: Apache-2.0
// What each rank of a tensor-parallel world holds of the core layers, for worlds of 1, 2, 4 and 8:
// the parts of all ranks, put one behind the other, are the checkpoint's tensors. One process plays
// all ranks; nothing is computed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth/parallel.h>

#include "base/array.h"
#include "model/model.h"
#include "support/core_registry.h"
#include "support/test.h"

#define MAX_SHARDS 5
#define COLUMNS    8 // of x, and of every weight but a row-parallel one
#define MAX_LIST   4

// One tensor of the checkpoint; `heads` above 0: that many heads, which several ranks may share.
typedef struct stored {
    const char *name;
    int64_t rows;
    int64_t heads;
} stored;

typedef struct divided {
    const char *layer;
    const char *weight;
    stored tensors[MAX_SHARDS];
    bool is_by_column;
    int64_t i64s[MAX_LIST]; // of output_sizes
    uint64_t i64_count;
    berth_attribute attributes[8];
} divided;

#define NUMBER(attribute_name, value)                                                              \
    {                                                                                              \
        .size = sizeof(berth_attribute), .name = (attribute_name), .kind = BERTH_ATTRIBUTE_I64,    \
        .i64 = (value)                                                                             \
    }

static const berth_weight_rule *const rules[] = {
#define SHARD(theirs, shard_id)                                                                    \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (theirs), .to = ".weight", .shard = (shard_id)  \
    }
    SHARD(".part_q", "q"), SHARD(".part_k", "k"), SHARD(".part_v", "v"),
    SHARD(".part_0", "0"), SHARD(".part_1", "1"),
};

static const divided rows[] = {
    {
     .layer = "ColumnParallelLinear",
     .weight = "weight",
     .tensors = {{"weight", 24, 0}},
     .attributes = {NUMBER("input_size", COLUMNS), NUMBER("output_size", 24)},
     },
    {
     .layer = "RowParallelLinear",
     .weight = "weight",
     .tensors = {{"weight", 3, 0}},
     .is_by_column = true,
     .attributes = {NUMBER("input_size", COLUMNS), NUMBER("output_size", 3),
                       NUMBER("reduce_results", 0)},
     },
    {
     .layer = "MergedColumnParallelLinear",
     .weight = "weight",
     .tensors = {{"part_0", 16, 0}, {"part_1", 24, 0}},
     .i64s = {16, 24},
     .i64_count = 2,
     .attributes = {NUMBER("input_size", COLUMNS)},
     },
    {
     .layer = "QKVParallelLinear",
     .weight = "weight",
     .tensors = {{"part_q", 16, 0}, {"part_k", 4, 2}, {"part_v", 4, 2}},
     .attributes = {NUMBER("input_size", COLUMNS), NUMBER("head_size", 2),
                       NUMBER("total_num_heads", 8), NUMBER("total_num_kv_heads", 2)},
     },
    {
     .layer = "QKVParallelLinear",
     .weight = "weight",
     .tensors = {{"part_q", 24, 0}, {"part_k", 24, 8}, {"part_v", 40, 8}},
     .attributes = {NUMBER("input_size", COLUMNS), NUMBER("head_size", 3),
                       NUMBER("total_num_heads", 8), NUMBER("total_num_kv_heads", 8),
                       NUMBER("v_head_size", 5)},
     },
    {
     .layer = "ParallelLMHead",
     .weight = "weight",
     .tensors = {{"weight", 64, 0}},
     .attributes = {NUMBER("num_embeddings", 64), NUMBER("embedding_dim", COLUMNS)},
     },
};

// ---- one rank -----------------------------------------------------------------------------------

static void feed(void *context, berth_graph_builder *graph, berth_value *inputs) {
    const int64_t width = *(const int64_t *)context;
    const berth_value_type type = {
        .size = sizeof type,
        .dtype = BERTH_DTYPE_F32,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(1), BERTH_DIM_CONST(width)},
    };
    inputs[0] = berth_graph_parameter(graph, "x", &type);
}

static float value_at(size_t tensor, int64_t row, int64_t column) {
    return (float)((int64_t)(tensor + 1) * 10000 + row * COLUMNS + column);
}

// The tensors of a checkpoint.
typedef struct checkpoint {
    berth_stored_tensor tensors[MAX_SHARDS];
    const berth_stored_tensor *list[MAX_SHARDS];
    char names[MAX_SHARDS][32];
    size_t count;
} checkpoint;

static void store_all(const divided *in, checkpoint *out) {
    static float data[MAX_SHARDS][64 * COLUMNS];
    static int64_t shapes[MAX_SHARDS][2];
    size_t count = 0;
    for (; count < MAX_SHARDS && in->tensors[count].name != NULL; ++count) {
        const int64_t extent = in->tensors[count].rows;
        for (int64_t i = 0; i < extent * COLUMNS; ++i) {
            data[count][i] = value_at(count, i / COLUMNS, i % COLUMNS);
        }
        shapes[count][0] = extent;
        shapes[count][1] = COLUMNS;
        (void)snprintf(out->names[count], sizeof out->names[count], "layer.%s",
                       in->tensors[count].name);
        out->tensors[count] = (berth_stored_tensor){
            .name = out->names[count],
            .dtype = BERTH_DTYPE_F32,
            .ndim = 2,
            .shape = shapes[count],
            .data = data[count],
            .bytes = (uint64_t)(extent * COLUMNS) * sizeof(float),
        };
        out->list[count] = &out->tensors[count];
    }
    out->count = count;
}

// The weight that the rank loads.
static float *load(const core_registry *core, const divided *in, berth_world world,
                   int64_t *out_elements) {
    checkpoint all;
    store_all(in, &all);
    const berth_attribute *attributes[12];
    const berth_attribute more[] = {
        NUMBER("tp_size", world.size),
        NUMBER("tp_rank", world.rank),
        {.size = sizeof(berth_attribute),
                                 .name = "output_sizes",
                                 .kind = BERTH_ATTRIBUTE_I64S,
                                 .i64s = in->i64s,
                                 .count = in->i64_count},
    };
    uint64_t attribute_count = 0;
    for (size_t i = 0; i < BERTH_COUNT(in->attributes) && in->attributes[i].name != NULL; ++i) {
        attributes[attribute_count++] = &in->attributes[i];
    }
    for (size_t i = 0; i < BERTH_COUNT(more) - (in->i64_count == 0); ++i) {
        attributes[attribute_count++] = &more[i];
    }
    int64_t width = in->is_by_column ? COLUMNS / world.size : COLUMNS;
    const berth_call call = {
        .size = sizeof call,
        .name = in->layer,
        .prefix = "layer",
        .attributes = attributes,
        .attribute_count = attribute_count,
        .output_count = 1,
    };
    const berth_layer_request request = {
        .registry = core->registry,
        .config = &core->config,
        .activation = BERTH_DTYPE_F32,
        .call = &call,
        .tensors = all.list,
        .tensor_count = all.count,
        .weight_rules = rules,
        .weight_rule_count = BERTH_COUNT(rules),
        .feed = feed,
        .context = &width,
    };
    berth_model_build *build = NULL;
    CHECK_OK(berth_layer_create(&request, &build));
    CHECK_UINT(build->weight_count, 1);
    float *weight = malloc((size_t)build->weights[0].bytes);
    CHECK(weight != NULL);
    CHECK_OK(berth_weight_load(&build->weights[0], weight));
    *out_elements = (int64_t)(build->weights[0].bytes / sizeof(float));
    berth_model_destroy(build);
    return weight;
}

static void check_rank(const core_registry *core, const divided *in, berth_world world) {
    int64_t elements = 0;
    int64_t row = 0;
    float *weight = load(core, in, world, &elements);
    const int64_t width = in->is_by_column ? COLUMNS / world.size : COLUMNS;
    const int64_t column = in->is_by_column ? world.rank * width : 0;
    for (size_t i = 0; i < MAX_SHARDS && in->tensors[i].name != NULL; ++i) {
        const stored *tensor = &in->tensors[i];
        const bool is_shared = tensor->heads > 0 && tensor->heads < world.size;
        const int64_t sharing = in->is_by_column ? world.size
                                : is_shared      ? world.size / tensor->heads
                                                 : 1;
        const int64_t extent = tensor->rows * sharing / world.size;
        const int64_t first = world.rank / sharing * extent;
        for (int64_t k = 0; k < extent * width; ++k) {
            CHECK((row * width + k) < elements);
            CHECK_INT((int64_t)weight[row * width + k],
                      (int64_t)value_at(i, first + k / width, column + k % width));
        }
        row += extent;
    }
    CHECK_INT(row * width, elements);
    free(weight);
}

TEST(parts_of_all_ranks_are_the_whole) {
    core_registry core;
    core_registry_init(&core, NULL);
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        for (int64_t size = 1; size <= 8; size *= 2) {
            for (int64_t rank = 0; rank < size; ++rank) {
                check_rank(&core, &rows[i], (berth_world){size, rank});
            }
        }
    }
    core_registry_deinit(&core);
}

// ---- the arithmetic -----------------------------------------------------------------------------

TEST(a_vocabulary_is_divided_into_rows_that_every_id_has_once) {
    static const berth_vocabulary wholes[] = {
        {100, 0,  64},
        {130, 10, 64},
        {64,  0,  8 },
        {7,   9,  8 },
        {512, 1,  16},
    };
    for (size_t i = 0; i < BERTH_COUNT(wholes); ++i) {
        const int64_t ids = wholes[i].tokens + wholes[i].added;
        for (int64_t size = 1; size <= 8; size *= 2) {
            int64_t covered = 0;
            int64_t next = 0;
            int64_t next_added = wholes[i].tokens;
            for (int64_t rank = 0; rank < size; ++rank) {
                const berth_vocab_part part =
                    berth_vocabulary_of(wholes[i], (berth_world){size, rank});
                CHECK_INT(part.rows * size, part.total_padded);
                CHECK_INT(part.org_padded.extent + part.added_padded.extent, part.rows);
                CHECK_INT(part.org.extent + part.org_padding, part.org_padded.extent);
                CHECK(part.org.extent == 0 || part.org.offset == next);
                CHECK(part.added.extent == 0 || part.added.offset == next_added);
                next += part.org.extent;
                next_added += part.added.extent;
                covered += part.org.extent + part.added.extent;
            }
            CHECK_INT(covered, ids);
        }
    }
}

TEST(what_a_world_cannot_divide_has_no_part) {
    CHECK_INT(berth_part_of(10, (berth_world){4, 1}).extent, 0);
    CHECK_INT(berth_heads_of(8, 3, (berth_world){4, 0}).keys.extent, 0);
    CHECK_INT(berth_heads_of(6, 3, (berth_world){4, 0}).queries.extent, 0);
    CHECK_INT(berth_vocabulary_of((berth_vocabulary){10, 0, 1}, (berth_world){4, 0}).rows, 0);
}
