// SPDX-License-Identifier: Apache-2.0
// add: y = a + b, element by element, one rounding. Operands: pair_rules.h.
#include <berth/op.h>

#include "pair_rules.h"

static float combine(float a, float b) {
    return a + b;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    return pair_run(args, combine);
}

const berth_op berth_op_add = {
    BERTH_PAIR_OP("add", "Add"),
    .revision = 1,
};
