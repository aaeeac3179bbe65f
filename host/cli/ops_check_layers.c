// SPDX-License-Identifier: Apache-2.0
// Rows of the layer files: what one rank holds of a linear or vocabulary layer, and which slots the
// sequences of a mixer have.
#include <berth/parallel.h>

#include <string.h>

#include "base/convert.h"
#include "cli/ops_check_rows.h"

static berth_status set_number(berth_check_case *at, const char *name, int64_t value) {
    const berth_attribute attribute = {
        .size = sizeof attribute,
        .name = name,
        .kind = BERTH_ATTRIBUTE_I64,
        .i64 = value,
        .f64 = (double)value,
    };
    return berth_check_set(at, &attribute);
}

static berth_world world_of(const berth_check_case *at) {
    return (berth_world){
        .size = (int64_t)berth_check_number(at, "tp_size", 1),
        .rank = (int64_t)berth_check_number(at, "tp_rank", 0),
    };
}

static const berth_check_tensor *find_named(const berth_check_results *results, const char *name) {
    for (size_t i = 0; i < results->named_count; ++i) {
        if (strcmp(results->named[i].name, name) == 0) {
            return &results->named[i];
        }
    }
    return NULL;
}

// ---- linear layers ------------------------------------------------------------------------------

// The heads follow from what the layer made: the width of the queries and the rows of its weight.
static berth_status check_heads(berth_check_case *at, const berth_check_results *results) {
    const berth_check_tensor *weight = find_named(results, "weight");
    const int64_t size = (int64_t)berth_check_number(at, "head_size", 1);
    const double all = berth_check_number(at, "total_num_heads", 1);
    const int64_t total = (int64_t)berth_check_number(at, "total_num_kv_heads", all);
    if (!weight || total < 1) {
        return BERTH_OK;
    }
    const int64_t value_size = (int64_t)berth_check_number(at, "v_head_size", (double)size);
    const int64_t heads = results->outputs[0].shape[1] / size;
    const int64_t kv_heads = (weight->shape[0] - heads * size) / (size + value_size);
    BERTH_TRY(berth_check_derived(at, "num_heads", (double)heads));
    BERTH_TRY(berth_check_derived(at, "num_kv_heads", (double)kv_heads));
    const int64_t replicas = world_of(at).size * kv_heads / total;
    return berth_check_derived(at, "num_kv_head_replicas", (double)replicas);
}

// Whoever adds the bias himself has a layer without one, and gets the bias as it is.
static void take_bias(berth_check_case *at, berth_check_tensor *out) {
    const berth_check_tensor *bias = berth_check_input(at, "bias");
    if (bias && berth_check_number(at, "skip_bias_add", 0) > 0) {
        *out = *bias;
        berth_check_drop_input(at, "bias");
        berth_check_drop_attribute(at, "bias");
    }
    berth_check_drop_attribute(at, "skip_bias_add");
}

static void give_bias(berth_check_case *at, const berth_check_tensor *bias) {
    berth_check_output *output = berth_check_find_output(at, "bias");
    if (output && bias->data) {
        output->got = *bias;
    }
}

// Queries, keys and values are outputs of their own here, and the columns of one in the file.
static berth_status join_heads(berth_check_case *at, berth_check_results *results) {
    berth_check_tensor all = results->outputs[0];
    all.shape[1] = 0;
    all.bytes = 0;
    for (size_t i = 0; i < results->output_count; ++i) {
        all.shape[1] += results->outputs[i].shape[1];
        all.bytes += results->outputs[i].bytes;
    }
    char *to = berth_arena_alloc(at->arena, (size_t)all.bytes + 1, 64);
    all.data = to;
    if (!to) {
        return berth_arena_exhausted(at->arena, "results");
    }
    for (int64_t row = 0; row < all.shape[0]; ++row) {
        for (size_t i = 0; i < results->output_count; ++i) {
            const berth_check_tensor *part = &results->outputs[i];
            const uint64_t bytes = part->bytes / (uint64_t)all.shape[0];
            memcpy(to, (const char *)part->data + (uint64_t)row * bytes, bytes);
            to += bytes;
        }
    }
    results->outputs[0] = all;
    results->output_count = 1;
    return BERTH_OK;
}

