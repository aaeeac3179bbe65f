// SPDX-License-Identifier: Apache-2.0
// Up to 16 rows by codes of weights on compute capability 9, bound by the codes' bytes: the way of
// product/streamed_rows.cu, which says why it is so. Two blocks a multiprocessor go through tiles
// of 16 outputs; one warp has bytes of their rows brought into a ring in shared memory, the others
// share the bytes of each stage and multiply. Weights are the tensor core's first operand, of which
// a product has 16 rows: an instruction has twice as many of them as in the second one's place, and
// most of the work is to make them numbers. What the bytes are is a kind's business: codes of 8
// bits are multiplied as they are, codes of 4 become numbers of x's type in registers, exactly, and
// the sums of a group get its scale.
//
// Where x is small beside the ring every block has a copy of its own in shared memory, and scales
// of 4-bit codes lie beside them in the ring: then a step waits for nothing from beyond its
// multiprocessor, and no step has an end that is short.
#include <cuda/codes/streamed_kinds.h>
#include <cuda/codes/streamed_ring.h>

namespace {

// ---- the warps that multiply --------------------------------------------------------------------

// 8 bits: a lane's 16 bytes of every piece. 4 bits: what belongs to its 16 bytes of one.
template <typename K> constexpr int APART = K::X_RATIO == 1 ? PIECE : 16;

template <typename K, int EIGHTS>
__device__ void load_inputs(const cuda_coded &all, int byte, inputs<EIGHTS> *out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool is_there = byte + (K::X_RATIO == 1 ? i * PIECE : 0) < all.bytes;
        const int at = byte * K::X_RATIO + i * APART<K>;
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight) {
            const int row = eight * 8 + threadIdx.x / 4;
            out->at[eight][i] = is_there && row < all.rows
                                    ? *reinterpret_cast<const uint4 *>(all.x + at + row * all.x_gap)
                                    : uint4{0, 0, 0, 0};
        }
    }
}

// Of x that is near. Lanes of rows that are not there have the first one's: what becomes of it
// nobody stores.
template <typename K> __device__ void load_near(uint32_t from, inputs<1> *out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        out->at[0][i] = cuda_load_shared(from + static_cast<uint32_t>(i * APART<K>));
    }
}

// One step's codes out of a stage, from byte `part` of its rows on. Of 4 bits: what a short last
// stage leaves of the one before it, `there` bytes from the lane's first on, is zero.
template <typename K>
__device__ void load_codes(uint32_t stage, int part, [[maybe_unused]] int there, codes *out) {
    const uint32_t row = threadIdx.x / 4;
    const uint32_t lane = threadIdx.x % 4;
    [[maybe_unused]] const uint4 none = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < K::PIECES; ++i) {
        const uint32_t at = static_cast<uint32_t>(part + i * PIECE);
        if constexpr (K::X_RATIO == 1) {
            const uint32_t from = stage + at / PANEL * PANEL_BYTES + row * PANEL +
                                  (((lane ^ row) * 16) ^ (at & PIECE));
            out[i].low = cuda_load_shared(from);
            out[i].high = cuda_load_shared(from + 8 * PANEL);
        } else {
            const uint32_t from = stage + row * STAGE_ROW + at + lane * 16;
            const bool is_there = K::IS_NEAR || i * PIECE < there;
            const uint4 low = cuda_load_shared(from);
            const uint4 high = cuda_load_shared(from + 8 * STAGE_ROW);
            out[i].low = is_there ? low : none;
            out[i].high = is_there ? high : none;
        }
    }
}

// Bits of all that a thread has loaded.
template <typename K> __device__ uint32_t loaded_of(const codes *w) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < K::PIECES; ++i) {
        any |= w[i].low.x | w[i].high.x;
    }
    return any;
}

// A tile's sums of a warp; rows padded by one.
template <typename K, int EIGHTS> struct room_of { typename K::sum at[EIGHTS * 8][OUTPUTS + 1]; };

// Two, so that a tile's sums are not written over while the last one's are read, where two blocks
// then still have room for their rings.
template <typename K, int EIGHTS> constexpr int ROOMS = K::WARPS *EIGHTS > 8 ? 1 : 2;

// The results of a tile that a thread finishes: number i of them is of this row and output.
template <typename K, int EIGHTS> struct results {
    static constexpr int COUNT = (EIGHTS * 8 * OUTPUTS + K::WARPS * 32 - 1) / (K::WARPS * 32);
    finishing with[COUNT];

    // Another warp's threads come first in every tile: few rows are one warp's work.
    static __device__ int number(int turn, int i) {
        const int thread = threadIdx.y * 32 + threadIdx.x;
        return (thread + turn * 32) % (K::WARPS * 32) + i * K::WARPS * 32;
    }
    __device__ void prepare(const cuda_coded &all, int first, int turn) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int row = number(turn, i) / OUTPUTS;
            const int output = first + number(turn, i) % OUTPUTS;
            with[i] = finishing{};
            if (row < all.rows && output < all.outputs) {
                with[i] = K::prepare(all, row, output);
                with[i].bias = all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f;
            }
        }
    }
};

