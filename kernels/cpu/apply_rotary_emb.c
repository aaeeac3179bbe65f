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

// One head whose halves are the members of its pairs.
BERTH_INLINE void turn_halves(const void *x, void *y, const void *c, const void *s, int64_t pairs,
                              berth_dtype dtype, berth_dtype angle_dtype) {
    for (int64_t i = 0; i < pairs; i += BERTH_LANES) {
        const berth_vec cosine = berth_vec_load_some(c, angle_dtype, i, pairs);
        const berth_vec sine = berth_vec_load_some(s, angle_dtype, i, pairs);
        const berth_vec x1 = berth_vec_load_some(x, dtype, i, pairs);
        const berth_vec x2 = berth_vec_load_some(x, dtype, pairs + i, 2 * pairs);
        berth_vec_store_some(y, dtype, i, pairs, x1 * cosine - x2 * sine);
        berth_vec_store_some(y, dtype, pairs + i, 2 * pairs, x2 * cosine + x1 * sine);
    }
}

// One head whose pairs are neighbours: the partner of each element is fetched across, its angle
// spread to both.
BERTH_INLINE void turn_neighbours(const void *x, void *y, const void *c, const void *s,
                                  int64_t pairs, berth_dtype dtype, berth_dtype angle_dtype) {
    berth_vec_ints across = {0};
    berth_vec_ints spread = {0};
    berth_vec sign = berth_vec_of(0);
    BERTH_UNROLL
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        across[lane] = lane ^ 1;
        spread[lane] = lane / 2;
        sign[lane] = lane % 2 == 0 ? -1.0f : 1.0f;
    }
    for (int64_t i = 0; i < 2 * pairs; i += BERTH_LANES) {
        const int64_t end = pairs < (i + BERTH_LANES) / 2 ? pairs : (i + BERTH_LANES) / 2;
        const berth_vec c_part = berth_vec_load_part(c, angle_dtype, i / 2, end - i / 2);
        const berth_vec s_part = berth_vec_load_part(s, angle_dtype, i / 2, end - i / 2);
        const berth_vec own = berth_vec_load_some(x, dtype, i, 2 * pairs);
        const berth_vec other = __builtin_shuffle(own, across);
        berth_vec_store_some(y, dtype, i, 2 * pairs,
                             own * __builtin_shuffle(c_part, spread) +
                                 other * (sign * __builtin_shuffle(s_part, spread)));
    }
}

BERTH_INLINE void turn(const job *in, int64_t row, const berth_rows *from, const berth_rows *to,
                       berth_dtype dtype) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *cosines = in->args->inputs[COS];
    const int64_t pairs = berth_row_length(x) / 2;
    const int64_t place = row / x->shape[x->ndim - 2] % x->shape[x->ndim - 3];
    const void *c = berth_row(cosines, place);
    const void *s = berth_row(in->args->inputs[SIN], place);
    if (in->self->is_neox) {
        turn_halves(berth_rows_at(from, row), berth_rows_at(to, row), c, s, pairs, dtype,
                    cosines->dtype);
    } else {
        turn_neighbours(berth_rows_at(from, row), berth_rows_at(to, row), c, s, pairs, dtype,
                        cosines->dtype);
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
