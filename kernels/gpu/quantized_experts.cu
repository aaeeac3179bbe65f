// SPDX-License-Identifier: Apache-2.0
// quantized_experts on a GPU of any kind, of every code, group and rule of the inputs. x becomes
// codes once a token, the activation once a choice, on its way out of the first product; then a
// token's choices are added up. Which way it goes follows from sizes alone. Where experts see an
// input of their own, x has a row a choice, too.
#include "coded_experts.h"
#include "codes_few.h"
#include "experts_run.h"
#include "nvfp4.h"

namespace {

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

// Where the two stacks of matrices are among the inputs.
struct stack_inputs {
    int weight, scale, bias, zeros, input_scale, permutation;
};
constexpr stack_inputs STACKS[] = {
    {W13_WEIGHT, W13_SCALE, W13_BIAS, W13_ZERO_POINTS, W13_INPUT_SCALE, W13_PERMUTATION},
    {W2_WEIGHT,  W2_SCALE,  W2_BIAS,  W2_ZERO_POINTS,  W2_INPUT_SCALE,  W2_PERMUTATION },
};

// x, multiplied by the weight of the token's only choice where that comes first.
struct weighted_x {
    gpu_rows x;
    const float *factors; // NULL: none

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        const float value = gpu_float(gpu_row<const T>(x, row)[i]);
        return factors ? value * gpu_rounded<T>(factors[row]) : value;
    }
};

// Another formula's row as the expert of a choice sees it.
template <typename F> struct own_x {
    F from;
    gpu_choices choices;
    int rows_per_x;             // choices that see the same row
    const int32_t *permutation; // [experts, width], the column of the row; NULL: as they are
    int64_t width;

    template <typename T> __device__ float at(int64_t p, int64_t i) const {
        const int expert = gpu_expert_of(choices, p);
        if (expert < 0) {
            return 0.0f;
        }
        const int64_t k = permutation ? permutation[expert * width + i] : i;
        return from.template at<T>(p / rows_per_x, k);
    }
};

// ---- codes of e2m1 ------------------------------------------------------------------------------

constexpr int GROUP_THREADS = 128;

struct e2m1_rows {
    const float *divisors; // [experts]
    uint8_t *codes;        // [choices, width]
    float *scales;         // [choices, groups]
    int64_t width;
    int64_t count; // groups of all choices
};

// A thread a group.
template <typename T, typename F> __global__ void e2m1_kernel(own_x<F> formula, e2m1_rows all) {
    const int64_t number = static_cast<int64_t>(blockIdx.x) * GROUP_THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (number >= all.count) {
        return;
    }
    const int64_t groups = all.width / BERTH_NVFP4_GROUP;
    const int64_t p = number / groups;
    const int64_t first = (number - p * groups) * BERTH_NVFP4_GROUP;
    const int expert = gpu_expert_of(formula.choices, p);
    if (expert < 0) {
        return;
    }
    float values[BERTH_NVFP4_GROUP];
#pragma unroll
    for (int i = 0; i < BERTH_NVFP4_GROUP; ++i) {
        values[i] = gpu_rounded<T>(formula.template at<T>(p, first + i));
    }
    gpu_pack<int8_t, BERTH_NVFP4_GROUP> codes;
    const float divisor = all.divisors[expert];
    all.scales[number] = gpu_nvfp4_scale(gpu_nvfp4_group(values, divisor, &codes), divisor);
    gpu_store<int8_t, BERTH_NVFP4_GROUP>(reinterpret_cast<int8_t *>(all.codes),
                                         p * all.width + first, codes);
}

// ---- memory -------------------------------------------------------------------------------------

// Of an element of x, and of a product's input.
int64_t element_bytes(const gpu_coded *op) {
    return BERTH_DTYPE_BITS(op->dtype) / 8;
}
int64_t number_bytes(const gpu_coded *op) {
    return op->kind == GPU_CODES_FLOAT ? element_bytes(op) : 1;
}

int64_t choices_of(const gpu_coded *op, int64_t tokens) {
    return tokens * op->per_token;
}

