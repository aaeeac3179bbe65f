// SPDX-License-Identifier: Apache-2.0
#include "support/test_plan.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

// ---- life ---------------------------------------------------------------------------------------

void test_plan_open(test_plan *it, const test_content *content, const char *platform) {
    static const test_content nothing;
    *it = (test_plan){.graph = NULL};
    CHECK_OK(berth_arena_create(1 << 16, 1 << 26, &it->arena));
    CHECK_OK(berth_config_init(&it->config, it->arena));
    it->registry = test_devices_registry(content == NULL ? &nothing : content);
    if (platform != NULL) {
        it->runtime = test_devices_open(it->registry, platform);
    } else {
        CHECK_OK(berth_runtime_open(NULL, 0, berth_registry_host(it->registry), &it->runtime));
    }
}

void test_plan_parse(test_plan *it, const char *text) {
    const berth_status status = berth_graph_parse(it->registry, berth_str_from(text), &it->graph);
    CHECK_STR(status == BERTH_OK ? "" : berth_status_message(), "");
}

void test_plan_list(test_plan *it, berth_option_list *list, const char *items) {
    berth_str rest = berth_str_from(items);
    list->items = BERTH_ARENA_ARRAY(it->arena, const char *, 16);
    list->count = 0;
    for (berth_str piece; berth_str_split_first(&rest, ',', &piece);) {
        list->items[list->count++] = berth_arena_copy(it->arena, piece);
    }
}

void test_plan_cache(test_plan *it, const char *layer, int64_t heads, int64_t size) {
    it->caches[it->cache_count++] = (berth_kv_cache_spec){
        .size = sizeof(berth_kv_cache_spec),
        .layer = layer,
        .num_heads = heads,
        .num_kv_heads = heads,
        .head_size = size,
        .block_size = TEST_BLOCK_SIZE,
        .dtype = BERTH_DTYPE_F32,
    };
}

berth_plan_request test_plan_request(const test_plan *it) {
    return (berth_plan_request){
        .registry = it->registry,
        .config = &it->config,
        .graph = it->graph,
        .runtime = it->runtime,
        .kv_caches = it->caches,
        .kv_cache_count = it->cache_count,
        .max_tokens = TEST_MAX_TOKENS,
        .max_sequences = TEST_MAX_SEQUENCES,
        .max_seq_len = TEST_MAX_BLOCKS * TEST_BLOCK_SIZE,
    };
}

berth_status test_plan_create(test_plan *it) {
    const berth_plan_request request = test_plan_request(it);
    return berth_plan_create(&request, &it->plan);
}

void test_plan_weight(const berth_graph_value *value, float *out) {
    uint32_t random = 12345;
    for (const char *at = value->name; *at != '\0'; ++at) {
        random = random * 31 + (unsigned char)*at;
    }
    for (int64_t i = 0; i < berth_type_elements(&value->type, 0, 0); ++i) {
        random = random * 1664525u + 1013904223u;
        out[i] = (float)(random >> 8) / (float)(1u << 23) - 1.0F;
    }
}

// The last rows first: their order is nobody's business.
static void set_rows(test_plan *it, berth_value at, const float *weight) {
    const berth_value_type *type = &it->graph->values[at].type;
    const int64_t length = type->dims[type->ndim - 1].b;
    const int64_t rows = berth_type_elements(type, 0, 0) / length;
    CHECK_OK(berth_plan_begin_rows(it->plan, at));
    for (int64_t first = (rows - 1) / BERTH_PACK_ROWS * BERTH_PACK_ROWS; first >= 0;
         first -= BERTH_PACK_ROWS) {
        const int64_t left = rows - first;
        const int64_t count = left < BERTH_PACK_ROWS ? left : BERTH_PACK_ROWS;
        CHECK_OK(berth_plan_set_rows(it->plan, at, first, count, weight + first * length));
    }
}

