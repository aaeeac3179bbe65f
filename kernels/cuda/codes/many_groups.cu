// SPDX-License-Identifier: Apache-2.0
// Many rows of e4m3 by codes of e4m3 whose columns have scales of their own, in blocks. As in
// many_scaled.cu blocks go through tiles, here of 128 rows by 192 outputs, and one thread brings
// what they are made of; a warp beside it brings scales. Rows are the tensor core's first operand,
// so that a thread, which adds every step's sums up in f32, has two rows' scales to multiply with
// and not those of 48.
#include <cuda/codes/group_scales.h>
#include <cuda/codes/many_send.h>
#include <cuda/mma.h>
#include <cuda/pieces.h>
#include <cuda/shared.h>

namespace {

constexpr int ROWS = FIRST;
constexpr int TILE = SECOND;
constexpr int PART = 64; // outputs: of one block, and sent out together
constexpr int PARTS = TILE / PART;
constexpr uint32_t OUT_BYTES = OWN * PART * 2; // of a group
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + GROUPS * OUT_BYTES;
// As many as the kernel starts with.
constexpr int BRINGING_REGISTERS = 56;
constexpr int MULTIPLYING_REGISTERS = 224;

typedef cuda_step_scales<ROWS, PARTS> step_scales;

// ---- groups that multiply -----------------------------------------------------------------------

// Of a thread's sums four are eight outputs on: outputs 2c and 2c + 1 of rows g and g + 8 of its
// warp's 16, g = lane / 4 and c = lane % 4. So a step's scales of a thread:
struct own_scales {
    float at[2][PARTS];

    __device__ explicit own_scales(const step_scales &step) {
        const int row = static_cast<int>(threadIdx.x) / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                at[i][part] = step.rows[row + 8 * i] * step.parts[part];
            }
        }
    }
    __device__ void add(const float *sums, float *totals) const {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            totals[i] += sums[i] * at[i / 2 % 2][i / (SUMS / PARTS)];
        }
    }
};

// The groups take turns: one begins its products when the other's last of a step are under way, so
// that there are some while one adds up. Turn 0 is the first group's.
template <bool HAS = CUDA_HAS_WGMMA> __device__ void wait_for_turn(uint32_t group) {
    if constexpr (HAS) {
        asm volatile("bar.sync %0, 256;" ::"r"(3 + group) : "memory");
    }
}
template <bool HAS = CUDA_HAS_WGMMA> __device__ void give_turn(uint32_t group) {
    if constexpr (HAS) {
        asm volatile("bar.arrive %0, 256;" ::"r"(3 + group) : "memory");
    }
}

__device__ void multiply_step(const many_matrices &matrices, int stage, float *sums) {
    constexpr int LAST = STEP / 32 - 1;
    cuda_group_begin();
#pragma unroll
    for (int i = 0; i < LAST; ++i) {
        matrices.multiply(stage, i, sums, i > 0);
    }
    cuda_group_commit();
    matrices.multiply(stage, LAST, sums, 1);
    cuda_group_commit();
}

__device__ void multiply(const cuda_ring &ring, const step_scales *scales, int steps,
                         cuda_place *place, float *totals) {
    const uint32_t group = threadIdx.x / 128;
    const many_matrices matrices(ring);
    cuda_place at = *place;
    for (int step = 0; step < steps; ++step) {
        float sums[SUMS];
        cuda_settle<SUMS>(sums);
        cuda_barrier_wait(ring.full + 8 * at.stage, at.parity);
        wait_for_turn(group);
        multiply_step(matrices, at.stage, sums);
        const own_scales own(scales[at.stage]);
        cuda_group_wait<1>();
        give_turn(group ^ 1);
        cuda_group_wait<0>();
        cuda_barrier_arrive_warp(ring.empty + 8 * at.stage);
        cuda_settle<SUMS>(sums);
        own.add(sums, totals);
        at.go_on(STAGES);
    }
    *place = at;
}

// ---- results ------------------------------------------------------------------------------------

// What is added to two neighbours; behind the last output nothing.
template <typename T> __device__ float2 bias_of(const cuda_coded &all, int output) {
    float2 more = {0, 0};
    if (all.bias && output < all.outputs) {
        const gpu_pack<T, 2> pair = gpu_load<T, 2>(static_cast<const T *>(all.bias), output);
        more = {gpu_float(pair.at[0]), gpu_float(pair.at[1])};
    }
    return more;
}

