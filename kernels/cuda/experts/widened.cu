// SPDX-License-Identifier: Apache-2.0
// Experts' products of numbers with codes: codes become numbers, which numbers.cu multiplies. Of so
// many experts at a time that their tiles fill the multiprocessors: with 64 MB a product of 1,024
// tokens with gpt-oss-20b's experts took 1.24 ms on an H200, so 1.04, with twice as many .95.
#include <cuda/codes/widen.h>
#include <cuda/experts/numbers.h>
#include <cuda/experts/widened.h>

namespace {

constexpr int64_t AT_ONCE = INT64_C(256) << 20; // bytes of numbers

int64_t expert_bytes(const gpu_coded_stack &of) {
    return of.outputs * of.depth * 2;
}

int experts_at_once(int64_t bytes, int64_t experts) {
    const int64_t fit = AT_ONCE / bytes;
    return static_cast<int>(fit < 1 ? 1 : fit < experts ? fit : experts);
}

cuda_widened codes_of(const gpu_codes_product &all) {
    cuda_widened codes = {};
    codes.codes = all.weight;
    codes.zeros = all.zeros;
    codes.scales = all.scales;
    codes.code = all.code;
    codes.gap = berth_code_is_half(all.code) ? all.depth / 2 : all.depth;
    codes.depth = all.depth;
    return codes;
}

gpu_expert_product product_of(const gpu_codes_product &all, int first, const void *weight) {
    const int64_t bias = static_cast<int64_t>(first) * all.outputs;
    const int64_t bytes = BERTH_DTYPE_BITS(all.bias_dtype) / 8;
    gpu_expert_product product = {};
    product.x = all.x;
    product.rows_per_x = all.rows_per_x;
    product.weight = weight;
    product.bias = all.bias ? static_cast<const char *>(all.bias) + bias * bytes : nullptr;
    product.bias_dtype = all.bias_dtype;
    product.y = all.y;
    product.outputs = all.outputs;
    product.depth = all.depth;
    return product;
}

} // namespace

bool cuda_experts_are_widened(const gpu_coded *op, const gpu_coded_stack &of) {
    return op->kind == GPU_CODES_FLOAT && op->experts <= CUDA_MOST_EXPERTS && of.outputs % 8 == 0 &&
           of.outputs % of.scales.rows == 0 && gpu_code_scales_fit(of.scales, of.depth, CUDA_WIDE);
}

uint64_t cuda_experts_widened_bytes(const gpu_coded *op) {
    uint64_t most = 0;
    for (const gpu_coded_stack &of : op->stacks) {
        const int64_t bytes = expert_bytes(of);
        const uint64_t all = static_cast<uint64_t>(bytes * experts_at_once(bytes, op->experts));
        most = all > most ? all : most;
    }
    return most;
}

berth_status cuda_experts_widened(const gpu_coded *op, const gpu_coded_call &call,
                                  const gpu_codes_product &all) {
    const int64_t bytes = int64_t{all.outputs} * all.depth * 2;
    const int experts = static_cast<int>(op->experts);
    const int step = experts_at_once(bytes, experts);
    cuda_widened codes = codes_of(all);
    berth_status status = BERTH_OK;
    for (int first = 0; first < experts && status == BERTH_OK; first += step) {
        const int count = experts - first < step ? experts - first : step;
        cuda_some_experts some = {call.ordered, count, op->dtype};
        some.ordered.first += first;
        some.ordered.tiles += first;
        codes.first = first * all.outputs;
        codes.count = count * all.outputs;
        status = cuda_widen(op, codes, op->dtype, call.more);
        status = status == BERTH_OK ? cuda_run_experts(op, some, product_of(all, first, call.more))
                                    : status;
    }
    return status;
}
