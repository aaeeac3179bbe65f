// SPDX-License-Identifier: Apache-2.0
// rotary_embedding: the cosines and sines of a token once, then all its heads; one rounding.
//
// Why no table of all positions: every layer has an instance of its own, and max_position ·
// rotary_dim floats in each are gigabytes for a long context, against rotary_dim / 2 sines and
// cosines a token.
#include <cpu/rope_turn.h>

#include <rope_axes.h>

enum { POSITIONS, QUERY, KEY, CACHE, COS_COEF, SIN_COEF };

typedef struct rotary {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t half;   // pairs
    int64_t length; // positions
    int64_t is_neox;
    int64_t first_row; // of a cache
    int64_t skipped;   // columns before the first pair
    float scale;       // of cosines and sines
    float sign;        // of sines
    int64_t columns;   // of an image's patches, 0: positions are in a row
    int64_t circles;   // of a token: 1, of fope one for each head of its cache or coefficients
    int64_t waves;     // that the coefficients of fope mix, 0: there are none
    int32_t *axes;     // [half] rows of positions, NULL: there is one
    float angles[];    // [half], per position; the axes behind them
} rotary;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return berth_rope_is_known(site) || berth_rope_is(site, "mllama4") ||
                   berth_rope_is(site, "fope")
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

static void fill_circles(const berth_op_site *site, rotary *self) {
    const berth_value_type *coefficients = site->inputs[COS_COEF];
    const berth_value_type *cache = site->inputs[CACHE];
    self->circles = 1;
    if (cache && cache->ndim == 3) {
        self->circles = cache->dims[1].b;
    } else if (!cache && coefficients) {
        self->circles = coefficients->dims[0].b;
        self->waves = coefficients->dims[1].b;
        for (int64_t i = 0; i < self->waves; ++i) {
            self->angles[i] = berth_rope_angle(site, i);
        }
    }
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const int64_t rotary_dim = berth_site_attribute(site, "rotary_dim")->i64;
    const int64_t half = berth_rope_pairs(site);
    const uint64_t bytes = sizeof(rotary) + (uint64_t)half * (sizeof(float) + sizeof(int32_t));
    const berth_status status = berth_instance_new(site, bytes, out_self);
    if (status == BERTH_OK) {
        rotary *self = *out_self;
        self->cpu = device->self;
        reads_begin(site, site->inputs[QUERY], device->self);
        self->half = half;
        self->length = (int64_t)berth_rope_length(site);
        self->is_neox = berth_site_attribute(site, "is_neox_style")->i64;
        self->first_row = berth_rope_first_row(site);
        self->skipped = berth_rope_number(site, "is_deepseek_v4", 0) != 0
                            ? site->inputs[QUERY]->dims[2].b - rotary_dim
                            : 0;
        self->scale = berth_rope_scale(site);
        self->sign = berth_rope_number(site, "inverse", 0) != 0 ? -1 : 1;
        self->columns =
            berth_rope_is(site, "mllama4") ? (int64_t)sqrt(berth_rope_length(site) - 1) : 0;
        if (!berth_rope_is(site, "fope")) {
            berth_rope_angles(site, self->angles);
        }
        fill_circles(site, self);
        if (site->inputs[POSITIONS]->ndim == 2) {
            fill_axes(site, self);
        }
    }
    return status;
}

static int64_t circle_floats(const rotary *self) {
    return (2 * self->half + 15) / 16 * 16;
}

// Of a part: a token's circles, and a pair of waves.
static int64_t room_floats(const rotary *self) {
    return self->circles * circle_floats(self) + (2 * self->waves + 15) / 16 * 16;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const rotary *self = state;
    return (uint64_t)(self->cpu->threads * room_floats(self)) * sizeof(float);
}

// ---- the circle ---------------------------------------------------------------------------------

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

// Cosines and sines of some pairs, so far along.
BERTH_INLINE void turn_pairs(const rotary *self, float along, berth_span pairs, float *circle) {
    BERTH_INDEPENDENT
    for (int64_t i = pairs.first; i < pairs.end; ++i) {
        const float angle = along * self->angles[i];
        float cosine;
        float sine;
        circle_at((double)angle, &cosine, &sine);
        circle[i] = cosine * self->scale;
        circle[self->half + i] = sine * self->scale;
    }
}

// A patch of an image turns by its column, then by its row; the last position is no patch and does
// not turn.
static void find_patch(const rotary *self, int64_t position, float *circle) {
    const int64_t middle = self->half / 2;
    const int is_patch = position < self->length - 1;
    const int64_t column = is_patch ? position % self->columns + 1 : 0;
    const int64_t row = is_patch ? position / self->columns + 1 : 0;
    turn_pairs(self, (float)column, (berth_span){0, middle}, circle);
    turn_pairs(self, (float)row, (berth_span){middle, self->half}, circle);
}

// Cosines [half], then sines [half], of a position; of a cache those of every circle.
static void find_circle(const rotary *self, const berth_tensor *cache, int64_t position,
                        float *circle) {
    for (int64_t i = 0; cache && i < self->circles; ++i) {
        berth_load(berth_row(cache, (self->first_row + position) * self->circles + i), cache->dtype,
                   0, 2 * self->half, circle + i * circle_floats(self));
    }
    if (!cache && self->columns > 0) {
        find_patch(self, position, circle);
    } else if (!cache) {
        turn_pairs(self, (float)position, (berth_span){0, self->half}, circle);
    }
}

