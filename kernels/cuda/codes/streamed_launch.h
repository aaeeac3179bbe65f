// SPDX-License-Identifier: Apache-2.0
// The host's side of the kernel that streamed_codes.cu describes: what a block's shared memory
// holds, the weight as the copies want it, the launch.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_LAUNCH_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_LAUNCH_H

#include <cuda/codes/streamed_kernel.h>
#include <cuda/shared.h>

namespace {

template <typename K, int EIGHTS> layout lay_out(const cuda_coded &all) {
    // Sums and barriers, up to where the ring begins.
    constexpr uint32_t TAKEN =
        (ROOMS<K, EIGHTS> * K::WARPS * sizeof(room_of<K, EIGHTS>) + 128 + 1023) / 1024 * 1024;
    const uint32_t groups = static_cast<uint32_t>(all.bytes) * 2 / NEAR_GROUP;
    layout places = {STAGES, 0, STAGES * STAGE_BYTES};
    if (K::IS_NEAR) {
        // Why 64: rows that a warp reads at once begin in different banks.
        places.gap = static_cast<uint32_t>(all.bytes * K::X_RATIO) + 64;
        const uint32_t x = static_cast<uint32_t>(all.rows) * places.gap +
                           groups * static_cast<uint32_t>(K::GROUP_BYTES);
        const int left = (static_cast<int>(BLOCK_BYTES - TAKEN) - static_cast<int>(x)) /
                         static_cast<int>(STAGE_BYTES);
        places.stages = left < STAGES ? left : STAGES;
        places.bytes = static_cast<uint32_t>(places.stages) * STAGE_BYTES + x;
    }
    return places;
}

// Codes of 8 bits as rows of words of 8 bytes.
berth_status describe(const gpu_op *op, const cuda_coded &all, CUtensorMap *out) {
    const cuda_tile_encode encode = cuda_find_tile_encode();
    const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(all.bytes / 8),
                                 static_cast<cuuint64_t>(all.outputs)};
    const cuuint64_t gaps[1] = {static_cast<cuuint64_t>(all.bytes)};
    const cuuint32_t box[2] = {PANEL / 8, OUTPUTS};
    const cuuint32_t steps[2] = {1, 1};
    // Why no promotion: fetching 256 bytes at once costs 2 % of a decode step.
    const bool is_described =
        encode &&
        encode(out, CU_TENSOR_MAP_DATA_TYPE_UINT64, 2, const_cast<uint8_t *>(all.weight), sizes,
               gaps, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
    return is_described ? BERTH_OK
                        : BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                            "the driver does not describe a weight's tiles");
}

template <typename T, typename K, int EIGHTS, typename I>
berth_status launch(const gpu_op *op, const cuda_coded &all, const layout &places,
                    const I &before) {
    const berth_status has_room =
        cuda_allow_shared(op, streamed_codes_kernel<T, K, EIGHTS, I>, places.bytes);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    CUtensorMap codes = {};
    const berth_status described = K::X_RATIO == 1 ? describe(op, all, &codes) : BERTH_OK;
    if (described != BERTH_OK) {
        return described;
    }
    const unsigned tiles = gpu_ceil(all.outputs, OUTPUTS);
    const unsigned most = static_cast<unsigned>(op->gpu->multiprocessors[op->device] * BLOCKS);
    const gpu_grid grid = {dim3(tiles < most ? tiles : most), dim3(32, K::WARPS + 1), places.bytes};
    return gpu_run(op, "a product of codes", grid, streamed_codes_kernel<T, K, EIGHTS, I>, all,
                   places, before, codes);
}

// Whether no stage is short, and scales and zero points can be copied beside its codes.
bool has_whole_stages(const cuda_coded &all) {
    const uintptr_t both =
        reinterpret_cast<uintptr_t>(all.group_scales) | reinterpret_cast<uintptr_t>(all.zeros);
    return all.bytes % STAGE == 0 &&
           (!all.group_scales || (all.group == NEAR_GROUP && both % 16 == 0));
}

} // namespace

#endif
