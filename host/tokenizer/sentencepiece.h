// SPDX-License-Identifier: Apache-2.0
// tokenizer.model, the file of SentencePiece: read, and written as the tokenizer.json that means
// the same.
#ifndef BERTH_TOKENIZER_SENTENCEPIECE_H
#define BERTH_TOKENIZER_SENTENCEPIECE_H

#include "base/json.h"
#include "base/str.h"

// `path` stands for the file in errors; `config` is tokenizer_config.json or NULL. CORRUPT names
// the byte; UNSUPPORTED names what the model asks for and this module lacks.
BERTH_MUST_CHECK berth_status berth_sentencepiece_read(berth_str model, const char *path,
                                                       const berth_json *config,
                                                       berth_json **out_file);

#endif
