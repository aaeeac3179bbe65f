// SPDX-License-Identifier: Apache-2.0
// Up to 16 rows by codes of weights on compute capability 9, bound by the codes' bytes: the way of
// product/streamed_rows.cu, which says why it is so. Two blocks a multiprocessor go through tiles
// of 16 outputs; one warp has bytes of their rows brought into a ring in shared memory, the others
// share the bytes of each stage and multiply. Weights are the tensor core's first operand, of which
// a product has 16 rows: an instruction has twice as many of them as in the second one's place, and
// most of the work is to make them numbers. What the bytes are is a kind's business: codes of 8
// bits are multiplied as they are, codes of 4 become numbers of x's type in registers, exactly, and
// the sums of a group get its scale.
#include <cuda/bulk.h>
#include <cuda/codes/codes.h>

namespace {

constexpr int OUTPUTS = 16;                // of a tile
constexpr int BLOCKS = 2;                  // of a multiprocessor
constexpr int STAGES = 6;                  // of the ring
constexpr int STAGE = 1024;                // bytes of a row
constexpr int PIECE = CUDA_CODED_BYTES;    // that a warp takes at once: 16 a lane
constexpr uint32_t STAGE_ROW = STAGE + 64; // in the ring: rows begin in different banks
constexpr uint32_t STAGE_BYTES = OUTPUTS * STAGE_ROW;
constexpr uint32_t RING_BYTES = STAGES * STAGE_BYTES;

// What a lane has of x for one step: row g of each eight.
template <int EIGHTS> struct inputs { uint4 at[EIGHTS][4]; };

// Outputs g and g + 8 of a tile: a lane's 16 bytes of their codes.
struct codes {
    uint4 low;
    uint4 high;
};

// What is made of a sum before it is rounded; loaded while the sum is made.
struct finishing {
    float scale;
    float x_scale;
    float bias;
    int32_t sum_bias;
};

// ---- kinds --------------------------------------------------------------------------------------
//
// WARPS: that multiply. STEPS: of a stage; x is loaded one step ahead. X_RATIO: bytes of x for a
// byte of codes. EIGHTS: of rows, 1 or 2. Sums: output g of rows 2c and 2c + 1, then output g + 8.

// Codes of 8 bits on both sides; S: what their products are summed in.
template <typename S> struct scaled_kind {
    using sum = S;
    static constexpr int WARPS = 4;
    static constexpr int STEPS = 1;
    static constexpr int PIECES = STAGE / WARPS / PIECE; // of a step
    static constexpr int X_RATIO = 1;

    template <int EIGHTS> struct sums {
        S at[EIGHTS][2][4] = {}; // two of each: a product need not wait for the last one
        __device__ S total(int eight, int i) const {
            return at[eight][0][i] + at[eight][1][i];
        }
    };
    struct extra {
        __device__ void load(const cuda_coded &, int, int) {
        }
    };

    template <int EIGHTS>
    static __device__ void multiply(const codes *w, const inputs<EIGHTS> &x, const extra &, int,
                                    sums<EIGHTS> *to) {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const uint32_t first[4] = {w[i].low.x, w[i].high.x, w[i].low.y, w[i].high.y};
            const uint32_t second[4] = {w[i].low.z, w[i].high.z, w[i].low.w, w[i].high.w};
#pragma unroll
            for (int eight = 0; eight < EIGHTS; ++eight) {
                const uint4 of_x = x.at[eight][i];
                const uint32_t b[4] = {of_x.x, of_x.y, of_x.z, of_x.w};
                cuda_mma_codes(to->at[eight][0], first, b);
                cuda_mma_codes(to->at[eight][1], second, b + 2);
            }
        }
    }
    static __device__ finishing prepare(const cuda_coded &all, int row, int output) {
        return {all.scales[output], all.x_scales[row * all.x_scale_gap], 0,
                all.sum_bias ? all.sum_bias[output] : 0};
    }
    static __device__ float finish(S sum, const finishing &with) {
        return static_cast<float>(sum + static_cast<S>(with.sum_bias)) *
               (with.x_scale * with.scale);
    }
};

