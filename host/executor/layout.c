// SPDX-License-Identifier: Apache-2.0
// Input: the graph's views. Output: for every value its root and how it lies there; for a batch its
// shape, strides and offset. Slices never touch the innermost stride and reshapes keep it, so all
// that can go wrong with a layout are breaks between two dims.
#include "executor/stages.h"

static const berth_value_type *type_of(const berth_plan *plan, berth_value value) {
    return &plan->graph->values[value].type;
}

// ---- at plan time -------------------------------------------------------------------------------

static void slice(berth_plan *plan, const berth_graph_node *node, berth_layout *layout) {
    const berth_layout *source = &plan->layouts[node->inputs[0]];
    const berth_dim whole = type_of(plan, node->inputs[0])->dims[node->slice_dim];
    *layout = *source;
    layout->kind = BERTH_LAYOUT_SLICE;
    if (node->slice_dim > 0 && node->slice_length < whole.b) {
        layout->breaks |= 1u << node->slice_dim;
    }
}

// One group of the source's dims that follow one another, and the target's dims that it becomes.
typedef struct dim_group {
    uint32_t source_first;
    uint32_t source_end;
    uint32_t target_first;
    uint32_t target_end;
} dim_group;

// The fewest target dims from target_first on that have the group's elements.
static bool match(const berth_value_type *source, const berth_value_type *target,
                  dim_group *group) {
    const uint32_t count = group->source_end - group->source_first;
    for (uint32_t end = group->target_first; end <= target->ndim; ++end) {
        if (berth_dims_match(source->dims + group->source_first, count,
                             target->dims + group->target_first, end - group->target_first)) {
            group->target_end = end;
            return true;
        }
    }
    return false;
}

static void write_group(const dim_group *group, berth_layout *layout) {
    for (uint32_t i = group->target_first; i < group->target_end; ++i) {
        layout->source_dim[i] = (uint8_t)(group->source_end - 1);
        layout->is_group_end[i] = i + 1 == group->target_end;
    }
    if (group->target_first > 0 && group->target_first < group->target_end) {
        layout->breaks |= 1u << group->target_first;
    }
}

// Whether strides can express the target; the layout is written in that case.
static bool regroup(const berth_value_type *source, const berth_value_type *target,
                    uint32_t source_breaks, berth_layout *layout) {
    layout->breaks = 0;
    dim_group group = {0};
    while (group.source_first < source->ndim) {
        group.source_end = group.source_first + 1;
        while (group.source_end < source->ndim && !(source_breaks >> group.source_end & 1u)) {
            ++group.source_end;
        }
        if (!match(source, target, &group)) {
            return false;
        }
        // What is left at the end are dims of 1.
        group.target_end = group.source_end == source->ndim ? target->ndim : group.target_end;
        write_group(&group, layout);
        group.source_first = group.source_end;
        group.target_first = group.target_end;
    }
    return true;
}

static void reshape(berth_plan *plan, const berth_graph_node *node, berth_layout *layout) {
    const berth_layout *source = &plan->layouts[node->inputs[0]];
    *layout = (berth_layout){.kind = BERTH_LAYOUT_RESHAPE, .root = source->root};
    if (!regroup(type_of(plan, node->inputs[0]), type_of(plan, node->outputs[0]), source->breaks,
                 layout)) {
        *layout = (berth_layout){.kind = BERTH_LAYOUT_COPY, .root = node->outputs[0]};
    }
}

berth_status berth_layout_build(berth_plan *plan) {
    const berth_graph *graph = plan->graph;
    plan->layouts = BERTH_ARENA_ARRAY(plan->arena, berth_layout, graph->value_count);
    plan->extents = BERTH_ARENA_ARRAY(plan->arena, berth_extent, graph->value_count);
    if (plan->layouts == NULL || plan->extents == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's layouts");
    }
    for (size_t i = 1; i < graph->value_count; ++i) {
        const berth_graph_value *value = &graph->values[i];
        berth_layout *layout = &plan->layouts[i];
        if (value->kind == BERTH_VALUE_MUTATED) {
            layout->root = plan->layouts[value->alias_of].root;
        } else if (value->kind != BERTH_VALUE_VIEW) {
            layout->root = (berth_value)i;
        } else if (graph->nodes[value->node].kind == BERTH_NODE_SLICE) {
            slice(plan, &graph->nodes[value->node], layout);
        } else {
            reshape(plan, &graph->nodes[value->node], layout);
        }
    }
    return BERTH_OK;
}

