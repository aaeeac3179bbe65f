// SPDX-License-Identifier: Apache-2.0
// What paged_attention of platform-cpu promises beyond the cases: the result of a token is the same
// to the last bit however its prompt was cut, whoever is beside it and on any number of threads;
// and what a token does not see has no influence on it, not even an infinity.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cpu/cpu.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_paged_attention;

#define HEADS    6
#define KV_HEADS 2
#define WIDTH    40
#define BLOCK    16

// Beside caches of e4m3. With these the code of what is new is that of what is in the cache.
#define CODES "key_scale=f32[1]!:1 value_scale=f32[1]!:1"

// A batch in which the sequence at `place` is always the same one.
typedef struct batch {
    const char *text;
    int64_t place;
} batch;

static const batch batches[] = {
    {"130:4200",              0}, // the lengths around 4,096, where splits become longer
    {"7:4200",                0},
    {"1:4200",                0},
    {"12:30,1:4200,40:900",   1},
    {"1:900,1:33,64:4200",    2},
    {"1:1,1:2,1:3,17:4200",   3},
    {"1:4200,1:800,1:5,1:64", 0},
};

// The element of a position, the same in every batch. `kind`: query, key or value.
static double element_at(int64_t sequence, int64_t position, int64_t index, uint64_t kind) {
    uint64_t bits = (uint64_t)(sequence * 1000003 + position * 8191 + index) * 4 + kind;
    bits = (bits + 1) * UINT64_C(0x9e3779b97f4a7c15);
    bits ^= bits >> 29;
    bits *= UINT64_C(0xbf58476d1ce4e5b9);
    return (double)(bits >> 40) / 4194304.0 - 2.0;
}

static int64_t length_of(const op_case *self, int64_t sequence) {
    return (int64_t)op_tensor_get(&self->seq_lens, sequence);
}

static int64_t row_of(const op_case *self, int64_t sequence) {
    return (int64_t)op_tensor_get(&self->query_start_loc, sequence);
}

static void fill_cache(op_case *self, int64_t place, int64_t id) {
    const int64_t per_row = KV_HEADS * WIDTH;
    const int64_t blocks = self->block_table.shape[1];
    for (int64_t position = 0; position < length_of(self, place); ++position) {
        const int64_t block =
            (int64_t)op_tensor_get(&self->block_table, place * blocks + position / BLOCK);
        for (int64_t i = 0; i < per_row; ++i) {
            const int64_t at = (block * BLOCK + position % BLOCK) * per_row + i;
            op_tensor_set(&self->states[0], at, element_at(id, position, i, 1));
            op_tensor_set(&self->states[1], at, element_at(id, position, i, 2));
        }
    }
}

static void fill_new(op_case *self, int64_t place, int64_t id) {
    const int64_t count = row_of(self, place + 1) - row_of(self, place);
    for (int64_t token = 0; token < count; ++token) {
        const int64_t position = length_of(self, place) - count + token;
        const int64_t row = row_of(self, place) + token;
        for (uint64_t input = 0; input < 3; ++input) {
            const int64_t width = (input == 0 ? HEADS : KV_HEADS) * WIDTH;
            for (int64_t i = 0; i < width; ++i) {
                op_tensor_set(&self->inputs[input], row * width + i,
                              element_at(id, position, i, input));
            }
        }
    }
}

// The sequence at `place` is number 0, the others have numbers of their own.
static void build(op_case *self, const char *dtype, const char *more, const batch *of) {
    op_line line = {.op = &berth_op_paged_attention, .name = "alike"};
    (void)snprintf(line.body, sizeof line.body,
                   "query=%s[T,6,40] key=%s[T,2,40] value=%s[T,2,40] key_cache=%s[340,16,2,40] "
                   "value_cache=%s[340,16,2,40] batch=%s scale=0.16 %s",
                   dtype, dtype, dtype, strstr(more, CODES) ? "f8" : dtype,
                   strstr(more, CODES) ? "f8" : dtype, of->text, more);
    op_line_build(&line, self);
    for (int64_t place = 0; place < op_tensor_count(&self->seq_lens); ++place) {
        const int64_t id = place == of->place ? 0 : 1 + place;
        fill_cache(self, place, id);
        fill_new(self, place, id);
    }
}

// What came out for the sequence at `place`.
typedef struct result {
    op_case of;
    op_results got;
    int64_t place;
} result;

// Elements of the last tokens of the sequence, as many as both have.
static int64_t count_different(const result *a, const result *b) {
    const int64_t end_a = row_of(&a->of, a->place + 1);
    const int64_t end_b = row_of(&b->of, b->place + 1);
    const int64_t rows_a = end_a - row_of(&a->of, a->place);
    const int64_t rows_b = end_b - row_of(&b->of, b->place);
    const int64_t rows = rows_a < rows_b ? rows_a : rows_b;
    int64_t different = 0;
    for (int64_t i = 1; i <= rows * HEADS * WIDTH; ++i) {
        different += op_tensor_get(&a->got.outputs[0], end_a * HEADS * WIDTH - i) !=
                     op_tensor_get(&b->got.outputs[0], end_b * HEADS * WIDTH - i);
    }
    return different;
}

static void check_batches(const char *dtype, const char *more) {
    static const int64_t threads[] = {1, 3, 16};
    result first = {.place = batches[0].place};
    build(&first.of, dtype, more, &batches[0]);
    op_case_run(&first.of, op_kernel_find("paged_attention"), &first.got);
    for (size_t i = 0; i < BERTH_COUNT(batches); ++i) {
        result next = {.place = batches[i].place};
        build(&next.of, dtype, more, &batches[i]);
        for (size_t k = 0; k < BERTH_COUNT(threads); ++k) {
            op_kernel_threads(threads[k]);
            op_case_run(&next.of, op_kernel_find("paged_attention"), &next.got);
            CHECK_INT(count_different(&first, &next), 0);
            op_results_free(&next.got);
        }
        op_case_free(&next.of);
    }
    op_kernel_threads(1);
    op_results_free(&first.got);
    op_case_free(&first.of);
}

TEST(a_token_depends_on_what_it_sees_alone) {
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        check_batches("f32", "");
        check_batches("f32", "sliding_window=333 logits_soft_cap=7");
        check_batches("bf16", "");
        check_batches("f16", "sliding_window=65");
        check_batches("f32", CODES);
        check_batches("f32", CODES " sliding_window=65");
    }
}

// The last of the new tokens has an infinite value, which those before it must not notice.
TEST(the_values_of_later_tokens_are_not_seen) {
    static const batch of = {"30:100", 0};
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_case all;
        op_results clean;
        op_results infinite;
        op_kernel_use(set);
        build(&all, "f32", "", &of);
        op_case_run(&all, op_kernel_find("paged_attention"), &clean);
        op_tensor_set(&all.inputs[2], (int64_t)29 * KV_HEADS * WIDTH, INFINITY);
        op_case_run(&all, op_kernel_find("paged_attention"), &infinite);
        for (int64_t i = 0; i < (int64_t)29 * HEADS * WIDTH; ++i) {
            CHECK(op_tensor_get(&infinite.outputs[0], i) == op_tensor_get(&clean.outputs[0], i));
        }
        CHECK(isinf(op_tensor_get(&infinite.outputs[0], (int64_t)29 * HEADS * WIDTH)));
        op_results_free(&infinite);
        op_results_free(&clean);
        op_case_free(&all);
    }
}
