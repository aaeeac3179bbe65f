// SPDX-License-Identifier: Apache-2.0
// Input: a layer whose weights are codes of 8 bits, as its notes say. Output: its parameters and
// nodes. Shards of a fused layer keep their own codes and scales: what is per tensor in the file
// becomes per output here, so nothing is quantized a second time. Where the layer is a matrix of
// floats, codes and scales are only loaded, to make it.
#include "forms.h"

enum { WEIGHT, SCALE, INPUT_SCALE, INPUT_ZERO, SUM_BIAS, BIAS };

typedef struct notes {
    berth_code code;
    berth_form_part part;
    berth_form_input input;
    berth_form_zero zero;
    int64_t rows;
    int64_t columns;
} notes;

static notes read(const berth_linear *linear) {
    const int64_t *from = linear->quant->notes;
    return (notes){
        .code = (berth_code)from[BERTH_SCALED_CODE],
        .part = (berth_form_part)from[BERTH_SCALED_PART],
        .input = (berth_form_input)from[BERTH_SCALED_INPUT],
        .zero = (berth_form_zero)from[BERTH_SCALED_ZERO],
        .rows = from[BERTH_SCALED_PART] == BERTH_FORM_PER_BLOCK ? from[BERTH_SCALED_ROWS] : 1,
        .columns =
            from[BERTH_SCALED_PART] == BERTH_FORM_PER_BLOCK ? from[BERTH_SCALED_COLUMNS] : -1,
    };
}

// ---- parameters ---------------------------------------------------------------------------------

static berth_value declare_scale(berth_builder *builder, const berth_linear *linear,
                                 const notes *of) {
    const int is_inverse = linear->quant->notes[BERTH_SCALED_IS_INVERSE] != 0;
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter scale = berth_quant_parameter(
        builder, linear, is_inverse ? "weight_scale_inv" : "weight_scale", shape);
    scale.role = linear->is_matrix ? BERTH_PARAMETER_STORED : BERTH_PARAMETER_RESIDENT;
    scale.dtype = linear->is_matrix ? "f32" : "float";
    scale.is_scale = 1;
    if (of->part == BERTH_FORM_PER_BLOCK) {
        scale.output_factor = of->rows;
        scale.input_factor = of->columns;
        return builder->parameter(builder, &scale);
    }
    berth_quant_one_column(&scale, shape);
    if (of->part == BERTH_FORM_PER_CHANNEL) {
        return builder->parameter(builder, &scale);
    }
    scale.role = BERTH_PARAMETER_STORED;
    scale.dtype = "f32";
    scale.is_per_tensor = 1;
    (void)builder->parameter(builder, &scale);
    if (linear->is_matrix) { // read by what makes it
        return BERTH_VALUE_NONE;
    }
    const int64_t column[] = {linear->output_size, 1};
    return berth_quant_made(builder, linear, "weight_scale_of_outputs", "f32", column);
}

static void declare_number(berth_builder *builder, const berth_linear *linear, const char *leaf,
                           const char *dtype) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter number = berth_quant_parameter(builder, linear, leaf, shape);
    number.role = BERTH_PARAMETER_STORED;
    number.dtype = dtype;
    number.is_per_tensor = 1;
    number.is_scale = strcmp(leaf, "input_scale") == 0;
    (void)builder->parameter(builder, &number);
}

// i32 [outputs], as it is stored; of ranks that share the inputs the first has it.
static berth_value declare_quant_bias(berth_builder *builder, const berth_linear *linear) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter bias = berth_quant_parameter(builder, linear, "quant_bias", shape);
    berth_quant_per_output(&bias);
    bias.dtype = "i32";
    if (linear->stored_input_offset > 0) {
        builder->ignore(builder, bias.name);
        return BERTH_VALUE_NONE;
    }
    return builder->parameter(builder, &bias);
}

