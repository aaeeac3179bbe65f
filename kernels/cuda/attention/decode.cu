// SPDX-License-Identifier: Apache-2.0
// Attention of one new token a sequence. A block has a sequence, a key head with all its query
// heads, and a share of the keys; four warps take 16 keys each in turns. Each warp has a ring of
// its own in shared memory, which copies fill ahead of it, and waits for no other warp. The order
// of a head's elements and of the outputs' columns is chosen so that 16 bytes of a row are what a
// lane needs of it. The block that comes last puts the shares together.
#include <cuda/attention/attention.h>
#include <cuda/mma.h>

#include <math.h>

namespace {

constexpr int WARPS = 4;
constexpr int KEYS = 16;  // of a warp's step
constexpr int STAGES = 3; // of a warp's ring
constexpr int AHEAD = STAGES - 1;
constexpr int MIN_SHARE = 64;   // keys of a block, so that its start is worth it
constexpr int PARTS_TARGET = 2; // blocks for each multiprocessor
constexpr int MAX_PARTS = 256;  // of a sequence

struct decode_call {
    gpu_attention_call call;
    cuda_decode_room room;
};

// A sequence's keys [begin, end) of this block, in steps of KEYS.
struct share {
    int first; // that the query sees
    int begin; // a multiple of KEYS
    int end;
    int position; // of the new token
    int parts;    // blocks that have keys
};

__device__ share share_of(const gpu_attention_call &call, int sequence, int splits) {
    share out;
    const int length = call.lengths[sequence];
    out.position = length - 1;
    out.first = call.window > 0 && length > call.window ? length - call.window : 0;
    const int from = out.first / KEYS * KEYS;
    int each = (length - from + splits - 1) / splits;
    each = each < MIN_SHARE ? MIN_SHARE : (each + KEYS * WARPS - 1) / (KEYS * WARPS) * KEYS * WARPS;
    out.parts = (length - from + each - 1) / each;
    out.begin = from + static_cast<int>(blockIdx.x) * each;
    out.end = out.begin + each < length ? out.begin + each : length;
    return out;
}

// The queries of a key head as the tensor core's first operand: row g is head g of the group, 16
// bytes from element 8c + 32j on are two products' columns.
template <int WIDTH, bool IS_DEEP> struct queries {
    uint4 low[WIDTH / 32];
    uint4 high[IS_DEEP ? WIDTH / 32 : 1];
};

// A head's running result: columns are elements 8n + tile + 64 · half for column n of a product.
template <int WIDTH> struct heads_sum {
    float out[WIDTH / 8][4];
    float largest[2]; // of heads g and g + 8
    float total[2];
};

// Where the rows of positions lie; that of the new token is its input while it is not stored.
template <typename T> struct cache_rows {
    const T *cache;
    const T *fresh;
    int64_t gap; // elements of a slot
};

constexpr int STORED = -1; // no position is new

__device__ uint4 load_row(const void *from) {
    return *static_cast<const uint4 *>(from);
}

template <typename T, int WIDTH, bool IS_DEEP>
__device__ queries<WIDTH, IS_DEEP> load_queries(const gpu_attention_call &call, int token,
                                                int group) {
    queries<WIDTH, IS_DEEP> out;
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
    const uint4 none = {0, 0, 0, 0};
    const int64_t first = static_cast<int64_t>(token) * call.heads + blockIdx.y * group;
#pragma unroll
    for (int j = 0; j < WIDTH / 32; ++j) {
        const int at = 8 * c + 32 * j;
        out.low[j] = g < group ? load_row(gpu_row<const T>(call.query, first + g) + at) : none;
        if (IS_DEEP) {
            out.high[j] =
                g + 8 < group ? load_row(gpu_row<const T>(call.query, first + g + 8) + at) : none;
        }
    }
    return out;
}

// The place of 16 bytes of a row in a stage. The exchange lets a lane group's reads of two rows'
// halves, and of four rows' pairs, meet in no bank.
template <int WIDTH> __device__ uint32_t place_of(int row, int piece) {
    const int exchanged = piece ^ ((row & 6) ^ ((row & 1) << 2));
    return static_cast<uint32_t>((row * (WIDTH / 8) + exchanged) * 16);
}

__device__ void store_shared(uint32_t to, const uint4 &value) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

__device__ uint4 load_shared(uint32_t from) {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(from));
    return value;
}

