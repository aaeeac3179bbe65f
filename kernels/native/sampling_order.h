// SPDX-License-Identifier: Apache-2.0
// A row of logits put in order, for references that cut it or draw from it.
#ifndef BERTH_KERNELS_NATIVE_SAMPLING_ORDER_H
#define BERTH_KERNELS_NATIVE_SAMPLING_ORDER_H

#include <stdint.h>

// Whether element a comes before b; of two different ones, exactly one does.
typedef int (*sampling_order_fn)(const float *logits, int32_t a, int32_t b);

// Lets the element at `at` sink in the heap [0, count) whose first one comes last.
static inline void sampling_sink(const float *logits, int32_t *order, int64_t at, int64_t count,
                                 sampling_order_fn comes_before) {
    const int32_t moved = order[at];
    for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && comes_before(logits, order[child], order[child + 1]);
        if (!comes_before(logits, moved, order[child])) {
            break;
        }
        order[at] = order[child];
        at = child;
    }
    order[at] = moved;
}

// Why a heap: it takes no memory and no longer than n log n.
static inline void sampling_sort(const float *logits, int32_t *order, int64_t count,
                                 sampling_order_fn comes_before) {
    for (int64_t i = 0; i < count; ++i) {
        order[i] = (int32_t)i;
    }
    for (int64_t i = count / 2; i-- > 0;) {
        sampling_sink(logits, order, i, count, comes_before);
    }
    for (int64_t end = count; end-- > 1;) {
        const int32_t last = order[0];
        order[0] = order[end];
        order[end] = last;
        sampling_sink(logits, order, 0, end, comes_before);
    }
}

#endif
