// SPDX-License-Identifier: Apache-2.0
// linear of up to 16 rows on compute capability 9, bound by the weights' bytes. Two blocks a
// multiprocessor go through tiles of 8 or 16 outputs. One warp has their weights brought into a
// ring in shared memory by bulk copies, which cost no registers and go on from tile to tile, so
// that all blocks together always have several times the memory's latency under way; four warps
// share the depth of each stage and multiply on the tensor cores, rows being the first operand, of
// which a product has 16. The ring fills before the kernel waits for its input: the end of one
// kernel is hidden behind the beginning of the next. Weights leave the second cache first, or they
// would drive out what the kernels around have in it: 3 % of a decode step.
#include <cuda/bulk.h>
#include <cuda/mma.h>
#include <cuda/product/product.h>

extern "C" int32_t cuda_code_is_90(void);

namespace {

constexpr int WARPS = 4;                   // that multiply
constexpr int DEPTH = 512;                 // of a stage
constexpr int CHUNKS = DEPTH / WARPS / 32; // of 32, of a warp: two products each
// Why 64: two rows' quarters, which eight lanes read at once, lie in different banks.
constexpr uint32_t ROW_BYTES = DEPTH * 2 + 64;

// Of a multiprocessor. Why not one with a larger ring, nor three with a smaller one: 45 % and 3 %
// of a decode step. Nor rings so small that the next kernel's blocks find room before the last of
// this one's are done: 20 %.
constexpr int BLOCKS = 2;

// Up to 4 rows. Small tiles, so that all blocks have about as many.
struct four_rows {
    static constexpr bool IS_DEEP = false; // more than 8 rows
    static constexpr int OUTPUTS = 8;      // of a tile
    static constexpr int STAGES = 10;      // of the ring
};
// More: a tile's x costs as much as its weights, so tiles are larger.
struct eight_rows {
    static constexpr bool IS_DEEP = false;
    static constexpr int OUTPUTS = 16;
    static constexpr int STAGES = 6;
};
struct sixteen_rows : eight_rows {
    static constexpr bool IS_DEEP = true;
};

template <typename F> constexpr uint32_t STAGE_BYTES = F::OUTPUTS *ROW_BYTES;
template <typename F> constexpr uint32_t RING_BYTES = F::STAGES *STAGE_BYTES<F>;

struct barriers {
    uint32_t full; // of stage 0; the others follow in steps of 8 bytes
    uint32_t empty;
};

template <typename F>
__device__ void bring_weights(const cuda_few_operands &all, uint32_t ring,
                              const barriers &signals) {
    constexpr int OUTPUTS = F::OUTPUTS;
    const int lane = threadIdx.x;
    uint32_t parity = 1; // the first round waits for nobody
    int stage = 0;
    for (int first = static_cast<int>(blockIdx.x) * OUTPUTS; first < all.outputs;
         first += static_cast<int>(gridDim.x) * OUTPUTS) {
        const int output = first + lane < all.outputs ? first + lane : all.outputs - 1;
        const uint16_t *row = all.weight + static_cast<int64_t>(output) * all.depth;
        for (int k = 0; k < all.depth; k += DEPTH) {
            const uint32_t bytes =
                2u * static_cast<uint32_t>(k + DEPTH < all.depth ? DEPTH : all.depth - k);
            if (lane == 0) {
                cuda_barrier_wait(signals.empty + 8 * stage, parity);
                cuda_barrier_expect(signals.full + 8 * stage, OUTPUTS * bytes);
            }
            __syncwarp();
            if (lane < OUTPUTS) {
                cuda_bulk_copy(ring + stage * STAGE_BYTES<F> + lane * ROW_BYTES, row + k, bytes,
                               signals.full + 8 * stage);
            }
            stage = stage == F::STAGES - 1 ? 0 : stage + 1;
            parity ^= stage == 0;
        }
    }
}

// A warp's part of x for one stage: element 8c + 32i of rows g and, IS_DEEP, g + 8.
template <bool IS_DEEP> struct inputs {
    uint4 low[CHUNKS];
    uint4 high[IS_DEEP ? CHUNKS : 1];
};

__device__ uint4 load_input(const cuda_few_operands &all, int row, int k) {
    return row < all.rows && k < all.depth
               ? *reinterpret_cast<const uint4 *>(all.x + row * all.x_gap + k)
               : uint4{0, 0, 0, 0};
}

template <bool IS_DEEP>
__device__ void load_inputs(const cuda_few_operands &all, int k, inputs<IS_DEEP> *out) {
    const int g = threadIdx.x / 4;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        out->low[i] = load_input(all, g, k + 32 * i);
        if (IS_DEEP) {
            out->high[i] = load_input(all, g + 8, k + 32 * i);
        }
    }
}

