// SPDX-License-Identifier: Apache-2.0
// Input: a linear layer, or a stack of experts, in floats. Output: codes of 8 bits and scales, made
// as it is loaded, and the nodes of the scaled form. One layer at a time is there in floats. A
// scale is for a block of the layer's or of an expert's whole matrix, as many shards as it has.
#include "forms.h"

#include <fp8.h>

#include <math.h>

enum { WEIGHT, SCALE, BIAS = 5 }; // as the scaled form has them

// ---- parameters ---------------------------------------------------------------------------------

// Rows and columns that share a scale.
typedef struct block {
    int64_t rows;
    int64_t columns;
} block;

static block block_of(const berth_linear *linear) {
    const int64_t *notes = linear->quant->notes;
    switch (notes[BERTH_SCALED_PART]) {
    case BERTH_FORM_PER_TENSOR:
        return (block){linear->output_size, linear->input_size};
    case BERTH_FORM_PER_CHANNEL:
        return (block){1, linear->input_size};
    default:
        return (block){notes[BERTH_SCALED_ROWS], notes[BERTH_SCALED_COLUMNS]};
    }
}

static int64_t pieces(int64_t count, int64_t of) {
    return (count + of - 1) / of;
}

static int is_by_block(const berth_linear *linear) {
    return linear->quant->notes[BERTH_SCALED_PART] == BERTH_FORM_PER_BLOCK;
}

// Rows of scales that a matrix has: every output has its own again, unless they are by blocks.
static int64_t scale_rows(const berth_linear *linear) {
    return is_by_block(linear) ? pieces(linear->output_size, block_of(linear).rows)
                               : linear->output_size;
}

static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    const int64_t codes[] = {linear->output_size, linear->input_size};
    const int64_t scales[] = {
        scale_rows(linear),
        pieces(linear->input_size, block_of(linear).columns),
    };
    const int is_i8 = linear->quant->notes[BERTH_SCALED_CODE] == BERTH_CODE_I8;
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter weight = berth_quant_parameter(builder, linear, "weight", shape);
    weight.role = BERTH_PARAMETER_STORED;
    weight.dtype = "f32"; // of whatever float type it is stored
    (void)builder->parameter(builder, &weight);
    weights[WEIGHT] =
        berth_quant_made(builder, linear, "weight_codes", is_i8 ? "i8" : "f8_e4m3fn", codes);
    weights[SCALE] = berth_quant_made(builder, linear, "weight_scale", "f32", scales);
    weights[BIAS] = berth_quant_bias(builder, linear);
}

// ---- once loaded --------------------------------------------------------------------------------

// Part of a matrix: rows [row, row_end), columns [column, column_end).
typedef struct part {
    const float *from; // the matrix
    uint8_t *to;
    int64_t width;
    int64_t row, row_end;
    int64_t column, column_end;
} part;

static float largest_of(const part *of) {
    float largest = 0;
    for (int64_t n = of->row; n < of->row_end; ++n) {
        for (int64_t k = of->column; k < of->column_end; ++k) {
            largest = berth_max_or_nan(fabsf(of->from[n * of->width + k]), largest);
        }
    }
    return largest;
}

// A scale of 1 where all is zero, so that it stays one.
static float make_i8(const part *of, float largest) {
    const float scale = largest > 0 ? largest / 127.0f : 1.0f;
    for (int64_t n = of->row; n < of->row_end; ++n) {
        for (int64_t k = of->column; k < of->column_end; ++k) {
            const int64_t at = n * of->width + k;
            ((int8_t *)of->to)[at] = (int8_t)rintf(of->from[at] / scale);
        }
    }
    return scale;
}

