// SPDX-License-Identifier: Apache-2.0
// How rows that come later are asked for while results are stored past the caches. Once into the
// first cache, both halves of a row side by side, is best on a Sapphire Rapids. On a Zen 4 it is
// best into the second, in order, and more than once, as if what is asked for beside such stores
// were now and then forgotten: of a copy's speed in float32 rms_norm of 4096 columns has 0.9
// instead of 0.65, quant_int8 0.44 asked near, 0.61 twice and 0.9 three times. So the machine is
// measured.
#ifndef BERTH_KERNELS_CPU_READS_H
#define BERTH_KERNELS_CPU_READS_H

#include <cpu/places.h>

#define READS_WIDTH  INT64_C(4096) // floats of a row
#define READS_ROWS   64
#define READS_STEP   ((int64_t)(2 * BERTH_LANES))
#define READS_TRIALS 5 // two milliseconds in all

// A row that is read twice and stored, while the next one is fetched.
static inline void reads_row(const float *x, float *y, int is_far) {
    const int64_t row = READS_WIDTH * (int64_t)sizeof(float);
    const int64_t steps = READS_WIDTH / READS_STEP;
    berth_vec sum = berth_vec_of(0);
    for (int64_t i = 0; i < READS_WIDTH; i += READS_STEP) {
        if (is_far) {
            berth_fetch_far(x, BERTH_DTYPE_F32, i, READS_STEP, row);
        }
        sum = sum + berth_vec_load(x + i) + berth_vec_load(x + i + BERTH_LANES);
    }
    const berth_vec factor = berth_vec_of(berth_vec_sum(sum));
    const berth_ahead next = {.bytes = row, .is_far = is_far};
    for (int64_t turn = 0; turn < steps; ++turn) {
        const int64_t i = turn * READS_STEP;
        berth_fetch_once(x, BERTH_DTYPE_F32, berth_step_at(turn, steps, is_far) * READS_STEP,
                         READS_STEP, next);
        berth_vec_store_past(y + i, berth_vec_load(x + i) * factor);
        berth_vec_store_past(y + i + BERTH_LANES, berth_vec_load(x + i + BERTH_LANES) * factor);
    }
}

// Nanoseconds of rows that no cache has.
static inline int64_t reads_time(const float *x, float *y, int is_far) {
    for (int64_t i = 0; i < READS_ROWS * READS_WIDTH; i += BERTH_LINE / (int64_t)sizeof(float)) {
        BERTH_FLUSH(x + i);
    }
    const int64_t start = nanoseconds_now();
    for (int64_t row = 0; row < READS_ROWS; ++row) {
        reads_row(x + row * READS_WIDTH, y + row * READS_WIDTH, is_far);
    }
    berth_past_end();
    return nanoseconds_now() - start;
}

// Both ways one after the other, several times: a neighbour may hold the memory back for a while.
static inline int reads_measure(const berth_host *host) {
    const int64_t elements = READS_ROWS * READS_WIDTH;
    const uint64_t bytes = 2 * (uint64_t)elements * sizeof(float);
    float *x = BERTH_LANES > 4 ? host->alloc(host, bytes, BERTH_LINE) : NULL;
    if (!x) {
        return -1; // portable C has no stores past the caches
    }
    memset(x, 0, bytes); // each page has memory of its own now
    int won = 0;
    for (int trial = 0; trial < READS_TRIALS; ++trial) {
        const int64_t near = reads_time(x, x + elements, 0);
        const int64_t far = reads_time(x, x + elements, 1);
        won += far < near;
    }
    host->free(host, x);
    return 2 * won > READS_TRIALS ? 1 : -1;
}

// For a create of a kernel of rows like those of `x`: measures, unless it was done or no call can
// have results of so many bytes.
static inline void reads_begin(const berth_op_site *site, const berth_value_type *x,
                               berth_cpu *cpu) {
    const int64_t rows = berth_most_rows(site, x);
    const int64_t width = x->ndim > 0 ? x->dims[x->ndim - 1].b : 1;
    if (cpu->far_wins == 0 && width > 0 && rows >= BERTH_PAST_BYTES / (4 * width)) {
        cpu->far_wins = reads_measure(cpu->host);
    }
}

// What is asked for so many bytes ahead, by the way that is better here.
static inline berth_ahead reads_ahead(const berth_cpu *cpu, int64_t near, int64_t far) {
    const int is_far = cpu->far_wins > 0;
    return (berth_ahead){.bytes = is_far ? far : near, .is_far = is_far};
}

// ---- kernels whose first input is such rows and that keep nothing else --------------------------

static inline berth_status reads_create(const berth_op_site *site, const berth_device *device,
                                        void **out_self) {
    reads_begin(site, site->inputs[0], device->self);
    return berth_instance_create(site, device, out_self);
}

// What their parts get.
typedef struct reads_job {
    const berth_instance *self;
    const berth_op_args *args;
} reads_job;

static inline berth_status reads_run(void *self, const berth_op_args *args, berth_work_fn part) {
    const reads_job in = {.self = self, .args = args};
    const berth_tensor *x = args->inputs[0];
    berth_run(in.self->cpu, part, &in, berth_row_count(x) * berth_row_length(x));
    return BERTH_OK;
}

#endif
