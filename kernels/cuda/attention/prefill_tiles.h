// SPDX-License-Identifier: Apache-2.0
// Tiles of 128 keys or values with 128 elements each on their way from the cache to the tensor
// cores of Hopper: four warps bring them into a ring, a quarter of each tile a warp, the others
// wait for a tile and release it. Which tile of its ring it is, is said by its turn: 0, 1, 2 …
//
// Why four: a copy of 16 keys and 64 elements costs the warp that begins it so much that one warp
// alone would leave the tensor cores idle half of the time.
#ifndef BERTH_KERNELS_CUDA_PREFILL_TILES_H
#define BERTH_KERNELS_CUDA_PREFILL_TILES_H

#include <cuda/attention/prefill.h>
#include <cuda/tile.h>
#include <cuda/wgmma.h>

#define CUDA_KEYS        128 // of a tile
#define CUDA_KEYS_WIDTH  128
#define CUDA_KEYS_ROWS   16                 // that a copy brings: no block of the cache is smaller
#define CUDA_KEYS_PANEL  (CUDA_KEYS * 128u) // bytes of 64 elements of all keys
#define CUDA_KEYS_BYTES  (2 * CUDA_KEYS_PANEL)
#define CUDA_KEYS_STAGES 2
#define CUDA_KEYS_WARPS  4                             // that bring them
#define CUDA_KEYS_SHARE  (CUDA_KEYS / CUDA_KEYS_WARPS) // keys of a tile that one of them brings
// Barriers: the stages are full, the stages are empty, an edge has landed.
#define CUDA_KEYS_RING_SIGNALS (2 * CUDA_KEYS_STAGES + 1)
#define CUDA_KEYS_SIGNALS      (2 * CUDA_KEYS_RING_SIGNALS)

struct cuda_keys_ring {
    uint32_t tiles;
    uint32_t signals;
};

static __device__ inline uint32_t cuda_keys_full(const cuda_keys_ring &ring, int turn) {
    return ring.signals + 8u * static_cast<uint32_t>(turn % CUDA_KEYS_STAGES);
}

static __device__ inline uint32_t cuda_keys_empty(const cuda_keys_ring &ring, int turn) {
    return cuda_keys_full(ring, turn) + 8u * CUDA_KEYS_STAGES;
}

static __device__ inline uint32_t cuda_keys_landed(const cuda_keys_ring &ring) {
    return ring.signals + 16u * CUDA_KEYS_STAGES;
}

static __device__ inline uint32_t cuda_keys_tile(const cuda_keys_ring &ring, int turn) {
    return ring.tiles + CUDA_KEYS_BYTES * static_cast<uint32_t>(turn % CUDA_KEYS_STAGES);
}

// By one thread; `warps` release a tile.
static __device__ inline void cuda_keys_init(const cuda_keys_ring &ring, uint32_t warps) {
    for (int stage = 0; stage < CUDA_KEYS_STAGES; ++stage) {
        cuda_barrier_init(cuda_keys_full(ring, stage), CUDA_KEYS_WARPS);
        cuda_barrier_init(cuda_keys_empty(ring, stage), warps);
    }
    cuda_barrier_init(cuda_keys_landed(ring), CUDA_KEYS_WARPS);
}

// The tile, when it is there.
static __device__ inline uint32_t cuda_keys_wait(const cuda_keys_ring &ring, int turn) {
    cuda_barrier_wait(cuda_keys_full(ring, turn), turn / CUDA_KEYS_STAGES % 2);
    return cuda_keys_tile(ring, turn);
}

// By every warp, once its products have read the tile.
static __device__ inline void cuda_keys_release(const cuda_keys_ring &ring, int turn) {
    cuda_barrier_arrive_warp(cuda_keys_empty(ring, turn));
}

// ---- the warps that bring them ------------------------------------------------------------------

struct cuda_keys_source {
    const gpu_attention_call *call;
    const CUtensorMap *map;
    const cuda_task *job;
    cuda_keys_ring ring;
};

// The warp's first key in a tile.
static __device__ inline int cuda_keys_begin() {
    return static_cast<int>(threadIdx.x) / 32 % CUDA_KEYS_WARPS * CUDA_KEYS_SHARE;
}

