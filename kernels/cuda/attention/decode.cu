// SPDX-License-Identifier: Apache-2.0
// Attention of one new token a sequence. A block has a sequence, a key head with all its query
// heads, and a share of the keys; four warps take 16 keys each in turns. Each warp has a ring of
// its own in shared memory, which copies fill ahead of it, and waits for no other warp. The order
// of a head's elements and of the outputs' columns is chosen so that 16 bytes of a row are what a
// lane needs of it. The block that comes last puts the shares together.
#include <cuda/attention/decode_parts.h>
#include <cuda/attention/decode_turn.h>

#include <algorithm>

namespace {

template <typename T, typename C, int WIDTH, bool IS_DEEP>
__device__ void attend(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                       const queries<WIDTH, IS_DEEP> &query, const source<T, C> &from,
                       uint32_t ring, heads_sum<WIDTH> *sum) {
    const int gap = warps() * KEYS;
    int step = mine.begin + static_cast<int>(threadIdx.y) * KEYS;
#pragma unroll
    for (int ahead = 0; ahead < AHEAD<C>; ++ahead) {
        fill_fresh<T, C, WIDTH>(mine, from, step + ahead * gap,
                                ring + ahead * STAGE_BYTES<C, WIDTH>);
    }
    int stage = 0;
    for (; step < mine.end; step += gap) {
        const uint32_t free = ring + (stage == 0 ? AHEAD<C> : stage - 1) * STAGE_BYTES<C, WIDTH>;
        __syncwarp(); // all lanes are done with the stage that is filled next
        fill_stage<T, C, WIDTH>(call, mine, blocks, from, step + AHEAD<C> * gap, free);
        fill_fresh<T, C, WIDTH>(mine, from, step + AHEAD<C> * gap, free);
        cuda_wait_groups<AHEAD<C>>();
        __syncwarp();
        const uint32_t keys = ring + stage * STAGE_BYTES<C, WIDTH>;
        float scores[2][4] = {};
        uint32_t weights[4];
        score<T, C, WIDTH, IS_DEEP>(query, keys, scores);
        mask(call, mine, query.scales, step, scores);
        weigh<T, C, WIDTH, IS_DEEP>(scores, weights, sum);
        add_values<T, C, WIDTH>(weights, keys + ROWS_BYTES<C, WIDTH>, sum);
        stage = stage == STAGES<C> - 1 ? 0 : stage + 1;
    }
    cuda_wait_groups<0>();
}

// Shared memory: the rings; after the last key the warps' parts.
template <typename C, int WIDTH>
constexpr uint32_t RING_BYTES = STAGES<C> *STAGE_BYTES<C, WIDTH>; // of a warp

// The parts of a sequence's key head, all parts' outs coming before all stats.
template <int WIDTH>
__device__ head_parts handed_of(const decode_call &in, int sequence, int group) {
    const int64_t each = static_cast<int64_t>(in.room.splits) * group;
    const int64_t all = static_cast<int64_t>(in.call.sequences) * in.call.kv_heads * each;
    const int64_t first = (static_cast<int64_t>(sequence) * in.call.kv_heads + own_head()) * each;
    return head_parts{in.room.parts + first * WIDTH,
                      reinterpret_cast<float2 *>(in.room.parts + all * WIDTH) + first};
}

template <typename T, typename C, int WIDTH, bool IS_DEEP>
__global__ void __launch_bounds__(MOST_WARPS * 32, 2) decode_kernel(decode_call in) {
    extern __shared__ __align__(128) unsigned char shared[];
    gpu_let_next_begin();
    const gpu_attention_call &call = in.call;
    const int sequence = blockIdx.z;
    // Why before the wait: a batch's arrays, and in steps of one new token a sequence all of the
    // cache that is read, were written before the step's first kernel began.
    const int token = in.room.is_plain ? sequence : call.starts[sequence];
    const int group = call.heads / call.kv_heads;
    const share mine = share_of(call, sequence, in.room.splits);
    if (mine.begin >= mine.end && own_share() > 0) {
        return; // the first block of a sequence waits for the kernel before this one
    }
    const int64_t slot = in.room.is_plain ? call.slots[token] : -1;
    source<T, C> from = source_of<T, C, WIDTH>(call, token, slot >= 0 ? mine.position : STORED);
    const int32_t *blocks = call.block_table + sequence * call.table_stride;
    const uint32_t ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared)) +
                          threadIdx.y * RING_BYTES<C, WIDTH>;
    if (in.room.is_plain) {
        fill_ahead<T, C, WIDTH>(call, mine, blocks, from, ring);
    }
    const cuda_decode_turn &turn = in.room.turn;
    T *circle = reinterpret_cast<T *>(shared + warps() * RING_BYTES<C, WIDTH> +
                                      threadIdx.y * TURN_BYTES<T, WIDTH>);
    if (!turn.is_early) {
        gpu_wait_for_inputs();
    }
    if (turn.half > 0) {
        fill_circle(turn, token, circle);
    }
    if (turn.is_early) {
        gpu_wait_for_inputs();
    }
    if (!in.room.is_plain) {
        if (call.starts[sequence + 1] - token != 1) {
            return;
        }
        fill_ahead<T, C, WIDTH>(call, mine, blocks, from, ring);
    }
    const turned_rows<T> rows = {turn, circle};
    typename turned_rows<T>::raw key = {};
    if (turn.half > 0) {
        key = rows.fetch(from.rows[0].fresh, key_place<WIDTH>());
    }
    const queries<WIDTH, IS_DEEP> query =
        load_queries<T, C, WIDTH, IS_DEEP>(call, token, group, from.scales[0], rows);
    if (turn.half > 0) {
        from.rows[0].fresh = turn_key<T, WIDTH>(rows, key, circle);
    }
    if (slot >= 0 && mine.end == mine.position + 1) {
        store_new<T, C, WIDTH>(call, from, slot);
    }
    heads_sum<WIDTH> sum = {};
    sum.largest[0] = sum.largest[1] = -INFINITY;
    attend<T, C, WIDTH, IS_DEEP>(call, mine, blocks, query, from, ring, &sum);
    __syncthreads();
    float *outs = reinterpret_cast<float *>(shared);
    const head_parts own = {outs,
                            reinterpret_cast<float2 *>(outs + warps() * CUDA_DECODE_HEADS * WIDTH)};
    write_part<WIDTH, IS_DEEP>(sum, own, group);
    __syncthreads();
    if (mine.parts == 1) {
        write_out<T, WIDTH>(call, token, group, own, warps());
        return;
    }
    const head_parts handed = handed_of<WIDTH>(in, sequence, group);
    int *arrivals = in.room.arrivals + sequence * call.kv_heads + own_head();
    if (hand_in<WIDTH>(own, handed, group, mine.parts, arrivals)) {
        write_out<T, WIDTH>(call, token, group, handed, mine.parts);
    }
}

