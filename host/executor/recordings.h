// SPDX-License-Identifier: Apache-2.0
// What a plan keeps of recorded steps, private to executor: of steps of one token a sequence a
// whole (record.c), of others the pieces between what depends on more than the number of tokens
// (piecewise.c).
#ifndef BERTH_EXECUTOR_RECORDINGS_H
#define BERTH_EXECUTOR_RECORDINGS_H

#include <stdbool.h>
#include <stdint.h>

// A step of one token of each of so many sequences, recorded.
typedef struct berth_recording {
    void *graph;    // NULL: not yet
    int64_t padded; // a step of so many sequences is filled up to this many; 0: it is not recorded
    bool is_seen;   // has run once: what is made at the first call is there
} berth_recording;

#define BERTH_NOBODYS_MOST 15 // sequences behind a batch: usual sizes lie 16 apart at most

// Consecutive steps whose work depends on the number of tokens alone.
typedef struct berth_piece {
    uint32_t first;
    uint32_t end;
} berth_piece;

// The pieces of a step of so many tokens, recorded.
typedef struct berth_piecewise {
    int64_t tokens;
    void **graphs; // [pieces.count], all there or none
    bool is_there;
} berth_piecewise;

// At the end of a batch, nobody's: sequences of one token, rows of logits.
typedef struct berth_padding {
    int64_t sequences;
    int64_t rows;
} berth_padding;

#endif
