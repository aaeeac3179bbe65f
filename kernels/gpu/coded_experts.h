// SPDX-License-Identifier: Apache-2.0
// quantized_experts on a GPU: what its kernels share. gpu.quantized_experts takes every site; a
// faster one brings products of its own.
#ifndef BERTH_KERNELS_GPU_CODED_EXPERTS_H
#define BERTH_KERNELS_GPU_CODED_EXPERTS_H

#include "codes_input.h"
#include "codes_tiles.h"

// A stack of matrices and its input [rows, depth].
struct gpu_coded_stack {
    gpu_code_scales scales;
    int64_t outputs; // of an expert
    int64_t depth;
    int64_t groups; // scales of a row of the input
    // Experts see an input of their own: its columns are in another order, or its codes are made
    // with a divisor of each. So it has a row a choice, not one a token.
    bool is_own;
};

// A call: the choices and what lies between the steps.
struct gpu_coded_call {
    gpu_choices choices;
    gpu_ordered ordered;
    bool is_few;
    char *numbers[2]; // the products' inputs as codes, or of x's type where they stay floats
    float *scales[2];
    char *inner; // of the first product; the second's result comes to the same place
    char *more;  // what a faster kernel has asked for behind gpu_coded_workspace
};

struct gpu_coded : gpu_op {
    berth_moe moe;
    berth_dim tokens; // of x
    berth_code code;
    gpu_codes_kind kind;
    berth_dtype dtype; // of x
    int64_t per_token;
    int64_t experts;
    gpu_coded_stack stacks[2];
    // The products of many rows, of which there are `tiles` at most, and of few; NULL: those of
    // gpu.quantized_experts. Weights are aligned to 16 bytes.
    berth_status (*multiply)(const gpu_coded *op, const gpu_coded_call &call,
                             const gpu_codes_product &all, unsigned tiles);
    berth_status (*multiply_few)(const gpu_coded *op, const gpu_coded_call &call,
                                 const gpu_codes_product &all);
};

berth_status gpu_coded_create(const berth_op_site *site, const berth_device *device,
                              void **out_self);
uint64_t gpu_coded_workspace(void *self, uint64_t tokens);
berth_status gpu_coded_forward(void *self, const berth_op_args *args);

#endif
