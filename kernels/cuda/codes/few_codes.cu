// SPDX-License-Identifier: Apache-2.0
// Products of few rows by codes of weights on compute capability 9. Two blocks a multiprocessor go
// through tiles of 16 outputs of a row's matrix, a choice's expert or the only one. One warp has
// bytes of the rows brought into a ring in shared memory, eight multiply, one adds up what they
// give. A row of codes is taken in chunks of 16 bytes, all of whose codes are of one group, or each
// half of one; a window is eight of them, of each of 16 rows.
//
// Weights are the tensor core's first operand. They become numbers of f16 in some two instructions
// for two codes: whole numbers are such as they are, in units of 2^-24, less their zero point,
// whose share is taken off a chunk's sum. x is f16, too, once a block and row: a chunk's numbers
// are scaled by a power of two that the largest decides, so that what is lost is 2^-40 of it. A
// chunk of x is a column of its own in the second operand, zero beside the lanes whose chunk it is:
// so sums of groups come apart, though a lane has a whole group and its neighbour the next one.
// Halves have sums of their own.
//
// An H200 reads experts of gpt-oss-20b at 1.7 TB/s so, of DeepSeek-V3 in e4m3 at 3.6. Instructions
// bound the first, which has less of everything in a row: half of them make numbers of codes.
#include <cuda/codes/codes.h>
#include <cuda/codes/few_codes.h>
#include <cuda/codes/few_codes_x.h>
#include <cuda/shared.h>

namespace {

constexpr int BLOCKS = 2;                    // of a multiprocessor
constexpr int STAGES = 6;                    // of the ring, at most
constexpr int SLICE = 1024;                  // bytes of rows that are too long for a stage
constexpr int PAD = 64;                      // behind them: rows begin in different banks
constexpr int WHOLE_BYTES = 32 << 10;        // of a tile's rows that are a stage
constexpr uint32_t BLOCK_BYTES = 110u << 10; // of a block's shared memory, where BLOCKS fit

// ---- a block's way ------------------------------------------------------------------------------

// A stage: bytes from `begin` on of the rows of a tile, whose first output is known.
struct position {
    int output;
    int end; // of the block's outputs
    int begin;

