// SPDX-License-Identifier: Apache-2.0
// Products of one row by codes of 4 bits whose blocks make x for themselves (before.h).
#ifndef BERTH_KERNELS_CUDA_FUSED_CODES_H
#define BERTH_KERNELS_CUDA_FUSED_CODES_H

#include <cuda/codes/before.h>
#include <cuda/codes/codes.h>

// Whether the one below takes it: one row behind a norm, of which a block's shared memory has room
// beside the weight's stages, and a weight of whole stages.
bool cuda_fuses_packed(const cuda_before &before, const cuda_coded &all);

// What comes of x, of type `x`, like y, times codes; all.x is not looked at.
berth_status cuda_fused_packed(const gpu_op *op, const cuda_before &before, const cuda_coded &all,
                               berth_dtype x);

#endif