// Codes of 4 bits, x of type T. A step is a piece, 128 codes.
template <typename T> struct packed_kind {
    using sum = float;
    static constexpr int WARPS = 8;
    static constexpr int STEPS = STAGE / WARPS / PIECE;
    static constexpr int PIECES = 1;
    static constexpr int X_RATIO = 4;

    template <int EIGHTS> struct sums {
        float at[EIGHTS][4] = {};
        __device__ float total(int eight, int i) const {
            return at[eight][i];
        }
    };
    // Scales and zero points of outputs g and g + 8 for a stage: lane c has those of step c.
    // They stay as they are in memory until then: what converts them would wait for them.
    struct extra {
        uint32_t scale[2];
        uint32_t zero[2];
        bool is_bf16;

        __device__ void load(const cuda_coded &all, int first, int byte) {
            const int at = byte + threadIdx.x % 4 * PIECE;
            is_bf16 = all.scale_dtype == BERTH_DTYPE_BF16;
            const bool is_there = threadIdx.x % 4 < STEPS && at < all.bytes;
            const int group = at / (all.group / 2);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int own = first + half * 8 + threadIdx.x / 4;
                const int64_t number =
                    static_cast<int64_t>(min(own, all.outputs - 1)) * all.across + group;
                scale[half] = is_there ? all.group_scales[number] : 0u;
                zero[half] = is_there && all.zeros ? all.zeros[number] : 8u;
            }
        }
    };

    template <int EIGHTS>
    static __device__ void multiply(const codes *w, const inputs<EIGHTS> &x, const extra &of,
                                    int step, sums<EIGHTS> *to) {
        const int from = (threadIdx.x & 28) | step;
        float scale[2];
        uint32_t zero[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t bits = __shfl_sync(0xffffffffu, of.scale[half], from);
            scale[half] = of.is_bf16 ? __uint_as_float(bits << 16)
                                     : gpu_float(gpu_f16{static_cast<uint16_t>(bits)});
            zero[half] =
                (cuda_counting<T> + __shfl_sync(0xffffffffu, of.zero[half], from)) * 0x10001u;
        }
        const uint32_t low[4] = {w->low.x, w->low.y, w->low.z, w->low.w};
        const uint32_t high[4] = {w->high.x, w->high.y, w->high.z, w->high.w};
        float products[EIGHTS][2][4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) { // words of eight codes
            uint32_t l[4];
            uint32_t h[4];
            cuda_widen<T>(low[i], zero[0], l);
            cuda_widen<T>(high[i], zero[1], h);
            const uint32_t first[4] = {l[0], h[0], l[1], h[1]};
            const uint32_t second[4] = {l[2], h[2], l[3], h[3]};
#pragma unroll
            for (int eight = 0; eight < EIGHTS; ++eight) {
                uint32_t b[4];
                cuda_interleave(x.at[eight][i], b);
                cuda_mma(products[eight][0], first, b, T{});
                cuda_mma(products[eight][1], second, b + 2, T{});
            }
        }
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                to->at[eight][i] += (products[eight][0][i] + products[eight][1][i]) * scale[i / 2];
            }
        }
    }
    static __device__ finishing prepare(const cuda_coded &, int, int) {
        return {};
    }
    static __device__ float finish(float sum, const finishing &) {
        return sum;
    }
};

// ---- the ring -----------------------------------------------------------------------------------

// Barriers of stage 0; those of the others follow in steps of 8 bytes.
struct ring {
    uint32_t memory;
    uint32_t full;
    uint32_t empty;
};

// Which stage is next, and the parity of its phase.
struct place {
    int stage;
    uint32_t parity;

    __device__ void go_on() {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

__device__ void bring(const cuda_coded &all, const ring &to) {
    const int lane = threadIdx.x;
    const int step = static_cast<int>(gridDim.x) * OUTPUTS;
    place at = {0, 1}; // the first round waits for nobody
    for (int first = static_cast<int>(blockIdx.x) * OUTPUTS; first < all.outputs; first += step) {
        const int64_t output = min(first + lane % OUTPUTS, all.outputs - 1);
        const uint8_t *row = all.weight + output * all.bytes;
        for (int byte = 0; byte < all.bytes; byte += STAGE) {
            const uint32_t count = static_cast<uint32_t>(min(STAGE, all.bytes - byte));
            if (lane == 0) {
                cuda_barrier_wait(to.empty + 8 * at.stage, at.parity);
                cuda_barrier_expect(to.full + 8 * at.stage, OUTPUTS * count);
            }
            __syncwarp();
            if (lane < OUTPUTS) {
                cuda_bulk_copy(to.memory + at.stage * STAGE_BYTES + lane * STAGE_ROW, row + byte,
                               count, to.full + 8 * at.stage);
            } else if (all.group_scales) {
                // A stage's scales are a few bytes of a row: on their way to the second cache.
                const int64_t number = output * all.across + byte / (all.group / 2);
                gpu_fetch(all.group_scales + number);
            }
            at.go_on();
        }
    }
}

// ---- the warps that multiply --------------------------------------------------------------------

template <typename K, int EIGHTS>
__device__ void load_inputs(const cuda_coded &all, int byte, inputs<EIGHTS> *out) {
    // 8 bits: a lane's 16 bytes of every piece. 4 bits: what belongs to its 16 bytes of one.
    constexpr int APART = K::X_RATIO == 1 ? PIECE : 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool is_there = byte + (K::X_RATIO == 1 ? i * PIECE : 0) < all.bytes;
        const char *x = all.x + static_cast<int64_t>(byte) * K::X_RATIO + i * APART;
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight) {
            const int row = eight * 8 + threadIdx.x / 4;
            out->at[eight][i] = is_there && row < all.rows
                                    ? *reinterpret_cast<const uint4 *>(x + row * all.x_gap)
                                    : uint4{0, 0, 0, 0};
        }
    }
}

