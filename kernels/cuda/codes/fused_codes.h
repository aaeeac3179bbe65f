// SPDX-License-Identifier: Apache-2.0
// Products of a few rows by codes of weights whose blocks make x for themselves (before.h).
#ifndef BERTH_KERNELS_CUDA_FUSED_CODES_H
#define BERTH_KERNELS_CUDA_FUSED_CODES_H

#include <cuda/codes/before.h>
#include <cuda/codes/codes.h>

// Whether the two below take it: few rows, of which a block's shared memory has room for one beside
// the weight's stages, and a weight of whole stages.
bool cuda_fuses_scaled(const cuda_before &before, const cuda_coded &all);
bool cuda_fuses_packed(const cuda_before &before, const cuda_coded &all);

// What comes of x, of type `x`, like y, times codes; all.x and all.x_scales are not looked at.
berth_status cuda_fused_scaled(const gpu_op *op, const cuda_before &before, const cuda_coded &all,
                               berth_dtype x);
berth_status cuda_fused_packed(const gpu_op *op, const cuda_before &before, const cuda_coded &all,
                               berth_dtype x);

#endif