// Scores of the heads for 16 keys; tile t has keys 8t + 2c and + 1 of rows g and g + 8. All loads
// come first, so that the products wait for none of them.
template <typename T, int WIDTH, bool IS_DEEP>
__device__ void score(const queries<WIDTH, IS_DEEP> &query, uint32_t keys, float (*scores)[4]) {
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
    uint4 rows[2][WIDTH / 32];
#pragma unroll
    for (int at = 0; at < 2 * (WIDTH / 32); ++at) {
        rows[at % 2][at / 2] = load_shared(keys + place_of<WIDTH>(at % 2 * 8 + g, c + at / 2 * 4));
    }
#pragma unroll
    for (int j = 0; j < WIDTH / 32; ++j) {
        const uint4 low = query.low[j];
        const uint4 high = IS_DEEP ? query.high[IS_DEEP ? j : 0] : uint4{0, 0, 0, 0};
        const uint32_t a[4] = {low.x, high.x, low.y, high.y};
        const uint32_t b[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
            const uint4 row = rows[tile][j];
            const uint32_t k[4] = {row.x, row.y, row.z, row.w};
            cuda_mma(scores[tile], a, k, T{});
            cuda_mma(scores[tile], b, k + 2, T{});
        }
    }
}

// Pairs of element i of two rows: the second operand of a product wants two keys side by side.
__device__ uint32_t pair_of(const uint4 &first, const uint4 &second, int i) {
    const uint32_t *a = &first.x;
    const uint32_t *b = &second.x;
    return __byte_perm(a[i / 2], b[i / 2], i % 2 ? 0x7632 : 0x5410);
}

template <typename T, int WIDTH>
__device__ void add_values(const uint32_t *weights, uint32_t values, heads_sum<WIDTH> *sum) {
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < WIDTH / 64; ++half) {
        uint4 rows[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = 2 * c + i % 2 + i / 2 * 8;
            rows[i] = load_shared(values + place_of<WIDTH>(row, g + 8 * half));
        }
#pragma unroll
        for (int tile = 0; tile < 8; ++tile) {
            const uint32_t b[2] = {pair_of(rows[0], rows[1], tile),
                                   pair_of(rows[2], rows[3], tile)};
            cuda_mma(sum->out[half * 8 + tile], weights, b, T{});
        }
    }
}

// The largest of a row's scores over the four lanes that have it; likewise their sum.
__device__ float row_max(float value) {
    value = fmaxf(value, gpu_shuffle_xor(value, 1));
    return fmaxf(value, gpu_shuffle_xor(value, 2));
}
__device__ float row_sum(float value) {
    value += gpu_shuffle_xor(value, 1);
    return value + gpu_shuffle_xor(value, 2);
}

// Scores to weights, in pairs as the first operand of the second product; the sums so far are
// scaled to the new largest score.
template <typename T, int WIDTH, bool IS_DEEP>
__device__ void weigh(float (*scores)[4], uint32_t *weights, heads_sum<WIDTH> *sum) {
#pragma unroll
    for (int row = 0; row < (IS_DEEP ? 2 : 1); ++row) {
        float *first = &scores[0][2 * row];
        float *second = &scores[1][2 * row];
        const float most = fmaxf(fmaxf(first[0], first[1]), fmaxf(second[0], second[1]));
        const float largest = fmaxf(sum->largest[row], row_max(most));
        const float base = largest == -INFINITY ? 0 : largest; // nothing seen yet
        const float old = cuda_exp2(sum->largest[row] - base);
        first[0] = cuda_exp2(first[0] - base);
        first[1] = cuda_exp2(first[1] - base);
        second[0] = cuda_exp2(second[0] - base);
        second[1] = cuda_exp2(second[1] - base);
        sum->total[row] = sum->total[row] * old + first[0] + first[1] + second[0] + second[1];
        sum->largest[row] = largest;
#pragma unroll
        for (int i = 0; i < WIDTH / 8; ++i) {
            sum->out[i][2 * row] *= old;
            sum->out[i][2 * row + 1] *= old;
        }
        weights[row] = cuda_pair(first[0], first[1], T{});
        weights[2 + row] = cuda_pair(second[0], second[1], T{});
    }
    if (!IS_DEEP) {
        weights[1] = 0;
        weights[3] = 0;
    }
}