static void declare_input(berth_builder *builder, const berth_linear *linear, const notes *of,
                          berth_value *weights) {
    declare_number(builder, linear, "input_scale", "f32");
    weights[INPUT_SCALE] = berth_quant_made_vector(builder, linear, "input_scale_of_all", "f32", 1);
    if (of->zero == BERTH_FORM_SYMMETRIC) {
        return;
    }
    const int is_bias = of->zero == BERTH_FORM_QUANT_BIAS;
    declare_number(builder, linear, is_bias ? "input_offset" : "input_zero_point",
                   is_bias ? "f32" : "i8");
    weights[INPUT_ZERO] = berth_quant_made_vector(builder, linear, "input_zero_of_all", "i8", 1);
    weights[SUM_BIAS] =
        is_bias ? declare_quant_bias(builder, linear)
                : berth_quant_made_vector(builder, linear, "sum_bias", "i32", linear->output_size);
}

static void declare_weight(berth_builder *builder, const berth_linear *linear, const notes *of,
                           berth_value *weights) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter weight = berth_quant_parameter(builder, linear, "weight", shape);
    weight.dtype = of->code == BERTH_CODE_I8 ? "i8" : "f8_e4m3fn";
    if (linear->is_matrix || of->zero == BERTH_FORM_ZERO_POINT) { // read once loaded
        weight.role = BERTH_PARAMETER_STORED;
        (void)builder->parameter(builder, &weight);
        weight.role = BERTH_PARAMETER_RESIDENT;
    }
    if (!linear->is_matrix) {
        weights[WEIGHT] = builder->parameter(builder, &weight);
    }
    weights[SCALE] = declare_scale(builder, linear, of);
    if (linear->is_matrix) {
        const int64_t sizes[] = {linear->output_size, linear->input_size};
        weights[WEIGHT] =
            berth_quant_made(builder, linear, "weight_matrix", builder->activation_dtype, sizes);
    }
}

static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    const notes of = read(linear);
    if ((linear->stack_size > 0 || linear->is_matrix) && of.zero != BERTH_FORM_SYMMETRIC) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "layer '%s': %s whose inputs have a zero point are not there",
                         linear->prefix, linear->is_matrix ? "matrices" : "experts");
        return;
    }
    declare_weight(builder, linear, &of, weights);
    if (of.input == BERTH_FORM_INPUT_STATIC) {
        declare_input(builder, linear, &of, weights);
    }
    if (linear->quant->notes[BERTH_SCALED_HAS_OFFSETS] != 0) {
        builder->ignore(builder, ".weight_offset");
        builder->ignore(builder, ".deq_scale");
    }
    weights[BIAS] = berth_quant_bias(builder, linear);
}

// ---- once loaded --------------------------------------------------------------------------------

// Tensors in the order in which create_weights declares them.
typedef struct cursor {
    const berth_tensor *const *stored;
    const berth_tensor *const *made;
} cursor;

static uint64_t shard_of(const berth_linear *linear, int64_t n) {
    uint64_t shard = 0;
    while (shard + 1 < linear->shard_count &&
           n >= linear->shards[shard]->offset + linear->shards[shard]->extent) {
        ++shard;
    }
    return shard;
}

// The scale of every shard, for each of its outputs.
static void spread_scales(const berth_linear *linear, cursor *at) {
    const float *scales = (*at->stored)->data;
    const int64_t shards = berth_row_length(*at->stored);
    float *to = (*at->made)->data;
    for (int64_t row = 0; row < berth_quant_rows(linear); ++row) {
        const int64_t layer = row / linear->output_size;
        const int64_t shard = (int64_t)shard_of(linear, row % linear->output_size);
        to[row] = scales[layer * shards + shard];
    }
    ++at->stored;
    ++at->made;
}

// The numbers that the codes stand for, as activations are kept.
static void widen(const berth_linear *linear, const notes *of, cursor *at) {
    const berth_tensor *codes = *at->stored++;
    const berth_tensor *scales = *at->stored++;
    const berth_tensor *to = *at->made++;
    const int is_per_tensor = of->part == BERTH_FORM_PER_TENSOR;
    const int64_t columns = of->columns > 0 ? of->columns : linear->input_size;
    const int64_t width = is_per_tensor ? 1 : berth_row_length(scales);
    for (int64_t n = 0; n < linear->output_size; ++n) {
        const int64_t row = is_per_tensor ? (int64_t)shard_of(linear, n) : n / of->rows;
        const float *of_row = (const float *)scales->data + row * width;
        for (int64_t k = 0; k < linear->input_size; ++k) {
            const float code = berth_code_value(of->code, berth_row(codes, n), k);
            berth_store_at(berth_row(to, n), to->dtype, k, code * of_row[k / columns]);
        }
    }
}

