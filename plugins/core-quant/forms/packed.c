// SPDX-License-Identifier: Apache-2.0
// Input: a layer whose weights are fields in words of 32 bits, as its notes say. Output: its
// parameters and nodes. GPTQ's layouts are compressed-tensors' with their dimensions exchanged, so
// the loader makes them one; where fields run along the inputs, the bytes of its words are the
// canonical form already.
#include "forms.h"

#include <stdlib.h>

enum { WEIGHT, SCALE, ZEROS, PERMUTATION, BIAS };

#define MAX_SHARDS 8

typedef struct notes {
    berth_form_words words;
    int64_t bits;
    int64_t fields; // in a word
    int64_t group;  // −1: all inputs
    int64_t addend;
    int has_zeros;
    int is_sorted;
} notes;

static notes read(const berth_linear *linear) {
    const int64_t *from = linear->quant->notes;
    return (notes){
        .words = (berth_form_words)from[BERTH_PACKED_WORDS],
        .bits = from[BERTH_PACKED_BITS],
        .fields = 32 / from[BERTH_PACKED_BITS],
        .group = from[BERTH_PACKED_GROUP],
        .addend = from[BERTH_PACKED_ADDEND],
        .has_zeros = from[BERTH_PACKED_HAS_ZEROS] != 0,
        .is_sorted = from[BERTH_PACKED_IS_SORTED] != 0,
    };
}

// Whether the file says of which group every input is.
static int has_groups(const notes *of) {
    return of->words != BERTH_FORM_WORDS_AWQ &&
           (of->is_sorted || of->words == BERTH_FORM_WORDS_GPTQ);
}

int64_t berth_form_group(berth_builder *builder, const berth_linear *linear, int64_t group) {
    if (group < -1 || group == 0) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "layer '%s': groups of %lld inputs; group_size is -1, for all, or greater "
                         "than zero",
                         linear->prefix, (long long)group);
        return linear->input_size;
    }
    if (group > 0 && linear->input_size % group != 0) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "layer '%s': groups of %lld do not divide %lld inputs", linear->prefix,
                         (long long)group, (long long)linear->input_size);
        return linear->input_size;
    }
    return group > 0 ? group : linear->input_size;
}

// ---- parameters ---------------------------------------------------------------------------------

static void declare_words(berth_builder *builder, const berth_linear *linear, const notes *of) {
    const int is_ct = of->words == BERTH_FORM_WORDS_CT;
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter words =
        berth_quant_parameter(builder, linear, is_ct ? "weight_packed" : "qweight", shape);
    words.role = BERTH_PARAMETER_STORED;
    words.dtype = "i32";
    words.is_transposed = !is_ct;
    words.output_factor = of->words == BERTH_FORM_WORDS_AWQ ? of->fields : 1;
    words.input_factor = of->words == BERTH_FORM_WORDS_AWQ ? 1 : of->fields;
    (void)builder->parameter(builder, &words);
}

// One column per group; of one group of all inputs every rank has the column.
static void group_inputs(berth_parameter *parameter, int64_t *shape, const notes *of,
                         int64_t group) {
    if (of->group > 0) {
        parameter->input_factor = group;
    } else {
        berth_quant_one_column(parameter, shape);
    }
}

static void declare_zeros(berth_builder *builder, const berth_linear *linear, const notes *of,
                          int64_t group) {
    const int is_ct = of->words == BERTH_FORM_WORDS_CT;
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter zeros =
        berth_quant_parameter(builder, linear, is_ct ? "weight_zero_point" : "qzeros", shape);
    zeros.role = BERTH_PARAMETER_STORED;
    zeros.dtype = "i32";
    zeros.is_transposed = !is_ct;
    zeros.output_factor = of->fields;
    group_inputs(&zeros, shape, of, group);
    (void)builder->parameter(builder, &zeros);
}

