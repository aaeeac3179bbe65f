// SPDX-License-Identifier: Apache-2.0
// Hyper-connections (formulas: native/mhc_rules.h) for the kernels of the mhc ops and of hc_head.
// The streams of a token are made floats once, in the part's scratch, and used from there: for the
// norm, for the products with fn, some rows of it at a time, and for the sum.
#ifndef BERTH_KERNELS_CPU_MHC_STREAMS_H
#define BERTH_KERNELS_CPU_MHC_STREAMS_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <mhc.h>

#define MHC_ROWS 4 // of fn at a time

typedef struct mhc {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t streams;
    int64_t hidden;
    int64_t rows; // of fn
    float rms_eps;
    float pre_eps;
    float sinkhorn_eps;
    float post_mult;
    int64_t repeat;
} mhc;

typedef struct mhc_job {
    const mhc *self;
    const berth_op_args *args;
} mhc_job;

// What a token's streams are mixed by: fn, scale and base.
typedef struct mhc_weights {
    const berth_tensor *fn; // [rows, streams · hidden]
    const float *scale;
    const float *base; // [rows]
} mhc_weights;

static inline float mhc_number(const berth_op_site *site, const char *name) {
    const berth_attribute *found = berth_site_attribute(site, name);
    return found ? (float)found->f64 : 0;
}

// `streams` and what is behind it: inputs of the site; fn is 0 where the op has none.
static inline berth_status mhc_create(const berth_op_site *site, const berth_device *device,
                                      uint64_t streams, uint64_t fn, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(mhc), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *type = site->inputs[streams];
        const berth_attribute *repeat = berth_site_attribute(site, "sinkhorn_repeat");
        mhc *self = *out_self;
        self->cpu = device->self;
        self->streams = type->dims[type->ndim - 2].b;
        self->hidden = type->dims[type->ndim - 1].b;
        self->rows = fn ? site->inputs[fn]->dims[0].b : 0;
        self->rms_eps = mhc_number(site, "rms_eps");
        self->pre_eps = mhc_number(site, "hc_pre_eps");
        self->sinkhorn_eps = mhc_number(site, "hc_sinkhorn_eps");
        self->post_mult = mhc_number(site, "hc_post_mult_value");
        self->repeat = repeat ? repeat->i64 : 0;
    }
    return status;
}

// ---- scratch ------------------------------------------------------------------------------------

static inline int64_t mhc_width(const mhc *self) {
    return self->streams * self->hidden;
}

static inline int64_t mhc_floats(const mhc *self) {
    return (mhc_width(self) + self->rows + MHC_ROWS + 15) / 16 * 16;
}

// Of every part: a token's streams, then a mix of `rows`.
static inline uint64_t mhc_scratch(void *state, uint64_t tokens) {
    (void)tokens;
    const mhc *self = state;
    return (uint64_t)(self->cpu->threads * mhc_floats(self)) * sizeof(float);
}

static inline float *mhc_scratch_at(const mhc_job *in, int64_t part) {
    return (float *)berth_data(in->args->workspace) + part * mhc_floats(in->self);
}

static inline void mhc_load(const mhc *self, const berth_tensor *residual, int64_t token,
                            float *x) {
    for (int64_t i = 0; i < self->streams; ++i) {
        berth_vec_copy(x + i * self->hidden, BERTH_DTYPE_F32,
                       berth_row(residual, token * self->streams + i), residual->dtype,
                       self->hidden);
    }
}

// ---- entering a block ---------------------------------------------------------------------------

// x times each of some rows.
BERTH_INLINE void mhc_products(const float *x, int64_t width, const float *const rows[MHC_ROWS],
                               float *out) {
    berth_vec sums[MHC_ROWS];
    BERTH_UNROLL
    for (int row = 0; row < MHC_ROWS; ++row) {
        sums[row] = berth_vec_of(0);
    }
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        const berth_vec value = berth_vec_load_some(x, BERTH_DTYPE_F32, i, width);
        BERTH_UNROLL
        for (int row = 0; row < MHC_ROWS; ++row) {
            sums[row] = berth_vec_fma(
                value, berth_vec_load_some(rows[row], BERTH_DTYPE_F32, i, width), sums[row]);
        }
    }
    BERTH_UNROLL
    for (int row = 0; row < MHC_ROWS; ++row) {
        out[row] = berth_vec_sum(sums[row]);
    }
}

// mix = fn · x / sqrt(mean of squares + eps); `mix` has room for MHC_ROWS more.
static inline void mhc_mix(const mhc *self, const float *x, const berth_tensor *fn, float *mix) {
    const int64_t width = mhc_width(self);
    const float *rows[MHC_ROWS] = {x, x, x, x};
    mhc_products(x, width, rows, mix);
    const float norm = 1.0f / sqrtf(mix[0] / (float)width + self->rms_eps);
    for (int64_t row = 0; row < self->rows; row += MHC_ROWS) {
        for (int64_t i = 0; i < MHC_ROWS; ++i) {
            rows[i] = berth_row(fn, row + i < self->rows ? row + i : self->rows - 1);
        }
        mhc_products(x, width, rows, mix + row);
    }
    for (int64_t row = 0; row < self->rows; ++row) {
        mix[row] *= norm;
    }
}

