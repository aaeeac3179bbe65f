// SPDX-License-Identifier: Apache-2.0
// CLOCK_MONOTONIC: a library call without a system call, adjusted in rate but never set back.
#include "base/clock.h"

#include <time.h>

uint64_t berth_clock_ns(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
