// SPDX-License-Identifier: Apache-2.0
// The kernel of products of some rows by codes: batch_packed.cu and batch_scaled.cu give it what
// they multiply, a kind K. Blocks, one a multiprocessor, share the work evenly (batch_share.h). One
// thread brings a unit of codes and of x at a time into a ring, the first codes before it waits for
// x; two groups of four warps have 128 outputs of a tile each. Sums of a tile that several blocks
// make are exchanged through memory, where each block adds up a share of them, always in the same
// order.
#ifndef BERTH_KERNELS_CUDA_CODES_BATCH_KERNEL_H
#define BERTH_KERNELS_CUDA_CODES_BATCH_KERNEL_H

#include <cuda/codes/batch_share.h>
#include <cuda/codes/batch_wgmma.h>
#include <cuda/order.h>
#include <cuda/tile.h>

#include <algorithm>

namespace {

constexpr int GROUPS = 2;             // that multiply
constexpr int THREADS = GROUPS * 128; // of them
constexpr int HALVES = 2;             // of a group's outputs, 64 each
constexpr int MOST_STAGES = 10;
constexpr uint32_t RING_BYTES = 200 << 10; // at most
constexpr int BRINGING_REGISTERS = 24;
constexpr int MULTIPLYING_REGISTERS = 240;

struct batch_call {
    cuda_coded all;
    cuda_batch_room room;
};

// K::UNIT_BYTES: of a row of the weight. K::X_PANELS: of a unit's x.
template <typename K> constexpr uint32_t WEIGHT_BYTES = CUDA_BATCH_TILE *K::UNIT_BYTES;
template <typename K> constexpr uint32_t PANEL_BYTES = K::ROWS * 128;
template <typename K>
constexpr uint32_t STAGE_BYTES = WEIGHT_BYTES<K> + K::X_PANELS *PANEL_BYTES<K>;
template <typename K>
constexpr int STAGES =
    RING_BYTES / STAGE_BYTES<K> < MOST_STAGES ? RING_BYTES / STAGE_BYTES<K> : MOST_STAGES;

// What an output's results take beside their sums.
struct output_ends {
    float scale;
    float more;
};

__device__ float bias_of(const cuda_coded &all, int output) {
    return all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f;
}

// Addresses of shared memory; barriers of stage 0.
struct ring {
    uint32_t memory;
    uint32_t full;
    uint32_t empty;
};

// A warp is done with a stage.
__device__ void release(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) {
        cuda_barrier_arrive(barrier);
    }
}

// Which stage is next, and the parity of its phase.
struct place {
    int stage;
    uint32_t parity;

