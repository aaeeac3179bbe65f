// SPDX-License-Identifier: Apache-2.0
// Input: a name or an index. Output: an entry of a frozen table, NULL when there is none. No locks:
// nothing changes after the freeze.
#include "registry/registry_private.h"

static const void *find(const berth_registry *registry, berth_kind kind, const char *name) {
    if (!registry->is_frozen) {
        return NULL;
    }
    const uint32_t *index = berth_map_find(&registry->names[kind], berth_str_from(name));
    return index == NULL ? NULL : registry->additions.data[*index].entry;
}

static const void *at(const berth_registry *registry, berth_kind kind, size_t index) {
    const berth_listing *listing = &registry->listings[kind];
    return index < listing->count ? listing->items[index].entry : NULL;
}

const berth_host *berth_registry_host(const berth_registry *registry) {
    return &registry->host;
}

size_t berth_registry_op_count(const berth_registry *registry) {
    return registry->listings[BERTH_KIND_OP].count;
}

const berth_op_entry *berth_registry_op_at(const berth_registry *registry, size_t index) {
    return at(registry, BERTH_KIND_OP, index);
}

const berth_op_entry *berth_registry_find_op(const berth_registry *registry, const char *name) {
    return find(registry, BERTH_KIND_OP, name);
}

const berth_layer_entry *berth_registry_find_layer(const berth_registry *registry,
                                                   const char *name) {
    return find(registry, BERTH_KIND_LAYER, name);
}

const berth_model_entry *berth_registry_find_model(const berth_registry *registry,
                                                   const char *name) {
    return find(registry, BERTH_KIND_MODEL, name);
}

size_t berth_registry_model_count(const berth_registry *registry) {
    return registry->listings[BERTH_KIND_MODEL].count;
}

const berth_model_entry *berth_registry_model_at(const berth_registry *registry, size_t index) {
    return at(registry, BERTH_KIND_MODEL, index);
}

size_t berth_registry_quant_count(const berth_registry *registry) {
    return registry->listings[BERTH_KIND_QUANT].count;
}

const berth_quant_entry *berth_registry_quant_at(const berth_registry *registry, size_t index) {
    return at(registry, BERTH_KIND_QUANT, index);
}

size_t berth_registry_attention_count(const berth_registry *registry) {
    return registry->listings[BERTH_KIND_ATTENTION].count;
}

const berth_attention_entry *berth_registry_attention_at(const berth_registry *registry,
                                                         size_t index) {
    return at(registry, BERTH_KIND_ATTENTION, index);
}

size_t berth_registry_pass_count(const berth_registry *registry) {
    return registry->listings[BERTH_KIND_PASS].count;
}

const berth_pass_entry *berth_registry_pass_at(const berth_registry *registry, size_t index) {
    return at(registry, BERTH_KIND_PASS, index);
}

size_t berth_registry_platform_count(const berth_registry *registry) {
    return registry->platforms.count;
}

const berth_platform_entry *berth_registry_platform_at(const berth_registry *registry,
                                                       size_t index) {
    return index < registry->platforms.count ? registry->platforms.data[index] : NULL;
}

const berth_candidates *berth_registry_core(const berth_registry *registry) {
    return &registry->core;
}

uint64_t berth_registry_digest(const berth_registry *registry) {
    return registry->digest;
}
