// SPDX-License-Identifier: Apache-2.0
// Shape rules of the ops that keep a state per sequence: of the inputs that say which sequences a
// call is about (kernels/sequences.h), of per-channel parameters, and of the activation's name.
#ifndef BERTH_KERNELS_NATIVE_SEQUENCE_RULES_H
#define BERTH_KERNELS_NATIVE_SEQUENCE_RULES_H

#include "rules.h"

#include <math.h>

static inline berth_status berth_rule_bool(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[input];
    return !type || type->dtype == BERTH_DTYPE_BOOL ? BERTH_OK
                                                    : BERTH_RULE_FAIL(site, input, "must be bool");
}

static inline berth_status berth_rule_index(const berth_op_site *site, uint64_t input,
                                            uint32_t rank) {
    BERTH_RULE_TRY(berth_rule_integer(site, input));
    return berth_rule_rank(site, input, rank);
}

// `starts` [n + 1]: where each sequence begins, and the end of the last.
static inline berth_status berth_rule_starts(const berth_op_site *site, uint64_t starts) {
    const berth_value_type *type = site->inputs[starts];
    BERTH_RULE_TRY(berth_rule_index(site, starts, 1));
    return !type || (type->dims[0].symbol == BERTH_SYMBOL_NONE && type->dims[0].b > 0)
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, starts, "must have a constant length of at least 1");
}

// Starts as above, `slots` and the bool `has_state` [n]; the last two stand beside starts only.
static inline berth_status berth_rule_sequences(const berth_op_site *site, uint64_t starts,
                                                uint64_t slots, uint64_t has_state) {
    const berth_value_type *type = site->inputs[starts];
    BERTH_RULE_TRY(berth_rule_starts(site, starts));
    BERTH_RULE_TRY(berth_rule_index(site, slots, 1));
    BERTH_RULE_TRY(berth_rule_bool(site, has_state));
    BERTH_RULE_TRY(berth_rule_rank(site, has_state, 1));
    if (!type) {
        const uint64_t alone = site->inputs[slots] ? slots : has_state;
        return site->inputs[alone] ? BERTH_RULE_FAIL(site, alone, "must stand beside '%s'",
                                                     site->op->inputs[starts]->name)
                                   : BERTH_OK;
    }
    const berth_dim count = BERTH_DIM_CONST(type->dims[0].b - 1);
    BERTH_RULE_TRY(berth_rule_dim(site, slots, 0, count));
    return berth_rule_dim(site, has_state, 0, count);
}

// A float tensor of exactly these dimensions, whatever its float dtype.
static inline berth_status berth_rule_shape(const berth_op_site *site, uint64_t input,
                                            const berth_dim *dims, uint32_t rank) {
    BERTH_RULE_TRY(berth_rule_float(site, input));
    berth_status status = berth_rule_rank(site, input, rank);
    for (uint32_t dim = 0; status == BERTH_OK && dim < rank; ++dim) {
        status = berth_rule_dim(site, input, dim, dims[dim]);
    }
    return status;
}
#define BERTH_RULE_SHAPE(site, input, ...)                                                         \
    berth_rule_shape((site), (input), (const berth_dim[]){__VA_ARGS__},                            \
                     sizeof((berth_dim[]){__VA_ARGS__}) / sizeof(berth_dim))

// Rows of an operand's first dimension in a step of that many tokens, for scratch memory.
static inline uint64_t berth_rule_rows(const berth_value_type *type, uint64_t tokens) {
    const berth_dim dim = type->dims[0];
    const int64_t rows = dim.symbol == BERTH_SYMBOL_NONE
                             ? dim.b
                             : (dim.a * (int64_t)tokens + dim.b + dim.c - 1) / dim.c;
    return (uint64_t)rows;
}

// "silu", "swish" (the same) or "" for none.
static inline berth_status berth_rule_activation(const berth_op_site *site, uint64_t attribute) {
    const char *name = site->attributes[attribute]->str;
    return strcmp(name, "") == 0 || strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be silu, swish or empty, is '%s'",
                                      name);
}

static inline berth_status berth_rule_scale(const berth_op_site *site, uint64_t attribute) {
    const berth_attribute *scale = site->attributes[attribute];
    return scale->kind == BERTH_ATTRIBUTE_NONE || isfinite(scale->f64)
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be finite, is %g", scale->f64);
}

#endif
