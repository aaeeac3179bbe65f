// SPDX-License-Identifier: Apache-2.0
// Up to 256 rows through the first two layers of a gated MLP. A block has a tile of 112 outputs,
// the gate's 112 rows of the weight and those of up, and all rows of x, which groups of four warps
// share. Both numbers that an output is made of are sums of one thread, so the product, twice as
// wide as y, is never stored.
//
// 256 rows of Llama-3-8B's size are held by the device's power: an H200 takes 98.8 us and 69.8 mJ,
// and 107.0 us and 77.3 mJ with cuBLASLt's product and the activation behind it. What did not pay:
// x shared by the blocks of a cluster (119 us beside 98), blocks that begin at different places of
// the depth (115 beside 103), a longer ring for weights (as fast), weights that may stay in the
// second cache (2 % more).
#include <cuda/pieces.h>
#include <cuda/product/gated.h>
#include <cuda/product/some_wgmma.h>
#include <cuda/shared.h>
#include <cuda/silu.h>
#include <cuda/tile.h>

namespace {

constexpr int TILE = 112;  // outputs
constexpr int SUMS = TILE; // of a thread and 64 rows: the gate's, then those of up
constexpr int STEP = 128;  // bytes of a row
constexpr uint32_t WEIGHT_BYTES = 2 * TILE * STEP; // of a stage
constexpr uint32_t OUT_GAP = TILE * 2 + 16; // of a row of results: 16 bytes more keep banks apart
constexpr uint32_t MOST_SHARED = 216 << 10; // what small kernels' blocks need is left

// G groups, of which each has B times 64 rows. Why no warps that only bring: two groups of 128 rows
// take 250 registers a thread.
template <int G, int B> struct gated_shape {
    static constexpr int THREADS = G * 128;
    static constexpr int BLOCKS = B;
    static constexpr int ROWS = G * B * 64;
    static constexpr uint32_t STAGE_BYTES = WEIGHT_BYTES + ROWS * STEP;
    static constexpr int STAGES = MOST_SHARED / STAGE_BYTES;
    static constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES;

    static_assert(ROWS * OUT_GAP <= SHARED_BYTES, "results lie where stages were");
};

struct gated_call {
    cuda_gated all;
    int steps; // of the depth
};

// ---- what is multiplied -------------------------------------------------------------------------

// The maps of both operands.
struct gated_maps {
    const CUtensorMap *weight;
    const CUtensorMap *x;
};

template <typename S>
__device__ void bring_weights(const gated_call &in, const cuda_ring &ring, const gated_maps &maps,
                              int step, int stage) {
    const int output = static_cast<int>(blockIdx.x) * TILE;
    const uint32_t to = ring.memory + stage * S::STAGE_BYTES;
    const uint32_t full = ring.full + 8 * stage;
    cuda_barrier_expect(full, S::STAGE_BYTES);
    cuda_tile_stream(to, maps.weight, step * STEP, output, full);
    cuda_tile_stream(to + WEIGHT_BYTES / 2, maps.weight, step * STEP, in.all.outputs + output,
                     full);
}

template <typename S>
__device__ void bring_x(const cuda_ring &ring, const gated_maps &maps, int step, int stage) {
    cuda_tile_copy(ring.memory + stage * S::STAGE_BYTES + WEIGHT_BYTES, maps.x, step * STEP, 0,
                   ring.full + 8 * stage);
}

// The first stages. Weights wait for no other kernel.
template <typename S>
__device__ void bring_first(const gated_call &in, const cuda_ring &ring, const gated_maps &maps) {
    const int count = min(S::STAGES, in.steps);
    for (int i = 0; i < count; ++i) {
        bring_weights<S>(in, ring, maps, i, i);
    }
    gpu_wait_for_inputs();
    for (int i = 0; i < count; ++i) {
        bring_x<S>(ring, maps, i, i);
    }
}

// ---- products -----------------------------------------------------------------------------------

template <typename T, typename S>
__device__ void begin_step(uint32_t weights, uint32_t x, float *sums, int adds) {
    cuda_group_begin();
#pragma unroll
    for (uint32_t i = 0; i < STEP / 32; ++i) {
#pragma unroll
        for (uint32_t block = 0; block < S::BLOCKS; ++block) {
            cuda_some_multiply<T, 2 * TILE>(sums + block * SUMS,
                                            cuda_matrix(x + block * (64 * STEP) + i * 32, 16),
                                            cuda_matrix(weights + i * 32, 16), i > 0 || adds);
        }
    }
    cuda_group_commit();
}

// A step is released when the next one's products are under way, and one thread asks for what comes
// next in its stage.
template <typename T, typename S>
__device__ void multiply(const gated_call &in, const cuda_ring &ring, const gated_maps &maps,
                         float *sums) {
    const uint32_t own = WEIGHT_BYTES + threadIdx.x / 128 * (S::BLOCKS * 64 * STEP);
    cuda_place at = {0, 0};
    cuda_place behind = {0, 0};
#pragma unroll 1
    for (int i = 0; i < in.steps; ++i) {
        const uint32_t stage = ring.memory + at.stage * S::STAGE_BYTES;
        cuda_barrier_wait(ring.full + 8 * at.stage, at.parity);
        begin_step<T, S>(stage, stage + own, sums, i > 0);
        at.go_on(S::STAGES);
        if (i == 0) {
            continue;
        }
        cuda_group_wait<1>();
        cuda_barrier_arrive_warp(ring.empty + 8 * behind.stage);
        if (threadIdx.x == 0 && i - 1 + S::STAGES < in.steps) {
            cuda_barrier_wait(ring.empty + 8 * behind.stage, behind.parity);
            bring_weights<S>(in, ring, maps, i - 1 + S::STAGES, behind.stage);
            bring_x<S>(ring, maps, i - 1 + S::STAGES, behind.stage);
        }
        __syncwarp();
        behind.go_on(S::STAGES);
    }
    cuda_group_wait<0>();
    cuda_settle<S::BLOCKS * SUMS>(sums);
}

// ---- results ------------------------------------------------------------------------------------

// What is added to both numbers of two outputs that are neighbours.
struct gated_bias {
    float2 gate, up;

