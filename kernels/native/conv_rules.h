// SPDX-License-Identifier: Apache-2.0
// What the references of conv2d and conv3d share: everything but their rank.
#ifndef BERTH_KERNELS_NATIVE_CONV_RULES_H
#define BERTH_KERNELS_NATIVE_CONV_RULES_H

#include <berth/op.h>

#include "rules.h"

#include <conv.h>

enum { X, WEIGHT, BIAS };
enum { STRIDE, PADDING, DILATION, GROUPS };

// ---- shape rule ---------------------------------------------------------------------------------

static inline berth_status check_list(const berth_op_site *site, uint64_t attribute, int rank,
                                      int64_t least) {
    const berth_attribute *list = site->attributes[attribute];
    int is_right = list->count == 1 || list->count == (uint64_t)rank;
    for (uint64_t i = 0; is_right && i < list->count; ++i) {
        is_right = list->i64s[i] >= least && list->i64s[i] <= INT32_MAX;
    }
    return is_right
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be 1 or %d numbers of at least %lld",
                                      rank, (long long)least);
}

static inline berth_status check_channels(const berth_op_site *site) {
    const int64_t in = site->inputs[X]->dims[1].b;
    const int64_t out = site->inputs[WEIGHT]->dims[0].b;
    const int64_t groups = site->attributes[GROUPS]->i64;
    if (groups < 1 || in % groups != 0 || out % groups != 0) {
        return BERTH_RULE_ATTRIBUTE(site, GROUPS,
                                    "must divide the channels, %lld and %lld, is %lld",
                                    (long long)in, (long long)out, (long long)groups);
    }
    return berth_rule_dim(site, WEIGHT, 1, BERTH_DIM_CONST(in / groups));
}

static inline berth_status check_operands(const berth_op_site *site, uint32_t rank) {
    for (uint64_t input = X; input <= BIAS; ++input) {
        BERTH_RULE_TRY(berth_rule_float(site, input));
    }
    BERTH_RULE_TRY(berth_rule_rank(site, X, rank + 2));
    BERTH_RULE_TRY(berth_rule_rank(site, WEIGHT, rank + 2));
    BERTH_RULE_TRY(berth_rule_rank(site, BIAS, 1));
    for (uint32_t dim = 0; dim < rank + 2; ++dim) {
        BERTH_RULE_TRY(dim > 0 ? berth_rule_constant(site, X, dim) : BERTH_OK);
        BERTH_RULE_TRY(berth_rule_constant(site, WEIGHT, dim));
    }
    return berth_rule_dim(site, BIAS, 0, site->inputs[WEIGHT]->dims[0]);
}

static inline berth_status conv_infer(const berth_op_site *site, uint32_t rank,
                                      berth_op_result *out) {
    berth_conv conv;
    BERTH_RULE_TRY(check_operands(site, rank));
    BERTH_RULE_TRY(check_list(site, STRIDE, (int)rank, 1));
    BERTH_RULE_TRY(check_list(site, PADDING, (int)rank, 0));
    BERTH_RULE_TRY(check_list(site, DILATION, (int)rank, 1));
    BERTH_RULE_TRY(check_channels(site));
    berth_conv_read(site, (int)rank, &conv);
    berth_value_type *y = berth_rule_give(out, site->inputs[X]);
    y->dims[1] = BERTH_DIM_CONST(conv.out);
    for (uint32_t dim = 0; dim < rank; ++dim) {
        const int64_t positions = conv.positions[3 - rank + dim];
        if (positions < 1) {
            return BERTH_RULE_FAIL(site, WEIGHT, "is larger than 'x' in dimension %u", 2 + dim);
        }
        y->dims[2 + dim] = BERTH_DIM_CONST(positions);
    }
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// The sum at one position: `x` is the first channel of the group, `weight` the output's kernel.
typedef struct patch {
    const berth_tensor *x;
    const berth_tensor *weight;
    int64_t first_x; // elements before it
    int64_t first_weight;
    int64_t position[3];
} patch;

static inline double patch_sum(const berth_conv *conv, const patch *at) {
    const int64_t taps = berth_conv_volume(conv->kernel);
    double sum = 0;
    for (int64_t i = 0; i < conv->channels * taps; ++i) {
        int64_t tap[3];
        berth_conv_split(conv->kernel, i % taps, tap);
        const int64_t source = berth_conv_source(conv, at->position, tap);
        if (source >= 0) {
            const int64_t channel = i / taps * berth_conv_volume(conv->size);
            sum += (double)berth_load_at(berth_data(at->x), at->x->dtype,
                                         at->first_x + channel + source) *
                   (double)berth_load_at(berth_data(at->weight), at->weight->dtype,
                                         at->first_weight + i);
        }
    }
    return sum;
}

static inline berth_status conv_reference(const berth_op_site *site, int rank,
                                          const berth_op_args *args) {
    const berth_tensor *bias = args->inputs[BIAS];
    const berth_tensor *y = args->outputs[0];
    berth_conv conv;
    berth_conv_read(site, rank, &conv);
    const int64_t positions = berth_conv_volume(conv.positions);
    const int64_t plane = berth_conv_volume(conv.size);
    const int64_t kernel = conv.channels * berth_conv_volume(conv.kernel);
    for (int64_t i = 0; i < y->shape[0] * conv.out; ++i) {
        const int64_t output = i % conv.out;
        const int64_t group = output / (conv.out / conv.groups);
        patch at = {
            .x = args->inputs[X],
            .weight = args->inputs[WEIGHT],
            .first_x = (i / conv.out * conv.in + group * conv.channels) * plane,
            .first_weight = output * kernel,
        };
        const double start = bias ? berth_load_at(berth_data(bias), bias->dtype, output) : 0;
        for (int64_t j = 0; j < positions; ++j) {
            berth_conv_split(conv.positions, j, at.position);
            berth_store_at(berth_data(y), y->dtype, i * positions + j,
                           (float)(patch_sum(&conv, &at) + start));
        }
    }
    return BERTH_OK;
}

// ---- schema -------------------------------------------------------------------------------------

static const int64_t conv_one = 1;
static const int64_t conv_zero = 0;

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_OPTIONAL_INPUT("bias"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("stride", BERTH_ATTRIBUTE_I64S, .i64s = &conv_one, .count = 1),
    BERTH_OPTIONAL_ATTRIBUTE("padding", BERTH_ATTRIBUTE_I64S, .i64s = &conv_zero, .count = 1),
    BERTH_OPTIONAL_ATTRIBUTE("dilation", BERTH_ATTRIBUTE_I64S, .i64s = &conv_one, .count = 1),
    BERTH_OPTIONAL_ATTRIBUTE("groups", BERTH_ATTRIBUTE_I64, .i64 = 1),
};

#endif
