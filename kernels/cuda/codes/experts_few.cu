// SPDX-License-Identifier: Apache-2.0
// quantized_experts' product of few rows. A block has tiles of 16 outputs of a choice's expert, its
// warps share the depth. A row of codes is taken in chunks of 16 bytes, all of whose codes are of
// one group; a window is eight of them, of each of 16 rows.
//
// Weights are the tensor core's first operand. They become numbers of f16 in some two instructions
// for two codes: whole numbers are such as they are, in units of 2^-24, less their zero point,
// whose share is taken off a chunk's sum. x is f16, too, once a block: a chunk's numbers are scaled
// by a power of two that the largest decides, so that what is lost is 2^-40 of it. A chunk of x is
// a column of its own in the second operand, zero beside the lanes whose chunk it is: so sums of
// groups come apart, though a lane has a whole group and its neighbour the next one.
//
// With experts of gpt-oss-20b an H200 reads 1.4 TB/s so. Without what widens codes and without
// products it took as long, without scales a tenth less: what is left is to have more bytes under
// way.
#include <cuda/codes/codes.h>
#include <cuda/codes/experts_few.h>
#include <cuda/codes_to_pairs.h>
#include <cuda/pieces.h>

namespace {

constexpr int OUTPUTS = 16; // of a tile
constexpr int BLOCKS = 2;   // of a multiprocessor
constexpr int WARPS = 8;
constexpr int THREADS = WARPS * 32;
constexpr int CHUNK = 16;  // bytes of codes
constexpr int CHUNKS = 8;  // of a window
constexpr int HALVES = 2;  // of a window, which a lane has a chunk of, and of the outputs
constexpr int EIGHTH = 16; // bytes of eight numbers of x

// What is known of a chunk of x.
struct known {
    float unit; // with the scale of the codes that the numbers were
    float sum;  // of the numbers
};

struct few_product {
    gpu_codes_product all;
    berth_dtype dtype;     // of y
    uint32_t group_factor; // 0: one group
    int chunks;            // of a row
    int tiles;             // of outputs
};

// ---- codes --------------------------------------------------------------------------------------

// Eight codes become four pairs, and place i of them has code order(i). UNIT: of the numbers. ZERO:
// the zero point where none is given, 0 where there is none.

struct codes_u4 {
    static constexpr int EIGHTS = 4; // of a chunk
    static constexpr float UNIT = 0x1p24f;
    static constexpr float ZERO = 8;
    static __device__ int order(int i) {
        return i / 2 + i % 2 * 4;
    }
    static __device__ void widen(const uint32_t *words, uint32_t *pairs) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pairs[i] = words[0] >> 4 * i & 0x000f000fu;
        }
    }
};

// By way of e4m3, whose numbers with such exponents are 2^-6 times as large.
struct codes_e2m1 {
    static constexpr int EIGHTS = 4;
    static constexpr float UNIT = 0x1p6f;
    static constexpr float ZERO = 0;
    static __device__ int order(int i) {
        return i % 4 * 2 + i / 4;
    }
    static __device__ void widen(const uint32_t *words, uint32_t *pairs) {
        const uint32_t word = words[0];
        const uint32_t even = cuda_pick(word << 4, 0x80808080u, word << 2 & 0x1c1c1c1cu);
        const uint32_t odd = cuda_pick(word, 0x80808080u, word >> 2 & 0x1c1c1c1cu);
        pairs[0] = cuda_code_pair<gpu_f16>(even);
        pairs[1] = cuda_code_pair<gpu_f16>(even >> 16);
        pairs[2] = cuda_code_pair<gpu_f16>(odd);
        pairs[3] = cuda_code_pair<gpu_f16>(odd >> 16);
    }
};

struct codes_e4m3 {
    static constexpr int EIGHTS = 2;
    static constexpr float UNIT = 1;
    static constexpr float ZERO = 0;
    static __device__ int order(int i) {
        return i;
    }
    static __device__ void widen(const uint32_t *words, uint32_t *pairs) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pairs[i] = cuda_code_pair<gpu_f16>(words[i / 2] >> i % 2 * 16);
        }
    }
};

