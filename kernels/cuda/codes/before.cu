// SPDX-License-Identifier: Apache-2.0
// Rows of x as a product takes them: norm or activation and codes by one kernel, where rows are too
// many for each block of the product to make them for itself. A block a row; several where rows are
// few and wide.
#include <cuda/cluster.h>
#include <cuda/codes/before.h>
#include <cuda/codes/digits.h>

namespace {

constexpr int MOST_HELD = 4;     // times eight elements of a thread
constexpr int MAX_THREADS = 512; // of a row
constexpr int FEW_ROWS = 128;    // leave multiprocessors idle

constexpr int PARTS = 8; // of a row that several blocks share
constexpr int PART_THREADS = 256;
constexpr int PARTED_ROWS = 64;
constexpr int PARTED_WIDTH = 4096; // up to here one block is as fast

static_assert(MOST_HELD * MAX_THREADS * 8 >= CUDA_BEFORE_WIDTH);
static_assert(PARTS * PART_THREADS * 8 >= CUDA_BEFORE_WIDTH);

struct block {
    float *room; // two for a warp

    __device__ int thread() const {
        return static_cast<int>(threadIdx.x);
    }
    __device__ int count() const {
        return static_cast<int>(blockDim.x);
    }
    __device__ float sum(float value) const {
        return gpu_block_sum(value, room);
    }
    __device__ float largest(float value) const {
        return gpu_block_max(value, room + MAX_THREADS / 32);
    }
};

// ---- blocks that share a row --------------------------------------------------------------------

// To the same place in another block of the cluster, which has begun and not ended.
template <bool IS_90 = CUDA_IS_90>
__device__ void store_in_block(unsigned number, float *at, float value) {
    if constexpr (IS_90) {
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cuda_place_in(
                         static_cast<uint32_t>(__cvta_generic_to_shared(at)), number)),
                     "f"(value)
                     : "memory");
    }
}

struct part {
    float *room; // one for a warp, then one for a part

    __device__ int thread() const {
        return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    }
    __device__ int count() const {
        return static_cast<int>(PARTS * blockDim.x);
    }
    // Of all blocks. Once: the room is not free again.
    __device__ float largest(float value) const {
        float *parts = room + PART_THREADS / 32;
        value = gpu_block_max(value, room);
        if (threadIdx.x < PARTS) {
            store_in_block(threadIdx.x, parts + blockIdx.x, value);
        }
        cuda_cluster_arrive();
        cuda_cluster_wait();
        value = parts[0];
#pragma unroll
        for (int i = 1; i < PARTS; ++i) {
            value = gpu_larger_size(parts[i], value);
        }
        return value;
    }
};

// ---- rows ---------------------------------------------------------------------------------------

// Number `piece` of a row's eights, by whole warps.
template <typename T>
__device__ void store_digits(const cuda_before &all, char *row, int piece, const cuda_eight<T> &x) {
    constexpr int PIECES = CUDA_DIGIT_GROUP / 8;
    char *known = row + all.width / CUDA_DIGIT_GROUP * CUDA_DIGIT_BYTES;
    char *group = row + piece / PIECES * CUDA_DIGIT_BYTES;
    cuda_make_digits<T, 1>(
        &x, piece,
        [&](int, uint32_t at, uint32_t word) { *reinterpret_cast<uint32_t *>(group + at) = word; },
        [&](int, float unit, float sum) {
            if (piece % PIECES == 0) {
                reinterpret_cast<float2 *>(known)[piece / PIECES] = {unit, sum};
            }
        });
}

// Elements k and on of a row of numbers.
template <typename T>
__device__ void store_eight(const cuda_before &all, T *row, int k, const cuda_eight<T> &x) {
    if (all.layout == CUDA_IN_ROWS) {
        gpu_store<T, 8>(row, k, x);
        return;
    }
    if (all.layout == CUDA_IN_DIGITS) {
        store_digits<T>(all, reinterpret_cast<char *>(row), k / 8, x);
        return;
    }
    uint4 words;
    uint32_t pairs[4];
    memcpy(&words, &x, sizeof words);
    cuda_interleave(words, pairs);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        reinterpret_cast<uint32_t *>(row)[cuda_batch_place(k, i)] = pairs[i];
    }
}

// What threads hold of a row, as codes or numbers. CODES: their type, or BERTH_DTYPE_NONE: numbers
// of type T.
template <typename T, berth_dtype CODES, int COUNT, typename G>
__device__ void store_row(const cuda_before &all, int row, const G &together,
                          const cuda_held_row<T, COUNT> &held, void *to, float *scales) {
    const int64_t begin = static_cast<int64_t>(row) * all.width;
    if constexpr (CODES == BERTH_DTYPE_NONE) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int k = held.element(together, i);
            if (k < all.width) {
                store_eight<T>(all, static_cast<T *>(to) + begin, k, held.at[i]);
            }
        }
        return;
    }
    const auto coder = cuda_coder_of<CODES == BERTH_DTYPE_I8>(all, together, held);
    uint8_t *codes = static_cast<uint8_t *>(to) + begin;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int k = held.element(together, i);
        if (k < all.width) {
            *reinterpret_cast<uint2 *>(codes + k) = coder.codes(held.at[i]);
        }
    }
    if (together.thread() == 0 && !all.scale) {
        scales[row] = coder.scale;
    }
}

