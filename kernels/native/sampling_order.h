// SPDX-License-Identifier: Apache-2.0
// A row of logits put in order, for references that cut it or draw from it.
#ifndef BERTH_KERNELS_NATIVE_SAMPLING_ORDER_H
#define BERTH_KERNELS_NATIVE_SAMPLING_ORDER_H

#include <sampling_key.h>

#define SAMPLING_DIGITS 256

// The ids of `count` logits by rising logit, or by falling; of equal ones the lower comes first.
// Digit by digit from the last: four rounds, so the ids end where they began, not in `room`, which
// is as large.
static inline void sampling_sort(const float *logits, int is_falling, int64_t count, int32_t *order,
                                 int32_t *room) {
    const uint32_t turned = is_falling ? UINT32_MAX : 0;
    int32_t *from = order;
    int32_t *to = room;
    for (int64_t i = 0; i < count; ++i) {
        order[i] = (int32_t)i;
    }
    for (int shift = 0; shift < 32; shift += 8) {
        int64_t places[SAMPLING_DIGITS + 1] = {0};
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t key = sampling_key_of(logits[i]) ^ turned;
            ++places[(key >> shift & (SAMPLING_DIGITS - 1)) + 1];
        }
        for (int digit = 0; digit < SAMPLING_DIGITS; ++digit) {
            places[digit + 1] += places[digit];
        }
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t key = sampling_key_of(logits[from[i]]) ^ turned;
            to[places[key >> shift & (SAMPLING_DIGITS - 1)]++] = from[i];
        }
        int32_t *const swapped = from;
        from = to;
        to = swapped;
    }
}

#endif
