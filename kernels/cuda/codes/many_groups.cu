// SPDX-License-Identifier: Apache-2.0
// Many rows of e4m3 by codes of e4m3 whose columns have scales of their own, in blocks. As in
// many_scaled.cu blocks go through tiles, and one thread brings what they are made of; a warp
// beside it brings scales.
#include <cuda/codes/many_blocks.h>

namespace {

// Biases are of the results' type; behind the last output there is none.
template <typename T> struct biases {
    const cuda_coded &all;

    __device__ float2 operator()(int output) const {
        const T *bias = static_cast<const T *>(all.bias);
        return float2{1, bias && output < all.outputs ? gpu_float(bias[output]) : 0.0f};
    }
};

// By a group, whose room is `out`.
template <typename T>
__device__ void finish(const many_place &place, const float2 *ends, const float *sums,
                       const CUtensorMap *y, uint32_t out) {
    const int row = place.row + static_cast<int>(threadIdx.x) / 128 * OWN;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        if (threadIdx.x % 128 == 0) {
            wait_for_sent();
        }
        group_sync();
        lay_out<T>(ends + part * PART, sums + part * (SUMS / PARTS), out);
        cuda_publish_shared();
        group_sync();
        if (threadIdx.x % 128 == 0) {
            send_out(y, place.output + part * PART, row, out);
        }
    }
}

struct groups_room {
    step_scales scales[STAGES];
    __align__(16) float2 ends[GROUPS][TILE];
};

template <typename T>
__device__ void multiply_all(const many_call &in, const cuda_ring &ring, groups_room *room,
                             const CUtensorMap *y) {
    float2 *ends = room->ends[threadIdx.x / 128];
    const uint32_t out = ring.memory + STAGES * STAGE_BYTES + threadIdx.x / 128 * OUT_BYTES;
    cuda_place at = {0, 0};
    if (threadIdx.x >= 128) {
        give_turn(0);
    }
    for (int tile = static_cast<int>(blockIdx.x); tile < in.tiles();
         tile += static_cast<int>(gridDim.x)) {
        float totals[SUMS] = {};
        const many_place place = place_of(in, tile);
        keep_ends(biases<T>{in.all}, place.output, ends);
        multiply<false>(ring, room->scales, in.steps, &at, totals);
        finish<T>(place, ends, totals, y, out);
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
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int output = min(place.output + lane % PARTS * PART, in.all.outputs - 1);
        cuda_lane_scales<ROWS, PARTS> own(in.all.groups, in.all.groups.begin_of(output));
        own.choose([&](int row) { return min(place.row + row, in.all.rows - 1); });
        cuda_bring_scales<ROWS, PARTS>(own, 0, in.steps, {ring, STAGES, room}, &at);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    groups_kernel(many_call in, const __grid_constant__ CUtensorMap weight,
                  const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * STAGES];
    __shared__ groups_room room;
    const cuda_ring ring = make_ring(shared, signals, 2);
    gpu_wait_for_inputs();
    if (threadIdx.x < GROUPS * 128) {
        cuda_ask_for<MULTIPLYING_REGISTERS>();
        multiply_all<T>(in, ring, &room, &y);
        return;
    }
    cuda_give_back<BRINGING_REGISTERS>();
    if (threadIdx.x == GROUPS * 128) {
        bring(in, ring, {&x, &weight, true});
    } else if (threadIdx.x / 32 == GROUPS * 4 + 1) {
        bring_scales(in, ring, room.scales);
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
