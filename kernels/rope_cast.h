// SPDX-License-Identifier: Apache-2.0
// Which types of rope round their cosines and sines, for the reference of rotary_embedding and its
// kernels.
#ifndef BERTH_KERNELS_ROPE_CAST_H
#define BERTH_KERNELS_ROPE_CAST_H

#include <rope.h>

// Whether a rope's cosines and sines are rounded to query's dtype before use; the others are used
// in the dtype of their cache.
static inline int berth_rope_is_cast(const berth_op_site *site) {
    return !berth_rope_is(site, "deepseek_yarn") && !berth_rope_is(site, "openpangu") &&
           !berth_rope_is(site, "ernie_vl") && !berth_rope_is(site, "fope") &&
           !berth_rope_is(site, "longrope") && !berth_rope_is(site, "mllama4");
}

#endif
