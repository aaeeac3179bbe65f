// SPDX-License-Identifier: Apache-2.0
// reduce_scatter: y = this rank's share, along `dim`, of the sum of every rank's x.
//
//   x  [...]  any dtype, alike on every rank
//   y  [...]  dimension `dim`, a constant, divided by world_size
#include <berth/op.h>

#include "collective_rules.h"

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    uint32_t dim = 0;
    BERTH_RULE_TRY(collective_infer(site, out));
    BERTH_RULE_TRY(collective_dim(site, DIM_OR_RANK, &dim));
    const int64_t ranks = site->attributes[WORLD_SIZE]->i64;
    berth_dim *extent = &out->types[0]->dims[dim];
    if (ranks > 1 && (extent->symbol != BERTH_SYMBOL_NONE || extent->b % ranks != 0)) {
        return BERTH_RULE_ATTRIBUTE(site, WORLD_SIZE, "must divide dimension %u of 'x', is %lld",
                                    dim, (long long)ranks);
    }
    extent->b /= extent->symbol == BERTH_SYMBOL_NONE ? ranks : 1;
    return BERTH_OK;
}

static const berth_op_attribute *const attributes[] = {
    COLLECTIVE_ATTRIBUTES,
    BERTH_OPTIONAL_ATTRIBUTE("dim", BERTH_ATTRIBUTE_I64, .i64 = -1),
};

const berth_op berth_op_reduce_scatter = COLLECTIVE_OP("reduce_scatter", "ReduceScatter", infer);
