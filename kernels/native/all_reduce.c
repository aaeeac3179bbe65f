// SPDX-License-Identifier: Apache-2.0
// all_reduce: y = the sum of every rank's x.
//
//   x  [...]  any dtype, alike on every rank
//   y  like x
#include <berth/op.h>

#include "collective_rules.h"

static const berth_op_attribute *const attributes[] = {
    COLLECTIVE_ATTRIBUTES,
};

const berth_op berth_op_all_reduce = COLLECTIVE_OP("all_reduce", "AllReduce", collective_infer);
