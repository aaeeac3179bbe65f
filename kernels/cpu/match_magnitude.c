// SPDX-License-Identifier: Apache-2.0
// match_magnitude: two sums of squares of a row, then its scaling.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <math.h>

enum { X, LIKE };

#define PIECE 64 // elements widened at a time
#define SUMS  8  // in turns, so that the compiler makes vectors of them

typedef struct match {
    const berth_host *host;
    const berth_cpu *cpu;
    double least;
} match;

typedef struct job {
    const match *self;
    const berth_op_args *args;
} job;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(match), out_self);
    if (status == BERTH_OK) {
        match *self = *out_self;
        self->cpu = device->self;
        self->least = berth_site_attribute(site, "least")->f64;
    }
    return status;
}

// Why double: the square of what a float holds need not be one.
static double mean_of_squares(const void *row, berth_dtype dtype, int64_t width) {
    double sums[SUMS] = {0};
    for (int64_t first = 0; first < width; first += PIECE) {
        float piece[PIECE] = {0};
        berth_load(row, dtype, first, width - first < PIECE ? width - first : PIECE, piece);
        for (int64_t i = 0; i < PIECE; i += SUMS) {
            for (int64_t k = 0; k < SUMS; ++k) {
                sums[k] += (double)piece[i + k] * (double)piece[i + k];
            }
        }
    }
    double total = 0;
    for (int64_t k = 0; k < SUMS; ++k) {
        total += sums[k];
    }
    return total / (double)width;
}

BERTH_INLINE void match_row(const job *in, int64_t row, berth_dtype dtype) {
    const void *x = berth_row(in->args->inputs[X], row);
    void *y = berth_row(in->args->outputs[0], row);
    const int64_t width = berth_row_length(in->args->outputs[0]);
    const double wanted = mean_of_squares(berth_row(in->args->inputs[LIKE], row), dtype, width);
    const double own = fmax(mean_of_squares(x, dtype, width), in->self->least);
    const berth_vec scale = berth_vec_of((float)sqrt(wanted / own));
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        berth_vec_store_some(y, dtype, i, width, berth_vec_load_some(x, dtype, i, width) * scale);
    }
}

static void match_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *y = in->args->outputs[0];
    const berth_span rows = berth_share(berth_row_count(y), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        if (y->dtype == BERTH_DTYPE_F32) {
            match_row(in, row, BERTH_DTYPE_F32);
        } else if (y->dtype == BERTH_DTYPE_BF16) {
            match_row(in, row, BERTH_DTYPE_BF16);
        } else {
            match_row(in, row, BERTH_DTYPE_F16);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const job in = {.self = state, .args = args};
    const berth_tensor *y = args->outputs[0];
    berth_run(in.self->cpu, match_part, &in, berth_row_count(y) * berth_row_length(y));
    return BERTH_OK;
}

const berth_op_impl berth_kernel_match_magnitude = {
    .size = sizeof(berth_op_impl),
    .op = "match_magnitude",
    .name = "cpu.match_magnitude",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