// Lays the workspace out; returns its bytes.
int64_t lay_out(const gpu_coded *op, int64_t tokens, char *memory, gpu_coded_call *out) {
    const int64_t choices = choices_of(op, tokens);
    const int64_t rows[2] = {op->stacks[0].is_own ? choices : tokens, choices};
    const int64_t bytes = number_bytes(op);
    const int64_t widest = op->stacks[0].outputs > op->stacks[1].outputs ? op->stacks[0].outputs
                                                                         : op->stacks[1].outputs;
    int64_t at = gpu_ordered_at(memory, op->experts, choices, &out->ordered);
    for (int i = 0; i < 2; ++i) {
        out->numbers[i] = memory + at;
        at += gpu_even(rows[i] * op->stacks[i].depth * bytes);
        out->scales[i] = reinterpret_cast<float *>(memory + at);
        at += gpu_even(rows[i] * op->stacks[i].groups * 4);
    }
    out->inner = memory + at;
    return at + choices * widest * element_bytes(op);
}

gpu_coded_call begin(const gpu_coded *op, const berth_op_args *args) {
    const int64_t tokens = args->inputs[X]->shape[0];
    gpu_coded_call call = {};
    call.choices =
        gpu_choices_of(args->inputs[TOPK_IDS], args->inputs[TOPK_WEIGHTS], nullptr, op->experts);
    call.is_few = gpu_experts_are_few(tokens, call.choices.count, op->experts);
    char *memory = static_cast<char *>(berth_gpu_data(args->workspace));
    call.more = memory + gpu_even(lay_out(op, tokens, memory, &call));
    return call;
}

// ---- steps --------------------------------------------------------------------------------------

// The input of experts that see their own: as codes of e2m1, or as floats of x's type.
template <typename T, typename F>
berth_status give_own(const gpu_coded *op, const berth_op_args *args, const gpu_coded_call &call,
                      int which, const F &formula) {
    const berth_tensor *permutation = args->inputs[STACKS[which].permutation];
    const int64_t width = op->stacks[which].depth;
    const own_x<F> own = {
        formula, call.choices, which == 0 ? call.choices.per_token : 1,
        permutation ? static_cast<const int32_t *>(berth_gpu_data(permutation)) : nullptr, width};
    if (op->kind == GPU_CODES_FLOAT) {
        int64_t shape[2] = {call.choices.count, width};
        int64_t strides[2];
        const berth_tensor floats =
            gpu_experts_rows(call.numbers[which], op->dtype, shape, strides);
        return gpu_each<T, T>(op, own, &floats);
    }
    const berth_tensor *divisors = args->inputs[STACKS[which].input_scale];
    const e2m1_rows all = {static_cast<const float *>(berth_gpu_data(divisors)),
                           reinterpret_cast<uint8_t *>(call.numbers[which]), call.scales[which],
                           width, call.choices.count * (width / BERTH_NVFP4_GROUP)};
    const gpu_grid grid = {dim3(gpu_ceil(all.count, GROUP_THREADS)), dim3(GROUP_THREADS), 0};
    return gpu_run(op, "a quantiser of experts' rows", grid, e2m1_kernel<T, F>, own, all);
}

// A product's input from a formula: as codes, or as floats of x's type.
template <typename T, typename F>
berth_status give(const gpu_coded *op, const berth_op_args *args, const gpu_coded_call &call,
                  int which, const F &formula) {
    const gpu_coded_stack &of = op->stacks[which];
    const berth_tensor *given = args->inputs[STACKS[which].input_scale];
    if (of.is_own) {
        return give_own<T>(op, args, call, which, formula);
    }
    int64_t shape[2] = {which == 0 ? args->inputs[X]->shape[0] : call.choices.count, of.depth};
    int64_t strides[2];
    const berth_tensor floats =
        gpu_experts_rows(call.numbers[which], args->inputs[X]->dtype, shape, strides);
    if (op->kind == GPU_CODES_FLOAT) {
        return gpu_each<T, T>(op, formula, &floats);
    }
    gpu_codes_input all = {};
    all.rule.kind = op->kind;
    all.rule.is_e4m3 = op->code == BERTH_CODE_E4M3;
    all.rule.given = given ? static_cast<const float *>(berth_gpu_data(given)) : nullptr;
    all.codes = reinterpret_cast<uint8_t *>(call.numbers[which]);
    all.scales = call.scales[which];
    all.width = of.depth;
    all.group = op->kind == GPU_CODES_GROUP ? of.scales.columns : of.depth;
    return gpu_codes_input_run<T>(op, formula, shape[0], all);
}

// Whether the first product of few rows has x itself.
bool is_plain_x(const gpu_coded *op, const berth_op_args *args, const gpu_coded_call &call) {
    return call.is_few && op->kind == GPU_CODES_FLOAT && !op->stacks[0].is_own &&
           !op->moe.is_weighted_first && gpu_is_aligned(gpu_rows_of(args->inputs[X]));
}