// A warp's part of a stage's weights, out of the ring.
template <int HALVES> struct weights {
    uint4 at[CHUNKS][HALVES]; // of outputs g and g + 8
};

template <int HALVES> __device__ void load_weights(uint32_t from, weights<HALVES> *out) {
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            out->at[i][half] = cuda_load_shared(from + half * 8 * ROW_BYTES + 64 * i);
        }
    }
}

// Bits of all that a thread has loaded.
template <int HALVES> __device__ uint32_t loaded_of(const weights<HALVES> &w) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            any |= w.at[i][half].x;
        }
    }
    return any;
}

// Two sums for each half of the tile: a product need not wait for the one before it.
template <typename T, bool IS_DEEP, int HALVES>
__device__ void multiply(const weights<HALVES> &w, int there, const inputs<IS_DEEP> &x,
                         float (*sums)[4]) {
    const uint4 none = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const uint4 low = x.low[i];
        const uint4 high = IS_DEEP ? x.high[IS_DEEP ? i : 0] : none;
        const uint32_t first[4] = {low.x, high.x, low.y, high.y};
        const uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            // What a short last stage leaves of the one before it must not count.
            const uint4 weight = 32 * i < there ? w.at[i][half] : none;
            const uint32_t b[4] = {weight.x, weight.y, weight.z, weight.w};
            cuda_mma(sums[2 * half], first, b, T{});
            cuda_mma(sums[2 * half + 1], second, b + 2, T{});
        }
    }
}

// Which stage of the ring is next, and the parity of its phase.
struct place {
    int stage;
    uint32_t parity;
};

template <typename T, typename F>
__device__ void multiply_tile(const cuda_few_operands &all, uint32_t ring, const barriers &signals,
                              place *at, float (*sums)[4]) {
    int k = static_cast<int>(threadIdx.y) * (DEPTH / WARPS) + threadIdx.x % 4 * 8;
    const uint32_t mine = static_cast<uint32_t>(k) * 2 + threadIdx.x / 4 * ROW_BYTES;
    inputs<F::IS_DEEP> x[2];
    weights<F::OUTPUTS / 8> w;
    const int end = k + all.depth;
    load_inputs<F::IS_DEEP>(all, k, &x[0]);
    while (k < end) {
        // Why unrolled: a copy from one x to the other would wait for what has just been loaded.
#pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
            if (k >= end) {
                break;
            }
            load_inputs<F::IS_DEEP>(all, k + DEPTH, &x[turn ^ 1]);
            cuda_barrier_wait(signals.full + 8 * at->stage, at->parity);
            load_weights(ring + at->stage * STAGE_BYTES<F> + mine, &w);
            multiply<T, F::IS_DEEP>(w, all.depth - k, x[turn], sums);
            // Found on a device where the loads might still be under way: up to 80 of 1792 tiles
            // were wrong.
            const uint32_t empty =
                cuda_behind_loads(signals.empty + 8 * at->stage, loaded_of(w), all.depth);
            __syncwarp();
            if (threadIdx.x == 0) {
                cuda_barrier_arrive(empty);
            }
            at->stage = at->stage == F::STAGES - 1 ? 0 : at->stage + 1;
            at->parity ^= at->stage == 0;
            k += DEPTH;
        }
    }
}

// A tile's sums of a warp; rows padded by one.
template <typename F> struct sums_of { float at[F::IS_DEEP ? 16 : 8][F::OUTPUTS + 1]; };

