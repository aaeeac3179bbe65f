// SPDX-License-Identifier: Apache-2.0
// paged_attention(query, key, value; key_cache, value_cache) {scale}: a stand-in that uses all that
// real attention uses, the caches by slot, block tables and positions, and none of its arithmetic:
//   caches[slot(t)] = key[t], value[t]
//   y[t] = query[t] * scale + sum over positions j <= position(t) of key_cache[j] * value_cache[j]
#include "support/test_ops.h"

static void *at(const berth_tensor *tensor) {
    return (char *)tensor->data + tensor->byte_offset;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    for (uint64_t i = 0; i < 3; ++i) {
        if (site->inputs[i]->ndim != 3) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "paged_attention: '%s' has rank %u, must have 3",
                                     site->op->inputs[i]->name, site->inputs[i]->ndim);
        }
    }
    const berth_value_type *query = site->inputs[0];
    out->types[0]->dtype = query->dtype;
    out->types[0]->ndim = query->ndim;
    for (uint32_t i = 0; i < query->ndim; ++i) {
        out->types[0]->dims[i] = query->dims[i];
    }
    out->count = 1;
    return BERTH_OK;
}

static void store(const berth_op_args *args, const int64_t *slots, int64_t width) {
    for (uint64_t which = 0; which < 2; ++which) {
        const float *from = at(args->inputs[1 + which]);
        float *cache = at(args->states[which]);
        for (int64_t i = 0; i < args->inputs[1]->shape[0] * width; ++i) {
            if (slots[i / width] >= 0) {
                cache[slots[i / width] * width + i % width] = from[i];
            }
        }
    }
}

static void attend(const berth_op_args *args, const berth_op_site *site,
                   const berth_batch_view *view, int64_t sequence) {
    const int32_t *start = at(view->query_start_loc);
    const int32_t *positions = at(view->positions);
    const berth_tensor *tables = view->block_tables[site->cache_group];
    const int32_t *table = (const int32_t *)at(tables) + sequence * tables->strides[0];
    const int64_t width = args->inputs[0]->shape[1] * args->inputs[0]->shape[2];
    const int64_t block = (int64_t)site->block_size;
    for (int64_t i = start[sequence] * width; i < start[sequence + 1] * width; ++i) {
        float sum = ((const float *)at(args->inputs[0]))[i] * (float)site->attributes[0]->f64;
        for (int64_t j = 0; j <= positions[i / width]; ++j) {
            const int64_t slot = (table[j / block] * block + j % block) * width + i % width;
            sum += ((const float *)at(args->states[0]))[slot] *
                   ((const float *)at(args->states[1]))[slot];
        }
        ((float *)at(args->outputs[0]))[i] = sum;
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_batch_view *view = args->batch->host;
    const int64_t *slots = at(view->slot_mappings[site->cache_group]);
    store(args, slots, args->inputs[1]->shape[1] * args->inputs[1]->shape[2]);
    for (int64_t i = 0; i < args->batch->sequence_count; ++i) {
        attend(args, site, view, i);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("query"),
    BERTH_INPUT("key"),
    BERTH_INPUT("value"),
};
static const berth_op_argument *const states[] = {BERTH_INPUT("key_cache"),
                                                  BERTH_INPUT("value_cache")};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64),
};

const berth_op test_paged_attention = {
    .size = sizeof(test_paged_attention),
    .name = "paged_attention",
    .class_name = "PagedAttention",
    .revision = 1,
    .inputs = inputs,
    .input_count = 3,
    .states = states,
    .state_count = 2,
    .attributes = attributes,
    .attribute_count = 1,
    .infer = infer,
    .reference = reference,
};