static float number_at(const berth_tensor *tensor, int64_t index) {
    return tensor->dtype == BERTH_DTYPE_F32 ? ((const float *)tensor->data)[index]
                                            : (float)((const int8_t *)tensor->data)[index];
}

// The numbers of shards that share their input must be one.
static berth_status check_equal(const berth_host *host, const berth_linear *linear,
                                const berth_tensor *numbers, const char *leaf) {
    for (int64_t i = 1; i < numbers->shape[0]; ++i) {
        if (number_at(numbers, i) != number_at(numbers, 0)) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'%s' of shards '%s' (%g) and '%s' (%g) must be equal, since "
                                     "they have one input",
                                     leaf, linear->shards[0]->id, (double)number_at(numbers, 0),
                                     linear->shards[i]->id, (double)number_at(numbers, i));
        }
    }
    return BERTH_OK;
}

// Without zero points the largest scale holds every shard's range, and every expert's.
static berth_status choose_input(const berth_host *host, const berth_linear *linear,
                                 const notes *of, cursor *at) {
    const berth_tensor *scales = *at->stored++;
    float largest = 0;
    for (int64_t i = 0; i < berth_row_count(scales) * berth_row_length(scales); ++i) {
        largest = number_at(scales, i) > largest ? number_at(scales, i) : largest;
    }
    *(float *)(*at->made++)->data = largest;
    if (of->zero == BERTH_FORM_SYMMETRIC) {
        return BERTH_OK;
    }
    const berth_tensor *zeros = *at->stored++;
    berth_status status = check_equal(host, linear, scales, "input_scale");
    status =
        status == BERTH_OK ? check_equal(host, linear, zeros, "the input's zero point") : status;
    const float zero = number_at(zeros, 0);
    if (status == BERTH_OK && !(zero >= -128 && zero <= 127 && zero == (float)(int)zero)) {
        status = BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                   "the input's zero point is %g and must be a number of 8 bits",
                                   (double)zero);
    }
    if (status == BERTH_OK) {
        *(int8_t *)(*at->made++)->data = (int8_t)zero;
    }
    return status;
}

static void correct_sums(const berth_tensor *weight, int8_t zero, int32_t *to) {
    const int64_t width = weight->shape[1];
    for (int64_t n = 0; n < weight->shape[0]; ++n) {
        const int8_t *row = (const int8_t *)weight->data + n * width;
        int32_t sum = 0;
        for (int64_t k = 0; k < width; ++k) {
            sum += row[k];
        }
        to[n] = -zero * sum;
    }
}

static berth_status process(const berth_host *host, const berth_linear *linear,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    const notes of = read(linear);
    cursor at = {.stored = stored, .made = made};
    const berth_tensor *weight = of.zero == BERTH_FORM_ZERO_POINT ? *at.stored++ : NULL;
    if (linear->is_matrix) {
        widen(linear, &of, &at);
    } else if (of.part == BERTH_FORM_PER_TENSOR) {
        spread_scales(linear, &at);
    }
    berth_status status = BERTH_OK;
    if (of.input == BERTH_FORM_INPUT_STATIC) {
        status = choose_input(host, linear, &of, &at);
    }
    if (status == BERTH_OK && weight) {
        correct_sums(weight, *(const int8_t *)at.made[-1]->data, (*at.made)->data);
    }
    return status;
}

// ---- nodes --------------------------------------------------------------------------------------

