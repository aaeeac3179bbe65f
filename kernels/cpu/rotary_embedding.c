// SPDX-License-Identifier: Apache-2.0
// rotary_embedding: the cosines and sines of a token once, then all its heads; one rounding.
//
// Why no table of all positions: every layer has an instance of its own, and max_position ·
// rotary_dim floats in each are gigabytes for a long context, against rotary_dim / 2 sines and
// cosines a token.
#include <cpu/cpu.h>

#include <math.h>

#include <rope.h>

enum { POSITIONS, QUERY, KEY, CACHE };

typedef struct rotary {
    const berth_host *host;
    int64_t half;   // rotary_dim / 2
    int64_t length; // positions
    int64_t is_neox;
    float scale;    // of cosines and sines
    float angles[]; // [half], per position
} rotary;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return berth_rope_is_known(site)
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "rope_type is '%s'",
                                   berth_site_attribute(site, "rope_type")->str);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    const int64_t rotary_dim = berth_site_attribute(site, "rotary_dim")->i64;
    const uint64_t bytes = sizeof(rotary) + (uint64_t)(rotary_dim / 2) * sizeof(float);
    const berth_status status = berth_instance_new(site, bytes, out_self);
    if (status == BERTH_OK) {
        rotary *self = *out_self;
        self->half = rotary_dim / 2;
        self->length = (int64_t)berth_rope_length(site);
        self->is_neox = berth_site_attribute(site, "is_neox_style")->i64;
        self->scale = berth_rope_scale(site);
        berth_rope_angles(site, self->angles);
    }
    return status;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)((const rotary *)state)->half * 2 * sizeof(float);
}

// Cosines [half], then sines [half], of a position: a row of the cache when there is one.
static const float *circle_of(const rotary *self, const berth_op_args *args, int64_t position) {
    const berth_tensor *cache = args->inputs[CACHE];
    float *circle = berth_data(args->workspace);
    if (cache) {
        berth_load(berth_row(cache, position), cache->dtype, 0, 2 * self->half, circle);
        return circle;
    }
    for (int64_t i = 0; i < self->half; ++i) {
        const float angle = (float)position * self->angles[i];
        circle[i] = cosf(angle) * self->scale;
        circle[self->half + i] = sinf(angle) * self->scale;
    }
    return circle;
}

// Pair i of a head is (i · step, i · step + apart); there are `half` of them.
typedef struct pairs {
    int64_t half;
    int64_t step;
    int64_t apart;
} pairs;

BERTH_INLINE void rotate(const float *circle, const void *x, void *out, berth_dtype dtype,
                         pairs all) {
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < all.half; ++i) {
        const int64_t first = i * all.step;
        const float cosine = circle[i];
        const float sine = circle[all.half + i];
        const float x1 = berth_load_at(x, dtype, first);
        const float x2 = berth_load_at(x, dtype, first + all.apart);
        berth_store_at(out, dtype, first, x1 * cosine - x2 * sine);
        berth_store_at(out, dtype, first + all.apart, x2 * cosine + x1 * sine);
    }
}

BERTH_INLINE void rotate_heads(const rotary *self, const float *circle, int64_t token,
                               const berth_tensor *const operands[2], berth_dtype dtype) {
    const int64_t heads = operands[0]->shape[1];
    const int64_t half = self->half;
    const size_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    for (int64_t head = token * heads; head < (token + 1) * heads; ++head) {
        const char *from = berth_row(operands[0], head);
        char *to = berth_row(operands[1], head);
        if (self->is_neox) {
            rotate(circle, from, to, dtype, (pairs){.half = half, .step = 1, .apart = half});
        } else {
            rotate(circle, from, to, dtype, (pairs){.half = half, .step = 2, .apart = 1});
        }
        const size_t rotated = (size_t)half * 2 * bytes;
        memcpy(to + rotated, from + rotated, (size_t)operands[0]->shape[2] * bytes - rotated);
    }
}

static void rotate_token(const rotary *self, const float *circle, int64_t token,
                         const berth_tensor *from, const berth_tensor *to) {
    const berth_tensor *const operands[] = {from, to};
    if (from->dtype == BERTH_DTYPE_F32) {
        rotate_heads(self, circle, token, operands, BERTH_DTYPE_F32);
    } else if (from->dtype == BERTH_DTYPE_BF16) {
        rotate_heads(self, circle, token, operands, BERTH_DTYPE_BF16);
    } else {
        rotate_heads(self, circle, token, operands, BERTH_DTYPE_F16);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const rotary *self = state;
    const berth_tensor *positions = args->inputs[POSITIONS];
    for (int64_t token = 0; token < positions->shape[0]; ++token) {
        const int64_t position = berth_integer_at(berth_data(positions), positions->dtype, token);
        if (position < 0 || position >= self->length) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "rotary_embedding: position %lld is not below %lld",
                                     (long long)position, (long long)self->length);
        }
        const float *circle = circle_of(self, args, position);
        rotate_token(self, circle, token, args->inputs[QUERY], args->outputs[0]);
        if (args->inputs[KEY]) {
            rotate_token(self, circle, token, args->inputs[KEY], args->outputs[1]);
        }
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_rotary_embedding = {
    .size = sizeof(berth_op_impl),
    .op = "rotary_embedding",
    .name = "cpu.rotary_embedding",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
