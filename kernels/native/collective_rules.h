// SPDX-License-Identifier: Apache-2.0
// What the ops between ranks share. `group_name` says which ranks, "" for all; `world_size` how
// many they are. Their references serve a world of one, in which each of them gives back what it
// got; a larger one needs the platform's communicator.
#ifndef BERTH_KERNELS_NATIVE_COLLECTIVE_RULES_H
#define BERTH_KERNELS_NATIVE_COLLECTIVE_RULES_H

#include "rules.h"

#define COLLECTIVE_ATTRIBUTES                                                                      \
    BERTH_OPTIONAL_ATTRIBUTE("group_name", BERTH_ATTRIBUTE_STR, .str = ""),                        \
        BERTH_OPTIONAL_ATTRIBUTE("world_size", BERTH_ATTRIBUTE_I64, .i64 = 1)

// The order of COLLECTIVE_ATTRIBUTES, and what may stand behind them.
enum { GROUP_NAME, WORLD_SIZE, DIM_OR_RANK, DIM };

static inline berth_status collective_infer(const berth_op_site *site, berth_op_result *out) {
    const int64_t ranks = site->attributes[WORLD_SIZE]->i64;
    if (ranks < 1) {
        return BERTH_RULE_ATTRIBUTE(site, WORLD_SIZE, "must be at least 1, is %lld",
                                    (long long)ranks);
    }
    berth_rule_give(out, site->inputs[0]);
    return BERTH_OK;
}

// The other side's rank in the group.
static inline berth_status collective_check_rank(const berth_op_site *site) {
    const int64_t rank = site->attributes[DIM_OR_RANK]->i64;
    const int64_t ranks = site->attributes[WORLD_SIZE]->i64;
    return rank >= 0 && rank < ranks
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, DIM_OR_RANK, "must be 0 to %lld, is %lld",
                                      (long long)ranks - 1, (long long)rank);
}

// x as it is, by or for one rank.
static inline berth_status collective_infer_rank(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(collective_infer(site, out));
    return collective_check_rank(site);
}

// The dimension of x that attribute `attribute` names, from the end when it is negative.
static inline berth_status collective_dim(const berth_op_site *site, uint64_t attribute,
                                          uint32_t *out_dim) {
    const int64_t rank = site->inputs[0]->ndim;
    const int64_t dim = site->attributes[attribute]->i64;
    if (rank < 1) {
        return BERTH_RULE_FAIL(site, 0, "must have at least 1 dimension");
    }
    if (dim < -rank || dim >= rank) {
        return BERTH_RULE_ATTRIBUTE(site, attribute, "must be a dimension of %lld, is %lld",
                                    (long long)rank, (long long)dim);
    }
    *out_dim = (uint32_t)(dim < 0 ? dim + rank : dim);
    return BERTH_OK;
}

// The shards of all ranks, one behind the other along a dimension.
static inline berth_status collective_infer_gathered(const berth_op_site *site, uint64_t attribute,
                                                     berth_op_result *out) {
    uint32_t dim = 0;
    BERTH_RULE_TRY(collective_infer(site, out));
    BERTH_RULE_TRY(collective_dim(site, attribute, &dim));
    berth_dim *extent = &out->types[0]->dims[dim];
    if (extent->c != 1) {
        return BERTH_RULE_FAIL(site, 0, "has a dimension %u that cannot be multiplied", dim);
    }
    extent->a *= site->attributes[WORLD_SIZE]->i64;
    extent->b *= site->attributes[WORLD_SIZE]->i64;
    return BERTH_OK;
}

static inline berth_status collective_reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[0];
    const int64_t ranks = site->attributes[WORLD_SIZE]->i64;
    if (ranks != 1) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "%s: %lld ranks need a communicator; the reference serves one",
                                 site->op->name, (long long)ranks);
    }
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        memmove(berth_row(args->outputs[0], row), berth_row(x, row),
                (size_t)berth_row_length(x) * BERTH_DTYPE_BITS(x->dtype) / 8);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_STRIDED_INPUT("x")};

// The table of one; `attributes` is the file's own.
#define COLLECTIVE_OP(op_name, op_class, op_infer)                                                 \
    {                                                                                              \
        .size = sizeof(berth_op), .name = (op_name), .class_name = (op_class), .revision = 1,      \
        .inputs = inputs, .input_count = sizeof inputs / sizeof inputs[0],                         \
        .attributes = attributes, .attribute_count = sizeof attributes / sizeof attributes[0],     \
        .infer = (op_infer), .reference = collective_reference                                     \
    }

#endif