    template <typename T> __device__ void load(const cuda_gated &all, int output) {
        gate = up = {0, 0};
        if (all.bias && output < all.outputs) {
            const T *of_gate = static_cast<const T *>(all.bias) + output;
            const T *of_up = of_gate + all.outputs;
            gate = {gpu_float(of_gate[0]), gpu_float(of_gate[1])};
            up = {gpu_float(of_up[0]), gpu_float(of_up[1])};
        }
    }
};

template <typename T>
__device__ uint32_t gated_pair(const float *gate, const float *up, const gated_bias &bias) {
    const uint32_t first = cuda_pair(gate[0] + bias.gate.x, gate[1] + bias.gate.y, T{});
    const uint32_t second = cuda_pair(up[0] + bias.up.x, up[1] + bias.up.y, T{});
    T gates[2];
    T ups[2];
    memcpy(gates, &first, sizeof first);
    memcpy(ups, &second, sizeof second);
    return cuda_silu_pair<T>(gates, ups);
}

// A thread's sums are quads, eight outputs apart: outputs 2c and 2c + 1 of rows g and g + 8 of its
// warp's 16, g = lane / 4 and c = lane % 4. Results of a group's rows, to rows of OUT_GAP bytes.
template <typename T, typename S>
__device__ void lay_out(const cuda_gated &all, const float *sums, uint32_t out) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t row = threadIdx.x / 128 * (S::BLOCKS * 64) + threadIdx.x % 128 / 32 * 16;
    const uint32_t to = out + (row + lane % 16) * OUT_GAP + lane / 16 * 16;
    const int output = static_cast<int>(blockIdx.x) * TILE + static_cast<int>(lane) % 4 * 2;
#pragma unroll
    for (int block = 0; block < S::BLOCKS; ++block) {
#pragma unroll
        for (int quad = 0; quad < TILE / 8; quad += 2) {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float *gate = sums + block * SUMS + 4 * (quad + i);
                const float *up = gate + SUMS / 2;
                gated_bias bias;
                bias.load<T>(all, output + (quad + i) * 8);
                pairs[2 * i] = gated_pair<T>(gate, up, bias);
                pairs[2 * i + 1] = gated_pair<T>(gate + 2, up + 2, bias);
            }
            cuda_store_matrices(to + block * (64 * OUT_GAP) + quad * 16, pairs, pairs + 2);
        }
    }
}

