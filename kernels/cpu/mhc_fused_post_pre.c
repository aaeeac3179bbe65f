// SPDX-License-Identifier: Apache-2.0
// mhc_fused_post_pre: mhc_streams.h; a token's streams are left and, out of the first cache,
// entered again.
#include <cpu/mhc_streams.h>

enum { X, RESIDUAL, POST_LAYER_MIX, COMB_RES_MIX, FN, HC_SCALE, HC_BASE };
enum { RESIDUAL_CUR, POST_MIX_CUR };

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    return mhc_create(site, device, RESIDUAL, FN, out_self);
}

static void pass_part(const void *work, int64_t part, int64_t parts) {
    const mhc_job *in = work;
    const berth_tensor *const *inputs = in->args->inputs;
    const berth_tensor *residual = in->args->outputs[RESIDUAL_CUR];
    const mhc_weights weights = {inputs[FN], berth_data(inputs[HC_SCALE]),
                                 berth_data(inputs[HC_BASE])};
    float *x = mhc_scratch_at(in, part);
    const berth_span tokens = berth_share(mhc_tokens(in, residual), part, parts);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        mhc_leave(in->self, inputs + X, token, residual);
        mhc_load(in->self, residual, token, x);
        mhc_enter(in->self, &weights, token, x, in->args->outputs + POST_MIX_CUR);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return mhc_run(self, args, args->outputs[RESIDUAL_CUR], pass_part);
}

const berth_op_impl berth_kernel_mhc_fused_post_pre = MHC_KERNEL("mhc_fused_post_pre");