#define LOG2E 1.4426950408889634f

// Scaled, capped, in powers of two; hidden keys at minus infinity.
__device__ void mask(const gpu_attention_call &call, const share &mine, int step,
                     float (*scores)[4]) {
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int key = step + tile * 8 + 2 * c + i % 2;
            const float value = gpu_soft_cap(scores[tile][i] * call.scale, call.soft_cap) * LOG2E;
            scores[tile][i] = key >= mine.first && key < mine.end ? value : -INFINITY;
        }
    }
}

// The key that row `row` of a step is filled with. Keys outside of the share are hidden and not
// read: one inside stands for each.
__device__ int key_of(const share &mine, int step, int row) {
    const int low = mine.first > step ? mine.first - step : 0;
    const int last = mine.end - 1 - step;
    return row < low ? low : row > last ? last : row;
}

// Of a stage: keys, then values.
template <int WIDTH> constexpr uint32_t STAGE_BYTES = 2 * KEYS *WIDTH * 2;

// A warp's 16 keys and values from `step` on begin their way to a stage, but for those of the
// position `fresh`.
template <typename T, int WIDTH>
__device__ void fill_stage(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                           const cache_rows<T> *rows, int step, int fresh, uint32_t stage) {
    constexpr int PIECES = WIDTH / 8;
    if (step < mine.end) {
        const int64_t slot =
            (static_cast<int64_t>(blocks[step >> call.block_shift]) << call.block_shift) +
            (step & (call.block_size - 1));
        const int piece = threadIdx.x % PIECES;
#pragma unroll
        for (int row = threadIdx.x / PIECES; row < KEYS; row += 32 / PIECES) {
            const int key = key_of(mine, step, row);
            const int64_t from = (slot + key) * rows->gap + piece * 8;
            if (step + key != fresh) {
                cuda_copy_16(stage + place_of<WIDTH>(row, piece), rows[0].cache + from, true);
                cuda_copy_16(stage + KEYS * WIDTH * 2 + place_of<WIDTH>(row, piece),
                             rows[1].cache + from, true);
            }
        }
    }
    cuda_end_group(); // empty behind the end, so that the count is right
}

// What fill_stage left out, at once.
template <typename T, int WIDTH>
__device__ void fill_fresh(const share &mine, const cache_rows<T> *rows, int step, int fresh,
                           uint32_t stage) {
    constexpr int PIECES = WIDTH / 8;
    const int piece = threadIdx.x % PIECES;
    if (fresh < step || fresh >= step + KEYS) {
        return;
    }
    const uint4 key = load_row(rows[0].fresh + piece * 8);
    const uint4 value = load_row(rows[1].fresh + piece * 8);
    for (int row = threadIdx.x / PIECES; row < KEYS; row += 32 / PIECES) {
        if (step + key_of(mine, step, row) == fresh) {
            store_shared(stage + place_of<WIDTH>(row, piece), key);
            store_shared(stage + KEYS * WIDTH * 2 + place_of<WIDTH>(row, piece), value);
        }
    }
}

// The first stages. Before the kernel waits for its input: what earlier steps stored is there.
template <typename T, int WIDTH>
__device__ void fill_ahead(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                           const cache_rows<T> *rows, int fresh, uint32_t ring) {
    const int step = mine.begin + static_cast<int>(threadIdx.y) * KEYS;
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ++ahead) {
        fill_stage<T, WIDTH>(call, mine, blocks, rows, step + ahead * WARPS * KEYS, fresh,
                             ring + ahead * STAGE_BYTES<WIDTH>);
    }
}

