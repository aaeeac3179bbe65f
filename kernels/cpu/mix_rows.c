// SPDX-License-Identifier: Apache-2.0
// mix_rows: some columns of a token at a time, of all its x, so that the sum stays in registers.
#include <cpu/cpu.h>
#include <cpu/simd.h>

enum { BASE, COEFFICIENTS, FIRST };

#define MOST 8 // x of a site

typedef struct mix {
    const berth_host *host;
    const berth_cpu *cpu;
    float offset;
} mix;

typedef struct job {
    const mix *self;
    const berth_op_args *args;
} job;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return site->input_count <= FIRST + MOST
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "more than %d rows to add", MOST);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(mix), out_self);
    if (status == BERTH_OK) {
        mix *self = *out_self;
        self->cpu = device->self;
        self->offset = (float)berth_site_attribute(site, "offset")->f64;
    }
    return status;
}

BERTH_INLINE void mix_row(const job *in, int64_t row, berth_dtype dtype) {
    const berth_tensor *base = in->args->inputs[BASE];
    const berth_tensor *coefficients = in->args->inputs[COEFFICIENTS];
    const int64_t count = coefficients->shape[1];
    const void *from = berth_row(base, row);
    const void *rows[MOST];
    berth_vec shares[MOST];
    void *y = berth_row(in->args->outputs[0], row);
    for (int64_t k = 0; k < count; ++k) {
        rows[k] = berth_row(in->args->inputs[FIRST + k], row);
        shares[k] =
            berth_vec_of(berth_load_at(berth_row(coefficients, row), dtype, k) + in->self->offset);
    }
    for (int64_t i = 0; i < base->shape[1]; i += BERTH_LANES) {
        berth_vec sum = berth_vec_load_some(from, dtype, i, base->shape[1]);
        for (int64_t k = 0; k < count; ++k) {
            sum = sum + shares[k] * berth_vec_load_some(rows[k], dtype, i, base->shape[1]);
        }
        berth_vec_store_some(y, dtype, i, base->shape[1], sum);
    }
}

static void mix_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *base = in->args->inputs[BASE];
    const berth_span rows = berth_share(base->shape[0], part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        if (base->dtype == BERTH_DTYPE_F32) {
            mix_row(in, row, BERTH_DTYPE_F32);
        } else if (base->dtype == BERTH_DTYPE_BF16) {
            mix_row(in, row, BERTH_DTYPE_BF16);
        } else {
            mix_row(in, row, BERTH_DTYPE_F16);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const job in = {.self = state, .args = args};
    const berth_tensor *base = args->inputs[BASE];
    berth_run(in.self->cpu, mix_part, &in,
              base->shape[0] * base->shape[1] * (1 + args->inputs[COEFFICIENTS]->shape[1]));
    return BERTH_OK;
}

const berth_op_impl berth_kernel_mix_rows = {
    .size = sizeof(berth_op_impl),
    .op = "mix_rows",
    .name = "cpu.mix_rows",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
