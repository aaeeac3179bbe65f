// SPDX-License-Identifier: Apache-2.0
// Input: a checkpoint in floats. Output: which of its tensors become codes, and the place of every
// tensor of the new one. The model's own class says what a linear layer is: the model is built, and
// the tensors that its layers' weights are made of are taken. Heads, routers, and whatever no layer
// multiplies by as it is stored stay as they are.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <berth/quant.h>

#include "model/building.h"
#include "model/pieces.h"
#include "quantizer/quantizer.h"

#define SUFFIX       ".weight"
#define LEAST_INPUTS 32 // of a layer that is worth a scale

// ---- which tensors ------------------------------------------------------------------------------

static bool is_class(const berth_linear *linear, const char *name) {
    return strcmp(linear->layer_class, name) == 0;
}

// Of a state space's step sizes and states: small, and left alone by other readers of such files.
static bool is_step(const berth_linear *linear) {
    const berth_str prefix = berth_str_from(linear->prefix);
    return berth_str_ends_with(prefix, BERTH_STR(".x_proj")) ||
           berth_str_ends_with(prefix, BERTH_STR(".dt_proj"));
}

// Why not the matrices that latent attention multiplies by in its own way, of 4 bits: readers of
// packed words have no such form of them.
static bool is_wanted(const quantizer_plan *plan, const berth_linear *linear) {
    return !is_class(linear, "ParallelLMHead") && !is_class(linear, "GateLinear") &&
           !is_step(linear) && linear->input_size >= LEAST_INPUTS &&
           (linear->is_matrix == 0 || plan->form.scheme != QUANTIZER_INT4);
}

static bool is_matrix(const berth_stored_tensor *tensor) {
    return tensor->ndim == 2 &&
           berth_str_ends_with(berth_str_from(tensor->name), BERTH_STR(SUFFIX));
}

static quantizer_item *item_of(const quantizer_plan *plan, const berth_stored_tensor *tensor) {
    for (size_t i = 0; i < plan->count; ++i) {
        if (plan->items[i].from == tensor) {
            return &plan->items[i];
        }
    }
    return NULL;
}

// The module that has the tensor.
static const char *module_of(const quantizer_plan *plan, const berth_stored_tensor *tensor) {
    const berth_str name = berth_str_from(tensor->name);
    return berth_arena_copy(plan->arena, berth_str_slice(name, 0, name.size - strlen(SUFFIX)));
}

static berth_status check_group(const quantizer_plan *plan, const berth_stored_tensor *tensor) {
    const int64_t group = plan->form.scheme == QUANTIZER_INT4 ? plan->form.group : 1;
    return tensor->shape[1] % group == 0
               ? BERTH_OK
               : BERTH_FAIL(INVALID_ARGUMENT,
                            "%s: tensor '%s' has %" PRId64 " inputs, which groups of %" PRId64
                            " do not divide; choose another --group or --scheme",
                            berth_safetensors_path(tensor->file), tensor->name, tensor->shape[1],
                            group);
}

static berth_status check_stack(const berth_processing *layer, const berth_stored_tensor *tensor) {
    return layer->linear.stack_size == 0
               ? BERTH_OK
               : BERTH_FAIL(UNSUPPORTED,
                            "%s: tensor '%s' holds several experts; compressed-tensors stores each "
                            "by itself",
                            tensor->file ? berth_safetensors_path(tensor->file) : "", tensor->name);
}

static berth_status take_weight(quantizer_plan *plan, const berth_weight *weight) {
    const berth_processing *layer = weight->layer;
    if (layer == NULL || weight->is_vector || !is_wanted(plan, &layer->linear)) {
        return BERTH_OK;
    }
    for (size_t i = 0; i < weight->piece_count; ++i) {
        const struct berth_weight_piece *piece = &weight->pieces[i];
        quantizer_item *item = item_of(plan, piece->tensor);
        if (item == NULL || piece->is_transposed || !is_matrix(piece->tensor)) {
            BERTH_TRY(check_stack(layer, piece->tensor));
            continue;
        }
        BERTH_TRY(check_group(plan, piece->tensor));
        item->module = module_of(plan, piece->tensor);
        if (item->module == NULL) {
            return berth_arena_exhausted(plan->arena, "names of modules");
        }
    }
    return BERTH_OK;
}

static bool is_looked_up(const berth_graph *graph, berth_value value) {
    for (size_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        if (node->kind != BERTH_NODE_OP || strcmp(node->op->op.name, "embedding") != 0) {
            continue;
        }
        for (size_t k = 0; k < node->input_count; ++k) {
            if (node->inputs[k] == value) {
                return true;
            }
        }
    }
    return false;
}

