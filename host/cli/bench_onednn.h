// SPDX-License-Identifier: Apache-2.0
// Private to cli/: oneDNN as a measuring stick for products and convolutions. It is opened when it
// is first asked for and is no part of the program: nothing is linked with it, and where it is
// absent there is no such ceiling.
#ifndef BERTH_CLI_BENCH_ONEDNN_H
#define BERTH_CLI_BENCH_ONEDNN_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct berth_onednn berth_onednn;
typedef struct berth_onednn_task berth_onednn_task;

typedef enum berth_onednn_type {
    BERTH_ONEDNN_F32,
    BERTH_ONEDNN_BF16,
    BERTH_ONEDNN_S8, // both; the results are s32
    BERTH_ONEDNN_U8, // times s8; the results are s32
} berth_onednn_type;

// [rows, in] times the transpose of [out, in]; but for s8 and u8 all of one type.
typedef struct berth_onednn_shape {
    int64_t rows;
    int64_t out;
    int64_t in;
    berth_onednn_type type;
} berth_onednn_shape;

#define BERTH_ONEDNN_RANK 5

// A convolution without a bias: [batch, channels, sizes...], [out, in, sizes...] and what comes
// out; all of one type, each in the layout that oneDNN likes best. The lists are of rank - 2; a
// dilation of 0 is none.
typedef struct berth_onednn_image {
    int rank;
    int64_t x[BERTH_ONEDNN_RANK];
    int64_t weights[BERTH_ONEDNN_RANK];
    int64_t y[BERTH_ONEDNN_RANK];
    int64_t stride[BERTH_ONEDNN_RANK];
    int64_t padding[BERTH_ONEDNN_RANK];
    int64_t dilation[BERTH_ONEDNN_RANK];
    berth_onednn_type type;
} berth_onednn_image;

// NOT_FOUND with the reason when there is no libdnnl.so.3 or .2. It stays in the process: its
// threads do not survive its end. Objects live as long as the arena.
BERTH_MUST_CHECK berth_status berth_onednn_open(berth_arena *arena, int64_t threads,
                                                berth_onednn **out_onednn);
const char *berth_onednn_version(const berth_onednn *onednn); // "oneDNN 2.6.3"
void berth_onednn_close(berth_onednn *onednn);                // takes NULL; tasks are gone

// A task with sets of operands of its own, in the layouts that oneDNN wants, that fill a quarter of
// `memory`, at least two of them as far as they fit; every call takes the next set, so that, as in
// our cases, none is in a cache. NULL when oneDNN has no such task on this machine.
BERTH_MUST_CHECK berth_status berth_onednn_multiply(berth_onednn *onednn,
                                                    const berth_onednn_shape *shape, char *memory,
                                                    size_t bytes, berth_onednn_task **out_task);
BERTH_MUST_CHECK berth_status berth_onednn_convolve(berth_onednn *onednn,
                                                    const berth_onednn_image *image, char *memory,
                                                    size_t bytes, berth_onednn_task **out_task);
// Seconds of so many calls in a row: the median of some times, without the first, which wakes the
// threads.
BERTH_MUST_CHECK berth_status berth_onednn_task_time(berth_onednn_task *task, int64_t calls,
                                                     double *out_seconds);
void berth_onednn_task_destroy(berth_onednn_task *task); // takes NULL
// After a call its threads look for work for some milliseconds, on the cores of others. Waits for
// that to end.
void berth_onednn_settle(const berth_onednn *onednn);

#endif
