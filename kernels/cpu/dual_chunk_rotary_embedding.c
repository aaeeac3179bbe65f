// SPDX-License-Identifier: Apache-2.0
// dual_chunk_rotary_embedding: the circles of a token, of which its keys and the versions of its
// queries share those that they can, then all heads; one rounding.
#include <cpu/rope_turn.h>

#include <math.h>

enum { POSITIONS, QUERY, KEY };

#define VERSIONS 5 // of a query

typedef struct rotary {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t half; // rotary_dim / 2
    int64_t positions;
    int64_t is_neox;
    int64_t chunk;
    int64_t length; // of a chunk without what is local
    float angles[]; // [half], per position
} rotary;

static int64_t number(const berth_op_site *site, const char *name) {
    return berth_site_attribute(site, name)->i64;
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const int64_t dim = number(site, "rotary_dim");
    const float base = (float)berth_site_attribute(site, "base")->f64;
    const uint64_t bytes = sizeof(rotary) + (uint64_t)(dim / 2) * sizeof(float);
    const berth_status status = berth_instance_new(site, bytes, out_self);
    if (status == BERTH_OK) {
        rotary *self = *out_self;
        self->cpu = device->self;
        reads_begin(site, site->inputs[QUERY], device->self);
        self->half = dim / 2;
        self->positions = number(site, "max_position_embeddings");
        self->is_neox = number(site, "is_neox_style");
        self->chunk = number(site, "chunk_size");
        self->length = self->chunk - number(site, "local_size");
        for (int64_t i = 0; i < self->half; ++i) {
            self->angles[i] = 1 / powf(base, (float)(2 * i) / (float)dim);
        }
    }
    return status;
}

static int64_t circle_floats(const rotary *self) {
    return (2 * self->half + 15) / 16 * 16;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const rotary *self = state;
    return (uint64_t)(self->cpu->threads * VERSIONS * circle_floats(self)) * sizeof(float);
}

// ---- circles ------------------------------------------------------------------------------------

// Circles of a part, one for each version, and which distances they are of; -1: of none yet.
typedef struct circles {
    const rotary *self;
    berth_dtype dtype;
    float *points;
    int64_t distances[VERSIONS];
} circles;

static void find_circle(const rotary *self, int64_t distance, berth_dtype dtype, float *circle) {
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < self->half; ++i) {
        const float angle = (float)distance * self->angles[i];
        float cosine;
        float sine;
        circle_at((double)angle, &cosine, &sine);
        circle[i] = cosine;
        circle[self->half + i] = sine;
    }
    if (self->is_neox) {
        rope_order(circle, self->half, dtype);
    }
}

// Why looked for first: keys have a version's circle, two versions mostly have one, and a third one
// has the same for every token.
static const float *circle_of(circles *all, int version, int64_t distance) {
    const int64_t floats = circle_floats(all->self);
    for (int i = 0; i < VERSIONS; ++i) {
        if (all->distances[i] == distance) {
            return all->points + i * floats;
        }
    }
    float *circle = all->points + version * floats;
    find_circle(all->self, distance, all->dtype, circle);
    all->distances[version] = distance;
    return circle;
}

// ---- tokens -------------------------------------------------------------------------------------

// All heads of a token, to heads that lie one behind the other, from element 0 of `out` on.
static void turn_token(const rotary *self, const float *circle, const berth_tensor *x,
                       int64_t token, char *out) {
    const int64_t bytes = BERTH_DTYPE_BITS(x->dtype) / 8;
    const int64_t turned = 2 * self->half * bytes;
    const int64_t width = x->shape[2] * bytes;
    const rope_heads heads = {
        .first =
            {
                    .circle = circle,
                    .x = berth_row(x, token * x->shape[1]),
                    .y = out,
                    .half = self->half,
                    .ahead = reads_ahead(self->cpu, BERTH_SWEEP_AHEAD, 2 * BERTH_SWEEP_AHEAD),
                    },
        .from_step = x->strides[1] * bytes,
        .to_step = width,
        .count = x->shape[1],
        .is_neox = self->is_neox,
        .is_past = berth_is_past(x->shape[0] * x->shape[1] * x->shape[2], x->dtype),
    };
    rope_turn(&heads, x->dtype);
    const char *from = heads.first.x;
    for (int64_t i = 0; turned < width && i < heads.count; ++i, from += heads.from_step) {
        memcpy(out + i * width + turned, from + turned, (size_t)(width - turned));
    }
}

typedef struct job {
    const rotary *self;
    const berth_op_args *args;
} job;

static int64_t position_at(const berth_op_args *args, int64_t token) {
    const berth_tensor *positions = args->inputs[POSITIONS];
    return berth_integer_at(berth_data(positions), positions->dtype, token);
}

static int64_t at_most(int64_t value, int64_t limit) {
    return value < limit ? value : limit;
}

static void turn_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const rotary *self = in->self;
    const berth_tensor *query = in->args->inputs[QUERY];
    const berth_tensor *key = in->args->inputs[KEY];
    const int64_t bytes =
        query->shape[1] * query->shape[2] * (int64_t)(BERTH_DTYPE_BITS(query->dtype) / 8);
    circles all = {
        .self = self,
        .dtype = query->dtype,
        .points = (float *)berth_data(in->args->workspace) + part * VERSIONS * circle_floats(self),
        .distances = {-1, -1, -1, -1, -1},
    };
    const berth_span tokens = berth_share(query->shape[0], part, parts);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        const int64_t place = position_at(in->args, token) % self->length;
        const int64_t distances[VERSIONS] = {
            place,
            at_most(place + self->length, self->chunk),
            at_most(2 * self->length - 1, self->chunk),
            place + self->length,
            place + self->chunk,
        };
        char *turned = berth_row(in->args->outputs[0], token);
        turn_token(self, circle_of(&all, 0, place), key, token,
                   berth_row(in->args->outputs[1], token * key->shape[1]));
        for (int version = 0; version < VERSIONS; ++version, turned += bytes) {
            turn_token(self, circle_of(&all, version, distances[version]), query, token, turned);
        }
    }
    berth_past_end();
}

static berth_status forward(void *state, const berth_op_args *args) {
    const job in = {.self = state, .args = args};
    const berth_tensor *out = args->outputs[0];
    for (int64_t token = 0; token < out->shape[0]; ++token) {
        const int64_t position = position_at(args, token);
        if (position < 0 || position >= in.self->positions) {
            return BERTH_PLUGIN_FAIL(in.self->host, BERTH_INVALID_ARGUMENT,
                                     "dual_chunk_rotary_embedding: position %lld is not below %lld",
                                     (long long)position, (long long)in.self->positions);
        }
    }
    berth_run(in.self->cpu, turn_part, &in, out->shape[0] * out->shape[1]);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_dual_chunk_rotary_embedding = {
    .size = sizeof(berth_op_impl),
    .op = "dual_chunk_rotary_embedding",
    .name = "cpu.dual_chunk_rotary_embedding",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
