// SPDX-License-Identifier: Apache-2.0
// Input: what stands in the frozen tables. Output: one number, equal in every process that saw the
// same plugins. Entries are hashed one by one and added up, so that the order in which they came
// does not matter; addresses and paths do not enter.
#include <string.h>

#include "base/hash.h"
#include "registry/registry_private.h"

// One multiplication a word: a thousand entries must cost microseconds.
static uint64_t mix(uint64_t hash, uint64_t value) {
    const uint64_t mixed = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 32;
}

static uint64_t hash_name(const char *name) {
    return berth_hash_bytes(BERTH_HASH_START, name, strlen(name));
}

uint64_t berth_owner_hash(const berth_owner *owner) {
    uint64_t hash = berth_hash_str(BERTH_HASH_START, berth_str_from(owner->id));
    hash = berth_hash_str(hash, berth_str_from(owner->version));
    hash = berth_hash_str(hash, berth_str_from(owner->group));
    return berth_hash_str(hash, berth_str_from(owner->entry));
}

static uint64_t hash_op(uint64_t hash, const berth_op *op) {
    const uint64_t counts = op->input_count << 32 | op->state_count << 16 | op->attribute_count;
    const uint64_t with_class = mix(mix(hash, hash_name(op->class_name)), op->revision);
    return mix(mix(with_class, counts), op->has_decomposition);
}

static uint64_t hash_impl(uint64_t hash, const berth_impl_entry *entry, uint64_t op_hash) {
    const berth_op_impl *impl = &entry->impl;
    uint64_t result = mix(mix(hash, op_hash), (uint64_t)impl->priority);
    result = mix(mix(result, impl->revision), impl->flags);
    result = impl->library == NULL ? result : mix(result, hash_name(impl->library));
    if (!entry->is_override) {
        return mix(result, hash_name(impl->dispatch_key));
    }
    for (uint64_t i = 0; i < impl->device_type_count; ++i) {
        result = mix(result, hash_name(impl->device_types[i]));
    }
    return result;
}

static uint64_t hash_addition(const berth_registry *registry, const berth_addition *added) {
    uint64_t hash = mix(added->transaction->owner_hash, added->kind);
    hash = mix(hash, added->name_hash);
    if (added->kind == BERTH_KIND_OP) {
        return hash_op(hash, &((const berth_op_entry *)added->entry)->op);
    }
    if (added->kind == BERTH_KIND_PASS) {
        const berth_pass *pass = &((const berth_pass_entry *)added->entry)->pass;
        return mix(mix(hash, pass->revision), (uint64_t)pass->priority);
    }
    if (added->kind == BERTH_KIND_IMPL || added->kind == BERTH_KIND_OVERRIDE) {
        return hash_impl(hash, added->entry, registry->additions.data[added->op].name_hash);
    }
    return hash;
}

uint64_t berth_digest_additions(const berth_registry *registry) {
    uint64_t sum = 0;
    uint64_t count = 0;
    for (size_t i = 0; i < registry->additions.count; ++i) {
        const berth_addition *added = &registry->additions.data[i];
        if (added->is_live) {
            sum += mix(hash_addition(registry, added), 1);
            ++count;
        }
    }
    return mix(sum, count);
}