void test_plan_set_weights(test_plan *it) {
    float weight[4096];
    for (size_t i = 1; i < it->graph->value_count; ++i) {
        const berth_graph_value *value = &it->graph->values[i];
        if (value->kind == BERTH_VALUE_PARAMETER) {
            const int64_t elements = berth_type_elements(&value->type, 0, 0);
            CHECK(elements <= 4096);
            test_plan_weight(value, weight);
            if (berth_plan_takes_rows(it->plan, (berth_value)i)) {
                set_rows(it, (berth_value)i, weight);
                continue;
            }
            CHECK_OK(berth_plan_set_parameter(it->plan, (berth_value)i, weight,
                                              (uint64_t)elements * sizeof(float)));
        }
    }
}

void test_plan_load(test_plan *it) {
    test_plan_set_weights(it);
    CHECK_OK(berth_plan_ready(it->plan));
    if (it->cache_count > 0) {
        const berth_kv_cache_config caches = {
            .size = sizeof(caches),
            .num_blocks = TEST_MAX_BLOCKS,
            .group_count = 1,
        };
        CHECK_OK(berth_plan_set_cache(it->plan, &caches));
    }
}

void test_plan_close(test_plan *it) {
    berth_plan_destroy(it->plan);
    for (size_t i = 0; it->values != NULL && i < it->graph->value_count; ++i) {
        free(it->values[i]);
    }
    free(it->values);
    berth_graph_destroy(it->graph);
    berth_runtime_close(it->runtime);
    CHECK_UINT(test_devices_live(), 0);
    berth_registry_destroy(it->registry);
    berth_arena_destroy(it->arena);
}

// ---- batches ------------------------------------------------------------------------------------

static void describe(test_batch *it, int which, void *data, int64_t rows, int64_t width) {
    const bool is_table = width > 0;
    it->shapes[which][0] = rows;
    it->shapes[which][1] = width;
    it->strides[which][0] = is_table ? width : 1;
    it->strides[which][1] = 1;
    it->tensors[which] = (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = data,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = is_table ? 2 : 1,
        .dtype = which == 6 ? BERTH_DTYPE_I64 : BERTH_DTYPE_I32,
        .shape = it->shapes[which],
        .strides = it->strides[which],
    };
}

// Sequence i owns the blocks from 1 + 3 * i on.
static void add_sequence(test_batch *it, int sequence, int query_len, int seq_len) {
    berth_batch *batch = &it->batch;
    int32_t *table = it->blocks + sequence * TEST_MAX_BLOCKS;
    for (int i = 0; i < TEST_MAX_BLOCKS; ++i) {
        table[i] = i < 3 ? (1 + 3 * sequence + i) % TEST_MAX_BLOCKS : 0;
    }
    for (int i = 0; i < query_len; ++i) {
        const int64_t row = batch->token_count++;
        const int position = seq_len - query_len + i;
        it->token_ids[row] = (int32_t)((row * 7 + position * 3) % 16);
        it->positions[row] = position;
        it->slots[row] =
            table[position / TEST_BLOCK_SIZE] * TEST_BLOCK_SIZE + position % TEST_BLOCK_SIZE;
    }
    batch->max_query_len = query_len > batch->max_query_len ? query_len : batch->max_query_len;
    it->lengths[sequence] = seq_len;
    it->starts[sequence + 1] = (int32_t)batch->token_count;
}

