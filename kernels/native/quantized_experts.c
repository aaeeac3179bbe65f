// SPDX-License-Identifier: Apache-2.0
// quantized_experts: the experts of a mixture (moe.h) whose weights are codes, each token's choice
// of them weighed and added up. The inputs of both products are quantized too, or left as floats.
//
//   x                [tokens, hidden]             f32, f16 or bf16
//   w13_weight       [experts, 2 inter, hidden]   codes, as of packed_linear; `inter` rows without
//                                                 a gate
//   w13_scale        [experts, ceil(2 inter / rows), ceil(hidden / columns)]  f32, f16 or bf16
//   w2_weight        [experts, hidden, inter]     codes, with w2_scale as above
//   topk_weights     [tokens, k]                  f32
//   topk_ids         [tokens, k]                  i32 or i64; −1: no expert
//   w13_bias         [experts, 2 inter]           optional, as w2_bias [experts, hidden]
//   w13_zero_points  like w13_scale, u8           optional, of u4 and u8, as w2_zero_points
//   w13_input_scale  f32 [1]                      of static inputs, as w2_input_scale; with
//                                                 has_global_scales f32 [experts], divisors
//   w13_permutation  i32 [experts, hidden]        optional, beside floats: the input that column k
//                                                 of an expert's matrices is for; as
//                                                 w2_permutation [experts, inter]
//   y                like x
//
// `code`: "u4", "u8", "e2m1", "i8" or "e4m3". `group_shape` [rows, columns] of both scales, −1:
// all. `input`: "float"; "token", "group" or "static": both inputs become codes by the rules of
// quant_fp8 beside e4m3, of quant_int8 beside i8 and u4, by one scale a row, one for the columns of
// a group, or the given one; with `has_global_scales` (0) "group" is the rule of quant_nvfp4,
// beside e2m1 in groups of 16. What is multiplied is x for the first product and the activation for
// the second. Sums are those of scaled_linear; roundings in between are those of fused_moe.
#include <berth/op.h>

#include "codes_product.h"
#include "codes_rules.h"
#include "moe_rules.h"

#include <codes_input.h>

enum {
    X,
    W13_WEIGHT,
    W13_SCALE,
    W2_WEIGHT,
    W2_SCALE,
    TOPK_WEIGHTS,
    TOPK_IDS,
    W13_BIAS,
    W2_BIAS,
    W13_ZERO_POINTS,
    W2_ZERO_POINTS,
    W13_INPUT_SCALE,
    W2_INPUT_SCALE,
    W13_PERMUTATION,
    W2_PERMUTATION,
};
enum { CODE, GROUP_SHAPE, INPUT };

// ---- shape rule ---------------------------------------------------------------------------------

// Where the op has one of the two stacks of matrices among its inputs.
typedef struct stack_inputs {
    uint64_t weight;
    uint64_t scale;
    uint64_t bias;
    uint64_t zeros;
    uint64_t input_scale;
    uint64_t permutation;
} stack_inputs;

static const stack_inputs stacks[] = {
    {W13_WEIGHT, W13_SCALE, W13_BIAS, W13_ZERO_POINTS, W13_INPUT_SCALE, W13_PERMUTATION},
    {W2_WEIGHT,  W2_SCALE,  W2_BIAS,  W2_ZERO_POINTS,  W2_INPUT_SCALE,  W2_PERMUTATION },
};

static berth_status check_input_rule(const berth_op_site *site) {
    const berth_code code = berth_code_of(site->attributes[CODE]->str);
    const codes_rule rule = codes_rule_of(site);
    if (rule == CODES_INPUT_NONE) {
        return BERTH_RULE_ATTRIBUTE(site, INPUT, "must be float, token, group or static, is '%s'",
                                    site->attributes[INPUT]->str);
    }
    const int is_e4m3 = code == BERTH_CODE_E4M3;
    const int is_i8 = code == BERTH_CODE_I8 || code == BERTH_CODE_U4;
    const int is_nvfp4 = rule == CODES_INPUT_NVFP4;
    const int is_known = is_e4m3 || (is_i8 && rule != CODES_INPUT_GROUP);
    if (is_nvfp4 &&
        (code != BERTH_CODE_E2M1 || site->attributes[GROUP_SHAPE]->i64s[1] != BERTH_NVFP4_GROUP)) {
        return BERTH_RULE_ATTRIBUTE(site, INPUT, "with global scales is for e2m1 in groups of %d",
                                    BERTH_NVFP4_GROUP);
    }
    if (rule != CODES_INPUT_FLOAT && !is_nvfp4 && !is_known) {
        return BERTH_RULE_ATTRIBUTE(site, INPUT, "is '%s', which codes '%s' do not have",
                                    site->attributes[INPUT]->str, site->attributes[CODE]->str);
    }
    return BERTH_OK;
}

