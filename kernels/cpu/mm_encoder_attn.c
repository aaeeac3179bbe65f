// SPDX-License-Identifier: Apache-2.0
// mm_encoder_attn: attention_encoder.h, one segment after another; what is worth sharing is within
// one.
#include <cpu/attention_encoder.h>

#include <math.h>

enum { QUERY, KEY, VALUE, CU_SEQLENS };

typedef struct encoder {
    const berth_host *host;
    attention of;
    int64_t heads[2]; // of queries, of keys
} encoder;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(encoder), out_self);
    if (status == BERTH_OK) {
        const int64_t width = berth_site_attribute(site, "head_size")->i64;
        const berth_attribute *scale = berth_site_attribute(site, "scale");
        const berth_attribute *kv_heads = berth_site_attribute(site, "num_kv_heads");
        encoder *self = *out_self;
        self->of.cpu = device->self;
        self->of.scale =
            scale->kind == BERTH_ATTRIBUTE_NONE ? 1.0f / sqrtf((float)width) : (float)scale->f64;
        self->heads[0] = berth_site_attribute(site, "num_heads")->i64;
        self->heads[1] = kv_heads->kind == BERTH_ATTRIBUTE_NONE ? self->heads[0] : kv_heads->i64;
        attention_size(&self->of, self->heads[0], self->heads[1], width, width);
    }
    return status;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return attention_bytes(&((const encoder *)state)->of);
}

// Row `index` of the batch, [tokens, heads, width]; the heads may lie in one dimension with the
// width.
static berth_tensor batch_row(const encoder *self, const berth_tensor *x, int64_t index,
                              int64_t heads, int64_t memory[2][3]) {
    const int64_t width = self->of.width;
    berth_tensor out = *x;
    memory[0][0] = x->shape[1];
    memory[0][1] = heads;
    memory[0][2] = width;
    memory[1][0] = x->strides[1];
    memory[1][1] = x->ndim == 4 ? x->strides[2] : width;
    memory[1][2] = 1;
    out.ndim = 3;
    out.shape = memory[0];
    out.strides = memory[1];
    out.byte_offset += (uint64_t)(index * x->strides[0]) * BERTH_DTYPE_BITS(x->dtype) / 8;
    return out;
}

static void attend_segment(const encoder *self, const berth_op_args *args, int64_t index,
                           berth_span tokens) {
    const berth_tensor *const all[] = {args->inputs[QUERY], args->inputs[KEY], args->inputs[VALUE],
                                       args->outputs[0]};
    int64_t memory[4][2][3];
    berth_tensor rows[4];
    for (int i = 0; i < 4; ++i) {
        rows[i] = batch_row(self, all[i], index, self->heads[i == KEY || i == VALUE], memory[i]);
    }
    const berth_tensor *const of[] = {&rows[0], &rows[1], &rows[2], &rows[3]};
    attend_encoder(&self->of, of, tokens, berth_data(args->workspace));
}

static berth_status forward(void *state, const berth_op_args *args) {
    const encoder *self = state;
    const berth_tensor *starts = args->inputs[CU_SEQLENS];
    const int64_t tokens = args->inputs[QUERY]->shape[1];
    for (int64_t i = 0; !starts && i < args->inputs[QUERY]->shape[0]; ++i) {
        attend_segment(self, args, i, (berth_span){0, tokens});
    }
    for (int64_t i = 0; starts && i + 1 < starts->shape[0]; ++i) {
        const berth_span segment = {berth_integer_at(berth_data(starts), starts->dtype, i),
                                    berth_integer_at(berth_data(starts), starts->dtype, i + 1)};
        if (segment.first < 0 || segment.end > tokens) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "mm_encoder_attn: segment %lld has the tokens %lld to %lld of "
                                     "%lld",
                                     (long long)i, (long long)segment.first, (long long)segment.end,
                                     (long long)tokens);
        }
        if (segment.first < segment.end) {
            attend_segment(self, args, 0, segment);
        }
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_mm_encoder_attn = {
    .size = sizeof(berth_op_impl),
    .op = "mm_encoder_attn",
    .name = "cpu.mm_encoder_attn",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