    __device__ void go_on(int stages) {
        stage = stage + 1 == stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

// ---- the thread that brings ---------------------------------------------------------------------

template <typename K>
__device__ void bring_weight(const ring &to, const CUtensorMap *weight, const unit_place &unit,
                             int stage) {
    cuda_barrier_expect(to.full + 8 * stage, STAGE_BYTES<K>);
    cuda_tile_stream(to.memory + stage * STAGE_BYTES<K>, weight, unit.step * K::UNIT_BYTES,
                     unit.tile * CUDA_BATCH_TILE, to.full + 8 * stage);
}

template <typename K>
__device__ void bring_x(const ring &to, const CUtensorMap *x, const unit_place &unit, int stage) {
    const uint32_t memory = to.memory + stage * STAGE_BYTES<K> + WEIGHT_BYTES<K>;
#pragma unroll
    for (int panel = 0; panel < K::X_PANELS; ++panel) {
        cuda_tile_copy(memory + panel * PANEL_BYTES<K>, x,
                       (unit.step * K::X_PANELS + panel) * K::PANEL_COLUMNS, 0,
                       to.full + 8 * stage);
    }
}

template <typename K>
__device__ void bring(const share &of, const ring &to, const CUtensorMap *weight,
                      const CUtensorMap *x) {
    const int ahead = min(STAGES<K>, of.count());
    unit_place unit = of.place_of(of.begin);
    for (int i = 0; i < ahead; ++i) {
        bring_weight<K>(to, weight, unit, i);
        unit.go_on(of.steps);
    }
    gpu_wait_for_inputs();
    unit = of.place_of(of.begin);
    for (int i = 0; i < ahead; ++i) {
        bring_x<K>(to, x, unit, i);
        unit.go_on(of.steps);
    }
    place at = {0, 0};
    for (int i = ahead; i < of.count(); ++i) {
        cuda_barrier_wait(to.empty + 8 * at.stage, at.parity);
        bring_weight<K>(to, weight, unit, at.stage);
        bring_x<K>(to, x, unit, at.stage);
        unit.go_on(of.steps);
        at.go_on(STAGES<K>);
    }
}

// ---- the groups that multiply -------------------------------------------------------------------

__device__ void wait_for_all() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// Sums of a thread: of each half of its group's outputs K::ROWS / 2, as the tensor core has them.
// Four of them are a quad: outputs g and g + 8 of rows 2c and 2c + 1 of eight.
template <typename K> struct multiplier {
    static constexpr int COUNT = K::ROWS / 2;
    static constexpr int QUADS = HALVES * COUNT / 4;
    static constexpr int AT_ONCE = QUADS < 4 ? QUADS : 4; // quads of a part on their way together
    const batch_call &in;
    const share &of;
    const ring &from;
    K kind;
    place at = {0, 0};
    uint64_t before_first; // of the first thread: arrivals before the block's, at its first tile,
    uint64_t before_last;  // at its last
    float totals[HALVES][COUNT];

    __device__ int output_of(int tile, int half) const { // the lane's first
        const int warp = static_cast<int>(threadIdx.x) / 32;
        return tile * CUDA_BATCH_TILE + warp / 4 * 128 + half * 64 + warp % 4 * 16 +
               static_cast<int>(threadIdx.x) % 32 / 4;
    }
    __device__ float4 *part_of(int block, int is_last) const {
        const int64_t number = static_cast<int64_t>(block) * CUDA_BATCH_HELD + is_last;
        return reinterpret_cast<float4 *>(in.room.parts) + number * QUADS * THREADS + threadIdx.x;
    }
    // What results of a tile's outputs take beside their sums, before these are waited for.
    __device__ void prepare(int tile, output_ends *ends) const {
#pragma unroll
        for (int i = 0; i < HALVES * 2; ++i) {
            const int output = min(output_of(tile, i / 2) + i % 2 * 8, in.all.outputs - 1);
            ends[i] = K::prepare(in.all, output);
        }
    }
    __device__ void finish(int tile, int quad, const float4 &sums, const output_ends *ends) {
        const int row = quad % (COUNT / 4) * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
        const float of_quad[4] = {sums.x, sums.y, sums.z, sums.w};
        const int is_second = quad / (COUNT / 4);
        const int output = output_of(tile, is_second);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int own = output + i / 2 * 8;
            const output_ends end = is_second ? ends[2 + i / 2] : ends[i / 2];
            if (row + i % 2 < in.all.rows && own < in.all.outputs) {
                kind.store(in.all, row + i % 2, own, of_quad[i], end);
            }
        }
    }
    __device__ float4 quad_of(int quad) const {
        const float *sums = totals[quad / (COUNT / 4)] + quad % (COUNT / 4) * 4;
        return float4{sums[0], sums[1], sums[2], sums[3]};
    }
    // The tile is done as far as this block has it.
    __device__ void hand_in(int tile) {
        const bool is_last = tile * of.steps > of.begin;
        if (tile * of.steps >= of.begin && (tile + 1) * of.steps <= of.end) {
            output_ends ends[HALVES * 2];
            prepare(tile, ends);
#pragma unroll
            for (int quad = 0; quad < QUADS; ++quad) {
                finish(tile, quad, quad_of(quad), ends);
            }
            return;
        }
        float4 *part = part_of(static_cast<int>(blockIdx.x), is_last);
#pragma unroll
        for (int quad = 0; quad < QUADS; ++quad) {
            part[quad * THREADS] = quad_of(quad);
        }
        wait_for_all();
        if (threadIdx.x == 0) {
            const uint64_t before = cuda_arrive(in.room.arrivals + tile);
            before_first = is_last ? before_first : before;
            before_last = is_last ? before : before_last;
        }
    }
    // Quads `first` and on of a tile, added up in the order of its makers. `first_part` is the
    // first maker's.
    __device__ void add_parts(const makers &by, int first, int count, float4 *sums) const {
        const float4 *part = part_of(by.first, by.is_last_of_first);
        const float4 *next = part_of(by.first + 1, 0);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            sums[i] = i < count ? __ldcg(part + (first + i) * THREADS) : float4{0, 0, 0, 0};
        }
#pragma unroll 4
        for (int maker = 1; maker < by.count; ++maker) {
            float4 more[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                more[i] = i < count ? __ldcg(next + (first + i) * THREADS) : float4{0, 0, 0, 0};
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                sums[i] = float4{sums[i].x + more[i].x, sums[i].y + more[i].y,
                                 sums[i].z + more[i].z, sums[i].w + more[i].w};
            }
            next += CUDA_BATCH_HELD * QUADS * THREADS;
        }
    }
    // This block's share of a tile that others make, too.
    __device__ void put_together(int tile) {
        const makers by = of.makers_of(tile);
        output_ends ends[HALVES * 2];
        if (by.count == 1) {
            return;
        }
        prepare(tile, ends);
        if (threadIdx.x == 0) {
            const uint64_t makers_of_all = static_cast<uint64_t>(by.count);
            const uint64_t arrived = tile * of.steps > of.begin ? before_last : before_first;
            cuda_await(in.room.arrivals + tile, (arrived / makers_of_all + 1) * makers_of_all);
        }
        wait_for_all();
        const int own = static_cast<int>(blockIdx.x) - by.first;
        const int end = QUADS * (own + 1) / by.count;
        for (int quad = QUADS * own / by.count; quad < end; quad += AT_ONCE) {
            float4 sums[AT_ONCE];
            add_parts(by, quad, end - quad, sums);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                if (quad + i < end) {
                    finish(tile, quad + i, sums[i], ends);
                }
            }
        }
    }
    __device__ void run() {
        unit_place unit = of.place_of(of.begin);
        kind.begin(in.all, of, unit);
        for (int i = 0; i < of.count(); ++i) {
            if (i == 0 || unit.step == 0) {
#pragma unroll
                for (int j = 0; j < HALVES * COUNT; ++j) {
                    totals[j / COUNT][j % COUNT] = 0;
                }
            }
            const uint32_t stage = from.memory + static_cast<uint32_t>(at.stage) * STAGE_BYTES<K>;
            kind.fetch(in.all, of, i);
            cuda_barrier_wait(from.full + 8 * at.stage, at.parity);
            kind.multiply(stage, from.empty + 8 * at.stage, totals);
            at.go_on(STAGES<K>);
            if (i + 1 == of.count() || unit.step + 1 == of.steps) {
                kind.end(totals);
                hand_in(unit.tile);
            }
            unit.go_on(of.steps);
        }
        // Why only now: this kernel takes all registers of the multiprocessors that it runs on, so
        // blocks of the next one would come to lie on the few that it leaves free, several on each.
        gpu_let_next_begin();
        const int first = of.begin / of.steps;
        const int last = (of.end - 1) / of.steps;
        put_together(first);
        if (last != first) {
            put_together(last);
        }
    }
};

