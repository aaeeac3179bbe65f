// SPDX-License-Identifier: Apache-2.0
// What Gemma's generations share: norms whose weights are stored less 1, embeddings scaled by the
// root of the width, a gated GELU. Private to core-models.
#ifndef BERTH_DECODER_GEMMA_H
#define BERTH_DECODER_GEMMA_H

#include "decoder.h"

// Fills the decoder but for what the architecture has set; its norm stays as it is.
void berth_gemma_read(berth_builder *builder, berth_decoder *gemma);
// Norms before and behind attention and MLP, as from the second generation on.
berth_decoder_names berth_gemma2_names(void);
// Windows, ropes by kind of layer, the scale of attention and soft caps, likewise. What the
// architecture has set of sliding_window, soft caps and rope_theta stands unless config.json says;
// one with a theta of its own has it in layers without a window, the others turn by 10000.
void berth_gemma2_read(berth_builder *builder, berth_decoder *gemma);

#endif
