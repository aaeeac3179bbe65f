// SPDX-License-Identifier: Apache-2.0
// Attention of one new token a sequence. A block has a sequence, a key head with all its query
// heads, and a share of the keys; four warps take 16 keys each in turns. Each warp has a ring of
// its own in shared memory, which copies fill ahead of it, and waits for no other warp. The order
// of a head's elements and of the outputs' columns is chosen so that 16 bytes of a row are what a
// lane needs of it. The block that comes last puts the shares together, or in a cluster each block
// a slice of them.
//
// Few sequences wait for memory, not for its bytes: what does not hang on the kernel before this
// one is loaded at once and before the wait, and little code is gone through (fill_stage). One
// request of Llama-3-8B by codes of four bits on an H200: 1.77 ms a step with 93 KB of code, 1.61
// with 41.
#include <cuda/attention/decode_begin.h>
#include <cuda/attention/decode_parts.h>
#include <cuda/shared.h>

#include <algorithm>

namespace {

constexpr int MOST_CLUSTER = 10; // blocks
constexpr int LEAST_CLUSTER = 4;

template <typename T>
constexpr berth_dtype DTYPE = gpu_is_bf16<T> ? BERTH_DTYPE_BF16 : BERTH_DTYPE_F16;

template <typename T, typename C, int WIDTH, bool IS_DEEP>
__device__ void attend(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                       const queries<WIDTH, IS_DEEP> &query, const source<C> &from,
                       const fresh_rows &fresh, uint32_t ring, heads_sum<WIDTH> *sum) {
    int step = mine.begin + static_cast<int>(threadIdx.y) * KEYS;
    int stage = 0;
#pragma unroll 1
    for (; step < mine.end; step += mine.gap) {
        const uint32_t free = ring + (stage == 0 ? AHEAD<C> : stage - 1) * STAGE_BYTES<C, WIDTH>;
        __syncwarp(); // all lanes are done with the stage that is filled next
        const int next = step + AHEAD<C> * mine.gap;
        fill_stage<C, WIDTH>(call, mine, from, block_of(call, blocks, mine, next), next, free);
        const uint32_t keys = ring + stage * STAGE_BYTES<C, WIDTH>;
        fill_fresh<C, WIDTH>(mine, from, fresh, step, keys);
        cuda_wait_groups<AHEAD<C>>();
        __syncwarp();
        add_keys<T, C, WIDTH, IS_DEEP>(call, mine, query, step, keys, sum);
        stage = stage == STAGES<C> - 1 ? 0 : stage + 1;
    }
    cuda_wait_groups<0>();
}

// The parts of a sequence's key head, all parts' outs coming before all stats.
template <int WIDTH> __device__ head_parts handed_of(const decode_call &in, const task &job) {
    const int64_t each = static_cast<int64_t>(in.room.splits) * job.group;
    const int64_t all = static_cast<int64_t>(in.call.sequences) * in.call.kv_heads * each;
    const int64_t first = (static_cast<int64_t>(job.sequence) * in.call.kv_heads + job.head) * each;
    return head_parts{in.room.parts + first * WIDTH,
                      reinterpret_cast<float2 *>(in.room.parts + all * WIDTH) + first};
}

// The own warps' parts, and those of other blocks with keys of the sequence, to what the head's
// queries see: by the blocks of a cluster a slice each, else by the block that comes last.
template <typename T, int WIDTH>
__device__ void finish(const decode_call &in, const task &job, const head_parts &own,
                       const meeting &here, bool meets) {
    const share &mine = job.mine;
    head_parts all = own;
    int count = warps();
    if (mine.parts > 1) {
        all = handed_of<WIDTH>(in, job);
        count = mine.parts;
#pragma unroll 1
        for (int four = thread_number(); four < here.fours; four += threads()) {
            const common part =
                put_together<MOST_WARPS>(four_of<WIDTH>(own, job.group, four), warps());
            if (meets) {
                here.send(four, part);
            } else {
                store_part<WIDTH>(all, job.group, four, part);
            }
        }
        int *arrivals = in.room.arrivals + job.sequence * in.call.kv_heads + job.head;
        if (meets) {
            cuda_barrier_wait(here.barrier, 0);
        } else if (!is_last_of(mine.parts, arrivals)) {
            return;
        }
    }
    const int first = meets ? here.first() : 0;
    const int end = meets ? first + here.own() : here.fours;
#pragma unroll 1
    for (int four = first + thread_number(); four < end; four += threads()) {
        const parts_of_four parts =
            meets ? here.received(four - first) : four_of<WIDTH>(all, job.group, four);
        write_four<T, WIDTH>(in.call, job, four, put_together<8>(parts, count));
    }
}

// Shared memory: the rings. Before the first key new rows lie where they are, after the last one
// the warps' parts. Behind them, in clusters, slices of the blocks' parts.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
__global__ void __launch_bounds__(MOST_WARPS * 32, 2) decode_kernel(decode_call in) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ __align__(8) uint64_t signal;
    const gpu_attention_call &call = in.call;
    // Why before the wait: a batch's arrays, and in steps of one new token a sequence all of the
    // cache that is read, were written before the step's first kernel began.
    const int sequence = blockIdx.z;
    const int token = in.room.is_plain ? sequence : call.starts[sequence];
    known early(in, sequence, token);
    const task job = {sequence, token, own_head(), call.heads / call.kv_heads,
                      share_of(call, in.room.splits, early.length)};
    const share &mine = job.mine;
    if (own_share() >= mine.parts && own_share() > 0) {
        return; // the first block of a sequence waits for the kernel before this one
    }
    if (!in.room.is_plain) {
        gpu_wait_for_inputs();
        if (call.starts[sequence + 1] - token != 1) {
            return;
        }
    }
    const bool is_new = early.slot >= 0 && mine.has_new;
    const int32_t *blocks = call.block_table + sequence * call.table_stride;
    const source<C> from =
        source_of<C, WIDTH>(call, job.head, early.slot >= 0 ? mine.position : STORED);
    const uint32_t ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared)) +
                          threadIdx.y * RING_BYTES<C, WIDTH>;
    fill_ahead<C, WIDTH>(call, mine, blocks, from, ring, early.block);
    // Why not before: the next kernel's weights would stand before the keys. One request of bf16
    // 3.62 ms a step, so 3.59.
    gpu_let_next_begin();
    const bool meets = mine.parts > 1 && in.room.cluster > 0;
    const meeting here(shared + warps() * RING_BYTES<C, WIDTH>, &signal, mine.parts,
                       job.group * WIDTH / 4);
    if (meets) {
        here.open();
    }
    using rows_of = new_rows<T, C, WIDTH>;
    // In the stages that the rings leave empty at first.
    static_assert(rows_of::OF_WARP * rows_of::ROW + WIDTH * sizeof(T) <= STAGE_BYTES<C, WIDTH>);
    const rows_of rows = {shared + AHEAD<C> * STAGE_BYTES<C, WIDTH>, rows_of::OF_WARP};
    bring_rows(in, job, is_new, rows, &early.point);
    const queries<WIDTH, IS_DEEP> query = load_queries<T, C, WIDTH, IS_DEEP>(
        rows, job.group, call.scale * gpu_cache_scale(call.key_scale));
    const fresh_rows fresh = is_new ? take_fresh(call, job, rows, early.slot) : fresh_rows{};
    __syncthreads(); // all have what they need of the new rows
    heads_sum<WIDTH> sum = {};
    sum.largest[0] = sum.largest[1] = -INFINITY;
    attend<T, C, WIDTH, IS_DEEP>(call, mine, blocks, query, from, fresh, ring, &sum);
    __syncthreads();
    float *outs = reinterpret_cast<float *>(shared);
    const head_parts own = {outs,
                            reinterpret_cast<float2 *>(outs + warps() * CUDA_DECODE_HEADS * WIDTH)};
    write_part<WIDTH, IS_DEEP>(sum, own, job.group);
    if (meets) {
        cuda_cluster_wait(); // all blocks of the cluster have begun
    }
    __syncthreads();
    finish<T, WIDTH>(in, job, own, here, meets);
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

