// SPDX-License-Identifier: Apache-2.0
// A mixture of experts (experts.h) whose weights are codes (packed_run.h), for quantized_experts:
// the instance, and how the stacks of all experts are packed as their rows arrive: every expert's
// two matrices are weights of codes, one behind the other.
#ifndef BERTH_KERNELS_CPU_CODED_EXPERTS_H
#define BERTH_KERNELS_CPU_CODED_EXPERTS_H

#include <cpu/experts_run.h>
#include <cpu/packed_codes.h>
#include <cpu/packed_run.h>

#include <codes_input.h>

#define CODED_TOKENS 256 // at a time

_Static_assert(EXPERTS_SLICE <= PACKED_ROWS, "a slice is multiplied at once");

enum {
    CODED_X,
    CODED_W13,
    CODED_W13_SCALE,
    CODED_W2,
    CODED_W2_SCALE,
    CODED_TOPK_WEIGHTS,
    CODED_TOPK_IDS,
    CODED_W13_BIAS,
    CODED_W2_BIAS,
    CODED_W13_ZERO_POINTS,
    CODED_W2_ZERO_POINTS,
    CODED_W13_INPUT_SCALE,
    CODED_W2_INPUT_SCALE,
    CODED_W13_PERMUTATION,
    CODED_W2_PERMUTATION,
};

// Where the op has a stack among its inputs.
typedef struct coded_place {
    uint64_t weight;
    uint64_t scale;
    uint64_t zeros;
    uint64_t bias;
    uint64_t input_scale;
    uint64_t permutation;
} coded_place;

static const coded_place coded_places[2] = {
    {CODED_W13, CODED_W13_SCALE, CODED_W13_ZERO_POINTS, CODED_W13_BIAS, CODED_W13_INPUT_SCALE,
     CODED_W13_PERMUTATION},
    {CODED_W2,  CODED_W2_SCALE,  CODED_W2_ZERO_POINTS,  CODED_W2_BIAS,  CODED_W2_INPUT_SCALE,
     CODED_W2_PERMUTATION },
};

// One of the two stacks.
typedef struct coded_stack {
    packed product;        // of an expert's matrix
    uint64_t weight_bytes; // of an expert, packed
    uint64_t scale_bytes;
    uint64_t zero_bytes;
} coded_stack;

typedef struct coded {
    experts of; // its weights and product are not used
    coded_stack stacks[2];
    codes_rule rule; // what inputs become
    int is_e4m3;
} coded;

// ---- sites --------------------------------------------------------------------------------------

static inline berth_code coded_code(const berth_op_site *site) {
    return berth_code_of(berth_site_attribute(site, "code")->str);
}

// Whether x is made for every expert that a token goes to, not once for all.
static inline int coded_is_by_row(codes_rule rule) {
    return rule == CODES_INPUT_NVFP4;
}

// Whether a row has a scale for each group of columns, else one.
static inline int coded_has_groups(codes_rule rule) {
    return rule == CODES_INPUT_GROUP || rule == CODES_INPUT_NVFP4;
}

// Why u8 beside floats: codes of i8 are 128 higher there.
static inline packed_kind coded_kind(const berth_op_site *site) {
    const berth_code code = coded_code(site);
    return code == BERTH_CODE_I8 && codes_rule_of(site) != CODES_INPUT_FLOAT ? PACKED_I8
                                                                             : packed_kind_of(code);
}

static inline int64_t coded_gates(const berth_op_site *site) {
    return 1 + berth_moe_has_gate(berth_moe_read(site).activation);
}

// Outputs and columns of a stack's matrices.
static inline int64_t coded_outputs(const berth_op_site *site, int stack) {
    return site->inputs[coded_places[stack].weight]->dims[1].b;
}

static inline int64_t coded_width(const berth_op_site *site, int stack) {
    return stack == 0 ? site->inputs[CODED_X]->dims[1].b
                      : coded_outputs(site, 0) / coded_gates(site);
}

