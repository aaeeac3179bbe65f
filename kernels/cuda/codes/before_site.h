// SPDX-License-Identifier: Apache-2.0
// What the fused products of codes have in common on the host: the product inside the op as a site
// of its own, and what is before it, read from the op's site and from a call.
#ifndef BERTH_KERNELS_CUDA_CODES_BEFORE_SITE_H
#define BERTH_KERNELS_CUDA_CODES_BEFORE_SITE_H

#include <cuda/codes/before.h>
#include <cuda/product/product.h>

#include <string.h>

#define CUDA_INNER_INPUTS 7 // of packed_linear; scaled_linear has fewer

// The site of the product alone. It points into itself, and at the op's site.
struct cuda_inner_site {
    berth_op_site site;
    const berth_value_type *inputs[CUDA_INNER_INPUTS];
    berth_value_type x;
    berth_value_type x_scale;
};

// Where a fused op has an input of its product; FROM_BEFORE: nowhere.
#define CUDA_FROM_BEFORE 99

static inline cuda_step cuda_step_of(const berth_op_site *site) {
    const char *name = berth_site_attribute(site, "prologue")->str;
    return strcmp(name, "rms_norm") == 0       ? CUDA_NORM
           : strcmp(name, "silu_and_mul") == 0 ? CUDA_SILU
                                               : CUDA_AS_IS;
}

static inline int cuda_before_width(const berth_op_site *site) {
    const berth_value_type *x = site->inputs[0];
    const int64_t width = x->dims[x->ndim - 1].b;
    return static_cast<int>(cuda_step_of(site) == CUDA_SILU ? width / 2 : width);
}

// `from`: for every input of the product the fused op's. Its first is what comes of x, of that
// type; attributes are found by their names, which are the same.
static inline void cuda_split_site(const berth_op_site *site, const uint64_t *from,
                                   berth_dtype type, cuda_inner_site *out) {
    memset(out, 0, sizeof *out);
    out->site = *site;
    out->site.inputs = out->inputs;
    out->site.input_count = CUDA_INNER_INPUTS;
    out->site.parameter_mask = 0;
    for (uint64_t i = 0; i < CUDA_INNER_INPUTS; ++i) {
        if (from[i] != CUDA_FROM_BEFORE) {
            out->inputs[i] = site->inputs[from[i]];
            out->site.parameter_mask |= (site->parameter_mask >> from[i] & 1) << i;
        }
    }
    out->x = *site->inputs[0];
    out->x.dtype = type;
    out->x.dims[out->x.ndim - 1] = berth_dim{BERTH_SYMBOL_NONE, 0, cuda_before_width(site), 1};
    out->x_scale = out->x;
    out->x_scale.dtype = BERTH_DTYPE_F32;
    out->x_scale.dims[out->x.ndim - 1] = berth_dim{BERTH_SYMBOL_NONE, 0, 1, 1};
    out->inputs[0] = &out->x;
}

// What before.h takes. `residual`: the input, which the norm's weight follows.
static inline berth_status cuda_check_before(const berth_op_site *site, uint64_t residual) {
    const berth_value_type *x = site->inputs[0];
    const int width = cuda_before_width(site);
    const char *why = nullptr;
    if (x->dtype != BERTH_DTYPE_BF16 && x->dtype != BERTH_DTYPE_F16) {
        why = "activations in f32";
    } else if (x->ndim > 2) {
        why = "more than rows";
    } else if (width % 8 != 0 || width > CUDA_BEFORE_WIDTH) {
        why = "rows of no multiple of 8 elements, or of more than 16,384";
    }
    for (uint64_t i = residual; i < residual + 2 && !why; ++i) {
        why = site->inputs[i] && site->inputs[i]->dtype != x->dtype
                  ? "a residual or a norm's weight of another type than x"
                  : nullptr;
    }
    return why ? BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why) : BERTH_OK;
}

static inline int64_t cuda_gap_of(const berth_tensor *rows) {
    return rows->ndim > 1 ? rows->strides[0] * BERTH_DTYPE_BITS(rows->dtype) / 8 : 0;
}

// Of a call; `width` as above. What codes are made by is the caller's to add.
static inline cuda_before cuda_before_of(const berth_op_args *args, uint64_t residual,
                                         cuda_step step, float eps, int width) {
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *more = args->inputs[residual];
    const berth_tensor *weight = args->inputs[residual + 1];
    cuda_before all = {};
    all.step = step;
    all.codes = BERTH_DTYPE_NONE;
    all.x = static_cast<const char *>(berth_gpu_data(x));
    all.x_gap = cuda_gap_of(x);
    all.norm_weight = weight ? berth_gpu_data(weight) : nullptr;
    all.eps = eps;
    all.rows = static_cast<int>(berth_tensor_row_count(x));
    all.width = width;
    if (more) {
        all.residual = static_cast<const char *>(berth_gpu_data(more));
        all.residual_gap = cuda_gap_of(more);
        all.sums = static_cast<char *>(berth_gpu_data(args->outputs[1]));
        all.sums_gap = cuda_gap_of(args->outputs[1]);
    }
    return all;
}

// The beginning of an instance.
struct cuda_fused_op : gpu_op {
    void *product; // the inner op's instance
    cuda_step step;
    float eps;
    int width; // of what is multiplied
    int max_rows;
    uint64_t product_bytes; // of the workspace; what is made of x lies behind them
};

// `by`: the inner op's.
static inline berth_status cuda_open_fused(const berth_op_site *site, const berth_op_site *inner,
                                           const berth_device *device, const berth_op_impl *by,
                                           cuda_fused_op *self) {
    self->step = cuda_step_of(site);
    self->eps = static_cast<float>(berth_site_attribute(site, "eps")->f64);
    self->width = cuda_before_width(site);
    self->max_rows = cuda_max_rows(site, 0);
    const berth_status status = by->create(inner, device, &self->product);
    if (status == BERTH_OK) {
        self->product_bytes = (by->workspace(self->product, 0) + 255) / 256 * 256;
    }
    return status;
}

// A dense tensor of rows in the workspace. It points into itself.
struct cuda_made_tensor {
    berth_tensor at;
    int64_t shape[2];
    int64_t strides[2];
};

static inline const berth_tensor *cuda_lay_made(cuda_made_tensor *self, void *data,
                                                berth_dtype dtype, int64_t rows, int64_t width) {
    self->shape[0] = rows;
    self->shape[1] = self->strides[0] = width;
    self->strides[1] = 1;
    self->at = berth_tensor{sizeof(berth_tensor), data, BERTH_MEMORY_CUDA, 0, 2, dtype, self->shape,
                            self->strides,        0};
    return &self->at;
}

#endif