// Why two blocks of the largest size must fit: a row is on its way while another one is made. A
// norm's rows take fewer threads, and more registers of each. HELD: eights of a thread; one of them
// takes 22 to 34 registers, four take 55 to 85.
template <typename T, berth_dtype CODES, int STEP, int HELD>
__global__ void __launch_bounds__(MAX_THREADS, STEP == CUDA_NORM && HELD > 1 ? 1 : 2)
    before_kernel(cuda_before all, void *to, float *scales) {
    __shared__ float room[2 * MAX_THREADS / 32];
    const block together = {room};
    const int row = static_cast<int>(blockIdx.x);
    cuda_held_row<T, HELD> held;
    gpu_let_next_begin();
    const auto fetched = cuda_ahead<T, HELD>::of(all, together);
    gpu_wait_for_inputs();
    cuda_make_row<T, HELD, STEP>(all, row, true, together, fetched, &held);
    store_row<T, CODES>(all, row, together, held, to, scales);
}

// The same by PARTS blocks a row, blockIdx.y its number, which for codes exchange the largest of
// theirs: of few rows one multiprocessor takes longer for a row's exponentials than for all else.
template <typename T, berth_dtype CODES, int STEP>
__global__ void CUDA_IN_CLUSTERS(CODES == BERTH_DTYPE_NONE ? 1 : PARTS)
    __launch_bounds__(PART_THREADS) before_parts_kernel(cuda_before all, void *to, float *scales) {
    __shared__ float room[PART_THREADS / 32 + PARTS];
    const part together = {room};
    const int row = static_cast<int>(blockIdx.y);
    cuda_held_row<T, 1> held;
    gpu_let_next_begin();
    if constexpr (CODES != BERTH_DTYPE_NONE) {
        cuda_cluster_arrive();
    }
    gpu_wait_for_inputs();
    cuda_make_row<T, 1, STEP>(all, row, true, together, cuda_ahead<T, 1>{}, &held);
    if constexpr (CODES != BERTH_DTYPE_NONE) {
        cuda_cluster_wait();
    }
    store_row<T, CODES>(all, row, together, held, to, scales);
}

template <typename T, berth_dtype CODES>
berth_status start_parts(const gpu_op *op, const cuda_before &all, void *to, float *scales) {
    const gpu_grid grid = {dim3(PARTS, static_cast<unsigned>(all.rows)),
                           dim3(gpu_ceil(gpu_ceil(all.width / 8, PARTS), 32) * 32), 0};
    const char *name = "what is before a product, in parts";
    return all.step == CUDA_SILU
               ? gpu_run(op, name, grid, before_parts_kernel<T, CODES, CUDA_SILU>, all, to, scales)
               : gpu_run(op, name, grid, before_parts_kernel<T, CODES, CUDA_AS_IS>, all, to,
                         scales);
}

template <typename T, berth_dtype CODES, int HELD>
berth_status start_held(const gpu_op *op, const cuda_before &all, void *to, float *scales,
                        unsigned threads) {
    const gpu_grid grid = {dim3(static_cast<unsigned>(all.rows)), dim3(threads), 0};
    const char *name = "what is before a product";
    return all.step == CUDA_NORM
               ? gpu_run(op, name, grid, before_kernel<T, CODES, CUDA_NORM, HELD>, all, to, scales)
           : all.step == CUDA_SILU
               ? gpu_run(op, name, grid, before_kernel<T, CODES, CUDA_SILU, HELD>, all, to, scales)
               : gpu_run(op, name, grid, before_kernel<T, CODES, CUDA_AS_IS, HELD>, all, to,
                         scales);
}

template <typename T, berth_dtype CODES>
berth_status start_codes(const gpu_op *op, const cuda_before &all, void *to, float *scales) {
    if (all.step != CUDA_NORM && all.rows <= PARTED_ROWS && all.width > PARTED_WIDTH) {
        return start_parts<T, CODES>(op, all, to, scales);
    }
    // Few rows: as many threads as eights; where these are too many, all threads have as many. Many
    // rows: as few threads as can keep one, so that more rows are on their way at once.
    const unsigned eights = gpu_ceil(all.width, 8);
    const unsigned held = all.rows < FEW_ROWS ? gpu_ceil(eights, MAX_THREADS) : MOST_HELD;
    const unsigned threads = gpu_ceil(gpu_ceil(eights, held), 32) * 32;
    // Why not of numbers: 16 requests of codes of 4 bits took 1.4 % more.
    if constexpr (CODES != BERTH_DTYPE_NONE) {
        if (held == 1) {
            return start_held<T, CODES, 1>(op, all, to, scales, threads);
        }
    }
    return start_held<T, CODES, MOST_HELD>(op, all, to, scales, threads);
}

template <typename T>
berth_status start(const gpu_op *op, const cuda_before &all, void *to, float *scales) {
    return all.codes == BERTH_DTYPE_NONE ? start_codes<T, BERTH_DTYPE_NONE>(op, all, to, scales)
           : all.codes == BERTH_DTYPE_I8
               ? start_codes<T, BERTH_DTYPE_I8>(op, all, to, scales)
               : start_codes<T, BERTH_DTYPE_F8_E4M3FN>(op, all, to, scales);
}

} // namespace

berth_status cuda_run_before(const gpu_op *op, const cuda_before &all, berth_dtype x, void *to,
                             float *scales) {
    return x == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, all, to, scales)
                                 : start<gpu_f16>(op, all, to, scales);
}
