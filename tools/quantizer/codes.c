// SPDX-License-Identifier: Apache-2.0
// Input: a row of a weight as floats. Output: codes and scales, and by how much they miss. A scale
// is rounded to the type that it is stored in before the first code is made of it, so what is
// measured here is what a reader sees.
//
// A code of 8 bits takes the scale at which the largest number is the largest code. Of 4 bits the
// few codes are better spent where most numbers are: of some scales around that one the group takes
// the one with the least squared error.
#include "quantizer/quantizer.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include <fp8.h>
#include <int8.h>

#include "base/convert.h"

#define LANES        8    // sums beside one another, so that they are vectors
#define MIDDLE       8.0f // the zero of fields without zero points
#define HIGHEST      15.0f
#define MOST_IN_FOUR 7.5f // half of the range of 16 fields
#define SHRINK_FIRST 1.12f
#define SHRINK_STEP  0.02f
#define SHRINKS      22 // down to 0.70

int64_t quantizer_groups(const quantizer_form *form, int64_t columns) {
    return form->scheme == QUANTIZER_INT4 ? columns / form->group : 1;
}

// The nearest number of the type, never 0.
static float stored_scale(float scale, berth_dtype dtype) {
    uint8_t bytes[sizeof(float)];
    float stored = 0;
    berth_convert(BERTH_DTYPE_F32, &scale, dtype, bytes, 1);
    berth_convert(dtype, bytes, BERTH_DTYPE_F32, &stored, 1);
    const float least = dtype == BERTH_DTYPE_F16 ? 0x1p-24f : FLT_MIN;
    return stored < least ? least : stored;
}

// ---- 8 bits -------------------------------------------------------------------------------------

static float largest_of(const float *weight, int64_t count) {
    float largest = 0;
    for (int64_t k = 0; k < count; ++k) {
        largest = berth_max_or_nan(fabsf(weight[k]), largest);
    }
    return largest;
}

// All zero has a scale of 1, since 0 is none.
static void make_eight(const quantizer_form *form, const quantizer_row *row, float largest,
                       quantizer_error *error) {
    const bool is_float = form->scheme == QUANTIZER_FP8;
    const float most = is_float ? BERTH_F8_MAX : 127.0f;
    const float scale = largest > 0 ? stored_scale(largest / most, row->dtype) : 1.0f;
    double squares = 0;
    for (int64_t k = 0; k < row->columns; ++k) {
        const float number = row->weight[k] / scale;
        const uint8_t code = is_float ? berth_to_f8(number) : (uint8_t)berth_to_i8(number);
        const float value = is_float ? berth_from_f8(code) : (float)(int8_t)code;
        const double miss = (double)row->weight[k] - (double)(value * scale);
        squares += miss * miss;
        row->codes[k] = code;
    }
    row->scales[0] = scale;
    error->squares += squares;
    error->plain += squares;
}

// ---- 4 bits -------------------------------------------------------------------------------------

// Numbers (field - zero) · scale.
typedef struct grid {
    float scale;
    float zero;
} grid;

// The field of a number, rounded to nearest with ties to even: so does an addition where the last
// place of the sum is 1.
static inline float field_of(float number, grid of) {
    const float whole = 0x1.8p23f;
    const float rounded = (number / of.scale + whole) - whole + of.zero;
    const float above = rounded < 0 ? 0 : rounded;
    return above > HIGHEST ? HIGHEST : above;
}

static double miss_of(const float *weight, int64_t count, grid of) {
    float sums[LANES] = {0};
    double all = 0;
    for (int64_t k = 0; k < count; k += LANES) {
        for (int lane = 0; lane < LANES; ++lane) {
            const float number = weight[k + lane];
            const float miss = number - (field_of(number, of) - of.zero) * of.scale;
            sums[lane] += miss * miss;
        }
    }
    for (int lane = 0; lane < LANES; ++lane) {
        all += (double)sums[lane];
    }
    return all;
}

// What the numbers of a group reach to; with zero points also which of the fields is 0.
typedef struct range {
    float least;
    float most;
} range;

static range range_of(const float *weight, int64_t count) {
    range of = {0, 0};
    for (int64_t k = 0; k < count; ++k) {
        of.least = weight[k] < of.least ? weight[k] : of.least;
        of.most = weight[k] > of.most ? weight[k] : of.most;
    }
    return of;
}

static grid grid_of(const quantizer_form *form, range of, float shrink, berth_dtype dtype) {
    const float half = form->is_asymmetric ? (of.most - of.least) / 2 : fmaxf(of.most, -of.least);
    if (half <= 0) {
        return (grid){.scale = 1, .zero = MIDDLE};
    }
    grid out = {.scale = stored_scale(half * shrink / MOST_IN_FOUR, dtype), .zero = MIDDLE};
    if (form->is_asymmetric) {
        const float zero = rintf(-of.least * shrink / out.scale);
        out.zero = zero < 0 ? 0 : zero > HIGHEST ? HIGHEST : zero;
    }
    return out;
}

static grid best_grid(const quantizer_form *form, const float *weight, berth_dtype dtype,
                      quantizer_error *error) {
    const range of = range_of(weight, form->group);
    grid best = grid_of(form, of, 1, dtype);
    double least = miss_of(weight, form->group, best);
    error->plain += least;
    for (int i = 0; i < SHRINKS; ++i) {
        const grid other = grid_of(form, of, SHRINK_FIRST - SHRINK_STEP * (float)i, dtype);
        const double miss = miss_of(weight, form->group, other);
        if (miss < least) {
            least = miss;
            best = other;
        }
    }
    error->squares += least;
    return best;
}

static void make_four(const quantizer_form *form, const quantizer_row *row,
                      quantizer_error *error) {
    const int64_t groups = quantizer_groups(form, row->columns);
    assert(form->group % LANES == 0);
    for (int64_t group = 0; group < groups; ++group) {
        const float *weight = row->weight + group * form->group;
        uint8_t *codes = row->codes + group * form->group / 2;
        const grid of = best_grid(form, weight, row->dtype, error);
        for (int64_t k = 0; k < form->group; k += 2) {
            const unsigned low = (unsigned)field_of(weight[k], of);
            const unsigned high = (unsigned)field_of(weight[k + 1], of);
            codes[k / 2] = (uint8_t)(low | high << 4);
        }
        row->scales[group] = of.scale;
        if (row->zeros != NULL) {
            row->zeros[group] = (uint8_t)of.zero;
        }
    }
}

// ---- a row --------------------------------------------------------------------------------------

bool quantizer_make_row(const quantizer_form *form, const quantizer_row *row,
                        quantizer_error *error) {
    const float largest = largest_of(row->weight, row->columns);
    if (!isfinite(largest)) {
        return false;
    }
    for (int64_t k = 0; k < row->columns; ++k) {
        error->energy += (double)row->weight[k] * (double)row->weight[k];
    }
    if (form->scheme == QUANTIZER_INT4) {
        make_four(form, row, error);
    } else {
        make_eight(form, row, largest, error);
    }
    return true;
}