    __device__ bool is_there() const {
        return output < end;
    }
    __device__ int end_window(const few_product &product) const {
        return (min(begin + product.slice, product.bytes) + SPAN - 1) / SPAN;
    }
    __device__ void go_on(const few_product &product) {
        begin += product.slice;
        if (begin >= product.bytes) {
            begin = 0;
            output += OUTPUTS;
        }
    }
};

__device__ position begin_tiles(const few_product &product) {
    const int first = product.tiles * static_cast<int>(blockIdx.x) / static_cast<int>(gridDim.x);
    const int end = product.tiles * static_cast<int>(blockIdx.x + 1) / static_cast<int>(gridDim.x);
    return position{first * OUTPUTS, min(end * OUTPUTS, product.all.outputs), 0};
}

// ---- the ring -----------------------------------------------------------------------------------

__device__ void bring_stage(const few_product &product, int expert, const position &of,
                            uint32_t memory, uint32_t full) {
    const gpu_codes_product &all = product.all;
    const uint8_t *rows = gpu_codes_row(all, expert, of.output) + of.begin;
    const int count = min(OUTPUTS, all.outputs - of.output);
    const int part = min(product.slice, product.bytes - of.begin);
    cuda_barrier_expect(full, static_cast<uint32_t>(count * part));
    if (product.slice == product.bytes) {
        cuda_bulk_copy(memory, rows, static_cast<uint32_t>(count * part), full);
        return;
    }
    for (int row = 0; row < count; ++row) {
        cuda_bulk_copy(memory + static_cast<uint32_t>(row * product.gap),
                       rows + static_cast<int64_t>(row) * product.bytes,
                       static_cast<uint32_t>(part), full);
    }
}

// Scales and zero points of the tile's outputs on their way to the second cache.
__device__ void fetch_scales(const few_product &product, int expert, const position &of) {
    const gpu_codes_product &all = product.all;
    const int size = product.scale_bytes;
    const int64_t first = gpu_codes_group(all, expert, of.output, 0);
    const int last = min(of.output + OUTPUTS, all.outputs) - 1;
    const int count = static_cast<int>(gpu_codes_group(all, expert, last, 0) - first) +
                      static_cast<int>(all.scales.across);
    const char *scales = static_cast<const char *>(all.scales.data) + first * size;
    for (int byte = 0; byte < count * size; byte += 128) {
        gpu_fetch(scales + byte);
    }
    for (int byte = 0; all.zeros && byte < count; byte += 128) {
        gpu_fetch(all.zeros + first + byte);
    }
}

// By the elected thread of a warp.
__device__ void bring(const few_product &product, int expert, const cuda_ring &to) {
    const uint32_t stage_bytes = static_cast<uint32_t>(OUTPUTS * product.gap);
    cuda_place at = {0, 1}; // the first round waits for nobody
    for (position now = begin_tiles(product); now.is_there(); now.go_on(product)) {
        const uint32_t stage = static_cast<uint32_t>(at.stage);
        cuda_barrier_wait(to.empty + 8 * stage, at.parity);
        bring_stage(product, expert, now, to.memory + stage * stage_bytes, to.full + 8 * stage);
        if (now.begin == 0 && product.all.scales.across > 1) {
            fetch_scales(product, expert, now);
        }
        at.go_on(product.stages);
    }
}

// ---- weights ------------------------------------------------------------------------------------

// What a lane has of a window beside its codes: of outputs g and g + 8 scales, as they lie in
// memory, and zero points of the parts of chunks 2c and 2c + 1, whose sums it gets. Why as they
// lie: what converts a number waits for it.
template <int PARTS> struct window {
    uint32_t scales[HALVES][2 * PARTS];
    uint32_t zeros[HALVES][2 * PARTS];
};

__device__ float number_of(berth_dtype dtype, uint32_t bits) {
    return dtype == BERTH_DTYPE_F32    ? __uint_as_float(bits)
           : dtype == BERTH_DTYPE_BF16 ? __uint_as_float(bits << 16)
                                       : gpu_float(gpu_f16{static_cast<uint16_t>(bits)});
}

// Where a lane's scales of a tile begin, and the number of the first.
struct rows {
    const char *scales[HALVES];
    int64_t first[HALVES];
};

__device__ rows rows_of(const few_product &product, int expert, int output) {
    const gpu_codes_product &all = product.all;
    rows out;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        const int own = output + half * 8 + static_cast<int>(threadIdx.x) / 4;
        out.first[half] = gpu_codes_group(all, expert, min(own, all.outputs - 1), 0);
        out.scales[half] =
            static_cast<const char *>(all.scales.data) + out.first[half] * product.scale_bytes;
    }
    return out;
}

