// SPDX-License-Identifier: Apache-2.0
// Input: what came out and what had to, as tensors of any type. Output: how far they are apart, by
// the rule of the case.
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/convert.h"
#include "cli/ops_check.h"

// ---- elements -----------------------------------------------------------------------------------

static double integer_at(const berth_check_tensor *tensor, int64_t index) {
    const uint64_t bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
    const char *from = (const char *)tensor->data + (uint64_t)index * bytes;
    int64_t wide = 0;
    memcpy(&wide, from, bytes);
    const bool is_signed = tensor->dtype == BERTH_DTYPE_I8 || tensor->dtype == BERTH_DTYPE_I16 ||
                           tensor->dtype == BERTH_DTYPE_I32 || tensor->dtype == BERTH_DTYPE_I64;
    const unsigned unused = 64 - 8 * (unsigned)bytes;
    return (double)(is_signed ? (int64_t)((uint64_t)wide << unused) >> unused : wide);
}

double berth_check_at(const berth_check_tensor *tensor, int64_t index) {
    assert(tensor->data); // that of an empty tensor is never asked for
    if (tensor->dtype == BERTH_DTYPE_F64) {
        return ((const double *)tensor->data)[index];
    }
    if (tensor->dtype == BERTH_DTYPE_F8_E4M3FN) {
        return (double)berth_float_of_e4m3(((const uint8_t *)tensor->data)[index]);
    }
    if (!berth_can_convert(tensor->dtype)) {
        return integer_at(tensor, index);
    }
    float value = 0;
    const uint64_t bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
    berth_convert(tensor->dtype, (const char *)tensor->data + (uint64_t)index * bytes,
                  BERTH_DTYPE_F32, &value, 1);
    return value;
}

// Relative distance of neighbouring values of a type.
static double step_of(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_BF16 ? 0x1p-8 : dtype == BERTH_DTYPE_F16 ? 0x1p-11 : 0x1p-24;
}

// ---- by element ---------------------------------------------------------------------------------

// What part of the tolerance is used; infinite when it makes no sense to say.
static double share_of(double got, double wanted, const berth_check_rule *rule) {
    if (got == wanted || (isnan(got) && isnan(wanted))) {
        return 0;
    }
    if (!isfinite(got) || !isfinite(wanted)) {
        return INFINITY;
    }
    return fabs(got - wanted) / (rule->atol + rule->rtol * fabs(wanted));
}

static void keep_worst(berth_check_difference *out, int64_t index, double got, double wanted,
                       double share) {
    if (share > out->share || (share > 1 && out->share <= 1)) {
        *out = (berth_check_difference){
            .is_different = share > 1,
            .index = index,
            .got = got,
            .wanted = wanted,
            .share = share,
            .error = out->error,
        };
    }
}

static void compare_elements(const berth_check_output *output, berth_check_difference *out) {
    const int64_t count = berth_check_elements(&output->wanted);
    for (int64_t i = 0; i < count; ++i) {
        const double got = berth_check_at(&output->got, i);
        const double wanted = berth_check_at(&output->wanted, i);
        keep_worst(out, i, got, wanted, share_of(got, wanted, &output->rule));
    }
}

// ---- against float64 ----------------------------------------------------------------------------

static void compare_exact(const berth_check_output *output, berth_check_difference *out) {
    double got_error = 0;
    double golden_error = 0;
    double largest = 0;
    const int64_t count = output->exact.data ? berth_check_elements(&output->wanted) : 0;
    for (int64_t i = 0; i < count; ++i) {
        const double exact = berth_check_at(&output->exact, i);
        const double got = fabs(berth_check_at(&output->got, i) - exact);
        const double golden = fabs(berth_check_at(&output->wanted, i) - exact);
        if (isfinite(exact) && isfinite(got) && isfinite(golden)) {
            got_error = fmax(got_error, got);
            golden_error = fmax(golden_error, golden);
            largest = fmax(largest, fabs(exact));
        }
    }
    // Why: a golden that is exact by chance would make any rounding look endless.
    const double floor_error = step_of(output->wanted.dtype) * largest;
    const double unit = fmax(golden_error, floor_error);
    out->error = unit > 0 ? got_error / unit : -1;
}