static inline berth_code_scales coded_groups(const berth_op_site *site, int stack) {
    return berth_code_scales_of(site, NULL, coded_outputs(site, stack), coded_width(site, stack));
}

static inline berth_status coded_supports_stack(const berth_op_site *site, int stack) {
    const coded_place *at = &coded_places[stack];
    const uint64_t needed = UINT64_C(1) << at->weight | UINT64_C(1) << at->scale |
                            (uint64_t)(site->inputs[at->zeros] != NULL) << at->zeros;
    const packed_kind kind = coded_kind(site);
    const int64_t width = coded_width(site, stack);
    const int64_t columns = coded_groups(site, stack).columns;
    if ((site->parameter_mask & needed) != needed) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "codes, scales or zero points are no parameters and cannot be "
                                 "packed");
    }
    if (!packed_has_group(kind, columns, width)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "groups of %lld columns: %d columns are multiplied together",
                                 (long long)columns, packed_columns(kind));
    }
    return kind != PACKED_I8 || at_most(columns, width) <= CODES_MOST_COLUMNS
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "groups of %lld columns, whose sums may pass 32 bits",
                                   (long long)columns);
}

// ---- packing ------------------------------------------------------------------------------------

// Of an expert; 0: kept as it is.
static inline uint64_t coded_bytes(const berth_op_site *site, uint64_t input) {
    for (int stack = 0; stack < 2 && site->inputs[input]; ++stack) {
        const int64_t outputs = coded_outputs(site, stack);
        if (input == coded_places[stack].weight) {
            return packed_bytes_for(coded_kind(site), outputs, coded_width(site, stack));
        }
        if (input == coded_places[stack].scale || input == coded_places[stack].zeros) {
            return packed_scale_bytes(site->inputs[input], outputs);
        }
    }
    return 0;
}

static inline uint64_t coded_packed_bytes(const berth_op_site *site, uint64_t input) {
    return coded_bytes(site, input) * (uint64_t)site->inputs[CODED_W13]->dims[0].b;
}

// Rows of a stack, which may begin and end anywhere.
static inline berth_status coded_pack_rows(const berth_op_site *site, uint64_t input,
                                           const berth_tensor *source, int64_t first,
                                           const berth_tensor *destination) {
    const int stack = input == CODED_W2 || input == CODED_W2_SCALE || input == CODED_W2_ZERO_POINTS;
    const int64_t of_expert = site->inputs[input]->dims[1].b;
    const uint64_t bytes = coded_bytes(site, input);
    for (int64_t at = 0, count = 0; at < source->shape[0]; at += count) {
        const int64_t row = (first + at) % of_expert;
        count = at_most(of_expert - row, source->shape[0] - at);
        const int64_t shape[] = {count, source->shape[1]};
        berth_tensor rows = *source;
        rows.shape = shape;
        rows.byte_offset +=
            (uint64_t)(at * source->strides[0]) * BERTH_DTYPE_BITS(source->dtype) / 8;
        const packed_source from = {
            .rows = &rows,
            .kind = coded_kind(site),
            .outputs = coded_outputs(site, stack),
            .columns = coded_width(site, stack),
            .flip = coded_code(site) == BERTH_CODE_I8 ? 0x80808080u : 0,
            .repeats = input == coded_places[stack].weight ? 0 : coded_groups(site, stack).rows,
        };
        const uint64_t expert = (uint64_t)((first + at) / of_expert);
        const berth_status status =
            packed_put(&from, row, (uint8_t *)berth_data(destination) + expert * bytes);
        if (status != BERTH_OK) {
            return status;
        }
    }
    return BERTH_OK;
}

static inline berth_status coded_pack(const berth_op_site *site, uint64_t input,
                                      const berth_tensor *source, const berth_tensor *destination) {
    int64_t shape[2];
    int64_t strides[2];
    const berth_tensor rows = experts_all_rows(source, shape, strides);
    return coded_pack_rows(site, input, &rows, 0, destination);
}

#endif