static berth_status run_heads(berth_check_case *at, berth_check_results *results) {
    static const char *const outputs[] = {"y", "keys", "values"};
    berth_check_row *row = BERTH_ARENA_NEW(at->arena, berth_check_row);
    if (!row) {
        return berth_arena_exhausted(at->arena, "a row");
    }
    *row = *at->row;
    memcpy(row->outputs, outputs, sizeof outputs);
    at->row = row;
    BERTH_TRY(berth_check_execute(at, results));
    BERTH_TRY(check_heads(at, results));
    return join_heads(at, results);
}

// What is multiplied: the operand, or for a case about the loader alone a row of zeros.
static berth_status set_rows(berth_check_case *at, int64_t width) {
    berth_check_tensor *x = berth_check_input(at, "x");
    if (x && x->ndim == 1) {
        x->shape[1] = x->shape[0];
        x->shape[0] = 1;
        x->ndim = 2;
    }
    return x || berth_check_add_input(at, "x", BERTH_DTYPE_F32, 2, (int64_t[]){1, width})
               ? BERTH_OK
               : berth_check_full(at);
}

berth_status berth_check_linear(berth_check_case *at) {
    const bool is_row = strcmp(at->class_name, "RowParallelLinear") == 0;
    const bool is_of_heads = strcmp(at->class_name, "QKVParallelLinear") == 0;
    const double hidden = berth_check_number(at, "hidden_size", 1);
    const int64_t inputs = (int64_t)berth_check_number(at, "input_size", hidden);
    const bool is_part = is_row && berth_check_number(at, "input_is_parallel", 1) > 0;
    berth_check_tensor bias = {.data = NULL};
    berth_check_results results;
    take_bias(at, &bias);
    BERTH_TRY(set_rows(at, is_part ? inputs / world_of(at).size : inputs));
    if (is_row) {
        BERTH_TRY(set_number(at, "reduce_results", 0));
    }
    BERTH_TRY(is_of_heads ? run_heads(at, &results) : berth_check_execute(at, &results));
    BERTH_TRY(berth_check_give(at, &results));
    give_bias(at, &bias);
    return BERTH_OK;
}

// ---- vocabularies -------------------------------------------------------------------------------

static berth_vocab_part part_of(const berth_check_case *at, berth_world world) {
    const double all = berth_check_number(at, "num_embeddings", 1);
    const double tokens = berth_check_number(at, "org_num_embeddings", all);
    const berth_vocabulary whole = {
        .tokens = (int64_t)tokens,
        .added = (int64_t)(all - tokens),
        .padding = (int64_t)berth_check_number(at, "padding_size", 64),
    };
    return berth_vocabulary_of(whole, world);
}

static void put(const berth_check_tensor *tensor, int64_t index, double value) {
    const float number = (float)value;
    const uint64_t bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
    berth_convert(BERTH_DTYPE_F32, &number, tensor->dtype,
                  (char *)tensor->data + (uint64_t)index * bytes, 1);
}

// Rows of adapters hold their id.
void berth_check_fill_added(berth_check_case *at, const char *name,
                            const berth_check_tensor *weight) {
    const berth_vocab_part part = part_of(at, world_of(at));
    const int64_t width = weight->shape[1];
    const int64_t first = part.org_padded.extent * width;
    for (int64_t i = 0; strcmp(name, "weight") == 0 && i < part.added.extent * width; ++i) {
        const int64_t id = part.added.offset + i / width;
        put(weight, first + i, (double)id);
    }
}

