// SPDX-License-Identifier: Apache-2.0
// rotary_embedding: the cosines and sines of a token once, then all its heads; one rounding.
//
// Why no table of all positions: every layer has an instance of its own, and max_position ·
// rotary_dim floats in each are gigabytes for a long context, against rotary_dim / 2 sines and
// cosines a token.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <rope_axes.h>

enum { POSITIONS, QUERY, KEY, CACHE };

typedef struct rotary {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t half;   // rotary_dim / 2
    int64_t length; // positions
    int64_t is_neox;
    int64_t first_row; // of a cache
    int64_t skipped;   // columns before the first pair
    float scale;       // of cosines and sines
    float sign;        // of sines
    int32_t *axes;     // [half] rows of positions, NULL: there is one
    float angles[];    // [half], per position; the axes behind them
} rotary;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return berth_rope_is_known(site)
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "rope_type is '%s'",
                                   berth_site_attribute(site, "rope_type")->str);
}

static void fill_axes(const berth_op_site *site, rotary *self) {
    self->axes = (int32_t *)(void *)(self->angles + self->half);
    for (int64_t i = 0; i < self->half; ++i) {
        self->axes[i] = berth_rope_axis(site, i);
    }
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const int64_t rotary_dim = berth_site_attribute(site, "rotary_dim")->i64;
    const int64_t half = rotary_dim / 2;
    const uint64_t bytes = sizeof(rotary) + (uint64_t)half * (sizeof(float) + sizeof(int32_t));
    const berth_status status = berth_instance_new(site, bytes, out_self);
    if (status == BERTH_OK) {
        rotary *self = *out_self;
        self->cpu = device->self;
        self->half = half;
        self->length = (int64_t)berth_rope_length(site);
        self->is_neox = berth_site_attribute(site, "is_neox_style")->i64;
        self->first_row = berth_rope_first_row(site);
        self->skipped = berth_rope_number(site, "is_deepseek_v4", 0) != 0
                            ? site->inputs[QUERY]->dims[2].b - rotary_dim
                            : 0;
        self->scale = berth_rope_scale(site);
        self->sign = berth_rope_number(site, "inverse", 0) != 0 ? -1 : 1;
        berth_rope_angles(site, self->angles);
        if (site->inputs[POSITIONS]->ndim == 2) {
            fill_axes(site, self);
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
    return (uint64_t)(self->cpu->threads * circle_floats(self)) * sizeof(float);
}

// ---- the circle ---------------------------------------------------------------------------------

// Cosine and sine of an angle of at least 0 and below 10^6, each rounded once from what is right to
// 40 bits: in plain double arithmetic, which the compiler can vectorise, cosf and sinf it cannot.
BERTH_INLINE void circle_at(double angle, float *out_cosine, float *out_sine) {
    // angle = n·π/2 + r with |r| ≤ π/4; adding 1.5·2^52 rounds to the integer n in the low bits.
    const double shifted = angle * 0x1.45f306dc9c883p-1 + 0x1.8p+52;
    const double whole = shifted - 0x1.8p+52;
    uint64_t n;
    memcpy(&n, &shifted, sizeof n);
    // π/2 in two parts: the product with the first is exact.
    const double r = (angle - whole * 0x1.921fb544p+0) - whole * 0x1.0b4611a626331p-34;
    const double square = r * r;
    double sine = 1.0 / 6227020800;
    sine = sine * square - 1.0 / 39916800;
    sine = sine * square + 1.0 / 362880;
    sine = sine * square - 1.0 / 5040;
    sine = sine * square + 1.0 / 120;
    sine = sine * square - 1.0 / 6;
    sine = (sine * square) * r + r;
    double cosine = 1.0 / 479001600;
    cosine = cosine * square - 1.0 / 3628800;
    cosine = cosine * square + 1.0 / 40320;
    cosine = cosine * square - 1.0 / 720;
    cosine = cosine * square + 1.0 / 24;
    cosine = cosine * square - 0.5;
    cosine = cosine * square + 1.0;
    // Every quarter turn takes cosine to sine and sine to −cosine.
    const double turned_cosine = n & 1 ? sine : cosine;
    const double turned_sine = n & 1 ? cosine : sine;
    *out_cosine = (float)((n + 1) & 2 ? -turned_cosine : turned_cosine);
    *out_sine = (float)(n & 2 ? -turned_sine : turned_sine);
}

// Cosine and sine of one pair: of the cache when there is one.
static void find_pair(const rotary *self, const berth_tensor *cache, int64_t position, int64_t pair,
                      float *circle) {
    if (cache) {
        const void *row = berth_row(cache, self->first_row + position);
        circle[pair] = berth_load_at(row, cache->dtype, pair);
        circle[self->half + pair] = berth_load_at(row, cache->dtype, self->half + pair);
        return;
    }
    circle_at((double)((float)position * self->angles[pair]), &circle[pair],
              &circle[self->half + pair]);
    circle[pair] *= self->scale;
    circle[self->half + pair] *= self->scale;
}

// Cosines [half], then sines [half], of a position.
static void find_circle(const rotary *self, const berth_tensor *cache, int64_t position,
                        float *circle) {
    if (cache) {
        berth_load(berth_row(cache, self->first_row + position), cache->dtype, 0, 2 * self->half,
                   circle);
        return;
    }
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < self->half; ++i) {
        const float angle = (float)position * self->angles[i];
        float cosine;
        float sine;
        circle_at((double)angle, &cosine, &sine);
        circle[i] = cosine * self->scale;
        circle[self->half + i] = sine * self->scale;
    }
}

static int64_t position_of(const berth_tensor *positions, int64_t token, int32_t axis) {
    const void *row = berth_row(positions, positions->ndim == 2 ? axis : 0);
    return berth_integer_at(row, positions->dtype, token);
}

// The circle of a token, whatever its positions are.
static void find_token(const rotary *self, const berth_op_args *args, int64_t token,
                       float *circle) {
    const berth_tensor *positions = args->inputs[POSITIONS];
    if (!self->axes) {
        find_circle(self, args->inputs[CACHE], position_of(positions, token, 0), circle);
    }
    for (int64_t i = 0; self->axes && i < self->half; ++i) {
        find_pair(self, args->inputs[CACHE], position_of(positions, token, self->axes[i]), i,
                  circle);
    }
    for (int64_t i = self->half; self->sign < 0 && i < 2 * self->half; ++i) {
        circle[i] = -circle[i];
    }
}

// ---- heads --------------------------------------------------------------------------------------

// Pair i is (i, half + i).
BERTH_INLINE void rotate_halves(const float *circle, const char *x, char *out, berth_dtype dtype,
                                int64_t half) {
    const int64_t bytes = half * (BERTH_DTYPE_BITS(dtype) / 8);
    for (int64_t i = 0; i < half; i += BERTH_LANES) {
        const berth_vec cosine = berth_vec_load_some(circle, BERTH_DTYPE_F32, i, half);
        const berth_vec sine = berth_vec_load_some(circle + half, BERTH_DTYPE_F32, i, half);
        const berth_vec x1 = berth_vec_load_some(x, dtype, i, half);
        const berth_vec x2 = berth_vec_load_some(x + bytes, dtype, i, half);
        berth_vec_store_some(out, dtype, i, half, x1 * cosine - x2 * sine);
        berth_vec_store_some(out + bytes, dtype, i, half, x2 * cosine + x1 * sine);
    }
}

// Pair i is (2i, 2i + 1).
BERTH_INLINE void rotate_neighbours(const float *circle, const char *x, char *out,
                                    berth_dtype dtype, int64_t half) {
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < half; ++i) {
        const float cosine = circle[i];
        const float sine = circle[half + i];
        const float x1 = berth_load_at(x, dtype, 2 * i);
        const float x2 = berth_load_at(x, dtype, 2 * i + 1);
        berth_store_at(out, dtype, 2 * i, x1 * cosine - x2 * sine);
        berth_store_at(out, dtype, 2 * i + 1, x2 * cosine + x1 * sine);
    }
}