static berth_value declare_scales(berth_builder *builder, const berth_linear *linear,
                                  const notes *of, int64_t group) {
    const int is_ct = of->words == BERTH_FORM_WORDS_CT;
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter scales =
        berth_quant_parameter(builder, linear, is_ct ? "weight_scale" : "scales", shape);
    scales.role = linear->is_matrix ? BERTH_PARAMETER_STORED : BERTH_PARAMETER_RESIDENT;
    scales.dtype = linear->is_matrix ? "f32" : "float";
    scales.is_scale = 1;
    scales.is_transposed = !is_ct;
    group_inputs(&scales, shape, of, group);
    return builder->parameter(builder, &scales);
}

// What every shard has by itself, `extent` numbers of it: whether the file has one for each.
static int has_own(const berth_linear *linear) {
    return linear->shard_count > 0 && linear->quant->name_count > 1;
}

// The shards of such a parameter, in `list`; their number, at least 1.
static uint64_t list_own(const berth_linear *linear, int64_t extent, berth_shard *shards,
                         const berth_shard **list) {
    const uint64_t count = has_own(linear) ? linear->shard_count : 1;
    for (uint64_t i = 0; has_own(linear) && i < count; ++i) {
        shards[i] = (berth_shard){
            .size = sizeof shards[i],
            .id = linear->shards[i]->id,
            .offset = (int64_t)i * extent,
            .extent = extent,
        };
        list[i] = &shards[i];
    }
    return count;
}

// `extent` numbers of every shard, of a stack those of each layer.
static void declare_own(berth_builder *builder, const berth_linear *linear,
                        berth_parameter parameter, int64_t extent) {
    berth_shard shards[MAX_SHARDS];
    const berth_shard *list[MAX_SHARDS];
    const uint64_t count = list_own(linear, extent, shards, list);
    const int is_stack = linear->stack_size > 0;
    const int64_t all[] = {linear->stack_size, (int64_t)count * extent};
    parameter.shape = is_stack ? all : &all[1];
    parameter.role = BERTH_PARAMETER_STORED;
    parameter.ndim = is_stack ? 2 : 1;
    parameter.output_dim = has_own(linear) ? is_stack : -1;
    parameter.stored_output_extent = 0;
    parameter.shards = has_own(linear) ? list : NULL;
    parameter.shard_count = has_own(linear) ? count : 0;
    (void)builder->parameter(builder, &parameter);
}

// The group of every input, by each shard in a row of its own: −1 where the file has none.
static void declare_groups(berth_builder *builder, const berth_linear *linear, const notes *of) {
    const int is_ct = of->words == BERTH_FORM_WORDS_CT;
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter groups =
        berth_quant_parameter(builder, linear, is_ct ? "weight_g_idx" : "g_idx", shape);
    groups.dtype = "i32";
    groups.input_dim = linear->stack_size > 0;
    groups.is_optional = !of->is_sorted;
    groups.default_value = -1;
    declare_own(builder, linear, groups, linear->input_size);
}

// Outputs and inputs of every shard's module: 0 where the file does not say.
static void declare_shapes(berth_builder *builder, const berth_linear *linear) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter shapes = berth_quant_parameter(builder, linear, "weight_shape", shape);
    shapes.dtype = "i64";
    shapes.input_dim = -1;
    shapes.stored_input_extent = 0;
    shapes.is_optional = 1;
    declare_own(builder, linear, shapes, 2);
}

// The inputs in the order of their groups; of a stack every layer has its own.
static berth_value declare_permutation(berth_builder *builder, const berth_linear *linear) {
    const int64_t shape[] = {linear->stack_size, linear->input_size};
    if (linear->stack_size == 0) {
        return berth_quant_made_vector(builder, linear, "permutation", "i32", linear->input_size);
    }
    const berth_parameter parameter = {
        .size = sizeof(berth_parameter),
        .name = berth_build_name(builder, "%s_permutation", linear->prefix),
        .shape = shape,
        .ndim = 2,
        .output_dim = -1,
        .input_dim = -1,
        .role = BERTH_PARAMETER_MADE,
        .dtype = "i32",
    };
    return builder->parameter(builder, &parameter);
}