// FLIP: what makes a code of i8 one of u8 that is 128 larger.
template <uint32_t FLIP> struct codes_of_bytes {
    static constexpr int EIGHTS = 2;
    static constexpr float UNIT = 0x1p24f;
    static constexpr float ZERO = 128;
    static __device__ int order(int i) {
        return i;
    }
    static __device__ void widen(const uint32_t *words, uint32_t *pairs) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pairs[i] = __byte_perm(words[i / 2] ^ FLIP, 0, i % 2 == 0 ? 0x4140 : 0x4342);
        }
    }
};

// ---- x ------------------------------------------------------------------------------------------

// Bytes of a window's numbers.
template <typename C> constexpr uint32_t WINDOW = C::EIGHTS *CHUNKS *EIGHTH;

// Where eight number `eight` of a chunk's numbers lies. The same eight of all chunks of a window
// are neighbours.
template <typename C> __device__ uint32_t place_of(int chunk, int eight) {
    return static_cast<uint32_t>(((chunk / CHUNKS * C::EIGHTS + eight) * CHUNKS + chunk % CHUNKS) *
                                 EIGHTH);
}

__device__ int windows_of(const few_product &product) {
    return (product.chunks + CHUNKS - 1) / CHUNKS;
}

// How a group is found from twice the number of a chunk: by a factor for 2^32.
constexpr uint32_t groups_factor(int64_t chunks) {
    return static_cast<uint32_t>((int64_t{1} << 31) / chunks + 1);
}

__device__ int group_of(const few_product &product, int chunk) {
    return static_cast<int>(__umulhi(static_cast<uint32_t>(2 * chunk), product.group_factor));
}

// The unit of numbers no larger than `largest`, with which they are below 2^15; that of the largest
// finite ones where it is infinite.
__device__ uint32_t exponent_of(float largest) {
    return min(max(__float_as_uint(largest) >> 23, 15u), 254u);
}

// Eight numbers in the order of their codes, zeros where they are not there; the largest.
template <typename C, typename X>
__device__ float load_eight(const typename X::element *x, int number, bool is_there,
                            float *values) {
    gpu_pack<typename X::element, 8> eight = {};
    if (is_there) {
        eight = gpu_load<typename X::element, 8>(x, number * 8);
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        values[i] = X::number(eight.at[C::order(i)]);
        largest = fmaxf(largest, fabsf(values[i]));
    }
    return largest;
}

// Multiplied by `factor` and rounded; their sum before.
__device__ float round_eight(const float *values, float factor, uint4 *pairs) {
    float scaled[8];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        scaled[i] = values[i] * factor;
        sum += scaled[i];
    }
    *pairs = cuda_pairs<gpu_f16>(scaled);
    return sum;
}

// Of the lanes that have a chunk.
template <typename C, typename F> __device__ float of_chunk(float value, F join) {
#pragma unroll
    for (int mask = 1; mask < C::EIGHTS; mask *= 2) {
        value = join(value, gpu_shuffle_xor(value, mask));
    }
    return value;
}

// Row `row` of x to shared memory at `to`, and what is known of its chunks; whole windows.
template <typename C, typename X>
__device__ void keep_row(const few_product &product, int64_t row, uint32_t to, known *its) {
    const gpu_codes_product &all = product.all;
    const auto *x = gpu_row<const typename X::element>(all.x, row);
    const int eights = windows_of(product) * CHUNKS * C::EIGHTS;
    for (int first = threadIdx.y * 32; first < eights; first += THREADS) { // whole warps
        const int number = first + static_cast<int>(threadIdx.x);
        const int chunk = number / C::EIGHTS;
        const bool is_there = chunk < product.chunks;
        float values[8];
        uint4 pairs;
        const float largest = of_chunk<C>(load_eight<C, X>(x, number, is_there, values),
                                          [](float a, float b) { return fmaxf(a, b); });
        const uint32_t exponent = exponent_of(largest);
        const float sum =
            of_chunk<C>(round_eight(values, __uint_as_float((268 - exponent) << 23), &pairs),
                        [](float a, float b) { return a + b; });
        if (number >= eights) {
            continue; // half a warp
        }
        cuda_store_shared(to + place_of<C>(chunk, number % C::EIGHTS), pairs);
        if (number % C::EIGHTS == 0) {
            const float unit = __uint_as_float((exponent - 14) << 23);
            const bool is_scaled = is_there && all.scales.across > 1;
            const int group = group_of(product, chunk);
            its[chunk].unit = is_scaled ? unit * gpu_codes_x_scale(all, row, group) : unit;
            its[chunk].sum = sum / C::UNIT;
        }
    }
}

