// SPDX-License-Identifier: Apache-2.0
// add: pair.h with its formula.
#include <cpu/pair.h>

BERTH_INLINE berth_vec combine(berth_vec a, berth_vec b) {
    return a + b;
}

PAIR_KERNEL(add);