static int check(berth_builder *builder, const berth_linear *linear, const notes *of) {
    if (of->is_sorted && linear->stored_input_extent > 0) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "layer '%s': inputs in an order of their own cannot be divided among "
                         "ranks",
                         linear->prefix);
    } else if (linear->shard_count > MAX_SHARDS) {
        berth_build_fail(builder, BERTH_UNSUPPORTED, "layer '%s': more than %d shards",
                         linear->prefix, MAX_SHARDS);
    } else if (linear->input_size % of->fields != 0 || linear->output_size % of->fields != 0) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "layer '%s': %lld inputs and %lld outputs are no whole words of %lld "
                         "fields",
                         linear->prefix, (long long)linear->input_size,
                         (long long)linear->output_size, (long long)of->fields);
    }
    return !builder->has_failed(builder);
}

// Tools that write these formats give every module a bias, zeros where the model has none.
static void ignore_biases(berth_builder *builder, const berth_linear *linear) {
    const int is_without = !linear->has_bias && linear->stack_size == 0;
    for (uint64_t i = 0; is_without && i < linear->quant->name_count; ++i) {
        builder->ignore(builder, berth_build_name(builder, "%s.bias", linear->quant->names[i]));
    }
}

static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    const notes of = read(linear);
    const int64_t group = berth_form_group(builder, linear, of.group);
    const int64_t codes[] = {linear->output_size, linear->input_size * of.bits / 8};
    const int64_t zeros[] = {linear->output_size, linear->input_size / group};
    const int64_t sizes[] = {linear->output_size, linear->input_size};
    if (!check(builder, linear, &of)) {
        return;
    }
    declare_words(builder, linear, &of);
    if (of.words == BERTH_FORM_WORDS_CT) {
        declare_shapes(builder, linear);
    } else {
        ignore_biases(builder, linear);
    }
    weights[WEIGHT] = linear->is_matrix ? berth_quant_made(builder, linear, "weight_matrix",
                                                           builder->activation_dtype, sizes)
                                        : berth_quant_made(builder, linear, "codes", "u8", codes);
    weights[SCALE] = declare_scales(builder, linear, &of, group);
    if (has_groups(&of)) {
        declare_groups(builder, linear, &of);
    }
    if (of.is_sorted && !linear->is_matrix) {
        weights[PERMUTATION] = declare_permutation(builder, linear);
    }
    if (of.has_zeros) {
        declare_zeros(builder, linear, &of, group);
    }
    if (of.has_zeros && !linear->is_matrix) {
        weights[ZEROS] = berth_quant_made(builder, linear, "zero_points", "u8", zeros);
    }
    weights[BIAS] = berth_quant_bias(builder, linear);
}

// ---- once loaded --------------------------------------------------------------------------------

// What a matrix of floats is made of.
typedef struct packed_matrix {
    const berth_tensor *words;
    const berth_tensor *scales;
    const berth_tensor *zeros; // or NULL
    const int32_t *groups;     // of every input; NULL: in order
} packed_matrix;

static uint32_t field(const uint32_t *words, int64_t index, int64_t bits) {
    const int64_t fields = 32 / bits;
    return words[index / fields] >> (index % fields * bits) & ((UINT32_C(1) << bits) - 1);
}

// Column j of AWQ's words of eight is in this field.
static int64_t place_of(const notes *of, int64_t n) {
    static const int64_t places[] = {0, 4, 1, 5, 2, 6, 3, 7};
    return of->words == BERTH_FORM_WORDS_AWQ ? n / 8 * 8 + places[n % 8] : n;
}

static void put(uint8_t *row, int64_t k, int64_t bits, uint32_t code) {
    if (bits == 8) {
        row[k] = (uint8_t)code;
    } else {
        row[k / 2] = (uint8_t)(row[k / 2] | code << (k % 2 * 4));
    }
}

// Words [n / fields, columns], whose fields run along the outputs: the field of output n.
static uint32_t field_down(const berth_tensor *words, const notes *of, int64_t n, int64_t column) {
    const int64_t place = place_of(of, n);
    const uint32_t *row =
        (const uint32_t *)words->data + place / of->fields * berth_row_length(words);
    return row[column] >> (place % of->fields * of->bits) & ((UINT32_C(1) << of->bits) - 1);
}

