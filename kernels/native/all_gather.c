// SPDX-License-Identifier: Apache-2.0
// all_gather: y = the x of every rank, one behind the other along `dim`, on every rank.
//
//   x  [...]  any dtype, alike on every rank
//   y  [...]  dimension `dim` times world_size
#include <berth/op.h>

#include "collective_rules.h"

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    return collective_infer_gathered(site, DIM_OR_RANK, out);
}

static const berth_op_attribute *const attributes[] = {
    COLLECTIVE_ATTRIBUTES,
    BERTH_OPTIONAL_ATTRIBUTE("dim", BERTH_ATTRIBUTE_I64, .i64 = -1),
};

const berth_op berth_op_all_gather = COLLECTIVE_OP("all_gather", "AllGather", infer);
