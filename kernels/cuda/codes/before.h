// SPDX-License-Identifier: Apache-2.0
// What a product of codes does to rows of x before it multiplies them: a norm, an activation or
// nothing, and codes of 8 bits. Threads share a row, which is read from memory once and kept in
// registers: those of a block that does nothing else (before.cu), or those that multiply
// (streamed_before.h). Roundings are those of gpu.rms_norm, gpu.silu_and_mul, gpu.quant_fp8 and
// gpu.quant_int8: what comes before is rounded to x's type, as if it were stored.
#ifndef BERTH_KERNELS_CUDA_CODES_BEFORE_H
#define BERTH_KERNELS_CUDA_CODES_BEFORE_H

#include <gpu/activation.h>
#include <gpu/quant_rows.h>

#include <cuda/codes/batch.h>
#include <cuda/silu.h>
#include <fp8.h>

#define CUDA_BEFORE_WIDTH 16384 // elements of a row, at most; a multiple of 8

// Bits, so that they can be sets, too.
enum cuda_step { CUDA_AS_IS = 1, CUDA_NORM = 2, CUDA_SILU = 4 };

// How numbers are laid out: in rows; of a batch (batch.h), width a multiple of its blocks; one row
// in digits (digits.h), width a multiple of 2048.
enum cuda_layout { CUDA_IN_ROWS, CUDA_IN_BATCHES, CUDA_IN_DIGITS };

struct cuda_before {
    cuda_step step;
    berth_dtype codes; // i8, f8_e4m3fn, or BERTH_DTYPE_NONE: numbers of x's type
    const char *x;     // [rows, width], [rows, 2 width] of CUDA_SILU; 16 bits; gaps in bytes
    int64_t x_gap;
    const char *residual; // NULL: none, like x
    int64_t residual_gap;
    char *sums; // x + residual
    int64_t sums_gap;
    const void *norm_weight; // of x's type; NULL: ones
    float eps;
    int rows, width;
    const float *scale; // of all codes; NULL: every row has its own
    const int8_t *zero; // beside it, of i8; NULL: 0
    cuda_layout layout; // of numbers
};

// Rows dense, as a product takes them: codes or numbers, and scales where every row has its own.
berth_status cuda_run_before(const gpu_op *op, const cuda_before &all, berth_dtype x, void *to,
                             float *scales);

// ---- device code --------------------------------------------------------------------------------

// Eight neighbours of a row.
template <typename T> using cuda_eight = gpu_pack<T, 8>;

template <typename T>
static __device__ inline const T *cuda_row_of(const char *all, int64_t gap, int row) {
    return reinterpret_cast<const T *>(all + row * gap);
}

// What a thread of those that share a row has: HELD times eight, `step` elements apart. G: the
// threads that share it; `together` knows how many they are, and adds up.
template <typename T, int HELD> struct cuda_held_row {
    cuda_eight<T> at[HELD];

    template <typename G> static __device__ int element(const G &together, int i) {
        return (together.thread() + i * together.count()) * 8;
    }
    template <typename G> __device__ void load(const G &together, const T *from, int width) {
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int k = element(together, i);
            at[i] = k < width ? gpu_load<T, 8>(from, k) : cuda_eight<T>{};
        }
    }
    __device__ float value(int i, int j) const {
        return gpu_float(at[i].at[j]);
    }
};

// What a thread may load before the kernel waits for its inputs: the norm's weights, where they
// take few registers. Why: beside the traffic of the product's weights a load takes more than 1 us.
template <typename T, int HELD> struct cuda_ahead {
    static constexpr bool IS_HELD = HELD <= 4;
    cuda_held_row<T, IS_HELD ? HELD : 1> weight;

    template <typename G>
    static __device__ cuda_ahead of(const cuda_before &all, const G &together) {
        cuda_ahead self = {};
        if (IS_HELD && all.step == CUDA_NORM && all.norm_weight) {
            self.weight.load(together, static_cast<const T *>(all.norm_weight), all.width);
        }
        return self;
    }
};

// x / sqrt(mean(x²) + eps) · weight, x the sum x + residual where there is one. `keeps`: stores it.
template <typename T, int HELD, bool ADDS, typename G>
static __device__ inline void cuda_norm_row(const cuda_before &all, int row, bool keeps,
                                            const G &together, const cuda_ahead<T, HELD> &fetched,
                                            cuda_held_row<T, HELD> *out) {
    cuda_held_row<T, HELD> x;
    cuda_held_row<T, ADDS ? HELD : 1> more;
    cuda_held_row<T, HELD> weight;
    x.load(together, cuda_row_of<T>(all.x, all.x_gap, row), all.width);
    if constexpr (ADDS) {
        more.load(together, cuda_row_of<T>(all.residual, all.residual_gap, row), all.width);
    }
    if constexpr (cuda_ahead<T, HELD>::IS_HELD) {
        weight = fetched.weight;
    } else if (all.norm_weight) {
        weight.load(together, static_cast<const T *>(all.norm_weight), all.width);
    }
    const auto value = [&](int i, int j) {
        return x.value(i, j) + (ADDS ? more.value(ADDS ? i : 0, j) : 0.0f);
    };
    float squares[2] = {};
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            squares[j % 2] += value(i, j) * value(i, j);
        }
    }
    const float mean = together.sum(squares[0] + squares[1]) / static_cast<float>(all.width);
    const float scale = gpu_div_rn(1.0f, gpu_sqrt_rn(mean + all.eps));
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int k = cuda_held_row<T, HELD>::element(together, i);
        cuda_eight<T> sums;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float of_weight = all.norm_weight ? weight.value(i, j) : 1.0f;
            sums.at[j] = gpu_round<T>(value(i, j));
            out->at[i].at[j] = gpu_round<T>(value(i, j) * scale * of_weight);
        }
        if (ADDS && keeps && k < all.width) {
            gpu_store<T, 8>(reinterpret_cast<T *>(all.sums + row * all.sums_gap), k, sums);
        }
    }
}