gpu_codes_product product_of(const gpu_coded *op, const berth_op_args *args,
                             const gpu_coded_call &call, int which) {
    const stack_inputs &at = STACKS[which];
    const gpu_coded_stack &of = op->stacks[which];
    const berth_tensor *scale = args->inputs[at.scale];
    const berth_tensor *zeros = args->inputs[at.zeros];
    const berth_tensor *bias = args->inputs[at.bias];
    const berth_tensor *given =
        op->kind == GPU_CODES_STATIC ? args->inputs[at.input_scale] : nullptr;
    const int64_t bytes = number_bytes(op);
    gpu_codes_product all = {};
    all.code = op->code;
    all.weight = static_cast<const uint8_t *>(berth_gpu_data(args->inputs[at.weight]));
    all.scales = gpu_code_scales_at(of.scales, scale);
    all.down = scale->shape[1];
    all.zeros = zeros ? static_cast<const uint8_t *>(berth_gpu_data(zeros)) : nullptr;
    all.bias = bias ? berth_gpu_data(bias) : nullptr;
    all.bias_dtype = bias ? bias->dtype : BERTH_DTYPE_F32;
    all.x = which == 0 && is_plain_x(op, args, call)
                ? gpu_rows_of(args->inputs[X])
                : gpu_rows{call.numbers[which], 1, of.depth * bytes, 0};
    all.rows_per_x = which == 0 && !of.is_own ? call.choices.per_token : 1;
    all.x_scales = op->kind == GPU_CODES_FLOAT ? nullptr
                   : given                     ? static_cast<const float *>(berth_gpu_data(given))
                                               : call.scales[which];
    all.x_scale_gap = given ? 0 : of.groups;
    all.x_scale_step = of.groups > 1;
    all.y = call.inner;
    all.outputs = static_cast<int>(of.outputs);
    all.depth = static_cast<int>(of.depth);
    return all;
}

template <typename T, typename X>
berth_status multiply(const gpu_coded *op, const gpu_coded_call &call,
                      const gpu_codes_product &all) {
    const int64_t rows = call.choices.count;
    const bool is_aligned = reinterpret_cast<uintptr_t>(all.weight) % 16 == 0;
    const bool is_wide = is_aligned && gpu_code_scales_fit(all.scales, all.depth, GPU_CODES_WIDE);
    if (!call.is_few) {
        const unsigned down = static_cast<unsigned>(gpu_experts_tiles(rows, op->experts));
        const gpu_grid tiles = {dim3(gpu_ceil(all.outputs, GPU_TILE), down), dim3(GPU_TILE_THREADS),
                                0};
        return op->multiply && is_wide
                   ? op->multiply(op, call, all, down)
                   : gpu_run(op, "experts of codes", tiles, gpu_codes_tiles_kernel<T, X>,
                             call.ordered, static_cast<int>(op->experts), all);
    }
    if (op->multiply_few && is_aligned) {
        return op->multiply_few(op, call, all);
    }
    const gpu_grid few = {
        dim3(gpu_ceil(all.outputs, GPU_EXPERTS_WARPS), static_cast<unsigned>(rows)),
        dim3(32, GPU_EXPERTS_WARPS), 0};
    return is_wide ? gpu_run(op, "experts of codes, few rows", few,
                             gpu_codes_few_kernel<T, X, GPU_CODES_WIDE>, call.choices, all)
                   : gpu_run(op, "experts of codes, few rows", few, gpu_codes_few_kernel<T, X, 1>,
                             call.choices, all);
}

template <typename T>
berth_status multiply(const gpu_coded *op, const berth_op_args *args, const gpu_coded_call &call,
                      int which) {
    const gpu_codes_product all = product_of(op, args, call, which);
    return op->kind == GPU_CODES_FLOAT   ? multiply<T, gpu_codes_x_floats<T>>(op, call, all)
           : op->kind == GPU_CODES_NVFP4 ? multiply<T, gpu_codes_x_e2m1>(op, call, all)
           : op->code == BERTH_CODE_E4M3 ? multiply<T, gpu_codes_x_e4m3>(op, call, all)
                                         : multiply<T, gpu_codes_x_i8>(op, call, all);
}

