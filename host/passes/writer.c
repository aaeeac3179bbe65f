// SPDX-License-Identifier: Apache-2.0
// The builder that a rewrite writes to: what makes nodes goes to the trial; what belongs to models
// and layers is refused by name, since a pass knows neither a checkpoint nor a layer.
#include "passes/rewriting.h"

static berth_graph_builder *behind(const berth_builder *face) {
    return face->context;
}

static berth_value slot_input(berth_builder *face, const char *name) {
    return berth_graph_input(behind(face), name);
}

static berth_value slot_op(berth_builder *face, const berth_call *call) {
    return berth_graph_op(behind(face), call);
}

static berth_value slot_slice(berth_builder *face, berth_value value, uint64_t dim, int64_t start,
                              int64_t length) {
    return berth_graph_slice(behind(face), value, dim, start, length);
}

static berth_value slot_reshape(berth_builder *face, berth_value value, const berth_dim *dims,
                                uint64_t ndim) {
    return berth_graph_reshape(behind(face), value, dims, ndim);
}

static const berth_value_type *slot_type(berth_builder *face, berth_value value) {
    return berth_graph_type(behind(face), value);
}

static const char *slot_intern(berth_builder *face, const char *text, uint64_t length) {
    const berth_str str = {.data = text, .size = length};
    const char *copy = berth_arena_copy(berth_graph_peek(behind(face))->arena, str);
    if (copy == NULL) {
        berth_graph_fail(behind(face), BERTH_OUT_OF_MEMORY, berth_status_message());
        return "";
    }
    return copy;
}

static void slot_fail(berth_builder *face, berth_status status, const char *text, uint64_t length) {
    berth_graph_fail(behind(face), status, slot_intern(face, text, length));
}

static uint64_t slot_has_failed(const berth_builder *face) {
    return berth_graph_has_failed(behind(face));
}

// ---- what a pass has no use for -----------------------------------------------------------------

static void refuse(const berth_builder *face, const char *slot) {
    const berth_status status = BERTH_FAIL(
        WRONG_STATE, "a pass calls '%s' of its builder, which is for models and layers", slot);
    berth_graph_fail(behind(face), status, berth_status_message());
}

static void no_describe(berth_builder *face, const berth_model_description *description) {
    (void)description;
    refuse(face, "describe");
}

static berth_value no_parameter(berth_builder *face, const berth_parameter *parameter) {
    (void)parameter;
    refuse(face, "parameter");
    return BERTH_VALUE_NONE;
}

static void no_kv_cache(berth_builder *face, const berth_kv_cache *cache) {
    (void)cache;
    refuse(face, "kv_cache");
}

static berth_value no_layer(berth_builder *face, const berth_call *call) {
    (void)call;
    refuse(face, "layer");
    return BERTH_VALUE_NONE;
}

static berth_value no_linear(berth_builder *face, const berth_linear *linear, berth_value x) {
    (void)linear, (void)x;
    refuse(face, "linear");
    return BERTH_VALUE_NONE;
}

static void no_output(berth_builder *face, const char *name, berth_value value) {
    (void)name, (void)value;
    refuse(face, "output");
}

static void no_state(berth_builder *face, const berth_layer_state *state) {
    (void)state;
    refuse(face, "state");
}

static void no_ignore(berth_builder *face, const char *text) {
    (void)text;
    refuse(face, "ignore");
}

static berth_value no_experts(berth_builder *face, const berth_experts *experts) {
    (void)experts;
    refuse(face, "experts");
    return BERTH_VALUE_NONE;
}

static berth_value no_kv_scale(berth_builder *face, const char *layer, uint64_t state) {
    (void)layer, (void)state;
    refuse(face, "kv_scale");
    return BERTH_VALUE_NONE;
}

static berth_value no_matrix(berth_builder *face, const berth_linear *linear, berth_value x,
                             berth_value *out_weight) {
    (void)linear, (void)x;
    *out_weight = BERTH_VALUE_NONE;
    refuse(face, "linear_matrix");
    return BERTH_VALUE_NONE;
}

void berth_writer_open(berth_builder *face, const berth_rewriting *in) {
    *face = (berth_builder){
        .size = sizeof *face,
        .host = berth_registry_host(in->request->registry),
        .context = in->trial,
        .describe = no_describe,
        .input = slot_input,
        .parameter = no_parameter,
        .kv_cache = no_kv_cache,
        .op = slot_op,
        .layer = no_layer,
        .linear = no_linear,
        .slice = slot_slice,
        .reshape = slot_reshape,
        .output = no_output,
        .type = slot_type,
        .intern = slot_intern,
        .fail = slot_fail,
        .has_failed = slot_has_failed,
        .state = no_state,
        .ignore = no_ignore,
        .experts = no_experts,
        .kv_scale = no_kv_scale,
        .linear_matrix = no_matrix,
    };
}