// Codes in the order of the permutation, of a stack that of each layer's rows.
static void repack(const berth_linear *linear, const berth_tensor *words, const notes *of,
                   const berth_tensor *order, const berth_tensor *codes) {
    const int64_t bytes = berth_row_length(codes);
    const int64_t width = bytes * 8 / of->bits;
    for (int64_t n = 0; n < berth_row_count(codes); ++n) {
        uint8_t *to = (uint8_t *)codes->data + n * bytes;
        const uint32_t *from = (const uint32_t *)words->data + n * berth_row_length(words);
        if (of->words == BERTH_FORM_WORDS_AWQ) {
            for (int64_t k = 0; k < width; ++k) {
                put(to, k, of->bits, field_down(words, of, n, k));
            }
        } else if (order) {
            const int32_t *permutation =
                (const int32_t *)order->data + n / linear->output_size * linear->input_size;
            for (int64_t k = 0; k < width; ++k) {
                put(to, k, of->bits, field(from, permutation[k], of->bits));
            }
        } else {
            memcpy(to, from, (size_t)bytes); // words are stored with the low byte first
        }
    }
}

// The groups of all inputs of a layer, or of one of a stack, shard by shard.
typedef struct group_numbers {
    const int32_t *of;
    int64_t count;
} group_numbers;

static group_numbers numbers_of(const berth_tensor *groups) {
    return (group_numbers){groups->data, berth_row_count(groups) * berth_row_length(groups)};
}

// Every shard multiplies the same inputs, so all must have one order.
static berth_status check_groups(const berth_host *host, const berth_linear *linear,
                                 group_numbers groups, int64_t group) {
    const int32_t *of = groups.of;
    const int64_t width = linear->input_size;
    for (int64_t i = 0; i < groups.count; ++i) {
        if (of[i] < -1 || of[i] >= width / group || (of[i] == -1) != (of[0] == -1)) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'g_idx': number %lld is %d, there are %lld groups",
                                     (long long)i, (int)of[i], (long long)(width / group));
        }
        if (of[i] != of[i % width]) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'g_idx' of shards '%s' and '%s' differ at input %lld; they "
                                     "are one layer here",
                                     linear->shards[0]->id, linear->shards[i / width]->id,
                                     (long long)(i % width));
        }
    }
    return BERTH_OK;
}

// Inputs by their groups, in their own order within each.
static berth_status sort_inputs(const berth_host *host, const berth_linear *linear,
                                const int32_t *groups, int64_t group, int32_t *permutation) {
    int64_t placed = 0;
    for (int64_t g = 0; g < linear->input_size / group; ++g) {
        const int64_t first = placed;
        for (int64_t k = 0; k < linear->input_size; ++k) {
            if (groups[k] == g) {
                permutation[placed++] = (int32_t)k;
            }
        }
        if (placed - first != group) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'g_idx': group %lld has %lld inputs and must have %lld",
                                     (long long)g, (long long)(placed - first), (long long)group);
        }
    }
    return BERTH_OK;
}

static berth_status check_order(const berth_host *host, const berth_linear *linear,
                                const int32_t *groups, int64_t group) {
    for (int64_t k = 0; k < linear->input_size && groups[0] != -1; ++k) {
        if (groups[k] - groups[0] != k / group) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'g_idx' puts input %lld of '%s' into group %d, but the "
                                     "configuration says that inputs are in order (desc_act)",
                                     (long long)k, linear->prefix, (int)groups[k]);
        }
    }
    return BERTH_OK;
}