// Why in parts: loads of four eights at once would take more registers than a block has that shares
// its multiprocessor with another (before.cu).
template <typename T, int HELD, typename G>
static __device__ inline void cuda_silu_row(const cuda_before &all, int row, const G &together,
                                            cuda_held_row<T, HELD> *out) {
    constexpr int PART = HELD < 2 ? HELD : 2;
    const T *from = cuda_row_of<T>(all.x, all.x_gap, row);
#pragma unroll
    for (int first = 0; first < HELD; first += PART) {
        cuda_eight<T> gate[PART];
        cuda_eight<T> up[PART];
#pragma unroll
        for (int i = 0; i < PART; ++i) {
            const int k = cuda_held_row<T, HELD>::element(together, first + i);
            gate[i] = k < all.width ? gpu_load<T, 8>(from, k) : cuda_eight<T>{};
            up[i] = k < all.width ? gpu_load<T, 8>(from, all.width + k) : cuda_eight<T>{};
        }
#pragma unroll
        for (int i = 0; i < PART; ++i) {
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                const uint32_t pair = cuda_silu_pair<T>(gate[i].at + j, up[i].at + j);
                memcpy(out->at[first + i].at + j, &pair, sizeof pair);
            }
        }
        asm volatile("" ::: "memory");
    }
}

// The row as it is multiplied, or as codes are made of it. STEPS: those that there is code for.
template <typename T, int HELD, int STEPS, typename G>
static __device__ inline void cuda_make_row(const cuda_before &all, int row, bool keeps,
                                            const G &together, const cuda_ahead<T, HELD> &fetched,
                                            cuda_held_row<T, HELD> *out) {
    if constexpr ((STEPS & CUDA_NORM) != 0) { // only threads that make a norm need a sum
        if (all.step == CUDA_NORM) {
            all.residual ? cuda_norm_row<T, HELD, true>(all, row, keeps, together, fetched, out)
                         : cuda_norm_row<T, HELD, false>(all, row, keeps, together, fetched, out);
        }
    }
    if ((STEPS & CUDA_SILU) && all.step == CUDA_SILU) {
        cuda_silu_row<T, HELD>(all, row, together, out);
    }
    if ((STEPS & CUDA_AS_IS) && all.step == CUDA_AS_IS) {
        out->load(together, cuda_row_of<T>(all.x, all.x_gap, row), all.width);
    }
}

// How codes are made of a row: of e4m3, and of i8. As the quantisers make them.
template <bool IS_I8> struct cuda_coder {
    float scale;
    float factor;
    float zero;
    bool divides;

    static __device__ float magnitude(float value) {
        return IS_I8 && value != value ? 0.0f : fabsf(value);
    }
    static __device__ cuda_coder of(float largest) {
        if constexpr (IS_I8) {
            return {gpu_div_rn(largest, 127.0f),
                    largest > 0 ? gpu_mul_rn(gpu_div_rn(1.0f, largest), 127.0f) : 0.0f, 0, false};
        }
        const float scale = gpu_div_rn(largest, BERTH_F8_MAX);
        const float least = scale < BERTH_F8_LEAST_SCALE ? BERTH_F8_LEAST_SCALE : scale;
        return {least, gpu_div_rn(1.0f, least), 0, false};
    }
    static __device__ cuda_coder given(const cuda_before &all) {
        const float scale = *all.scale;
        return {scale, IS_I8 ? scale : gpu_div_rn(1.0f, scale),
                all.zero ? static_cast<float>(*all.zero) : 0.0f, IS_I8};
    }
    __device__ uint32_t pair(float low, float high) const {
        if constexpr (IS_I8) {
            return whole(low) | static_cast<uint32_t>(whole(high)) << 8;
        }
        return gpu_to_f8_pair(gpu_mul_rn(low, factor), gpu_mul_rn(high, factor));
    }
    __device__ uint8_t whole(float value) const {
        return gpu_to_i8_bits(divides ? gpu_add_rn(rintf(gpu_div_rn(value, factor)), zero)
                                      : gpu_mul_rn(value, factor));
    }
    // Eight of them.
    template <typename T> __device__ uint2 codes(const cuda_eight<T> &x) const {
        uint32_t pairs[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            pairs[j] = pair(gpu_float(x.at[2 * j]), gpu_float(x.at[2 * j + 1]));
        }
        return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
    }
};

template <bool IS_I8, typename T, int HELD, typename G>
static __device__ inline cuda_coder<IS_I8> cuda_coder_of(const cuda_before &all, const G &together,
                                                         const cuda_held_row<T, HELD> &row) {
    using coder = cuda_coder<IS_I8>;
    if (all.scale) {
        return coder::given(all);
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            largest = gpu_larger_size(coder::magnitude(row.value(i, j)), largest);
        }
    }
    return coder::of(together.largest(largest));
}

#endif
