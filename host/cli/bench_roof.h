// SPDX-License-Identifier: Apache-2.0
// Private to cli/: the roofs of this machine, measured on as many threads as what stands beside
// them. Every call is one round; the best of all rounds since the beginning counts, so that callers
// take turns.
#ifndef BERTH_CLI_BENCH_ROOF_H
#define BERTH_CLI_BENCH_ROOF_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/stream.h"

#define BERTH_ROOF_BYTES ((size_t)1 << 30)

// Zeroed is closed.
typedef struct berth_roof {
    int64_t threads;
    char *memory; // owned: BERTH_ROOF_BYTES, small numbers; anybody may write to it between rounds
    double read;  // bytes/s
    double copy;  // bytes/s, read and written counted
    double mix;   // the same of a pass that does not write as much as it reads
    double multiply_f32; // flops/s
    double multiply;     // flops/s, of f32 or bf16, whichever the machine does faster
    double multiply_i8;  // the same of these or i8
} berth_roof;

BERTH_MUST_CHECK berth_status berth_roof_open(int64_t threads, berth_roof *roof);
// Forgets what was measured: a case is not judged by another one's, the machine may have changed.
void berth_roof_begin(berth_roof *roof);
// Each way to read once, over all of the memory.
BERTH_MUST_CHECK berth_status berth_roof_read(berth_roof *roof);
// The rate of the median copy that reads and writes so many bytes together, through the caches or
// past them, of `copies` that have memory of their own, in turns: what an op of that many bytes
// does at best, with the threads' beginning and end.
BERTH_MUST_CHECK berth_status berth_roof_copy(berth_roof *roof, double bytes, size_t copies);
// The same of passes that read and write lines in the proportion of `lines`, which says how many
// of each; its way is tried both ways.
BERTH_MUST_CHECK berth_status berth_roof_mix(berth_roof *roof, double bytes, size_t copies,
                                             const berth_stream_mix *lines);
BERTH_MUST_CHECK berth_status berth_roof_multiply(berth_roof *roof);
// Bytes of the last cache, as the system tells.
double berth_roof_cache_bytes(berth_arena *arena);
void berth_roof_close(berth_roof *roof);

#endif
