// SPDX-License-Identifier: Apache-2.0
// How the blocks of a product of some rows divide it: units, each a step of the depth of one tile
// of outputs, tile after tile, as many to each block as to any other. So a tile may be made by
// several blocks, in the order of their numbers. Only batch_kernel.h includes this.
#ifndef BERTH_KERNELS_CUDA_CODES_BATCH_SHARE_H
#define BERTH_KERNELS_CUDA_CODES_BATCH_SHARE_H

#include <cuda/codes/batch.h>

namespace {

// A unit. Why not its number alone: to divide it takes longer than to multiply.
struct unit_place {
    int tile;
    int step;

    __device__ void go_on(int steps) {
        step = step + 1 == steps ? 0 : step + 1;
        tile += step == 0;
    }
};

// Blocks that have units of a tile: `first` and `count` of them on. Of the first the tile may be
// its last and not its first.
struct makers {
    int first;
    int count;
    int is_last_of_first;
};

struct share {
    int steps; // of the depth
    int units; // of all tiles
    int begin; // of this block
    int end;

    __device__ share(const cuda_coded &all, int unit_bytes) {
        steps = (all.bytes + unit_bytes - 1) / unit_bytes;
        units = cuda_batch_tiles(all.outputs) * steps;
        begin = begin_of(static_cast<int>(blockIdx.x));
        end = begin_of(static_cast<int>(blockIdx.x) + 1);
    }
    __device__ int begin_of(int block) const {
        return static_cast<int>(static_cast<uint32_t>(units) * static_cast<uint32_t>(block) /
                                gridDim.x);
    }
    __device__ int count() const {
        return end - begin;
    }
    __device__ unit_place place_of(int unit) const {
        return {unit / steps, unit % steps};
    }
    // The block that has the unit.
    __device__ int owner(int unit) const {
        int block = static_cast<int>(static_cast<uint32_t>(unit) * gridDim.x /
                                     static_cast<uint32_t>(units));
        while (begin_of(block + 1) <= unit) {
            ++block;
        }
        return block;
    }
    __device__ makers makers_of(int tile) const {
        const int first = owner(tile * steps);
        return {first, owner(tile * steps + steps - 1) - first + 1, begin_of(first) < tile * steps};
    }
};

} // namespace

#endif