// Of window `number` of their codes.
template <typename C, int PARTS>
__device__ void load(const few_product &product, const rows &from, int number, window<PARTS> *out) {
    const gpu_codes_product &all = product.all;
    const int first = (number * CHUNKS + static_cast<int>(threadIdx.x) % 4 * 2) * PARTS;
#pragma unroll
    for (int i = 0; i < 2 * PARTS; ++i) {
        const int group = group_of(product, min(first + i, product.chunks * PARTS - 1));
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            const char *at = from.scales[half] + group * product.scale_bytes;
            out->scales[half][i] = product.scale_bytes == 2
                                       ? *reinterpret_cast<const uint16_t *>(at)
                                       : *reinterpret_cast<const uint32_t *>(at);
            if (C::ZERO != 0 && all.zeros) {
                out->zeros[half][i] = all.zeros[from.first[half] + group];
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
// apart, so that not every product waits for the one before it. `from`: the lane's 16 bytes of the
// window's codes, of output g; chunks that are not there are zeros.
template <typename C, int PARTS>
__device__ void multiply(const few_product &product, uint32_t from, int number, const columns &x,
                         float (*sums)[PARTS][4]) {
    constexpr int WORDS = 4 / C::EIGHTS;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const bool is_there =
            number * CHUNKS + i * 4 + static_cast<int>(threadIdx.x) % 4 < product.chunks;
        const uint32_t at = x.at[i] + static_cast<uint32_t>(number) * x.gap[i];
        const uint32_t chunk = from + i * 4 * CHUNK;
        uint4 codes[HALVES] = {};
        cuda_load_shared_if(is_there, chunk, &codes[0]);
        cuda_load_shared_if(is_there, chunk + static_cast<uint32_t>(8 * product.gap), &codes[1]);
#pragma unroll
        for (int eight = 0; eight < C::EIGHTS; ++eight) {
            uint32_t low[4];
            uint32_t high[4];
            C::widen(&codes[0].x + eight * WORDS, low);
            C::widen(&codes[1].x + eight * WORDS, high);
            const uint4 numbers = cuda_load_shared(at + eight * CHUNKS * EIGHTH);
            const uint32_t b[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
            const uint32_t first[4] = {low[0], high[0], low[1], high[1]};
            const uint32_t second[4] = {low[2], high[2], low[3], high[3]};
            float *const sum = sums[i][eight * PARTS / C::EIGHTS];
            cuda_mma(sum, first, b, gpu_f16{});
            cuda_mma(sum, second, b + 2, gpu_f16{});
        }
    }
}

// They are scaled and go to the lane's totals.
template <typename C, int PARTS>
__device__ void add(const few_product &product, const window<PARTS> &of, const known *its,
                    const float (*sums)[PARTS][4], float *totals) {
    const gpu_codes_product &all = product.all;
    const bool is_grouped = all.scales.across > 1;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
#pragma unroll
        for (int i = 0; i < 2 * PARTS; ++i) {
            const int column = half * 2 + i / PARTS;
            float sum = sums[0][i % PARTS][column] + sums[1][i % PARTS][column];
            if (C::ZERO != 0) {
                const float zero = all.zeros ? static_cast<float>(of.zeros[half][i]) : C::ZERO;
                sum -= zero * its[i].sum;
            }
            const float scale = is_grouped ? number_of(all.scales.dtype, of.scales[half][i]) : 1;
            totals[half] += sum * (its[i].unit * scale);
        }
    }
}

// ---- results ------------------------------------------------------------------------------------

// Of tiles on their way from the warps that multiply to the one that adds their totals up: a place
// is given by all of them and taken by that one. So none waits for the others' windows.
constexpr int PLACES = 4;
struct given {
    uint32_t full;
    uint32_t empty;
    float (*totals)[WARPS][OUTPUTS];
};

__device__ void give(const given &to, const cuda_place &at, float *totals) {
    const uint32_t place = static_cast<uint32_t>(at.stage);
    cuda_barrier_wait(to.empty + 8 * place, at.parity ^ 1);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        totals[half] += gpu_shuffle_xor(totals[half], 1);
        totals[half] += gpu_shuffle_xor(totals[half], 2);
        if (threadIdx.x % 4 == 0) {
            to.totals[place][threadIdx.y][half * 8 + threadIdx.x / 4] = totals[half];
        }
    }
    __syncwarp();
    cuda_barrier_arrive_warp(to.full + 8 * place);
}

// A tile's totals to y, by a warp.
template <typename C>
__device__ void take(const few_product &product, gpu_codes_place tile,
                     const float (*totals)[OUTPUTS]) {
    tile.output += static_cast<int>(threadIdx.x);
    if (threadIdx.x >= OUTPUTS || tile.output >= product.all.outputs) {
        return;
    }
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) {
        sum += totals[warp][threadIdx.x];
    }
    sum *= C::UNIT;
    const bool is_scaled = product.all.scales.across > 1;
    if (product.dtype == BERTH_DTYPE_BF16) {
        gpu_codes_store<gpu_bf16>(product.all, tile, sum, is_scaled);
    } else {
        gpu_codes_store<gpu_f16>(product.all, tile, sum, is_scaled);
    }
}

template <typename C>
__device__ void take_all(const few_product &product, int expert, const given &from) {
    gpu_codes_place tile = {expert, blockIdx.y, 0};
    cuda_place at = {0, 0};
    for (position now = begin_tiles(product); now.is_there(); now.output += OUTPUTS) {
        const uint32_t place = static_cast<uint32_t>(at.stage);
        cuda_barrier_wait(from.full + 8 * place, at.parity);
        tile.output = now.output;
        take<C>(product, tile, from.totals[place]);
        __syncwarp();
        cuda_barrier_arrive_warp(from.empty + 8 * place);
        at.go_on(PLACES);
    }
}

// ---- the kernel ---------------------------------------------------------------------------------

