// SPDX-License-Identifier: Apache-2.0
// hc_head: mhc_streams.h with a gate for each stream, a part has some tokens.
#include <cpu/mhc_streams.h>

enum { HIDDEN_STATES, HC_FN, HC_SCALE, HC_BASE };

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = mhc_create(site, device, HIDDEN_STATES, HC_FN, out_self);
    if (status == BERTH_OK) {
        mhc *self = *out_self;
        self->rms_eps = mhc_number(site, "rms_norm_eps");
        self->pre_eps = mhc_number(site, "hc_eps");
    }
    return status;
}

static void head_part(const void *work, int64_t part, int64_t parts) {
    const mhc_job *in = work;
    const berth_tensor *const *inputs = in->args->inputs;
    const berth_tensor *y = in->args->outputs[0];
    const float scale = *(const float *)berth_data(inputs[HC_SCALE]);
    const float *base = berth_data(inputs[HC_BASE]);
    float *x = mhc_scratch_at(in, part);
    float *gates = x + mhc_width(in->self);
    const berth_span tokens = berth_share(mhc_tokens(in, inputs[HIDDEN_STATES]), part, parts);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        mhc_load(in->self, inputs[HIDDEN_STATES], token, x);
        mhc_mix(in->self, x, inputs[HC_FN], gates);
        for (int64_t i = 0; i < in->self->streams; ++i) {
            gates[i] = mhc_sigmoid(gates[i] * scale + base[i]) + in->self->pre_eps;
        }
        mhc_sum(in->self, x, gates, berth_row(y, token), y->dtype);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return mhc_run(self, args, args->inputs[HIDDEN_STATES], head_part);
}

const berth_op_impl berth_kernel_hc_head = MHC_KERNEL("hc_head");