// Blocks of `warps` warps that run at once on a device.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
int64_t at_once(const gpu_op *op, int warps) {
    int each = 0;
    const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &each, decode_kernel<T, C, WIDTH, IS_DEEP>, warps * 32,
        static_cast<size_t>(warps) * RING_BYTES<C, WIDTH>);
    return error == cudaSuccess && each > 0 ? int64_t{each} * op->gpu->multiprocessors[op->device]
                                            : 0;
}

// How long many blocks take, in blocks: they come in rounds, of which the last, however few it has,
// takes `least` of one. Measured: half of a round of blocks of one warp, three quarters of two.
int64_t rounds_of(int64_t blocks, int64_t round, double least) {
    const int64_t rest = blocks % round;
    const int64_t last =
        rest > 0 ? std::max(rest, static_cast<int64_t>(static_cast<double>(round) * least)) : 0;
    return blocks - rest + last;
}

// Few blocks: all warps, as each has much to read. More than run at once: one or two, whichever
// leaves less of the last round empty; at equal times one, as then fewer rounds begin and end
// together: 153 us in place of 157 for 256 sequences of 592 keys.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
unsigned warps_for(const gpu_op *op, int64_t blocks) {
    if (blocks <= int64_t{PARTS_TARGET} * op->gpu->multiprocessors[op->device]) {
        return MOST_WARPS;
    }
    if (IS_DEEP || WIDTH != 128 || sizeof(C) != 2) {
        return FEW_WARPS; // not measured with one
    }
    const int64_t few = at_once<T, C, WIDTH, IS_DEEP>(op, FEW_WARPS);
    const int64_t one = at_once<T, C, WIDTH, IS_DEEP>(op, 1);
    return few > 0 && one > 0 && blocks > few &&
                   rounds_of(blocks, one, 0.43) <= rounds_of(blocks, few, 0.75)
               ? 1
               : FEW_WARPS;
}

