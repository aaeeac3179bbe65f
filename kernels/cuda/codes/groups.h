// SPDX-License-Identifier: Apache-2.0
// Scales of groups of columns, of e4m3 on both sides of a product.
#ifndef BERTH_KERNELS_CUDA_CODES_GROUPS_H
#define BERTH_KERNELS_CUDA_CODES_GROUPS_H

#include <gpu/codes.h>

// Kernels that scale as they go take groups of whole steps, and of whole parts of a tile's outputs.
#define CUDA_GROUP_STEP 128
#define CUDA_GROUP_PART 64

struct cuda_groups {
    gpu_code_scales weight; // data NULL: there are none, or 1 of all columns
    const float *x;
    int64_t x_gap; // from row to row, 0: one for all
    int x_step;    // from group to group, 0: one a row

    // In which group a step of CUDA_GROUP_STEP codes is.
    __device__ int of_step(int step) const {
        return step / (static_cast<int>(weight.columns) / CUDA_GROUP_STEP);
    }
    __device__ float of_x(int row, int group) const {
        return x[row * x_gap + group * x_step];
    }
    // Where an output's scales begin. Why not gpu_code_scale: it divides, which takes longer than
    // all else that a step does with scales.
    __device__ int64_t begin_of(int output) const {
        return output / static_cast<int>(weight.rows) * weight.across;
    }
    __device__ float of_weight(int64_t begin, int group) const {
        return weight.data ? gpu_load_any(weight.data, weight.dtype, begin + group) : 1.0f;
    }
};

// Whether those kernels take them.
static inline bool cuda_groups_are_blocks(const gpu_code_scales &scales) {
    return scales.rows % CUDA_GROUP_PART == 0 && scales.columns % CUDA_GROUP_STEP == 0;
}

#endif