// The copies of a tile begin, counted at `signal`: 16 keys and 64 elements a lane. Keys that no
// query of the block sees are not read, but for those among 16 that one sees.
static __device__ inline void cuda_keys_bring(const cuda_keys_source &from, int turn,
                                              uint32_t signal) {
    const gpu_attention_call &call = *from.call;
    const int lane = threadIdx.x % 32;
    const int row = cuda_keys_begin() + lane / 2 * CUDA_KEYS_ROWS;
    const int key = from.job->begin_key + turn * CUDA_KEYS + row;
    const bool is_mine = lane < 2 * CUDA_KEYS_SHARE / CUDA_KEYS_ROWS && key < from.job->end_key &&
                         key + CUDA_KEYS_ROWS > from.job->first_key;
    const int32_t *blocks = call.block_table + from.job->sequence * call.table_stride;
    const int64_t slot = is_mine ? cuda_slot(call, blocks, key) : 0;
    const int head = blockIdx.x / (call.heads / call.kv_heads);
    const int count = __popc(__ballot_sync(0xffffffffu, is_mine));
    if (lane == 0) {
        // The first round waits for nobody.
        cuda_barrier_wait(cuda_keys_empty(from.ring, turn), turn / CUDA_KEYS_STAGES % 2 ^ 1);
        cuda_barrier_expect(signal, static_cast<uint32_t>(count) * CUDA_KEYS_ROWS * 128);
    }
    __syncwarp();
    if (is_mine) {
        cuda_tile_copy(cuda_keys_tile(from.ring, turn) + lane % 2 * CUDA_KEYS_PANEL + row * 128,
                       from.map, head * CUDA_KEYS_WIDTH + lane % 2 * 64, static_cast<int>(slot),
                       signal);
    }
}

// Zeros in the warp's rows of the tile that no query of the block sees. Why: a weight of 0 does not
// hide what another sequence may have left there, if it is not finite.
static __device__ inline void cuda_keys_clear(const cuda_keys_source &from, int turn) {
    const int first = from.job->begin_key + turn * CUDA_KEYS;
    const int piece = threadIdx.x % 16;
    const uint32_t tile = cuda_keys_tile(from.ring, turn) + piece / 8 * CUDA_KEYS_PANEL;
    for (int i = threadIdx.x % 32 / 16; i < CUDA_KEYS_SHARE; i += 2) {
        const int row = cuda_keys_begin() + i;
        if (first + row < from.job->first_key || first + row >= from.job->end_key) {
            asm volatile(
                "st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(tile + row * 128 + piece % 8 * 16),
                "r"(0)
                : "memory");
        }
    }
    cuda_publish_shared();
    __syncwarp();
}

// The same for values: an edge of what the block sees is full when it is cleared.
static __device__ inline void cuda_keys_bring_values(const cuda_keys_source &from, int turn,
                                                     int *edges) {
    const int first = from.job->begin_key + turn * CUDA_KEYS;
    const uint32_t full = cuda_keys_full(from.ring, turn);
    const uint32_t landed = cuda_keys_landed(from.ring);
    if (first >= from.job->first_key && first + CUDA_KEYS <= from.job->end_key) {
        cuda_keys_bring(from, turn, full);
        return;
    }
    cuda_keys_bring(from, turn, landed);
    cuda_barrier_wait(landed, *edges % 2);
    ++*edges;
    cuda_keys_clear(from, turn);
    cuda_barrier_arrive_warp(full);
}

// In the order of their use: a tile's values after the next tile's keys.
static __device__ inline void cuda_keys_bring_all(const cuda_keys_source &keys,
                                                  const cuda_keys_source &values) {
    const cuda_task &job = *keys.job;
    const int count = (job.end_key - job.begin_key + CUDA_KEYS - 1) / CUDA_KEYS;
    int edges = 0;
    for (int turn = 0; turn <= count; ++turn) {
        if (turn < count) {
            cuda_keys_bring(keys, turn, cuda_keys_full(keys.ring, turn));
        }
        if (turn > 0) {
            cuda_keys_bring_values(values, turn - 1, &edges);
        }
    }
}

#endif
