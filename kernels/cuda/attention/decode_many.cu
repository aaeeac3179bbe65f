// SPDX-License-Identifier: Apache-2.0
// Attention of one new token of so many sequences that their key heads do not run at once, on
// Hopper. A block of eight warps has a multiprocessor and takes eight key heads of a sequence, a
// warp each, then the next eight that nobody has. As in decode.cu a warp has a ring of its own,
// which is filled across the border of two sequences.
//
// Why: 256 sequences of 592 keys, of bf16, stream through an H200 in 135 us where the key heads of
// a sequence are read side by side and in 149 where they are not. Blocks of one warp with a key
// head each took 155, as those that begin together end together, and all of them began, brought
// their queries and wrote while nothing came from memory; and as the arithmetic takes power, which
// the clock is lowered for (decode_keys.h). Copies take power, too: a step of Llama-3-8B for 256
// sequences took 11.38 to 11.54 ms where each lane copied 16 bytes at a time, 11.34 with a box of a
// step's rows at once, and 11.64 to 11.75 if its fetches were of 256 bytes.
#include <cuda/attention/decode_begin.h>
#include <cuda/attention/decode_keys.h>
#include <cuda/shared.h>
#include <cuda/wgmma.h>

namespace {

constexpr int WARPS = 8; // of a block

template <typename T> using many_rows = new_rows<T, T, WIDTH>;

// Of a warp: new rows and the circle's points. They lie behind the rings of all.
template <typename T>
constexpr uint32_t NEW_BYTES = (MOST_GROUP + 2) * many_rows<T>::ROW + WIDTH * sizeof(T);
template <typename T> constexpr uint32_t BYTES = WARPS *(RING_BYTES<T, WIDTH> + NEW_BYTES<T>);

struct many_call {
    decode_call all;
    CUtensorMap keys; // the caches, by boxes of a step
    CUtensorMap values;
};

// A number stands for eight key heads of a sequence, in the order of both.
__device__ int sequence_of(const decode_call &in, int number) {
    return number / (in.call.kv_heads / WARPS);
}

__device__ int token_of(const decode_call &in, int number) {
    const int sequence = sequence_of(in, number);
    return in.room.is_plain ? sequence : in.call.starts[sequence];
}

__device__ bool is_decode(const decode_call &in, int number) {
    const int32_t *start = in.call.starts + sequence_of(in, number);
    return in.room.is_plain || start[1] - start[0] == 1;
}

// The warp's of them, as far as it is known before its queries are.
struct assignment {
    known early;
    task job;
    int fresh; // position that is not in the caches yet, or STORED
    const int32_t *blocks;