// Few blocks: all warps, as each has much to read. More than run at once: few.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
unsigned warps_for(const gpu_op *op, int64_t blocks) {
    return blocks <= int64_t{PARTS_TARGET} * op->gpu->multiprocessors[op->device] ? MOST_WARPS
                                                                                  : FEW_WARPS;
}

// Whether what takes key heads in turns (decode_many.cu) leaves less of the last round empty than
// blocks of few warps, or as much.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
bool takes_turns(const gpu_op *op, const decode_call &in, int64_t blocks) {
    const int64_t few = at_once<T, C, WIDTH, IS_DEEP>(op, FEW_WARPS);
    if (in.room.splits > 1 || few == 0 || blocks <= few) {
        return false;
    }
    const int64_t many = cuda_decode_many_at_once(op, in.call, DTYPE<T>);
    return many > 0 && rounds_of(blocks, many, 0.43) <= rounds_of(blocks, few, 0.75);
}

// Of shared memory, behind the rings: the parts of `blocks` of a cluster, of so many elements each,
// slices being powers of two.
constexpr uint32_t meeting_bytes(int elements, int blocks) {
    return blocks > 0 ? static_cast<uint32_t>(elements / 2 + blocks) *
                            static_cast<uint32_t>(sizeof(float4) + sizeof(float2))
                      : 0;
}