bool berth_layout_meets(const berth_layout *layout, uint64_t need) {
    return need == BERTH_LAYOUT_ANY || layout->breaks == 0 ||
           (need == BERTH_LAYOUT_ROW_STRIDED && layout->breaks == 2);
}

// ---- for a batch --------------------------------------------------------------------------------

void berth_layout_dense(const int64_t *shape, uint32_t ndim, int64_t *out_strides) {
    int64_t stride = 1;
    for (uint32_t i = ndim; i-- > 0;) {
        out_strides[i] = stride;
        stride *= shape[i];
    }
}

static void update_slice(berth_plan *plan, const berth_graph_node *node, berth_extent *extent) {
    const berth_extent *source = &plan->extents[node->inputs[0]];
    for (uint32_t i = 0; i < BERTH_MAX_DIMS; ++i) {
        extent->strides[i] = source->strides[i];
    }
    extent->offset = source->offset + node->slice_start * source->strides[node->slice_dim];
}

static void update_reshape(berth_plan *plan, const berth_graph_node *node, berth_extent *extent) {
    const berth_layout *layout = &plan->layouts[node->outputs[0]];
    const berth_extent *source = &plan->extents[node->inputs[0]];
    const bool is_scalar = type_of(plan, node->inputs[0])->ndim == 0;
    int64_t stride = 1;
    for (uint32_t i = type_of(plan, node->outputs[0])->ndim; i-- > 0;) {
        if (layout->is_group_end[i]) {
            stride = is_scalar ? 1 : source->strides[layout->source_dim[i]];
        }
        extent->strides[i] = stride;
        stride *= extent->shape[i];
    }
    extent->offset = source->offset;
}

static void update_extent(berth_plan *plan, berth_value value, int64_t tokens, int64_t rows) {
    const berth_value_type *type = type_of(plan, value);
    berth_extent *extent = &plan->extents[value];
    extent->elements = 1;
    for (uint32_t i = 0; i < type->ndim; ++i) {
        extent->shape[i] = berth_dim_value(type->dims[i], tokens, rows);
        extent->elements *= extent->shape[i];
    }
    const uint32_t node = plan->graph->values[value].node;
    switch (plan->layouts[value].kind) {
    case BERTH_LAYOUT_SLICE:
        update_slice(plan, &plan->graph->nodes[node], extent);
        break;
    case BERTH_LAYOUT_RESHAPE:
        update_reshape(plan, &plan->graph->nodes[node], extent);
        break;
    default:
        berth_layout_dense(extent->shape, type->ndim, extent->strides);
        break;
    }
}

// Why only planned, input and parameter operands: states and workspaces do not follow the symbols.
static void update_operand(berth_plan *plan, berth_operand *operand) {
    if (operand->value == BERTH_VALUE_NONE) {
        return;
    }
    const berth_storage *storage = &plan->storages.data[operand->storage];
    if (storage->kind == BERTH_STORAGE_CACHE || storage->kind == BERTH_STORAGE_STATE) {
        return;
    }
    const berth_extent *extent = &plan->extents[operand->value];
    if (operand->is_dense) {
        berth_layout_dense(extent->shape, type_of(plan, operand->value)->ndim, operand->strides);
        operand->tensor.byte_offset = storage->offset;
        return;
    }
    operand->tensor.byte_offset =
        storage->offset +
        berth_dtype_bytes(type_of(plan, operand->value)->dtype, (uint64_t)extent->offset);
}

void berth_layout_update(berth_plan *plan, int64_t tokens, int64_t rows) {
    for (size_t i = 1; i < plan->graph->value_count; ++i) {
        update_extent(plan, (berth_value)i, tokens, rows);
    }
    for (size_t i = 0; i < plan->operands.count; ++i) {
        update_operand(plan, plan->operands.data[i]);
    }
    berth_choice_update(plan, rows);
    plan->tokens = tokens;
    plan->rows = rows;
}