// The warps' sums together, scaled, rounded, to y.
template <typename T, typename K, int EIGHTS>
__device__ void finish(const cuda_coded &all, const typename K::template sums<EIGHTS> &sums,
                       const results<K, EIGHTS> &mine, room_of<K, EIGHTS> *room, int first,
                       int turn) {
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            room[threadIdx.y]
                .at[eight * 8 + threadIdx.x % 4 * 2 + i % 2][threadIdx.x / 4 + i / 2 * 8] =
                sums.total(eight, i);
        }
    }
    wait_for_all<K>();
#pragma unroll
    for (int i = 0; i < results<K, EIGHTS>::COUNT; ++i) {
        const int number = results<K, EIGHTS>::number(turn, i);
        const int row = number / OUTPUTS;
        const int output = first + number % OUTPUTS;
        if (row < all.rows && output < all.outputs) {
            typename K::sum sum = 0;
#pragma unroll
            for (int warp = 0; warp < K::WARPS; ++warp) {
                sum += room[warp].at[row][number % OUTPUTS];
            }
            static_cast<T *>(all.y)[row * all.y_gap + output] =
                gpu_round<T>(K::finish(sum, mine.with[i]) + mine.with[i].bias);
        }
    }
}

// What a warp has loaded ahead: x of the next step, and what a kind wants of the next stage. Both
// go on from tile to tile.
template <typename K, int EIGHTS> struct ahead {
    inputs<EIGHTS> x[2];
    typename K::extra of[2];
    uint32_t near; // the lane's first x of a row, where that is near
};

// One stage, TURN of two: a copy from one x to the other would wait for what is under way.
template <typename K, int EIGHTS, int TURN>
__device__ void multiply_stage(const cuda_coded &all, const ring &from, const position &now,
                               place *at, ahead<K, EIGHTS> *loaded,
                               typename K::template sums<EIGHTS> *sums) {
    const int part = static_cast<int>(threadIdx.y) * (STAGE / K::WARPS);
    const int mine = part + threadIdx.x % 4 * 16;
    const uint32_t beside =
        from.memory + at->stage * STAGE_BYTES + threadIdx.x / 4 * STAGE_ROW + STAGE;
    const position next = now.next(all);
    loaded->of[TURN ^ 1].load(all, next.first, next.begin + part, from.sums);
    cuda_barrier_wait(from.full + 8 * at->stage, at->parity);
    uint32_t bits = 0;
#pragma unroll
    for (int step = 0; step < K::STEPS; ++step) {
        const int turn = (TURN * K::STEPS + step) % 2;
        const int byte = now.begin + mine + step * PIECE;
        codes w[K::PIECES];
        if constexpr (K::IS_NEAR) {
            load_near<K>(loaded->near +
                             static_cast<uint32_t>((now.begin + step * PIECE) * K::X_RATIO),
                         &loaded->x[turn]);
        } else {
            load_inputs<K, EIGHTS>(all, step + 1 < K::STEPS ? byte + PIECE : next.begin + mine,
                                   &loaded->x[turn ^ 1]);
        }
        load_codes<K>(from.memory + at->stage * STAGE_BYTES, part + step * PIECE, all.bytes - byte,
                      w);
        bits |= loaded->of[TURN].fetch(all, beside, step);
        K::template multiply<EIGHTS>(w, loaded->x[turn], loaded->of[TURN],
                                     all.scale_dtype == BERTH_DTYPE_BF16, step, sums);
        bits |= loaded_of<K>(w);
    }
    const uint32_t empty = cuda_behind_loads(from.empty + 8 * at->stage, bits, all.bytes);
    __syncwarp();
    if (threadIdx.x == 0) {
        cuda_barrier_arrive(empty);
    }
    at->go_on(from.stages);
}

// Everything of a warp that multiplies.
template <typename T, typename K, int EIGHTS> struct multiplier {
    const cuda_coded &all;
    const ring &from;
    room_of<K, EIGHTS> (*room)[K::WARPS];
    place at = {0, 0};
    position now = {static_cast<int>(blockIdx.x) * OUTPUTS, 0};
    int tile = 0;
    ahead<K, EIGHTS> loaded;
    typename K::template sums<EIGHTS> sums;
    results<K, EIGHTS> mine;

    __device__ void begin() {
        const int part = static_cast<int>(threadIdx.y) * (STAGE / K::WARPS);
        const int first = part + threadIdx.x % 4 * 16;
        if constexpr (K::IS_NEAR) {
            const uint32_t row =
                threadIdx.x / 4 < static_cast<uint32_t>(all.rows) ? threadIdx.x / 4 : 0;
            keep_inputs<K>(all, from);
            loaded.near = from.x + row * from.gap + static_cast<uint32_t>(first * K::X_RATIO);
        } else {
            load_inputs<K, EIGHTS>(all, first, &loaded.x[0]);
        }
        loaded.of[0].load(all, now.first, part, from.sums);
        mine.prepare(all, now.first, tile);
    }
    template <int TURN> __device__ void stage() {
        const position next = now.next(all);
        multiply_stage<K, EIGHTS, TURN>(all, from, now, &at, &loaded, &sums);
        if (next.first != now.first) {
            constexpr int COUNT = ROOMS<K, EIGHTS>;
            finish<T, K, EIGHTS>(all, sums, mine, room[tile % COUNT], now.first, tile);
            if (COUNT == 1) {
                wait_for_all<K>();
            }
            sums = {};
            mine.prepare(all, next.first, ++tile);
        }
        now = next;
    }
};

