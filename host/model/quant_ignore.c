// SPDX-License-Identifier: Apache-2.0
// Input: the modules that the user keeps from being quantized at load, a layer. Output: whether the
// layer stays as it is. Why not each scheme by itself: the list is the user's, and means the same
// to all of them.
#include "model/building.h"

static const berth_option_list *list_of(const berth_building *building) {
    return &building->config->quant_ignore;
}

berth_status berth_quant_ignore_check(const berth_building *building,
                                      const berth_checkpoint *checkpoint, bool is_at_load) {
    if (list_of(building)->count == 0 || is_at_load) {
        return BERTH_OK;
    }
    return BERTH_FAIL(
        INVALID_ARGUMENT,
        "%s: quantization_config.ignore names '%s', but nothing is quantized at load: "
        "the scheme is '%s'; choose one with --quantization, or leave the list out",
        berth_checkpoint_directory(checkpoint), list_of(building)->items[0],
        building->quantization->config.name);
}

static berth_status is_listed(const berth_building *building, const berth_processing *layer,
                              const char *name, bool *out) {
    const berth_option_list *list = list_of(building);
    *out = false;
    for (size_t i = 0; i < list->count && !*out; ++i) {
        const berth_status status = berth_quant_names(building->face.host, &layer->linear, name,
                                                      list->items[i], BERTH_QUANT_EXACT);
        if (status != BERTH_OK && status != BERTH_NOT_FOUND) {
            berth_status_note(__FILE__, __LINE__, "quantization_config.ignore: '%s'",
                              list->items[i]);
            return status;
        }
        *out = status == BERTH_OK;
    }
    return BERTH_OK;
}

// By its own name, or by those of its modules, which must agree.
berth_status berth_quant_ignore_find(const berth_building *building, const berth_processing *layer,
                                     bool *out) {
    const berth_quant_layer *of = &layer->layer;
    *out = false;
    if (list_of(building)->count == 0) {
        return BERTH_OK;
    }
    BERTH_TRY(is_listed(building, layer, layer->name, out));
    for (uint64_t i = 0, named = 0; i < of->name_count && !*out; ++i) {
        bool is_own = false;
        BERTH_TRY(is_listed(building, layer, of->names[i], &is_own));
        named += is_own;
        if (named != 0 && named != i + 1) {
            return BERTH_FAIL(
                INVALID_ARGUMENT,
                "quantization_config.ignore names one of '%s' and '%s', which are one "
                "layer here and must be quantized alike",
                of->names[is_own ? i - 1 : 0], of->names[i]);
        }
        *out = named == of->name_count;
    }
    return BERTH_OK;
}