// Everything of a warp that multiplies.
template <typename C, int PARTS> struct multiplier {
    const few_product &product;
    int expert;
    cuda_ring from;
    given to;
    known *its;
    columns x;
    // The warp's window that comes next, perhaps of a later tile, and what it needs: windows of all
    // tiles go to all warps in turns.
    int output;
    int number;
    int windows; // of a tile
    rows of_output = {};
    window<PARTS> ahead = {};
    cuda_place at = {0, 0};
    cuda_place place = {0, 0};
    float totals[HALVES] = {};

    __device__ void look_ahead(int end, bool is_new) {
        while (number >= windows) {
            number -= windows;
            output += OUTPUTS;
            is_new = true;
        }
        if (output < end) {
            of_output = is_new ? rows_of(product, expert, output) : of_output;
            load<C, PARTS>(product, of_output, number, &ahead);
        }
    }
    __device__ void stage(const position &now) {
        const int end = now.end_window(product);
        const uint32_t stage = static_cast<uint32_t>(at.stage);
        const uint32_t row = stage * OUTPUTS + threadIdx.x / 4;
        const uint32_t codes = from.memory + row * static_cast<uint32_t>(product.gap) +
                               threadIdx.x % 4 * CHUNK - static_cast<uint32_t>(now.begin);
        cuda_barrier_wait(from.full + 8 * stage, at.parity);
        while (output == now.output && number < end) {
            const window<PARTS> of = ahead;
            const int own = number;
            number += WARPS;
            look_ahead(now.end, false);
            float sums[2][PARTS][4] = {};
            multiply<C, PARTS>(product, codes + static_cast<uint32_t>(own * SPAN), own, x, sums);
            add<C, PARTS>(product, of, its + (own * CHUNKS + threadIdx.x % 4 * 2) * PARTS, sums,
                          totals);
        }
        const uint32_t loaded = __float_as_uint(totals[0]) | __float_as_uint(totals[1]);
        cuda_barrier_arrive_warp(cuda_behind_loads(from.empty + 8 * stage, loaded, product.chunks));
        at.go_on(product.stages);
    }
    __device__ void run(position now) {
        look_ahead(now.end, true);
        // Why here: what it waits for comes while x is made.
        wait_for_all();
        while (now.is_there()) {
            stage(now);
            now.go_on(product);
            if (now.begin == 0) {
                give(to, place, totals);
                place.go_on(PLACES);
                totals[0] = totals[1] = 0;
            }
        }
    }
};

__device__ void init_barriers(uint32_t signals) {
    for (uint32_t i = 0; i < STAGES; ++i) {
        cuda_barrier_init(signals + 8 * i, 1);
        cuda_barrier_init(signals + 8 * (STAGES + i), WARPS);
    }
    for (uint32_t i = 0; i < PLACES; ++i) {
        cuda_barrier_init(signals + 8 * (2 * STAGES + i), WARPS);
        cuda_barrier_init(signals + 8 * (2 * STAGES + PLACES + i), 1);
    }
    cuda_barrier_publish();
}