// What lanes read whose column is another's. Its address.
template <uint32_t BYTES> __device__ uint32_t keep_zeros(unsigned char (&room)[BYTES]) {
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(room));
    if (threadIdx.y == 0 && threadIdx.x < BYTES / 16) {
        cuda_store_shared(to + threadIdx.x * 16, uint4{0, 0, 0, 0});
    }
    return to;
}

// ---- weights ------------------------------------------------------------------------------------

// A lane's outputs of a tile: g and g + 8.
struct rows {
    const uint8_t *codes[HALVES];
    int64_t groups[HALVES]; // number of the first scale
};

__device__ rows rows_of(const gpu_codes_product &all, int expert, int tile) {
    rows out;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        const int own = tile * OUTPUTS + half * 8 + static_cast<int>(threadIdx.x) / 4;
        const int output = min(own, all.outputs - 1);
        out.codes[half] = gpu_codes_row(all, expert, output);
        out.groups[half] = gpu_codes_group(all, expert, output, 0);
    }
    return out;
}

// What a lane has of a window. Of either output: codes of chunks c and c + 4; scales, as they lie
// in memory, and zero points of chunks 2c and 2c + 1, whose sums it gets. Why as they lie: what
// converts a number waits for it.
struct window {
    uint4 codes[HALVES][2];
    uint32_t scales[HALVES][2];
    uint32_t zeros[HALVES][2];
};

__device__ uint32_t load_bits(const gpu_code_scales &scales, int64_t number) {
    return scales.dtype == BERTH_DTYPE_F32 ? static_cast<const uint32_t *>(scales.data)[number]
                                           : static_cast<const uint16_t *>(scales.data)[number];
}
__device__ float number_of(berth_dtype dtype, uint32_t bits) {
    return dtype == BERTH_DTYPE_F32    ? __uint_as_float(bits)
           : dtype == BERTH_DTYPE_BF16 ? __uint_as_float(bits << 16)
                                       : gpu_float(gpu_f16{static_cast<uint16_t>(bits)});
}

// Of chunks that are not there codes are zeros.
template <typename C>
__device__ void load(const few_product &product, const rows &from, int number, window *out) {
    const gpu_codes_product &all = product.all;
    const int c = threadIdx.x % 4;
    const int last = product.chunks - 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int chunk = number * CHUNKS + i * 4 + c;
        const int group = group_of(product, min(number * CHUNKS + 2 * c + i, last));
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            const int64_t at = from.groups[half] + group;
            out->codes[half][i] = uint4{0, 0, 0, 0};
            if (chunk <= last) {
                out->codes[half][i] = cuda_stream(from.codes[half] + chunk * CHUNK);
            }
            out->scales[half][i] = load_bits(all.scales, at);
            if (C::ZERO != 0 && all.zeros) {
                out->zeros[half][i] = all.zeros[at];
            }
        }
    }
}

// ---- products -----------------------------------------------------------------------------------

// Where a lane finds x of window 0, and how far it is to the next one: as the first four chunks are
// columns, and the others. A lane whose chunk is another column finds zeros.
struct columns {
    uint32_t at[2];
    uint32_t gap[2];
};

template <typename C> __device__ columns columns_of(uint32_t x, uint32_t zeros) {
    const uint32_t g = threadIdx.x / 4;
    columns out;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        const bool is_own = g == i * 4 + threadIdx.x % 4;
        out.at[i] = is_own ? x + g * EIGHTH : zeros;
        out.gap[i] = is_own ? WINDOW<C> : 0;
    }
    return out;
}