template <typename T, typename C, int WIDTH, bool IS_DEEP>
berth_status launch(const gpu_op *op, const decode_call &in) {
    const int64_t blocks =
        static_cast<int64_t>(in.call.kv_heads) * in.room.splits * in.call.sequences;
    constexpr uint32_t WARP_BYTES = RING_BYTES<C, WIDTH> + TURN_BYTES<T, WIDTH>;
    static_assert(RING_BYTES<C, WIDTH> >= PARTS_BYTES<WIDTH>, "parts lie where the rings were");
    const cudaError_t error =
        cudaFuncSetAttribute(decode_kernel<T, C, WIDTH, IS_DEEP>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_WARPS * WARP_BYTES);
    if (error != cudaSuccess) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                 MOST_WARPS * WARP_BYTES, cudaGetErrorString(error));
    }
    const unsigned warps_of = warps_for<T, C, WIDTH, IS_DEEP>(op, blocks);
    const uint32_t bytes = warps_of * (in.room.turn.half > 0 ? WARP_BYTES : RING_BYTES<C, WIDTH>);
    const gpu_grid grid = {dim3(static_cast<unsigned>(in.call.kv_heads),
                                static_cast<unsigned>(in.room.splits),
                                static_cast<unsigned>(in.call.sequences)),
                           dim3(32, warps_of), bytes};
    return gpu_run(op, "paged_attention's decode", grid, decode_kernel<T, C, WIDTH, IS_DEEP>, in);
}

template <typename T, typename C, int WIDTH>
berth_status start(const gpu_op *op, const decode_call &in) {
    return in.call.heads / in.call.kv_heads > 8 ? launch<T, C, WIDTH, true>(op, in)
                                                : launch<T, C, WIDTH, false>(op, in);
}

template <typename T, typename C> berth_status start(const gpu_op *op, const decode_call &in) {
    return in.call.width == 128 ? start<T, C, 128>(op, in) : start<T, C, 64>(op, in);
}

template <typename T> berth_status start(const gpu_op *op, const decode_call &in) {
    return in.call.cache_dtype == BERTH_DTYPE_F8_E4M3FN ? start<T, gpu_f8>(op, in)
                                                        : start<T, T>(op, in);
}

} // namespace

int cuda_decode_may_turn(int multiprocessors, int sequences, int kv_heads) {
    // Measured with 8 key heads on 132 multiprocessors: with up to 16 sequences a step of a model
    // of 8 B in bf16 takes 1 to 2 % less than with rotary_embedding's kernel before it, with 24 and
    // more 1 % more.
    return sequences * kv_heads <= multiprocessors;
}

int cuda_decode_splits(int multiprocessors, int sequences, int kv_heads) {
    const int blocks = sequences * kv_heads;
    const int splits = (PARTS_TARGET * multiprocessors + blocks - 1) / blocks;
    return splits < 1 ? 1 : splits > MAX_PARTS ? MAX_PARTS : splits;
}

uint64_t cuda_decode_bytes(int multiprocessors, int max_sequences, int heads, int kv_heads,
                           int width) {
    // Several parts only while there are fewer blocks than wanted, which bounds their number.
    const uint64_t wanted =
        static_cast<uint64_t>(PARTS_TARGET) * static_cast<uint64_t>(multiprocessors);
    const uint64_t most = static_cast<uint64_t>(max_sequences) * static_cast<uint64_t>(kv_heads);
    const uint64_t parts = wanted + (most < wanted ? most : wanted);
    return parts * static_cast<uint64_t>(heads / kv_heads) * (static_cast<uint64_t>(width) + 2) *
           sizeof(float);
}

berth_status cuda_decode(const gpu_op *op, const gpu_attention_call &call,
                         const cuda_decode_room &room, berth_dtype dtype) {
    const decode_call in = {call, room};
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, in) : start<gpu_f16>(op, in);
}