// A part of the sums as rows of 128 bytes whose pieces are exchanged by the row's number.
template <typename T>
__device__ void lay_out(const cuda_coded &all, int first, const float *sums, uint32_t out) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int eight = 0; eight < PART / 8; eight += 2) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float2 more = bias_of<T>(all, first + (eight + i) * 8 + lane % 4 * 2);
            const float *of = sums + 4 * (eight + i);
            pairs[2 * i] = cuda_pair(of[0] + more.x, of[1] + more.y, T{});
            pairs[2 * i + 1] = cuda_pair(of[2] + more.x, of[3] + more.y, T{});
        }
        cuda_store_matrices(out + cuda_panel_place(row, eight + lane / 16), pairs, pairs + 2);
    }
}

// By a group, whose room is `out`.
template <typename T>
__device__ void finish(const many_call &in, const many_place &place, const float *sums,
                       const CUtensorMap *y, uint32_t out) {
    const int row = place.row + static_cast<int>(threadIdx.x) / 128 * OWN;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        if (threadIdx.x % 128 == 0) {
            wait_for_sent();
        }
        group_sync();
        lay_out<T>(in.all, place.output + part * PART, sums + part * (SUMS / PARTS), out);
        cuda_publish_shared();
        group_sync();
        if (threadIdx.x % 128 == 0) {
            send_out(y, place.output + part * PART, row, out);
        }
    }
}

template <typename T>
__device__ void multiply_all(const many_call &in, const cuda_ring &ring, const step_scales *scales,
                             const CUtensorMap *y) {
    const uint32_t out = ring.memory + STAGES * STAGE_BYTES + threadIdx.x / 128 * OUT_BYTES;
    cuda_place at = {0, 0};
    if (threadIdx.x >= 128) {
        give_turn(0);
    }
    for (int tile = static_cast<int>(blockIdx.x); tile < in.tiles();
         tile += static_cast<int>(gridDim.x)) {
        float totals[SUMS] = {};
        multiply(ring, scales, in.steps, &at, totals);
        finish<T>(in, place_of(in, tile), totals, y, out);
    }
    if (threadIdx.x % 128 == 0) {
        wait_for_sent();
    }
}

__device__ void bring_scales(const many_call &in, const cuda_ring &ring, step_scales *room) {
    cuda_place at = {0, 1};
    for (int tile = static_cast<int>(blockIdx.x); tile < in.tiles();
         tile += static_cast<int>(gridDim.x)) {
        const many_place place = place_of(in, tile);
        const cuda_scaled_tile its = {place.row, in.all.rows, place.output, in.all.outputs, PART};
        cuda_bring_scales<ROWS, PARTS>({in.all.groups, its}, 0, in.steps, {ring, STAGES, room},
                                       &at);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    groups_kernel(many_call in, const __grid_constant__ CUtensorMap weight,
                  const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * STAGES];
    __shared__ step_scales scales[STAGES];
    const cuda_ring ring = make_ring(shared, signals, 2);
    gpu_wait_for_inputs();
    if (threadIdx.x < GROUPS * 128) {
        cuda_ask_for<MULTIPLYING_REGISTERS>();
        multiply_all<T>(in, ring, scales, &y);
        return;
    }
    cuda_give_back<BRINGING_REGISTERS>();
    if (threadIdx.x == GROUPS * 128) {
        bring(in, ring, {&x, &weight, true});
    } else if (threadIdx.x / 32 == GROUPS * 4 + 1) {
        bring_scales(in, ring, scales);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename T> berth_status launch(const gpu_op *op, const cuda_coded &all) {
    const auto kernel = groups_kernel<T>;
    const berth_status has_room = cuda_allow_shared(op, kernel, SHARED_BYTES);
    return has_room == BERTH_OK ? start(op, kernel, call_of(all, TILE, ROWS), {OWN, SHARED_BYTES})
                                : has_room;
}

} // namespace

berth_status cuda_many_groups(const gpu_op *op, const cuda_coded &all, berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? launch<gpu_bf16>(op, all) : launch<gpu_f16>(op, all);
}

// A tile's results leave while no products are made.
double cuda_many_groups_time(const gpu_op *op, const cuda_coded &all) {
    constexpr double LAUNCH = 2;
    constexpr double RESULTS = 3;
    constexpr double OF_STEP = 0.58;
    const many_call call = call_of(all, TILE, ROWS);
    const int64_t tiles = int64_t{call.output_tiles} * call.row_tiles;
    const double waves = gpu_ceil(tiles, op->gpu->multiprocessors[op->device]);
    return LAUNCH + waves * (RESULTS + OF_STEP * call.steps);
}