// Tables that tokens are looked up in are no linear layers to any reader.
static bool is_table(const berth_model_build *build, const berth_stored_tensor *tensor) {
    for (size_t i = 0; i < build->weight_count; ++i) {
        const berth_weight *weight = &build->weights[i];
        if (weight->piece_count == 1 && weight->pieces[0].tensor == tensor &&
            is_looked_up(build->graph, weight->value)) {
            return true;
        }
    }
    return false;
}

static berth_status list_ignored(quantizer_plan *plan, const berth_model_build *build) {
    bool has_head = false;
    for (size_t i = 0; i < plan->count; ++i) {
        const quantizer_item *item = &plan->items[i];
        if (item->module != NULL || !is_matrix(item->from) || is_table(build, item->from)) {
            continue;
        }
        const char *module = module_of(plan, item->from);
        if (module == NULL) {
            return berth_arena_exhausted(plan->arena, "names of modules");
        }
        has_head = has_head || strcmp(module, "lm_head") == 0;
        BERTH_TRY(berth_array_push(&plan->ignored, module));
    }
    // A head that shares the table's tensor is a linear layer all the same.
    return has_head ? BERTH_OK : berth_array_push(&plan->ignored, (const char *)"lm_head");
}

// ---- what becomes of them -----------------------------------------------------------------------

static quantizer_tensor *add_tensor(quantizer_item *item, const char *dtype, uint64_t width,
                                    const int64_t shape[2]) {
    quantizer_tensor *out = &item->tensors[item->count++];
    *out = (quantizer_tensor){
        .dtype = dtype,
        .ndim = 2,
        .shape = {shape[0], shape[1]},
        .width = width,
        .bytes = (uint64_t)(shape[0] * shape[1]) * width,
    };
    return out;
}

// `weight` [N, K] with `weight_scale` [N, 1], or `weight_packed` [N, K / 8] with `weight_scale` and
// `weight_zero_point` by groups, and `weight_shape`.
static void describe_codes(const quantizer_plan *plan, quantizer_item *item) {
    const quantizer_form *form = &plan->form;
    const berth_stored_tensor *from = item->from;
    const int64_t rows = from->shape[0];
    const int64_t columns = from->shape[1];
    const int64_t groups = quantizer_groups(form, columns);
    const bool is_packed = form->scheme == QUANTIZER_INT4;
    const uint64_t scale_width = BERTH_DTYPE_BITS(from->dtype) / 8;
    item->count = 0;
    (void)add_tensor(item,
                     is_packed                        ? "I32"
                     : form->scheme == QUANTIZER_INT8 ? "I8"
                                                      : "F8_E4M3",
                     is_packed ? 4 : 1,
                     (const int64_t[2]){rows, is_packed ? columns / 8 : columns});
    (void)add_tensor(item, berth_safetensors_dtype(from->dtype), scale_width,
                     (const int64_t[2]){rows, groups});
    if (is_packed) {
        add_tensor(item, "I64", 8, (const int64_t[2]){2, 1})->ndim = 1;
    }
    if (is_packed && form->is_asymmetric) {
        (void)add_tensor(item, "I32", 4, (const int64_t[2]){(rows + 7) / 8, groups});
    }
}

static berth_status describe(const quantizer_plan *plan, quantizer_item *item) {
    static const char *const leaves[] = {
        [QUANTIZER_CODES] = "weight",
        [QUANTIZER_SCALE] = "weight_scale",
        [QUANTIZER_SHAPE] = "weight_shape",
        [QUANTIZER_ZERO] = "weight_zero_point",
    };
    if (item->module == NULL) {
        quantizer_tensor *same = &item->tensors[item->count++];
        *same = (quantizer_tensor){
            .name = item->from->name,
            .dtype = berth_safetensors_dtype(item->from->dtype),
            .ndim = item->from->ndim,
            .width = BERTH_DTYPE_BITS(item->from->dtype) / 8,
            .bytes = item->from->bytes,
        };
        memcpy(same->shape, item->from->shape, item->from->ndim * sizeof same->shape[0]);
        return BERTH_OK;
    }
    describe_codes(plan, item);
    for (size_t i = 0; i < item->count; ++i) {
        const bool is_packed = i == QUANTIZER_CODES && plan->form.scheme == QUANTIZER_INT4;
        item->tensors[i].name = berth_arena_printf(plan->arena, "%s.%s", item->module,
                                                   is_packed ? "weight_packed" : leaves[i]);
        if (item->tensors[i].name == NULL) {
            return berth_arena_exhausted(plan->arena, "names of tensors");
        }
    }
    return BERTH_OK;
}

// ---- where they lie -----------------------------------------------------------------------------

