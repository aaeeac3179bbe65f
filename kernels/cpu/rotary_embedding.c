// SPDX-License-Identifier: Apache-2.0
// rotary_embedding in float32: the cosines and sines of a token once, then all its heads.
//
// Why no table of all positions: every layer has an instance of its own, and max_position ·
// rotary_dim floats in each are gigabytes for a long context, against rotary_dim / 2 sines and
// cosines a token.
#include <cpu/cpu.h>

#include <math.h>

enum { POSITIONS, QUERY, KEY, CACHE };

typedef struct rotary {
    const berth_host *host;
    int64_t half; // rotary_dim / 2
    int64_t max_position;
    int64_t is_neox;
    float frequencies[]; // [half]
} rotary;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    const char *rope_type = berth_site_attribute(site, "rope_type")->str;
    if (strcmp(rope_type, "default") != 0) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "rope_type is '%s'", rope_type);
    }
    return berth_supports_f32(site, device);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    const int64_t rotary_dim = berth_site_attribute(site, "rotary_dim")->i64;
    const uint64_t bytes = sizeof(rotary) + (uint64_t)(rotary_dim / 2) * sizeof(float);
    const berth_status status = berth_instance_new(site, bytes, out_self);
    if (status == BERTH_OK) {
        rotary *self = *out_self;
        const float base = (float)berth_site_attribute(site, "base")->f64;
        self->half = rotary_dim / 2;
        self->max_position = berth_site_attribute(site, "max_position")->i64;
        self->is_neox = berth_site_attribute(site, "is_neox_style")->i64;
        for (int64_t i = 0; i < self->half; ++i) {
            self->frequencies[i] = 1.0f / powf(base, (float)(2 * i) / (float)rotary_dim);
        }
    }
    return status;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)((const rotary *)state)->half * 2 * sizeof(float);
}

// Cosines [half], then sines [half], of a position: a row of the cache when there is one.
static const float *angles_of(const rotary *self, const berth_op_args *args, int64_t position) {
    if (args->inputs[CACHE]) {
        return berth_row(args->inputs[CACHE], position);
    }
    float *angles = berth_data(args->workspace);
    for (int64_t i = 0; i < self->half; ++i) {
        const float angle = (float)position * self->frequencies[i];
        angles[i] = cosf(angle);
        angles[self->half + i] = sinf(angle);
    }
    return angles;
}

static void rotate_neox(const float *angles, const float *x, float *out, int64_t half) {
    const float *sines = angles + half;
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < half; ++i) {
        const float x1 = x[i];
        const float x2 = x[half + i];
        out[i] = x1 * angles[i] - x2 * sines[i];
        out[half + i] = x2 * angles[i] + x1 * sines[i];
    }
}

static void rotate_pairs(const float *angles, const float *x, float *out, int64_t half) {
    const float *sines = angles + half;
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < half; ++i) {
        const float x1 = x[2 * i];
        const float x2 = x[2 * i + 1];
        out[2 * i] = x1 * angles[i] - x2 * sines[i];
        out[2 * i + 1] = x2 * angles[i] + x1 * sines[i];
    }
}

static void rotate_heads(const rotary *self, const float *angles, int64_t token,
                         const berth_tensor *const operands[2]) {
    const int64_t heads = operands[0]->shape[1];
    const int64_t rest = operands[0]->shape[2] - 2 * self->half;
    for (int64_t head = token * heads; head < (token + 1) * heads; ++head) {
        const float *from = berth_row(operands[0], head);
        float *to = berth_row(operands[1], head);
        (self->is_neox ? rotate_neox : rotate_pairs)(angles, from, to, self->half);
        memmove(to + 2 * self->half, from + 2 * self->half, (size_t)rest * sizeof(float));
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const rotary *self = state;
    const berth_tensor *positions = args->inputs[POSITIONS];
    for (int64_t token = 0; token < positions->shape[0]; ++token) {
        const int64_t position = berth_integer_at(berth_data(positions), positions->dtype, token);
        if (position < 0 || position >= self->max_position) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "rotary_embedding: position %lld is not below %lld",
                                     (long long)position, (long long)self->max_position);
        }
        const float *angles = angles_of(self, args, position);
        rotate_heads(self, angles, token,
                     (const berth_tensor *const[]){args->inputs[QUERY], args->outputs[0]});
        if (args->inputs[KEY]) {
            rotate_heads(self, angles, token,
                         (const berth_tensor *const[]){args->inputs[KEY], args->outputs[1]});
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
