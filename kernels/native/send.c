// SPDX-License-Identifier: Apache-2.0
// send: gives x to rank `dst`. Its result is x again, so that what must come after can take it.
//
//   x  [...]  any dtype
//   y  like x
#include <berth/op.h>

#include "collective_rules.h"

static const berth_op_attribute *const attributes[] = {
    COLLECTIVE_ATTRIBUTES,
    BERTH_OPTIONAL_ATTRIBUTE("dst", BERTH_ATTRIBUTE_I64, .i64 = 0),
};

const berth_op berth_op_send = COLLECTIVE_OP("send", "Send", collective_infer_rank);
