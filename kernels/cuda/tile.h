// SPDX-License-Identifier: Apache-2.0
// Copies of tiles of a matrix of bytes or 16-bit elements into shared memory, which lay them out as
// panels (wgmma.h) and count their bytes at a barrier: compute capability 9. The matrix is
// described once by the driver, whose function is looked up: nothing of it is linked.
#ifndef BERTH_KERNELS_CUDA_TILE_H
#define BERTH_KERNELS_CUDA_TILE_H

#include <cuda/bulk.h>

#include <cuda.h>

#define CUDA_TILE_COLUMNS 64 // a panel's row

typedef decltype(&cuTensorMapEncodeTiled) cuda_tile_encode;

static inline cuda_tile_encode cuda_look_up_tile_encode() {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError(); // what is done another way is no failure
        return nullptr;
    }
    return reinterpret_cast<cuda_tile_encode>(found);
}

// NULL where the driver has none. Kept: to look it up takes longer than to start a kernel.
static inline cuda_tile_encode cuda_find_tile_encode() {
    static const cuda_tile_encode encode = cuda_look_up_tile_encode();
    return encode;
}

// Dense rows of `columns` elements, of which a tile has `tile_rows`.
struct cuda_tiled {
    const void *data;
    int64_t rows;
    int64_t columns;
    int tile_rows;
    CUtensorMapL2promotion fetched; // into the second cache at once
};

static inline bool cuda_describe_tiles(cuda_tile_encode encode, const cuda_tiled &matrix,
                                       CUtensorMap *out) {
    const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.columns),
                                 static_cast<cuuint64_t>(matrix.rows)};
    const cuuint64_t gaps[1] = {static_cast<cuuint64_t>(matrix.columns) * 2};
    const cuuint32_t tile[2] = {CUDA_TILE_COLUMNS, static_cast<cuuint32_t>(matrix.tile_rows)};
    const cuuint32_t steps[2] = {1, 1};
    return encode(out, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, const_cast<void *>(matrix.data), sizes,
                  gaps, tile, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  matrix.fetched, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// A matrix of rows of bytes or 16-bit elements, of which a box has `columns` by `rows`; what is
// behind its end is zeros, and is not written.
struct cuda_boxed {
    const void *data;
    int64_t rows;
    int64_t row_bytes;
    int64_t gap; // bytes
    int box_rows;
    int box_columns;
    CUtensorMapDataType type;
    CUtensorMapSwizzle order;
};

static inline bool cuda_describe_boxes(const cuda_boxed &matrix, CUtensorMap *out) {
    const cuda_tile_encode encode = cuda_find_tile_encode();
    const cuuint64_t width = matrix.type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
    const cuuint64_t row_bytes = static_cast<cuuint64_t>(matrix.row_bytes);
    const cuuint64_t sizes[2] = {row_bytes / width, static_cast<cuuint64_t>(matrix.rows)};
    const cuuint64_t gaps[1] = {static_cast<cuuint64_t>(matrix.gap)};
    const cuuint32_t box[2] = {static_cast<cuuint32_t>(matrix.box_columns),
                               static_cast<cuuint32_t>(matrix.box_rows)};
    const cuuint32_t steps[2] = {1, 1};
    return encode &&
           encode(out, matrix.type, 2, const_cast<void *>(matrix.data), sizes, gaps, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, matrix.order, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Rows of heads of 128 16-bit elements, as key and value caches have them. A box has `box_rows`
// rows of one head: their first 64 elements as a panel, then the others as another.
struct cuda_headed {
    const void *data;
    int64_t rows;
    int64_t heads;
    int box_rows;
};

static inline bool cuda_describe_heads(cuda_tile_encode encode, const cuda_headed &matrix,
                                       CUtensorMap *out) {
    const cuuint64_t panels = static_cast<cuuint64_t>(matrix.heads) * 2;
    const cuuint64_t sizes[3] = {CUDA_TILE_COLUMNS, static_cast<cuuint64_t>(matrix.rows), panels};
    const cuuint64_t gaps[2] = {panels * CUDA_TILE_COLUMNS * 2, CUDA_TILE_COLUMNS * 2};
    const cuuint32_t box[3] = {CUDA_TILE_COLUMNS, static_cast<cuuint32_t>(matrix.box_rows), 2};
    const cuuint32_t steps[3] = {1, 1, 1};
    return encode(out, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void *>(matrix.data), sizes,
                  gaps, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The box of `head` whose first row is `row`, of what is read once: it is the first to leave the
// second cache. `map` is a parameter of the kernel.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_head_stream(uint32_t to, const CUtensorMap *map, int head,
                                               int row, uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("{\n"
                     ".reg .b64 once;\n"
                     "createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
                     "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1, {0, %2, %3}], [%4], once;\n"
                     "}" ::"r"(to),
                     "l"(map), "r"(row), "r"(2 * head), "r"(barrier)
                     : "memory");
    }
}

// The tile whose first element is `column` of `row`. `map` is a parameter of the kernel.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_tile_copy(uint32_t to, const CUtensorMap *map, int column,
                                             int row, uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                     "l"(map), "r"(column), "r"(row), "r"(barrier)
                     : "memory");
    }
}

// The same of what is read once: it is the first to leave the second cache.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_tile_stream(uint32_t to, const CUtensorMap *map, int column,
                                               int row, uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("{\n"
                     ".reg .b64 once;\n"
                     "createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
                     "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], once;\n"
                     "}" ::"r"(to),
                     "l"(map), "r"(column), "r"(row), "r"(barrier)
                     : "memory");
    }
}

#endif
