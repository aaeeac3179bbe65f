// SPDX-License-Identifier: Apache-2.0
// Input: a build. Output: its weights one after the other, in their resident form: as they lie
// mapped, put together from tensors, or made by the quantization method of their layer.
//
// Why in the order of the graph, and nothing kept: beside the resident weights there is never more
// than one weight mapped and one, or those of one layer, in memory.
#include <string.h>

#include "base/array.h"
#include "base/memory.h"
#include "model/building.h"

typedef berth_array(unsigned char) weight_buffer;

typedef struct loading {
    const berth_weight_taker *taker;
    weight_buffer buffer;
} loading;

static berth_status load_plain(loading *in, const berth_weight *weight) {
    const void *stored = berth_weight_stored(weight);
    if (stored == NULL) {
        BERTH_TRY(berth_array_reserve(&in->buffer, weight->bytes));
        BERTH_TRY(berth_weight_load(weight, in->buffer.data));
        return in->taker->accept(in->taker->context, weight, in->buffer.data);
    }
    if (weight->bytes > in->buffer.capacity) {
        berth_array_free(&in->buffer); // so that never both are there
    }
    BERTH_TRY(in->taker->accept(in->taker->context, weight, stored));
    berth_weight_drop(weight);
    return BERTH_OK;
}

// ---- what a method makes ------------------------------------------------------------------------

// A weight in memory of its own, as plugins see it.
typedef struct held {
    berth_tensor tensor;
    int64_t shape[BERTH_MAX_DIMS];
    int64_t strides[BERTH_MAX_DIMS];
} held;

static berth_status hold(const berth_weight *weight, held *out) {
    out->tensor = (berth_tensor){
        .size = sizeof out->tensor,
        .data = berth_alloc_aligned(64, weight->bytes > 0 ? weight->bytes : 1),
        .device_type = BERTH_MEMORY_HOST,
        .ndim = (int32_t)weight->type.ndim,
        .dtype = weight->type.dtype,
        .shape = out->shape,
        .strides = out->strides,
    };
    if (out->tensor.data == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for %llu bytes of '%s'",
                          (unsigned long long)weight->bytes, weight->name);
    }
    memset(out->tensor.data, 0, weight->bytes);
    int64_t stride = 1;
    for (uint32_t i = weight->type.ndim; i-- > 0;) {
        out->shape[i] = weight->type.dims[i].b;
        out->strides[i] = stride;
        stride *= out->shape[i];
    }
    return BERTH_OK;
}

// What is in memory while one layer is made.
typedef struct workshop {
    const berth_processing *of;
    held stored[BERTH_MAX_WEIGHTS];
    held made[BERTH_MAX_WEIGHTS];
} workshop;

static berth_status fill(workshop *shop) {
    for (size_t i = 0; i < shop->of->stored_count; ++i) {
        BERTH_TRY(hold(shop->of->stored[i], &shop->stored[i]));
        BERTH_TRY(berth_weight_load(shop->of->stored[i], shop->stored[i].tensor.data));
    }
    for (size_t i = 0; i < shop->of->made_count; ++i) {
        BERTH_TRY(hold(shop->of->made[i], &shop->made[i]));
    }
    return BERTH_OK;
}

static berth_status process(const workshop *shop, const berth_host *host) {
    const berth_processing *of = shop->of;
    const berth_tensor *stored[BERTH_MAX_WEIGHTS];
    const berth_tensor *made[BERTH_MAX_WEIGHTS];
    for (size_t i = 0; i < BERTH_MAX_WEIGHTS; ++i) {
        stored[i] = i < of->stored_count ? &shop->stored[i].tensor : NULL;
        made[i] = i < of->made_count ? &shop->made[i].tensor : NULL;
    }
    berth_plugin_enter(of->scheme->owner, "process_weights_after_loading");
    return berth_plugin_leave(
        of->kv_method.name != NULL
            ? of->kv_method.process_weights_after_loading(host, &of->kv_layer, stored, made)
            : of->method.process_weights_after_loading(host, &of->linear, stored, made));
}

static berth_status make(loading *in, workshop *shop, const berth_host *host) {
    BERTH_TRY(fill(shop));
    BERTH_TRY(process(shop, host));
    for (size_t i = 0; i < shop->of->stored_count; ++i) { // before the made ones are packed
        berth_free(shop->stored[i].tensor.data);
        shop->stored[i].tensor.data = NULL;
    }
    for (size_t i = 0; i < shop->of->made_count; ++i) {
        BERTH_TRY(
            in->taker->accept(in->taker->context, shop->of->made[i], shop->made[i].tensor.data));
        berth_free(shop->made[i].tensor.data);
        shop->made[i].tensor.data = NULL;
    }
    return BERTH_OK;
}

static berth_status load_made(loading *in, const berth_processing *of, const berth_host *host) {
    workshop shop = {.of = of};
    const berth_status status = make(in, &shop, host);
    for (size_t i = 0; i < BERTH_MAX_WEIGHTS; ++i) {
        berth_free(shop.stored[i].tensor.data);
        berth_free(shop.made[i].tensor.data);
    }
    return status;
}

// ---- entry point --------------------------------------------------------------------------------

// Of the weights that one method makes, the first stands for all.
static bool is_first(const berth_weight *weight) {
    return strcmp(weight->made_by->made[0]->name, weight->name) == 0;
}

static berth_status load(loading *in, const berth_weight *weight, const berth_host *host) {
    const berth_weight_taker *taker = in->taker;
    if (weight->made_by != NULL) {
        return is_first(weight) ? load_made(in, weight->made_by, host) : BERTH_OK;
    }
    return taker->has_rows != NULL && taker->has_rows(taker->context, weight)
               ? BERTH_OK
               : load_plain(in, weight);
}

berth_status berth_model_load(const berth_model_build *build, const berth_weight_taker *taker) {
    loading in = {.taker = taker};
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < build->weight_count && status == BERTH_OK; ++i) {
        status = load(&in, &build->weights[i], build->host);
        if (status != BERTH_OK) {
            berth_processing_note(build->weights[i].layer, "loading");
            berth_status_note(__FILE__, __LINE__, "loading '%s'", build->weights[i].name);
        }
    }
    berth_array_free(&in.buffer);
    return status;
}
