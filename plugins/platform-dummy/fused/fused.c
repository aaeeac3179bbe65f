// SPDX-License-Identifier: Apache-2.0
// The op library of platform-dummy: add, norm and bias as one kernel. A vendor's would have the
// heavy ones, and link what they need. It shares with plugin.c what only one build knows: here,
// that a base of the device's memory is the complement of an address.
#include <math.h>

#include <berth/op_library.h>

enum { X, RESIDUAL, WEIGHT, BIAS };

// Unlike the form in plugin.c it also has the bias. Where it says no, that one is asked.
static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_attribute *part = berth_site_attribute(site, "var_hidden_size");
    int is_known = !part || part->kind == BERTH_ATTRIBUTE_NONE;
    for (uint64_t i = 0; i < site->input_count; ++i) {
        is_known = is_known && (!site->inputs[i] || site->inputs[i]->dtype == BERTH_DTYPE_F32);
    }
    return is_known ? BERTH_OK
                    : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only whole rows in f32");
}

static float *row_of(const berth_tensor *tensor, int64_t row) {
    return tensor ? (float *)(~(uintptr_t)tensor->data + tensor->byte_offset) +
                        berth_tensor_row_offset(tensor, row)
                  : NULL;
}

static float at_or(const float *vector, int64_t i, float absent) {
    return vector ? vector[i] : absent;
}

// y = sum / sqrt(mean(sum^2) + eps) * weight + bias, sum = x + residual the second output. x,
// residual and both outputs [..., hidden], weight and bias [hidden].
static berth_status rms_norm(void *self, const berth_op_args *args) {
    const double eps = ((const berth_op_site *)self)->attributes[0]->f64;
    const berth_tensor *x = args->inputs[X];
    const float *weight = row_of(args->inputs[WEIGHT], 0);
    const float *bias = row_of(args->inputs[BIAS], 0);
    const int64_t hidden = x->shape[x->ndim - 1];
    for (int64_t row = 0; row < berth_tensor_row_count(x); ++row) {
        const float *from = row_of(x, row);
        const float *residual = row_of(args->inputs[RESIDUAL], row);
        float *y = row_of(args->outputs[0], row);
        float *sum = residual ? row_of(args->outputs[1], row) : y;
        double squares = 0;
        for (int64_t i = 0; i < hidden; ++i) {
            sum[i] = from[i] + at_or(residual, i, 0);
            squares += (double)sum[i] * sum[i];
        }
        const float scale = (float)(1 / sqrt(squares / (double)hidden + eps));
        for (int64_t i = 0; i < hidden; ++i) {
            y[i] = sum[i] * scale * at_or(weight, i, 1) + at_or(bias, i, 0);
        }
    }
    return BERTH_OK;
}

static const berth_op_impl norm = {
    .size = sizeof(berth_op_impl),
    .op = "RMSNorm",
    .name = "dummy_rms_norm",
    .revision = 2,
    .supports = supports,
    .forward = rms_norm,
};

BERTH_OP_LIBRARY_DEFINE(.id = "dummy", .version = "0.1.0", .impl_count = 1,
                        .impls = (const berth_op_impl *const[]){&norm});