static berth_status check_bounds(berth_check_case *at, const berth_vocab_part *part) {
    const struct {
        const char *start;
        const char *end;
        berth_part ids;
    } bounds[] = {
        {"padded_org_vocab_start_index",   "padded_org_vocab_end_index",   part->org_padded  },
        {"padded_added_vocab_start_index", "padded_added_vocab_end_index", part->added_padded},
        {"org_vocab_start_index",          "org_vocab_end_index",          part->org         },
        {"added_vocab_start_index",        "added_vocab_end_index",        part->added       },
    };
    for (size_t i = 0; i < BERTH_COUNT(bounds); ++i) {
        const berth_part ids = bounds[i].ids;
        BERTH_TRY(berth_check_derived(at, bounds[i].start, (double)ids.offset));
        BERTH_TRY(berth_check_derived(at, bounds[i].end, (double)(ids.offset + ids.extent)));
    }
    BERTH_TRY(berth_check_derived(at, "num_org_vocab_padding", (double)part->org_padding));
    BERTH_TRY(berth_check_derived(at, "num_embeddings_padded", (double)part->total_padded));
    return berth_check_derived(at, "org_vocab_size_padded", (double)part->tokens_padded);
}

// What row `i` of a rank's table is: 0 a token of the model, 1 an added one, 2 padding.
static int kind_of_row(const berth_vocab_part *part, int64_t i) {
    const int64_t added = i - part->org_padded.extent;
    const bool is_added = added >= 0 && added < part->added.extent;
    return i < part->org.extent ? 0 : is_added ? 1 : 2;
}

// The rows of all ranks' tables, first the model's tokens, then the added ones, then padding.
static int64_t list_rows(const berth_check_case *at, int64_t ranks, int64_t *out) {
    int64_t count = 0;
    for (int kind = 0; kind < 3; ++kind) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
            const berth_vocab_part part = part_of(at, (berth_world){ranks, rank});
            for (int64_t i = 0; i < part.rows; ++i) {
                out[count] = rank * part.rows + i;
                count += kind_of_row(&part, i) == kind;
            }
        }
    }
    return count;
}

static berth_status check_order(berth_check_case *at) {
    const berth_json *derived = berth_json_find(at->json, "derived");
    const berth_json *list =
        derived ? berth_json_member(derived, berth_str_from("sharded_to_full_mapping")) : NULL;
    const int64_t ranks = world_of(at).size;
    const berth_vocab_part part = part_of(at, world_of(at));
    int64_t *rows = BERTH_ARENA_ARRAY(at->arena, int64_t, (size_t)part.total_padded + 1);
    if (!rows) {
        return berth_arena_exhausted(at->arena, "rows");
    }
    const int64_t count = list ? list_rows(at, ranks, rows) : 0;
    bool is_same = !list || (int64_t)berth_json_size(list) == count;
    for (int64_t i = 0; is_same && i < count; ++i) {
        int64_t wanted = -1;
        BERTH_TRY(berth_json_get_i64(berth_json_at(list, (size_t)i), "", &wanted));
        is_same = rows[i] == wanted;
    }
    at->derived_count += list != NULL;
    return is_same ? BERTH_OK : BERTH_FAIL(CORRUPT, "derived sharded_to_full_mapping differs");
}

static berth_status check_rank(berth_check_case *at, berth_check_results *results) {
    const berth_vocab_part part = part_of(at, world_of(at));
    const berth_check_tensor *weight = NULL;
    BERTH_TRY(set_number(at, "reduce_results", 0));
    BERTH_TRY(berth_check_execute(at, results));
    weight = find_named(results, "weight");
    if (!berth_json_find(at->json, "derived")) {
        return BERTH_OK;
    }
    BERTH_TRY(check_bounds(at, &part));
    BERTH_TRY(check_order(at));
    return berth_check_derived(at, "num_embeddings_per_partition",
                               weight ? (double)weight->shape[0] : 0);
}

