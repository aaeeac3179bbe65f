// SPDX-License-Identifier: Apache-2.0
// Input: a chain that ends in a linear layer. Output: the fused op in its place. Its inputs and
// attributes have the names of those whose places they take, but for the few that two ops of a
// chain have, so both lists are gone through by name.
#include "product.h"

// The links of a chain, as numbers of the match; absent ones are NONE.
#define NONE UINT64_MAX
typedef struct chain {
    const berth_pass_match *match;
    uint64_t norm;
    uint64_t activation;
    uint64_t quantizer;
    uint64_t product;
} chain;

static int is_op(const chain *of, uint64_t node, const char *op) {
    return node != NONE && strcmp(of->match->sites[node]->op->name, op) == 0;
}

static chain read_chain(const berth_pass_match *match) {
    chain of = {match, NONE, NONE, NONE, match->node_count - 1};
    for (uint64_t i = 0; i < of.product; ++i) {
        *(is_op(&of, i, "rms_norm")       ? &of.norm
          : is_op(&of, i, "silu_and_mul") ? &of.activation
                                          : &of.quantizer) = i;
    }
    return of;
}

// ---- whether the fused op is it -----------------------------------------------------------------

static int is_set(const chain *of, uint64_t node, const char *attribute) {
    const berth_attribute *found = berth_pass_attribute(of->match, node, attribute);
    return found && found->i64 != 0;
}

static int is_given(const chain *of, uint64_t node, const char *input) {
    return berth_pass_value(of->match, node, input) != BERTH_VALUE_NONE;
}

static int is_plain_norm(const chain *of) {
    return !is_given(of, of->norm, "bias") &&
           !berth_pass_attribute(of->match, of->norm, "var_hidden_size");
}

// One scale for every row that is made of it, or a given one for all.
static int is_plain_quantizer(const chain *of) {
    const berth_value_type *scale = berth_pass_type(of->match, of->quantizer, "scale");
    const berth_attribute *groups = berth_pass_attribute(of->match, of->quantizer, "group_shape");
    const int64_t rows = scale ? -1 : 1;
    if (scale && scale->ndim != 1) {
        return 0;
    }
    return is_op(of, of->quantizer, "quant_int8") ||
           (groups && groups->i64s[0] == rows && groups->i64s[1] == -1 &&
            !is_given(of, of->quantizer, "scale_ub") &&
            !berth_pass_attribute(of->match, of->quantizer, "num_token_padding") &&
            !is_set(of, of->quantizer, "column_major_scales") &&
            !is_set(of, of->quantizer, "use_ue8m0"));
}

// ---- its inputs and attributes ------------------------------------------------------------------

typedef struct fused_op {
    const char *product; // that it ends in
    const char *name;
    const char *inputs[BERTH_MAX_INPUTS]; // in its order
} fused_op;

static const fused_op fused_ops[] = {
    {"linear",        "fused_linear", {"x", "weight", "residual", "norm_weight", "bias"}},
    {"packed_linear",
     "fused_packed_linear",           {"x", "weight", "weight_scale", "zero_points", "permutation", "residual", "norm_weight",
      "bias"}                                                },
    {"scaled_linear",
     "fused_scaled_linear",           {"x", "weight", "weight_scale", "residual", "norm_weight", "input_scale", "input_zero_point",
      "sum_bias", "bias"}                                    },
};

static const fused_op *find_fused(const chain *of) {
    for (size_t i = 0; i < sizeof fused_ops / sizeof fused_ops[0]; ++i) {
        if (is_op(of, of->product, fused_ops[i].product)) {
            return &fused_ops[i];
        }
    }
    return NULL;
}

// Whether the fused op has a place for every input of the product; x_scale is the quantizer's.
static int has_places(const chain *of, const fused_op *fused) {
    const berth_op *op = of->match->sites[of->product]->op;
    int has_all = 1;
    for (uint64_t i = 0; i < op->input_count; ++i) {
        const char *name = op->inputs[i]->name;
        int has_place = strcmp(name, "x_scale") == 0 || !is_given(of, of->product, name);
        for (uint64_t k = 0; k < BERTH_MAX_INPUTS && fused->inputs[k]; ++k) {
            has_place |= strcmp(fused->inputs[k], name) == 0;
        }
        has_all &= has_place;
    }
    return has_all;
}

