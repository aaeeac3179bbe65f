// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul_sparse: y = gelu(max(gate − cutoff, 0)) · up, where the cutoff of a row leaves a
// share of about 1 − activation_sparsity of its gates, if they are normally distributed.
//
//   x  [..., 2d]  f32, f16 or bf16; the first half is the gate, the second `up`
//   y  [..., d]   x's dtype
//
// cutoff = mean + deviation · m over the row's gates, with m the quantile of the normal
// distribution at `activation_sparsity`. Every step is rounded to x's dtype, m is not: vLLM's
// GeluAndMulSparse.forward_native, which its device path runs too; on ROCm that takes "none" for
// "tanh", here "tanh" means tanh everywhere.
#include <berth/op.h>

#include <quantile.h>

#include "elementwise.h"

enum { ACTIVATION_SPARSITY, APPROXIMATE };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const double share = site->attributes[ACTIVATION_SPARSITY]->f64;
    BERTH_RULE_TRY(berth_rule_approximate(site, APPROXIMATE));
    if (!(share > 0 && share < 1)) {
        return BERTH_RULE_ATTRIBUTE(site, ACTIVATION_SPARSITY, "must be between 0 and 1, is %g",
                                    share);
    }
    return berth_infer_gated(site, out);
}

static float cutoff_of(const void *row, berth_dtype dtype, int64_t width, float multiplier) {
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) {
        sum += (double)berth_load_at(row, dtype, i);
    }
    for (int64_t i = 0; i < width; ++i) {
        const double distance = (double)berth_load_at(row, dtype, i) - sum / (double)width;
        squares += distance * distance;
    }
    const float mean = berth_round_to(dtype, (float)(sum / (double)width));
    const float deviation = berth_round_to(dtype, (float)sqrt(squares / (double)width));
    return berth_round_to(dtype, mean + berth_round_to(dtype, deviation * multiplier));
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const berth_dtype dtype = x->dtype;
    const int64_t width = berth_row_length(y);
    const float multiplier =
        (float)berth_normal_quantile(berth_site_f64(site, ACTIVATION_SPARSITY));
    const int is_tanh = berth_site_is(site, APPROXIMATE, "tanh");
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        const void *from = berth_row(x, row);
        const float cutoff = cutoff_of(from, dtype, width, multiplier);
        for (int64_t i = 0; i < width; ++i) {
            const float above = berth_round_to(dtype, berth_load_at(from, dtype, i) - cutoff);
            const float kept = above < 0 ? 0 : above;
            const float gelu = is_tanh ? berth_gelu_tanh(kept) : berth_gelu_erf(kept);
            const float up = berth_load_at(from, dtype, width + i);
            berth_store_at(berth_row(y, row), dtype, i, berth_round_to(dtype, gelu) * up);
        }
    }
    return BERTH_OK;
}

static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("activation_sparsity", BERTH_ATTRIBUTE_F64),
    BERTH_OPTIONAL_ATTRIBUTE("approximate", BERTH_ATTRIBUTE_STR, .str = "none"),
};

const berth_op berth_op_gelu_and_mul_sparse = {
    BERTH_ELEMENTWISE("gelu_and_mul_sparse", "GeluAndMulSparse", infer),
    .revision = 1,
    BERTH_ATTRIBUTE_TABLE(attributes),
};
