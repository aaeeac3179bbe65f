// SPDX-License-Identifier: Apache-2.0
// How a key head of a sequence begins in decode attention: what is loaded before its queries are
// there, and its new rows. Only decode.cu and decode_many.cu include this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_BEGIN_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_BEGIN_H

#include <cuda/attention/decode_turn.h>

namespace {

// What is there before any kernel of the step, all on its way before the first is waited for.
struct known {
    int length;
    int block;    // of the cache, that of first_step()
    int64_t slot; // of the new token, or below 0
    circle_point point;

    __device__ known(const decode_call &in, int sequence, int token) : slot(-1), point() {
        const gpu_attention_call &call = in.call;
        const int number = first_step() >> call.block_shift;
        length = load_now(call.lengths + sequence);
        block = number < call.table_stride
                    ? load_now(call.block_table + sequence * call.table_stride + number)
                    : 0;
        if (in.room.is_plain) {
            slot = load_now(call.slots + token);
        }
        point.load_angle(in.room.turn);
        if (in.room.turn.is_early) {
            point.load_position(in.room.turn, token);
        }
    }
};

// Waits for the kernel before this one; new rows are in shared memory then.
template <typename T, typename C, int WIDTH>
__device__ void bring_rows(const decode_call &in, const task &job, bool is_new,
                           const new_rows<T, C, WIDTH> &rows, circle_point *point) {
    const cuda_decode_turn &turn = in.room.turn;
    bringer<T, C, WIDTH> bring = {
        in.call, turn, rows, job.token, job.head, job.group, job.group + (is_new ? 2 : 0), {}};
    bring.prepare();
    if (turn.half > 0 && !turn.is_early) {
        gpu_wait_for_inputs();
        point->load_position(turn, job.token);
    }
    if (turn.half > 0) {
        point->fill(turn, rows.circle());
    }
    gpu_wait_for_inputs();
    bring.bring();
}

// A lane's piece of the new key and value, which go to the caches, too.
template <typename T, typename C, int WIDTH>
__device__ fresh_rows take_fresh(const gpu_attention_call &call, const task &job,
                                 const new_rows<T, C, WIDTH> &rows, int64_t slot) {
    fresh_piece<T, C> key;
    fresh_piece<T, C> value;
    key.load(rows.row(job.group), own_piece<C, WIDTH>());
    value.load(rows.row(job.group + 1), own_piece<C, WIDTH>());
    const fresh_rows fresh = {key.finish(gpu_cache_scale(call.key_scale)),
                              value.finish(gpu_cache_scale(call.value_scale))};
    store_new<C, WIDTH>(call, job.head, fresh, slot);
    return fresh;
}

} // namespace

#endif