template <typename T>
berth_status run(const gpu_coded *op, const berth_op_args *args, const gpu_coded_call &call) {
    const int is_first = op->moe.is_weighted_first;
    const weighted_x x = {gpu_rows_of(args->inputs[X]), is_first ? call.choices.weights : nullptr};
    const gpu_expert_activation activation = {op->moe, call.inner, op->stacks[0].outputs,
                                              op->stacks[1].depth};
    const gpu_expert_sum sum = {call.choices, call.inner, op->stacks[1].outputs, is_first};
    berth_status status =
        call.is_few ? BERTH_OK : gpu_experts_order(op, call.choices, call.ordered);
    status =
        status == BERTH_OK && !is_plain_x(op, args, call) ? give<T>(op, args, call, 0, x) : status;
    status = status == BERTH_OK ? multiply<T>(op, args, call, 0) : status;
    status = status == BERTH_OK ? give<T>(op, args, call, 1, activation) : status;
    status = status == BERTH_OK ? multiply<T>(op, args, call, 1) : status;
    return status == BERTH_OK ? gpu_each<T, T>(op, sum, args->outputs[0]) : status;
}

// ---- the host's side ----------------------------------------------------------------------------

gpu_codes_kind kind_of(const berth_op_site *site) {
    const gpu_codes_kind kind = gpu_codes_kind_of(berth_site_attribute(site, "input")->str);
    const berth_attribute *divisors = berth_site_attribute(site, "has_global_scales");
    return kind == GPU_CODES_GROUP && divisors && divisors->i64 != 0 ? GPU_CODES_NVFP4 : kind;
}

gpu_coded_stack stack_of(const berth_op_site *site, const stack_inputs &at, int64_t depth) {
    const gpu_codes_kind kind = kind_of(site);
    const uint64_t permutation = static_cast<uint64_t>(at.permutation);
    const berth_value_type *weight = site->inputs[at.weight];
    gpu_coded_stack out = {};
    out.outputs = weight->dims[1].b;
    out.depth = depth;
    out.scales = gpu_code_scales_of(site, out.outputs, depth);
    out.groups = kind == GPU_CODES_GROUP || kind == GPU_CODES_NVFP4 ? out.scales.across : 1;
    out.is_own = kind == GPU_CODES_NVFP4 ||
                 (permutation < site->input_count && site->inputs[permutation] != nullptr);
    return out;
}

} // namespace

berth_status gpu_coded_create(const berth_op_site *site, const berth_device *device,
                              void **out_self) {
    const berth_status status = gpu_new<gpu_coded>(site, device, out_self);
    if (status == BERTH_OK) {
        gpu_coded *self = static_cast<gpu_coded *>(*out_self);
        const berth_value_type *x = site->inputs[X];
        const int64_t rows = site->inputs[W13_WEIGHT]->dims[1].b;
        self->moe = berth_moe_read(site);
        const int64_t width = rows / (1 + berth_moe_has_gate(self->moe.activation));
        self->moe.activation = berth_moe_gated(self->moe.activation);
        self->tokens = x->dims[0];
        self->code = berth_code_of(berth_site_attribute(site, "code")->str);
        self->kind = kind_of(site);
        self->per_token = site->inputs[TOPK_IDS]->dims[1].b;
        self->experts = site->inputs[W13_WEIGHT]->dims[0].b;
        self->dtype = x->dtype;
        self->stacks[0] = stack_of(site, STACKS[0], x->dims[1].b);
        self->stacks[1] = stack_of(site, STACKS[1], width);
    }
    return status;
}

uint64_t gpu_coded_workspace(void *self, uint64_t tokens) {
    const gpu_coded *op = static_cast<const gpu_coded *>(self);
    gpu_coded_call unused;
    return static_cast<uint64_t>(
        lay_out(op, static_cast<int64_t>(gpu_extent(op->tokens, tokens)), nullptr, &unused));
}

berth_status gpu_coded_forward(void *self, const berth_op_args *args) {
    const gpu_coded *op = static_cast<const gpu_coded *>(self);
    const berth_tensor *x = args->inputs[X];
    if (x->shape[0] == 0) {
        return BERTH_OK;
    }
    const gpu_coded_call call = begin(op, args);
    return gpu_with_type(
        x->dtype, [&](auto type) { return run<typename decltype(type)::type>(op, args, call); });
}

extern "C" {
extern const berth_op_impl berth_kernel_quantized_experts;
const berth_op_impl berth_kernel_quantized_experts = {
    BERTH_GPU_KERNEL("quantized_experts"),
    .revision = 2,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = gpu_coded_create,
    .workspace = gpu_coded_workspace,
    .forward = gpu_coded_forward,
    .destroy = gpu_destroy,
};
}