// Query or key, what it becomes, and the rows of both.
typedef struct operand {
    const berth_tensor *x;
    berth_rows from;
    berth_rows to;
} operand;

static operand operand_of(const berth_tensor *x, const berth_tensor *out) {
    return (operand){.x = x, .from = berth_rows_of(x), .to = berth_rows_of(out)};
}

BERTH_INLINE void rotate_heads(const rotary *self, const float *circle, const operand *of,
                               int64_t token, berth_dtype dtype) {
    const int64_t heads = of->x->shape[1];
    const int64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    const int64_t rotated = 2 * self->half * bytes;
    const int64_t skipped = self->skipped * bytes;
    const int64_t rest = of->x->shape[2] * bytes - rotated - skipped;
    for (int64_t head = token * heads; head < (token + 1) * heads; ++head) {
        const char *all = berth_rows_at(&of->from, head);
        const char *from = all + skipped;
        char *to = (char *)berth_rows_at(&of->to, head) + skipped;
        if (skipped > 0) {
            memcpy(to - skipped, all, (size_t)skipped);
        }
        if (self->is_neox) {
            rotate_halves(circle, from, to, dtype, self->half);
        } else {
            rotate_neighbours(circle, from, to, dtype, self->half);
        }
        if (rest > 0) {
            memcpy(to + rotated, from + rotated, (size_t)rest);
        }
    }
}

