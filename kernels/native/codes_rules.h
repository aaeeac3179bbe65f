// SPDX-License-Identifier: Apache-2.0
// Shape rules that ops over quantized weights share.
#ifndef BERTH_KERNELS_NATIVE_CODES_RULES_H
#define BERTH_KERNELS_NATIVE_CODES_RULES_H

#include "rules.h"

#include <codes.h>

static inline berth_status codes_check_group_shape(const berth_op_site *site, uint64_t attribute) {
    const berth_attribute *shape = site->attributes[attribute];
    return shape->count == 2 && shape->i64s[0] != 0 && shape->i64s[1] != 0 &&
                   shape->i64s[0] >= -1 && shape->i64s[1] >= -1
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be two sizes, each -1 or at least 1");
}

// The scales of weights [n, k] are [ceil(n / rows), ceil(k / columns)] by the attribute
// `group_shape`, in the input's last two dimensions.
static inline berth_status codes_check_groups(const berth_op_site *site, uint64_t scale, int64_t n,
                                              int64_t k) {
    const berth_value_type *type = site->inputs[scale];
    const uint32_t dim = type && type->ndim > 2 ? type->ndim - 2 : 0;
    const berth_code_scales of = berth_code_scales_of(site, NULL, n, k);
    BERTH_RULE_TRY(berth_rule_dim(site, scale, dim, BERTH_DIM_CONST((n + of.rows - 1) / of.rows)));
    return berth_rule_dim(site, scale, dim + 1, BERTH_DIM_CONST((k + of.columns - 1) / of.columns));
}

// The scales of one matrix [n, k] are floats by `group_shape`, number `attribute` of the op.
static inline berth_status codes_check_scales(const berth_op_site *site, uint64_t scale,
                                              uint64_t attribute, int64_t n, int64_t k) {
    BERTH_RULE_TRY(codes_check_group_shape(site, attribute));
    BERTH_RULE_TRY(berth_rule_float(site, scale));
    BERTH_RULE_TRY(berth_rule_rank(site, scale, 2));
    return codes_check_groups(site, scale, n, k);
}

// Codes of the attribute `code`, number `attribute` of the op, for weights [..., k].
static inline berth_status codes_check_codes(const berth_op_site *site, uint64_t weight,
                                             uint64_t attribute, int64_t k) {
    const char *name = site->attributes[attribute]->str;
    const berth_code code = berth_code_of(name);
    if (code == BERTH_CODE_NONE) {
        return BERTH_RULE_ATTRIBUTE(site, attribute, "must be u4, u8, e2m1, i8 or e4m3, is '%s'",
                                    name);
    }
    const berth_value_type *type = site->inputs[weight];
    if (type->dtype != berth_code_dtype(code)) {
        return BERTH_RULE_FAIL(site, weight, "has not the dtype of codes '%s'", name);
    }
    const int is_half = berth_code_is_half(code);
    if (is_half && k % 2 != 0) {
        return BERTH_RULE_FAIL(site, weight, "has codes of 4 bits for an odd number of inputs");
    }
    return berth_rule_dim(site, weight, type->ndim - 1, BERTH_DIM_CONST(is_half ? k / 2 : k));
}

// Zero points beside scales, of the codes that have any.
static inline berth_status codes_check_zero_points(const berth_op_site *site, uint64_t zeros,
                                                   uint64_t scale, uint64_t attribute) {
    const berth_code code = berth_code_of(site->attributes[attribute]->str);
    const int has_zeros = code == BERTH_CODE_U4 || code == BERTH_CODE_U8;
    const berth_value_type *type = site->inputs[zeros];
    if (type && (!has_zeros || type->dtype != BERTH_DTYPE_U8)) {
        return BERTH_RULE_FAIL(site, zeros, "must be u8, beside codes u4 or u8");
    }
    return berth_rule_same_shape(site, zeros, scale);
}

// [n], of floats or as the caller has checked.
static inline berth_status codes_check_per_output(const berth_op_site *site, uint64_t input,
                                                  int64_t n) {
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, BERTH_DIM_CONST(n));
}

#endif
