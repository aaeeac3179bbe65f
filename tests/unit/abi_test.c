// SPDX-License-Identifier: Apache-2.0
// plugin-api: the binary layout of ABI 1.0, row by row, and its agreement with DLPack. A released
// plugin was compiled with these numbers: a row may be added when a member is appended, none may
// change.
#include <stddef.h>
#include <string.h>

#include <dlpack/dlpack.h>

#include <berth/plugin.h>

#include "base/array.h"
#include "support/test.h"

typedef struct layout {
    const char *name;
    size_t offset;
    size_t bytes;
    size_t frozen_offset;
    size_t frozen_bytes;
} layout;

#define STRUCT(type, frozen)                                                                       \
    { .name = #type, .bytes = sizeof(type), .frozen_bytes = (frozen) }
#define MEMBER(type, member, at, size)                                                             \
    {                                                                                              \
        .name = #type "." #member, .offset = offsetof(type, member),                               \
        .bytes = sizeof(((type *)0)->member), .frozen_offset = (at), .frozen_bytes = (size)        \
    }

// Sizes in bytes that the rows below cover, at least those of ABI 1.0: a struct may have grown
// since.
static const layout structs[] = {
    STRUCT(berth_tensor, 56),
    STRUCT(berth_dim, 32),
    STRUCT(berth_value_type, 272),
    STRUCT(berth_attribute, 72),
    STRUCT(berth_op_argument, 40),
    STRUCT(berth_op_attribute, 48),
    STRUCT(berth_op_site, 136),
    STRUCT(berth_op_result, 24),
    STRUCT(berth_op_args, 56),
    STRUCT(berth_op, 128),
    STRUCT(berth_device, 40),
    STRUCT(berth_op_impl, 136),
    STRUCT(berth_batch_view, 64),
    STRUCT(berth_batch, 72),
    STRUCT(berth_host, 176),
    STRUCT(berth_copy, 48),
    STRUCT(berth_device_info, 56),
    STRUCT(berth_device_api, 80),
    STRUCT(berth_capabilities, 56),
    STRUCT(berth_platform, 168),
    STRUCT(berth_model_info, 64),
    STRUCT(berth_kv_cache_spec, 72),
    STRUCT(berth_kv_cache_config, 24),
    STRUCT(berth_sampling, 136),
    STRUCT(berth_scheduler_output, 32),
    STRUCT(berth_model_output, 96),
    STRUCT(berth_lora_request, 24),
    STRUCT(berth_worker_api, 200),
    STRUCT(berth_worker, 48),
    STRUCT(berth_attention_query, 64),
    STRUCT(berth_attention_backend, 40),
    STRUCT(berth_call, 80),
    STRUCT(berth_shard, 32),
    STRUCT(berth_parameter, 80),
    STRUCT(berth_kv_cache, 48),
    STRUCT(berth_linear, 72),
    STRUCT(berth_model_description, 40),
    STRUCT(berth_builder, 152),
    STRUCT(berth_layer, 24),
    STRUCT(berth_weight_rule, 32),
    STRUCT(berth_model, 40),
    STRUCT(berth_quant_method, 32),
    STRUCT(berth_quant_config, 32),
    STRUCT(berth_registrar, 88),
    STRUCT(berth_pass_input, 32),
    STRUCT(berth_pass_node, 32),
    STRUCT(berth_pass_match, 64),
    STRUCT(berth_pass_pattern, 32),
    STRUCT(berth_pass, 56),
    STRUCT(berth_entry_point, 32),
    STRUCT(berth_plugin, 72),
};

// Offset and size in bytes of every member at ABI 1.0.
static const layout members[] = {
    MEMBER(berth_tensor, size, 0, 8),
    MEMBER(berth_tensor, data, 8, 8),
    MEMBER(berth_tensor, device_type, 16, 4),
    MEMBER(berth_tensor, device_id, 20, 4),
    MEMBER(berth_tensor, ndim, 24, 4),
    MEMBER(berth_tensor, dtype, 28, 4),
    MEMBER(berth_tensor, shape, 32, 8),
    MEMBER(berth_tensor, strides, 40, 8),
    MEMBER(berth_tensor, byte_offset, 48, 8),
    MEMBER(berth_dim, symbol, 0, 8),
    MEMBER(berth_dim, a, 8, 8),
    MEMBER(berth_dim, b, 16, 8),
    MEMBER(berth_dim, c, 24, 8),
    MEMBER(berth_value_type, size, 0, 8),
    MEMBER(berth_value_type, dtype, 8, 4),
    MEMBER(berth_value_type, ndim, 12, 4),
    MEMBER(berth_value_type, dims, 16, 256),
    MEMBER(berth_attribute, size, 0, 8),
    MEMBER(berth_attribute, name, 8, 8),
    MEMBER(berth_attribute, kind, 16, 8),
    MEMBER(berth_attribute, i64, 24, 8),
    MEMBER(berth_attribute, f64, 32, 8),
    MEMBER(berth_attribute, str, 40, 8),
    MEMBER(berth_attribute, i64s, 48, 8),
    MEMBER(berth_attribute, f64s, 56, 8),
    MEMBER(berth_attribute, count, 64, 8),
    MEMBER(berth_op_argument, size, 0, 8),
    MEMBER(berth_op_argument, name, 8, 8),
    MEMBER(berth_op_argument, flags, 16, 8),
    MEMBER(berth_op_argument, layout, 24, 8),
    MEMBER(berth_op_argument, since, 32, 8),
    MEMBER(berth_op_attribute, size, 0, 8),
    MEMBER(berth_op_attribute, name, 8, 8),
    MEMBER(berth_op_attribute, kind, 16, 8),
    MEMBER(berth_op_attribute, is_required, 24, 8),
    MEMBER(berth_op_attribute, default_value, 32, 8),
    MEMBER(berth_op_attribute, since, 40, 8),
    MEMBER(berth_op_site, size, 0, 8),
    MEMBER(berth_op_site, host, 8, 8),
    MEMBER(berth_op_site, op, 16, 8),
    MEMBER(berth_op_site, layer, 24, 8),
    MEMBER(berth_op_site, attributes, 32, 8),
    MEMBER(berth_op_site, attribute_count, 40, 8),
    MEMBER(berth_op_site, inputs, 48, 8),
    MEMBER(berth_op_site, input_count, 56, 8),
    MEMBER(berth_op_site, outputs, 64, 8),
    MEMBER(berth_op_site, output_count, 72, 8),
    MEMBER(berth_op_site, parameter_mask, 80, 8),
    MEMBER(berth_op_site, max_tokens, 88, 8),
    MEMBER(berth_op_site, max_sequences, 96, 8),
    MEMBER(berth_op_site, cache_group, 104, 8),
    MEMBER(berth_op_site, block_size, 112, 8),
    MEMBER(berth_op_site, states, 120, 8),
    MEMBER(berth_op_site, state_count, 128, 8),
    MEMBER(berth_op_result, size, 0, 8),
    MEMBER(berth_op_result, count, 8, 8),
    MEMBER(berth_op_result, types, 16, 8),
    MEMBER(berth_op_args, size, 0, 8),
    MEMBER(berth_op_args, inputs, 8, 8),
    MEMBER(berth_op_args, outputs, 16, 8),
    MEMBER(berth_op_args, states, 24, 8),
    MEMBER(berth_op_args, workspace, 32, 8),
    MEMBER(berth_op_args, stream, 40, 8),
    MEMBER(berth_op_args, batch, 48, 8),
    MEMBER(berth_op, size, 0, 8),
    MEMBER(berth_op, name, 8, 8),
    MEMBER(berth_op, class_name, 16, 8),
    MEMBER(berth_op, revision, 24, 8),
    MEMBER(berth_op, inputs, 32, 8),
    MEMBER(berth_op, input_count, 40, 8),
    MEMBER(berth_op, states, 48, 8),
    MEMBER(berth_op, state_count, 56, 8),
    MEMBER(berth_op, attributes, 64, 8),
    MEMBER(berth_op, attribute_count, 72, 8),
    MEMBER(berth_op, infer, 80, 8),
    MEMBER(berth_op, reference, 88, 8),
    MEMBER(berth_op, reference_workspace, 96, 8),
    MEMBER(berth_op, has_decomposition, 104, 8),
    MEMBER(berth_op, compatible_revision, 112, 8),
    MEMBER(berth_op, is_rowwise, 120, 8),
    MEMBER(berth_device, size, 0, 8),
    MEMBER(berth_device, platform, 8, 8),
    MEMBER(berth_device, device_type, 16, 8),
    MEMBER(berth_device, index, 24, 8),
    MEMBER(berth_device, self, 32, 8),
    MEMBER(berth_op_impl, size, 0, 8),
    MEMBER(berth_op_impl, op, 8, 8),
    MEMBER(berth_op_impl, name, 16, 8),
    MEMBER(berth_op_impl, dispatch_key, 24, 8),
    MEMBER(berth_op_impl, revision, 32, 8),
    MEMBER(berth_op_impl, priority, 40, 8),
    MEMBER(berth_op_impl, flags, 48, 8),
    MEMBER(berth_op_impl, device_types, 56, 8),
    MEMBER(berth_op_impl, device_type_count, 64, 8),
    MEMBER(berth_op_impl, supports, 72, 8),
    MEMBER(berth_op_impl, create, 80, 8),
    MEMBER(berth_op_impl, workspace, 88, 8),
    MEMBER(berth_op_impl, forward, 96, 8),
    MEMBER(berth_op_impl, destroy, 104, 8),
    MEMBER(berth_op_impl, packed_bytes, 112, 8),
    MEMBER(berth_op_impl, pack, 120, 8),
    MEMBER(berth_op_impl, pack_rows, 128, 8),
    MEMBER(berth_batch_view, size, 0, 8),
    MEMBER(berth_batch_view, token_ids, 8, 8),
    MEMBER(berth_batch_view, positions, 16, 8),
    MEMBER(berth_batch_view, query_start_loc, 24, 8),
    MEMBER(berth_batch_view, seq_lens, 32, 8),
    MEMBER(berth_batch_view, logits_rows, 40, 8),
    MEMBER(berth_batch_view, block_tables, 48, 8),
    MEMBER(berth_batch_view, slot_mappings, 56, 8),
    MEMBER(berth_batch, size, 0, 8),
    MEMBER(berth_batch, host, 8, 8),
    MEMBER(berth_batch, device, 16, 8),
    MEMBER(berth_batch, token_count, 24, 8),
    MEMBER(berth_batch, sequence_count, 32, 8),
    MEMBER(berth_batch, logits_row_count, 40, 8),
    MEMBER(berth_batch, group_count, 48, 8),
    MEMBER(berth_batch, max_query_len, 56, 8),
    MEMBER(berth_batch, max_seq_len, 64, 8),
    MEMBER(berth_host, size, 0, 8),
    MEMBER(berth_host, abi_min, 8, 8),
    MEMBER(berth_host, abi_max, 16, 8),
    MEMBER(berth_host, version, 24, 8),
    MEMBER(berth_host, context, 32, 8),
    MEMBER(berth_host, log, 40, 8),
    MEMBER(berth_host, log_enabled, 48, 8),
    MEMBER(berth_host, fail, 56, 8),
    MEMBER(berth_host, alloc, 64, 8),
    MEMBER(berth_host, free, 72, 8),
    MEMBER(berth_host, config_get_i64, 80, 8),
    MEMBER(berth_host, config_get_f64, 88, 8),
    MEMBER(berth_host, config_get_str, 96, 8),
    MEMBER(berth_host, config_set_i64, 104, 8),
    MEMBER(berth_host, config_set_f64, 112, 8),
    MEMBER(berth_host, config_set_str, 120, 8),
    MEMBER(berth_host, json_get_i64, 128, 8),
    MEMBER(berth_host, json_get_f64, 136, 8),
    MEMBER(berth_host, json_get_bool, 144, 8),
    MEMBER(berth_host, json_get_str, 152, 8),
    MEMBER(berth_host, json_get_count, 160, 8),
    MEMBER(berth_host, worker_base, 168, 8),
    MEMBER(berth_copy, size, 0, 8),
    MEMBER(berth_copy, destination, 8, 8),
    MEMBER(berth_copy, destination_offset, 16, 8),
    MEMBER(berth_copy, source, 24, 8),
    MEMBER(berth_copy, source_offset, 32, 8),
    MEMBER(berth_copy, bytes, 40, 8),
    MEMBER(berth_device_info, size, 0, 8),
    MEMBER(berth_device_info, name, 8, 8),
    MEMBER(berth_device_info, uuid, 16, 8),
    MEMBER(berth_device_info, memory_bytes, 24, 8),
    MEMBER(berth_device_info, capability_major, 32, 8),
    MEMBER(berth_device_info, capability_minor, 40, 8),
    MEMBER(berth_device_info, compute_units, 48, 8),
    MEMBER(berth_device_api, size, 0, 8),
    MEMBER(berth_device_api, allocate, 8, 8),
    MEMBER(berth_device_api, release, 16, 8),
    MEMBER(berth_device_api, copy_to_device, 24, 8),
    MEMBER(berth_device_api, copy_to_host, 32, 8),
    MEMBER(berth_device_api, synchronize, 40, 8),
    MEMBER(berth_device_api, open, 48, 8),
    MEMBER(berth_device_api, close, 56, 8),
    MEMBER(berth_device_api, copy_on_device, 64, 8),
    MEMBER(berth_device_api, memory_info, 72, 8),
    MEMBER(berth_capabilities, size, 0, 8),
    MEMBER(berth_capabilities, flags, 8, 8),
    MEMBER(berth_capabilities, dtypes, 16, 8),
    MEMBER(berth_capabilities, dtype_count, 24, 8),
    MEMBER(berth_capabilities, fp8_dtype, 32, 4),
    MEMBER(berth_capabilities, memory_type, 36, 4),
    MEMBER(berth_capabilities, max_head_size, 40, 8),
    MEMBER(berth_capabilities, alignment_bytes, 48, 8),
    MEMBER(berth_platform, size, 0, 8),
    MEMBER(berth_platform, name, 8, 8),
    MEMBER(berth_platform, vendor, 16, 8),
    MEMBER(berth_platform, kind, 24, 8),
    MEMBER(berth_platform, device_type, 32, 8),
    MEMBER(berth_platform, device_name, 40, 8),
    MEMBER(berth_platform, dispatch_key, 48, 8),
    MEMBER(berth_platform, capabilities, 56, 8),
    MEMBER(berth_platform, device, 64, 8),
    MEMBER(berth_platform, worker, 72, 8),
    MEMBER(berth_platform, default_custom_ops, 80, 8),
    MEMBER(berth_platform, device_count, 88, 8),
    MEMBER(berth_platform, device_info, 96, 8),
    MEMBER(berth_platform, apply_config_defaults, 104, 8),
    MEMBER(berth_platform, check_and_update_config, 112, 8),
    MEMBER(berth_platform, verify_model_arch, 120, 8),
    MEMBER(berth_platform, verify_quantization, 128, 8),
    MEMBER(berth_platform, validate_request, 136, 8),
    MEMBER(berth_platform, get_attn_backend, 144, 8),
    MEMBER(berth_platform, register_ops, 152, 8),
    MEMBER(berth_platform, destroy, 160, 8),
    MEMBER(berth_model_info, size, 0, 8),
    MEMBER(berth_model_info, architecture, 8, 8),
    MEMBER(berth_model_info, vocab_size, 16, 8),
    MEMBER(berth_model_info, max_model_len, 24, 8),
    MEMBER(berth_model_info, layer_count, 32, 8),
    MEMBER(berth_model_info, parameter_count, 40, 8),
    MEMBER(berth_model_info, parameter_bytes, 48, 8),
    MEMBER(berth_model_info, activation_dtype, 56, 8),
    MEMBER(berth_kv_cache_spec, size, 0, 8),
    MEMBER(berth_kv_cache_spec, layer, 8, 8),
    MEMBER(berth_kv_cache_spec, num_heads, 16, 8),
    MEMBER(berth_kv_cache_spec, num_kv_heads, 24, 8),
    MEMBER(berth_kv_cache_spec, head_size, 32, 8),
    MEMBER(berth_kv_cache_spec, block_size, 40, 8),
    MEMBER(berth_kv_cache_spec, sliding_window, 48, 8),
    MEMBER(berth_kv_cache_spec, dtype, 56, 4),
    MEMBER(berth_kv_cache_spec, group, 60, 4),
    MEMBER(berth_kv_cache_spec, page_bytes, 64, 8),
    MEMBER(berth_kv_cache_config, size, 0, 8),
    MEMBER(berth_kv_cache_config, num_blocks, 8, 8),
    MEMBER(berth_kv_cache_config, group_count, 16, 8),
    MEMBER(berth_sampling, size, 0, 8),
    MEMBER(berth_sampling, temperature, 8, 8),
    MEMBER(berth_sampling, seed, 16, 8),
    MEMBER(berth_sampling, index, 24, 8),
    MEMBER(berth_sampling, top_k, 32, 8),
    MEMBER(berth_sampling, top_p, 40, 8),
    MEMBER(berth_sampling, min_p, 48, 8),
    MEMBER(berth_sampling, presence_penalty, 56, 8),
    MEMBER(berth_sampling, frequency_penalty, 64, 8),
    MEMBER(berth_sampling, repetition_penalty, 72, 8),
    MEMBER(berth_sampling, logprobs, 80, 8),
    MEMBER(berth_sampling, prompt_ids, 88, 8),
    MEMBER(berth_sampling, prompt_count, 96, 8),
    MEMBER(berth_sampling, output_ids, 104, 8),
    MEMBER(berth_sampling, output_count, 112, 8),
    MEMBER(berth_sampling, banned_ids, 120, 8),
    MEMBER(berth_sampling, banned_count, 128, 8),
    MEMBER(berth_scheduler_output, size, 0, 8),
    MEMBER(berth_scheduler_output, batch, 8, 8),
    MEMBER(berth_scheduler_output, sampling, 16, 8),
    MEMBER(berth_scheduler_output, want_logits, 24, 8),
    MEMBER(berth_model_output, size, 0, 8),
    MEMBER(berth_model_output, state, 8, 8),
    MEMBER(berth_model_output, row_count, 16, 8),
    MEMBER(berth_model_output, vocab_size, 24, 8),
    MEMBER(berth_model_output, token_ids, 32, 8),
    MEMBER(berth_model_output, logits, 40, 8),
    MEMBER(berth_model_output, wait, 48, 8),
    MEMBER(berth_model_output, completion, 56, 8),
    MEMBER(berth_model_output, logprobs, 64, 8),
    MEMBER(berth_model_output, logprob_ids, 72, 8),
    MEMBER(berth_model_output, chosen_ranks, 80, 8),
    MEMBER(berth_model_output, logprob_stride, 88, 8),
    MEMBER(berth_lora_request, size, 0, 8),
    MEMBER(berth_lora_request, id, 8, 8),
    MEMBER(berth_lora_request, path, 16, 8),
    MEMBER(berth_worker_api, size, 0, 8),
    MEMBER(berth_worker_api, features, 8, 8),
    MEMBER(berth_worker_api, init_device, 16, 8),
    MEMBER(berth_worker_api, load_model, 24, 8),
    MEMBER(berth_worker_api, get_model, 32, 8),
    MEMBER(berth_worker_api, get_kv_cache_spec, 40, 8),
    MEMBER(berth_worker_api, determine_available_memory, 48, 8),
    MEMBER(berth_worker_api, initialize_from_config, 56, 8),
    MEMBER(berth_worker_api, initialize_cache, 64, 8),
    MEMBER(berth_worker_api, compile_or_warm_up_model, 72, 8),
    MEMBER(berth_worker_api, execute_model, 80, 8),
    MEMBER(berth_worker_api, sample_tokens, 88, 8),
    MEMBER(berth_worker_api, take_draft_token_ids, 96, 8),
    MEMBER(berth_worker_api, execute_dummy_batch, 104, 8),
    MEMBER(berth_worker_api, sleep, 112, 8),
    MEMBER(berth_worker_api, wake_up, 120, 8),
    MEMBER(berth_worker_api, add_lora, 128, 8),
    MEMBER(berth_worker_api, remove_lora, 136, 8),
    MEMBER(berth_worker_api, list_loras, 144, 8),
    MEMBER(berth_worker_api, pin_lora, 152, 8),
    MEMBER(berth_worker_api, update_max_model_len, 160, 8),
    MEMBER(berth_worker_api, profile, 168, 8),
    MEMBER(berth_worker_api, check_health, 176, 8),
    MEMBER(berth_worker_api, reset_caches, 184, 8),
    MEMBER(berth_worker_api, shutdown, 192, 8),
    MEMBER(berth_worker, size, 0, 8),
    MEMBER(berth_worker, api, 8, 8),
    MEMBER(berth_worker, host, 16, 8),
    MEMBER(berth_worker, platform, 24, 8),
    MEMBER(berth_worker, plugin, 32, 8),
    MEMBER(berth_worker, base, 40, 8),
    MEMBER(berth_attention_query, size, 0, 8),
    MEMBER(berth_attention_query, layer, 8, 8),
    MEMBER(berth_attention_query, num_heads, 16, 8),
    MEMBER(berth_attention_query, num_kv_heads, 24, 8),
    MEMBER(berth_attention_query, head_size, 32, 8),
    MEMBER(berth_attention_query, block_size, 40, 8),
    MEMBER(berth_attention_query, sliding_window, 48, 8),
    MEMBER(berth_attention_query, dtype, 56, 4),
    MEMBER(berth_attention_query, kv_dtype, 60, 4),
    MEMBER(berth_attention_backend, size, 0, 8),
    MEMBER(berth_attention_backend, name, 8, 8),
    MEMBER(berth_attention_backend, impl, 16, 8),
    MEMBER(berth_attention_backend, validate, 24, 8),
    MEMBER(berth_attention_backend, kv_cache_shape, 32, 8),
    MEMBER(berth_call, size, 0, 8),
    MEMBER(berth_call, name, 8, 8),
    MEMBER(berth_call, prefix, 16, 8),
    MEMBER(berth_call, inputs, 24, 8),
    MEMBER(berth_call, input_count, 32, 8),
    MEMBER(berth_call, attributes, 40, 8),
    MEMBER(berth_call, attribute_count, 48, 8),
    MEMBER(berth_call, outputs, 56, 8),
    MEMBER(berth_call, output_count, 64, 8),
    MEMBER(berth_call, enforce_enable, 72, 8),
    MEMBER(berth_shard, size, 0, 8),
    MEMBER(berth_shard, id, 8, 8),
    MEMBER(berth_shard, offset, 16, 8),
    MEMBER(berth_shard, extent, 24, 8),
    MEMBER(berth_parameter, size, 0, 8),
    MEMBER(berth_parameter, name, 8, 8),
    MEMBER(berth_parameter, alias, 16, 8),
    MEMBER(berth_parameter, shape, 24, 8),
    MEMBER(berth_parameter, ndim, 32, 8),
    MEMBER(berth_parameter, is_vector, 40, 8),
    MEMBER(berth_parameter, output_dim, 48, 8),
    MEMBER(berth_parameter, input_dim, 56, 8),
    MEMBER(berth_parameter, shards, 64, 8),
    MEMBER(berth_parameter, shard_count, 72, 8),
    MEMBER(berth_kv_cache, size, 0, 8),
    MEMBER(berth_kv_cache, layer, 8, 8),
    MEMBER(berth_kv_cache, num_heads, 16, 8),
    MEMBER(berth_kv_cache, num_kv_heads, 24, 8),
    MEMBER(berth_kv_cache, head_size, 32, 8),
    MEMBER(berth_kv_cache, sliding_window, 40, 8),
    MEMBER(berth_linear, size, 0, 8),
    MEMBER(berth_linear, prefix, 8, 8),
    MEMBER(berth_linear, alias, 16, 8),
    MEMBER(berth_linear, input_size, 24, 8),
    MEMBER(berth_linear, output_size, 32, 8),
    MEMBER(berth_linear, shards, 40, 8),
    MEMBER(berth_linear, shard_count, 48, 8),
    MEMBER(berth_linear, has_bias, 56, 8),
    MEMBER(berth_linear, layer_class, 64, 8),
    MEMBER(berth_model_description, size, 0, 8),
    MEMBER(berth_model_description, vocab_size, 8, 8),
    MEMBER(berth_model_description, hidden_size, 16, 8),
    MEMBER(berth_model_description, max_model_len, 24, 8),
    MEMBER(berth_model_description, layer_count, 32, 8),
    MEMBER(berth_builder, size, 0, 8),
    MEMBER(berth_builder, host, 8, 8),
    MEMBER(berth_builder, config, 16, 8),
    MEMBER(berth_builder, activation_dtype, 24, 8),
    MEMBER(berth_builder, context, 32, 8),
    MEMBER(berth_builder, describe, 40, 8),
    MEMBER(berth_builder, input, 48, 8),
    MEMBER(berth_builder, parameter, 56, 8),
    MEMBER(berth_builder, kv_cache, 64, 8),
    MEMBER(berth_builder, op, 72, 8),
    MEMBER(berth_builder, layer, 80, 8),
    MEMBER(berth_builder, linear, 88, 8),
    MEMBER(berth_builder, slice, 96, 8),
    MEMBER(berth_builder, reshape, 104, 8),
    MEMBER(berth_builder, output, 112, 8),
    MEMBER(berth_builder, type, 120, 8),
    MEMBER(berth_builder, intern, 128, 8),
    MEMBER(berth_builder, fail, 136, 8),
    MEMBER(berth_builder, has_failed, 144, 8),
    MEMBER(berth_layer, size, 0, 8),
    MEMBER(berth_layer, name, 8, 8),
    MEMBER(berth_layer, build, 16, 8),
    MEMBER(berth_weight_rule, size, 0, 8),
    MEMBER(berth_weight_rule, from, 8, 8),
    MEMBER(berth_weight_rule, to, 16, 8),
    MEMBER(berth_weight_rule, shard, 24, 8),
    MEMBER(berth_model, size, 0, 8),
    MEMBER(berth_model, architecture, 8, 8),
    MEMBER(berth_model, build, 16, 8),
    MEMBER(berth_model, weight_rules, 24, 8),
    MEMBER(berth_model, weight_rule_count, 32, 8),
    MEMBER(berth_quant_method, size, 0, 8),
    MEMBER(berth_quant_method, name, 8, 8),
    MEMBER(berth_quant_method, create_weights, 16, 8),
    MEMBER(berth_quant_method, apply, 24, 8),
    MEMBER(berth_quant_config, size, 0, 8),
    MEMBER(berth_quant_config, name, 8, 8),
    MEMBER(berth_quant_config, matches, 16, 8),
    MEMBER(berth_quant_config, get_quant_method, 24, 8),
    MEMBER(berth_registrar, size, 0, 8),
    MEMBER(berth_registrar, context, 8, 8),
    MEMBER(berth_registrar, add_platform, 16, 8),
    MEMBER(berth_registrar, add_op, 24, 8),
    MEMBER(berth_registrar, add_op_impl, 32, 8),
    MEMBER(berth_registrar, add_op_override, 40, 8),
    MEMBER(berth_registrar, add_layer, 48, 8),
    MEMBER(berth_registrar, add_quant_config, 56, 8),
    MEMBER(berth_registrar, add_model, 64, 8),
    MEMBER(berth_registrar, add_attention_backend, 72, 8),
    MEMBER(berth_registrar, add_pass, 80, 8),
    MEMBER(berth_pass_input, size, 0, 8),
    MEMBER(berth_pass_input, name, 8, 8),
    MEMBER(berth_pass_input, node, 16, 8),
    MEMBER(berth_pass_input, output, 24, 8),
    MEMBER(berth_pass_node, size, 0, 8),
    MEMBER(berth_pass_node, op, 8, 8),
    MEMBER(berth_pass_node, inputs, 16, 8),
    MEMBER(berth_pass_node, input_count, 24, 8),
    MEMBER(berth_pass_match, size, 0, 8),
    MEMBER(berth_pass_match, host, 8, 8),
    MEMBER(berth_pass_match, sites, 16, 8),
    MEMBER(berth_pass_match, inputs, 24, 8),
    MEMBER(berth_pass_match, outputs, 32, 8),
    MEMBER(berth_pass_match, node_count, 40, 8),
    MEMBER(berth_pass_match, context, 48, 8),
    MEMBER(berth_pass_match, replace, 56, 8),
    MEMBER(berth_pass_pattern, size, 0, 8),
    MEMBER(berth_pass_pattern, nodes, 8, 8),
    MEMBER(berth_pass_pattern, node_count, 16, 8),
    MEMBER(berth_pass_pattern, rewrite, 24, 8),
    MEMBER(berth_pass, size, 0, 8),
    MEMBER(berth_pass, name, 8, 8),
    MEMBER(berth_pass, revision, 16, 8),
    MEMBER(berth_pass, flag, 24, 8),
    MEMBER(berth_pass, priority, 32, 8),
    MEMBER(berth_pass, patterns, 40, 8),
    MEMBER(berth_pass, pattern_count, 48, 8),
    MEMBER(berth_entry_point, size, 0, 8),
    MEMBER(berth_entry_point, group, 8, 8),
    MEMBER(berth_entry_point, name, 16, 8),
    MEMBER(berth_entry_point, register_plugin, 24, 8),
    MEMBER(berth_plugin, size, 0, 8),
    MEMBER(berth_plugin, abi_min, 8, 8),
    MEMBER(berth_plugin, abi_max, 16, 8),
    MEMBER(berth_plugin, id, 24, 8),
    MEMBER(berth_plugin, version, 32, 8),
    MEMBER(berth_plugin, vendor, 40, 8),
    MEMBER(berth_plugin, entry_points, 48, 8),
    MEMBER(berth_plugin, entry_point_count, 56, 8),
    MEMBER(berth_plugin, shutdown, 64, 8),
};

TEST(abi_structs_only_grow) {
    for (size_t i = 0; i < BERTH_COUNT(structs); ++i) {
        const layout *row = &structs[i];
        check_true(row->bytes >= row->frozen_bytes && row->bytes % 8 == 0, row->name, __FILE__,
                   __LINE__);
    }
}

TEST(abi_members_stay_where_they_were) {
    for (size_t i = 0; i < BERTH_COUNT(members); ++i) {
        const layout *row = &members[i];
        check_uint(row->offset, row->frozen_offset, row->name, __FILE__, __LINE__);
        check_uint(row->bytes, row->frozen_bytes, row->name, __FILE__, __LINE__);
    }
}

// Rows and structs cover each other: the members of a struct fill its ABI 1.0 size without a gap.
TEST(abi_rows_leave_no_byte_out) {
    size_t row = 0;
    for (size_t i = 0; i < BERTH_COUNT(structs); ++i) {
        const size_t length = strlen(structs[i].name);
        size_t end = 0;
        while (row < BERTH_COUNT(members) &&
               strncmp(members[row].name, structs[i].name, length) == 0 &&
               members[row].name[length] == '.') {
            CHECK_UINT(members[row].frozen_offset, end);
            end += members[row++].frozen_bytes;
        }
        CHECK_UINT(end, structs[i].frozen_bytes);
    }
    CHECK_UINT(row, BERTH_COUNT(members));
}

TEST(abi_numbers_are_for_ever) {
    static const berth_status statuses[] = {
        BERTH_OK,          BERTH_INVALID_ARGUMENT, BERTH_NOT_FOUND,   BERTH_ALREADY_EXISTS,
        BERTH_UNSUPPORTED, BERTH_DECLINED,         BERTH_WRONG_STATE, BERTH_OUT_OF_MEMORY,
        BERTH_UNAVAILABLE, BERTH_CORRUPT,          BERTH_IO,          BERTH_INCOMPATIBLE,
        BERTH_SEALED,      BERTH_INTERNAL,
    };
    for (size_t i = 0; i < BERTH_COUNT(statuses); ++i) {
        CHECK_INT(statuses[i], (int64_t)i);
    }
    CHECK_UINT(BERTH_ABI(1, 2), UINT64_C(0x100000002));
    CHECK_UINT(BERTH_ABI_MAJOR(BERTH_ABI(3, 7)), 3);
    CHECK_UINT(BERTH_ABI_MINOR(BERTH_ABI(3, 7)), 7);
    CHECK_UINT(BERTH_ABI_MAJOR(BERTH_ABI_CURRENT), 1);
    CHECK_UINT(BERTH_MAX_DIMS, 8);
    CHECK_UINT(BERTH_MAX_INPUTS, 16);
    CHECK_UINT(BERTH_MAX_OUTPUTS, 8);
    CHECK_UINT(BERTH_MAX_WEIGHTS, 16);
}

// ---- DLPack -------------------------------------------------------------------------------------

TEST(abi_tensor_is_a_dlpack_tensor_behind_its_size) {
    CHECK_UINT(sizeof(DLTensor), 48);
    CHECK_UINT(offsetof(berth_tensor, data), 8 + offsetof(DLTensor, data));
    CHECK_UINT(offsetof(berth_tensor, device_type),
               8 + offsetof(DLTensor, device) + offsetof(DLDevice, device_type));
    CHECK_UINT(offsetof(berth_tensor, device_id),
               8 + offsetof(DLTensor, device) + offsetof(DLDevice, device_id));
    CHECK_UINT(offsetof(berth_tensor, ndim), 8 + offsetof(DLTensor, ndim));
    CHECK_UINT(offsetof(berth_tensor, dtype), 8 + offsetof(DLTensor, dtype));
    CHECK_UINT(offsetof(berth_tensor, shape), 8 + offsetof(DLTensor, shape));
    CHECK_UINT(offsetof(berth_tensor, strides), 8 + offsetof(DLTensor, strides));
    CHECK_UINT(offsetof(berth_tensor, byte_offset), 8 + offsetof(DLTensor, byte_offset));
    CHECK_UINT(sizeof(((DLTensor *)0)->ndim), sizeof(int32_t));
    CHECK_UINT(sizeof(((DLTensor *)0)->byte_offset), sizeof(uint64_t));
}

TEST(abi_tensor_is_read_as_dlpack) {
    static const int64_t shape[] = {2, 3};
    static const int64_t strides[] = {3, 1};
    float data[6] = {0};
    const berth_tensor tensor = {
        .size = sizeof(berth_tensor),
        .data = data,
        .device_type = BERTH_MEMORY_HOST,
        .device_id = 7,
        .ndim = 2,
        .dtype = BERTH_DTYPE_BF16,
        .shape = shape,
        .strides = strides,
        .byte_offset = 4,
    };
    DLTensor read;
    memcpy(&read, (const char *)&tensor + 8, sizeof(read));
    CHECK_PTR(read.data, data);
    CHECK_INT(read.device.device_type, kDLCPU);
    CHECK_INT(read.device.device_id, 7);
    CHECK_INT(read.ndim, 2);
    CHECK_UINT(read.dtype.code, kDLBfloat);
    CHECK_UINT(read.dtype.bits, 16);
    CHECK_UINT(read.dtype.lanes, 1);
    CHECK_PTR(read.shape, shape);
    CHECK_PTR(read.strides, strides);
    CHECK_UINT(read.byte_offset, 4);
}

typedef struct dtype_case {
    berth_dtype dtype;
    uint8_t code;
    uint8_t bits;
} dtype_case;

TEST(abi_dtypes_have_the_codes_of_dlpack) {
    // DLPack 0.6 ends at complex; the codes above are those of later releases, written out.
    static const dtype_case rows[] = {
        {BERTH_DTYPE_I8,          kDLInt,    8 },
        {BERTH_DTYPE_I16,         kDLInt,    16},
        {BERTH_DTYPE_I32,         kDLInt,    32},
        {BERTH_DTYPE_I64,         kDLInt,    64},
        {BERTH_DTYPE_U8,          kDLUInt,   8 },
        {BERTH_DTYPE_U16,         kDLUInt,   16},
        {BERTH_DTYPE_U32,         kDLUInt,   32},
        {BERTH_DTYPE_U64,         kDLUInt,   64},
        {BERTH_DTYPE_F16,         kDLFloat,  16},
        {BERTH_DTYPE_F32,         kDLFloat,  32},
        {BERTH_DTYPE_F64,         kDLFloat,  64},
        {BERTH_DTYPE_BF16,        kDLBfloat, 16},
        {BERTH_DTYPE_BOOL,        6,         8 },
        {BERTH_DTYPE_F8_E4M3FN,   10,        8 },
        {BERTH_DTYPE_F8_E4M3FNUZ, 11,        8 },
        {BERTH_DTYPE_F8_E5M2,     12,        8 },
        {BERTH_DTYPE_F8_E8M0,     14,        8 },
        {BERTH_DTYPE_F4_E2M1,     17,        4 },
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        DLDataType read;
        CHECK_UINT(sizeof(read), sizeof(rows[i].dtype));
        memcpy(&read, &rows[i].dtype, sizeof(read));
        CHECK_UINT(read.code, rows[i].code);
        CHECK_UINT(read.bits, rows[i].bits);
        CHECK_UINT(read.lanes, 1);
        CHECK_UINT(BERTH_DTYPE_BITS(rows[i].dtype), rows[i].bits);
    }
    CHECK_UINT(BERTH_DTYPE_NONE, 0);
}

TEST(abi_memory_types_are_those_of_dlpack) {
    CHECK_INT(BERTH_MEMORY_HOST, kDLCPU);
    CHECK_INT(BERTH_MEMORY_CUDA, kDLCUDA);
    CHECK_INT(BERTH_MEMORY_OPENCL, kDLOpenCL);
    CHECK_INT(BERTH_MEMORY_ROCM, kDLROCM);
    CHECK_INT(BERTH_MEMORY_EXTENSION, kDLExtDev);
}