void test_batch_fill(test_batch *it, const int *query_lens, const int *seq_lens, int sequences,
                     int rows) {
    memset(it, 0, sizeof(*it));
    it->batch = (berth_batch){
        .size = sizeof(it->batch),
        .host = &it->view,
        .sequence_count = sequences,
        .logits_row_count = rows,
        .group_count = 1,
        .max_seq_len = TEST_MAX_BLOCKS * TEST_BLOCK_SIZE,
    };
    for (int i = 0; i < sequences; ++i) {
        add_sequence(it, i, query_lens[i], seq_lens[i]);
    }
    for (int i = 0; i < rows && it->batch.token_count > 0; ++i) {
        it->rows[i] = (int32_t)((it->batch.token_count - 1 + i) % it->batch.token_count);
    }
    describe(it, 0, it->token_ids, it->batch.token_count, 0);
    describe(it, 1, it->positions, it->batch.token_count, 0);
    describe(it, 2, it->starts, sequences + 1, 0);
    describe(it, 3, it->lengths, sequences, 0);
    describe(it, 4, it->rows, rows, 0);
    describe(it, 5, it->blocks, sequences, TEST_MAX_BLOCKS);
    describe(it, 6, it->slots, it->batch.token_count, 0);
    it->table = &it->tensors[5];
    it->mapping = &it->tensors[6];
    it->view = (berth_batch_view){
        .size = sizeof(it->view),
        .token_ids = &it->tensors[0],
        .positions = &it->tensors[1],
        .query_start_loc = &it->tensors[2],
        .seq_lens = &it->tensors[3],
        .logits_rows = &it->tensors[4],
        .block_tables = &it->table,
        .slot_mappings = &it->mapping,
    };
    it->batch.device = &it->view;
}

// ---- the reference computation ------------------------------------------------------------------

#define MAX_VALUES 512

// Dense tensors of all values for one batch.
typedef struct naive {
    test_plan *it;
    const test_batch *batch;
    berth_tensor tensors[MAX_VALUES];
    int64_t shapes[MAX_VALUES][BERTH_MAX_DIMS];
    int64_t strides[MAX_VALUES][BERTH_MAX_DIMS];
} naive;

static bool is_cache(const test_plan *it, const char *layer) {
    bool is = false;
    for (size_t i = 0; i < it->cache_count; ++i) {
        is = is || strcmp(layer, it->caches[i].layer) == 0;
    }
    return is;
}

// States keep their memory from batch to batch; a KV cache has its blocks in front.
static void describe_value(naive *in, size_t id) {
    const berth_graph_value *value = &in->it->graph->values[id];
    const bool has_blocks = value->kind == BERTH_VALUE_STATE && is_cache(in->it, value->name);
    int64_t *shape = in->shapes[id];
    uint32_t ndim = 0;
    if (has_blocks) {
        shape[ndim++] = TEST_MAX_BLOCKS;
    }
    for (uint32_t i = 0; i < value->type.ndim; ++i) {
        shape[ndim++] = berth_dim_value(value->type.dims[i], in->batch->batch.token_count,
                                        in->batch->batch.logits_row_count);
    }
    int64_t elements = 1;
    for (uint32_t i = ndim; i-- > 0;) {
        in->strides[id][i] = elements;
        elements *= shape[i];
    }
    if (in->it->values[id] == NULL) {
        in->it->values[id] = calloc(65536, 1);
    }
    CHECK(elements * 4 <= 65536);
    in->tensors[id] = (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = in->it->values[id],
        .device_type = BERTH_MEMORY_HOST,
        .ndim = (int32_t)ndim,
        .dtype = value->type.dtype,
        .shape = shape,
        .strides = in->strides[id],
    };
}

static void fill_root(naive *in, size_t id) {
    const berth_graph_value *value = &in->it->graph->values[id];
    if (value->kind == BERTH_VALUE_PARAMETER) {
        test_plan_weight(value, in->tensors[id].data);
    } else if (value->kind == BERTH_VALUE_INPUT) {
        const int which = strcmp(value->name, "token_ids") == 0   ? 0
                          : strcmp(value->name, "positions") == 0 ? 1
                                                                  : 4;
        const berth_tensor *array = &in->batch->tensors[which];
        memcpy(in->tensors[id].data, array->data, (size_t)array->shape[0] * sizeof(int32_t));
    } else if (value->kind == BERTH_VALUE_MUTATED) {
        in->tensors[id] = in->tensors[value->alias_of];
    }
}