    __device__ assignment(const decode_call &in, int number)
        : early(in, sequence_of(in, number), token_of(in, number)) {
        const gpu_attention_call &call = in.call;
        const int sequence = sequence_of(in, number);
        const int first = number % (call.kv_heads / WARPS) * WARPS;
        job = {sequence, token_of(in, number), first + static_cast<int>(threadIdx.z),
               call.heads / call.kv_heads, share_of(call, 1, early.length)};
        fresh = is_new() ? job.mine.position : STORED;
        blocks = call.block_table + sequence * call.table_stride;
    }
    __device__ bool is_new() const {
        return early.slot >= 0;
    }
};

// The next number of a sequence with one new token that no block has, or `all`; by all threads.
// Each block asks until there is none, so that `all` answers are given; who has the last begins the
// count anew.
__device__ int take(const decode_call &in, int all) {
    __shared__ int taken;
    int number;
    do {
        __syncthreads(); // all have read what was taken before
        if (threadIdx.x == 0 && threadIdx.z == 0) {
            const int ticket = atomicAdd(in.room.arrivals, 1);
            if (ticket == all - 1) {
                *in.room.arrivals = 0;
            }
            taken = static_cast<int>(gridDim.x) + ticket;
        }
        __syncthreads();
        number = taken;
    } while (number < all && !is_decode(in, number));
    return min(number, all);
}

// A warp's ring: stages are filled in turns, by the steps of one assignment, then of the next.
template <typename T> struct ring {
    const many_call &call;
    uint32_t memory;
    uint32_t full;  // a barrier for each stage
    int filled;     // stages that have not been used
    int to;         // the next to be filled
    cuda_place use; // the next to be used
    int step;       // the next to be filled with

    __device__ uint32_t place(int stage) const {
        return memory + stage * STAGE_BYTES<T, WIDTH>;
    }
    // All lanes are done with the stages that are filled.
    __device__ void fill(const assignment &with) {
#pragma unroll 1
        while (filled < STAGES<T> && step < with.job.mine.end) {
            fill_stage(with);
            step += KEYS;
            to = to == STAGES<T> - 1 ? 0 : to + 1;
            ++filled;
        }
    }
    // Hidden and new keys are brought as they lie there: `mend`.
    __device__ void fill_stage(const assignment &with) const {
        const gpu_attention_call &all = call.all.call;
        const int block = with.blocks[step >> all.block_shift];
        const int slot = (block << all.block_shift) + (step & (all.block_size - 1));
        const uint32_t barrier = full + to * 8;
        if (cuda_is_elected()) {
            cuda_barrier_expect(barrier, STAGE_BYTES<T, WIDTH>);
            cuda_head_stream(place(to), &call.keys, with.job.head, slot, barrier);
            cuda_head_stream(place(to) + ROWS_BYTES<T, WIDTH>, &call.values, with.job.head, slot,
                             barrier);
        }
    }
    // Until the next to be used, which begins with `begin`, is there.
    __device__ void wait(const assignment &with, const fresh_rows &fresh, int begin) const {
        const share &mine = with.job.mine;
        cuda_barrier_wait(full + use.stage * 8, use.parity);
        const bool has_fresh = with.fresh >= begin && with.fresh < begin + KEYS;
        if (has_fresh || begin < mine.first || begin + KEYS > mine.end) {
            mend(with, fresh, begin);
        }
    }
    // The new key and value take their place; values that nobody sees become zero, as the weight of
    // zero that they are multiplied by is not enough where they are no numbers.
    __device__ void mend(const assignment &with, const fresh_rows &fresh, int begin) const {
        const share &mine = with.job.mine;
#pragma unroll 1
        for (int i = threadIdx.x / 16; i < KEYS; i += 2) {
            const int position = begin + i;
            const uint32_t at = place(use.stage) + key_place(i, threadIdx.x % 16);
            if (position == with.fresh) {
                cuda_store_shared(at, fresh.key);
                cuda_store_shared(at + ROWS_BYTES<T, WIDTH>, fresh.value);
            } else if (position < mine.first || position >= mine.end) {
                cuda_store_shared(at + ROWS_BYTES<T, WIDTH>, uint4{});
            }
        }
        cuda_publish_shared(); // the stage's next copy comes behind these
        __syncwarp();
    }
    __device__ void go_on() {
        use.go_on(STAGES<T>);
        --filled;
    }
};

// What a block does: the assignments, one behind the other, that it takes.
template <typename T> struct runner {
    const decode_call &in;
    many_rows<T> rows;
    ring<T> keys;
    int all;      // numbers
    int number;   // of the next assignment, or `all`
    bool is_next; // the ring is filled with the next one

    __device__ runner(const many_call &call, unsigned char *memory, uint32_t barriers, int first,
                      const assignment &now)
        : in(call.all), rows(), keys{call, 0, barriers + threadIdx.z * STAGES<T> * 8, 0, 0, {}, 0},
          all(in.call.sequences * (in.call.kv_heads / WARPS)), number(first), is_next(false) {
        rows.memory = memory + WARPS * RING_BYTES<T, WIDTH> + threadIdx.z * NEW_BYTES<T>;
        rows.of_warp = MOST_GROUP + 2;
        keys.memory = static_cast<uint32_t>(__cvta_generic_to_shared(memory)) +
                      threadIdx.z * RING_BYTES<T, WIDTH>;
        keys.step = now.job.mine.begin;
    }
    // All keys of `now`; from where the ring has the last of them on it is filled with those of
    // the next assignment. All warps of a block come there in the same step.
    __device__ void attend(const assignment &now, const key_queries &query, const fresh_rows &fresh,
                           assignment *next, key_sums *sum) {
        const share &mine = now.job.mine;
        is_next = false;
#pragma unroll 1
        for (int step = mine.begin; step < mine.end; step += KEYS) {
            __syncwarp(); // all lanes are done with the stage that is filled next
            if (!is_next) {
                keys.fill(now);
                if (keys.step >= mine.end && number < all) {
                    take_next(next);
                }
            }
            if (is_next) {
                keys.fill(*next);
            }
            keys.wait(now, fresh, step);
            key_step<T>(in.call, mine, query, step, keys.place(keys.use.stage), sum);
            keys.go_on();
        }
        if (!is_next && number < all) {
            take_next(next); // of a sequence without keys nothing was asked above
        }
    }
    __device__ void take_next(assignment *next) {
        number = take(in, all);
        if (number < all) {
            *next = assignment(in, number);
            keys.step = next->job.mine.begin;
            is_next = true;
        }
    }
    // The queries are those of the kernel before this one.
    __device__ void work(assignment *now, assignment *next) {
        const gpu_attention_call &call = in.call;
        bring_rows(in, now->job, now->is_new(), rows, &now->early.point);
        const key_queries query = load_key_queries(call, rows, now->job.group);
        const fresh_rows fresh =
            now->is_new() ? take_fresh(call, now->job, rows, now->early.slot) : fresh_rows{};
        key_sums sum = {};
        sum.base[0] = sum.base[1] = NO_BASE;
        attend(*now, query, fresh, next, &sum);
        write_key_sums<T>(call, now->job, sum);
        __syncwarp(); // all lanes are done with the new rows
    }
};

template <typename T>
__global__ void __launch_bounds__(32 * WARPS, 1)
    many_kernel(const __grid_constant__ many_call call) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[WARPS * STAGES<T>];
    const decode_call &in = call.all;
    const int all = in.call.sequences * (in.call.kv_heads / WARPS);
    const uint32_t full = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
    int number = static_cast<int>(blockIdx.x);
    if (threadIdx.x < STAGES<T>) {
        cuda_barrier_init(full + (threadIdx.z * STAGES<T> + threadIdx.x) * 8, 1);
    }
    cuda_barrier_publish();
    __syncwarp();
    if (!in.room.is_plain) {
        gpu_wait_for_inputs();
        number = is_decode(in, number) ? number : take(in, all);
        if (number == all) {
            return;
        }
    }
    assignment now(in, number);
    assignment next = now;
    runner<T> self(call, shared, full, number, now);
    self.keys.fill(now);
    gpu_let_next_begin();
    for (;;) {
        self.work(&now, &next);
        if (!self.is_next) {
            return;
        }
        now = next;
    }
}

