// SPDX-License-Identifier: Apache-2.0
// Input: the two stacks of a mixture of experts, by whatever form. Output: their node.
#include "forms.h"

#define MAX_ATTRIBUTES 16

berth_value berth_form_experts(berth_builder *builder, const berth_experts *experts,
                               const berth_form_stack stacks[2], berth_form_codes codes) {
    const berth_attribute *const own[] = {
        BERTH_TEXT("code", codes.code),
        BERTH_TEXT("input", codes.input),
        BERTH_I64S("group_shape", codes.groups, 2),
    };
    const berth_attribute *attributes[MAX_ATTRIBUTES];
    uint64_t count = 0;
    for (; count < sizeof own / sizeof own[0]; ++count) {
        attributes[count] = own[count];
    }
    for (uint64_t i = 0; i < experts->attribute_count && count < MAX_ATTRIBUTES; ++i) {
        attributes[count++] = experts->attributes[i];
    }
    return BERTH_EMIT(builder, "quantized_experts", .prefix = experts->prefix,
                      BERTH_INPUTS(experts->x, stacks[0].weight, stacks[0].scale, stacks[1].weight,
                                   stacks[1].scale, experts->topk_weights, experts->topk_ids,
                                   stacks[0].bias, stacks[1].bias, stacks[0].zeros, stacks[1].zeros,
                                   stacks[0].input_scale, stacks[1].input_scale),
                      .attributes = attributes, .attribute_count = count);
}
