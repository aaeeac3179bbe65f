// SPDX-License-Identifier: Apache-2.0
// Attention of one new token of so many sequences that their key heads do not run at once. A block
// of eight warps has a multiprocessor and takes eight key heads of a sequence, a warp each, then
// the next eight that nobody has. As in decode.cu a warp has a ring of its own, which is filled
// across the border of two sequences.
//
// Why: 256 sequences of 592 keys, of bf16, stream through an H200 in 135 us where the key heads of
// a sequence are read side by side and in 149 where they are not. Blocks of one warp with a key
// head each took 155, as those that begin together end together, and all of them began, brought
// their queries and wrote while nothing came from memory; and as the arithmetic takes power, which
// the clock is lowered for (decode_keys.h).
#include <cuda/attention/decode_begin.h>
#include <cuda/attention/decode_keys.h>
#include <cuda/shared.h>

namespace {

constexpr int WARPS = 8; // of a block

template <typename T> using many_rows = new_rows<T, T, WIDTH>;

// Of a warp: its ring, then new rows and the circle's points.
template <typename T>
constexpr uint32_t BYTES = RING_BYTES<T, WIDTH> + (MOST_GROUP + 2) * many_rows<T>::ROW + ROW_BYTES;

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
template <typename T> struct assignment {
    known early;
    task job;
    source<T> from;
    const int32_t *blocks;

    __device__ assignment(const decode_call &in, int number)
        : early(in, sequence_of(in, number), token_of(in, number)) {
        const gpu_attention_call &call = in.call;
        const int sequence = sequence_of(in, number);
        const int first = number % (call.kv_heads / WARPS) * WARPS;
        job = {sequence, token_of(in, number), first + static_cast<int>(threadIdx.z),
               call.heads / call.kv_heads, share_of(call, 1, early.length)};
        from = source_of<T, WIDTH>(call, job.head, is_new() ? job.mine.position : STORED);
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
    uint32_t memory;
    int filled; // stages that have not been used
    int to;     // the next to be filled
    int use;    // the next to be used
    int step;   // the next to be filled with

    static __device__ int behind(int stage) {
        return stage == STAGES<T> - 1 ? 0 : stage + 1;
    }
    __device__ uint32_t place(int stage) const {
        return memory + stage * STAGE_BYTES<T, WIDTH>;
    }
    __device__ void fill(const gpu_attention_call &call, const assignment<T> &with) {
#pragma unroll 1
        while (filled < STAGES<T> && step < with.job.mine.end) {
            fill_keys(call, with);
            step += KEYS;
            to = behind(to);
            ++filled;
        }
    }
    // As fill_stage, but that a step without hidden or new keys needs few instructions.
    __device__ void fill_keys(const gpu_attention_call &call, const assignment<T> &with) const {
        const share &mine = with.job.mine;
        const int piece = threadIdx.x % 16;
        const int row = threadIdx.x / 16;
        const int block = block_of(call, with.blocks, mine, step);
        const int64_t slot =
            (static_cast<int64_t>(block) << call.block_shift) + (step & (call.block_size - 1));
        const int64_t first = slot * with.from.gap + piece * 8;
        const T *keys = with.from.caches[0] + first;
        const T *values = with.from.caches[1] + first;
        const bool is_whole = step >= mine.first && step + KEYS <= mine.end &&
                              (with.from.fresh < step || with.from.fresh >= step + KEYS);
        if (is_whole) {
            const int64_t gap = 2 * static_cast<int64_t>(with.from.gap);
            keys += row * with.from.gap;
            values += row * with.from.gap;
#pragma unroll
            for (int i = 0; i < KEYS / 2; ++i) {
                const uint32_t at = place(to) + key_place(row + 2 * i, piece);
                cuda_copy_16_by(at, keys + i * gap, with.from.policy);
                cuda_copy_16_by(at + KEYS * ROW_BYTES, values + i * gap, with.from.policy);
            }
        } else {
#pragma unroll 1
            for (int i = row; i < KEYS; i += 2) {
                const int key = key_of(mine, step, i);
                const uint32_t at = place(to) + key_place(i, piece);
                if (step + key != with.from.fresh) {
                    cuda_copy_16_by(at, keys + key * with.from.gap, with.from.policy);
                    cuda_copy_16_by(at + KEYS * ROW_BYTES, values + key * with.from.gap,
                                    with.from.policy);
                }
            }
        }
        cuda_end_group();
    }
    // What was left out of the next to be used, which begins with `begin`.
    __device__ void fill_fresh(const assignment<T> &with, const fresh_rows &fresh,
                               int begin) const {
        const int position = with.from.fresh;
        if (position < begin || position >= begin + KEYS) {
            return;
        }
#pragma unroll 1
        for (int i = threadIdx.x / 16; i < KEYS; i += 2) {
            if (begin + key_of(with.job.mine, begin, i) == position) {
                const uint32_t at = place(use) + key_place(i, threadIdx.x % 16);
                cuda_store_shared(at, fresh.key);
                cuda_store_shared(at + KEYS * ROW_BYTES, fresh.value);
            }
        }
    }
    // Until the next to be used is there, each having been a group of copies.
    __device__ void wait() const {
        if (filled == STAGES<T>) {
            cuda_wait_groups<STAGES<T> - 1>();
        } else if (filled == STAGES<T> - 1) {
            cuda_wait_groups<STAGES<T> - 2>();
        } else {
            cuda_wait_groups<0>();
        }
        __syncwarp();
    }
    __device__ void go_on() {
        use = behind(use);
        --filled;
    }
};
static_assert(STAGES<gpu_bf16> == 3 && STAGES<gpu_f16> == 3);

// What a block does: the assignments, one behind the other, that it takes.
template <typename T> struct runner {
    const decode_call &in;
    many_rows<T> rows;
    ring<T> keys;
    int all;      // numbers
    int number;   // of the next assignment, or `all`
    bool is_next; // the ring is filled with the next one

    __device__ runner(const decode_call &call, unsigned char *memory, int first,
                      const assignment<T> &now)
        : in(call), rows(), keys(), all(call.call.sequences * (call.call.kv_heads / WARPS)),
          number(first), is_next(false) {
        rows.memory = memory + RING_BYTES<T, WIDTH>;
        rows.of_warp = MOST_GROUP + 2;
        keys.memory = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
        keys.step = now.job.mine.begin;
    }
    // All keys of `now`; from where the ring has the last of them on it is filled with those of
    // the next assignment. All warps of a block come there in the same step.
    __device__ void attend(const assignment<T> &now, const key_queries &query,
                           const fresh_rows &fresh, assignment<T> *next, key_sums *sum) {
        const share &mine = now.job.mine;
        is_next = false;
#pragma unroll 1
        for (int step = mine.begin; step < mine.end; step += KEYS) {
            __syncwarp(); // all lanes are done with the stage that is filled next
            if (!is_next) {
                keys.fill(in.call, now);
                if (keys.step >= mine.end && number < all) {
                    take_next(next);
                }
            }
            if (is_next) {
                keys.fill(in.call, *next);
            }
            keys.fill_fresh(now, fresh, step);
            keys.wait();
            key_step<T>(in.call, mine, query, step, keys.place(keys.use), sum);
            keys.go_on();
        }
        if (!is_next && number < all) {
            take_next(next); // of a sequence without keys nothing was asked above
        }
    }
    __device__ void take_next(assignment<T> *next) {
        number = take(in, all);
        if (number < all) {
            *next = assignment<T>(in, number);
            keys.step = next->job.mine.begin;
            is_next = true;
        }
    }
    // The queries are those of the kernel before this one.
    __device__ void work(assignment<T> *now, assignment<T> *next) {
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

template <typename T> __global__ void __launch_bounds__(32 * WARPS, 1) many_kernel(decode_call in) {
    extern __shared__ __align__(128) unsigned char shared[];
    const int all = in.call.sequences * (in.call.kv_heads / WARPS);
    unsigned char *memory = shared + threadIdx.z * BYTES<T>;
    int number = static_cast<int>(blockIdx.x);
    if (!in.room.is_plain) {
        gpu_wait_for_inputs();
        number = is_decode(in, number) ? number : take(in, all);
        if (number == all) {
            return;
        }
    }
    assignment<T> now(in, number);
    assignment<T> next = now;
    runner<T> self(in, memory, number, now);
    self.keys.fill(in.call, now);
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
    const cudaError_t error = cudaFuncSetAttribute(
        many_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, WARPS * BYTES<T>);
    (void)cudaGetLastError(); // of a device that has less
    return error == cudaSuccess ? int64_t{WARPS} * op->gpu->multiprocessors[op->device] : 0;
}

template <typename T> berth_status start(const gpu_op *op, const decode_call &in) {
    const int64_t all = static_cast<int64_t>(in.call.sequences) * (in.call.kv_heads / WARPS);
    const int64_t blocks = op->gpu->multiprocessors[op->device];
    const gpu_grid grid = {dim3(static_cast<unsigned>(all < blocks ? all : blocks)),
                           dim3(32, 1, WARPS), WARPS * BYTES<T>};
    return gpu_run(op, "paged_attention's decode", grid, many_kernel<T>, in);
}

} // namespace

int64_t cuda_decode_many_at_once(const gpu_op *op, const gpu_attention_call &call,
                                 berth_dtype dtype) {
    if (call.width != WIDTH || call.cache_dtype != dtype || call.kv_heads % WARPS != 0 ||
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
