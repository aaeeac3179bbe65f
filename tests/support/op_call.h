// SPDX-License-Identifier: Apache-2.0
// Private to op_case.c and op_place.c: what one forward is given.
#ifndef TEST_OP_CALL_H
#define TEST_OP_CALL_H

#include "support/op_case.h"

typedef struct op_batch {
    berth_batch batch;
    berth_batch_view view;
    const berth_tensor *block_tables[1];
    const berth_tensor *slot_mappings[1];
} op_batch;

typedef struct op_call {
    berth_op_forward_fn forward;
    void *instance;
    berth_op_args args;
    const berth_tensor *inputs[BERTH_MAX_INPUTS];
    berth_tensor *outputs[BERTH_MAX_OUTPUTS];
    berth_tensor *states[OP_MAX_STATES];
    op_tensor packed[BERTH_MAX_INPUTS];
    op_tensor workspace;
    op_batch batch;
} op_call;

// The forward with all operands of the call, guards included, on the device and then back where
// they were.
berth_status op_place_forward(const op_place *place, const op_case *self, const op_results *results,
                              op_call *call);

#endif
