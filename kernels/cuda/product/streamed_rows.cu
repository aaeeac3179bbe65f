// SPDX-License-Identifier: Apache-2.0
// linear of up to 16 rows on compute capability 9, bound by the weights' bytes. Two blocks a
// multiprocessor go through tiles of 8 or 16 outputs. One thread has their weights brought into a
// ring in shared memory by tile copies, which cost no registers and go on from tile to tile; four
// warps share the depth of each stage and multiply on the tensor cores, rows being the first
// operand, of which a product has 16. The ring fills before the kernel waits for its input: the end
// of one kernel is hidden behind the beginning of the next. Weights leave the second cache first,
// or they would drive out what the kernels around have in it: 3 % of a decode step.
#include <cuda/mma.h>
#include <cuda/product/product.h>
#include <cuda/shared.h>
#include <cuda/tile.h>

extern "C" int32_t cuda_code_is_90(void);

namespace {

constexpr int WARPS = 4;                              // that multiply
constexpr int DEPTH = 512;                            // of a stage
constexpr int CHUNKS = DEPTH / WARPS / 32;            // of 32, of a warp: two products each
constexpr uint32_t PANEL_ROW = CUDA_TILE_COLUMNS * 2; // bytes
constexpr int PANELS = DEPTH / CUDA_TILE_COLUMNS;     // of a stage

// Of a multiprocessor. Why not one with a larger ring, nor three with a smaller one: 45 % and 3 %
// of a decode step. Nor rings so small that the next kernel's blocks find room before the last of
// this one's are done: 20 %.
constexpr int BLOCKS = 2;
constexpr uint32_t BLOCK_BYTES = 113u << 10; // of a block's shared memory, where BLOCKS fit

// Up to 4 rows. Small tiles, so that all blocks have about as many.
struct four_rows {
    static constexpr bool IS_DEEP = false; // more than 8 rows
    static constexpr bool IS_NEAR = false; // x lies in shared memory
    static constexpr int OUTPUTS = 8;      // of a tile
    static constexpr int STAGES = 10;      // of the ring, at most
    // Stages that are under way at once. Why not the whole ring: what other kernels load, and this
    // one's x, would wait behind 20 MB of weights.
    static constexpr int PACE = 3;
};
// Where there is room for it. Why: of one row a stage's part of x comes later than its weights.
struct four_near_rows : four_rows {
    static constexpr bool IS_NEAR = true;
};
// More: a tile's x costs as much as its weights, so tiles are larger.
struct eight_rows {
    static constexpr bool IS_DEEP = false;
    static constexpr bool IS_NEAR = false;
    static constexpr int OUTPUTS = 16;
    static constexpr int STAGES = 6;
    static constexpr int PACE = 2;
};
struct sixteen_rows : eight_rows {
    static constexpr bool IS_DEEP = true;
};

constexpr int LEAST_STAGES = 6; // beside x

template <typename F> constexpr uint32_t PANEL_BYTES = F::OUTPUTS *PANEL_ROW;
template <typename F> constexpr uint32_t STAGE_BYTES = F::OUTPUTS *DEPTH * 2;

// What shared memory holds: the ring, then, where it is near, x, rows `gap` bytes apart.
struct layout {
    int stages;
    uint32_t gap;
    uint32_t bytes;
};

// Addresses in shared memory; barriers are stage 0's, those of the others follow in steps of 8.
struct ring {
    uint32_t memory;
    uint32_t full;
    uint32_t empty;
    uint32_t x;
    uint32_t x_full; // its barrier
    uint32_t gap;
    int stages;
};

// Panels of a tile's rows, in which 16-byte pieces are exchanged by the row's number, so that lanes
// read them from different banks; zeros behind the weight's ends. By the elected thread of a warp:
// lanes that start a copy each do so one after the other, in a loop.
template <typename F>
__device__ void bring_weights(const cuda_few_operands &all, const ring &to,
                              const CUtensorMap *weights) {
    cuda_place at = {0, 1}; // the first round waits for nobody
    cuda_place behind = {0, 0};
    int begun = 0;
    for (int first = static_cast<int>(blockIdx.x) * F::OUTPUTS; first < all.outputs;
         first += static_cast<int>(gridDim.x) * F::OUTPUTS) {
        for (int k = 0; k < all.depth; k += DEPTH, ++begun) {
            if (begun >= F::PACE) {
                cuda_barrier_wait(to.full + 8 * behind.stage, behind.parity);
                behind.go_on(to.stages);
            }
            cuda_barrier_wait(to.empty + 8 * at.stage, at.parity);
            cuda_barrier_expect(to.full + 8 * at.stage, STAGE_BYTES<F>);
#pragma unroll
            for (int panel = 0; panel < PANELS; ++panel) {
                cuda_tile_stream(to.memory + at.stage * STAGE_BYTES<F> + panel * PANEL_BYTES<F>,
                                 weights, k + panel * CUDA_TILE_COLUMNS, first,
                                 to.full + 8 * at.stage);
            }
            at.go_on(to.stages);
        }
    }
}

// ---- x ------------------------------------------------------------------------------------------

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

__device__ void load_near(const cuda_few_operands &all, const ring &from, int k,
                          inputs<false> *out) {
    const int g = threadIdx.x / 4;
    const uint32_t row = from.x + static_cast<uint32_t>(g) * from.gap;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        out->low[i] = {0, 0, 0, 0};
        cuda_load_shared_if(g < all.rows && k + 32 * i < all.depth,
                            row + 2 * static_cast<uint32_t>(k + 32 * i), &out->low[i]);
    }
}

