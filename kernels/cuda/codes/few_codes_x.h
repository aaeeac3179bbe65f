// SPDX-License-Identifier: Apache-2.0
// x for the kernel that few_codes.cu describes, which alone includes this: rows as f16 in shared
// memory, and what is known of their chunks. Sizes that both have.
#ifndef BERTH_KERNELS_CUDA_CODES_FEW_CODES_X_H
#define BERTH_KERNELS_CUDA_CODES_FEW_CODES_X_H

#include <cuda/bulk.h>
#include <cuda/codes/few_codes.h>
#include <cuda/codes/few_codes_kinds.h>

namespace {

constexpr int OUTPUTS = 16; // of a tile
constexpr int WARPS = 8;    // that multiply
constexpr int THREADS = WARPS * 32;
constexpr int CHUNK = 16;            // bytes of codes
constexpr int CHUNKS = 8;            // of a window
constexpr int SPAN = CHUNK * CHUNKS; // bytes of a row of codes in a window
constexpr int HALVES = 2;            // of a window, which a lane has a chunk of, and of the outputs
constexpr int EIGHTH = 16;           // bytes of eight numbers of x

// What is known of a part of x: a chunk, or half of one where that has codes of two groups.
struct known {
    float unit; // with the scale of the codes that the numbers were
    float sum;  // of the numbers
};

// A row of x, as it is in memory.
enum numbers { OF_BF16, OF_F16, OF_I8, OF_E4M3 };

struct few_product {
    gpu_codes_product all;
    numbers x;
    berth_dtype dtype;     // of y
    uint32_t group_factor; // of parts, 0: one group
    int scale_bytes;       // of one
    int chunks;            // of a row
    int bytes;             // of a row
    int tiles;             // of an expert's outputs
    // A stage has so many bytes of each row of a tile, so far apart: all of them, or whole windows.
    int slice;
    int gap;
    int stages;
};

__device__ int windows_of(const few_product &product) {
    return (product.chunks + CHUNKS - 1) / CHUNKS;
}

// Of the warps that multiply.
__device__ void wait_for_all() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// Bytes of a window's numbers.
template <typename C> constexpr uint32_t WINDOW = C::EIGHTS *CHUNKS *EIGHTH;

// Where eight number `eight` of a chunk's numbers lies. The same eight of all chunks of a window
// are neighbours.
template <typename C> __device__ uint32_t place_of(int chunk, int eight) {
    return static_cast<uint32_t>(((chunk / CHUNKS * C::EIGHTS + eight) * CHUNKS + chunk % CHUNKS) *
                                 EIGHTH);
}

// How a group is found from twice the number of a part: by a factor for 2^32.
constexpr uint32_t groups_factor(int64_t parts) {
    return static_cast<uint32_t>((int64_t{1} << 31) / parts + 1);
}

__device__ int group_of(const few_product &product, int part) {
    return static_cast<int>(__umulhi(static_cast<uint32_t>(2 * part), product.group_factor));
}

// The unit of numbers no larger than `largest`, with which they are below 2^15; that of the largest
// finite ones where it is infinite.
__device__ uint32_t exponent_of(float largest) {
    return min(max(__float_as_uint(largest) >> 23, 15u), 254u);
}

// Eight numbers from `number` times as many on, as they lie.
__device__ void load_floats(numbers kind, const char *row, int number, float *values) {
    const gpu_pack<uint16_t, 8> eight =
        gpu_load<uint16_t, 8>(reinterpret_cast<const uint16_t *>(row), number * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        values[i] =
            kind == OF_BF16 ? gpu_float(gpu_bf16{eight.at[i]}) : gpu_float(gpu_f16{eight.at[i]});
    }
}
__device__ void load_codes(numbers kind, const char *row, int number, float *values) {
    const gpu_pack<uint8_t, 8> eight =
        gpu_load<uint8_t, 8>(reinterpret_cast<const uint8_t *>(row), number * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        values[i] = kind == OF_I8 ? gpu_codes_x_i8::number(eight.at[i])
                                  : gpu_codes_x_e4m3::number(eight.at[i]);
    }
}

// The same in the order of their codes, zeros where they are not there; the largest.
template <typename C>
__device__ float load_eight(numbers kind, const char *row, int number, bool is_there,
                            float *values) {
    float eight[8] = {};
    if (is_there && (kind == OF_BF16 || kind == OF_F16)) {
        load_floats(kind, row, number, eight);
    } else if (is_there) {
        load_codes(kind, row, number, eight);
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        values[i] = eight[C::order(i)];
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

// Of LANES neighbours.
template <int LANES, typename F> __device__ float join_lanes(float value, F join) {
#pragma unroll
    for (int mask = 1; mask < LANES; mask *= 2) {
        value = join(value, gpu_shuffle_xor(value, mask));
    }
    return value;
}

// Row `row` of x to shared memory at `to`, and what is known of its parts; whole windows.
template <typename C, int PARTS>
__device__ void keep_row(const few_product &product, int64_t row, uint32_t to, known *its) {
    constexpr int EIGHTS = C::EIGHTS / PARTS; // of a part
    const gpu_codes_product &all = product.all;
    const char *x = gpu_row<const char>(all.x, row);
    const int eights = windows_of(product) * CHUNKS * C::EIGHTS;
    for (int first = threadIdx.y * 32; first < eights; first += THREADS) { // whole warps
        const int number = first + static_cast<int>(threadIdx.x);
        const int chunk = number / C::EIGHTS;
        const bool is_there = chunk < product.chunks;
        float values[8];
        uint4 pairs;
        const float largest =
            join_lanes<C::EIGHTS>(load_eight<C>(product.x, x, number, is_there, values),
                                  [](float a, float b) { return fmaxf(a, b); });
        const uint32_t exponent = exponent_of(largest);
        const float sum =
            join_lanes<EIGHTS>(round_eight(values, __uint_as_float((268 - exponent) << 23), &pairs),
                               [](float a, float b) { return a + b; });
        if (number >= eights) {
            continue; // half a warp
        }
        cuda_store_shared(to + place_of<C>(chunk, number % C::EIGHTS), pairs);
        if (number % EIGHTS == 0) {
            const int part = number / EIGHTS;
            const float unit = __uint_as_float((exponent - 14) << 23);
            const bool is_scaled = is_there && all.scales.across > 1;
            its[part].unit =
                is_scaled ? unit * gpu_codes_x_scale(all, row, group_of(product, part)) : unit;
            its[part].sum = sum / C::UNIT;
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

} // namespace

#endif
