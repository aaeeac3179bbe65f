// SPDX-License-Identifier: Apache-2.0
// Which tensors of a checkpoint make which parameter. Private to this module.
//
// The model's weight rules are applied once, to all tensors. Then every declared parameter takes
// the tensors that carry its name, and at the end nothing may be missing and nothing left over.
#ifndef BERTH_MODEL_PARAMETERS_H
#define BERTH_MODEL_PARAMETERS_H

#include "base/map.h"
#include "model/model.h"

typedef struct berth_parameters berth_parameters;

// Everything given outlives the result; weights come from the arena.
BERTH_MUST_CHECK berth_status berth_parameters_create(const berth_checkpoint *checkpoint,
                                                      const berth_model *model,
                                                      berth_dtype activation, berth_arena *arena,
                                                      berth_parameters **out_parameters);
// The weight of a declaration: an earlier one of that name or alias, or a new one, whose value is
// BERTH_VALUE_NONE until the caller sets it. Missing tensors are only remembered, so that the
// report can name them all; what contradicts the declaration fails at once.
BERTH_MUST_CHECK berth_status berth_parameters_take(berth_parameters *parameters,
                                                    const berth_parameter *declared,
                                                    berth_weight **out_weight);
// The module that the checkpoint has in the place of a shard (NULL: of the whole) of the layer
// `prefix`; NULL when the model's rules know none by itself.
const char *berth_parameters_module(const berth_parameters *parameters, const char *prefix,
                                    const char *shard);
// Whether the checkpoint has a module `prefix`, which is one layer.
bool berth_parameters_has_module(const berth_parameters *parameters, const char *prefix);
// The modules of the layers of the stack `prefix`, added as keys; see berth_weight_names_modules.
BERTH_MUST_CHECK berth_status berth_parameters_modules(const berth_parameters *parameters,
                                                       const char *prefix, berth_map *modules);
// Tensors in whose names the text occurs may be left over.
void berth_parameters_ignore(berth_parameters *parameters, const char *text);
// CORRUPT lists the missing tensors and those that no parameter took.
BERTH_MUST_CHECK berth_status berth_parameters_check(const berth_parameters *parameters);
// All weights of the graph in the order of their declaration, as one array in the arena.
BERTH_MUST_CHECK berth_status berth_parameters_list(const berth_parameters *parameters,
                                                    const berth_weight **out_weights,
                                                    size_t *out_count);
// The declaration in elements, without factors: shape, shards and parts divided. What it points to
// comes from the arena. CORRUPT names the shard or part that begins or ends inside of an element.
BERTH_MUST_CHECK berth_status berth_parameter_divide(const berth_parameter *given,
                                                     berth_arena *arena, berth_parameter *out);
void berth_parameters_destroy(berth_parameters *parameters);

#endif