// By all warps that multiply: x is there.
__device__ void bring_inputs(const cuda_few_operands &all, const ring &to) {
    const uint32_t bytes = 2 * static_cast<uint32_t>(all.depth);
    if (threadIdx.y == 0 && cuda_is_elected()) {
        cuda_barrier_expect(to.x_full, static_cast<uint32_t>(all.rows) * bytes);
        for (int row = 0; row < all.rows; ++row) {
            cuda_bulk_copy_shared(to.x + static_cast<uint32_t>(row) * to.gap,
                                  all.x + row * all.x_gap, bytes, to.x_full);
        }
    }
    __syncwarp();
    cuda_barrier_wait(to.x_full, 0);
}

// ---- products -----------------------------------------------------------------------------------

// Which of eight outputs is a lane's, and a product's column's. Why not its number: rows whose
// pieces eight lanes read at once are exchanged differently.
__device__ constexpr int output_of(int column) {
    return column / 2 + column % 2 * 4;
}

// A warp's part of a stage's weights, out of the ring.
template <int HALVES> struct weights {
    uint4 at[CHUNKS][HALVES]; // of outputs output_of(g) and eight on
};

template <typename F> __device__ void load_weights(uint32_t stage, weights<F::OUTPUTS / 8> *out) {
    const uint32_t row = static_cast<uint32_t>(output_of(static_cast<int>(threadIdx.x) / 4));
    const uint32_t piece = (threadIdx.x % 4 ^ row) * 16;
    const uint32_t from = stage + threadIdx.y * PANELS / WARPS * PANEL_BYTES<F> + row * PANEL_ROW;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
        for (int half = 0; half < F::OUTPUTS / 8; ++half) {
            out->at[i][half] = cuda_load_shared(from + i / 2 * PANEL_BYTES<F> +
                                                half * 8 * PANEL_ROW + (piece ^ i % 2 * 64));
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
__device__ void multiply(const weights<HALVES> &w, const inputs<IS_DEEP> &x, float (*sums)[4]) {
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const uint4 low = x.low[i];
        const uint4 high = IS_DEEP ? x.high[IS_DEEP ? i : 0] : uint4{0, 0, 0, 0};
        const uint32_t first[4] = {low.x, high.x, low.y, high.y};
        const uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            const uint4 weight = w.at[i][half];
            const uint32_t b[4] = {weight.x, weight.y, weight.z, weight.w};
            cuda_mma(sums[2 * half], first, b, T{});
            cuda_mma(sums[2 * half + 1], second, b + 2, T{});
        }
    }
}

// The next stage times x from element k on, which `x` has or, IS_NEAR, gets.
template <typename T, typename F>
__device__ void multiply_stage(const cuda_few_operands &all, const ring &from, int k,
                               inputs<F::IS_DEEP> *x, cuda_place *at, float (*sums)[4]) {
    weights<F::OUTPUTS / 8> w;
    cuda_barrier_wait(from.full + 8 * at->stage, at->parity);
    load_weights<F>(from.memory + at->stage * STAGE_BYTES<F>, &w);
    if constexpr (F::IS_NEAR) {
        load_near(all, from, k, x);
    }
    multiply<T, F::IS_DEEP>(w, *x, sums);
    // Found on a device where the loads might still be under way: up to 80 of 1792 tiles were
    // wrong.
    const uint32_t empty = cuda_behind_loads(from.empty + 8 * at->stage, loaded_of(w), all.depth);
    __syncwarp();
    if (threadIdx.x == 0) {
        cuda_barrier_arrive(empty);
    }
    at->go_on(from.stages);
}

