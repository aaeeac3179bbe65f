// SPDX-License-Identifier: Apache-2.0
// config.json in the one form that models see. Private to this module.
//
// Checkpoints written by transformers 4 and 5 say the same under different keys; models read only
// the form of transformers 5:
//   torch_dtype                                         → dtype
//   rope_theta, rope_scaling{type | rope_type, …},
//   partial_rotary_factor,
//   original_max_position_embeddings                    → rope_parameters{rope_type, rope_theta, …}
// The members of a text_config take the places of the whole's, and its model_type stands under
// BERTH_TEXT_MODEL_TYPE. Everything else stays as it is. A config without any of the rope keys gets
// no rope_parameters.
#ifndef BERTH_MODEL_CONFIG_JSON_H
#define BERTH_MODEL_CONFIG_JSON_H

#include "base/json.h"
#include "base/status.h"
#include "base/str.h"

// Of a model that also sees or hears: the model_type of the part that reads and writes text.
#define BERTH_TEXT_MODEL_TYPE "text_model_type"

BERTH_MUST_CHECK berth_status berth_config_json_load(const char *path, berth_json **out_config);
// `name` stands for the file in errors. Parsing the normalised form again changes nothing.
BERTH_MUST_CHECK berth_status berth_config_json_parse(berth_str text, const char *name,
                                                      berth_json **out_config);

#endif