template <typename T, int WIDTH, bool IS_DEEP>
__device__ void attend(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                       const queries<WIDTH, IS_DEEP> &query, const cache_rows<T> *rows, int fresh,
                       uint32_t ring, heads_sum<WIDTH> *sum) {
    constexpr int STEP = WARPS * KEYS;
    int step = mine.begin + static_cast<int>(threadIdx.y) * KEYS;
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ++ahead) {
        fill_fresh<T, WIDTH>(mine, rows, step + ahead * STEP, fresh,
                             ring + ahead * STAGE_BYTES<WIDTH>);
    }
    int stage = 0;
    for (; step < mine.end; step += STEP) {
        const uint32_t free = ring + (stage == 0 ? AHEAD : stage - 1) * STAGE_BYTES<WIDTH>;
        __syncwarp(); // all lanes are done with the stage that is filled next
        fill_stage<T, WIDTH>(call, mine, blocks, rows, step + AHEAD * STEP, fresh, free);
        fill_fresh<T, WIDTH>(mine, rows, step + AHEAD * STEP, fresh, free);
        cuda_wait_groups<AHEAD>();
        __syncwarp();
        const uint32_t keys = ring + stage * STAGE_BYTES<WIDTH>;
        float scores[2][4] = {};
        uint32_t weights[4];
        score<T, WIDTH, IS_DEEP>(query, keys, scores);
        mask(call, mine, step, scores);
        weigh<T, WIDTH, IS_DEEP>(scores, weights, sum);
        add_values<T, WIDTH>(weights, keys + KEYS * WIDTH * 2, sum);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    cuda_wait_groups<0>();
}

// ---- putting together ---------------------------------------------------------------------------

// A head's unscaled sum [WIDTH], its largest score and its total, of a warp or of a block.
template <int WIDTH> struct head_part {
    float out[WIDTH];
    float largest;
    float total;
};

template <int WIDTH, bool IS_DEEP>
__device__ void write_part(const heads_sum<WIDTH> &sum, head_part<WIDTH> *room, int group) {
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int row = 0; row < (IS_DEEP ? 2 : 1); ++row) {
        const float total = row_sum(sum.total[row]);
        head_part<WIDTH> *part = &room[g + 8 * row];
        if (g + 8 * row < group) {
#pragma unroll
            for (int i = 0; i < WIDTH / 8; ++i) {
                // Column n of tile i % 8 is element 8n + i % 8 of its half.
                const int at = i / 8 * 64 + 16 * c + i % 8;
                part->out[at] = sum.out[i][2 * row];
                part->out[at + 8] = sum.out[i][2 * row + 1];
            }
            part->largest = sum.largest[row];
            part->total = total;
        }
    }
}

// What every part counts for in the common sum of its head, and the heads' largest score and total.
struct common {
    float share[MAX_PARTS * CUDA_DECODE_HEADS]; // of part p and head h at [p · group + h]
    float totals[MAX_PARTS * CUDA_DECODE_HEADS];
    float largest[CUDA_DECODE_HEADS];
    float total[CUDA_DECODE_HEADS];
};

// `parts` of all heads of the group, [count][group].
template <int WIDTH>
__device__ void weigh_parts(const head_part<WIDTH> *parts, int count, int group, common *out) {
    const int number = threadIdx.y * 32 + threadIdx.x;
    for (int i = number; i < count * group; i += WARPS * 32) {
        out->share[i] = parts[i].largest;
        out->totals[i] = parts[i].total;
    }
    __syncthreads();
    if (number < group) { // in the order of the parts, so that the sum is always the same
        float most = -INFINITY;
        float total = 0;
        for (int i = number; i < count * group; i += group) {
            most = fmaxf(most, out->share[i]);
        }
        for (int i = number; i < count * group; i += group) {
            out->share[i] = cuda_exp2(out->share[i] - (most == -INFINITY ? 0 : most));
            total += out->totals[i] * out->share[i];
        }
        out->largest[number] = most;
        out->total[number] = total;
    }
    __syncthreads();
}

// Element `at` of a head's common sum.
template <int WIDTH>
__device__ float gather(const head_part<WIDTH> *parts, int count, int group, int head, int at,
                        const common &all) {
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
        sum += parts[i * group + head].out[at] * all.share[i * group + head];
    }
    return sum;
}

// A sink is one more score without a value.
__device__ float with_sink(const gpu_attention_call &call, int head, float largest, float total,
                           float *factor) {
    *factor = 1;
    if (!call.sinks) {
        return total;
    }
    const float sink = gpu_load_any(call.sinks, call.sink_dtype, head) * LOG2E;
    const float most = fmaxf(largest, sink);
    *factor = cuda_exp2(largest - most);
    return total * *factor + cuda_exp2(sink - most);
}

