// SPDX-License-Identifier: Apache-2.0
// Ropes for positions of three axes, time, height and width: which of them turns a pair, by
// mrope_section. For the reference of rotary_embedding and its kernels.
#ifndef BERTH_KERNELS_ROPE_AXES_H
#define BERTH_KERNELS_ROPE_AXES_H

#include <rope.h>

static inline int64_t berth_rope_section(const berth_op_site *site, uint64_t index) {
    return berth_site_attribute(site, "mrope_section")->i64s[index];
}

// Sections alternate, one pair after the other, for as long as height and width have pairs.
static inline int32_t berth_rope_interleaved(const berth_op_site *site, int64_t pair) {
    return pair % 3 == 1 && pair < 3 * berth_rope_section(site, 1)   ? 1
           : pair % 3 == 2 && pair < 3 * berth_rope_section(site, 2) ? 2
                                                                     : 0;
}

static inline int32_t berth_rope_chunked(const berth_op_site *site, int64_t pair) {
    return pair < berth_rope_section(site, 0)                                 ? 0
           : pair < berth_rope_section(site, 0) + berth_rope_section(site, 1) ? 1
                                                                              : 2;
}

// Height and width alternate first, time has the rest.
static inline int32_t berth_rope_time_last(int64_t spatial, int64_t pair) {
    return pair >= spatial ? 0 : pair % 2 == 0 ? 1 : 2;
}

// openpangu's sections alternate too: vLLM's MRotaryEmbeddingInterleaved.forward_native. Its
// forward mixes them otherwise; where the two differ the golden vectors have this one.
static inline int32_t berth_rope_axis(const berth_op_site *site, int64_t pair) {
    if (berth_rope_is(site, "bailing_mrope")) {
        return berth_rope_time_last(berth_rope_section(site, 1) + berth_rope_section(site, 2),
                                    pair);
    }
    if (berth_rope_is(site, "ernie_vl")) {
        return berth_rope_time_last(berth_rope_section(site, 0) + berth_rope_section(site, 1),
                                    pair);
    }
    return berth_rope_number(site, "mrope_interleaved", 0) != 0 || berth_rope_is(site, "openpangu")
               ? berth_rope_interleaved(site, pair)
               : berth_rope_chunked(site, pair);
}

#endif
