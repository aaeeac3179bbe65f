// SPDX-License-Identifier: Apache-2.0
// varlen_encoder_attention: attention_encoder.h, one sequence after another; what is worth sharing
// is within one.
#include <cpu/attention_encoder.h>
#include <varlen.h>

enum { QUERY, KEY, VALUE, SEQ_LENS };

typedef struct encoder {
    const berth_host *host;
    attention of;
} encoder;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(encoder), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *query = site->inputs[QUERY];
        const int64_t width = query->dims[2].b;
        encoder *self = *out_self;
        self->of.cpu = device->self;
        self->of.scale = (float)berth_site_attribute(site, "scale")->f64;
        self->of.window = berth_site_attribute(site, "sliding_window")->i64;
        attention_size(&self->of, query->dims[1].b, site->inputs[KEY]->dims[1].b, width, width);
    }
    return status;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return attention_bytes(&((const encoder *)state)->of);
}

static void attend_one(const void *state, const berth_op_args *args, int64_t first, int64_t end) {
    const encoder *self = state;
    const berth_tensor *const of[] = {args->inputs[QUERY], args->inputs[KEY], args->inputs[VALUE],
                                      args->outputs[0]};
    attend_encoder(&self->of, of, (berth_span){first, end}, berth_data(args->workspace));
}

static berth_status forward(void *state, const berth_op_args *args) {
    const encoder *self = state;
    return berth_varlen_each(self->host, args, args->inputs[SEQ_LENS], attend_one, self);
}

const berth_op_impl berth_kernel_varlen_encoder_attention = {
    .size = sizeof(berth_op_impl),
    .op = "varlen_encoder_attention",
    .name = "cpu.varlen_encoder_attention",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
