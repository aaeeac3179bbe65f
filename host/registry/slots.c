// SPDX-License-Identifier: Apache-2.0
// The tagged slots of the contract's tables, one row per tagged member of a header; a test compares
// the two. From these rows come the checks at registration and the tests that clear one slot after
// the other.
#include <stddef.h>

#include "registry/registry_private.h"

#define SLOT(type, member, slot_tag)                                                               \
    { .name = #member, .offset = offsetof(type, member), .tag = BERTH_SLOT_##slot_tag }

static const berth_slot plugin_slots[] = {
    SLOT(berth_plugin, id, REQUIRED),
    SLOT(berth_plugin, version, REQUIRED),
    SLOT(berth_plugin, vendor, REQUIRED),
    SLOT(berth_plugin, shutdown, INHERIT),
};

static const berth_slot entry_point_slots[] = {
    SLOT(berth_entry_point, group, REQUIRED),
    SLOT(berth_entry_point, name, REQUIRED),
    SLOT(berth_entry_point, register_plugin, REQUIRED),
};

static const berth_slot platform_slots[] = {
    SLOT(berth_platform, name, REQUIRED),
    SLOT(berth_platform, vendor, REQUIRED),
    SLOT(berth_platform, kind, REQUIRED),
    SLOT(berth_platform, device_type, REQUIRED),
    SLOT(berth_platform, device_name, REQUIRED),
    SLOT(berth_platform, dispatch_key, INHERIT),
    SLOT(berth_platform, capabilities, REQUIRED),
    SLOT(berth_platform, device, REQUIRED),
    SLOT(berth_platform, worker, INHERIT),
    SLOT(berth_platform, default_custom_ops, INHERIT),
    SLOT(berth_platform, device_count, REQUIRED),
    SLOT(berth_platform, device_info, REQUIRED),
    SLOT(berth_platform, apply_config_defaults, INHERIT),
    SLOT(berth_platform, check_and_update_config, INHERIT),
    SLOT(berth_platform, verify_model_arch, INHERIT),
    SLOT(berth_platform, verify_quantization, INHERIT),
    SLOT(berth_platform, validate_request, INHERIT),
    SLOT(berth_platform, get_attn_backend, INHERIT),
    SLOT(berth_platform, register_ops, INHERIT),
    SLOT(berth_platform, destroy, INHERIT),
};

static const berth_slot device_slots[] = {
    SLOT(berth_device_api, allocate, REQUIRED),
    SLOT(berth_device_api, release, REQUIRED),
    SLOT(berth_device_api, copy_to_device, REQUIRED),
    SLOT(berth_device_api, copy_to_host, REQUIRED),
    SLOT(berth_device_api, synchronize, REQUIRED),
    SLOT(berth_device_api, open, INHERIT),
    SLOT(berth_device_api, close, INHERIT),
    SLOT(berth_device_api, copy_on_device, INHERIT),
    SLOT(berth_device_api, memory_info, INHERIT),
    SLOT(berth_device_api, allocate_host, INHERIT),
    SLOT(berth_device_api, release_host, INHERIT),
    SLOT(berth_device_api, queue_to_device, INHERIT),
    SLOT(berth_device_api, capture_begin, OPTIONAL),
    SLOT(berth_device_api, capture_end, OPTIONAL),
    SLOT(berth_device_api, replay, OPTIONAL),
    SLOT(berth_device_api, release_graph, OPTIONAL),
};

static const berth_slot worker_slots[] = {
    SLOT(berth_worker_api, init_device, INHERIT),
    SLOT(berth_worker_api, load_model, INHERIT),
    SLOT(berth_worker_api, get_model, INHERIT),
    SLOT(berth_worker_api, get_kv_cache_spec, INHERIT),
    SLOT(berth_worker_api, determine_available_memory, INHERIT),
    SLOT(berth_worker_api, initialize_from_config, INHERIT),
    SLOT(berth_worker_api, initialize_cache, INHERIT),
    SLOT(berth_worker_api, compile_or_warm_up_model, INHERIT),
    SLOT(berth_worker_api, execute_model, INHERIT),
    SLOT(berth_worker_api, sample_tokens, INHERIT),
    SLOT(berth_worker_api, take_draft_token_ids, OPTIONAL),
    SLOT(berth_worker_api, execute_dummy_batch, INHERIT),
    SLOT(berth_worker_api, sleep, OPTIONAL),
    SLOT(berth_worker_api, wake_up, OPTIONAL),
    SLOT(berth_worker_api, add_lora, OPTIONAL),
    SLOT(berth_worker_api, remove_lora, OPTIONAL),
    SLOT(berth_worker_api, list_loras, OPTIONAL),
    SLOT(berth_worker_api, pin_lora, OPTIONAL),
    SLOT(berth_worker_api, update_max_model_len, INHERIT),
    SLOT(berth_worker_api, profile, OPTIONAL),
    SLOT(berth_worker_api, check_health, INHERIT),
    SLOT(berth_worker_api, reset_caches, INHERIT),
    SLOT(berth_worker_api, shutdown, INHERIT),
};

static const berth_slot op_slots[] = {
    SLOT(berth_op, name, REQUIRED),       SLOT(berth_op, class_name, REQUIRED),
    SLOT(berth_op, revision, REQUIRED),   SLOT(berth_op, infer, REQUIRED),
    SLOT(berth_op, reference, REQUIRED),  SLOT(berth_op, reference_workspace, OPTIONAL),
    SLOT(berth_op, is_rowwise, OPTIONAL),
};

static const berth_slot impl_slots[] = {
    SLOT(berth_op_impl, op, REQUIRED),           SLOT(berth_op_impl, name, REQUIRED),
    SLOT(berth_op_impl, dispatch_key, REQUIRED), SLOT(berth_op_impl, revision, REQUIRED),
    SLOT(berth_op_impl, supports, INHERIT),      SLOT(berth_op_impl, create, INHERIT),
    SLOT(berth_op_impl, workspace, INHERIT),     SLOT(berth_op_impl, forward, REQUIRED),
    SLOT(berth_op_impl, destroy, INHERIT),       SLOT(berth_op_impl, packed_bytes, INHERIT),
    SLOT(berth_op_impl, pack, INHERIT),          SLOT(berth_op_impl, pack_rows, INHERIT),
    SLOT(berth_op_impl, library, OPTIONAL),
};

static const berth_slot layer_slots[] = {
    SLOT(berth_layer, name, REQUIRED),
    SLOT(berth_layer, build, REQUIRED),
};

static const berth_slot quant_slots[] = {
    SLOT(berth_quant_config, name, REQUIRED),
    SLOT(berth_quant_config, matches, INHERIT),
    SLOT(berth_quant_config, get_quant_method, REQUIRED),
    SLOT(berth_quant_config, override_quantization_method, INHERIT),
    SLOT(berth_quant_config, get_kv_cache_method, INHERIT),
};

static const berth_slot quant_method_slots[] = {
    SLOT(berth_quant_method, name, REQUIRED),
    SLOT(berth_quant_method, create_weights, REQUIRED),
    SLOT(berth_quant_method, apply, REQUIRED),
    SLOT(berth_quant_method, process_weights_after_loading, INHERIT),
    SLOT(berth_quant_method, apply_experts, OPTIONAL),
    SLOT(berth_quant_method, apply_matrix, OPTIONAL),
};

static const berth_slot kv_cache_method_slots[] = {
    SLOT(berth_kv_cache_method, name, REQUIRED),
    SLOT(berth_kv_cache_method, create_weights, REQUIRED),
    SLOT(berth_kv_cache_method, process_weights_after_loading, INHERIT),
};

static const berth_slot model_slots[] = {
    SLOT(berth_model, architecture, REQUIRED),
    SLOT(berth_model, build, REQUIRED),
};

static const berth_slot attention_slots[] = {
    SLOT(berth_attention_backend, name, REQUIRED),
    SLOT(berth_attention_backend, impl, REQUIRED),
    SLOT(berth_attention_backend, validate, INHERIT),
    SLOT(berth_attention_backend, kv_cache_shape, INHERIT),
};

static const berth_slot op_library_slots[] = {
    SLOT(berth_op_library, id, REQUIRED),
    SLOT(berth_op_library, version, REQUIRED),
};

static const berth_slot pass_slots[] = {
    SLOT(berth_pass, name, REQUIRED),
    SLOT(berth_pass, revision, REQUIRED),
    SLOT(berth_pass, flag, INHERIT),
    SLOT(berth_pass, patterns, REQUIRED),
};

static const berth_slot pattern_slots[] = {
    SLOT(berth_pass_pattern, nodes, REQUIRED),
    SLOT(berth_pass_pattern, rewrite, REQUIRED),
};

// Elements of arrays: what cannot be read without them.
static const berth_slot argument_slots[] = {SLOT(berth_op_argument, name, REQUIRED)};
static const berth_slot attribute_slots[] = {SLOT(berth_op_attribute, name, REQUIRED)};
static const berth_slot value_slots[] = {SLOT(berth_attribute, kind, REQUIRED)};
static const berth_slot rule_slots[] = {SLOT(berth_weight_rule, from, REQUIRED)};

static const berth_slot pattern_node_slots[] = {SLOT(berth_pass_node, op, REQUIRED)};
static const berth_slot pattern_input_slots[] = {SLOT(berth_pass_input, name, REQUIRED)};

#define TABLE(type, list)                                                                          \
    { .name = #type, .size = sizeof(type), .slots = (list), .slot_count = BERTH_COUNT(list) }

const berth_table berth_tables[] = {
    [BERTH_TABLE_PLUGIN] = TABLE(berth_plugin, plugin_slots),
    [BERTH_TABLE_ENTRY_POINT] = TABLE(berth_entry_point, entry_point_slots),
    [BERTH_TABLE_PLATFORM] = TABLE(berth_platform, platform_slots),
    [BERTH_TABLE_CAPABILITIES] = {.name = "berth_capabilities", .size = sizeof(berth_capabilities)},
    [BERTH_TABLE_DEVICE] = TABLE(berth_device_api, device_slots),
    [BERTH_TABLE_WORKER] = TABLE(berth_worker_api, worker_slots),
    [BERTH_TABLE_OP] = TABLE(berth_op, op_slots),
    [BERTH_TABLE_ARGUMENT] = TABLE(berth_op_argument, argument_slots),
    [BERTH_TABLE_ATTRIBUTE] = TABLE(berth_op_attribute, attribute_slots),
    [BERTH_TABLE_VALUE] = TABLE(berth_attribute, value_slots),
    [BERTH_TABLE_IMPL] = TABLE(berth_op_impl, impl_slots),
    [BERTH_TABLE_LAYER] = TABLE(berth_layer, layer_slots),
    [BERTH_TABLE_QUANT] = TABLE(berth_quant_config, quant_slots),
    [BERTH_TABLE_QUANT_METHOD] = TABLE(berth_quant_method, quant_method_slots),
    [BERTH_TABLE_KV_CACHE_METHOD] = TABLE(berth_kv_cache_method, kv_cache_method_slots),
    [BERTH_TABLE_MODEL] = TABLE(berth_model, model_slots),
    [BERTH_TABLE_RULE] = TABLE(berth_weight_rule, rule_slots),
    [BERTH_TABLE_ATTENTION] = TABLE(berth_attention_backend, attention_slots),
    [BERTH_TABLE_OP_LIBRARY] = TABLE(berth_op_library, op_library_slots),
    [BERTH_TABLE_PASS] = TABLE(berth_pass, pass_slots),
    [BERTH_TABLE_PATTERN] = TABLE(berth_pass_pattern, pattern_slots),
    [BERTH_TABLE_PATTERN_NODE] = TABLE(berth_pass_node, pattern_node_slots),
    [BERTH_TABLE_PATTERN_INPUT] = TABLE(berth_pass_input, pattern_input_slots),
};
const size_t berth_table_count = BERTH_COUNT(berth_tables);