template <typename T> int64_t at_once(const gpu_op *op) {
    const cudaError_t error =
        cudaFuncSetAttribute(many_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES<T>);
    (void)cudaGetLastError(); // of a device that has less
    return error == cudaSuccess ? int64_t{WARPS} * op->gpu->multiprocessors[op->device] : 0;
}

template <typename T> berth_status start(const gpu_op *op, const decode_call &in) {
    const int64_t all = static_cast<int64_t>(in.call.sequences) * (in.call.kv_heads / WARPS);
    const int64_t blocks = op->gpu->multiprocessors[op->device];
    const gpu_grid grid = {dim3(static_cast<unsigned>(all < blocks ? all : blocks)),
                           dim3(32, 1, WARPS), BYTES<T>};
    const cuda_tile_encode encode = cuda_find_tile_encode();
    many_call call = {in, {}, {}};
    cuda_headed cache = {in.call.key_cache, in.call.blocks * in.call.block_size, in.call.kv_heads,
                         KEYS};
    const bool is_described = cuda_describe_heads(encode, cache, &call.keys);
    cache.data = in.call.value_cache;
    if (!is_described || !cuda_describe_heads(encode, cache, &call.values)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%s",
                                 "the driver does not describe the caches as boxes");
    }
    return gpu_run(op, "paged_attention's decode", grid, many_kernel<T>, call);
}

} // namespace

int64_t cuda_decode_many_at_once(const gpu_op *op, const gpu_attention_call &call,
                                 berth_dtype dtype) {
    if (call.width != WIDTH || call.cache_dtype != dtype || call.kv_heads % WARPS != 0 ||
        !op->gpu->groups[op->device] || !cuda_find_tile_encode() ||
        call.heads / call.kv_heads > MOST_GROUP) {
        return 0;
    }
    return dtype == BERTH_DTYPE_BF16 ? at_once<gpu_bf16>(op) : at_once<gpu_f16>(op);
}

berth_status cuda_decode_many(const gpu_op *op, const gpu_attention_call &call,
                              const cuda_decode_room &room, berth_dtype dtype) {
    const decode_call in = {call, room};
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, in) : start<gpu_f16>(op, in);
}