template <typename K>
__global__ void __launch_bounds__(THREADS + 128, 1)
    batch_kernel(batch_call in, const __grid_constant__ CUtensorMap weight,
                 const __grid_constant__ CUtensorMap x) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * MOST_STAGES];
    __shared__ float of_rows[CUDA_BATCH_ROWS];
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const ring stages = {static_cast<uint32_t>(__cvta_generic_to_shared(shared)), signal,
                         signal + 8 * MOST_STAGES};
    const share of(in.all, K::UNIT_BYTES);
    if (threadIdx.x == THREADS) {
        for (int stage = 0; stage < STAGES<K>; ++stage) {
            cuda_barrier_init(stages.full + 8 * stage, 1);
            cuda_barrier_init(stages.empty + 8 * stage, THREADS / 32);
        }
        cuda_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x >= THREADS) {
        cuda_give_back<BRINGING_REGISTERS>();
        if (threadIdx.x == THREADS) {
            bring<K>(of, stages, &weight, &x);
        }
        return;
    }
    cuda_ask_for<MULTIPLYING_REGISTERS>();
    multiplier<K> self = {in, of, stages};
    gpu_wait_for_inputs();
    self.kind.keep_rows(in.all, of_rows);
    wait_for_all();
    self.run();
}

// ---- the host's side ----------------------------------------------------------------------------