// One output of every rank, added up.
static berth_status add_ranks(berth_check_case *at) {
    berth_check_results sum;
    BERTH_TRY(set_number(at, "reduce_results", 0));
    BERTH_TRY(set_number(at, "tp_rank", 0));
    BERTH_TRY(berth_check_execute(at, &sum));
    for (int64_t rank = 1; rank < world_of(at).size; ++rank) {
        berth_check_results part;
        BERTH_TRY(set_number(at, "tp_rank", rank));
        BERTH_TRY(berth_check_execute(at, &part));
        for (int64_t i = 0; i < berth_check_elements(&sum.outputs[0]); ++i) {
            put(&sum.outputs[0], i,
                berth_check_at(&sum.outputs[0], i) + berth_check_at(&part.outputs[0], i));
        }
    }
    return berth_check_give(at, &sum);
}

berth_status berth_check_vocabulary(berth_check_case *at) {
    berth_check_results results;
    berth_check_row *row = BERTH_ARENA_NEW(at->arena, berth_check_row);
    if (!row) {
        return berth_arena_exhausted(at->arena, "a row");
    }
    *row = *at->row;
    at->row = row;
    berth_check_tensor *weight = berth_check_input(at, "weight");
    const int64_t tokens = (int64_t)berth_check_number(at, "num_embeddings", 1);
    if (weight && weight->shape[0] > tokens) { // padded already: what a checkpoint would have
        weight->bytes = weight->bytes / (uint64_t)weight->shape[0] * (uint64_t)tokens;
        weight->shape[0] = tokens;
    }
    berth_check_tensor *ids = berth_check_input(at, "token_ids");
    if (ids) { // of any shape: a batch has them in one row
        ids->shape[0] = berth_check_elements(ids);
        ids->ndim = 1;
    }
    if (berth_check_find_output(at, "y")) {
        row->outputs[0] = "y";
    }
    if (world_of(at).size == 1) { // which has neither masked ids nor a mask
        row->outputs[1] = NULL;
    }
    if (!berth_check_given(at, "tp_rank")) {
        return add_ranks(at);
    }
    BERTH_TRY(check_rank(at, &results));
    return berth_check_give(at, &results);
}

// ---- others -------------------------------------------------------------------------------------

berth_status berth_check_head(berth_check_case *at) {
    return set_number(at, "bias", berth_check_input(at, "bias") != NULL);
}

// A recurrence's state has the type that it has in the case.
static berth_status set_state_type(berth_check_case *at) {
    const berth_check_tensor *state = berth_check_input(at, "ssm_state");
    const berth_attribute made = {
        .size = sizeof made,
        .name = "ssm_state_dtype",
        .kind = BERTH_ATTRIBUTE_STR,
        .str = state ? berth_dtype_name(state->dtype) : NULL,
    };
    return state ? berth_check_set(at, &made) : BERTH_OK;
}

// state_indices and has_initial_state as a batch says it: in which block a sequence lies, and how
// long it is with what came before.
berth_status berth_check_sequences(berth_check_case *at) {
    const berth_check_tensor *starts = berth_check_input(at, "query_start_loc");
    const berth_check_tensor *slots = berth_check_input(at, "state_indices");
    const berth_check_tensor *flags = berth_check_input(at, "has_initial_state");
    const int64_t count = starts ? starts->shape[0] - 1 : 0;
    berth_check_tensor *table =
        berth_check_add_input(at, "block_table", BERTH_DTYPE_I32, 2, (int64_t[]){count, 1});
    berth_check_tensor *lengths = berth_check_add_input(at, "seq_lens", BERTH_DTYPE_I32, 1, &count);
    if (!table || !lengths) {
        return berth_check_full(at);
    }
    BERTH_TRY(set_state_type(at));
    if (!slots || !flags) {
        return BERTH_FAIL(CORRUPT, "case '%s' does not name the states of its sequences", at->name);
    }
    for (int64_t i = 0; i < count; ++i) {
        const double length = berth_check_at(starts, i + 1) - berth_check_at(starts, i);
        ((int32_t *)table->data)[i] = (int32_t)berth_check_at(slots, i);
        ((int32_t *)lengths->data)[i] = (int32_t)(length + berth_check_at(flags, i));
    }
    berth_check_drop_input(at, "state_indices");
    berth_check_drop_input(at, "has_initial_state");
    return BERTH_OK;
}