static float make_e4m3(const part *of, float largest) {
    const float scale = berth_f8_scale(largest);
    for (int64_t n = of->row; n < of->row_end; ++n) {
        for (int64_t k = of->column; k < of->column_end; ++k) {
            const int64_t at = n * of->width + k;
            of->to[at] = berth_to_f8(of->from[at] / scale);
        }
    }
    return scale;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// The blocks of some rows; their scales go to `scales`, for every row again unless by blocks.
static berth_status make_rows(const berth_host *host, const berth_linear *linear, part of,
                              float *scales) {
    const block size = block_of(linear);
    const int is_i8 = linear->quant->notes[BERTH_SCALED_CODE] == BERTH_CODE_I8;
    const int64_t groups = pieces(of.width, size.columns);
    const int64_t copies = is_by_block(linear) ? 1 : of.row_end - of.row;
    for (int64_t group = 0; group < groups; ++group) {
        of.column = group * size.columns;
        of.column_end = least(of.column + size.columns, of.width);
        const float largest = largest_of(&of);
        if (!isfinite(largest)) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'%s%cweight' has numbers that are not finite in rows %lld to "
                                     "%lld; they have no codes",
                                     linear->prefix, linear->stack_size > 0 ? '_' : '.',
                                     (long long)of.row, (long long)of.row_end - 1);
        }
        const float scale = (is_i8 ? make_i8 : make_e4m3)(&of, largest);
        for (int64_t i = 0; i < copies; ++i) {
            scales[i * groups + group] = scale;
        }
    }
    return BERTH_OK;
}

static berth_status make_matrix(const berth_host *host, const berth_linear *linear, part of,
                                float *scales) {
    const block size = block_of(linear);
    const int64_t groups = pieces(of.width, size.columns);
    berth_status status = BERTH_OK;
    for (int64_t row = 0; row < linear->output_size && status == BERTH_OK; row += size.rows) {
        of.row = row;
        of.row_end = least(row + size.rows, linear->output_size);
        status = make_rows(host, linear, of,
                           scales + (is_by_block(linear) ? row / size.rows : row) * groups);
    }
    return status;
}

static berth_status process(const berth_host *host, const berth_linear *linear,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    const int64_t matrices = linear->stack_size > 0 ? linear->stack_size : 1;
    const int64_t numbers = linear->output_size * linear->input_size;
    const int64_t scales =
        scale_rows(linear) * pieces(linear->input_size, block_of(linear).columns);
    berth_status status = BERTH_OK;
    for (int64_t i = 0; i < matrices && status == BERTH_OK; ++i) {
        const part matrix = {
            .from = (const float *)stored[0]->data + i * numbers,
            .to = (uint8_t *)made[0]->data + i * numbers,
            .width = linear->input_size,
        };
        status = make_matrix(host, linear, matrix, (float *)made[1]->data + i * scales);
    }
    return status;
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    return berth_form_scaled.apply(builder, linear, weights, x);
}

static berth_value apply_experts(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2) {
    return berth_form_scaled.apply_experts(builder, experts, w13, w2);
}

static const berth_quant_method method = {
    .size = sizeof(berth_quant_method),
    .name = "scaled codes of 8 bits, made at load",
    .create_weights = create_weights,
    .apply = apply,
    .process_weights_after_loading = process,
    .apply_experts = apply_experts,
};

// ---- for the schemes ----------------------------------------------------------------------------

berth_status berth_form_online_matches(const berth_host *host, const berth_json *config) {
    (void)host;
    (void)config;
    return BERTH_NOT_FOUND; // no file says of itself that it is one
}

uint64_t berth_form_online_takes(const berth_host *host, const berth_json *config,
                                 const char *wanted, const char *name) {
    const berth_json *own = NULL;
    return wanted && strcmp(wanted, name) == 0 &&
           host->json_get(config, "quantization_config", &own) == BERTH_NOT_FOUND &&
           host->json_get(config, "compression_config", &own) == BERTH_NOT_FOUND;
}

const berth_quant_method *berth_form_online(const berth_linear *linear, berth_form_rule rule) {
    int64_t *notes = linear->quant->notes;
    notes[BERTH_SCALED_CODE] = rule.code;
    notes[BERTH_SCALED_PART] = rule.part;
    notes[BERTH_SCALED_INPUT] = rule.input;
    notes[BERTH_SCALED_ROWS] = rule.block;
    notes[BERTH_SCALED_COLUMNS] = rule.block;
    const int is_left = linear->is_matrix || !berth_form_is_body(linear);
    return is_left ? berth_form_none(linear) : &method;
}