// q[0] the codes of x, q[1] their scales.
static void quantise(berth_builder *builder, const berth_linear *linear, const berth_value *weights,
                     berth_value x, berth_value q[2]) {
    const notes of = read(linear);
    const char *prefix = linear->prefix;
    const int is_static = of.input == BERTH_FORM_INPUT_STATIC;
    const int64_t groups[] = {is_static ? -1 : 1,
                              of.input == BERTH_FORM_INPUT_GROUP ? of.columns : -1};
    const berth_value scale = is_static ? weights[INPUT_SCALE] : BERTH_VALUE_NONE;
    const berth_value zero = is_static ? weights[INPUT_ZERO] : BERTH_VALUE_NONE;
    const berth_call call = {
        .size = sizeof(berth_call),
        .name = of.code == BERTH_CODE_I8 ? "quant_int8" : "quant_fp8",
        .prefix = prefix,
        BERTH_INPUTS(x, scale, of.code == BERTH_CODE_I8 ? zero : BERTH_VALUE_NONE),
        BERTH_ATTRIBUTES(BERTH_BOOL("static", is_static), BERTH_I64S("group_shape", groups, 2)),
        .outputs = q,
        .output_count = 2,
    };
    berth_call without = call;
    without.attribute_count = 0;
    (void)builder->op(builder, of.code == BERTH_CODE_I8 ? &without : &call);
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    const notes of = read(linear);
    const int64_t groups[] = {of.rows, of.columns};
    berth_value q[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    if (of.input == BERTH_FORM_INPUT_FLOAT) {
        return BERTH_EMIT(
            builder, "packed_linear", .prefix = linear->prefix,
            BERTH_INPUTS(x, weights[WEIGHT], weights[SCALE], BERTH_VALUE_NONE, BERTH_VALUE_NONE,
                         weights[BIAS]),
            BERTH_ATTRIBUTES(BERTH_TEXT("code", of.code == BERTH_CODE_I8 ? "i8" : "e4m3"),
                             BERTH_I64S("group_shape", groups, 2)));
    }
    quantise(builder, linear, weights, x, q);
    return BERTH_EMIT(
        builder, "scaled_linear", .prefix = linear->prefix,
        BERTH_INPUTS(q[0], q[1], weights[WEIGHT], weights[SCALE], weights[SUM_BIAS], weights[BIAS]),
        BERTH_ATTRIBUTES(BERTH_I64S("group_shape", groups, 2),
                         BERTH_TEXT("dtype", builder->activation_dtype)));
}

// Products see codes of x times their scales: so does who multiplies by the matrix.
static berth_value apply_matrix(berth_builder *builder, const berth_linear *linear,
                                const berth_value *weights, berth_value x,
                                berth_value *out_weight) {
    berth_value q[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    *out_weight = weights[WEIGHT];
    if (read(linear).input == BERTH_FORM_INPUT_FLOAT) {
        return x;
    }
    quantise(builder, linear, weights, x, q);
    const berth_value wide =
        BERTH_EMIT(builder, "dequantize", .prefix = linear->prefix, BERTH_INPUTS(q[0], q[1]));
    return strcmp(builder->activation_dtype, "f32") == 0
               ? wide
               : BERTH_EMIT(builder, "cast", .prefix = linear->prefix, BERTH_INPUTS(wide),
                            BERTH_ATTRIBUTES(BERTH_TEXT("dtype", builder->activation_dtype)));
}

static berth_quant_stack stack_of(const berth_value *weights) {
    return (berth_quant_stack){
        .weight = weights[WEIGHT],
        .scale = weights[SCALE],
        .bias = weights[BIAS],
        .input_scale = weights[INPUT_SCALE],
    };
}

static berth_value apply_experts(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2) {
    static const char *const inputs[] = {
        [BERTH_FORM_INPUT_FLOAT] = "float",
        [BERTH_FORM_INPUT_STATIC] = "static",
        [BERTH_FORM_INPUT_TOKEN] = "token",
        [BERTH_FORM_INPUT_GROUP] = "group",
    };
    const notes of = read(experts->w13);
    const berth_quant_stack stacks[] = {stack_of(w13), stack_of(w2)};
    return berth_quant_experts(builder, experts, stacks,
                               (berth_quant_codes){
                                   .code = of.code == BERTH_CODE_I8 ? "i8" : "e4m3",
                                   .input = inputs[of.input],
                                   .group_shape = {of.rows, of.columns},
    });
}

const berth_quant_method berth_form_scaled = {
    .size = sizeof(berth_quant_method),
    .name = "scaled codes of 8 bits",
    .create_weights = create_weights,
    .apply = apply,
    .process_weights_after_loading = process,
    .apply_experts = apply_experts,
    .apply_matrix = apply_matrix,
};
