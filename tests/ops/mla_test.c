// SPDX-License-Identifier: Apache-2.0
// What mla of platform-cpu promises beyond the cases: the result of a token is the same to the last
// bit however its prompt was cut, whoever is beside it and on any number of threads.
#include <stdio.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_mla;

#define LENGTH 530 // of the sequence that is in every batch, the first; more than two splits
#define BLOCK  8   // rows
#define ROW    48  // elements of a latent row
#define OUT    33  // elements of a token's result

enum { QUERY, C_KV, K_PE, WEIGHT, QUERY_PE };

static void build(op_case *self, const char *dtype, const char *batch) {
    op_line line = {.op = &berth_op_mla, .name = "alike"};
    (void)snprintf(line.body, sizeof line.body,
                   "query=%s[T,3,16] c_kv=%s[T,40] k_pe=%s[T,8] query_pe=%s[T,3,8] "
                   "kv_b_proj_weight=%s[81,40]! kv_cache=%s[90,8,48] batch=%s scale=0.1 "
                   "v_head_dim=11",
                   dtype, dtype, dtype, dtype, dtype, dtype, batch);
    op_line_build(&line, self);
}

static void copy(op_tensor *to, const op_tensor *from, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        op_tensor_set(to, i, op_tensor_get(from, first + i));
    }
}

// Makes the first sequence's last tokens those of `whole`, with its context in the cache.
static void take_over(op_case *self, const op_case *whole, const op_results *of_whole,
                      int64_t tokens) {
    static const int64_t widths[] = {[QUERY] = 48, [C_KV] = 40, [K_PE] = 8, [QUERY_PE] = 24};
    static const uint64_t inputs[] = {QUERY, C_KV, K_PE, QUERY_PE};
    for (size_t i = 0; i < BERTH_COUNT(inputs); ++i) {
        const int64_t width = widths[inputs[i]];
        copy(&self->inputs[inputs[i]], &whole->inputs[inputs[i]], (LENGTH - tokens) * width,
             tokens * width);
    }
    copy(&self->inputs[WEIGHT], &whole->inputs[WEIGHT], 0, op_tensor_count(&whole->inputs[WEIGHT]));
    // Block 0 is nobody's; the first sequence has those behind it, in any order.
    for (int64_t i = ROW * BLOCK; i < ROW * BLOCK * (1 + (LENGTH + BLOCK - 1) / BLOCK); ++i) {
        op_tensor_set(&self->states[0], i, op_tensor_get(&of_whole->states[0], i));
    }
}

static int64_t count_different(const op_results *got, const op_results *whole, int64_t tokens) {
    int64_t different = 0;
    for (int64_t i = 0; i < tokens * OUT; ++i) {
        different += op_tensor_get(&got->outputs[0], i) !=
                     op_tensor_get(&whole->outputs[0], (LENGTH - tokens) * OUT + i);
    }
    return different;
}

static void check_batches(const char *dtype) {
    static const struct {
        const char *text;
        int64_t tokens; // of the first sequence
    } batches[] = {
        {"530:530",          530},
        {"17:530",           17 },
        {"1:530",            1  },
        {"1:530,3:60",       1  },
        {"100:530,1:33,1:7", 100}
    };
    static const int64_t threads[] = {1, 3, 16};
    const berth_op_impl *impl = op_kernel_find("mla");
    op_case whole;
    op_results of_whole;
    build(&whole, dtype, batches[0].text);
    op_case_run(&whole, impl, &of_whole);
    for (size_t i = 0; i < BERTH_COUNT(batches); ++i) {
        op_case next;
        build(&next, dtype, batches[i].text);
        take_over(&next, &whole, &of_whole, batches[i].tokens);
        for (size_t k = 0; k < BERTH_COUNT(threads); ++k) {
            op_results got;
            op_kernel_threads(threads[k]);
            op_case_run(&next, impl, &got);
            CHECK_INT(count_different(&got, &of_whole, batches[i].tokens), 0);
            op_results_free(&got);
        }
        op_case_free(&next);
    }
    op_kernel_threads(1);
    op_results_free(&of_whole);
    op_case_free(&whole);
}

TEST(a_token_of_mla_depends_on_what_it_sees_alone) {
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        check_batches("f32");
        check_batches("bf16");
    }
}