// One step's codes out of the ring; what a short last stage leaves of the one before it is zero.
template <typename K> __device__ void load_codes(uint32_t from, int there, codes *out) {
    const uint4 none = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < K::PIECES; ++i) {
        const uint4 low = cuda_load_shared(from + i * PIECE);
        const uint4 high = cuda_load_shared(from + 8 * STAGE_ROW + i * PIECE);
        out[i].low = i * PIECE < there ? low : none;
        out[i].high = i * PIECE < there ? high : none;
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

// Of the warps that multiply.
template <typename K> __device__ void wait_for_all() {
    asm volatile("bar.sync 1, %0;" ::"n"(K::WARPS * 32) : "memory");
}

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

// Where a warp is: a stage's bytes of the rows of a tile.
struct position {
    int first; // output
    int begin; // byte

    __device__ position next(const cuda_coded &all) const {
        return begin + STAGE < all.bytes
                   ? position{first, begin + STAGE}
                   : position{first + static_cast<int>(gridDim.x) * OUTPUTS, 0};
    }
};

// What a warp has loaded ahead: x of the next step, and what a kind wants of the next stage. Both
// go on from tile to tile.
template <typename K, int EIGHTS> struct ahead {
    inputs<EIGHTS> x[2];
    typename K::extra of[2];
};

// One stage, TURN of two: a copy from one x to the other would wait for what is under way.
template <typename K, int EIGHTS, int TURN>
__device__ void multiply_stage(const cuda_coded &all, const ring &from, const position &now,
                               place *at, ahead<K, EIGHTS> *loaded,
                               typename K::template sums<EIGHTS> *sums) {
    const int part = static_cast<int>(threadIdx.y) * (STAGE / K::WARPS);
    const int mine = part + threadIdx.x % 4 * 16;
    const uint32_t in_stage = static_cast<uint32_t>(mine) + threadIdx.x / 4 * STAGE_ROW;
    const position next = now.next(all);
    loaded->of[TURN ^ 1].load(all, next.first, next.begin + part);
    cuda_barrier_wait(from.full + 8 * at->stage, at->parity);
    uint32_t bits = 0;
#pragma unroll
    for (int step = 0; step < K::STEPS; ++step) {
        const int turn = (TURN * K::STEPS + step) % 2;
        const int byte = now.begin + mine + step * PIECE;
        codes w[K::PIECES];
        load_inputs<K, EIGHTS>(all, step + 1 < K::STEPS ? byte + PIECE : next.begin + mine,
                               &loaded->x[turn ^ 1]);
        load_codes<K>(from.memory + at->stage * STAGE_BYTES + in_stage + step * PIECE,
                      all.bytes - byte, w);
        K::template multiply<EIGHTS>(w, loaded->x[turn], loaded->of[TURN], step, sums);
        bits |= loaded_of<K>(w);
    }
    const uint32_t empty = cuda_behind_loads(from.empty + 8 * at->stage, bits, all.bytes);
    __syncwarp();
    if (threadIdx.x == 0) {
        cuda_barrier_arrive(empty);
    }
    at->go_on();
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
        load_inputs<K, EIGHTS>(all, part + threadIdx.x % 4 * 16, &loaded.x[0]);
        loaded.of[0].load(all, now.first, part);
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
    streamed_codes_kernel(cuda_coded all) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * STAGES];
    __shared__ room_of<K, EIGHTS> room[ROOMS<K, EIGHTS>][K::WARPS];
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const ring stages = {static_cast<uint32_t>(__cvta_generic_to_shared(shared)), signal,
                         signal + 8 * STAGES};
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
        bring(all, stages);
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

template <typename T, typename K, int EIGHTS>
berth_status launch(const gpu_op *op, const cuda_coded &all) {
    const cudaError_t error =
        cudaFuncSetAttribute(streamed_codes_kernel<T, K, EIGHTS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES);
    if (error != cudaSuccess) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                 RING_BYTES, cudaGetErrorString(error));
    }
    const unsigned tiles = gpu_ceil(all.outputs, OUTPUTS);
    const unsigned most = static_cast<unsigned>(op->gpu->multiprocessors[op->device] * BLOCKS);
    const gpu_grid grid = {dim3(tiles < most ? tiles : most), dim3(32, K::WARPS + 1), RING_BYTES};
    return gpu_run(op, "a product of codes", grid, streamed_codes_kernel<T, K, EIGHTS>, all);
}

template <typename T, typename S> berth_status start(const gpu_op *op, const cuda_coded &all) {
    return all.rows <= 8 ? launch<T, scaled_kind<S>, 1>(op, all)
                         : launch<T, scaled_kind<S>, 2>(op, all);
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
    return y == BERTH_DTYPE_BF16 ? launch<gpu_bf16, packed_kind<gpu_bf16>, 1>(op, all)
                                 : launch<gpu_f16, packed_kind<gpu_f16>, 1>(op, all);
}