// The sizes that the file gives for the module of each shard, and those of the model, all ranks'
// parts together.
static berth_status check_shapes(const berth_host *host, const berth_linear *linear,
                                 const berth_tensor *shapes) {
    const int64_t *of = shapes->data;
    const int64_t inputs =
        linear->stored_input_extent > 0 ? linear->stored_input_extent : linear->input_size;
    const int64_t of_layer = berth_row_length(shapes) / 2;
    for (int64_t i = 0; i < berth_row_count(shapes) * of_layer; ++i) {
        const berth_shard *shard = has_own(linear) ? linear->shards[i % of_layer] : NULL;
        const int64_t part = shard ? shard->extent : linear->output_size;
        const int64_t stored = shard ? shard->stored_extent : linear->stored_output_extent;
        const int64_t outputs = stored > 0 ? stored : part;
        const int is_given = of[2 * i] != 0 || of[2 * i + 1] != 0;
        if (is_given && (of[2 * i] != outputs || of[2 * i + 1] != inputs)) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'weight_shape' of '%s' is [%lld, %lld], the model needs "
                                     "[%lld, %lld]",
                                     linear->stack_size > 0 ? linear->prefix
                                                            : linear->quant->names[i],
                                     (long long)of[2 * i], (long long)of[2 * i + 1],
                                     (long long)outputs, (long long)inputs);
        }
    }
    return BERTH_OK;
}

// Writes the permutation that the groups mean, or without one makes sure that none is needed. Where
// ranks divide the inputs a group's number is of all of them.
static berth_status read_groups(const berth_host *host, const berth_linear *linear,
                                group_numbers groups, int64_t group, int32_t *permutation) {
    const int is_whole = linear->stored_input_extent == 0;
    berth_status status = is_whole ? check_groups(host, linear, groups, group) : BERTH_OK;
    if (status == BERTH_OK && permutation) {
        return sort_inputs(host, linear, groups.of, group, permutation);
    }
    for (int64_t i = 0; i < groups.count && status == BERTH_OK; i += linear->input_size) {
        status = check_order(host, linear, groups.of + i, group);
    }
    return status;
}

// Of a stack one layer after the other.
static berth_status read_orders(const berth_host *host, const berth_linear *linear,
                                const berth_tensor *groups, int64_t group,
                                const berth_tensor *permutation) {
    const int64_t layers = linear->stack_size > 0 ? linear->stack_size : 1;
    const int64_t count = berth_row_count(groups) * berth_row_length(groups) / layers;
    berth_status status = BERTH_OK;
    for (int64_t i = 0; i < layers && status == BERTH_OK; ++i) {
        const group_numbers of = {(const int32_t *)groups->data + i * count, count};
        int32_t *to = permutation ? (int32_t *)permutation->data + i * linear->input_size : NULL;
        status = read_groups(host, linear, of, group, to);
    }
    return status;
}

static void unpack_zeros(const berth_tensor *words, const notes *of, const berth_tensor *zeros) {
    const int64_t groups = berth_row_length(zeros);
    const uint32_t mask = (UINT32_C(1) << of->bits) - 1;
    for (int64_t n = 0; n < berth_row_count(zeros); ++n) {
        uint8_t *to = (uint8_t *)zeros->data + n * groups;
        for (int64_t group = 0; group < groups; ++group) {
            // Why the mask: a zero point of 0 less one is stored as all ones.
            to[group] = (uint8_t)((field_down(words, of, n, group) + (uint32_t)of->addend) & mask);
        }
    }
}

// What the codes of row n stand for, each by the group of its input.
static void widen_row(const notes *of, const packed_matrix *from, int64_t n, int64_t group,
                      const berth_tensor *to) {
    const uint32_t *words = (const uint32_t *)from->words->data + n * berth_row_length(from->words);
    const float *scales = berth_row(from->scales, n);
    const uint32_t mask = (UINT32_C(1) << of->bits) - 1;
    for (int64_t k = 0; k < berth_row_length(to); ++k) {
        const int64_t of_group = from->groups ? from->groups[k] : k / group;
        const uint32_t code = of->words == BERTH_FORM_WORDS_AWQ ? field_down(from->words, of, n, k)
                                                                : field(words, k, of->bits);
        const uint32_t zero =
            from->zeros ? (field_down(from->zeros, of, n, of_group) + (uint32_t)of->addend) & mask
                        : UINT32_C(1) << (of->bits - 1);
        berth_store_at(berth_row(to, n), to->dtype, k,
                       ((float)code - (float)zero) * scales[of_group]);
    }
}