// Sums of chunks 2c and 2c + 1 with either output. Those of the first four chunks and the others
// apart, so that not every product waits for the one before it.
template <typename C>
__device__ void multiply(const window &of, uint32_t number, const columns &x, float (*sums)[4]) {
    constexpr int WORDS = 4 / C::EIGHTS;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t at = x.at[i] + number * x.gap[i];
#pragma unroll
        for (int eight = 0; eight < C::EIGHTS; ++eight) {
            uint32_t low[4];
            uint32_t high[4];
            C::widen(&of.codes[0][i].x + eight * WORDS, low);
            C::widen(&of.codes[1][i].x + eight * WORDS, high);
            const uint4 numbers = cuda_load_shared(at + eight * CHUNKS * EIGHTH);
            const uint32_t b[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
            const uint32_t first[4] = {low[0], high[0], low[1], high[1]};
            const uint32_t second[4] = {low[2], high[2], low[3], high[3]};
            cuda_mma(sums[i], first, b, gpu_f16{});
            cuda_mma(sums[i], second, b + 2, gpu_f16{});
        }
    }
}

// They are scaled and go to the lane's totals.
template <typename C>
__device__ void add(const few_product &product, const window &of, const known *its,
                    const float (*sums)[4], float *totals) {
    const gpu_codes_product &all = product.all;
    const bool is_grouped = all.scales.across > 1;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float sum = sums[0][half * 2 + i] + sums[1][half * 2 + i];
            if (C::ZERO != 0) {
                const float zero = all.zeros ? static_cast<float>(of.zeros[half][i]) : C::ZERO;
                sum -= zero * its[i].sum;
            }
            const float scale = is_grouped ? number_of(all.scales.dtype, of.scales[half][i]) : 1;
            totals[half] += sum * (its[i].unit * scale);
        }
    }
}

// The warps' totals together, to y.
template <typename C>
__device__ void finish(const few_product &product, gpu_codes_place at, float *totals,
                       float (*room)[OUTPUTS]) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        totals[half] += gpu_shuffle_xor(totals[half], 1);
        totals[half] += gpu_shuffle_xor(totals[half], 2);
        if (threadIdx.x % 4 == 0) {
            room[threadIdx.y][half * 8 + threadIdx.x / 4] = totals[half];
        }
    }
    __syncthreads();
    at.output += static_cast<int>(threadIdx.x);
    if (threadIdx.y != 0 || threadIdx.x >= OUTPUTS || at.output >= product.all.outputs) {
        return;
    }
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) {
        sum += room[warp][threadIdx.x];
    }
    sum *= C::UNIT;
    const bool is_scaled = product.all.scales.across > 1;
    if (product.dtype == BERTH_DTYPE_BF16) {
        gpu_codes_store<gpu_bf16>(product.all, at, sum, is_scaled);
    } else {
        gpu_codes_store<gpu_f16>(product.all, at, sum, is_scaled);
    }
}