static berth_status check_input_scale(const berth_op_site *site, uint64_t input,
                                      berth_dim experts) {
    const int is_nvfp4 = codes_rule_of(site) == CODES_INPUT_NVFP4;
    const int is_given = is_nvfp4 || codes_rule_of(site) == CODES_INPUT_STATIC;
    if (is_given != (site->inputs[input] != NULL)) {
        return BERTH_RULE_FAIL(site, input, "%s",
                               is_given ? "is missing, which static inputs and global scales need"
                                        : "is for static inputs and global scales only");
    }
    BERTH_RULE_TRY(berth_rule_f32(site, input));
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, is_nvfp4 ? experts : BERTH_DIM_CONST(1));
}

static berth_status check_permutation(const berth_op_site *site, uint64_t input, berth_dim experts,
                                      int64_t k) {
    const berth_value_type *type = site->inputs[input];
    if (type && (type->dtype != BERTH_DTYPE_I32 || codes_rule_of(site) != CODES_INPUT_FLOAT)) {
        return BERTH_RULE_FAIL(site, input, "must be i32, beside inputs in floats");
    }
    BERTH_RULE_TRY(berth_rule_rank(site, input, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, experts));
    return berth_rule_dim(site, input, 1, BERTH_DIM_CONST(k));
}

// As many matrices as `experts`, [n, k], with what belongs to them.
static berth_status check_stack(const berth_op_site *site, const stack_inputs *at,
                                berth_dim experts, int64_t n, int64_t k) {
    BERTH_RULE_TRY(berth_rule_rank(site, at->weight, 3));
    BERTH_RULE_TRY(berth_rule_dim(site, at->weight, 0, experts));
    BERTH_RULE_TRY(berth_rule_dim(site, at->weight, 1, BERTH_DIM_CONST(n)));
    BERTH_RULE_TRY(codes_check_codes(site, at->weight, CODE, k));
    BERTH_RULE_TRY(berth_rule_float(site, at->scale));
    BERTH_RULE_TRY(berth_rule_rank(site, at->scale, 3));
    BERTH_RULE_TRY(berth_rule_dim(site, at->scale, 0, experts));
    BERTH_RULE_TRY(codes_check_groups(site, at->scale, n, k));
    BERTH_RULE_TRY(codes_check_zero_points(site, at->zeros, at->scale, CODE));
    BERTH_RULE_TRY(berth_rule_float(site, at->bias));
    BERTH_RULE_TRY(berth_rule_rank(site, at->bias, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, at->bias, 0, experts));
    BERTH_RULE_TRY(berth_rule_dim(site, at->bias, 1, BERTH_DIM_CONST(n)));
    BERTH_RULE_TRY(check_permutation(site, at->permutation, experts, k));
    if (codes_rule_of(site) == CODES_INPUT_NVFP4 && k % BERTH_NVFP4_GROUP != 0) {
        return BERTH_RULE_FAIL(site, at->weight, "has %lld inputs, which are no groups of %d",
                               (long long)k, BERTH_NVFP4_GROUP);
    }
    return check_input_scale(site, at->input_scale, experts);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *x = site->inputs[X];
    const berth_value_type *w13 = site->inputs[W13_WEIGHT];
    BERTH_RULE_TRY(moe_check_activation(site));
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, X, 2));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, W13_WEIGHT, 3));
    BERTH_RULE_TRY(berth_rule_constant(site, W13_WEIGHT, 0));
    BERTH_RULE_TRY(berth_rule_constant(site, W13_WEIGHT, 1));
    BERTH_RULE_TRY(codes_check_group_shape(site, GROUP_SHAPE));
    const int64_t hidden = berth_last_dim(x).b;
    const int64_t rows = w13->dims[1].b;
    const int64_t halves = 1 + berth_moe_has_gate(berth_moe_read(site).activation);
    if (rows % halves != 0) {
        return BERTH_RULE_FAIL(site, W13_WEIGHT, "must have an even number of rows beside a gate");
    }
    BERTH_RULE_TRY(check_stack(site, &stacks[0], w13->dims[0], rows, hidden));
    BERTH_RULE_TRY(check_stack(site, &stacks[1], w13->dims[0], hidden, rows / halves));
    BERTH_RULE_TRY(check_input_rule(site));
    BERTH_RULE_TRY(moe_check_routing(site, x->dims[0], TOPK_WEIGHTS, TOPK_IDS));
    berth_rule_give(out, x);
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// One of the two matrices of all experts.
typedef struct stack {
    codes_matrix matrix; // of expert 0
    int64_t n;
    int64_t groups; // of rows
    const berth_tensor *bias;
    codes_rule rule;
    const berth_tensor *permutation;
    const float *given; // NULL: scales are made
    float *floats;      // [k], room for the input
    float *numbers;     // [k], what an expert makes of it
    float *scales;      // [k], and for its scales
} stack;