// `stored` from the scales on.
static berth_status make_matrix(const berth_host *host, const berth_linear *linear,
                                const berth_tensor *words, const berth_tensor *const *stored,
                                const berth_tensor *to) {
    const notes of = read(linear);
    const int64_t group = of.group > 0 ? of.group : linear->input_size;
    packed_matrix from = {.words = words, .scales = *stored++};
    berth_status status = BERTH_OK;
    if (has_groups(&of)) {
        const berth_tensor *groups = *stored++;
        from.groups = of.is_sorted ? groups->data : NULL;
        status = of.is_sorted ? check_groups(host, linear, numbers_of(groups), group)
                              : read_orders(host, linear, groups, group, NULL);
    }
    if (status == BERTH_OK && from.groups && from.groups[0] < 0) {
        status = BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT, "'g_idx': -1 is no group");
    }
    from.zeros = of.has_zeros ? *stored : NULL;
    for (int64_t n = 0; n < linear->output_size && status == BERTH_OK; ++n) {
        widen_row(&of, &from, n, group, to);
    }
    return status;
}

static berth_status process(const berth_host *host, const berth_linear *linear,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    const notes of = read(linear);
    const int64_t group = of.group > 0 ? of.group : linear->input_size;
    const berth_tensor *words = *stored++;
    const berth_tensor *codes = *made++;
    const berth_tensor *permutation = NULL;
    berth_status status = BERTH_OK;
    if (of.words == BERTH_FORM_WORDS_CT) {
        status = check_shapes(host, linear, *stored++);
    }
    if (status == BERTH_OK && linear->is_matrix) {
        return make_matrix(host, linear, words, stored, codes);
    }
    if (status == BERTH_OK && has_groups(&of)) {
        permutation = of.is_sorted ? *made++ : NULL;
        status = read_orders(host, linear, *stored++, group, permutation);
    }
    if (status == BERTH_OK) {
        repack(linear, words, &of, permutation, codes);
        if (of.has_zeros) {
            unpack_zeros(*stored, &of, *made);
        }
    }
    return status;
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    const notes of = read(linear);
    const int64_t groups[] = {1, of.group > 0 ? of.group : -1};
    return BERTH_EMIT(builder, "packed_linear", .prefix = linear->prefix,
                      BERTH_INPUTS(x, weights[WEIGHT], weights[SCALE], weights[ZEROS],
                                   weights[PERMUTATION], weights[BIAS]),
                      BERTH_ATTRIBUTES(BERTH_TEXT("code", of.bits == 4 ? "u4" : "u8"),
                                       BERTH_I64S("group_shape", groups, 2)));
}

static berth_value apply_matrix(berth_builder *builder, const berth_linear *linear,
                                const berth_value *weights, berth_value x,
                                berth_value *out_weight) {
    (void)builder;
    (void)linear;
    *out_weight = weights[WEIGHT];
    return x;
}

static berth_quant_stack stack_of(const berth_value *weights) {
    return (berth_quant_stack){
        .weight = weights[WEIGHT],
        .scale = weights[SCALE],
        .bias = weights[BIAS],
        .zero_points = weights[ZEROS],
        .permutation = weights[PERMUTATION],
    };
}

static berth_value apply_experts(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2) {
    const notes of = read(experts->w13);
    const berth_quant_stack stacks[] = {stack_of(w13), stack_of(w2)};
    return berth_quant_experts(builder, experts, stacks,
                               (berth_quant_codes){
                                   .code = of.bits == 4 ? "u4" : "u8",
                                   .input = "float",
                                   .group_shape = {1, of.group > 0 ? of.group : -1},
    });
}

const berth_quant_method berth_form_packed = {
    .size = sizeof(berth_quant_method),
    .name = "packed codes, inputs in floats",
    .create_weights = create_weights,
    .apply = apply,
    .process_weights_after_loading = process,
    .apply_experts = apply_experts,
    .apply_matrix = apply_matrix,
};
