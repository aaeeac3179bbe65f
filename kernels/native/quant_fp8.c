// SPDX-License-Identifier: Apache-2.0
// quant_fp8: q = x / scale in f8_e4m3fn, saturated at ±448; the scale is given (`static`) or made
// from the largest magnitude of what shares it.
//
//   x         [..., k]  f32, f16 or bf16
//   scale     f32       with `static` only: one element; [rows], [k], or [rows / r, k / c]
//   scale_ub  f32 [1]   optional, dynamic per token: bounds the magnitude that makes the scale
//   q         like x    f8_e4m3fn; rows of zeros up to `num_token_padding`
//   scale     f32       what was used: [1] per tensor, [..., 1] per token, [..., ceil(k / c)] per
//                       group, the given one, as two dimensions unless it is one element per tensor
//
// `group_shape` [r, c]: rows and columns that share a scale, −1 for all. [−1, −1] per tensor, [1,
// −1] per token, [1, c] per group; with `static` also [−1, 1] per channel and blocks.
// `column_major_scales`: the scales of groups are [..., groups, rows], so that those of a group lie
// together. `use_ue8m0`: scales of groups are powers of two. `tma_aligned_scales` changes nothing.
//
// Rounding: vLLM's QuantFP8.forward_native. A scale is amax / 448, at least 1 / (448 · 512); groups
// divide by it, all others multiply by its reciprocal. vLLM's device kernels divide per token, have
// no least scale per tensor, one of 1e-10 / 448 per group, and make a finite code of a NaN, which
// stays one here; a kernel may do so. The codes are e4m3fn up to ±448 everywhere; vLLM has fnuz
// codes up to ±224 on one generation of ROCm devices.
#include <berth/op.h>

#include "rules.h"

#include <fp8.h>

enum { X, SCALE, SCALE_UB };
enum { Q, SCALE_OUT };
enum {
    STATIC,
    GROUP_SHAPE,
    NUM_TOKEN_PADDING,
    COLUMN_MAJOR_SCALES,
    TMA_ALIGNED_SCALES,
    USE_UE8M0,
};

// ---- shape rule ---------------------------------------------------------------------------------

static int64_t group_of(const berth_op_site *site, int dim) {
    return site->attributes[GROUP_SHAPE]->i64s[dim];
}

static int is_static(const berth_op_site *site) {
    return site->attributes[STATIC]->i64 != 0;
}

static berth_status check_group_shape(const berth_op_site *site) {
    const berth_attribute *shape = site->attributes[GROUP_SHAPE];
    if (shape->count != 2 || shape->i64s[0] == 0 || shape->i64s[1] == 0 || shape->i64s[0] < -1 ||
        shape->i64s[1] < -1) {
        return BERTH_RULE_ATTRIBUTE(site, GROUP_SHAPE, "must be two sizes, each -1 or at least 1");
    }
    const int is_per_tensor = shape->i64s[0] == -1 && shape->i64s[1] == -1;
    if (!is_static(site) && !is_per_tensor && shape->i64s[0] != 1) {
        return BERTH_RULE_ATTRIBUTE(site, GROUP_SHAPE,
                                    "must be [-1, -1] or [1, columns] without 'static'");
    }
    return BERTH_OK;
}

// How many groups there are along a dimension of x. Constant dimensions must divide.
static berth_status groups_along(const berth_op_site *site, int dim, berth_dim *out) {
    const int64_t group = group_of(site, dim);
    const berth_dim all = site->inputs[X]->dims[dim];
    if (group < 1) { // all of them
        *out = BERTH_DIM_CONST(1);
        return BERTH_OK;
    }
    *out = (berth_dim){all.symbol, all.a, all.b, all.c * group};
    if (all.symbol == BERTH_SYMBOL_NONE) {
        *out = BERTH_DIM_CONST(all.b / group);
        return all.b % group == 0 ? BERTH_OK
                                  : BERTH_RULE_ATTRIBUTE(site, GROUP_SHAPE,
                                                         "must divide 'x': %lld is no multiple of "
                                                         "%lld",
                                                         (long long)all.b, (long long)group);
    }
    return BERTH_OK;
}

static int is_one_element(const berth_value_type *type) {
    for (uint32_t dim = 0; dim < type->ndim; ++dim) {
        if (!berth_dim_is(type->dims[dim], BERTH_DIM_CONST(1))) {
            return 0;
        }
    }
    return 1;
}

