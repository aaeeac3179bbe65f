// SPDX-License-Identifier: Apache-2.0
// vocab_parallel_mask: a loop over the ids of each width, which the compiler makes vectors of. A
// step has few of them: no other thread is woken.
#include <cpu/cpu.h>

enum { MASKED_INPUT, INPUT_MASK };

typedef struct share {
    const berth_host *host;
    int64_t start; // of the original vocabulary
    int64_t end;
    int64_t added_start;
    int64_t added_end;
    int64_t added_row; // of added_start
} share;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    const berth_status status = berth_instance_new(site, sizeof(share), out_self);
    if (status == BERTH_OK) {
        share *self = *out_self;
        self->start = berth_site_attribute(site, "org_vocab_start_index")->i64;
        self->end = berth_site_attribute(site, "org_vocab_end_index")->i64;
        self->added_start = berth_site_attribute(site, "added_vocab_start_index")->i64;
        self->added_end = berth_site_attribute(site, "added_vocab_end_index")->i64;
        self->added_row =
            self->end - self->start + berth_site_attribute(site, "num_org_vocab_padding")->i64;
    }
    return status;
}

// The row of an id that the rank has, −1 otherwise.
static inline int64_t row_of(const share *self, int64_t id) {
    const int is_original = id >= self->start && id < self->end;
    const int is_added = id >= self->added_start && id < self->added_end;
    return is_original ? id - self->start
           : is_added  ? id - self->added_start + self->added_row
                       : -1;
}

static berth_status forward(void *state, const berth_op_args *args) {
    const share self = *(const share *)state;
    const berth_tensor *ids = args->inputs[0];
    const int64_t count = berth_row_count(ids) * berth_row_length(ids);
    const void *from = berth_data(ids);
    void *to = berth_data(args->outputs[MASKED_INPUT]);
    uint8_t *mask = berth_data(args->outputs[INPUT_MASK]);
    const int is_wide = ids->dtype == BERTH_DTYPE_I64;
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count && is_wide; ++i) {
        const int64_t row = row_of(&self, ((const int64_t *)from)[i]);
        ((int64_t *)to)[i] = row < 0 ? 0 : row;
        mask[i] = row < 0;
    }
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count && !is_wide; ++i) {
        const int64_t row = row_of(&self, ((const int32_t *)from)[i]);
        ((int32_t *)to)[i] = row < 0 ? 0 : (int32_t)row;
        mask[i] = row < 0;
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_vocab_parallel_mask = {
    .size = sizeof(berth_op_impl),
    .op = "vocab_parallel_mask",
    .name = "cpu.vocab_parallel_mask",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