// Which link has the input, and under which name; every other input is the product's.
typedef struct origin {
    const char *input;
    uint64_t node;
    const char *name;
} origin;

static berth_value find_input(const chain *of, const char *input) {
    const origin origins[] = {
        {"x",                0,             "x"         },
        {"residual",         of->norm,      "residual"  },
        {"norm_weight",      of->norm,      "weight"    },
        {"input_scale",      of->quantizer, "scale"     },
        {"input_zero_point", of->quantizer, "zero_point"},
    };
    for (size_t i = 0; i < sizeof origins / sizeof origins[0]; ++i) {
        if (strcmp(origins[i].input, input) == 0) {
            return origins[i].node == NONE
                       ? BERTH_VALUE_NONE
                       : berth_pass_value(of->match, origins[i].node, origins[i].name);
        }
    }
    return berth_pass_value(of->match, of->product, input);
}

// Those of the product that are set, then those of what stands before it.
#define MAX_ATTRIBUTES 8
static uint64_t copy_attributes(const chain *of, const berth_attribute **out) {
    uint64_t count = berth_pass_attributes(of->match, of->product, out, MAX_ATTRIBUTES - 3);
    if (of->norm != NONE) {
        out[count++] = berth_pass_attribute(of->match, of->norm, "eps");
    }
    return count;
}

// ---- the rewrite --------------------------------------------------------------------------------

static void emit(const chain *of, const fused_op *fused, berth_builder *builder) {
    const berth_attribute *attributes[MAX_ATTRIBUTES];
    berth_value inputs[BERTH_MAX_INPUTS] = {BERTH_VALUE_NONE};
    berth_value outputs[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    const int has_residual = of->norm != NONE && is_given(of, of->norm, "residual");
    const int64_t groups[] = {find_input(of, "input_scale") == BERTH_VALUE_NONE ? 1 : -1, -1};
    uint64_t input_count = 0;
    const berth_attribute *const prologue =
        BERTH_TEXT("prologue", of->norm != NONE         ? "rms_norm"
                               : of->activation != NONE ? "silu_and_mul"
                                                        : "none");
    const berth_attribute *const input_groups = BERTH_I64S("input_group_shape", groups, 2);
    uint64_t count = copy_attributes(of, attributes);
    attributes[count++] = prologue;
    if (of->quantizer != NONE) {
        attributes[count++] = input_groups;
    }
    while (input_count < BERTH_MAX_INPUTS && fused->inputs[input_count]) {
        inputs[input_count] = find_input(of, fused->inputs[input_count]);
        ++input_count;
    }
    (void)builder->op(builder, &(const berth_call){
                                   .size = sizeof(berth_call),
                                   .name = fused->name,
                                   .prefix = of->match->sites[of->product]->layer,
                                   .inputs = inputs,
                                   .input_count = input_count,
                                   .attributes = attributes,
                                   .attribute_count = count,
                                   .outputs = outputs,
                                   .output_count = has_residual ? 2 : 1,
                               });
    of->match->replace(of->match, of->match->outputs[of->product][0], outputs[0]);
    if (has_residual) {
        of->match->replace(of->match, of->match->outputs[of->norm][1], outputs[1]);
    }
}

berth_status berth_fuse_product(const berth_pass_match *match, berth_builder *builder) {
    const chain of = read_chain(match);
    const fused_op *fused = find_fused(&of);
    if (!fused || !has_places(&of, fused) || (of.norm != NONE && !is_plain_norm(&of)) ||
        (of.quantizer != NONE && !is_plain_quantizer(&of))) {
        return BERTH_NOT_FOUND;
    }
    emit(&of, fused, builder);
    return BERTH_OK;
}
