// SPDX-License-Identifier: Apache-2.0
// mhc_pre: mhc_streams.h, a part has some tokens.
#include <cpu/mhc_streams.h>

enum { RESIDUAL, FN, HC_SCALE, HC_BASE };

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    return mhc_create(site, device, RESIDUAL, FN, out_self);
}

static void enter_part(const void *work, int64_t part, int64_t parts) {
    const mhc_job *in = work;
    const berth_tensor *const *inputs = in->args->inputs;
    const mhc_weights weights = {inputs[FN], berth_data(inputs[HC_SCALE]),
                                 berth_data(inputs[HC_BASE])};
    float *x = mhc_scratch_at(in, part);
    const berth_span tokens = berth_share(mhc_tokens(in, inputs[RESIDUAL]), part, parts);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        mhc_load(in->self, inputs[RESIDUAL], token, x);
        mhc_enter(in->self, &weights, token, x, in->args->outputs);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return mhc_run(self, args, args->inputs[RESIDUAL], enter_part);
}

const berth_op_impl berth_kernel_mhc_pre = MHC_KERNEL("mhc_pre");