template <typename T, typename F>
__device__ void multiply_tile(const cuda_few_operands &all, const ring &from, cuda_place *at,
                              float (*sums)[4]) {
    int k = static_cast<int>(threadIdx.y) * (DEPTH / WARPS) + threadIdx.x % 4 * 8;
    const int end = k + all.depth;
    inputs<F::IS_DEEP> x[2];
    if (!F::IS_NEAR) {
        load_inputs<F::IS_DEEP>(all, k, &x[0]);
    }
    while (k < end) {
        // Why unrolled: a copy from one x to the other would wait for what has just been loaded.
#pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
            if (k >= end) {
                break;
            }
            if (!F::IS_NEAR) {
                load_inputs<F::IS_DEEP>(all, k + DEPTH, &x[turn ^ 1]);
            }
            multiply_stage<T, F>(all, from, k, &x[turn], at, sums);
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
            room[threadIdx.y].at[g + i / 2 * 8][half * 8 + output_of(2 * c + i % 2)] =
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
    streamed_rows_kernel(cuda_few_operands all, layout places,
                         const __grid_constant__ CUtensorMap weights) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signal_room[2 * F::STAGES + 1];
    // Two, so that a tile's sums are not written over while the last one's are read.
    __shared__ sums_of<F> room[2][WARPS];
    const uint32_t memory = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signal_room));
    const ring stages = {memory,
                         signal,
                         signal + 8 * F::STAGES,
                         memory + static_cast<uint32_t>(places.stages) * STAGE_BYTES<F>,
                         signal + 16 * F::STAGES,
                         places.gap,
                         F::IS_NEAR ? places.stages : F::STAGES};
    gpu_let_next_begin();
    if (threadIdx.y == WARPS && threadIdx.x == 0) {
        for (int stage = 0; stage < F::STAGES; ++stage) {
            cuda_barrier_init(stages.full + 8 * stage, 1);
            cuda_barrier_init(stages.empty + 8 * stage, WARPS);
        }
        cuda_barrier_init(stages.x_full, 1);
        cuda_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.y == WARPS) {
        if (cuda_is_elected()) {
            bring_weights<F>(all, stages, &weights);
        }
        return;
    }
    cuda_place at = {0, 0};
    gpu_wait_for_inputs();
    if (F::IS_NEAR) {
        bring_inputs(all, stages);
    }
    int turn = 0;
    for (int first = static_cast<int>(blockIdx.x) * F::OUTPUTS; first < all.outputs;
         first += static_cast<int>(gridDim.x) * F::OUTPUTS, turn ^= 1) {
        float sums[F::OUTPUTS / 4][4] = {};
        multiply_tile<T, F>(all, stages, &at, sums);
        finish<T, F>(all, sums, room[turn], first);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

// Sums, barriers and what the device takes, up to where the ring begins.
template <typename F>
constexpr uint32_t
    TAKEN = (2 * WARPS * sizeof(sums_of<F>) + 16 * F::STAGES + 8 + 1023) / 1024 * 1024 + 1024;

// `stages` below LEAST_STAGES: x is not for shared memory.
template <typename F> layout lay_out(const cuda_few_operands &all) {
    layout places = {F::STAGES, 0, F::STAGES * STAGE_BYTES<F>};
    if (F::IS_NEAR) {
        // Why 64: rows that a warp reads at once begin in different banks.
        const int64_t gap = static_cast<int64_t>(all.depth) * 2 + 64;
        const int64_t left = (BLOCK_BYTES - TAKEN<F> - all.rows * gap) / STAGE_BYTES<F>;
        places.stages = static_cast<int>(left < F::STAGES ? left : F::STAGES);
        places.gap = static_cast<uint32_t>(gap);
        places.bytes = static_cast<uint32_t>(places.stages * STAGE_BYTES<F> + all.rows * gap);
    }
    return places;
}

template <typename T, typename F>
berth_status launch(const gpu_op *op, const cuda_few_operands &all, const layout &places) {
    // Why not what this one takes: it is the kernel's, of which a recording may hold larger ones.
    constexpr uint32_t MOST = BLOCK_BYTES - TAKEN<F>;
    const berth_status has_room = cuda_allow_shared(op, streamed_rows_kernel<T, F>, MOST);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    const cuda_tile_encode encode = cuda_find_tile_encode();
    // Why no more at once: fetching 256 bytes costs 2 %.
    const cuda_tiled matrix = {all.weight, all.outputs, all.depth, F::OUTPUTS,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE};
    CUtensorMap weights = {};
    if (!encode || !cuda_describe_tiles(encode, matrix, &weights)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                 "the driver does not describe a weight's panels");
    }
    const unsigned tiles = gpu_ceil(all.outputs, F::OUTPUTS);
    const unsigned blocks = static_cast<unsigned>(op->gpu->multiprocessors[op->device] * BLOCKS);
    const gpu_grid grid = {dim3(tiles < blocks ? tiles : blocks), dim3(32, WARPS + 1),
                           places.bytes};
    return gpu_run(op, "linear", grid, streamed_rows_kernel<T, F>, all, places, weights);
}

template <typename T, typename F>
berth_status launch(const gpu_op *op, const cuda_few_operands &all) {
    return launch<T, F>(op, all, lay_out<F>(all));
}

template <typename T> berth_status start(const gpu_op *op, const cuda_few_operands &all) {
    const layout near = lay_out<four_near_rows>(all);
    if (all.rows <= 4 && near.stages >= LEAST_STAGES) {
        return launch<T, four_near_rows>(op, all, near);
    }
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
