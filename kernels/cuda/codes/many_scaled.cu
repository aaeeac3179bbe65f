// SPDX-License-Identifier: Apache-2.0
// Many rows of e4m3 by codes of e4m3. Blocks, one a multiprocessor, go through tiles of 128 outputs
// by 192 rows; one thread brings what they are made of (many_stage.h), two groups of four warps
// have 64 outputs each, and while one writes its results out (many_results.h) or adds its sums up,
// the tensor cores have the other's products.
//
// The device's power is what bounds it, not this code alone: on an H200 with the clock at 1.4 GHz
// 8192 rows by 28672 by 4096 take 1.61 to 1.67 ms, by turns with cuBLASLt's exact sums, which take
// 1.70 to 1.73. What did not pay: x shared by two blocks of a cluster (as fast), results of a tile
// beside the next one's products, which take more registers than there are (40 % longer), groups
// that add up at different steps, other bands, and fewer promotions (none: within the noise). Gate
// and up in turns of eight outputs, so that the activation leaves as the result, take 2 % less than
// product and activation by themselves: the exponentials wait where they then stand.
#include <cuda/codes/many_results.h>
#include <cuda/shared.h>

namespace {

constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + GROUPS * OUT_BYTES;
// Steps behind which the tensor core's sums go to others in f32: its own keep 14 bits of the
// largest, so they lose more the deeper they are.
constexpr int PROMOTED = 4;
constexpr int BRINGING_REGISTERS = 24;
constexpr int MULTIPLYING_REGISTERS = 240;

// ---- groups that multiply -----------------------------------------------------------------------

// A tile's products.
__device__ void multiply(const cuda_ring &ring, int steps, cuda_place *at, float *totals) {
    const many_matrices matrices(ring);
    for (int first = 0; first < steps; first += PROMOTED) {
        float sums[SUMS];
        multiply_steps<gpu_f8, false>(ring, matrices, min(PROMOTED, steps - first), at, sums);
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            totals[i] += sums[i];
        }
    }
}

template <typename T>
__device__ void multiply_all(const many_call &in, const cuda_ring &ring, const CUtensorMap *y,
                             float *of_rows) {
    const uint32_t out = ring.memory + STAGES * STAGE_BYTES + threadIdx.x / 128 * OUT_BYTES;
    cuda_place at = {0, 0};
    for (int tile = static_cast<int>(blockIdx.x); tile < in.tiles();
         tile += static_cast<int>(gridDim.x)) {
        float totals[SUMS] = {};
        const many_ends ends(in, place_of(in, tile), of_rows);
        multiply(ring, in.steps, &at, totals);
        finish<T>(ends, totals, y, out);
    }
    if (threadIdx.x % 128 == 0) {
        wait_for_sent();
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    many_kernel(many_call in, const __grid_constant__ CUtensorMap weight,
                const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * STAGES];
    __shared__ __align__(8) float of_rows[GROUPS][ROWS];
    const cuda_ring ring = make_ring(shared, signals, 1);
    gpu_wait_for_inputs();
    if (threadIdx.x >= GROUPS * 128) {
        cuda_give_back<BRINGING_REGISTERS>();
        if (threadIdx.x == GROUPS * 128) {
            bring(in, ring, {&weight, &x, false});
        }
    } else {
        cuda_ask_for<MULTIPLYING_REGISTERS>();
        multiply_all<T>(in, ring, &y, of_rows[threadIdx.x / 128]);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename T> berth_status launch(const gpu_op *op, const cuda_coded &all) {
    const auto kernel = many_kernel<T>;
    const berth_status has_room = cuda_allow_shared(op, kernel, SHARED_BYTES);
    return has_room == BERTH_OK
               ? start(op, kernel, call_of(all, TILE, ROWS), {PART_ROWS, SHARED_BYTES})
               : has_room;
}

} // namespace

// Tiles that are started together end together, so what is empty in the last wave is lost: with 3 %
// of all places empty this takes up to 7 % less time than cuBLASLt's best of exact sums, with 5 %
// as much or up to a tenth more.
bool cuda_many_takes(const gpu_op *op, const cuda_coded &all) {
    constexpr int64_t LEAST_ROWS = 1024;
    constexpr int64_t LEAST_WAVES = 4;
    constexpr int64_t LEAST_FULL = 96; // of 100 places
    const int64_t blocks = op->gpu->multiprocessors[op->device];
    const int64_t tiles = int64_t{tiles_of(all.outputs, TILE)} * tiles_of(all.rows, ROWS);
    const int64_t waves = gpu_ceil(tiles, blocks);
    return !all.bias && all.rows >= LEAST_ROWS && waves >= LEAST_WAVES &&
           tiles * 100 >= waves * blocks * LEAST_FULL && all.bytes % 16 == 0 &&
           gpu_is_aligned(all.x, all.x_gap) && gpu_is_aligned(all.y, all.y_gap * 2);
}

berth_status cuda_many_scaled(const gpu_op *op, const cuda_coded &all, berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? launch<gpu_bf16>(op, all) : launch<gpu_f16>(op, all);
}
