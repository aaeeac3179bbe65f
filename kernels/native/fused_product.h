// SPDX-License-Identifier: Apache-2.0
// What fused_linear, fused_scaled_linear and fused_packed_linear share: what x goes through before
// it is multiplied, and is not stored in between.
//
//   x            [..., k], before silu_and_mul [..., 2k]; f32, f16 or bf16
//   residual     like x  optional, before it rms_norm only; then x + residual is the second output
//   norm_weight  [k]     optional, before it rms_norm only
//
// `prologue`: "rms_norm", which has `eps`, or "silu_and_mul", or "none" where codes are made of x.
// What comes of it is rounded to x's dtype, as if it were stored.
#ifndef BERTH_KERNELS_NATIVE_FUSED_PRODUCT_H
#define BERTH_KERNELS_NATIVE_FUSED_PRODUCT_H

#include "fused_parts.h"

#include <math.h>

extern const berth_op berth_op_rms_norm;
extern const berth_op berth_op_silu_and_mul;

enum { FUSED_PROLOGUE, FUSED_EPS }; // of every such op's attributes
enum { FUSED_Y, FUSED_RESIDUAL_OUT };

static inline int fused_is(const berth_op_site *site, const char *prologue) {
    return strcmp(site->attributes[FUSED_PROLOGUE]->str, prologue) == 0;
}

// Where the fused op has what goes before: x is input 0, `norm_weight` follows `residual`.
static inline void fused_begin_prologue(fused_part *self, const berth_op_site *site,
                                        uint64_t residual) {
    const int is_norm = fused_is(site, "rms_norm");
    fused_begin(self, site, is_norm ? &berth_op_rms_norm : &berth_op_silu_and_mul);
    fused_give(self, "x", 0, site->inputs[0]);
    if (is_norm) {
        fused_give(self, "residual", residual, site->inputs[residual]);
        fused_give(self, "weight", residual + 1, site->inputs[residual + 1]);
        fused_hand_on(self, "eps");
    }
}

static inline berth_status fused_check_prologue(const berth_op_site *site, uint64_t residual) {
    const double eps = site->attributes[FUSED_EPS]->f64;
    const int is_norm = fused_is(site, "rms_norm");
    if (!is_norm && !fused_is(site, "silu_and_mul") && !fused_is(site, "none")) {
        return BERTH_RULE_ATTRIBUTE(site, FUSED_PROLOGUE,
                                    "must be rms_norm, silu_and_mul or none, is '%s'",
                                    site->attributes[FUSED_PROLOGUE]->str);
    }
    if (!(eps >= 0 && isfinite(eps))) {
        return BERTH_RULE_ATTRIBUTE(site, FUSED_EPS, "must be finite and not negative, is %g", eps);
    }
    for (uint64_t input = residual; input < residual + 2 && !is_norm; ++input) {
        if (site->inputs[input]) {
            return BERTH_RULE_FAIL(site, input, "is for the prologue rms_norm only");
        }
    }
    return BERTH_OK;
}

// Types of what is multiplied, and of the sum, which is given out where there is a residual.
static inline berth_status fused_infer_prologue(const berth_op_site *site, uint64_t residual,
                                                berth_value_type *f, berth_value_type *sum) {
    fused_part part;
    BERTH_RULE_TRY(fused_check_prologue(site, residual));
    if (fused_is(site, "none")) {
        BERTH_RULE_TRY(berth_rule_float(site, 0));
        BERTH_RULE_TRY(berth_rule_width(site, 0));
        *f = *site->inputs[0];
        return BERTH_OK;
    }
    fused_begin_prologue(&part, site, residual);
    return fused_infer(&part, f, sum);
}

// Row `number` of x through it, to `f`.
static inline berth_status fused_run_prologue(const berth_op_site *site, const berth_op_args *args,
                                              uint64_t residual, int64_t number,
                                              const berth_tensor *f) {
    fused_part part;
    fused_row x;
    fused_row added;
    fused_row sum;
    const berth_tensor *given = args->inputs[residual];
    if (fused_is(site, "none")) {
        memcpy(f->data, berth_row(args->inputs[0], number),
               (size_t)(berth_row_length(f) * BERTH_DTYPE_BITS(f->dtype) / 8));
        return BERTH_OK;
    }
    fused_begin_prologue(&part, site, residual);
    fused_pass(&part, "x", fused_row_of(&x, args->inputs[0], number));
    if (fused_is(site, "rms_norm")) {
        fused_pass(&part, "residual", fused_row_of(&added, given, number));
        fused_pass(&part, "weight", args->inputs[residual + 1]);
    }
    return fused_run(&part, f,
                     given ? fused_row_of(&sum, args->outputs[FUSED_RESIDUAL_OUT], number) : NULL,
                     NULL);
}

// k: what the prologue leaves of x's last dimension.
static inline int64_t fused_width(const berth_op_site *site) {
    return berth_last_dim(site->inputs[0]).b / (fused_is(site, "silu_and_mul") ? 2 : 1);
}

// Bytes that the product asks for to take rows one by one, which follow from the width of f(x).
static inline uint64_t fused_product_room(const berth_op_site *site, const berth_op *product) {
    berth_value_type f = *site->inputs[0];
    fused_part part;
    f.dims[f.ndim - 1].b = fused_width(site);
    fused_begin(&part, site, product);
    fused_give(&part, "x", 0, &f);
    return product->reference_workspace(&part.site, 1);
}

// Of the ops without codes of x: they need a prologue.
static inline berth_status fused_infer_floats(const berth_op_site *site, uint64_t residual,
                                              berth_value_type *f, berth_value_type *sum) {
    BERTH_RULE_TRY(fused_infer_prologue(site, residual, f, sum));
    return fused_is(site, "none")
               ? BERTH_RULE_ATTRIBUTE(site, FUSED_PROLOGUE, "must be rms_norm or silu_and_mul")
               : BERTH_OK;
}

// What the op gives: y, and the sum where there is a residual.
static inline berth_status fused_give_out(const berth_op_site *site, uint64_t residual,
                                          const berth_value_type *y, const berth_value_type *sum,
                                          berth_op_result *out) {
    berth_rule_give(out, y);
    if (site->inputs[residual]) {
        berth_rule_give(out, sum);
    }
    return BERTH_OK;
}

#define FUSED_PROLOGUE_INPUTS                                                                      \
    BERTH_OPTIONAL_STRIDED_INPUT("residual"), BERTH_OPTIONAL_INPUT("norm_weight")
#define FUSED_PROLOGUE_ATTRIBUTES                                                                  \
    BERTH_REQUIRED_ATTRIBUTE("prologue", BERTH_ATTRIBUTE_STR),                                     \
        BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-6)

#endif
