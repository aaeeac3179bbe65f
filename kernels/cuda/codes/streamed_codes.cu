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
// Where x is small beside the ring every block has a copy of its own in shared memory. Why: by the
// time that x is there the ring is full, and what then bounds a stage is no longer the memory's
// rate but how long a load of x takes, which beside the traffic of the codes is as long as the
// stage's own bytes: all that was brought ahead would be lost again.
#include <cuda/bulk.h>
#include <cuda/codes/codes.h>

namespace {

constexpr int OUTPUTS = 16;                // of a tile
constexpr int BLOCKS = 2;                  // of a multiprocessor
constexpr int STAGES = 6;                  // of the ring, at most
constexpr int LEAST_STAGES = 4;            // beside a copy of x
constexpr int STAGE = 1024;                // bytes of a row
constexpr int PIECE = CUDA_CODED_BYTES;    // that a warp takes at once: 16 a lane
constexpr uint32_t STAGE_ROW = STAGE + 64; // in the ring: rows begin in different banks
constexpr uint32_t SCALES = 32;            // bytes of a row's scales of 4-bit codes in a stage
constexpr uint32_t ZEROS = 16;             // and of its zero points, which follow
constexpr uint32_t STAGE_BYTES = OUTPUTS * STAGE_ROW;
constexpr uint32_t BLOCK_BYTES = 113u << 10; // of a block's shared memory, where BLOCKS fit
constexpr int GROUP_PIECES = PIECE / 4;      // of x in 16 bits, 16 bytes each: a piece's inputs
constexpr int NEAR_GROUP = 2 * PIECE;        // codes of 4 bits whose inputs have a sum

// What shared memory holds: the ring, then, where it is near, x: rows `gap` bytes apart, and for
// codes of 4 bits the sums of NEAR_GROUP inputs, of 8 rows each.
struct layout {
    int stages;
    uint32_t gap;
    uint32_t bytes;

    __host__ __device__ uint32_t x() const {
        return static_cast<uint32_t>(stages) * STAGE_BYTES;
    }
    __host__ __device__ uint32_t sums(int rows) const {
        return x() + static_cast<uint32_t>(rows) * gap;
    }
};

__device__ uint32_t load_shared_16(uint32_t from) {
    uint16_t value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(from));
    return value;
}

__device__ uint32_t load_shared_8(uint32_t from) {
    uint32_t value;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(from));
    return value;
}

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
// byte of codes. IS_NEAR: x is in shared memory. EIGHTS: of rows, 1 or 2. Sums: output g of rows 2c
// and 2c + 1, then output g + 8.