typedef struct experts {
    berth_moe moe;
    berth_dtype dtype; // of x
    int64_t hidden;
    int64_t width; // of the activation
    stack w13;
    stack w2;
    float *inner; // [rows of w13]
    float *y;     // [hidden]
    float *sum;   // [hidden]
} experts;

static int64_t rows_of_w13(const berth_op_site *site) {
    return site->inputs[W13_WEIGHT]->dims[1].b;
}

static int64_t width_of(const berth_op_site *site) {
    const int has_gate = berth_moe_has_gate(berth_moe_read(site).activation);
    return rows_of_w13(site) / (1 + has_gate);
}

static uint64_t reference_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    const int64_t hidden = berth_last_dim(site->inputs[X]).b;
    return (uint64_t)(5 * hidden + 3 * width_of(site) + rows_of_w13(site)) * sizeof(float);
}

// Its three parts of the room are one behind the other.
static stack stack_of(const berth_op_site *site, const berth_op_args *args, int which,
                      float *room) {
    const stack_inputs *at = &stacks[which];
    const int64_t k = which == 0 ? berth_row_length(args->inputs[X]) : width_of(site);
    const berth_tensor *given = args->inputs[at->input_scale];
    const berth_tensor *weight = args->inputs[at->weight];
    const berth_tensor *scale = args->inputs[at->scale];
    const int64_t n = weight->shape[1];
    return (stack){
        .matrix =
            {
                     .code = berth_code_of(site->attributes[CODE]->str),
                     .weight = weight,
                     .zeros = args->inputs[at->zeros],
                     .scales = berth_code_scales_of(site, scale, n, k),
                     .width = k,
                     },
        .n = n,
        .groups = scale->shape[1],
        .bias = args->inputs[at->bias],
        .rule = codes_rule_of(site),
        .permutation = args->inputs[at->permutation],
        .given = given ? berth_data(given) : NULL,
        .floats = room,
        .numbers = room + k,
        .scales = room + 2 * k,
    };
}

static experts read(const berth_op_site *site, const berth_op_args *args) {
    const int64_t hidden = berth_row_length(args->inputs[X]);
    float *room = berth_data(args->workspace);
    return (experts){
        .moe = berth_moe_read(site),
        .dtype = args->inputs[X]->dtype,
        .hidden = hidden,
        .width = width_of(site),
        .w13 = stack_of(site, args, 0, room + 2 * hidden),
        .w2 = stack_of(site, args, 1, room + 5 * hidden),
        .sum = room,
        .y = room + hidden,
        .inner = room + 5 * hidden + 3 * width_of(site),
    };
}

static int has_groups(const stack *self) {
    return self->rule == CODES_INPUT_GROUP || self->rule == CODES_INPUT_NVFP4;
}

// The numbers at hand as the codes that they become.
static void quantise(const stack *self, int64_t expert) {
    const int64_t k = self->matrix.width;
    const int64_t step = has_groups(self) ? self->matrix.scales.columns : k;
    for (int64_t first = 0; first < k && self->rule != CODES_INPUT_FLOAT; first += step) {
        const int64_t count = k - first < step ? k - first : step;
        float *numbers = self->numbers + first;
        float *scale = self->scales + first / step;
        if (self->rule == CODES_INPUT_NVFP4) {
            codes_to_e2m1(self->given[expert], numbers, scale);
            continue;
        }
        *scale = self->given ? *self->given : 0;
        (self->matrix.code == BERTH_CODE_E4M3 ? codes_to_e4m3 : codes_to_i8)(self->rule, numbers,
                                                                             count, scale);
    }
}

// The floats at hand as the columns of an expert's matrix, and as its codes.
static void prepare(const stack *self, int64_t expert) {
    const int32_t *from = self->permutation ? berth_row(self->permutation, expert) : NULL;
    for (int64_t k = 0; k < self->matrix.width; ++k) {
        self->numbers[k] = self->floats[from ? from[k] : k];
    }
    quantise(self, expert);
}