// Adds rows of a mixture, one for each wave, to the points of a circle.
static void add_waves(const berth_tensor *mixture, int64_t circle, const float *waves,
                      float *points) {
    const int64_t count = mixture->shape[2];
    for (int64_t wave = 0; wave < mixture->shape[1]; ++wave) {
        const void *row = berth_row(mixture, circle * mixture->shape[1] + wave);
        const berth_vec factor = berth_vec_of(waves[wave]);
        for (int64_t i = 0; i < count; i += BERTH_LANES) {
            const berth_vec sum = berth_vec_load_some(points, BERTH_DTYPE_F32, i, count);
            berth_vec_store_some(points, BERTH_DTYPE_F32, i, count,
                                 sum + factor * berth_vec_load_some(row, mixture->dtype, i, count));
        }
    }
}

// fope: learned mixtures of the waves; pairs beyond them have 1 for cosine and sine.
static void mix_waves(const rotary *self, const berth_op_args *args, int64_t position,
                      float *circles) {
    float *waves = circles + self->circles * circle_floats(self);
    for (int64_t i = 0; i < self->waves; ++i) {
        const float angle = (float)position * self->angles[i];
        circle_at((double)angle, &waves[i], &waves[self->waves + i]);
    }
    for (int64_t i = 0; i < 2 * self->circles; ++i) {
        const int64_t half = i % 2;
        float *points = circles + i / 2 * circle_floats(self) + half * self->half;
        for (int64_t pair = 0; pair < self->half; ++pair) {
            points[pair] = pair < self->waves ? 0 : 1;
        }
        add_waves(args->inputs[half == 0 ? COS_COEF : SIN_COEF], i / 2, waves + half * self->waves,
                  points);
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
    if (self->waves > 0) {
        mix_waves(self, args, position_of(positions, token, 0), circle);
    } else if (!self->axes) {
        find_circle(self, args->inputs[CACHE], position_of(positions, token, 0), circle);
    }
    for (int64_t i = 0; self->axes && i < self->half; ++i) {
        find_pair(self, args->inputs[CACHE], position_of(positions, token, self->axes[i]), i,
                  circle);
    }
    for (int64_t i = 0; self->sign < 0 && i < self->circles * self->half; ++i) {
        float *sines = circle + i / self->half * circle_floats(self) + self->half;
        sines[i % self->half] = -sines[i % self->half];
    }
    for (int64_t i = 0; self->is_neox && i < self->circles; ++i) {
        rope_order(circle + i * circle_floats(self), self->half, args->inputs[QUERY]->dtype);
    }
}

// ---- heads --------------------------------------------------------------------------------------

// Query or key, what it becomes, and the rows of both.
typedef struct operand {
    const berth_tensor *x;
    berth_rows from;
    berth_rows to;
    int is_past;
} operand;

static operand operand_of(const berth_tensor *x, const berth_tensor *out) {
    return (operand){
        .x = x,
        .from = berth_rows_of(x),
        .to = berth_rows_of(out),
        .is_past = berth_is_past(berth_row_count(x) * berth_row_length(x), x->dtype),
    };
}

// The columns of a head that do not turn.
static void copy_others(const rotary *self, const rope_heads *heads, const operand *of) {
    const int64_t bytes = BERTH_DTYPE_BITS(of->x->dtype) / 8;
    const int64_t skipped = self->skipped * bytes;
    const int64_t turned = 2 * self->half * bytes;
    const int64_t rest = of->x->shape[2] * bytes - turned - skipped;
    const char *x = heads->first.x;
    char *y = heads->first.y;
    for (int64_t i = 0; i < heads->count; ++i, x += heads->from_step, y += heads->to_step) {
        if (skipped > 0) {
            memcpy(y - skipped, x - skipped, (size_t)skipped);
        }
        if (rest > 0) {
            memcpy(y + turned, x + turned, (size_t)rest);
        }
    }
}

static void rotate_token(const rotary *self, const float *circle, const operand *of,
                         int64_t token) {
    const int64_t heads = of->x->shape[1];
    const int64_t group = heads / self->circles;
    const int64_t skipped = self->skipped * BERTH_DTYPE_BITS(of->x->dtype) / 8;
    for (int64_t i = 0; i < self->circles; ++i) {
        const int64_t head = token * heads + i * group;
        const rope_heads some = {
            .first =
                {
                        .circle = circle + i * circle_floats(self),
                        .x = (const char *)berth_rows_at(&of->from, head) + skipped,
                        .y = (char *)berth_rows_at(&of->to, head) + skipped,
                        .half = self->half,
                        .ahead = reads_ahead(self->cpu, BERTH_SWEEP_AHEAD, 2 * BERTH_SWEEP_AHEAD),
                        },
            .from_step = of->from.step,
            .to_step = of->to.step,
            .count = group,
            .is_neox = self->is_neox,
            .is_past = of->is_past,
        };
        rope_turn(&some, of->x->dtype);
        if (2 * self->half < of->x->shape[2]) {
            copy_others(self, &some, of);
        }
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
    float *circle = (float *)berth_data(args->workspace) + part * room_floats(in->self);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        find_token(in->self, args, token, circle);
        rotate_token(in->self, circle, &query, token);
        if (key) {
            rotate_token(in->self, circle, &keys, token);
        }
    }
    berth_past_end();
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