template <typename T, int WIDTH>
__device__ void write_out(const gpu_attention_call &call, int token, int group,
                          const head_part<WIDTH> *parts, int count, common *all) {
    const int number = threadIdx.y * 32 + threadIdx.x;
    weigh_parts<WIDTH>(parts, count, group, all);
    for (int at = number; at < group * WIDTH; at += WARPS * 32) {
        const int head = at / WIDTH;
        float factor;
        const float total = with_sink(call, blockIdx.y * group + head, all->largest[head],
                                      all->total[head], &factor);
        const float sum = gather<WIDTH>(parts, count, group, head, at % WIDTH, *all);
        const int64_t row = static_cast<int64_t>(token) * call.heads + blockIdx.y * group + head;
        gpu_row<T>(call.out, row)[at % WIDTH] = gpu_round<T>(sum * factor / total);
    }
}

// This block's part to memory; true in the last block of the sequence, which sees all parts.
template <int WIDTH>
__device__ bool hand_in(const decode_call &in, int sequence, int group, int parts,
                        const head_part<WIDTH> *mine, head_part<WIDTH> *to, common *all) {
    __shared__ int is_last;
    const int number = threadIdx.y * 32 + threadIdx.x;
    weigh_parts<WIDTH>(mine, WARPS, group, all);
    for (int at = number; at < group * WIDTH; at += WARPS * 32) {
        const int head = at / WIDTH;
        to[head].out[at % WIDTH] = gather<WIDTH>(mine, WARPS, group, head, at % WIDTH, *all);
        if (at % WIDTH == 0) {
            to[head].largest = all->largest[head];
            to[head].total = all->total[head];
        }
    }
    __threadfence();
    __syncthreads();
    if (number == 0) {
        int *arrivals = in.room.arrivals + sequence * in.call.kv_heads + blockIdx.y;
        is_last = atomicAdd(arrivals, 1) == parts - 1;
        if (is_last) {
            *arrivals = 0;
        }
    }
    __syncthreads();
    __threadfence();
    return is_last != 0;
}

// The new token's key and value to their slot, by the block that has its position.
template <typename T, int WIDTH>
__device__ void store_new(const gpu_attention_call &call, int token, int64_t slot) {
    const int at = (static_cast<int>(threadIdx.x) % (WIDTH / 8)) * 8;
    const int64_t from = static_cast<int64_t>(token) * call.kv_heads + blockIdx.y;
    const int64_t to = (slot * call.kv_heads + blockIdx.y) * WIDTH + at;
    if (threadIdx.y == 0 && threadIdx.x < WIDTH / 8) {
        *reinterpret_cast<uint4 *>(static_cast<T *>(call.key_cache) + to) =
            load_row(gpu_row<const T>(call.key, from) + at);
    }
    if (threadIdx.y == 1 && threadIdx.x < WIDTH / 8) {
        *reinterpret_cast<uint4 *>(static_cast<T *>(call.value_cache) + to) =
            load_row(gpu_row<const T>(call.value, from) + at);
    }
}

// Shared memory: the rings; after the last key what replaces them.
template <int WIDTH> constexpr uint32_t RING_BYTES = WARPS *STAGES *STAGE_BYTES<WIDTH>;
template <int WIDTH>
constexpr uint32_t AFTER_BYTES = sizeof(common) + WARPS *CUDA_DECODE_HEADS *
                                                      sizeof(head_part<WIDTH>);

// Where the block's rows are, and the position that is not in the cache yet, or STORED.
template <typename T> struct source {
    cache_rows<T> rows[2];
    int fresh;
};

template <typename T, int WIDTH>
__device__ source<T> source_of(const gpu_attention_call &call, int token, int fresh) {
    const int64_t gap = static_cast<int64_t>(call.kv_heads) * WIDTH;
    const int64_t own = static_cast<int64_t>(blockIdx.y) * WIDTH;
    const int64_t row = static_cast<int64_t>(token) * call.kv_heads + blockIdx.y;
    return source<T>{
        {{static_cast<const T *>(call.key_cache) + own, gpu_row<const T>(call.key, row), gap},
         {static_cast<const T *>(call.value_cache) + own, gpu_row<const T>(call.value, row), gap}},
        fresh,
    };
}

