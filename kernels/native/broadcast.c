// SPDX-License-Identifier: Apache-2.0
// broadcast: y = the x of rank `src`, on every rank.
//
//   x  [...]  any dtype, alike on every rank
//   y  like x
#include <berth/op.h>

#include "collective_rules.h"

static const berth_op_attribute *const attributes[] = {
    COLLECTIVE_ATTRIBUTES,
    BERTH_OPTIONAL_ATTRIBUTE("src", BERTH_ATTRIBUTE_I64, .i64 = 0),
};

const berth_op berth_op_broadcast = COLLECTIVE_OP("broadcast", "Broadcast", collective_infer_rank);
