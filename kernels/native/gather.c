// SPDX-License-Identifier: Apache-2.0
// gather: y = the x of every rank, one behind the other along `dim`; on rank `dst` alone it means
// anything.
//
//   x  [...]  any dtype, alike on every rank
//   y  [...]  dimension `dim` times world_size
#include <berth/op.h>

#include "collective_rules.h"

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(collective_infer_gathered(site, DIM, out));
    return collective_check_rank(site);
}

static const berth_op_attribute *const attributes[] = {
    COLLECTIVE_ATTRIBUTES,
    BERTH_OPTIONAL_ATTRIBUTE("dst", BERTH_ATTRIBUTE_I64, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("dim", BERTH_ATTRIBUTE_I64, .i64 = -1),
};

const berth_op berth_op_gather = COLLECTIVE_OP("gather", "Gather", infer);
