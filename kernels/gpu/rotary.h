// SPDX-License-Identifier: Apache-2.0
// rotary_embedding on a GPU: what its kernel shares with those that turn query and key by the way.
#ifndef BERTH_KERNELS_GPU_ROTARY_H
#define BERTH_KERNELS_GPU_ROTARY_H

#include <gpu/launch.h>

// A site's rope.
struct gpu_rotary {
    float *angles; // [half] in device memory, per position
    int32_t *axes; // [half] there too: rows of positions; NULL: there is one
    int64_t length;
    int64_t half;      // pairs
    int64_t skipped;   // columns before the first pair
    int64_t first_row; // of a cache
    int64_t is_neox;
    int64_t columns; // of an image's patches, 0: positions are in a row
    int64_t circles; // of a token
    int64_t waves;   // that coefficients mix, 0: there are none
    float sign;      // of sines
    float scale;     // of cosines and sines
    int is_cast;     // a cache of f32 is rounded, too
    int is_f32;      // what is computed is not rounded
};

// The site's first inputs are those of rotary_embedding, in its order.
berth_status gpu_rotary_check(const berth_op_site *site);
// At start-up. What it keeps in device memory is the caller's to free, after a failure, too.
berth_status gpu_rotary_read(const berth_op_site *site, const gpu_op *op, gpu_rotary *self);
void gpu_rotary_free(const gpu_rotary *self);
// Inputs as above; `turned` are query and key, in rows of (token, head).
berth_status gpu_rotary_run(const gpu_op *op, const gpu_rotary &rotary, const berth_op_args *args,
                            const gpu_rows *turned);

// Where a pair is on the circle.
struct gpu_point {
    float cosine;
    float sine;
};

// `angle` per position; `scale` is that of cosines and sines. Not rounded yet.
static __device__ inline gpu_point gpu_point_at(float distance, float angle, float scale) {
    gpu_point out;
    sincosf(distance * angle, &out.sine, &out.cosine);
    out.sine *= scale;
    out.cosine *= scale;
    return out;
}

// A pair turned. Why no plain expressions: whoever turns by the way rounds as the kernel does.
struct gpu_turned {
    float first;
    float second;
};

static __device__ inline gpu_turned gpu_turn(float x1, float x2, float cosine, float sine) {
    return gpu_turned{fmaf(x1, cosine, -gpu_mul_rn(x2, sine)),
                      fmaf(x2, cosine, gpu_mul_rn(x1, sine))};
}

#endif