static uint64_t bytes_of(const quantizer_item *item) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < item->count; ++i) {
        bytes += item->tensors[i].bytes;
    }
    return bytes;
}

// Wide elements first, so that all lie at multiples of their size.
static void place(quantizer_plan *plan, size_t file) {
    static const uint64_t widths[] = {8, 4, 2, 1, 0};
    uint64_t offset = 0;
    for (size_t w = 0; w < BERTH_COUNT(widths); ++w) {
        for (size_t i = 0; i < plan->count; ++i) {
            quantizer_item *item = &plan->items[i];
            for (size_t k = 0; item->file == file && k < item->count; ++k) {
                quantizer_tensor *tensor = &item->tensors[k];
                if (tensor->width == widths[w]) {
                    tensor->offset = offset;
                    offset += tensor->bytes;
                }
            }
        }
    }
}

static berth_status lay_out(quantizer_plan *plan, uint64_t file_bytes) {
    for (size_t i = 0; i < plan->count; ++i) {
        quantizer_item *item = &plan->items[i];
        const uint64_t bytes = bytes_of(item);
        const bool is_full = plan->files.count == 0 ||
                             plan->files.data[plan->files.count - 1].bytes + bytes > file_bytes;
        if (is_full && (plan->files.count == 0 || plan->files.data[plan->files.count - 1].bytes)) {
            BERTH_TRY(berth_array_push(&plan->files, (quantizer_file){.bytes = 0}));
        }
        item->file = plan->files.count - 1;
        plan->files.data[item->file].bytes += bytes;
        plan->total_bytes += bytes;
    }
    for (size_t file = 0; file < plan->files.count; ++file) {
        place(plan, file);
        plan->files.data[file].name =
            plan->files.count == 1
                ? "model.safetensors"
                : berth_arena_printf(plan->arena, "model-%05zu-of-%05zu.safetensors", file + 1,
                                     plan->files.count);
        if (plan->files.data[file].name == NULL) {
            return berth_arena_exhausted(plan->arena, "names of files");
        }
    }
    return BERTH_OK;
}

// ---- entry points -------------------------------------------------------------------------------

static berth_status take_weights(quantizer_plan *plan, const berth_model_build *build) {
    size_t count = 0;
    for (size_t i = 0; i < build->weight_count; ++i) {
        BERTH_TRY(take_weight(plan, &build->weights[i]));
    }
    for (size_t i = 0; i < plan->count; ++i) {
        count += plan->items[i].module != NULL;
        BERTH_TRY(describe(plan, &plan->items[i]));
    }
    return count > 0 ? list_ignored(plan, build)
                     : BERTH_FAIL(UNSUPPORTED,
                                  "%s: none of its tensors is the weight of a linear layer as "
                                  "compressed-tensors stores one",
                                  berth_checkpoint_directory(plan->from));
}

static berth_status build_model(const quantizer_plan *plan, berth_model_build **out_build) {
    const berth_model_request request = {
        .registry = plan->registry,
        .config = plan->config,
        .checkpoint = plan->from,
        .activation = berth_checkpoint_dtype(plan->from),
    };
    berth_scheme scheme = {.entry = NULL};
    BERTH_TRY(berth_scheme_choose(&request, &scheme));
    if (strcmp(scheme.entry->config.name, "unquantized") != 0) {
        const berth_status status =
            BERTH_FAIL(UNSUPPORTED, "%s: is already quantized ('%s'); start from its floats",
                       berth_checkpoint_directory(plan->from), scheme.entry->config.name);
        berth_scheme_deinit(&scheme);
        return status;
    }
    return berth_model_create_of(&request, &scheme, out_build);
}

berth_status quantizer_plan_make(quantizer_plan *plan, uint64_t file_bytes) {
    berth_model_build *build = NULL;
    BERTH_TRY(build_model(plan, &build));
    plan->count = berth_checkpoint_count(plan->from);
    plan->items = BERTH_ARENA_ARRAY(plan->arena, quantizer_item, plan->count);
    berth_status status =
        plan->items == NULL ? berth_arena_exhausted(plan->arena, "tensors") : BERTH_OK;
    for (size_t i = 0; status == BERTH_OK && i < plan->count; ++i) {
        plan->items[i].from = berth_checkpoint_at(plan->from, i);
    }
    if (status == BERTH_OK) {
        status = take_weights(plan, build);
    }
    berth_model_destroy(build);
    return status == BERTH_OK ? lay_out(plan, file_bytes) : status;
}

void quantizer_plan_deinit(quantizer_plan *plan) {
    berth_array_free(&plan->ignored);
    berth_array_free(&plan->files);
}
