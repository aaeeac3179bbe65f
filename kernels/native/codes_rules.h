// SPDX-License-Identifier: Apache-2.0
// Shape rules that ops over quantized weights share.
#ifndef BERTH_KERNELS_NATIVE_CODES_RULES_H
#define BERTH_KERNELS_NATIVE_CODES_RULES_H

#include "rules.h"

#include <codes.h>

// The scales of weights [n, k] are [ceil(n / rows), ceil(k / columns)] floats, by the attribute
// `group_shape`, number `attribute` of the op.
static inline berth_status codes_check_scales(const berth_op_site *site, uint64_t scale,
                                              uint64_t attribute, int64_t n, int64_t k) {
    const berth_attribute *shape = site->attributes[attribute];
    if (shape->count != 2 || shape->i64s[0] == 0 || shape->i64s[1] == 0 || shape->i64s[0] < -1 ||
        shape->i64s[1] < -1) {
        return BERTH_RULE_ATTRIBUTE(site, attribute, "must be two sizes, each -1 or at least 1");
    }
    const berth_code_scales of = berth_code_scales_of(site, NULL, n, k);
    BERTH_RULE_TRY(berth_rule_float(site, scale));
    BERTH_RULE_TRY(berth_rule_rank(site, scale, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, scale, 0, BERTH_DIM_CONST((n + of.rows - 1) / of.rows)));
    return berth_rule_dim(site, scale, 1, BERTH_DIM_CONST((k + of.columns - 1) / of.columns));
}

// [n], of floats or as the caller has checked.
static inline berth_status codes_check_per_output(const berth_op_site *site, uint64_t input,
                                                  int64_t n) {
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, BERTH_DIM_CONST(n));
}

#endif
