// SPDX-License-Identifier: Apache-2.0
// The op 'sample' and the worker's sampler are two programs of one rule: whatever the row and the
// options, the token is the same.
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "support/op_case.h"
#include "support/test.h"
#include "worker/sampler.h"

extern const berth_op berth_op_sample;

#define ROWS  64
#define VOCAB 700

static double unit(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*seed >> 33) / 0x1p31;
}

// Options of every kind, and off in turns.
static berth_sampling options_of(uint64_t row, uint64_t *seed) {
    return (berth_sampling){
        .size = sizeof(berth_sampling),
        .temperature = row % 8 == 7 ? 0 : 0.2 + 2 * unit(seed),
        .seed = (uint64_t)(unit(seed) * 0x1p31) * UINT64_C(0x9E3779B97F4A7C15),
        .index = row,
        .top_k = row % 3 == 0 ? 0 : (uint64_t)(unit(seed) * 2 * VOCAB),
        .top_p = row % 4 == 1 ? 1 : unit(seed),
        .min_p = row % 5 < 3 ? 0 : unit(seed) / 10,
    };
}

static void set(op_case *of, const char *name, int64_t index, double value) {
    op_tensor_set(op_case_operand(of, name), index, value);
}

static void set_bits(op_case *of, const char *name, int64_t index, uint64_t bits) {
    ((int64_t *)op_case_operand(of, name)->tensor.data)[index] = (int64_t)bits;
}

static void set_row(op_case *of, int64_t row, const berth_sampling *options) {
    set(of, "temperature", row, options->temperature);
    set(of, "top_p", row, options->top_p);
    set(of, "min_p", row, options->min_p);
    set(of, "top_k", row, (double)options->top_k);
    set_bits(of, "seed", row, options->seed);
    set_bits(of, "index", row, options->index);
}

static int32_t sampled(const op_case *of, int64_t row, const berth_sampling *options) {
    const op_tensor *logits = op_case_operand((op_case *)of, "logits");
    berth_arena *arena = NULL;
    berth_sampler sampler;
    float values[VOCAB];
    int32_t token = -1;
    for (int64_t i = 0; i < VOCAB; ++i) {
        values[i] = (float)op_tensor_get(logits, row * VOCAB + i);
    }
    CHECK_OK(berth_arena_create(1 << 16, 1 << 24, &arena));
    CHECK_OK(berth_sampler_init(&sampler, VOCAB, 1, arena));
    CHECK_OK(berth_sample_token(&sampler, values, options, &token));
    berth_arena_destroy(arena);
    return token;
}

// `step`: logits are multiples of it, so there are ties; `from`: rows begin with as many that are
// −infinity.
static void compare(double range, double step, int64_t from) {
    op_line line = {.op = &berth_op_sample, .name = "alike"};
    op_case at_hand;
    op_results got;
    berth_sampling options[ROWS];
    uint64_t seed = 17;
    (void)snprintf(line.body, sizeof line.body,
                   "logits=f32[64,700] temperature=f64[64] top_p=f64[64] min_p=f64[64] "
                   "top_k=i64[64] seed=i64[64] index=i64[64]");
    op_line_build(&line, &at_hand);
    for (int64_t row = 0; row < ROWS; ++row) {
        options[row] = options_of((uint64_t)row, &seed);
        set_row(&at_hand, row, &options[row]);
        for (int64_t i = 0; i < VOCAB; ++i) {
            const double value = (2 * unit(&seed) - 1) * range;
            set(&at_hand, "logits", row * VOCAB + i,
                i < from ? (double)-INFINITY : floor(value / step) * step);
        }
    }
    op_case_reference(&at_hand, &got);
    for (int64_t row = 0; row < ROWS; ++row) {
        CHECK_INT((int64_t)op_tensor_get(&got.outputs[0], row),
                  sampled(&at_hand, row, &options[row]));
    }
    op_results_free(&got);
    op_case_free(&at_hand);
}

TEST(sample_and_the_sampler_agree_on_sharp_rows) {
    compare(20, 1e-6, 0);
}

TEST(sample_and_the_sampler_agree_on_flat_rows) {
    compare(0.001, 1e-9, 0);
}

TEST(sample_and_the_sampler_agree_on_ties) {
    compare(4, 1, 0);
}

TEST(sample_and_the_sampler_agree_where_little_is_left) {
    compare(8, 1e-6, VOCAB - 5);
}

TEST(a_row_without_a_finite_logit_has_no_token) {
    op_line line = {.op = &berth_op_sample, .name = "none"};
    op_case at_hand;
    op_results got;
    (void)snprintf(line.body, sizeof line.body,
                   "logits=f32[3,2]:0,0,0,0,0,0 temperature=f64[3]:1,1,0 top_p=f64[3]:1,1,1 "
                   "min_p=f64[3]:0,0,0 top_k=i64[3]:0,0,0 seed=i64[3]:1,1,1 index=i64[3]:0,0,0");
    op_line_build(&line, &at_hand);
    for (int64_t i = 0; i < 6; ++i) {
        set(&at_hand, "logits", i, i == 2 ? (double)INFINITY : i == 3 ? 1 : (double)-INFINITY);
    }
    set(&at_hand, "logits", 5, (double)NAN);
    op_case_reference(&at_hand, &got);
    for (int64_t row = 0; row < 3; ++row) {
        CHECK_INT((int64_t)op_tensor_get(&got.outputs[0], row), -1);
    }
    op_results_free(&got);
    op_case_free(&at_hand);
}