// What an expert's matrix makes of the floats at hand, as a store would keep it.
static void multiply(const stack *self, int64_t expert, berth_dtype dtype, float *to) {
    const codes_input input = {
        .numbers = self->numbers,
        .scales = self->scales,
        .scale_count = self->rule == CODES_INPUT_FLOAT ? 0
                       : has_groups(self)              ? self->matrix.scales.tensor->shape[2]
                                                       : 1,
    };
    prepare(self, expert);
    codes_matrix matrix = self->matrix;
    matrix.row = expert * self->n;
    matrix.group = expert * self->groups;
    for (int64_t n = 0; n < self->n; ++n) {
        const float start =
            self->bias ? berth_load_at(berth_row(self->bias, expert), self->bias->dtype, n) : 0;
        to[n] = berth_round_to(dtype, (float)((double)start + codes_multiply(&matrix, n, &input)));
    }
}

// y of an expert for the input that w13 has at hand.
static void run_expert(const experts *self, int64_t expert) {
    const int is_in_turns = self->moe.activation == BERTH_MOE_SWIGLUOAI;
    const int has_gate = berth_moe_has_gate(self->moe.activation);
    multiply(&self->w13, expert, self->dtype, self->inner);
    for (int64_t i = 0; i < self->width; ++i) {
        const float gate = self->inner[is_in_turns ? 2 * i : i];
        const float up = !has_gate ? 0 : self->inner[is_in_turns ? 2 * i + 1 : self->width + i];
        self->w2.floats[i] = berth_round_to(self->dtype, berth_moe_activate(&self->moe, gate, up));
    }
    multiply(&self->w2, expert, self->dtype, self->y);
}

// Adds weight · expert(x) of one choice; of the only one where that multiplies x first.
static void add_choice(const experts *self, int64_t expert, float weight) {
    const int is_first = self->moe.is_weighted_first;
    if (is_first) {
        const float factor = berth_round_to(self->dtype, weight);
        for (int64_t i = 0; i < self->hidden; ++i) {
            self->w13.floats[i] = berth_round_to(self->dtype, self->w13.floats[i] * factor);
        }
    }
    run_expert(self, expert);
    for (int64_t i = 0; i < self->hidden; ++i) {
        self->sum[i] += is_first ? self->y[i] : self->y[i] * weight;
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *ids = args->inputs[TOPK_IDS];
    const experts all = read(site, args);
    for (int64_t token = 0; token < berth_row_count(x); ++token) {
        memset(all.sum, 0, (size_t)all.hidden * sizeof *all.sum);
        berth_load(berth_row(x, token), x->dtype, 0, all.hidden, all.w13.floats);
        for (int64_t i = 0; i < ids->shape[1]; ++i) {
            const int64_t expert =
                berth_moe_expert(ids, NULL, token, i, all.w13.matrix.weight->shape[0]);
            if (expert == -2) {
                return berth_moe_no_expert(site->host, site->op->name, token);
            }
            if (expert >= 0) {
                const float *weights = berth_row(args->inputs[TOPK_WEIGHTS], token);
                add_choice(&all, expert, weights[i]);
            }
        }
        berth_store(berth_row(args->outputs[0], token), x->dtype, 0, all.hidden, all.sum);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("w13_weight"),
    BERTH_INPUT("w13_scale"),
    BERTH_INPUT("w2_weight"),
    BERTH_INPUT("w2_scale"),
    BERTH_INPUT("topk_weights"),
    BERTH_INPUT("topk_ids"),
    BERTH_OPTIONAL_INPUT("w13_bias"),
    BERTH_OPTIONAL_INPUT("w2_bias"),
    BERTH_OPTIONAL_INPUT("w13_zero_points"),
    BERTH_OPTIONAL_INPUT("w2_zero_points"),
    BERTH_OPTIONAL_INPUT("w13_input_scale"),
    BERTH_OPTIONAL_INPUT("w2_input_scale"),
    BERTH_LATER_INPUT("w13_permutation", 2),
    BERTH_LATER_INPUT("w2_permutation", 2),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("code", BERTH_ATTRIBUTE_STR),
    BERTH_REQUIRED_ATTRIBUTE("group_shape", BERTH_ATTRIBUTE_I64S),
    BERTH_REQUIRED_ATTRIBUTE("input", BERTH_ATTRIBUTE_STR),
    MOE_ACTIVATION_ATTRIBUTES,
    MOE_WEIGHTED_FIRST_ATTRIBUTE,
    BERTH_LATER_ATTRIBUTE("has_global_scales", BERTH_ATTRIBUTE_BOOL, 2),
};

const berth_op berth_op_quantized_experts = {
    .size = sizeof(berth_op),
    .name = "quantized_experts",
    .class_name = "QuantizedExperts",
    .revision = 2,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = reference_workspace,
    .compatible_revision = 1,
};