// Codes of 8 bits on both sides; S: what their products are summed in.
template <typename S, bool NEAR> struct scaled_kind {
    using sum = S;
    static constexpr bool IS_NEAR = NEAR;
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
        __device__ void load(const cuda_coded &, int, int, uint32_t) {
        }
        __device__ uint32_t fetch(const cuda_coded &, uint32_t, int) {
            return 0;
        }
    };

    template <int EIGHTS>
    static __device__ void multiply(const codes *w, const inputs<EIGHTS> &x, const extra &, bool,
                                    int, sums<EIGHTS> *to) {
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
//
// Of x in bf16 that is near the codes are multiplied with what they were counted from still in
// them, which is taken off the sums of a group: its inputs' sum times as much. The products are
// exact and their sums lose 2^-23 of numbers 30 times the result, far below what y keeps.
template <typename T, bool NEAR> struct packed_kind {
    using sum = float;
    static constexpr bool IS_NEAR = NEAR;
    static constexpr bool IS_COUNTED = NEAR && gpu_is_bf16<T>;
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
    // Scales and zero points of outputs g and g + 8. Near: beside the codes in the ring. Far: lane
    // c has those of step c of a stage; they stay as they are in memory until then, since what
    // converts them would wait for them.
    struct extra {
        uint32_t scale[2];
        uint32_t zero[2];
        uint32_t kept[2][2]; // of a stage: scales, zero points
        uint32_t input_sums; // of step 0, rows 2c and 2c + 1

        __device__ void load(const cuda_coded &all, int first, int byte, uint32_t sums) {
            if constexpr (NEAR) {
                input_sums = sums + static_cast<uint32_t>(byte) / PIECE * 32 +
                             threadIdx.x % 4 * static_cast<uint32_t>(sizeof(float2));
                return;
            }
            const int at = byte + threadIdx.x % 4 * PIECE;
            const bool is_there = threadIdx.x % 4 < STEPS && at < all.bytes;
            const int group = at / (all.group / 2);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int own = first + half * 8 + threadIdx.x / 4;
                const int64_t number =
                    static_cast<int64_t>(min(own, all.outputs - 1)) * all.across + group;
                kept[0][half] = is_there ? all.group_scales[number] : 0u;
                kept[1][half] = is_there && all.zeros ? all.zeros[number] : 8u;
            }
        }
        // Those of a step. `beside`: what the ring has behind the codes of output g. The bits that
        // came from there.
        __device__ uint32_t fetch(const cuda_coded &all, uint32_t beside, int step) {
            const int from = (threadIdx.x & 28) | step;
            const uint32_t group = threadIdx.y * STEPS + static_cast<uint32_t>(step);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t row = beside + half * 8 * STAGE_ROW;
                if constexpr (NEAR) {
                    scale[half] = load_shared_16(row + 2 * group);
                    zero[half] = all.zeros ? load_shared_8(row + SCALES + group) : 8u;
                } else {
                    scale[half] = __shfl_sync(0xffffffffu, kept[0][half], from);
                    zero[half] = __shfl_sync(0xffffffffu, kept[1][half], from);
                }
            }
            return NEAR ? scale[0] | scale[1] | zero[0] | zero[1] : 0;
        }
    };

    template <int EIGHTS>
    static __device__ void multiply(const codes *w, const inputs<EIGHTS> &x, const extra &of,
                                    bool is_bf16, int step, sums<EIGHTS> *to) {
        float scale[2];
        uint32_t zero[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            scale[half] = is_bf16 ? __uint_as_float(of.scale[half] << 16)
                                  : gpu_float(gpu_f16{static_cast<uint16_t>(of.scale[half])});
            zero[half] = cuda_counting<T> + of.zero[half];
        }
        const uint32_t low[4] = {w->low.x, w->low.y, w->low.z, w->low.w};
        const uint32_t high[4] = {w->high.x, w->high.y, w->high.z, w->high.w};
        float products[EIGHTS][2][4] = {};
        if constexpr (IS_COUNTED) {
            const float2 inputs_sum = load_pair(of.input_sums + static_cast<uint32_t>(step * 32));
            const float counted[2] = {__uint_as_float(zero[0] << 16),
                                      __uint_as_float(zero[1] << 16)};
            products[0][0][0] = -inputs_sum.x * counted[0];
            products[0][0][1] = -inputs_sum.y * counted[0];
            products[0][0][2] = -inputs_sum.x * counted[1];
            products[0][0][3] = -inputs_sum.y * counted[1];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) { // words of eight codes
            uint32_t l[4];
            uint32_t h[4];
            if constexpr (IS_COUNTED) {
                cuda_count<T>(low[i], l);
                cuda_count<T>(high[i], h);
            } else {
                cuda_widen<T>(low[i], zero[0] * 0x10001u, l);
                cuda_widen<T>(high[i], zero[1] * 0x10001u, h);
            }
            const uint32_t first[4] = {l[0], h[0], l[1], h[1]};
            const uint32_t second[4] = {l[2], h[2], l[3], h[3]};
#pragma unroll
            for (int eight = 0; eight < EIGHTS; ++eight) {
                uint32_t b[4] = {x.at[eight][i].x, x.at[eight][i].y, x.at[eight][i].z,
                                 x.at[eight][i].w};
                if constexpr (!IS_NEAR) {
                    cuda_interleave(x.at[eight][i], b);
                }
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
    static __device__ float2 load_pair(uint32_t from) {
        float2 pair;
        asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from));
        return pair;
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
    int stages;
    // x and its sums where it is near
    uint32_t x;
    uint32_t gap;
    uint32_t sums;
};

// Which stage is next, and the parity of its phase.
struct place {
    int stage;
    uint32_t parity;

    __device__ void go_on(int stages) {
        stage = stage + 1 == stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

template <typename K> __device__ void bring(const cuda_coded &all, const ring &to) {
    // Of 4-bit codes whose x is near: scales and zero points too, by the lanes that have no row.
    constexpr bool HAS_SCALES = K::IS_NEAR && K::X_RATIO > 1;
    const int lane = threadIdx.x;
    const uint32_t more = HAS_SCALES ? OUTPUTS * (SCALES + (all.zeros ? ZEROS : 0)) : 0;
    const int step = static_cast<int>(gridDim.x) * OUTPUTS;
    place at = {0, 1}; // the first round waits for nobody
    for (int first = static_cast<int>(blockIdx.x) * OUTPUTS; first < all.outputs; first += step) {
        const int64_t output = min(first + lane % OUTPUTS, all.outputs - 1);
        const uint8_t *row = all.weight + output * all.bytes;
        for (int byte = 0; byte < all.bytes; byte += STAGE) {
            const uint32_t count = static_cast<uint32_t>(min(STAGE, all.bytes - byte));
            if (lane == 0) {
                cuda_barrier_wait(to.empty + 8 * at.stage, at.parity);
                cuda_barrier_expect(to.full + 8 * at.stage, OUTPUTS * count + more);
            }
            __syncwarp();
            const uint32_t place = to.memory + at.stage * STAGE_BYTES + lane % OUTPUTS * STAGE_ROW;
            const int64_t group = output * all.across + byte / PIECE;
            if (lane < OUTPUTS) {
                cuda_bulk_copy(place, row + byte, count, to.full + 8 * at.stage);
            } else if (HAS_SCALES) {
                cuda_bulk_copy(place + STAGE, all.group_scales + group, SCALES,
                               to.full + 8 * at.stage);
                if (all.zeros) {
                    cuda_bulk_copy(place + STAGE + SCALES, all.zeros + group, ZEROS,
                                   to.full + 8 * at.stage);
                }
            } else if (all.group_scales) {
                // A stage's scales are a few bytes of a row: on their way to the second cache.
                gpu_fetch(all.group_scales + output * all.across + byte / (all.group / 2));
            }
            at.go_on(to.stages);
        }
    }
}

// Of the warps that multiply.
template <typename K> __device__ void wait_for_all() {
    asm volatile("bar.sync 1, %0;" ::"n"(K::WARPS * 32) : "memory");
}

// ---- a copy of x --------------------------------------------------------------------------------

__device__ void store_shared(uint32_t to, const uint32_t *words) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}

// The sum of 16 bytes of x and of those of the 15 threads beside this one.
__device__ float group_sum(const uint4 &x) {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum += __uint_as_float(words[i] << 16) + __uint_as_float(words[i] & 0xffff0000u);
    }
    for (int mask = GROUP_PIECES / 2; mask > 0; mask /= 2) {
        sum += gpu_shuffle_xor(sum, mask);
    }
    return sum;
}

// 16 bytes of x, as they are multiplied; of counted codes' also the sums of their groups. By whole
// warps.
template <typename K>
__device__ void keep_piece(const ring &to, int row, int piece, bool is_there, const uint4 &x) {
    uint32_t words[4] = {x.x, x.y, x.z, x.w};
    if constexpr (K::X_RATIO > 1) {
        cuda_interleave(x, words);
        if constexpr (K::IS_COUNTED) {
            const float sum = group_sum(x);
            if (is_there && piece % GROUP_PIECES == 0) {
                const uint32_t number = static_cast<uint32_t>(piece / GROUP_PIECES * 8 + row);
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(to.sums + 4 * number), "f"(sum)
                             : "memory");
            }
        }
    }
    if (is_there) {
        store_shared(to.x + static_cast<uint32_t>(row) * to.gap + 16 * static_cast<uint32_t>(piece),
                     words);
    }
}

