// SPDX-License-Identifier: Apache-2.0
// apply_rotary_emb: pairs turned by given cosines and sines, with one rounding.
#include <cpu/cpu.h>
#include <cpu/simd.h>

enum { X, COS, SIN };

typedef struct rotation {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t is_neox;
} rotation;

typedef struct job {
    const rotation *self;
    const berth_op_args *args;
} job;

// One head, and the angles of its pairs.
typedef struct one_head {
    const void *x;
    void *y;
    const void *cosines;
    const void *sines;
    int64_t pairs;
} one_head;

// One head whose halves are the members of its pairs.
BERTH_INLINE void turn_halves(const one_head *of, berth_dtype dtype, berth_dtype angle_dtype) {
    const int64_t pairs = of->pairs;
    for (int64_t i = 0; i < pairs; i += BERTH_LANES) {
        const berth_vec cosine = berth_vec_load_some(of->cosines, angle_dtype, i, pairs);
        const berth_vec sine = berth_vec_load_some(of->sines, angle_dtype, i, pairs);
        const berth_vec x1 = berth_vec_load_some(of->x, dtype, i, pairs);
        const berth_vec x2 = berth_vec_load_some(of->x, dtype, pairs + i, 2 * pairs);
        berth_vec_store_some(of->y, dtype, i, pairs, x1 * cosine - x2 * sine);
        berth_vec_store_some(of->y, dtype, pairs + i, 2 * pairs, x2 * cosine + x1 * sine);
    }
}

// One head whose pairs are neighbours: two vectors are taken apart into first and second members.
BERTH_INLINE void turn_neighbours(const one_head *of, berth_dtype dtype, berth_dtype angle_dtype) {
    const int64_t pairs = of->pairs;
    for (int64_t i = 0; i < pairs; i += BERTH_LANES) {
        const int64_t next = 2 * i + BERTH_LANES;
        const berth_vec cosine = berth_vec_load_some(of->cosines, angle_dtype, i, pairs);
        const berth_vec sine = berth_vec_load_some(of->sines, angle_dtype, i, pairs);
        const berth_vec low = berth_vec_load_some(of->x, dtype, 2 * i, 2 * pairs);
        const berth_vec high = berth_vec_load_some(of->x, dtype, next, 2 * pairs);
        const berth_vec x1 = berth_vec_even(low, high);
        const berth_vec x2 = berth_vec_odd(low, high);
        const berth_vec y1 = x1 * cosine - x2 * sine;
        const berth_vec y2 = x2 * cosine + x1 * sine;
        berth_vec_store_some(of->y, dtype, 2 * i, 2 * pairs, berth_vec_low(y1, y2));
        if (next < 2 * pairs) {
            berth_vec_store_some(of->y, dtype, next, 2 * pairs, berth_vec_high(y1, y2));
        }
    }
}

BERTH_INLINE void turn(const job *in, int64_t row, const berth_rows *from, const berth_rows *to,
                       berth_dtype dtype) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *cosines = in->args->inputs[COS];
    const int64_t place = row / x->shape[x->ndim - 2] % x->shape[x->ndim - 3];
    const one_head of = {
        .x = berth_rows_at(from, row),
        .y = berth_rows_at(to, row),
        .cosines = berth_row(cosines, place),
        .sines = berth_row(in->args->inputs[SIN], place),
        .pairs = berth_row_length(x) / 2,
    };
    if (in->self->is_neox) {
        turn_halves(&of, dtype, cosines->dtype);
    } else {
        turn_neighbours(&of, dtype, cosines->dtype);
    }
}

static void turn_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_rows from = berth_rows_of(x);
    const berth_rows to = berth_rows_of(in->args->outputs[0]);
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        if (x->dtype == BERTH_DTYPE_F32) {
            turn(in, row, &from, &to, BERTH_DTYPE_F32);
        } else if (x->dtype == BERTH_DTYPE_BF16) {
            turn(in, row, &from, &to, BERTH_DTYPE_BF16);
        } else {
            turn(in, row, &from, &to, BERTH_DTYPE_F16);
        }
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    const job in = {.self = self, .args = args};
    const berth_tensor *x = args->inputs[X];
    berth_run(in.self->cpu, turn_part, &in, berth_row_count(x) * berth_row_length(x));
    return BERTH_OK;
}

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return site->inputs[COS]->dtype == site->inputs[SIN]->dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "'sin' has another dtype than 'cos'");
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(rotation), out_self);
    if (status == BERTH_OK) {
        rotation *self = *out_self;
        self->cpu = device->self;
        self->is_neox = berth_site_attribute(site, "is_neox_style")->i64;
    }
    return status;
}

const berth_op_impl berth_kernel_apply_rotary_emb = {
    .size = sizeof(berth_op_impl),
    .op = "apply_rotary_emb",
    .name = "cpu.apply_rotary_emb",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
