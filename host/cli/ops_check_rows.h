// SPDX-License-Identifier: Apache-2.0
// Private to cli/: the hooks that rows of ops_check_rows.c name, one file per family.
#ifndef BERTH_CLI_OPS_CHECK_ROWS_H
#define BERTH_CLI_OPS_CHECK_ROWS_H

#include "cli/ops_check.h"

// ---- ops_check_rope.c: runs that give a rope's caches beside what it rotates --------------------

BERTH_MUST_CHECK berth_status berth_check_rope(berth_check_case *at);
BERTH_MUST_CHECK berth_status berth_check_dual_chunk(berth_check_case *at);
// rope_parameters as attributes of rotary_embedding.
BERTH_MUST_CHECK berth_status berth_check_rope_parameters(berth_check_case *at);
// The same, and the scaling of queries [tokens, 1, 1] as rows of tokens.
BERTH_MUST_CHECK berth_status berth_check_latent(berth_check_case *at);

// ---- ops_check_sparse.c -------------------------------------------------------------------------

BERTH_MUST_CHECK berth_status berth_check_sparse(berth_check_case *at);

// ---- ops_check_shapes.c -------------------------------------------------------------------------

BERTH_MUST_CHECK berth_status berth_check_convolution(berth_check_case *at);
// What parameters begin with is of no interest where they are given.
BERTH_MUST_CHECK berth_status berth_check_xielu(berth_check_case *at);
BERTH_MUST_CHECK berth_status berth_check_quant_fp8(berth_check_case *at);

// ---- ops_check_layers.c: layers with ranks, states per sequence, a head -------------------------

BERTH_MUST_CHECK berth_status berth_check_linear(berth_check_case *at);
BERTH_MUST_CHECK berth_status berth_check_vocabulary(berth_check_case *at);
void berth_check_fill_added(berth_check_case *at, const char *name,
                            const berth_check_tensor *weight);
BERTH_MUST_CHECK berth_status berth_check_head(berth_check_case *at);
BERTH_MUST_CHECK berth_status berth_check_sequences(berth_check_case *at);

#endif