// The given scale as [rows / r, k / c].
static berth_status infer_static(const berth_op_site *site, berth_value_type *out) {
    const berth_value_type *scale = site->inputs[SCALE];
    berth_dim groups[2];
    if (group_of(site, 0) == -1 && group_of(site, 1) == -1 && is_one_element(scale)) {
        return BERTH_OK;
    }
    BERTH_RULE_TRY(berth_rule_rank(site, X, 2));
    BERTH_RULE_TRY(groups_along(site, 0, &groups[0]));
    BERTH_RULE_TRY(groups_along(site, 1, &groups[1]));
    out->ndim = 2;
    out->dims[0] = groups[0];
    out->dims[1] = groups[1];
    if (is_one_element(scale)) { // for every group
        out->dims[0] = out->dims[1] = BERTH_DIM_CONST(1);
        return BERTH_OK;
    }
    if (scale->ndim == 1) {
        return berth_rule_dim(site, SCALE, 0, groups[group_of(site, 0) == -1]);
    }
    BERTH_RULE_TRY(berth_rule_rank(site, SCALE, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, SCALE, 0, groups[0]));
    return berth_rule_dim(site, SCALE, 1, groups[1]);
}

static berth_status infer_groups(const berth_op_site *site, berth_value_type *out) {
    const int64_t size = group_of(site, 1);
    const uint32_t last = out->ndim - 1;
    out->dims[last] = BERTH_DIM_CONST((out->dims[last].b + size - 1) / size);
    if (site->attributes[COLUMN_MAJOR_SCALES]->i64) {
        if (last < 1) {
            return BERTH_RULE_FAIL(site, X, "must have at least 2 dimensions, has 1");
        }
        const berth_dim groups = out->dims[last];
        out->dims[last] = out->dims[last - 1];
        out->dims[last - 1] = groups;
    }
    return BERTH_OK;
}

static berth_status infer_scale(const berth_op_site *site, berth_value_type *out) {
    out->dtype = BERTH_DTYPE_F32;
    if (is_static(site)) {
        return infer_static(site, out);
    }
    if (group_of(site, 1) > 0) {
        return infer_groups(site, out);
    }
    if (group_of(site, 0) == -1) {
        out->ndim = 1;
    }
    out->dims[out->ndim - 1] = BERTH_DIM_CONST(1);
    return BERTH_OK;
}

static berth_status check_scales(const berth_op_site *site) {
    if (is_static(site) != (site->inputs[SCALE] != NULL)) {
        return BERTH_RULE_FAIL(site, SCALE, "%s",
                               is_static(site) ? "is missing, which 'static' needs"
                                               : "is for 'static' only");
    }
    BERTH_RULE_TRY(berth_rule_f32(site, SCALE));
    const berth_value_type *bound = site->inputs[SCALE_UB];
    if (bound && (is_static(site) || group_of(site, 0) != 1 || group_of(site, 1) != -1)) {
        return BERTH_RULE_FAIL(site, SCALE_UB, "is for dynamic scales per token only");
    }
    BERTH_RULE_TRY(berth_rule_f32(site, SCALE_UB));
    return bound && !is_one_element(bound) ? BERTH_RULE_FAIL(site, SCALE_UB, "must be one element")
                                           : BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(check_group_shape(site));
    BERTH_RULE_TRY(check_scales(site));
    const berth_attribute *padding = site->attributes[NUM_TOKEN_PADDING];
    berth_value_type *q = berth_rule_give(out, site->inputs[X]);
    q->dtype = BERTH_DTYPE_F8_E4M3FN;
    if (padding->kind != BERTH_ATTRIBUTE_NONE) {
        BERTH_RULE_TRY(berth_rule_rank(site, X, 2));
        if (padding->i64 < 0) {
            return BERTH_RULE_ATTRIBUTE(site, NUM_TOKEN_PADDING, "must not be negative, is %lld",
                                        (long long)padding->i64);
        }
        if (q->dims[0].symbol != BERTH_SYMBOL_NONE) {
            return BERTH_RULE_ATTRIBUTE(site, NUM_TOKEN_PADDING, "needs a constant number of rows");
        }
        q->dims[0].b = q->dims[0].b < padding->i64 ? padding->i64 : q->dims[0].b;
    }
    return infer_scale(site, berth_rule_give(out, site->inputs[is_static(site) ? SCALE : X]));
}

// ---- reference ----------------------------------------------------------------------------------

static float largest_of(const berth_tensor *x, int64_t row, int64_t first, int64_t end) {
    float largest = 0;
    for (int64_t i = first; i < end; ++i) {
        largest = berth_max_or_nan(fabsf(berth_load_at(berth_row(x, row), x->dtype, i)), largest);
    }
    return largest;
}

// Columns [first, end) of a row, multiplied.
static void quantise(const berth_op_args *args, int64_t row, int64_t first, int64_t end,
                     float factor) {
    const berth_tensor *x = args->inputs[X];
    uint8_t *q = berth_row(args->outputs[Q], row);
    for (int64_t i = first; i < end; ++i) {
        q[i] = berth_to_f8(berth_load_at(berth_row(x, row), x->dtype, i) * factor);
    }
}