template <typename T, typename K, int EIGHTS>
__global__ void __launch_bounds__((K::WARPS + 1) * 32, BLOCKS)
    streamed_codes_kernel(cuda_coded all, layout places,
                          const __grid_constant__ CUtensorMap codes) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * STAGES];
    __shared__ room_of<K, EIGHTS> room[ROOMS<K, EIGHTS>][K::WARPS];
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const uint32_t memory = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const ring stages = {memory,
                         signal,
                         signal + 8 * STAGES,
                         places.stages,
                         memory + places.x(),
                         places.gap,
                         memory + places.sums(all.rows)};
    gpu_let_next_begin();
    if (threadIdx.y == K::WARPS && threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            cuda_barrier_init(stages.full + 8 * stage, 1);
            cuda_barrier_init(stages.empty + 8 * stage, K::WARPS);
        }
        cuda_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.y == K::WARPS) {
        if (cuda_is_elected()) {
            bring<K>(all, stages, &codes);
        }
        return;
    }
    gpu_wait_for_inputs();
    multiplier<T, K, EIGHTS> self = {all, stages, room};
    self.begin();
    while (self.now.first < all.outputs) {
        self.template stage<0>();
        if (self.now.first < all.outputs) {
            self.template stage<1>();
        }
    }
}

// ---- the host's side ----------------------------------------------------------------------------

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
                           (K::X_RATIO > 1 ? groups * 8 * static_cast<uint32_t>(sizeof(float)) : 0);
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

template <typename T, typename K, int EIGHTS>
berth_status launch(const gpu_op *op, const cuda_coded &all, const layout &places) {
    const cudaError_t error =
        cudaFuncSetAttribute(streamed_codes_kernel<T, K, EIGHTS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, places.bytes);
    if (error != cudaSuccess) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                 places.bytes, cudaGetErrorString(error));
    }
    CUtensorMap codes = {};
    const berth_status described = K::X_RATIO == 1 ? describe(op, all, &codes) : BERTH_OK;
    if (described != BERTH_OK) {
        return described;
    }
    const unsigned tiles = gpu_ceil(all.outputs, OUTPUTS);
    const unsigned most = static_cast<unsigned>(op->gpu->multiprocessors[op->device] * BLOCKS);
    const gpu_grid grid = {dim3(tiles < most ? tiles : most), dim3(32, K::WARPS + 1), places.bytes};
    return gpu_run(op, "a product of codes", grid, streamed_codes_kernel<T, K, EIGHTS>, all, places,
                   codes);
}

// Whether no stage is short, and scales and zero points can be copied beside its codes.
bool has_whole_stages(const cuda_coded &all) {
    const uintptr_t both =
        reinterpret_cast<uintptr_t>(all.group_scales) | reinterpret_cast<uintptr_t>(all.zeros);
    return all.bytes % STAGE == 0 &&
           (!all.group_scales || (all.group == NEAR_GROUP && both % 16 == 0));
}

// Up to 8 rows: with a copy of x where it leaves the ring enough stages.
template <typename T, typename NEAR, typename FAR>
berth_status start_near(const gpu_op *op, const cuda_coded &all) {
    const layout places = lay_out<NEAR, 1>(all);
    return places.stages >= LEAST_STAGES && has_whole_stages(all)
               ? launch<T, NEAR, 1>(op, all, places)
               : launch<T, FAR, 1>(op, all, lay_out<FAR, 1>(all));
}

template <typename T, typename S> berth_status start(const gpu_op *op, const cuda_coded &all) {
    using far = scaled_kind<S, false>;
    return all.rows <= 8 ? start_near<T, scaled_kind<S, true>, far>(op, all)
                         : launch<T, far, 2>(op, all, lay_out<far, 2>(all));
}

template <typename T> berth_status start_packed(const gpu_op *op, const cuda_coded &all) {
    return start_near<T, packed_kind<T, true>, packed_kind<T, false>>(op, all);
}

template <typename T>
berth_status start_scaled(const gpu_op *op, const cuda_coded &all, berth_dtype x) {
    return x == BERTH_DTYPE_I8 ? start<T, int32_t>(op, all) : start<T, float>(op, all);
}

} // namespace

berth_status cuda_coded_scaled(const gpu_op *op, const cuda_coded &all, berth_dtype x,
                               berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? start_scaled<gpu_bf16>(op, all, x)
                                 : start_scaled<gpu_f16>(op, all, x);
}

berth_status cuda_coded_packed(const gpu_op *op, const cuda_coded &all, berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? start_packed<gpu_bf16>(op, all) : start_packed<gpu_f16>(op, all);
}
