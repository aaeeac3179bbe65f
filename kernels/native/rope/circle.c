// SPDX-License-Identifier: Apache-2.0
// Input: positions, a rope's attributes, perhaps its cache. Output: cosines and sines.
#include "circle.h"

#include <rope_axes.h>
#include <rope_cast.h>

// ---- axes ---------------------------------------------------------------------------------------

static void fill_axes(const berth_circle *circle) {
    const berth_op_site *site = circle->site;
    const int has_axes = berth_rope_has(site, "mrope_section") &&
                         circle->args->inputs[BERTH_ROPE_POSITIONS]->ndim == 2;
    for (int64_t i = 0; i < circle->pairs; ++i) {
        circle->axes[i] = has_axes ? berth_rope_axis(site, i) : 0;
    }
}

// ---- what is known of a rope --------------------------------------------------------------------

// Ropes whose cache is f32 whatever the activations are.
static int is_always_f32(const berth_op_site *site) {
    return berth_rope_is(site, "mllama4") || berth_rope_number(site, "is_deepseek_v4", 0) != 0;
}

int64_t berth_rope_mixed(const berth_op_site *site) {
    const int64_t half = (int64_t)berth_rope_number(site, "rotary_dim", 0) / 2;
    if (berth_rope_has(site, "num_inv_freq")) {
        return (int64_t)berth_rope_number(site, "num_inv_freq", 0);
    }
    const float slowest = (float)(BERTH_ROPE_TURN / berth_rope_number(site, "max_position", 1));
    int64_t count = 0;
    for (int64_t i = 0; i < half; ++i) {
        count += berth_rope_angle(site, i) > slowest;
    }
    return count;
}

static berth_dtype dtype_of(const berth_op_site *site, const berth_tensor *cache,
                            berth_dtype dtype) {
    const int is_f32 =
        cache ? !berth_rope_is_cast(site) && cache->dtype == BERTH_DTYPE_F32 : is_always_f32(site);
    return is_f32 ? BERTH_DTYPE_F32 : dtype;
}

uint64_t berth_circle_workspace(const berth_op_site *site) {
    return (uint64_t)berth_rope_pairs(site) * (3 * sizeof(float) + sizeof(int32_t));
}

void berth_circle_init(berth_circle *circle, const berth_op_site *site, const berth_op_args *args) {
    const int64_t pairs = berth_rope_pairs(site);
    float *memory = berth_data(args->workspace);
    *circle = (berth_circle){
        .site = site,
        .args = args,
        .pairs = pairs,
        .angles = memory,
        .points = memory + pairs,
        .axes = (int32_t *)(void *)(memory + 3 * pairs),
        .scale = berth_rope_scale(site),
        .dtype =
            dtype_of(site, args->inputs[BERTH_ROPE_CACHE], args->inputs[BERTH_ROPE_QUERY]->dtype),
    };
    if (!berth_rope_is(site, "fope")) {
        berth_rope_angles(site, circle->angles);
    }
    fill_axes(circle);
}

// ---- points -------------------------------------------------------------------------------------

static berth_status check_position(const berth_circle *circle, int64_t position) {
    const int64_t length = (int64_t)berth_rope_length(circle->site);
    return position >= 0 && position < length
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(circle->site->host, BERTH_INVALID_ARGUMENT,
                                   "rotary_embedding: position %lld is not below %lld",
                                   (long long)position, (long long)length);
}

static void load_pair(berth_circle *circle, int64_t position, int64_t kv_head, int64_t pair) {
    const berth_tensor *cache = circle->args->inputs[BERTH_ROPE_CACHE];
    const int64_t heads = cache->ndim == 3 ? cache->shape[1] : 1;
    const void *row =
        berth_row(cache, (berth_rope_first_row(circle->site) + position) * heads + kv_head);
    circle->points[pair] = berth_load_at(row, cache->dtype, pair);
    circle->points[circle->pairs + pair] = berth_load_at(row, cache->dtype, circle->pairs + pair);
}

// A patch of an image of n columns turns by its column, then by its row; the last position is no
// patch and does not turn.
static float grid_position(const berth_circle *circle, int64_t position, int64_t pair) {
    const int64_t patches = (int64_t)berth_rope_length(circle->site) - 1;
    int64_t columns = (int64_t)sqrt((double)patches);
    const int64_t place = pair < circle->pairs / 2 ? position % columns : position / columns;
    return position == patches ? 0 : (float)(place + 1);
}

static void compute_pair(berth_circle *circle, int64_t position, int64_t pair) {
    const float along = berth_rope_is(circle->site, "mllama4")
                            ? grid_position(circle, position, pair)
                            : (float)position;
    const float angle = along * circle->angles[pair];
    circle->points[pair] = cosf(angle) * circle->scale;
    circle->points[circle->pairs + pair] = sinf(angle) * circle->scale;
}

// points += value · row `row` of the mixture.
static void add_wave(const berth_tensor *coef, int64_t row, float value, float *points) {
    const void *weights = berth_row(coef, row);
    for (int64_t i = 0; i < berth_row_length(coef); ++i) {
        points[i] += value * berth_load_at(weights, coef->dtype, i);
    }
}

// fope: learned mixtures of the waves; pairs beyond them have 1 for cosine and sine.
static void mix_waves(berth_circle *circle, int64_t position, int64_t kv_head) {
    const int64_t mixed = berth_rope_mixed(circle->site);
    for (int half = 0; half < 2; ++half) {
        const berth_tensor *coef =
            circle->args->inputs[half == 0 ? BERTH_ROPE_COS_COEF : BERTH_ROPE_SIN_COEF];
        float *points = circle->points + half * circle->pairs;
        for (int64_t i = 0; i < circle->pairs; ++i) {
            points[i] = i < mixed ? 0 : 1;
        }
        for (int64_t wave = 0; wave < mixed; ++wave) {
            const float angle = (float)position * berth_rope_angle(circle->site, wave);
            add_wave(coef, kv_head * mixed + wave, half == 0 ? cosf(angle) : sinf(angle), points);
        }
    }
}

static int64_t position_at(const berth_circle *circle, int64_t token, int32_t axis) {
    const berth_tensor *positions = circle->args->inputs[BERTH_ROPE_POSITIONS];
    const void *row = berth_row(positions, positions->ndim == 2 ? axis : 0);
    return berth_integer_at(row, positions->dtype, token);
}

berth_status berth_circle_fill(berth_circle *circle, int64_t token, int64_t kv_head) {
    const int is_cached = circle->args->inputs[BERTH_ROPE_CACHE] != NULL;
    const int is_mixed = berth_rope_is(circle->site, "fope") && !is_cached;
    for (int64_t pair = 0; pair < circle->pairs; ++pair) {
        const int64_t position = position_at(circle, token, circle->axes[pair]);
        const berth_status status = check_position(circle, position);
        if (status != BERTH_OK) {
            return status;
        }
        if (is_mixed) {
            mix_waves(circle, position, kv_head);
            break;
        }
        if (is_cached) {
            load_pair(circle, position, kv_head, pair);
        } else {
            compute_pair(circle, position, pair);
        }
    }
    for (int64_t i = 0; i < 2 * circle->pairs; ++i) {
        circle->points[i] = berth_round_to(circle->dtype, circle->points[i]);
    }
    return BERTH_OK;
}
