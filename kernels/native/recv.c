// SPDX-License-Identifier: Apache-2.0
// recv: y = what rank `src` sends; x says of which type and, in a world of one, what.
//
//   x  [...]  any dtype
//   y  like x
#include <berth/op.h>

#include "collective_rules.h"

static const berth_op_attribute *const attributes[] = {
    COLLECTIVE_ATTRIBUTES,
    BERTH_OPTIONAL_ATTRIBUTE("src", BERTH_ATTRIBUTE_I64, .i64 = 0),
};

const berth_op berth_op_recv = COLLECTIVE_OP("recv", "Recv", collective_infer_rank);
