// SPDX-License-Identifier: Apache-2.0
// Queries and the new key of decode attention turned on their way: a warp has the cosines and sines
// of its token in shared memory, and then its turned key in their place. As rotary_embedding does
// it, bit by bit. Only decode.cu includes this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_TURN_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_TURN_H

#include <cuda/attention/decode_sums.h>
#include <gpu/rotary.h>

namespace {

// Of a warp: cosines, then sines, of at most half the elements of a head; or a key.
template <typename T, int WIDTH> constexpr uint32_t TURN_BYTES = WIDTH * sizeof(T);

template <typename T>
__device__ void fill_circle(const cuda_decode_turn &turn, int token, T *circle) {
    const int64_t position = gpu_integer(turn.positions, turn.position_dtype, token);
    const bool is_known = position >= 0 && position < turn.length;
    for (int i = threadIdx.x; i < turn.half; i += 32) {
        gpu_point at = {NAN, NAN};
        if (is_known) {
            at = gpu_point_at(static_cast<float>(position), turn.angles[i], turn.scale);
        }
        circle[i] = gpu_round<T>(at.cosine);
        circle[turn.half + i] = gpu_round<T>(turn.sign * at.sine);
    }
    __syncwarp();
}

template <typename T> struct turned_rows {
    const cuda_decode_turn &turn;
    const T *circle;

    // Eight elements, and those with their partners.
    struct raw {
        gpu_pack<T, 8> own;
        gpu_pack<T, 8> other;
    };

    // Partners lie half a turn away, or side by side.
    __device__ raw fetch(const T *row, int at) const {
        const int gap = at < turn.half ? turn.half : -turn.half;
        raw out;
        out.own = gpu_load<T, 8>(row, at);
        out.other = out.own;
        if (turn.is_neox && at < 2 * turn.half) {
            out.other = gpu_load<T, 8>(row, at + gap);
        }
        return out;
    }
    __device__ gpu_pack<T, 8> turn_halves(const raw &in, int at) const {
        const bool is_first = at < turn.half;
        const int pair = is_first ? at : at - turn.half;
        const gpu_pack<T, 8> cosines = gpu_load<T, 8>(circle, pair);
        const gpu_pack<T, 8> sines = gpu_load<T, 8>(circle, turn.half + pair);
        gpu_pack<T, 8> out;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float own = gpu_float(in.own.at[i]);
            const float other = gpu_float(in.other.at[i]);
            const gpu_turned both = gpu_turn(is_first ? own : other, is_first ? other : own,
                                             gpu_float(cosines.at[i]), gpu_float(sines.at[i]));
            out.at[i] = gpu_round<T>(is_first ? both.first : both.second);
        }
        return out;
    }
    __device__ gpu_pack<T, 8> turn_pairs(const raw &in, int at) const {
        const gpu_pack<T, 4> cosines = gpu_load<T, 4>(circle, at / 2);
        const gpu_pack<T, 4> sines = gpu_load<T, 4>(circle, turn.half + at / 2);
        gpu_pack<T, 8> out;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const gpu_turned both =
                gpu_turn(gpu_float(in.own.at[2 * i]), gpu_float(in.own.at[2 * i + 1]),
                         gpu_float(cosines.at[i]), gpu_float(sines.at[i]));
            out.at[2 * i] = gpu_round<T>(both.first);
            out.at[2 * i + 1] = gpu_round<T>(both.second);
        }
        return out;
    }
    __device__ uint4 finish(const raw &in, int at) const {
        gpu_pack<T, 8> out = in.own;
        if (at < 2 * turn.half) {
            out = turn.is_neox ? turn_halves(in, at) : turn_pairs(in, at);
        }
        return *reinterpret_cast<const uint4 *>(&out);
    }
};

// Where a lane's eight elements of the new key begin; several lanes have the same.
template <int WIDTH> __device__ int key_place() {
    return 8 * static_cast<int>(threadIdx.x) % WIDTH;
}

// The turned key, where the circle was.
template <typename T, int WIDTH>
__device__ const T *turn_key(const turned_rows<T> &rows, const typename turned_rows<T>::raw &key,
                             T *circle) {
    const int at = key_place<WIDTH>();
    const uint4 eight = rows.finish(key, at);
    __syncwarp(); // all lanes are done with the circle
    *reinterpret_cast<uint4 *>(circle + at) = eight;
    __syncwarp();
    return circle;
}

} // namespace

#endif
