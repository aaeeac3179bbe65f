// SPDX-License-Identifier: Apache-2.0
// Sequences that lie one behind the other in a flattened batch: as long as an input says, else as
// the batch does.
#ifndef BERTH_KERNELS_VARLEN_H
#define BERTH_KERNELS_VARLEN_H

#include <berth/op.h>

#include <tensor.h>

// The tokens [first, end) of one sequence.
typedef void (*berth_varlen_fn)(const void *self, const berth_op_args *args, int64_t first,
                                int64_t end);

// Every sequence, from the first on. `lengths` is an input of whole numbers or NULL; the tokens are
// those of the first input.
static inline berth_status berth_varlen_each(const berth_host *host, const berth_op_args *args,
                                             const berth_tensor *lengths, berth_varlen_fn each,
                                             const void *self) {
    const berth_batch_view *view = args->batch ? args->batch->host : NULL;
    const int64_t tokens = args->inputs[0]->shape[0];
    if (!lengths && !view) {
        return BERTH_PLUGIN_FAIL(host, BERTH_INVALID_ARGUMENT,
                                 "varlen_encoder_attention: needs a batch or 'seq_lens'");
    }
    const int32_t *starts = lengths ? NULL : berth_data(view->query_start_loc);
    const int64_t count = lengths ? lengths->shape[0] : view->query_start_loc->shape[0] - 1;
    int64_t first = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t length = lengths ? berth_integer_at(berth_data(lengths), lengths->dtype, i)
                                       : starts[i + 1] - starts[i];
        if (length < 0 || length > tokens - first) {
            return BERTH_PLUGIN_FAIL(host, BERTH_INVALID_ARGUMENT,
                                     "varlen_encoder_attention: sequence %lld of %lld tokens does "
                                     "not fit",
                                     (long long)i, (long long)length);
        }
        each(self, args, first, first + length);
        first += length;
    }
    return BERTH_OK;
}

#endif