template <typename K> __device__ void keep_inputs(const cuda_coded &all, const ring &to) {
    constexpr int AT_ONCE = 4;
    constexpr int THREADS = K::WARPS * 32;
    const int pieces = all.bytes * K::X_RATIO / 16;
    const int thread = threadIdx.y * 32 + threadIdx.x;
    for (int row = 0; row < all.rows; ++row) {
        const uint4 *x = reinterpret_cast<const uint4 *>(all.x + row * all.x_gap);
        for (int first = 0; first < pieces; first += AT_ONCE * THREADS) {
            uint4 held[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int piece = first + i * THREADS + thread;
                held[i] = piece < pieces ? x[piece] : uint4{0, 0, 0, 0};
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int piece = first + i * THREADS + thread;
                keep_piece<K>(to, row, piece, piece < pieces, held[i]);
            }
        }
    }
    wait_for_all<K>();
}

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

// One step's codes out of the ring; what a short last stage leaves of the one before it is zero.
template <typename K> __device__ void load_codes(uint32_t from, int there, codes *out) {
    const uint4 none = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < K::PIECES; ++i) {
        const uint4 low = cuda_load_shared(from + i * PIECE);
        const uint4 high = cuda_load_shared(from + 8 * STAGE_ROW + i * PIECE);
        const bool is_there = K::IS_NEAR || i * PIECE < there;
        out[i].low = is_there ? low : none;
        out[i].high = is_there ? high : none;
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
    uint32_t near; // the lane's first x of a row, where that is near
};

