// SPDX-License-Identifier: Apache-2.0
// Attention of an encoder on a GPU: every token sees tokens of its own segment, on either side, and
// nothing is cached. For mm_encoder_attn, varlen_encoder_attention and rel_pos_attn; the kernel is
// in mm_encoder_attn.cu.
#ifndef BERTH_KERNELS_GPU_ENCODER_H
#define BERTH_KERNELS_GPU_ENCODER_H

#include "launch.h"

#include <limits.h>

#define GPU_ENCODER_WIDTH   256 // elements of a head, at most
#define GPU_ENCODER_THREADS 256

// Heads of tokens in memory: token t is number t % inner of row t / inner % middle of what is
// outside. Gaps in elements; a head's own elements are dense.
struct gpu_encoder_field {
    void *data;
    int64_t outer_gap;
    int64_t middle_gap;
    int64_t inner_gap;
    int64_t head_gap;
    int middle;
    int inner;
};

struct gpu_encoder_call {
    gpu_encoder_field query;
    gpu_encoder_field key;
    gpu_encoder_field value;
    gpu_encoder_field out;
    const void *starts; // [segments + 1]; NULL: segments of `length` tokens
    berth_dtype starts_dtype;
    const float *bias; // [tokens, heads, rows + columns], of segments that are images; NULL: none
    int rows;
    int columns;
    int segments;
    int length;
    int tokens;
    int heads;
    int kv_heads;
    int width;
    int window;  // i sees j when |i − j| is below it; 0: all
    int is_wide; // four elements are loaded at once
    float scale;
};

// mm_encoder_attn: a faster kernel brings an `attend` of its own.
struct gpu_encoder : gpu_op {
    int heads;
    int kv_heads;
    int width;
    float scale;
    berth_status (*attend)(const gpu_op *op, gpu_encoder_call call, berth_dtype dtype);
};

berth_status gpu_encoder_create(const berth_op_site *site, const berth_device *device,
                                void **out_self);
berth_status gpu_encoder_forward(void *self, const berth_op_args *args);

berth_status gpu_encoder_check(const berth_op_site *site, int64_t width);
// Completes the call: whether four elements are loaded at once. All in f32, one rounding to
// `dtype`, which everything has.
berth_status gpu_encoder_run(const gpu_op *op, gpu_encoder_call call, berth_dtype dtype);

// Tokens of a segment, or those of it that one of them sees.
struct gpu_encoder_span {
    int begin;
    int end;
};

static __device__ inline gpu_encoder_span gpu_encoder_segment(const gpu_encoder_call &all,
                                                              int index) {
    if (!all.starts) {
        return gpu_encoder_span{index * all.length, (index + 1) * all.length};
    }
    const int64_t begin = gpu_integer(all.starts, all.starts_dtype, index);
    const int64_t end = gpu_integer(all.starts, all.starts_dtype, index + 1);
    return gpu_encoder_span{static_cast<int>(begin > 0 ? begin : 0),
                            static_cast<int>(end < all.tokens ? end : all.tokens)};
}

// Where the head of a token begins.
template <typename T>
static __device__ inline T *gpu_encoder_at(const gpu_encoder_field &field, int token, int head) {
    const int line = token / field.inner;
    const int outer = line / field.middle;
    return static_cast<T *>(field.data) + outer * field.outer_gap +
           (line - outer * field.middle) * field.middle_gap +
           (token - line * field.inner) * field.inner_gap + head * field.head_gap;
}

#endif
