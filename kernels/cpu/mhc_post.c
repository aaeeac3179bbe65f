// SPDX-License-Identifier: Apache-2.0
// mhc_post: mhc_streams.h, a part has some tokens.
#include <cpu/mhc_streams.h>

enum { X, RESIDUAL };

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    return mhc_create(site, device, RESIDUAL, 0, out_self);
}

static void leave_part(const void *work, int64_t part, int64_t parts) {
    const mhc_job *in = work;
    const berth_tensor *y = in->args->outputs[0];
    const berth_span tokens = berth_share(mhc_tokens(in, y), part, parts);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        mhc_leave(in->self, in->args->inputs + X, token, y);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return mhc_run(self, args, args->outputs[0], leave_part);
}

const berth_op_impl berth_kernel_mhc_post = MHC_KERNEL("mhc_post");