// blockIdx.x: the share of tiles; blockIdx.y: the choice.
template <typename C, int PARTS>
__global__ void __launch_bounds__(THREADS + 64, BLOCKS)
    few_kernel(gpu_choices choices, few_product product) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * (STAGES + PLACES)];
    __shared__ __align__(16) unsigned char zeros[WINDOW<C>];
    __shared__ float totals[PLACES][WARPS][OUTPUTS];
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const uint32_t memory = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t ring_bytes = static_cast<uint32_t>(product.stages * OUTPUTS * product.gap);
    const cuda_ring ring = {memory, signal, signal + 8 * STAGES};
    const given to = {signal + 16 * STAGES, signal + 16 * STAGES + 8 * PLACES, totals};
    gpu_let_next_begin();
    if (threadIdx.y == WARPS && threadIdx.x == 0) {
        init_barriers(signal);
    }
    const columns x = columns_of<C>(memory + ring_bytes, keep_zeros(zeros));
    __syncthreads();
    gpu_wait_for_inputs();
    known *its = reinterpret_cast<known *>(shared + ring_bytes + windows_of(product) * WINDOW<C>);
    if (threadIdx.y < WARPS) {
        const int row = static_cast<int>(blockIdx.y) / product.all.rows_per_x;
        keep_row<C, PARTS>(product, row, memory + ring_bytes, its);
    }
    const int expert = choices.ids ? gpu_expert_of(choices, blockIdx.y) : 0;
    if (expert < 0) {
        return; // the whole block
    }
    if (threadIdx.y == WARPS) {
        if (cuda_is_elected()) {
            bring(product, expert, ring);
        }
    } else if (threadIdx.y > WARPS) {
        take_all<C>(product, expert, to);
    } else {
        const position first = begin_tiles(product);
        multiplier<C, PARTS> self = {product,
                                     expert,
                                     ring,
                                     to,
                                     its,
                                     x,
                                     first.output,
                                     static_cast<int>(threadIdx.y),
                                     windows_of(product)};
        self.run(first);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

int codes_of_chunk(berth_code code) {
    return berth_code_is_half(code) ? 2 * CHUNK : CHUNK;
}

// Parts of a chunk, 0: groups are not of whole parts. Halves are there for NVFP4.
int parts_of(berth_code code, const gpu_code_scales &scales, int64_t depth) {
    const int codes = codes_of_chunk(code);
    return gpu_code_scales_fit(scales, depth, codes) ? 1
           : code == BERTH_CODE_E2M1 && depth % codes == 0 &&
                   gpu_code_scales_fit(scales, depth, codes / 2)
               ? 2
               : 0;
}

// Bytes of shared memory for a row of x.
int64_t room_of(int64_t depth, int codes, int parts) {
    const int64_t chunks = (depth / codes + CHUNKS - 1) / CHUNKS * CHUNKS;
    return chunks * (codes * 2 + parts * static_cast<int64_t>(sizeof(known)));
}

numbers numbers_of(const cuda_few_codes &call) {
    return call.all.x_scales                ? call.all.code == BERTH_CODE_E4M3 ? OF_E4M3 : OF_I8
           : call.dtype == BERTH_DTYPE_BF16 ? OF_BF16
                                            : OF_F16;
}

// Blocks along the outputs, all of which run together where rows are few.
unsigned blocks_of(const gpu_op *op, int tiles, int choices) {
    const int together = BLOCKS * op->gpu->multiprocessors[op->device] / choices;
    return static_cast<unsigned>(together < 1 ? 1 : together < tiles ? together : tiles);
}

template <typename C, int PARTS> berth_status start(const gpu_op *op, const cuda_few_codes &call) {
    constexpr int CODES = 8 * C::EIGHTS;
    const gpu_codes_product &all = call.all;
    const uint32_t of_x = static_cast<uint32_t>(room_of(all.depth, CODES, PARTS));
    few_product product = {};
    product.all = all;
    product.x = numbers_of(call);
    product.dtype = call.dtype;
    product.chunks = all.depth / CODES;
    product.bytes = product.chunks * CHUNK;
    product.scale_bytes = all.scales.dtype == BERTH_DTYPE_F32 ? 4 : 2;
    product.tiles = static_cast<int>(gpu_ceil(all.outputs, OUTPUTS));
    if (all.scales.across > 1) {
        product.group_factor = groups_factor(all.scales.columns / (CODES / PARTS));
    }
    const bool is_whole = OUTPUTS * product.bytes <= WHOLE_BYTES;
    product.slice = is_whole ? product.bytes : SLICE;
    product.gap = is_whole ? product.bytes : SLICE + PAD;
    const uint32_t stage = static_cast<uint32_t>(OUTPUTS * product.gap);
    const int fitting = static_cast<int>((BLOCK_BYTES - of_x) / stage);
    product.stages = fitting < STAGES ? fitting : STAGES;
    const uint32_t memory = static_cast<uint32_t>(product.stages) * stage + of_x;
    const unsigned rows = static_cast<unsigned>(call.choices.count);
    const gpu_grid grid = {dim3(blocks_of(op, product.tiles, call.choices.count), rows),
                           dim3(32, WARPS + 2), memory};
    const berth_status status = cuda_allow_shared(op, few_kernel<C, PARTS>, memory);
    return status == BERTH_OK
               ? gpu_run(op, "few rows by codes", grid, few_kernel<C, PARTS>, call.choices, product)
               : status;
}

berth_status start_e2m1(const gpu_op *op, const cuda_few_codes &call) {
    return parts_of(BERTH_CODE_E2M1, call.all.scales, call.all.depth) == 1
               ? start<codes_e2m1, 1>(op, call)
               : start<codes_e2m1, 2>(op, call);
}

} // namespace

bool cuda_few_codes_takes(berth_code code, const gpu_code_scales &scales, int64_t depth) {
    constexpr int64_t MOST = 46 << 10; // which leaves room for two stages
    const int parts = parts_of(code, scales, depth);
    return parts > 0 && room_of(depth, codes_of_chunk(code), parts) <= MOST;
}

berth_status cuda_run_few_codes(const gpu_op *op, const cuda_few_codes &call) {
    switch (call.all.code) {
    case BERTH_CODE_U4:
        return start<codes_u4, 1>(op, call);
    case BERTH_CODE_E2M1:
        return start_e2m1(op, call);
    case BERTH_CODE_E4M3:
        return start<codes_e4m3, 1>(op, call);
    case BERTH_CODE_I8:
        return start<codes_of_bytes<0x80808080u>, 1>(op, call);
    default:
        return start<codes_of_bytes<0>, 1>(op, call);
    }
}