template <typename T, int WIDTH, bool IS_DEEP>
__global__ void __launch_bounds__(WARPS * 32, 2) decode_kernel(decode_call in) {
    extern __shared__ __align__(128) unsigned char shared[];
    gpu_let_next_begin();
    const gpu_attention_call &call = in.call;
    const int sequence = blockIdx.z;
    // Why before the wait: a batch's arrays, and in steps of one new token a sequence all of the
    // cache that is read, were written before the step's first kernel began.
    const int token = in.room.is_plain ? sequence : call.starts[sequence];
    const int group = call.heads / call.kv_heads;
    const share mine = share_of(call, sequence, in.room.splits);
    if (mine.begin >= mine.end && blockIdx.x > 0) {
        return; // the first block of a sequence waits for the kernel before this one
    }
    const int64_t slot = in.room.is_plain ? call.slots[token] : -1;
    const source<T> from = source_of<T, WIDTH>(call, token, slot >= 0 ? mine.position : STORED);
    const int32_t *blocks = call.block_table + sequence * call.table_stride;
    const uint32_t ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared)) +
                          threadIdx.y * STAGES * STAGE_BYTES<WIDTH>;
    if (in.room.is_plain) {
        fill_ahead<T, WIDTH>(call, mine, blocks, from.rows, from.fresh, ring);
    }
    gpu_wait_for_inputs();
    if (!in.room.is_plain) {
        if (call.starts[sequence + 1] - token != 1) {
            return;
        }
        fill_ahead<T, WIDTH>(call, mine, blocks, from.rows, from.fresh, ring);
    }
    if (slot >= 0 && mine.end == mine.position + 1) {
        store_new<T, WIDTH>(call, token, slot);
    }
    const queries<WIDTH, IS_DEEP> query = load_queries<T, WIDTH, IS_DEEP>(call, token, group);
    heads_sum<WIDTH> sum = {};
    sum.largest[0] = sum.largest[1] = -INFINITY;
    attend<T, WIDTH, IS_DEEP>(call, mine, blocks, query, from.rows, from.fresh, ring, &sum);
    __syncthreads();
    common *all = reinterpret_cast<common *>(shared);
    head_part<WIDTH> *parts = reinterpret_cast<head_part<WIDTH> *>(shared + sizeof(common));
    write_part<WIDTH, IS_DEEP>(sum, parts + threadIdx.y * group, group);
    __syncthreads();
    if (mine.parts == 1) {
        write_out<T, WIDTH>(call, token, group, parts, WARPS, all);
        return;
    }
    head_part<WIDTH> *handed =
        reinterpret_cast<head_part<WIDTH> *>(in.room.parts) +
        (static_cast<int64_t>(sequence) * call.kv_heads + blockIdx.y) * in.room.splits * group;
    head_part<WIDTH> *own_part = handed + static_cast<int64_t>(blockIdx.x) * group;
    if (hand_in<WIDTH>(in, sequence, group, mine.parts, parts, own_part, all)) {
        write_out<T, WIDTH>(call, token, group, handed, mine.parts, all);
    }
}

template <typename T, int WIDTH, bool IS_DEEP>
berth_status launch(const gpu_op *op, const decode_call &in) {
    constexpr uint32_t bytes =
        RING_BYTES < WIDTH >> AFTER_BYTES<WIDTH> ? RING_BYTES<WIDTH> : AFTER_BYTES<WIDTH>;
    const cudaError_t error = cudaFuncSetAttribute(
        decode_kernel<T, WIDTH, IS_DEEP>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                 bytes, cudaGetErrorString(error));
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(in.room.splits),
                                static_cast<unsigned>(in.call.kv_heads),
                                static_cast<unsigned>(in.call.sequences)),
                           dim3(32, WARPS), bytes};
    return gpu_run(op, "paged_attention's decode", grid, decode_kernel<T, WIDTH, IS_DEEP>, in);
}

template <typename T, int WIDTH> berth_status start(const gpu_op *op, const decode_call &in) {
    return in.call.heads / in.call.kv_heads > 8 ? launch<T, WIDTH, true>(op, in)
                                                : launch<T, WIDTH, false>(op, in);
}

template <typename T> berth_status start(const gpu_op *op, const decode_call &in) {
    return in.call.width == 128 ? start<T, 128>(op, in) : start<T, 64>(op, in);
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
