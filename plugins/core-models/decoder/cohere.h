// SPDX-License-Identifier: Apache-2.0
// What Cohere's generations share: attention and MLP side by side behind one norm of the mean
// without a bias; neighbouring columns turn; logits are scaled. Private to core-models.
#ifndef BERTH_DECODER_COHERE_H
#define BERTH_DECODER_COHERE_H

#include "decoder.h"

// Fills `names` and the decoder, which borrows them; `rope_theta` unless config.json says.
void berth_cohere_read(berth_builder *builder, berth_decoder_names *names, berth_decoder *cohere,
                       double rope_theta);

#endif
