// SPDX-License-Identifier: Apache-2.0
// rotary_attention where cuda.paged_attention has the attention: in steps of one new token a
// sequence decode's kernel turns queries and new keys as it loads them. In others
// rotary_embedding's kernel turns them into the workspace. Ropes whose angles are positions times a
// table.
#include <cuda/attention/attention.h>
#include <gpu/rotary.h>

#include <rope.h>

namespace {

enum { POSITIONS, QUERY, KEY, CACHE, COS_COEF, VALUE = 6, INPUTS = 13 };
constexpr int ATTENTION_INPUTS = INPUTS - VALUE + 2; // query and key, then value and the rest
constexpr uint64_t ALIGNMENT = 256;

struct rotary_attention : cuda_attention {
    gpu_rotary rotary;
};

// The site or the arguments as paged_attention has them: its inputs in its order.
template <typename V> struct as_attention {
    V inputs[ATTENTION_INPUTS];

    explicit as_attention(const V *all) {
        inputs[0] = all[QUERY];
        inputs[1] = all[KEY];
        for (int i = 2; i < ATTENTION_INPUTS; ++i) {
            inputs[i] = all[VALUE + i - 2];
        }
    }
};

struct attention_site : as_attention<const berth_value_type *> {
    berth_op_site site;

    explicit attention_site(const berth_op_site *whole)
        : as_attention(whole->inputs), site(*whole) {
        site.inputs = inputs;
        site.input_count = ATTENTION_INPUTS;
    }
};

struct attention_args : as_attention<const berth_tensor *> {
    berth_op_args args;

    explicit attention_args(const berth_op_args *whole)
        : as_attention(whole->inputs), args(*whole) {
        args.inputs = inputs;
    }
};

berth_status no(const berth_op_site *site, const char *why) {
    return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why);
}

berth_status check_rope(const berth_op_site *site) {
    const int64_t pairs = berth_rope_pairs(site);
    if (!berth_rope_is_known(site) || berth_rope_number(site, "is_deepseek_v4", 0) != 0) {
        return no(site, "only ropes whose pairs begin with the head and are the same for all");
    }
    if (site->inputs[CACHE]) {
        return no(site, "no cos_sin_cache");
    }
    if (site->inputs[POSITIONS]->ndim != 1) {
        return no(site, "only positions of one axis");
    }
    return pairs % 8 == 0 ? BERTH_OK : no(site, "only a multiple of 8 pairs");
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    const attention_site attention(site);
    berth_status status = cuda_attention_check(&attention.site, device);
    status = status == BERTH_OK ? gpu_rotary_check(site) : status;
    return status == BERTH_OK ? check_rope(site) : status;
}

void destroy(void *self) {
    const rotary_attention *op = static_cast<const rotary_attention *>(self);
    gpu_rotary_free(&op->rotary);
    cuda_attention_free(op);
    gpu_destroy(self);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const attention_site attention(site);
    berth_status status = gpu_new<rotary_attention>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    rotary_attention *self = static_cast<rotary_attention *>(*out_self);
    status = cuda_attention_read(&attention.site, device, self);
    status = status == BERTH_OK ? gpu_rotary_read(site, self, &self->rotary) : status;
    if (status != BERTH_OK) {
        destroy(self);
    }
    return status;
}

// Behind attention's own.
uint64_t turned_from(const rotary_attention *op) {
    return (cuda_attention_bytes(op) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint64_t workspace(void *self, uint64_t tokens) {
    const rotary_attention *op = static_cast<const rotary_attention *>(self);
    const uint64_t heads = static_cast<uint64_t>(op->heads + op->kv_heads);
    return turned_from(op) + tokens * heads * static_cast<uint64_t>(op->width) * sizeof(gpu_bf16);
}

cuda_decode_turn turn_of(const rotary_attention *op, const berth_op_args *args) {
    const berth_tensor *positions = args->inputs[POSITIONS];
    const berth_tensor *of_batch = args->batch->device->positions;
    cuda_decode_turn turn = {};
    turn.angles = op->rotary.angles;
    turn.positions = berth_gpu_data(positions);
    turn.position_dtype = positions->dtype;
    turn.length = op->rotary.length;
    turn.scale = op->rotary.scale;
    turn.sign = op->rotary.sign;
    turn.half = static_cast<int>(op->rotary.half);
    turn.is_neox = op->rotary.is_neox != 0;
    turn.is_early = of_batch && berth_gpu_data(of_batch) == turn.positions;
    return turn;
}

gpu_rows rows_at(char *data, int64_t heads, int64_t width) {
    const int64_t bytes = width * static_cast<int64_t>(sizeof(gpu_bf16));
    return gpu_rows{data, heads, heads * bytes, bytes};
}

berth_status turn_first(const rotary_attention *op, const berth_op_args *args,
                        gpu_attention_call *call) {
    char *room = static_cast<char *>(berth_gpu_data(args->workspace)) + turned_from(op);
    const gpu_rows query = rows_at(room, op->heads, op->width);
    const gpu_rows turned[] = {
        query, rows_at(room + call->tokens * query.outer_gap, op->kv_heads, op->width)};
    call->query = turned[0];
    call->key = turned[1];
    return gpu_rotary_run(op, op->rotary, args, turned);
}

berth_status forward(void *self, const berth_op_args *args) {
    const rotary_attention *op = static_cast<const rotary_attention *>(self);
    const attention_args attention(args);
    gpu_attention_call call;
    berth_status status = gpu_attention_begin(op, &attention.args, &call);
    if (status != BERTH_OK) {
        return status;
    }
    if (cuda_attention_is_decode(call, &attention.args)) {
        const cuda_decode_turn turn = turn_of(op, args);
        return cuda_attention_run(op, call, &attention.args, &turn);
    }
    status = turn_first(op, args, &call);
    return status == BERTH_OK ? cuda_attention_run(op, call, &attention.args, nullptr) : status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_rotary_attention_fast;
const berth_op_impl berth_kernel_rotary_attention_fast = {
    .size = sizeof(berth_op_impl),
    .op = "rotary_attention",
    .name = "cuda.rotary_attention",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = destroy,
};
}
