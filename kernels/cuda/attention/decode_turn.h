// SPDX-License-Identifier: Apache-2.0
// A token's new rows on their way into decode attention: the queries of a key head, its new key and
// its new value, brought to shared memory once a block and turned on the way. As rotary_embedding
// does it, bit by bit. Only decode.cu and decode_many.cu include this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_TURN_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_TURN_H

#include <cuda/attention/decode_rows.h>
#include <gpu/rotary.h>

namespace {

__device__ int thread_number() {
    return warp() * 32 + static_cast<int>(threadIdx.x);
}

__device__ int threads() {
    return warps() * 32;
}

// Where new rows lie, in turns in the memory of the warps that share them. Row `group` is the key,
// the next the value.
template <typename T, typename C, int WIDTH> struct new_rows {
    static constexpr int OF_WARP = (CUDA_DECODE_HEADS + 2 + FEW_WARPS - 1) / FEW_WARPS; // at most
    static constexpr uint32_t ROW = WIDTH * sizeof(T) + 64; // rows begin in different banks

    unsigned char *memory; // the first warp's; another's lies RING_BYTES behind the one before
    int of_warp;

    __device__ T *row(int number) const {
        const int last = warps() - 1; // 1, 2 or 4 of them
        return reinterpret_cast<T *>(memory + (number & last) * RING_BYTES<C, WIDTH> +
                                     static_cast<uint32_t>(number >> (last + 1) / 2) * ROW);
    }
    // Behind the first warp's: cosines, then sines, of at most half the elements of a head.
    __device__ T *circle() const {
        return reinterpret_cast<T *>(memory + of_warp * ROW);
    }
};

// What a thread's first point of the circle is made of.
struct circle_point {
    int64_t position;
    float angle;

    __device__ void load_angle(const cuda_decode_turn &turn) {
        angle = thread_number() < turn.half ? load_now(turn.angles + thread_number()) : 0;
    }
    __device__ void load_position(const cuda_decode_turn &turn, int token) {
        position = turn.position_dtype == BERTH_DTYPE_I64
                       ? load_now(static_cast<const int64_t *>(turn.positions) + token)
                       : load_now(static_cast<const int32_t *>(turn.positions) + token);
    }
    template <typename T> __device__ void fill(const cuda_decode_turn &turn, T *circle) {
        const bool is_known = position >= 0 && position < turn.length;
#pragma unroll 1
        for (int i = thread_number(); i < turn.half; i += threads()) {
            angle = i == thread_number() ? angle : turn.angles[i];
            gpu_point at = {NAN, NAN};
            if (is_known) {
                at = gpu_point_at(static_cast<float>(position), angle, turn.scale);
            }
            circle[i] = gpu_round<T>(at.cosine);
            circle[turn.half + i] = gpu_round<T>(turn.sign * at.sine);
        }
        gather();
    }
};

// Eight elements of a row, and those with their partners.
template <typename T> struct eight {
    gpu_pack<T, 8> own;
    gpu_pack<T, 8> other;

    // Partners lie half a turn away, or side by side.
    __device__ void load(const cuda_decode_turn &turn, const T *row, int at, bool turns) {
        own = gpu_load<T, 8>(row, at);
        if (turns && turn.is_neox && at < 2 * turn.half) {
            other = gpu_load<T, 8>(row, at + (at < turn.half ? turn.half : -turn.half));
        }
    }
    // Why one way for both layouts: half the code. An element is turned by its partner times the
    // sine, which the first of a pair takes off; that is gpu_turn.
    __device__ gpu_pack<T, 8> turned(const cuda_decode_turn &turn, const T *circle, int at) const {
        gpu_pack<T, 8> partners = other;
        gpu_pack<T, 8> cosines;
        gpu_pack<T, 8> sines;
        const bool is_first = at < turn.half;
        if (turn.is_neox) {
            const int pair = is_first ? at : at - turn.half;
            cosines = gpu_load<T, 8>(circle, pair);
            sines = gpu_load<T, 8>(circle, turn.half + pair);
        } else {
            const gpu_pack<T, 4> cosine = gpu_load<T, 4>(circle, at / 2);
            const gpu_pack<T, 4> sine = gpu_load<T, 4>(circle, turn.half + at / 2);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                cosines.at[i] = cosine.at[i / 2];
                sines.at[i] = sine.at[i / 2];
                partners.at[i] = own.at[i ^ 1];
            }
        }
        gpu_pack<T, 8> out;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float off = gpu_mul_rn(gpu_float(partners.at[i]), gpu_float(sines.at[i]));
            const bool takes_off = turn.is_neox ? is_first : i % 2 == 0;
            out.at[i] = gpu_round<T>(
                fmaf(gpu_float(own.at[i]), gpu_float(cosines.at[i]), takes_off ? -off : off));
        }
        return out;
    }
};

// Pieces of eight elements that a thread brings: number thread_number(), and those behind it a
// block's threads apart, two at a time, the first two of which are found before they are there.
template <typename T, typename C, int WIDTH> struct bringer {
    static constexpr int ACROSS = WIDTH / 8;
    static constexpr int AT_ONCE = 2;
    const gpu_attention_call &call;
    const cuda_decode_turn &turn;
    new_rows<T, C, WIDTH> to;
    int64_t token;
    int head;
    int group;
    int rows; // `group`, or with the new key and value
    const T *from[AT_ONCE];

    __device__ int piece(int first, int i) const {
        return first + i * threads();
    }
    __device__ void find(int first) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int row = piece(first, i) / ACROSS;
            const gpu_rows &of = row < group ? call.query : row == group ? call.key : call.value;
            const int from_head = row < group ? head * group + row : head;
            from[i] = reinterpret_cast<const T *>(of.data + token * of.outer_gap +
                                                  from_head * of.inner_gap);
        }
    }
    // Pins what `find` found before what comes behind.
    __device__ void prepare() {
        find(thread_number());
        asm volatile("" : "+l"(from[0]), "+l"(from[1]));
    }
    __device__ void bring() {
#pragma unroll 1
        for (int first = thread_number(); first < rows * ACROSS; first += AT_ONCE * threads()) {
            eight<T> held[AT_ONCE] = {};
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int row = piece(first, i) / ACROSS;
                if (row < rows) {
                    held[i].load(turn, from[i], piece(first, i) % ACROSS * 8, row <= group);
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int row = piece(first, i) / ACROSS;
                const int at = piece(first, i) % ACROSS * 8;
                if (row < rows) {
                    const bool turns = row <= group && at < 2 * turn.half;
                    gpu_store<T, 8>(to.row(row), at,
                                    turns ? held[i].turned(turn, to.circle(), at) : held[i].own);
                }
            }
            find(first + AT_ONCE * threads());
        }
        gather();
    }
};

} // namespace

#endif