// y = Σ factor_i · stream i, rounded once.
static inline void mhc_sum(const mhc *self, const float *x, const float *factors, void *y,
                           berth_dtype dtype) {
    for (int64_t i = 0; i < self->hidden; i += BERTH_LANES) {
        berth_vec sum = berth_vec_of(0);
        for (int64_t stream = 0; stream < self->streams; ++stream) {
            sum = sum + berth_vec_of(factors[stream]) *
                            berth_vec_load_some(x + stream * self->hidden, BERTH_DTYPE_F32, i,
                                                self->hidden);
        }
        berth_vec_store_some(y, dtype, i, self->hidden, sum);
    }
}

// `out`: post_mix, comb_mix, layer_input. `x` holds the token's streams, the mix stands behind it.
static inline void mhc_enter(const mhc *self, const mhc_weights *weights, int64_t token, float *x,
                             berth_tensor *const *out) {
    const int64_t streams = self->streams;
    float *mix = x + mhc_width(self);
    float *post = (float *)berth_data(out[0]) + token * streams;
    float *comb = (float *)berth_data(out[1]) + token * streams * streams;
    mhc_mix(self, x, weights->fn, mix);
    for (int64_t i = 0; i < self->rows; ++i) {
        const int64_t kind = i < streams ? 0 : i < 2 * streams ? 1 : 2;
        mix[i] = mix[i] * weights->scale[kind] + weights->base[i];
    }
    for (int64_t i = 0; i < streams; ++i) {
        mix[i] = mhc_sigmoid(mix[i]) + self->pre_eps;
        post[i] = mhc_sigmoid(mix[streams + i]) * self->post_mult;
    }
    memcpy(comb, mix + 2 * streams, (size_t)(streams * streams) * sizeof *comb);
    mhc_sinkhorn(comb, streams, self->sinkhorn_eps, self->repeat);
    mhc_sum(self, x, mix, berth_row(out[2], token), out[2]->dtype);
}

// ---- leaving a block ----------------------------------------------------------------------------

// All streams of a token; `operands`: x, residual, post_layer_mix, comb_res_mix.
BERTH_INLINE void mhc_leave_as(const mhc *self, const berth_tensor *const *operands, int64_t token,
                               const berth_tensor *y, berth_dtype dtype) {
    const int64_t streams = self->streams;
    const void *x = berth_row(operands[0], token);
    const float *post = (const float *)berth_data(operands[2]) + token * streams;
    const float *comb = (const float *)berth_data(operands[3]) + token * streams * streams;
    for (int64_t to = 0; to < streams; ++to) {
        void *row = berth_row(y, token * streams + to);
        for (int64_t i = 0; i < self->hidden; i += BERTH_LANES) {
            berth_vec sum = berth_vec_of(post[to]) * berth_vec_load_some(x, dtype, i, self->hidden);
            for (int64_t from = 0; from < streams; ++from) {
                const void *stream = berth_row(operands[1], token * streams + from);
                sum = sum + berth_vec_of(comb[from * streams + to]) *
                                berth_vec_load_some(stream, dtype, i, self->hidden);
            }
            berth_vec_store_some(row, dtype, i, self->hidden, sum);
        }
    }
}

static inline void mhc_leave(const mhc *self, const berth_tensor *const *operands, int64_t token,
                             const berth_tensor *y) {
    if (y->dtype == BERTH_DTYPE_F32) {
        mhc_leave_as(self, operands, token, y, BERTH_DTYPE_F32);
    } else if (y->dtype == BERTH_DTYPE_BF16) {
        mhc_leave_as(self, operands, token, y, BERTH_DTYPE_BF16);
    } else {
        mhc_leave_as(self, operands, token, y, BERTH_DTYPE_F16);
    }
}

// ---- a call -------------------------------------------------------------------------------------

static inline int64_t mhc_tokens(const mhc_job *in, const berth_tensor *streams) {
    return berth_row_count(streams) / in->self->streams;
}

// `streams`: the tensor that has them.
static inline berth_status mhc_run(void *state, const berth_op_args *args,
                                   const berth_tensor *streams, berth_work_fn part) {
    const mhc_job in = {.self = state, .args = args};
    const int64_t elements = berth_row_count(streams) * in.self->hidden;
    berth_run(in.self->cpu, part, &in, elements * (1 + in.self->rows));
    return BERTH_OK;
}

// The kernel of an op whose file defines create and forward.
#define MHC_KERNEL(op_name)                                                                        \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (op_name), .name = "cpu." op_name,                    \
        .dispatch_key = BERTH_DISPATCH_CPU, .revision = 1, .flags = BERTH_IMPL_DETERMINISTIC,      \
        .create = create, .workspace = mhc_scratch, .forward = forward,                            \
        .destroy = berth_instance_free                                                             \
    }

#endif
