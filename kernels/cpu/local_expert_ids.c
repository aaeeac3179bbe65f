// SPDX-License-Identifier: Apache-2.0
// local_expert_ids: a loop over the ids of each width, which the compiler makes vectors of. A step
// has few of them: no other thread is woken.
#include <cpu/cpu.h>

typedef struct range {
    const berth_host *host;
    int64_t first;
    int64_t count;
} range;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    const berth_status status = berth_instance_new(site, sizeof(range), out_self);
    if (status == BERTH_OK) {
        range *self = *out_self;
        self->first = berth_site_attribute(site, "first")->i64;
        self->count = berth_site_attribute(site, "count")->i64;
    }
    return status;
}

static inline int64_t local_of(const range *self, int64_t id) {
    const int64_t local = id - self->first;
    return local < 0 || local >= self->count ? -1 : local;
}

static berth_status forward(void *state, const berth_op_args *args) {
    const range self = *(const range *)state;
    const berth_tensor *ids = args->inputs[0];
    const int64_t count = berth_row_count(ids) * berth_row_length(ids);
    const void *from = berth_data(ids);
    void *to = berth_data(args->outputs[0]);
    if (ids->dtype == BERTH_DTYPE_I64) {
        BERTH_INDEPENDENT
        for (int64_t i = 0; i < count; ++i) {
            ((int64_t *)to)[i] = local_of(&self, ((const int64_t *)from)[i]);
        }
    } else {
        BERTH_INDEPENDENT
        for (int64_t i = 0; i < count; ++i) {
            ((int32_t *)to)[i] = (int32_t)local_of(&self, ((const int32_t *)from)[i]);
        }
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_local_expert_ids = {
    .size = sizeof(berth_op_impl),
    .op = "local_expert_ids",
    .name = "cpu.local_expert_ids",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
