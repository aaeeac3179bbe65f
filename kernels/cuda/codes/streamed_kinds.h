// SPDX-License-Identifier: Apache-2.0
// The kinds of codes that streamed_codes.cu multiplies, which alone includes this.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_KINDS_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_KINDS_H

#include <cuda/codes/streamed_stage.h>

namespace {

// WARPS: that multiply. STEPS: of a stage; x is loaded one step ahead. X_RATIO: bytes of x for a
// byte of codes. X_LOADS: of a lane in a step, 16 bytes each. IS_NEAR: x is in shared memory, and
// beside it GROUP_BYTES of what is known of a group of inputs. IN_DIGITS: streamed_digits.h.
// EIGHTS: of rows, 1 or 2. Sums: output g of rows 2c and 2c + 1, then output g + 8.

// What kinds have in common whose x keeps its rows: row g of a lane's eight, 16 bytes of four
// lanes.
struct rows_kind {
    static constexpr bool IN_DIGITS = false;
    static constexpr int X_APART = PIECE;

    // Where x that is near begins for a lane, `byte` bytes into a row; 0: its row is not there.
    static __device__ uint32_t place(const cuda_coded &all, uint32_t x, uint32_t gap, int byte) {
        const uint32_t row = threadIdx.x / 4;
        return row < static_cast<uint32_t>(all.rows)
                   ? x + row * gap + static_cast<uint32_t>(byte) + threadIdx.x % 4 * 16
                   : 0;
    }
    // What lanes multiply by whose row is not there.
    static __device__ uint32_t rest() {
        return 0;
    }
    // What is made of a sum before it is rounded: itself.
    static __device__ finishing prepare(const cuda_coded &, int, int) {
        return {};
    }
    static __device__ float finish(float sum, const finishing &) {
        return sum;
    }
};

// Codes of 8 bits on both sides; S: what their products are summed in.
template <typename S, bool NEAR> struct scaled_kind : rows_kind {
    using sum = S;
    static constexpr bool IS_NEAR = NEAR;
    static constexpr int WARPS = 4;
    static constexpr int STEPS = 1;
    static constexpr int PIECES = STAGE / WARPS / PIECE; // of a step
    static constexpr int X_RATIO = 1;
    static constexpr int X_LOADS = PIECES;
    static constexpr int GROUP_BYTES = 0;

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
// Of x in bf16 that is near codes are multiplied where they are in their words, and zero points are
// taken off the sums of a group: its inputs' sum times as much. The products are exact and their
// sums lose 2^-23 of numbers a few times the result, far below what y keeps.
template <typename T, bool NEAR> struct packed_kind : rows_kind {
    using sum = float;
    static constexpr bool IS_NEAR = NEAR;
    static constexpr bool IS_TAKEN = NEAR && gpu_is_bf16<T>;
    static constexpr int WARPS = 8;
    static constexpr int STEPS = STAGE / WARPS / PIECE;
    static constexpr int PIECES = 1;
    static constexpr int X_RATIO = 4;
    static constexpr int X_LOADS = 4;
    static constexpr int GROUP_BYTES = 8 * sizeof(float);

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
        // Those of a step. `beside`: what the ring has behind the codes of output g, for both steps
        // of a warp at once. The bits that came from there.
        __device__ uint32_t fetch(const cuda_coded &all, uint32_t beside, int step) {
            static_assert(STEPS == 2);
            const int from = (threadIdx.x & 28) | step;
            uint32_t bits = 0;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if constexpr (NEAR) {
                    const uint32_t row = beside + half * 8 * STAGE_ROW;
                    if (step == 0) {
                        kept[0][half] = load_shared_32(row + 4 * threadIdx.y);
                        kept[1][half] =
                            all.zeros ? load_shared_16(row + SCALES + 2 * threadIdx.y) : 0x808u;
                        bits |= kept[0][half] | kept[1][half];
                    }
                    scale[half] = kept[0][half] >> 16 * step & 0xffffu;
                    zero[half] = kept[1][half] >> 8 * step & 0xffu;
                } else {
                    scale[half] = __shfl_sync(0xffffffffu, kept[0][half], from);
                    zero[half] = __shfl_sync(0xffffffffu, kept[1][half], from);
                }
            }
            return bits;
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
            if constexpr (IS_TAKEN) {
                scale[half] *= 1 / CUDA_TAKEN_UNIT;
            }
        }
        const uint32_t low[4] = {w->low.x, w->low.y, w->low.z, w->low.w};
        const uint32_t high[4] = {w->high.x, w->high.y, w->high.z, w->high.w};
        float products[EIGHTS][2][4] = {};
        if constexpr (IS_TAKEN) {
            const float2 inputs_sum = load_pair(of.input_sums + static_cast<uint32_t>(step * 32));
            // Less the zero points, which are above 128 as bf16: nothing has to be converted.
            const float off[2] = {128.0f - __uint_as_float(zero[0] << 16),
                                  128.0f - __uint_as_float(zero[1] << 16)};
            products[0][0][0] = inputs_sum.x * off[0];
            products[0][0][1] = inputs_sum.y * off[0];
            products[0][0][2] = inputs_sum.x * off[1];
            products[0][0][3] = inputs_sum.y * off[1];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) { // words of eight codes
            uint32_t l[4];
            uint32_t h[4];
            if constexpr (IS_TAKEN) {
                cuda_take(low[i], l);
                cuda_take(high[i], h);
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
};

} // namespace

#endif