// A matrix of rows of bytes or 16-bit elements, of which a box has `columns` by `rows`; what is
// behind its end is zeros.
struct boxed {
    const void *data;
    int64_t rows;
    int64_t row_bytes;
    int64_t gap; // bytes
    int box_rows;
    int box_columns;
    CUtensorMapDataType type;
    CUtensorMapSwizzle order;
};

bool describe(const boxed &matrix, CUtensorMap *out) {
    static const cuda_tile_encode encode = cuda_find_tile_encode();
    const cuuint64_t width = matrix.type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
    const cuuint64_t row_bytes = static_cast<cuuint64_t>(matrix.row_bytes);
    const cuuint64_t sizes[2] = {row_bytes / width, static_cast<cuuint64_t>(matrix.rows)};
    const cuuint64_t gaps[1] = {static_cast<cuuint64_t>(matrix.gap)};
    const cuuint32_t box[2] = {static_cast<cuuint32_t>(matrix.box_columns),
                               static_cast<cuuint32_t>(matrix.box_rows)};
    const cuuint32_t steps[2] = {1, 1};
    return encode &&
           encode(out, matrix.type, 2, const_cast<void *>(matrix.data), sizes, gaps, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, matrix.order, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// As many as run at once; a few less where every tile then has its own, or each the same number:
// what blocks exchange costs more than a sixth of the multiprocessors, which cannot use the memory
// any faster.
int blocks_for(int tiles, int steps, int most) {
    const int each = tiles < most ? std::min(most / tiles, steps) : 1;
    const int whole = tiles * each;
    return whole <= most && whole * 6 >= most * 5 ? whole : std::min(tiles * steps, most);
}

template <typename K>
berth_status launch(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room) {
    constexpr uint32_t BYTES = STAGES<K> * STAGE_BYTES<K>;
    const auto kernel = batch_kernel<K>;
    const int blocks = blocks_for(cuda_batch_tiles(all.outputs),
                                  static_cast<int>(gpu_ceil(all.bytes, K::UNIT_BYTES)),
                                  op->gpu->multiprocessors[op->device]);
    CUtensorMap weight = {};
    CUtensorMap x = {};
    const int64_t x_bytes = int64_t{all.bytes} * K::X_PANELS * 128 / K::UNIT_BYTES;
    const boxed of_weight = {all.weight,
                             all.outputs,
                             all.bytes,
                             all.bytes,
                             CUDA_BATCH_TILE,
                             K::UNIT_BYTES,
                             CU_TENSOR_MAP_DATA_TYPE_UINT8,
                             K::WEIGHT_ORDER};
    const boxed of_x = {all.x,   all.rows,         x_bytes,   all.x_gap,
                        K::ROWS, K::PANEL_COLUMNS, K::X_TYPE, CU_TENSOR_MAP_SWIZZLE_128B};
    if (!describe(of_weight, &weight) || !describe(of_x, &x)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                 "the driver does not describe a product's tiles");
    }
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    if (error != cudaSuccess) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                 BYTES, cudaGetErrorString(error));
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(blocks)), dim3(THREADS + 128), BYTES};
    return gpu_run(op, "a product of codes", grid, kernel, batch_call{all, room}, weight, x);
}

} // namespace

#endif
