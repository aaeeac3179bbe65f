// SPDX-License-Identifier: Apache-2.0
// embedding to float32: rows of a float32 table are copied, those of a 16-bit table are widened.
#include <cpu/cpu.h>

enum { TOKEN_IDS, WEIGHT };

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return site->outputs[0]->dtype == BERTH_DTYPE_F32
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "the output is not float32");
}

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *ids = args->inputs[TOKEN_IDS];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    for (int64_t token = 0; token < y->shape[0]; ++token) {
        const int64_t id = berth_integer_at(berth_data(ids), ids->dtype, token);
        if (id < 0 || id >= weight->shape[0]) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "embedding: token id %lld is not in the vocabulary of %lld",
                                     (long long)id, (long long)weight->shape[0]);
        }
        berth_load(berth_row(weight, id), weight->dtype, 0, y->shape[1], berth_row(y, token));
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_embedding = {
    .size = sizeof(berth_op_impl),
    .op = "embedding",
    .name = "cpu.embedding",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .forward = forward,
};
