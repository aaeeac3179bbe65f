// SPDX-License-Identifier: Apache-2.0
// Rows whose files say a shape in other words than our schemas: convolutions, whose padding may be
// a word, and scales of groups that lie by column.
#include <string.h>

#include "base/array.h"
#include "cli/ops_check_rows.h"

#define KERNEL_DIMS 3

// ---- convolutions -------------------------------------------------------------------------------

// That `kernel_size`, a number or a list, is what the weight has.
static berth_status check_kernel(berth_check_case *at, const berth_check_tensor *weight) {
    const berth_json *sizes = berth_check_given(at, "kernel_size");
    const bool is_list = sizes && berth_json_kind_of(sizes) == BERTH_JSON_ARRAY;
    for (uint32_t dim = 2; sizes && dim < weight->ndim; ++dim) {
        int64_t size = 0;
        BERTH_TRY(berth_json_get_i64(is_list ? berth_json_at(sizes, dim - 2) : sizes, "", &size));
        if (size != weight->shape[dim]) {
            return berth_json_fail(BERTH_CORRUPT, sizes, "is not what 'weight' has");
        }
    }
    berth_check_drop_attribute(at, "kernel_size");
    return BERTH_OK;
}

// "same" is half a kernel on both sides, "valid" nothing.
berth_status berth_check_convolution(berth_check_case *at) {
    const berth_check_tensor *weight = berth_check_input(at, "weight");
    const char *padding = berth_check_string(at, "padding", "");
    int64_t *sizes = BERTH_ARENA_ARRAY(at->arena, int64_t, KERNEL_DIMS);
    if (!sizes || !weight || weight->ndim > 2 + KERNEL_DIMS) {
        return berth_check_full(at);
    }
    BERTH_TRY(check_kernel(at, weight));
    if (strcmp(padding, "") == 0) {
        return BERTH_OK;
    }
    for (uint32_t dim = 2; dim < weight->ndim; ++dim) {
        sizes[dim - 2] = strcmp(padding, "same") == 0 ? weight->shape[dim] / 2 : 0;
    }
    const berth_attribute made = {
        .size = sizeof made,
        .name = "padding",
        .kind = BERTH_ATTRIBUTE_I64S,
        .i64s = sizes,
        .count = weight->ndim - 2,
    };
    return berth_check_set(at, &made);
}

// ---- parameters of an activation ----------------------------------------------------------------

berth_status berth_check_xielu(berth_check_case *at) {
    static const char *const names[] = {"alpha_p_init", "alpha_n_init", "beta", "eps",
                                        "with_vector_loads"};
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        berth_check_drop_attribute(at, names[i]);
    }
    return BERTH_OK;
}

// ---- scales by column ---------------------------------------------------------------------------

// Files hold all scales as [..., rows, groups]; ours that lie by column are [..., groups, rows].
static berth_status transpose(berth_check_case *at, berth_check_tensor *scale) {
    float *rows = berth_arena_alloc(at->arena, (size_t)scale->bytes + 1, 64);
    const int64_t groups = scale->shape[scale->ndim - 2];
    const int64_t count = scale->shape[scale->ndim - 1];
    if (!rows) {
        return berth_arena_exhausted(at->arena, "scales");
    }
    for (int64_t i = 0; i < berth_check_elements(scale); ++i) {
        const int64_t first = i / (groups * count) * (groups * count);
        const int64_t inside = i - first;
        rows[first + inside % count * groups + inside / count] = ((const float *)scale->data)[i];
    }
    scale->data = rows;
    scale->shape[scale->ndim - 2] = count;
    scale->shape[scale->ndim - 1] = groups;
    return BERTH_OK;
}

berth_status berth_check_quant_fp8(berth_check_case *at) {
    berth_check_results results;
    BERTH_TRY(berth_check_execute(at, &results));
    if (berth_check_number(at, "column_major_scales", 0) > 0) {
        BERTH_TRY(transpose(at, &results.outputs[1]));
    }
    return berth_check_give(at, &results);
}
