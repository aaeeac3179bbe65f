// SPDX-License-Identifier: Apache-2.0
// Decoders that mix tokens with a recurrence: what Mamba and its relatives share. Private to
// core-models.
#ifndef BERTH_DECODER_RECURRENT_H
#define BERTH_DECODER_RECURRENT_H

#include "parts.h"

// A recurrence has no longest sequence; this is where the host's tables end.
#define BERTH_RECURRENT_LENGTH (INT64_C(1) << 20)

// The sizes of layer MambaMixer.
typedef struct berth_mamba {
    int64_t state_size;
    int64_t inner_size;
    int64_t step_rank;
    int64_t conv_width;
    int64_t has_bias;
    int64_t has_conv_bias;
    int64_t has_norms; // of step, input and output of the recurrence
    int64_t norms_have_weights;
    double norm_eps;
} berth_mamba;

// The sizes of layer MambaMixer2.
typedef struct berth_mamba2 {
    int64_t state_size;
    int64_t inner_size;
    int64_t heads;
    int64_t head_size;
    int64_t groups;
    int64_t chunk_size;
    int64_t conv_width;
    int64_t has_bias;
    int64_t has_conv_bias;
    int64_t has_norm; // else only a gate
    int64_t norm_before_gate;
    double multipliers[5]; // of gate, channels, input, output and step; all 0: none
} berth_mamba2;

// How Mamba's checkpoints call the pieces of a decoder without MLPs.
extern const berth_decoder_names berth_mamba_names;

// What config.json of such a decoder says.
void berth_mamba_read(berth_builder *builder, berth_decoder *decoder);
// The sizes of MambaForCausalLM and FalconMambaForCausalLM.
berth_mamba berth_mamba_sizes(berth_builder *builder, const berth_decoder *decoder);
// x and the result [tokens, hidden_size]; `name` is the mixer's prefix.
berth_value berth_mamba_mix(berth_builder *builder, const berth_decoder *decoder,
                            const berth_mamba *mamba, const char *name, berth_value x);
berth_value berth_mamba2_mix(berth_builder *builder, const berth_decoder *decoder,
                             const berth_mamba2 *mamba, const char *name, berth_value x);

// A of the recurrence is stored as a logarithm.
#define BERTH_MAMBA_RULE                                                                           \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = ".A_log", .to = ".A", .is_log_decay = 1,        \
    }

#endif