uint32_t meeting_bytes(const decode_call &in) {
    return meeting_bytes(in.call.heads / in.call.kv_heads * in.call.width, in.room.cluster);
}

template <typename C, int WIDTH> constexpr uint32_t MOST_RINGS = MOST_WARPS *RING_BYTES<C, WIDTH>;
constexpr uint32_t MOST_MEETING = meeting_bytes(CUDA_DECODE_HEADS * 128, MOST_CLUSTER);

// Blocks that share a sequence's keys in one cluster, more than half as many as would share them
// without; 0: no clusters, or not all at once. Two requests of Llama-3-8B by codes of four
// bits: 2.23 ms a step without, 2.17 with clusters of 10, 2.26 of 12, which begin later; four 2.43
// and 2.38. Why not more clusters of a sequence, for one request: it would gain 1 %, and as fewer
// blocks find their places 32,768 keys took 45 us in place of 36.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
int cluster_for(const gpu_op *op, const decode_call &in) {
    if (!in.room.is_plain) {
        return 0;
    }
    decode_call with = in;
    int &size = with.room.cluster;
    for (size = std::min(MOST_CLUSTER, in.room.splits);
         size >= LEAST_CLUSTER && 2 * size > in.room.splits; --size) {
        const gpu_grid grid = {dim3(1, static_cast<unsigned>(size)), dim3(32, MOST_WARPS),
                               MOST_RINGS<C, WIDTH> + meeting_bytes(with)};
        if (cuda_clusters_at_once(op, grid, size, decode_kernel<T, C, WIDTH, IS_DEEP>) >=
            in.call.sequences * in.call.kv_heads) {
            return size;
        }
    }
    return 0;
}

template <typename T, typename C, int WIDTH, bool IS_DEEP>
berth_status launch(const gpu_op *op, decode_call in) {
    constexpr auto KERNEL = decode_kernel<T, C, WIDTH, IS_DEEP>;
    static_assert(RING_BYTES<C, WIDTH> >= PARTS_BYTES<WIDTH>, "parts lie where the rings were");
    const char *name = "paged_attention's decode";
    const bool has_room = op->gpu->overlaps[op->device] &&
                          cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               MOST_RINGS<C, WIDTH> + MOST_MEETING) == cudaSuccess;
    (void)cudaGetLastError(); // of a device that has less
    const berth_status status =
        has_room ? BERTH_OK : cuda_allow_shared(op, KERNEL, MOST_RINGS<C, WIDTH>);
    if (status != BERTH_OK) {
        return status;
    }
    in.room.cluster = has_room ? cluster_for<T, C, WIDTH, IS_DEEP>(op, in) : 0;
    in.room.splits = in.room.cluster > 0 ? in.room.cluster : in.room.splits;
    const int64_t blocks =
        static_cast<int64_t>(in.call.kv_heads) * in.room.splits * in.call.sequences;
    if (in.room.cluster == 0 && takes_turns<T, C, WIDTH, IS_DEEP>(op, in, blocks)) {
        return cuda_decode_many(op, in.call, in.room, DTYPE<T>);
    }
    const unsigned warps_of =
        in.room.cluster > 0 ? MOST_WARPS : warps_for<T, C, WIDTH, IS_DEEP>(op, blocks);
    const uint32_t bytes = warps_of * RING_BYTES<C, WIDTH> + meeting_bytes(in);
    const gpu_grid grid = {dim3(static_cast<unsigned>(in.call.kv_heads),
                                static_cast<unsigned>(in.room.splits),
                                static_cast<unsigned>(in.call.sequences)),
                           dim3(32, warps_of), bytes};
    return in.room.cluster > 0 ? cuda_run_clusters(op, name, grid, in.room.cluster, KERNEL, in)
                               : gpu_run(op, name, grid, KERNEL, in);
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
