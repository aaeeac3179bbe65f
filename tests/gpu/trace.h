// SPDX-License-Identifier: Apache-2.0
// When kernels ran on the device, as CUPTI saw them. Its library is opened when a trace begins;
// nothing links it.
#ifndef BERTH_GPU_TRACE_H
#define BERTH_GPU_TRACE_H

#include <stddef.h>

typedef struct trace_result {
    size_t kernels;
    double busy; // seconds in which at least one of them ran
    double span; // from the first one's beginning to the last one's end
} trace_result;

// NULL, or why there is no trace.
const char *trace_begin(void);
// After the work has been waited for.
const char *trace_end(trace_result *out);
// Each kernel of the last trace with its time and how often it ran, the longest first.
void trace_print_names(void);

#endif
