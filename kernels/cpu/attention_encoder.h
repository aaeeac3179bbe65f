// SPDX-License-Identifier: Apache-2.0
// Attention of encoders: tokens that see each other, and no cache.
#ifndef BERTH_KERNELS_CPU_ATTENTION_ENCODER_H
#define BERTH_KERNELS_CPU_ATTENTION_ENCODER_H

#include <cpu/attention_run.h>

// Rows of a tensor [tokens, heads, width].
static inline berth_tensor token_rows(const berth_tensor *all, berth_span tokens,
                                      int64_t shape[3]) {
    berth_tensor out = *all;
    shape[0] = tokens.end - tokens.first;
    shape[1] = all->shape[1];
    shape[2] = all->shape[2];
    out.shape = shape;
    out.byte_offset +=
        (uint64_t)(tokens.first * all->strides[0]) * BERTH_DTYPE_BITS(all->dtype) / 8;
    return out;
}

// Some tokens see each other, all or those within the window. `of`: query, key,
// value and out, each [tokens, heads, width].
static inline void attend_encoder(const attention *self, const berth_tensor *const of[4],
                                  berth_span tokens, char *memory) {
    static const int64_t looks_ahead[] = {0};
    const berth_attribute sees = {
        .size = sizeof(berth_attribute),
        .kind = BERTH_ATTRIBUTE_I64S,
        .i64s = looks_ahead,
        .count = 1,
    };
    const int32_t length = (int32_t)(tokens.end - tokens.first);
    const int32_t starts[] = {0, length};
    const berth_tensor table = only_table();
    int64_t shapes[4][4];
    int64_t block_shapes[2][4];
    int64_t block_strides[2][4];
    berth_tensor rows[4];
    for (int i = 0; i < 4; ++i) {
        rows[i] = token_rows(of[i], tokens, shapes[i]);
    }
    const berth_tensor keys = as_block(&rows[1], block_shapes[0], block_strides[0]);
    const berth_tensor values = as_block(&rows[2], block_shapes[1], block_strides[1]);
    job in = {
        .self = self,
        .query = &rows[0],
        .out = &rows[3],
        .cache = {&keys, &values},
        .tables = &table,
        .starts = starts,
        .lengths = &length,
        .sequences = 1,
        .tokens = {0,     length },
        .sees = &sees,
        .memory = memory,
    };
    attend(&in);
}

#endif
