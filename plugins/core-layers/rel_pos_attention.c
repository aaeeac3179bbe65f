// SPDX-License-Identifier: Apache-2.0
// RelPosAttention: attention over the pixels of images with a bias by their distance, as the image
// encoder of Segment Anything has it.
// Input x [images, h, w, dim]; output like it.
// Attributes: dim, num_heads (8), qkv_bias (1), use_rel_pos (0), input_size (h and w of the bias
// tables; needed with use_rel_pos).
// Parameters: qkv, proj with a bias; with use_rel_pos rel_pos_h [2h − 1, d], rel_pos_w [2w − 1, d].
#include "linear/mixer.h"

static berth_value table(const berth_mixer *mixer, const char *name, int64_t size, int64_t width) {
    const berth_mixer_weight weight = {
        .name = name,
        .shape = {2 * size - 1, width},
        .ndim = 2,
        .is_whole = 1,
    };
    return berth_mixer_parameter(mixer, weight);
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_mixer mixer = berth_mixer_of(builder, call);
    const int64_t dim = berth_call_i64(call, "dim", 0);
    const int64_t heads = berth_call_i64(call, "num_heads", 8);
    const berth_attribute *size =
        berth_attribute_find(call->attributes, call->attribute_count, "input_size");
    const int has_tables = berth_call_i64(call, "use_rel_pos", 0) != 0;
    if (heads < 1 || dim < 1 || dim % heads != 0 ||
        (has_tables && (size == NULL || size->kind != BERTH_ATTRIBUTE_I64S || size->count != 2))) {
        berth_build_fail(builder, BERTH_INVALID_ARGUMENT,
                         "'%s': needs num_heads that divide dim and, with use_rel_pos, an "
                         "input_size of two",
                         call->prefix);
        return;
    }
    const berth_mixer_linear qkv = {
        .layer_class = "ReplicatedLinear",
        .name = "qkv",
        .input_size = dim,
        .output_size = 3 * dim,
        .has_bias = berth_call_i64(call, "qkv_bias", 1) != 0,
    };
    const berth_mixer_linear proj = {
        .layer_class = "ReplicatedLinear",
        .name = "proj",
        .input_size = dim,
        .output_size = dim,
        .has_bias = 1,
    };
    const berth_value x = berth_mixer_project(&mixer, qkv, call->inputs[0]);
    berth_value tables[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    if (has_tables) {
        tables[0] = table(&mixer, "rel_pos_h", size->i64s[0], dim / heads);
        tables[1] = table(&mixer, "rel_pos_w", size->i64s[1], dim / heads);
    }
    const berth_value y = BERTH_EMIT(builder, "rel_pos_attn", .prefix = call->prefix,
                                     BERTH_INPUTS(x, tables[0], tables[1]),
                                     BERTH_ATTRIBUTES(BERTH_I64("num_heads", heads)));
    call->outputs[0] = berth_mixer_project(&mixer, proj, y);
}

const berth_layer berth_layer_rel_pos_attention = {
    .size = sizeof(berth_layer),
    .name = "RelPosAttention",
    .build = build,
};