// Where the scale of a group of a row is; by column a matrix [groups, rows] for every [rows, k] of
// x.
static float *scale_of(const berth_op_site *site, const berth_tensor *scales, int64_t row,
                       int64_t group) {
    if (!site->attributes[COLUMN_MAJOR_SCALES]->i64) {
        return (float *)berth_row(scales, row) + group;
    }
    const int64_t rows = berth_row_length(scales);
    const int64_t groups = scales->shape[scales->ndim - 2];
    return (float *)berth_row(scales, row / rows * groups + group) + row % rows;
}

static void quantise_groups(const berth_op_site *site, const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scales = args->outputs[SCALE_OUT];
    const int64_t size = group_of(site, 1);
    const int64_t width = berth_row_length(x);
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        for (int64_t first = 0; first < width; first += size) {
            const int64_t end = first + size < width ? first + size : width;
            float scale = berth_f8_scale(largest_of(x, row, first, end));
            if (site->attributes[USE_UE8M0]->i64) {
                scale = berth_f8_power_of_two(scale);
            }
            *scale_of(site, scales, row, first / size) = scale;
            uint8_t *q = berth_row(args->outputs[Q], row);
            for (int64_t i = first; i < end; ++i) {
                q[i] = berth_to_f8(berth_load_at(berth_row(x, row), x->dtype, i) / scale);
            }
        }
    }
}

static void quantise_tokens(const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *bound = args->inputs[SCALE_UB];
    const int64_t width = berth_row_length(x);
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        float largest = largest_of(x, row, 0, width);
        if (bound && largest > *(const float *)berth_data(bound)) {
            largest = *(const float *)berth_data(bound);
        }
        const float scale = berth_f8_scale(largest);
        *(float *)berth_row(args->outputs[SCALE_OUT], row) = scale;
        quantise(args, row, 0, width, 1.0f / scale);
    }
}

static void quantise_tensor(const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const int64_t width = berth_row_length(x);
    float largest = 0;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        largest = berth_max_or_nan(largest_of(x, row, 0, width), largest);
    }
    const float scale = berth_f8_scale(largest);
    *(float *)berth_data(args->outputs[SCALE_OUT]) = scale;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        quantise(args, row, 0, width, 1.0f / scale);
    }
}

// Every scale is for a block of x; the blocks of one dimension are equally many rows or columns.
static void quantise_blocks(const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scales = args->outputs[SCALE_OUT];
    const int is_one = scales->ndim < 2;
    const int64_t rows = berth_row_count(x);
    const int64_t width = berth_row_length(x);
    const int64_t down = is_one || scales->shape[0] == 0 ? 1 : scales->shape[0];
    const int64_t across = is_one ? 1 : scales->shape[1];
    const float *given = berth_data(args->inputs[SCALE]);
    float *used = berth_data(scales);
    memcpy(used, given,
           (size_t)(berth_row_count(scales) * berth_row_length(scales)) * sizeof *used);
    const int64_t height = (rows + down - 1) / down;
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < width; ++i) {
            const float scale = used[row / height * across + i / (width / across)];
            quantise(args, row, i, i + 1, 1.0f / scale);
        }
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *q = args->outputs[Q];
    for (int64_t row = berth_row_count(args->inputs[X]); row < berth_row_count(q); ++row) {
        memset(berth_row(q, row), 0, (size_t)berth_row_length(q));
    }
    if (is_static(site)) {
        quantise_blocks(args);
    } else if (group_of(site, 1) > 0) {
        quantise_groups(site, args);
    } else if (group_of(site, 0) == 1) {
        quantise_tokens(args);
    } else {
        quantise_tensor(args);
    }
    return BERTH_OK;
}

// But for one scale that is made of all of x.
static uint64_t is_rowwise(const berth_op_site *site) {
    return is_static(site) || group_of(site, 0) == 1;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_OPTIONAL_INPUT("scale"),
    BERTH_OPTIONAL_INPUT("scale_ub"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("static", BERTH_ATTRIBUTE_BOOL),
    BERTH_REQUIRED_ATTRIBUTE("group_shape", BERTH_ATTRIBUTE_I64S),
    BERTH_ABSENT_ATTRIBUTE("num_token_padding", BERTH_ATTRIBUTE_I64),
    BERTH_OPTIONAL_ATTRIBUTE("column_major_scales", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("tma_aligned_scales", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("use_ue8m0", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
};

const berth_op berth_op_quant_fp8 = {
    .size = sizeof(berth_op),
    .name = "quant_fp8",
    .class_name = "QuantFP8",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = is_rowwise,
};
