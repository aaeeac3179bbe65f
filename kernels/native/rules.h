// SPDX-License-Identifier: Apache-2.0
// The words in which shape rules are written. A refusal names the op, the argument and the rule:
// "rms_norm: 'weight' must have 1 dimension, has 2".
#ifndef BERTH_KERNELS_NATIVE_RULES_H
#define BERTH_KERNELS_NATIVE_RULES_H

#include <berth/op.h>

#include <tensor.h>

#include <stdio.h>

static inline int berth_dim_is(berth_dim a, berth_dim b) {
    return a.symbol == b.symbol && a.a == b.a && a.b == b.b && a.c == b.c;
}

static inline berth_dim berth_last_dim(const berth_value_type *type) {
    return type->ndim > 0 ? type->dims[type->ndim - 1] : BERTH_DIM_CONST(1);
}

// "128", "s0", "2*s0+1": for texts.
static inline const char *berth_dim_text(berth_dim dim, char buffer[64]) {
    if (dim.symbol == BERTH_SYMBOL_NONE) {
        (void)snprintf(buffer, 64, "%lld", (long long)dim.b);
    } else if (dim.a == 1 && dim.b == 0 && dim.c == 1) {
        (void)snprintf(buffer, 64, "s%d", (int)dim.symbol - 1);
    } else {
        (void)snprintf(buffer, 64, "ceil((%lld*s%d+%lld)/%lld)", (long long)dim.a,
                       (int)dim.symbol - 1, (long long)dim.b, (long long)dim.c);
    }
    return buffer;
}

// berth_op.is_rowwise of an op that is so at every site.
static inline uint64_t berth_every_row(const berth_op_site *site) {
    (void)site;
    return 1;
}

#define BERTH_RULE_FAIL(site, input, ...)                                                          \
    berth_rule_fail_((site), (site)->op->inputs[input]->name, __VA_ARGS__)

BERTH_PRINTF(3, 4)
static inline berth_status berth_rule_fail_(const berth_op_site *site, const char *argument,
                                            const char *format, ...) {
    char rule[256];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(rule, sizeof rule, format, values);
    va_end(values);
    return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT, "%s: '%s' %s", site->op->name,
                             argument, rule);
}

// Every rule below holds for an absent optional input.

static inline berth_status berth_rule_float(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[input];
    return !type || berth_is_float(type->dtype)
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must be f32, f16 or bf16");
}

static inline berth_status berth_rule_integer(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[input];
    return !type || type->dtype == BERTH_DTYPE_I32 || type->dtype == BERTH_DTYPE_I64
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must be i32 or i64");
}

static inline berth_status berth_rule_f32(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[input];
    return !type || type->dtype == BERTH_DTYPE_F32 ? BERTH_OK
                                                   : BERTH_RULE_FAIL(site, input, "must be f32");
}

// Rules of states are about the types that the graph declares; NULL: absent, or not known.
#define BERTH_RULE_STATE(site, state, ...)                                                         \
    berth_rule_fail_((site), (site)->op->states[state]->name, __VA_ARGS__)

static inline const berth_value_type *berth_site_state(const berth_op_site *site, uint64_t state) {
    return state < site->state_count ? site->states[state] : NULL;
}

static inline berth_status berth_rule_same_dtype(const berth_op_site *site, uint64_t input,
                                                 uint64_t as) {
    const berth_value_type *type = site->inputs[input];
    return !type || type->dtype == site->inputs[as]->dtype
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must have the dtype of '%s'",
                                 site->op->inputs[as]->name);
}

static inline berth_status berth_rule_rank(const berth_op_site *site, uint64_t input,
                                           uint32_t rank) {
    const berth_value_type *type = site->inputs[input];
    return !type || type->ndim == rank
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must have %u dimension%s, has %u", rank,
                                 rank == 1 ? "" : "s", type->ndim);
}

// The dimension, from 0, is a constant of at least 1.
static inline berth_status berth_rule_constant(const berth_op_site *site, uint64_t input,
                                               uint32_t dim) {
    const berth_value_type *type = site->inputs[input];
    return !type || (dim < type->ndim && type->dims[dim].symbol == BERTH_SYMBOL_NONE &&
                     type->dims[dim].b > 0)
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must have a constant dimension %u of at least 1",
                                 dim);
}

// The last dimension is a constant of at least 1.
static inline berth_status berth_rule_width(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[input];
    if (type && type->ndim == 0) {
        return BERTH_RULE_FAIL(site, input, "must have at least 1 dimension");
    }
    const berth_dim last = type ? berth_last_dim(type) : BERTH_DIM_CONST(1);
    return last.symbol == BERTH_SYMBOL_NONE && last.b > 0
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must have a constant last dimension of at least 1");
}

// Dimension `dim` of the input is the one given.
static inline berth_status berth_rule_dim(const berth_op_site *site, uint64_t input, uint32_t dim,
                                          berth_dim wanted) {
    const berth_value_type *type = site->inputs[input];
    char has[64];
    char must[64];
    return !type || (dim < type->ndim && berth_dim_is(type->dims[dim], wanted))
               ? BERTH_OK
               : BERTH_RULE_FAIL(
                     site, input, "must be %s in dimension %u, is %s", berth_dim_text(wanted, must),
                     dim,
                     berth_dim_text(dim < type->ndim ? type->dims[dim] : BERTH_DIM_CONST(0), has));
}

static inline berth_status berth_rule_same_shape(const berth_op_site *site, uint64_t input,
                                                 uint64_t as) {
    const berth_value_type *wanted = site->inputs[as];
    berth_status status = berth_rule_rank(site, input, wanted->ndim);
    for (uint32_t dim = 0; status == BERTH_OK && dim < wanted->ndim; ++dim) {
        status = berth_rule_dim(site, input, dim, wanted->dims[dim]);
    }
    return status;
}

// A refusal of an attribute's value.
#define BERTH_RULE_ATTRIBUTE(site, attribute, ...)                                                 \
    berth_rule_fail_((site), (site)->op->attributes[attribute]->name, __VA_ARGS__)

#define BERTH_RULE_TRY(call)                                                                       \
    do {                                                                                           \
        const berth_status rule_status_ = (call);                                                  \
        if (rule_status_ != BERTH_OK) {                                                            \
            return rule_status_;                                                                   \
        }                                                                                          \
    } while (0)

// The float dtype that an attribute names.
static inline berth_status berth_rule_dtype(const berth_op_site *site, uint64_t attribute,
                                            berth_dtype *out) {
    const char *name = site->attributes[attribute]->str;
    *out = strcmp(name, "f32") == 0    ? BERTH_DTYPE_F32
           : strcmp(name, "f16") == 0  ? BERTH_DTYPE_F16
           : strcmp(name, "bf16") == 0 ? BERTH_DTYPE_BF16
                                       : BERTH_DTYPE_NONE;
    return *out != BERTH_DTYPE_NONE
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be f32, f16 or bf16, is '%s'", name);
}

// Appends an output of the input's type, to be changed by the caller where it differs.
static inline berth_value_type *berth_rule_give(berth_op_result *out, const berth_value_type *as) {
    berth_value_type *type = out->types[out->count++];
    type->dtype = as->dtype;
    type->ndim = as->ndim;
    memcpy(type->dims, as->dims, sizeof type->dims);
    return type;
}

#endif