static void rotate_token(const rotary *self, const float *circle, const operand *of,
                         int64_t token) {
    if (of->x->dtype == BERTH_DTYPE_F32) {
        rotate_heads(self, circle, of, token, BERTH_DTYPE_F32);
    } else if (of->x->dtype == BERTH_DTYPE_BF16) {
        rotate_heads(self, circle, of, token, BERTH_DTYPE_BF16);
    } else {
        rotate_heads(self, circle, of, token, BERTH_DTYPE_F16);
    }
}

// ---- all tokens ---------------------------------------------------------------------------------

typedef struct job {
    const rotary *self;
    const berth_op_args *args;
} job;

static void rotate_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_op_args *args = in->args;
    const berth_tensor *key = args->inputs[KEY];
    const operand query = operand_of(args->inputs[QUERY], args->outputs[0]);
    const operand keys = key ? operand_of(key, args->outputs[1]) : query;
    const berth_span tokens = berth_share(args->inputs[QUERY]->shape[0], part, parts);
    float *circle = (float *)berth_data(args->workspace) + part * circle_floats(in->self);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        find_token(in->self, args, token, circle);
        rotate_token(in->self, circle, &query, token);
        if (key) {
            rotate_token(in->self, circle, &keys, token);
        }
    }
}

static berth_status check_positions(const rotary *self, const berth_tensor *positions) {
    const int64_t width = berth_row_length(positions);
    for (int64_t i = 0; i < berth_row_count(positions) * width; ++i) {
        const int64_t position = position_of(positions, i % width, (int32_t)(i / width));
        if (position < 0 || position >= self->length) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "rotary_embedding: position %lld is not below %lld",
                                     (long long)position, (long long)self->length);
        }
    }
    return BERTH_OK;
}

static berth_status forward(void *state, const berth_op_args *args) {
    const rotary *self = state;
    const job in = {.self = self, .args = args};
    const berth_tensor *query = args->inputs[QUERY];
    const berth_status status = check_positions(self, args->inputs[POSITIONS]);
    if (status != BERTH_OK) {
        return status;
    }
    berth_run(self->cpu, rotate_part, &in, berth_row_count(query) * query->shape[2]);
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
