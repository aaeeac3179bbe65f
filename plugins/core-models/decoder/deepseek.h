// SPDX-License-Identifier: Apache-2.0
// What DeepSeek's generations share: attention over latent rows, and experts for every token beside
// the chosen ones. Private to core-models.
#ifndef BERTH_DECODER_DEEPSEEK_H
#define BERTH_DECODER_DEEPSEEK_H

#include "decoder.h"

// Fills the decoder; how experts are scored is left to the architecture.
void berth_deepseek_read(berth_builder *builder, berth_decoder *deepseek);

// Where queries come from latents too, the projections to both are one product.
#define BERTH_DEEPSEEK_RULES 14
extern const berth_weight_rule *const berth_deepseek_rules[BERTH_DEEPSEEK_RULES];

#endif