// ---- rows without order -------------------------------------------------------------------------

// In the row of ids from `first` on, the place of an id that is not taken; -1: none.
static int64_t find_id(const berth_check_tensor *ids, int64_t first, int64_t width, double id,
                       uint64_t taken) {
    for (int64_t i = 0; i < width; ++i) {
        if (!(taken >> i & 1) && berth_check_at(ids, first + i) == id) {
            return i;
        }
    }
    return -1;
}

static void compare_set_row(const berth_check_output *output, const berth_check_output *ids,
                            int64_t first, int64_t width, berth_check_difference *out) {
    uint64_t taken = 0;
    for (int64_t i = 0; i < width; ++i) {
        const double id = berth_check_at(&ids->wanted, first + i);
        const int64_t place = find_id(&ids->got, first, width, id, taken);
        const double wanted = berth_check_at(&output->wanted, first + i);
        if (place < 0) {
            keep_worst(out, first + i, berth_check_at(&output->got, first + i), wanted, INFINITY);
            continue;
        }
        taken |= UINT64_C(1) << place;
        const double got = berth_check_at(&output->got, first + place);
        keep_worst(out, first + i, got, wanted, share_of(got, wanted, &output->rule));
    }
}

static const berth_check_output *ids_of(const berth_check_case *at) {
    for (size_t i = 0; i < at->output_count; ++i) {
        if (strcmp(at->outputs[i].name, "topk_ids") == 0) {
            return &at->outputs[i];
        }
    }
    return NULL;
}

static void compare_sets(const berth_check_case *at, const berth_check_output *output,
                         berth_check_difference *out) {
    const berth_check_output *ids = ids_of(at);
    const int64_t width =
        output->wanted.ndim > 0 ? output->wanted.shape[output->wanted.ndim - 1] : 0;
    const int64_t count = berth_check_elements(&output->wanted);
    if (!ids || !ids->got.data || width > 64 || berth_check_elements(&ids->got) != count) {
        *out = (berth_check_difference){.is_different = true, .index = -1, .error = -1};
        (void)snprintf(out->why, sizeof out->why, "mode 'set' needs topk_ids of the same shape");
        return;
    }
    for (int64_t first = 0; first < count; first += width) {
        compare_set_row(output, ids, first, width, out);
    }
}

// ---- the whole output ---------------------------------------------------------------------------

static bool is_integer(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_I32 || dtype == BERTH_DTYPE_I64;
}

// Why integers of any width: indices are i32 in ours and i64 in most of theirs.
static bool is_of_type(const berth_check_output *output) {
    return output->got.dtype == output->wanted.dtype ||
           (is_integer(output->got.dtype) && is_integer(output->wanted.dtype));
}

void berth_check_compare(const berth_check_case *at, const berth_check_output *output,
                         berth_check_difference *out) {
    const int64_t got = output->got.data ? berth_check_elements(&output->got) : -1;
    *out = (berth_check_difference){.error = -1};
    if (!output->got.data) {
        (void)snprintf(out->why, sizeof out->why, "nothing computes it");
    } else if (!is_of_type(output)) {
        (void)snprintf(out->why, sizeof out->why, "is %s, must be %s",
                       berth_dtype_name(output->got.dtype), berth_dtype_name(output->wanted.dtype));
    } else if (got != berth_check_elements(&output->wanted)) {
        (void)snprintf(out->why, sizeof out->why, "has %" PRId64 " elements, must have %" PRId64,
                       got, berth_check_elements(&output->wanted));
    }
    if (out->why[0] != '\0') {
        out->is_different = true;
        out->index = -1;
        out->share = INFINITY;
    } else if (output->rule.mode == BERTH_CHECK_SET) {
        compare_sets(at, output, out);
    } else {
        compare_elements(output, out);
        compare_exact(output, out);
    }
}