static void slice(const naive *in, const berth_graph_node *node) {
    const berth_tensor *from = &in->tensors[node->inputs[0]];
    const berth_tensor *to = &in->tensors[node->outputs[0]];
    int64_t inner = from->strides[node->slice_dim];
    int64_t outer = 1;
    for (uint64_t i = 0; i < node->slice_dim; ++i) {
        outer *= from->shape[i];
    }
    for (int64_t i = 0; i < outer; ++i) {
        memcpy((float *)to->data + i * node->slice_length * inner,
               (const float *)from->data +
                   (i * from->shape[node->slice_dim] + node->slice_start) * inner,
               (size_t)(node->slice_length * inner) * sizeof(float));
    }
}

static void compute_op(naive *in, const berth_graph_node *node) {
    const berth_tensor *inputs[BERTH_MAX_INPUTS] = {0};
    berth_tensor *outputs[BERTH_MAX_OUTPUTS] = {0};
    berth_tensor *states[4] = {0};
    int64_t written = 0;
    for (size_t i = 0; i < node->input_count; ++i) {
        inputs[i] = node->inputs[i] == BERTH_VALUE_NONE ? NULL : &in->tensors[node->inputs[i]];
    }
    for (size_t i = 0; i < node->output_count; ++i) {
        outputs[i] = &in->tensors[node->outputs[i]];
        written += outputs[i]->ndim == 0 ? 1 : outputs[i]->shape[0];
    }
    for (size_t i = 0; i < node->state_count; ++i) {
        states[i] = &in->tensors[node->states[i]];
    }
    const berth_op_args args = {
        .size = sizeof(args),
        .inputs = inputs,
        .outputs = outputs,
        .states = states,
        .batch = &in->batch->batch,
    };
    berth_op_site site;
    CHECK_OK(berth_graph_site(in->it->graph, node, berth_registry_host(in->it->registry),
                              in->it->arena, &site));
    site.block_size = is_cache(in->it, node->layer) ? TEST_BLOCK_SIZE : 0;
    if (written > 0) {
        CHECK_OK(node->op->op.reference(&site, &args));
    }
}

static void compute(naive *in) {
    const berth_graph *graph = in->it->graph;
    for (size_t i = 1; i < graph->value_count; ++i) {
        describe_value(in, i);
    }
    for (size_t i = 1; i < graph->value_count; ++i) {
        fill_root(in, i);
    }
    for (size_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        if (node->kind == BERTH_NODE_OP) {
            compute_op(in, node);
        } else if (node->kind == BERTH_NODE_SLICE) {
            slice(in, node);
        } else {
            memcpy(in->tensors[node->outputs[0]].data, in->tensors[node->inputs[0]].data, 65536);
        }
    }
}

static void check_output(const naive *in, const berth_graph_output *output) {
    const berth_tensor *wanted = &in->tensors[output->value];
    const berth_tensor *actual = NULL;
    CHECK_OK(berth_plan_output(in->it->plan, output->name, &actual));
    CHECK_INT(actual->ndim, wanted->ndim);
    CHECK_INT(actual->device_type, BERTH_MEMORY_HOST);
    int64_t elements = 1;
    for (int32_t i = wanted->ndim; i-- > 0;) {
        CHECK_INT(actual->shape[i], wanted->shape[i]);
        CHECK_INT(actual->strides[i], wanted->strides[i]);
        elements *= wanted->shape[i];
    }
    if (elements > 0) {
        CHECK_BYTES((const char *)actual->data + actual->byte_offset, wanted->data,
                    (size_t)elements * sizeof(float));
    }
}

void test_plan_check(test_plan *it, const test_batch *batch) {
    static naive in; // large
    in.it = it;
    in.batch = batch;
    CHECK(it->graph->value_count <= MAX_VALUES);
    if (it->values == NULL) {
        it->values = calloc(it->graph->value_count, sizeof(void *));
    }
    compute(&in);
    const berth_status status = berth_plan_run(it->plan, &batch->batch);
    CHECK_STR(status == BERTH_OK ? "" : berth_status_message(), "");
    for (size_t i = 0; i < it->graph->output_count; ++i) {
        check_output(&in, &it->graph->outputs[i]);
    }
}