// One stage, TURN of two: a copy from one x to the other would wait for what is under way.
template <typename K, int EIGHTS, int TURN>
__device__ void multiply_stage(const cuda_coded &all, const ring &from, const position &now,
                               place *at, ahead<K, EIGHTS> *loaded,
                               typename K::template sums<EIGHTS> *sums) {
    const int part = static_cast<int>(threadIdx.y) * (STAGE / K::WARPS);
    const int mine = part + threadIdx.x % 4 * 16;
    const uint32_t in_stage = static_cast<uint32_t>(mine) + threadIdx.x / 4 * STAGE_ROW;
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
        load_codes<K>(from.memory + at->stage * STAGE_BYTES + in_stage + step * PIECE,
                      all.bytes - byte, w);
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
    streamed_codes_kernel(cuda_coded all, layout places) {
    extern __shared__ __align__(128) unsigned char shared[];
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
        bring<K>(all, stages);
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
    constexpr uint32_t TAKEN = ROOMS<K, EIGHTS> * K::WARPS * sizeof(room_of<K, EIGHTS>) + 128;
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

template <typename T, typename K, int EIGHTS>
berth_status launch(const gpu_op *op, const cuda_coded &all, const layout &places) {
    const cudaError_t error =
        cudaFuncSetAttribute(streamed_codes_kernel<T, K, EIGHTS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, places.bytes);
    if (error != cudaSuccess) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                 places.bytes, cudaGetErrorString(error));
    }
    const unsigned tiles = gpu_ceil(all.outputs, OUTPUTS);
    const unsigned most = static_cast<unsigned>(op->gpu->multiprocessors[op->device] * BLOCKS);
    const gpu_grid grid = {dim3(tiles < most ? tiles : most), dim3(32, K::WARPS + 1), places.bytes};
    return gpu_run(op, "a product of codes", grid, streamed_codes_kernel<T, K, EIGHTS>, all,
                   places);
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
