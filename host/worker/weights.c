// SPDX-License-Identifier: Apache-2.0
// Unnormalised probabilities of a row of logits, in double: e^x two at a time. The library's e^x
// one at a time would be most of the work of a sampled token of a large vocabulary.
#include <math.h>

#include "worker/sampler.h"

typedef double doubles __attribute__((vector_size(16)));
typedef uint64_t words __attribute__((vector_size(16)));

// For x of at most 0, within 2 units in the last place; 0 below −700 and for NaN.
static inline doubles exp_of(doubles x) {
    // x = n·ln 2 + r with |r| ≤ ln 2 / 2; adding 1.5·2^52 rounds to the integer n in the low bits.
    const doubles shifted = x * 0x1.71547652b82fep+0 + 0x1.8p+52;
    const doubles whole = shifted - 0x1.8p+52;
    // ln 2 in two parts: the product with the first is exact.
    const doubles r = (x - whole * 0x1.62e42feep-1) - whole * 0x1.a39ef35793c76p-33;
    doubles sum = r * (1.0 / 6227020800) + 1.0 / 479001600;
    sum = sum * r + 1.0 / 39916800;
    sum = sum * r + 1.0 / 3628800;
    sum = sum * r + 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    // 1.5·2^52 has 0 in the low twelve bits, so those that are shifted to the exponent are n's.
    const words power = ((words)shifted + 1023) << 52;
    return (doubles)((words)(sum * (doubles)power) & (words)(x >= -700.0));
}

void berth_weigh(const float *logits, size_t count, double maximum, double temperature,
                 double *out) {
    const double scale = fmin(1.0 / temperature, 1e300); // 0 times it must be 0
    for (size_t i = 0; i + 1 < count; i += 2) {
        const doubles two = {(double)logits[i], (double)logits[i + 1]};
        const doubles weight = exp_of((two - maximum) * scale);
        out[i] = weight[0];
        out[i + 1] = weight[1];
    }
    if (count % 2 != 0) {
        const double x = ((double)logits[count - 1] - maximum) * scale;
        out[count - 1] = exp_of((doubles){x, x})[0];
    }
}