// blockIdx.x: the first tile of outputs, of which each block has every gridDim.x-th; blockIdx.y:
// the choice.
template <typename C, typename X>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    few_kernel(gpu_choices choices, few_product product) {
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ __align__(16) unsigned char zeros[WINDOW<C>];
    __shared__ float room[2][WARPS][OUTPUTS]; // a tile's is read while the next one's is written
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    gpu_codes_place at = {};
    at.p = blockIdx.y;
    at.expert = gpu_expert_of(choices, at.p);
    if (at.expert < 0) {
        return; // the whole block
    }
    const int windows = windows_of(product);
    const int warp = threadIdx.y;
    const uint32_t memory = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    known *its = reinterpret_cast<known *>(shared + windows * WINDOW<C>);
    rows from = rows_of(product.all, at.expert, blockIdx.x);
    window now = {};
    load<C>(product, from, warp, &now);
    keep_row<C, X>(product, at.p / product.all.rows_per_x, memory, its);
    const columns x = columns_of<C>(memory, keep_zeros(zeros));
    __syncthreads();
    int turn = 0;
    for (int tile = blockIdx.x; tile < product.tiles; tile += gridDim.x, turn ^= 1) {
        float totals[HALVES] = {};
        for (int number = warp; number < windows; number += WARPS) {
            const bool is_last = number + WARPS >= windows;
            const int following = is_last ? tile + static_cast<int>(gridDim.x) : tile;
            window next = {};
            if (following < product.tiles) {
                from = is_last ? rows_of(product.all, at.expert, following) : from;
                load<C>(product, from, is_last ? warp : number + WARPS, &next);
            }
            float sums[2][4] = {};
            multiply<C>(now, static_cast<uint32_t>(number), x, sums);
            add<C>(product, now, its + number * CHUNKS + threadIdx.x % 4 * 2, sums, totals);
            now = next;
        }
        at.output = tile * OUTPUTS;
        finish<C>(product, at, totals, room[turn]);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

int codes_of_chunk(berth_code code) {
    return berth_code_is_half(code) ? 2 * CHUNK : CHUNK;
}

// Bytes of shared memory for a row of x.
int64_t room_of(int64_t depth, int codes) {
    const int64_t chunks = (depth / codes + CHUNKS - 1) / CHUNKS * CHUNKS;
    return chunks * (codes * 2 + static_cast<int64_t>(sizeof(known)));
}

// Blocks along the outputs: so many tiles each that all run together, as each makes x anew; not too
// many, as they end together.
unsigned blocks_of(const gpu_coded *op, int64_t tiles, int64_t choices) {
    constexpr int64_t MOST = 4;
    const int64_t together = BLOCKS * op->gpu->multiprocessors[op->device];
    const int64_t each = (tiles * choices + together - 1) / together;
    return gpu_ceil(tiles, each < MOST ? each : MOST);
}

template <typename C, typename X>
berth_status start(const gpu_coded *op, const gpu_coded_call &call, const gpu_codes_product &all) {
    constexpr int CODES = 8 * C::EIGHTS;
    few_product product = {all, op->dtype, 0, all.depth / CODES,
                           static_cast<int>(gpu_ceil(all.outputs, OUTPUTS))};
    if (all.scales.across > 1) {
        product.group_factor = groups_factor(all.scales.columns / CODES);
    }
    const unsigned blocks = blocks_of(op, product.tiles, call.choices.count);
    const gpu_grid grid = {dim3(blocks, static_cast<unsigned>(call.choices.count)), dim3(32, WARPS),
                           static_cast<uint32_t>(room_of(all.depth, CODES))};
    return gpu_run(op, "experts of codes, few rows", grid, few_kernel<C, X>, call.choices, product);
}

template <typename C>
berth_status start_floats(const gpu_coded *op, const gpu_coded_call &call,
                          const gpu_codes_product &all) {
    return op->dtype == BERTH_DTYPE_BF16 ? start<C, gpu_codes_x_floats<gpu_bf16>>(op, call, all)
                                         : start<C, gpu_codes_x_floats<gpu_f16>>(op, call, all);
}

// Codes whose inputs may be codes of X, too.
template <typename C, typename X>
berth_status start_codes(const gpu_coded *op, const gpu_coded_call &call,
                         const gpu_codes_product &all) {
    return op->kind == GPU_CODES_FLOAT ? start_floats<C>(op, call, all)
                                       : start<C, X>(op, call, all);
}

} // namespace

bool cuda_experts_few_takes(const gpu_coded *op, const gpu_coded_stack &stack) {
    constexpr int64_t MOST = 46 << 10; // with the kernel's own, 48 KB, where nothing is said
    const int codes = codes_of_chunk(op->code);
    return gpu_code_scales_fit(stack.scales, stack.depth, codes) &&
           room_of(stack.depth, codes) <= MOST;
}

berth_status cuda_experts_few(const gpu_coded *op, const gpu_coded_call &call,
                              const gpu_codes_product &all) {
    switch (op->code) {
    case BERTH_CODE_U4:
        return start_codes<codes_u4, gpu_codes_x_i8>(op, call, all);
    case BERTH_CODE_E2M1:
        return start_codes<codes_e2m1, gpu_codes_x_i8>(op, call, all);
    case BERTH_CODE_E4M3:
        return start_codes<codes_e4m3, gpu_codes_x_e4m3>(op, call, all);
    case BERTH_CODE_I8:
        return start_codes<codes_of_bytes<0x80808080u>, gpu_codes_x_i8>(op, call, all);
    default:
        return start_codes<codes_of_bytes<0>, gpu_codes_x_i8>(op, call, all);
    }
}