// The warps' sums together, rounded, to y.
template <typename T, typename F>
__device__ void finish(const cuda_few_operands &all, const float (*sums)[4], sums_of<F> *room,
                       int first) {
    constexpr int OUTPUTS = F::OUTPUTS;
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < OUTPUTS / 8; ++half) {
#pragma unroll
        for (int i = 0; i < (F::IS_DEEP ? 4 : 2); ++i) {
            room[threadIdx.y].at[g + i / 2 * 8][half * 8 + 2 * c + i % 2] =
                sums[2 * half][i] + sums[2 * half + 1][i];
        }
    }
    asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32)); // the warps that multiply
    for (int at = threadIdx.y * 32 + threadIdx.x; at < all.rows * OUTPUTS; at += WARPS * 32) {
        const int row = at / OUTPUTS;
        const int output = first + at % OUTPUTS;
        if (output < all.outputs) {
            float sum = all.bias ? gpu_float(static_cast<const T *>(all.bias)[output]) : 0.0f;
#pragma unroll
            for (int warp = 0; warp < WARPS; ++warp) {
                sum += room[warp].at[row][at % OUTPUTS];
            }
            static_cast<T *>(all.y)[row * all.y_gap + output] = gpu_round<T>(sum);
        }
    }
}

template <typename T, typename F>
__global__ void __launch_bounds__((WARPS + 1) * 32, BLOCKS)
    streamed_rows_kernel(cuda_few_operands all) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ __align__(8) uint64_t signal_room[2 * F::STAGES];
    // Two, so that a tile's sums are not written over while the last one's are read.
    __shared__ sums_of<F> room[2][WARPS];
    const uint32_t ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signal_room));
    const barriers signals = {signal, signal + 8 * F::STAGES};
    gpu_let_next_begin();
    if (threadIdx.y == WARPS && threadIdx.x == 0) {
        for (int stage = 0; stage < F::STAGES; ++stage) {
            cuda_barrier_init(signals.full + 8 * stage, 1);
            cuda_barrier_init(signals.empty + 8 * stage, WARPS);
        }
        cuda_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.y == WARPS) {
        bring_weights<F>(all, ring, signals);
        return;
    }
    place at = {0, 0};
    gpu_wait_for_inputs();
    int turn = 0;
    for (int first = static_cast<int>(blockIdx.x) * F::OUTPUTS; first < all.outputs;
         first += static_cast<int>(gridDim.x) * F::OUTPUTS, turn ^= 1) {
        float sums[F::OUTPUTS / 4][4] = {};
        multiply_tile<T, F>(all, ring, signals, &at, sums);
        finish<T, F>(all, sums, room[turn], first);
    }
}

template <typename T, typename F>
berth_status launch(const gpu_op *op, const cuda_few_operands &all) {
    const cudaError_t error = cudaFuncSetAttribute(
        streamed_rows_kernel<T, F>, cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES<F>);
    if (error != cudaSuccess) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                 RING_BYTES<F>, cudaGetErrorString(error));
    }
    const unsigned tiles = gpu_ceil(all.outputs, F::OUTPUTS);
    const unsigned blocks = static_cast<unsigned>(op->gpu->multiprocessors[op->device] * BLOCKS);
    const gpu_grid grid = {dim3(tiles < blocks ? tiles : blocks), dim3(32, WARPS + 1),
                           RING_BYTES<F>};
    return gpu_run(op, "linear", grid, streamed_rows_kernel<T, F>, all);
}

template <typename T> berth_status start(const gpu_op *op, const cuda_few_operands &all) {
    return all.rows <= 4   ? launch<T, four_rows>(op, all)
           : all.rows <= 8 ? launch<T, eight_rows>(op, all)
                           : launch<T, sixteen_rows>(op, all);
}

} // namespace

extern "C" int32_t cuda_code_is_90(void) {
    cudaFuncAttributes attributes = {};
    const cudaError_t error =
        cudaFuncGetAttributes(&attributes, streamed_rows_kernel<gpu_bf16, four_rows>);
    return error == cudaSuccess && attributes.ptxVersion >= 90;
}

berth_status cuda_streamed_rows(const gpu_op *op, const cuda_product &product) {
    const cuda_few_operands all = cuda_few_operands_of(product);
    return product.dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, all) : start<gpu_f16>(op, all);
}