// From there to y, 16 bytes at a time.
template <typename T, typename S> __device__ void write_out(const cuda_gated &all, uint32_t out) {
    constexpr int PIECES = TILE / 8; // of a row
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < all.rows * PIECES; i += S::THREADS) {
        const int row = i / PIECES;
        const int output = static_cast<int>(blockIdx.x) * TILE + i % PIECES * 8;
        if (output < all.outputs) {
            T *to = static_cast<T *>(all.y) + row * all.y_gap + output;
            *reinterpret_cast<uint4 *>(to) =
                cuda_load_shared(out + static_cast<uint32_t>(row) * OUT_GAP + i % PIECES * 16);
        }
    }
}

template <typename T, typename S>
__global__ void __launch_bounds__(S::THREADS, 1)
    gated_kernel(gated_call in, const __grid_constant__ CUtensorMap weight,
                 const __grid_constant__ CUtensorMap x) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * S::STAGES];
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const cuda_ring ring = {static_cast<uint32_t>(__cvta_generic_to_shared(shared)), signal,
                            signal + 8 * S::STAGES};
    const gated_maps maps = {&weight, &x};
    float sums[S::BLOCKS * SUMS];
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < S::STAGES; ++stage) {
            cuda_barrier_init(ring.full + 8 * stage, 1);
            cuda_barrier_init(ring.empty + 8 * stage, S::THREADS / 32);
        }
        cuda_barrier_publish();
        bring_first<S>(in, ring, maps);
    }
    __syncthreads();
    gpu_wait_for_inputs();
    multiply<T, S>(in, ring, maps, sums);
    gpu_let_next_begin();
    __syncthreads(); // with the stages, where results lie
    lay_out<T, S>(in.all, sums, ring.memory);
    __syncthreads();
    write_out<T, S>(in.all, ring.memory);
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename T, typename S> berth_status launch(const gpu_op *op, const cuda_gated &all) {
    constexpr CUtensorMapDataType BYTES = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    constexpr CUtensorMapSwizzle ORDER = CU_TENSOR_MAP_SWIZZLE_128B;
    static_assert(S::ROWS * OUT_GAP <= S::SHARED_BYTES, "results lie where stages were");
    const auto kernel = gated_kernel<T, S>;
    const int64_t weights = int64_t{all.outputs} * 2;
    CUtensorMap weight;
    CUtensorMap x;
    if (!cuda_describe_boxes({all.weight, weights, all.bytes, all.bytes, TILE, STEP, BYTES, ORDER},
                             &weight) ||
        !cuda_describe_boxes({all.x, all.rows, all.bytes, all.x_gap, S::ROWS, STEP, BYTES, ORDER},
                             &x)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                 "the driver does not describe a product's tiles");
    }
    const berth_status has_room = cuda_allow_shared(op, kernel, S::SHARED_BYTES);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    const gated_call call = {all, static_cast<int>(gpu_ceil(all.bytes, STEP))};
    const gpu_grid grid = {dim3(gpu_ceil(all.outputs, TILE)), dim3(S::THREADS), S::SHARED_BYTES};
    return gpu_run(op, "a gated product", grid, kernel, call, weight, x);
}

template <typename T> berth_status start(const gpu_op *op, const cuda_gated &all) {
    using some = gated_shape<2, 1>;
    using more = gated_shape<3, 1>;
    using most = gated_shape<2, 2>;
    static_assert(most::ROWS == CUDA_GATED_ROWS);
    return all.rows <= some::ROWS   ? launch<T, some>(op, all)
           : all.rows <= more::ROWS ? launch<T, more>(op, all)
                                    : launch<T, most>(op, all);
}

} // namespace

// Tiles that are started together end together, so what is empty in the last wave is lost.
bool cuda_gated_pays(int multiprocessors, int64_t outputs) {
    constexpr int64_t LEAST_FULL = 94; // of 100 places
    const int64_t tiles = gpu_ceil(outputs, TILE);
    const int64_t places = gpu_ceil(tiles, multiprocessors) * int64_t{multiprocessors};
    return tiles * 100 >= places * LEAST_FULL;
}

bool cuda_gated_takes(const cuda_gated &all) {
    return all.rows <= CUDA_GATED_ROWS && gpu_is_aligned(all.x, all.x_gap) &&
           gpu_is_aligned(all.weight, all.bytes) && gpu_is_aligned(all.y, all.y_gap * 2);
}

berth_status cuda_gated_run(const gpu_op *op, const cuda_gated &all, berth_dtype dtype) {
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, all) : start<gpu_f16>(op, all);
}
