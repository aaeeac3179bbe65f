// SPDX-License-Identifier: Apache-2.0
// Recurrences on a GPU that keep a matrix per sequence and head: ssd and gated_delta_rule. A warp
// has some rows of a matrix in registers, its lanes every 32nd column, from the first token of a
// sequence to its last. kernels/matrices.h says where matrices are.
#ifndef BERTH_KERNELS_GPU_HEADS_H
#define BERTH_KERNELS_GPU_HEADS_H

#include "sequences.h"

#define GPU_HEADS_WARPS 4   // of a block
#define GPU_HEADS_ROWS  4   // of a warp
#define GPU_HEADS_MOST  256 // columns of a matrix

struct gpu_heads_matrices {
    const void *from; // NULL: they begin with zeros
    berth_dtype from_dtype;
    void *to;
    berth_dtype to_dtype;
    bool is_function; // numbered by sequence and given back even where nothing is new
    int heads;
    int rows;
    int columns;
};

// Rows of a tensor by token and head; strides in elements.
struct gpu_heads_field {
    void *data;
    int64_t token;
    int64_t head;
};

template <typename T>
static __device__ inline T *gpu_heads_at(const gpu_heads_field &field, int64_t token,
                                         int64_t head) {
    return static_cast<T *>(field.data) + token * field.token + head * field.head;
}

// Where a warp is: blockIdx.x: which rows; blockIdx.y: the head; blockIdx.z: the sequence.
struct gpu_heads_place {
    gpu_sequence sequence;
    int head;
    int row;       // the warp's first
    int64_t first; // element of it in the matrices
    bool is_there; // false: nothing to do
};

static __device__ inline gpu_heads_place gpu_heads_find(const gpu_sequences &sequences,
                                                        const gpu_heads_matrices &all) {
    gpu_heads_place out;
    out.sequence = gpu_sequence_at(sequences, static_cast<int>(blockIdx.z));
    out.head = static_cast<int>(blockIdx.y);
    out.row = (static_cast<int>(blockIdx.x) * GPU_HEADS_WARPS + static_cast<int>(threadIdx.y)) *
              GPU_HEADS_ROWS;
    const int64_t slot = all.is_function ? blockIdx.z : out.sequence.slot;
    out.first = ((slot * all.heads + out.head) * all.rows + out.row) * all.columns;
    out.is_there = out.row < all.rows && slot >= 0 &&
                   (all.is_function || out.sequence.end > out.sequence.first);
    return out;
}

// The warp's part of a matrix: element [r][j] is row r, column lane + 32 · j; zeros beyond.
template <int PER> struct gpu_heads_part {
    float at[GPU_HEADS_ROWS][PER];

    __device__ void load(const gpu_heads_matrices &all, const gpu_heads_place &place) {
        const bool has = all.from && (all.is_function || place.sequence.has_state);
#pragma unroll
        for (int i = 0; i < GPU_HEADS_ROWS * PER; ++i) {
            const int64_t index = index_of(all, place, i);
            at[i / PER][i % PER] =
                has && index >= 0 ? gpu_load_any(all.from, all.from_dtype, index) : 0.0f;
        }
    }
    __device__ void store(const gpu_heads_matrices &all, const gpu_heads_place &place) const {
#pragma unroll
        for (int i = 0; i < GPU_HEADS_ROWS * PER; ++i) {
            const int64_t index = index_of(all, place, i);
            if (index >= 0) {
                gpu_store_any(all.to, all.to_dtype, index, at[i / PER][i % PER]);
            }
        }
    }
    // Where the lane's element i lies in the matrices, −1: beyond them.
    __device__ static int64_t index_of(const gpu_heads_matrices &all, const gpu_heads_place &place,
                                       int i) {
        const int row = i / PER;
        const int column = static_cast<int>(threadIdx.x) + 32 * (i % PER);
        return place.row + row < all.rows && column < all.columns
                   ? place.first + row * all.columns + column
                   : -1;
    }
};

// A row of columns, one for each of the lane's; zeros beyond.
template <typename T, int PER>
static __device__ inline void gpu_heads_load(const T *from, int columns, float *out) {
#pragma unroll
    for (int j = 0; j < PER; ++j) {
        const int column = static_cast<int>(threadIdx.x) + 32 * j;
        out[j] = column < columns ? gpu_float(from[column]) : 0.0f;
    }
}

// ---- the host's side ----------------------------------------------------------------------------

struct gpu_heads : gpu_op {
    uint64_t group; // of caches
    int flag;       // the op's one attribute that is a question
};

static inline berth_status gpu_heads_new(const berth_op_site *site, const berth_device *device,
                                         const char *flag, void **out_self) {
    const berth_status status = gpu_new<gpu_heads>(site, device, out_self);
    if (status == BERTH_OK) {
        gpu_heads *self = static_cast<gpu_heads *>(*out_self);
        self->group = site->cache_group;
        self->flag = berth_site_attribute(site, flag)->i64 != 0;
    }
    return status;
}

// Inputs of a function: where sequences begin, their first matrices. NULL: it was not given them.
struct gpu_heads_inputs {
    const berth_tensor *starts;
    const berth_tensor *initial;
};

// Completes matrices whose sizes are set.
static inline berth_status gpu_heads_open(const gpu_heads *op, const berth_op_args *args,
                                          const gpu_heads_inputs &from, gpu_heads_matrices *out,
                                          gpu_sequences *out_sequences) {
    const berth_tensor *to = from.starts ? args->outputs[1] : args->states[0];
    const berth_tensor *first = from.starts ? from.initial : to;
    if (!to) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_INVALID_ARGUMENT,
                                 "needs 'cu_seqlens' or the state 'ssm_states'");
    }
    out->from = first ? berth_gpu_data(first) : nullptr;
    out->from_dtype = first ? first->dtype : to->dtype;
    out->to = berth_gpu_data(to);
    out->to_dtype = to->dtype;
    out->is_function = from.starts != nullptr;
    return gpu_sequences_open(op, args->batch, op->group, {from.starts, nullptr, nullptr},
                              out_sequences);
}

static inline gpu_heads_field gpu_heads_field_of(const berth_tensor *x) {
    const int32_t token = x->ndim == 4 ? 1 : 0; // behind an optional 1
    return gpu_heads_field{berth_gpu_data(x), x->strides[token],
                           x->ndim - token == 3 ? x->strides[token + 1] : 0};
}

static inline gpu_grid gpu_heads_grid(const gpu_heads_matrices &all, int sequences) {
    return gpu_grid{dim3(gpu_ceil(all.rows, GPU_HEADS_WARPS * GPU_HEADS_ROWS),
                         static_cast<unsigned>(all.heads), static_cast<unsigned>(sequences)),
                    dim3(32, GPU_HEADS_WARPS), 0};
}

static inline berth_status gpu_heads_check(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[input];
    return type->dims[type->ndim - 1].b <= GPU_HEADS_MOST
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "matrices of at most %d columns",
                                   GPU_HEADS_MOST);
}

#endif
