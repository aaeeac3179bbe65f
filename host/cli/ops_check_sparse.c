// SPDX-License-Identifier: Apache-2.0
// The row of gelu_and_mul_sparse: its derived multiplier is measured on the op itself. A row of
// gates with mean 0 and deviation s, whose first is s², becomes s² − s·m there; scaled so far up
// that gelu lets it through, in f32, where the subtraction is exact for s/2 ≤ m ≤ s.
#include <math.h>

#include "cli/ops_check_rows.h"

#define SCALE 65536.0F

static berth_status measure(const berth_check_case *at, int64_t deviation, double *out_multiplier) {
    berth_check_case *probe = BERTH_ARENA_NEW(at->arena, berth_check_case);
    berth_check_results results;
    const int64_t count = deviation * deviation + 1;
    if (!probe) {
        return berth_arena_exhausted(at->arena, "cases");
    }
    *probe = *at;
    berth_check_drop_input(probe, "x");
    berth_check_tensor *x =
        berth_check_add_input(probe, "x", BERTH_DTYPE_F32, 2, (int64_t[]){1, 2 * count});
    if (!x) {
        return berth_check_full(at);
    }
    for (int64_t i = 0; i < 2 * count; ++i) {
        ((float *)x->data)[i] = i >= count ? 1 : i == 0 ? SCALE * (float)(count - 1) : -SCALE;
    }
    BERTH_TRY_NOTE(berth_check_execute(probe, &results), "measuring the multiplier");
    const double left = berth_check_at(&results.outputs[0], 0) / (double)SCALE;
    *out_multiplier = ((double)(count - 1) - left) / (double)deviation;
    return BERTH_OK;
}

berth_status berth_check_sparse(berth_check_case *at) {
    const berth_json *json = berth_json_find(at->json, "derived.std_multiplier");
    berth_check_results results;
    double wanted = 0;
    double measured = 0;
    if (json && berth_json_as_f64(json, &wanted)) {
        const int64_t deviation = wanted > 2 ? 4 : 2;
        BERTH_TRY(measure(at, deviation, &measured));
        // What the measurement cannot resolve: half a last place of the difference.
        const double resolution = 0x1p-24 * (double)deviation;
        const bool is_near = wanted < 1 && fabs(measured - wanted) <= resolution;
        BERTH_TRY(berth_check_derived(at, "std_multiplier", is_near ? wanted : measured));
    }
    BERTH_TRY(berth_check_execute(at, &results));
    return berth_check_give(at, &results);
}
