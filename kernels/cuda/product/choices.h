// SPDX-License-Identifier: Apache-2.0
// The algorithms chosen for one shape of weights, as they are kept for the next start: one after
// the other by rows, nothing before or between them. C as well as C++, without CUDA, so that what
// reads bytes that lay on a disk is tested where there is no GPU.
#ifndef BERTH_KERNELS_CUDA_CHOICES_H
#define BERTH_KERNELS_CUDA_CHOICES_H

#include <stdint.h>
#include <string.h>

#define CUDA_CHOICES_MAX 40 // buckets of rows of a shape

// cuBLASLt's own description of an algorithm, which is made to be stored, is the last member.
typedef struct cuda_choice {
    int32_t rows;       // the most that it was chosen for
    float milliseconds; // that they took; negative: not timed
    uint64_t algorithm[8];
} cuda_choice;

// How many choices `bytes` are, of a shape whose steps have up to `max_rows` rows; 0: they are no
// list that a start could have stored. What an algorithm says is cuBLASLt's to judge.
static inline int cuda_choices_take(const void *bytes, uint64_t size, int max_rows,
                                    cuda_choice *out) {
    const uint64_t count = size / sizeof(cuda_choice);
    int32_t rows = 0;
    if (count == 0 || count > CUDA_CHOICES_MAX || size % sizeof(cuda_choice) != 0) {
        return 0;
    }
    memcpy(out, bytes, size);
    for (uint64_t i = 0; i < count; ++i) {
        // Written so that a NaN is refused, too. An hour is more than any product takes.
        if (out[i].rows <= rows || !(out[i].milliseconds > 0 && out[i].milliseconds < 3.6e6f)) {
            return 0;
        }
        rows = out[i].rows;
    }
    return rows == max_rows ? (int)count : 0;
}

#endif
