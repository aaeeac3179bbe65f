// SPDX-License-Identifier: Apache-2.0
// The points on the circle by which rotary_embedding turns the pairs of a head: cosines and sines
// of one token, from its positions or from a cache. Private to that op.
#ifndef BERTH_KERNELS_NATIVE_ROPE_CIRCLE_H
#define BERTH_KERNELS_NATIVE_ROPE_CIRCLE_H

#include <berth/op.h>

#include <rope.h>
#include <tensor.h>

// Inputs of rotary_embedding.
enum berth_rope_input {
    BERTH_ROPE_POSITIONS,
    BERTH_ROPE_QUERY,
    BERTH_ROPE_KEY,
    BERTH_ROPE_CACHE,
    BERTH_ROPE_COS_COEF,
    BERTH_ROPE_SIN_COEF,
};

typedef struct berth_circle {
    const berth_op_site *site;
    const berth_op_args *args;
    int64_t pairs;
    float *angles;     // [pairs] radians per position
    float *points;     // [2 · pairs] cosines, then sines
    int32_t *axes;     // [pairs] the row of `positions` that turns a pair
    float scale;       // of cosines and sines
    berth_dtype dtype; // that points, products and sums are rounded to
} berth_circle;

// fope: frequencies that the coefficients mix.
int64_t berth_rope_mixed(const berth_op_site *site);
uint64_t berth_circle_workspace(const berth_op_site *site);
void berth_circle_init(berth_circle *circle, const berth_op_site *site, const berth_op_args *args);
// Fills the points of a token, for heads that read coefficients or rows of `kv_head`; fails the
// step when a position is out of range.
berth_status berth_circle_fill(berth_circle *circle, int64_t token, int64_t kv_head);

#endif
