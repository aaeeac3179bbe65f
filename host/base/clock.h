// SPDX-License-Identifier: Apache-2.0
// Monotonic time for durations, deadlines and benchmarks. It is never the time of day.
#ifndef BERTH_BASE_CLOCK_H
#define BERTH_BASE_CLOCK_H

#include <stdint.h>

// Nanoseconds since an unspecified start, never going back. [any]
uint64_t berth_clock_ns(void);

#endif
