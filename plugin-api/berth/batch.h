// SPDX-License-Identifier: Apache-2.0
// The flattened batch of one step, as kernels see it.
//
// All tokens of all sequences stand one after another, none is padded. The host owns it all and
// keeps it valid for the call. Token ids, positions, offsets, lengths, block tables are int32,
// slots int64. Block 0 is the null block, which nobody writes to. In a block table it stands for
// what is behind the sequence and, from ABI 1.1 on, for what lies before the window or chunk of the
// group's layers. Recorded steps end with sequences of nobody: length 1, the null block (which is
// zeros), slot -1.
#ifndef BERTH_BATCH_H
#define BERTH_BATCH_H

#include <berth/types.h>

// The same arrays once in host memory and once in the device's. For a platform with host memory the
// two views are the same. A cache group is a set of layers that share one block table: keys and
// values of layers that see as far back as each other, or what layers keep of a sequence as a
// whole.
typedef struct berth_batch_view {
    uint64_t size;
    const berth_tensor *token_ids;       // i32 [tokens]
    const berth_tensor *positions;       // i32 [tokens], position in its sequence, from 0
    const berth_tensor *query_start_loc; // i32 [sequences + 1], row of the first token of each
    const berth_tensor *seq_lens;        // i32 [sequences], tokens in the cache after this step
    const berth_tensor *logits_rows; // i32 [logits rows], rows of the batch whose logits are wanted
    const berth_tensor *const *block_tables;  // per group: i32 [sequences, blocks per sequence]
    const berth_tensor *const *slot_mappings; // per group: i64 [tokens], block * block_size +
                                              // offset, -1: do not store
} berth_batch_view;

typedef struct berth_batch {
    uint64_t size;
    const berth_batch_view *host;
    const berth_batch_view *device;
    int64_t token_count;
    int64_t sequence_count;
    int64_t logits_row_count;
    int64_t group_count;
    int64_t max_query_len; // most new tokens of one sequence
    int64_t max_seq_len;   // longest sequence after this step
} berth_batch;

#endif
