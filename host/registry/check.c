// SPDX-License-Identifier: Apache-2.0
// Input: a table as a plugin gave it. Output: the failure that names table and slot, or a copy that
// the host may read in full. Which slots a table has is in slots.c.
#include <stddef.h>
#include <string.h>

#include "registry/registry_private.h"

#define MAX_TABLE_BYTES 65536
#define MAX_NAME_BYTES  127

static uint64_t read_word(const void *table, size_t offset) {
    uint64_t word = 0;
    memcpy(&word, (const char *)table + offset, sizeof(word));
    return word;
}

// The name that a table goes by, for messages: a required slot of that kind, if it is readable.
static const char *label_of(const berth_table *row, const void *table, uint64_t size) {
    const char *const first = row->slots[0].name;
    const bool is_named = strcmp(first, "name") == 0 || strcmp(first, "architecture") == 0;
    const char *label = NULL;
    if (is_named && row->slots[0].offset + sizeof(label) <= size) {
        memcpy(&label, (const char *)table + row->slots[0].offset, sizeof(label));
    }
    return label == NULL ? "" : label;
}

berth_status berth_table_check(berth_table_id id, const void *table, size_t except) {
    const berth_table *row = &berth_tables[id];
    if (table == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s is NULL", row->name);
    }
    const uint64_t size = read_word(table, 0);
    if (size < sizeof(size) || size > MAX_TABLE_BYTES || size % sizeof(uint64_t) != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "%s.size is %llu bytes, which no table has; set it to sizeof(%s)",
                          row->name, (unsigned long long)size, row->name);
    }
    for (size_t i = 0; i < row->slot_count; ++i) {
        const berth_slot *slot = &row->slots[i];
        if (slot->tag != BERTH_SLOT_REQUIRED || slot->offset == except) {
            continue;
        }
        const char *label = label_of(row, table, size);
        const char *gap = *label == '\0' ? "" : " ";
        if (slot->offset + sizeof(uint64_t) > size) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "%s%s%s: its size of %llu bytes ends before the required slot '%s'",
                              row->name, gap, label, (unsigned long long)size, slot->name);
        }
        if (read_word(table, slot->offset) == 0) {
            return BERTH_FAIL(INVALID_ARGUMENT, "%s%s%s: the required slot '%s' is not set",
                              row->name, gap, label, slot->name);
        }
    }
    return BERTH_OK;
}

void berth_table_copy(berth_table_id id, void *out, const void *table) {
    const uint64_t own = berth_tables[id].size;
    const uint64_t given = read_word(table, 0);
    memcpy(out, table, given < own ? given : own);
    memcpy(out, &own, sizeof(own));
}

berth_status berth_name_check(const char *what, const char *name) {
    size_t size = 0;
    while (size <= MAX_NAME_BYTES && name[size] > ' ' && name[size] < 0x7f) {
        ++size;
    }
    if (size == 0 || size > MAX_NAME_BYTES || name[size] != '\0') {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "%s '%.*s' is no name: 1 to %d printable ASCII characters, no blanks",
                          what, MAX_NAME_BYTES, name, MAX_NAME_BYTES);
    }
    return BERTH_OK;
}

// ---- implementations ----------------------------------------------------------------------------

static berth_status check_dispatch_key(const char *what, const char *key) {
    static const char *const keys[] = {
        BERTH_DISPATCH_NATIVE, BERTH_DISPATCH_CPU, BERTH_DISPATCH_CUDA, BERTH_DISPATCH_HIP,
        BERTH_DISPATCH_XPU,    BERTH_DISPATCH_TPU, BERTH_DISPATCH_OOT,
    };
    for (size_t i = 0; i < BERTH_COUNT(keys); ++i) {
        if (strcmp(keys[i], key) == 0) {
            return BERTH_OK;
        }
    }
    return BERTH_FAIL(INVALID_ARGUMENT,
                      "%s has the dispatch key '%s'; the keys are native, cpu, cuda, hip, xpu, tpu "
                      "and oot",
                      what, key);
}

static berth_status check_override(const berth_op_impl *impl) {
    if (impl->dispatch_key != NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "berth_op_impl %s of op '%s' is an override and has the dispatch key "
                          "'%s'; leave it NULL and name device_types",
                          impl->name, impl->op, impl->dispatch_key);
    }
    if (impl->device_type_count == 0 || impl->device_types == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "berth_op_impl %s of op '%s' is an override without device_types; name "
                          "the devices whose memory it accepts",
                          impl->name, impl->op);
    }
    return BERTH_OK;
}

// An op library lies beside the library of the plugin that was opened.
static berth_status check_library(const berth_op_impl *impl) {
    BERTH_TRY(berth_name_check("berth_op_impl.library", impl->library));
    if (strchr(impl->library, '/') != NULL || impl->library[0] == '.') {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "berth_op_impl %s of op '%s' has the library '%s'; name a file of the "
                          "plugin's own folder, without a path",
                          impl->name, impl->op, impl->library);
    }
    return BERTH_OK;
}

static berth_status check_slots(const berth_op_impl *impl) {
    BERTH_TRY(berth_name_check("berth_op_impl.op", impl->op));
    BERTH_TRY(berth_name_check("berth_op_impl.name", impl->name));
    if ((impl->packed_bytes == NULL) != (impl->pack == NULL)) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "berth_op_impl %s of op '%s' has only one of 'packed_bytes' and 'pack'; "
                          "set both or neither",
                          impl->name, impl->op);
    }
    if (impl->pack_rows != NULL && impl->pack == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "berth_op_impl %s of op '%s' has 'pack_rows' without 'pack'; set 'pack' "
                          "too, for weights that come whole",
                          impl->name, impl->op);
    }
    return BERTH_OK;
}

berth_status berth_impl_check_bare(const berth_op_impl *impl) {
    BERTH_TRY(check_slots(impl));
    if (impl->library != NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "berth_op_impl %s of op '%s' is not registered by itself and has the "
                          "library '%s'; leave it NULL",
                          impl->name, impl->op, impl->library);
    }
    return BERTH_OK;
}

berth_status berth_impl_check(const berth_op_impl *impl, berth_kind kind) {
    BERTH_TRY(check_slots(impl));
    if (impl->library != NULL) {
        BERTH_TRY(check_library(impl));
    }
    if (kind == BERTH_KIND_OVERRIDE) {
        return check_override(impl);
    }
    return check_dispatch_key(impl->name, impl->dispatch_key);
}

// ---- workers ------------------------------------------------------------------------------------

#define WORKER(member) offsetof(berth_worker_api, member)

typedef struct slot_set {
    const char *names; // as written in messages
    uint64_t feature;  // bit that claims them, 0: overridden together without one
    size_t count;
    size_t offsets[4];
} slot_set;

static const slot_set worker_sets[] = {
    {
     .names = "execute_model and sample_tokens",
     .count = 2,
     .offsets = {WORKER(execute_model), WORKER(sample_tokens)},
     },
    {
     .names = "get_kv_cache_spec and initialize_from_config",
     .count = 2,
     .offsets = {WORKER(get_kv_cache_spec), WORKER(initialize_from_config)},
     },
    {
     .names = "BERTH_WORKER_SLEEP, sleep and wake_up",
     .feature = BERTH_WORKER_SLEEP,
     .count = 2,
     .offsets = {WORKER(sleep), WORKER(wake_up)},
     },
    {
     .names = "BERTH_WORKER_LORA, add_lora, remove_lora, list_loras and pin_lora",
     .feature = BERTH_WORKER_LORA,
     .count = 4,
     .offsets = {WORKER(add_lora), WORKER(remove_lora), WORKER(list_loras), WORKER(pin_lora)},
     },
    {
     .names = "BERTH_WORKER_DRAFT and take_draft_token_ids",
     .feature = BERTH_WORKER_DRAFT,
     .count = 1,
     .offsets = {WORKER(take_draft_token_ids)},
     },
    {
     .names = "BERTH_WORKER_PROFILE and profile",
     .feature = BERTH_WORKER_PROFILE,
     .count = 1,
     .offsets = {WORKER(profile)},
     },
};

static const char *slot_name(size_t offset) {
    const berth_table *row = &berth_tables[BERTH_TABLE_WORKER];
    for (size_t i = 0; i < row->slot_count; ++i) {
        if (row->slots[i].offset == offset) {
            return row->slots[i].name;
        }
    }
    return "";
}

static berth_status check_set(const berth_worker_api *api, const slot_set *set) {
    bool has_any = set->feature != 0 && (api->features & set->feature) != 0;
    const bool is_claimed = set->feature == 0 || has_any;
    const char *missing = NULL;
    for (size_t i = 0; i < set->count; ++i) {
        const bool is_set = read_word(api, set->offsets[i]) != 0;
        has_any = has_any || is_set;
        missing = is_set || missing != NULL ? missing : slot_name(set->offsets[i]);
    }
    if (!has_any || (is_claimed && missing == NULL)) {
        return BERTH_OK;
    }
    return BERTH_FAIL(INVALID_ARGUMENT,
                      "berth_worker_api: %s come together, and %s is not set; set all or none",
                      set->names, missing != NULL ? missing : "the bit in 'features'");
}

// Feature bits agree with slots, and slots that are overridden together come together.
static berth_status check_worker(const berth_worker_api *api) {
    for (size_t i = 0; i < BERTH_COUNT(worker_sets); ++i) {
        BERTH_TRY(check_set(api, &worker_sets[i]));
    }
    return BERTH_OK;
}

// ---- platforms ----------------------------------------------------------------------------------

static berth_status check_capabilities(const char *name, const berth_capabilities *given) {
    if (given->dtype_count > 0 && given->dtypes == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "platform %s: berth_capabilities has %llu dtypes, but no array of them",
                          name, (unsigned long long)given->dtype_count);
    }
    if ((given->alignment_bytes & (given->alignment_bytes - 1)) != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "platform %s: berth_capabilities.alignment_bytes is %llu, not a power of "
                          "two",
                          name, (unsigned long long)given->alignment_bytes);
    }
    return BERTH_OK;
}

#define DEVICE(member) offsetof(berth_device_api, member)

// Slots that make sense together only: all of them or none.
static berth_status check_device(const berth_platform_entry *entry) {
    const berth_device_api *device = &entry->device;
    const bool is_claimed = (entry->capabilities.flags & BERTH_CAPABILITY_GRAPH_CAPTURE) != 0;
    const size_t recording[] = {DEVICE(capture_begin), DEVICE(capture_end), DEVICE(replay),
                                DEVICE(release_graph)};
    for (size_t i = 0; i < BERTH_COUNT(recording); ++i) {
        if ((read_word(device, recording[i]) != 0) != is_claimed) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "berth_device_api: BERTH_CAPABILITY_GRAPH_CAPTURE, capture_begin, "
                              "capture_end, replay and release_graph come together; set all or "
                              "none");
        }
    }
    if ((device->allocate_host == NULL) != (device->release_host == NULL)) {
        return BERTH_FAIL(INVALID_ARGUMENT, "berth_device_api: allocate_host and release_host come "
                                            "together; set both or neither");
    }
    return BERTH_OK;
}

berth_status berth_platform_check(const berth_platform_entry *entry) {
    const berth_platform *given = &entry->platform;
    BERTH_TRY(berth_name_check("berth_platform.name", given->name));
    BERTH_TRY(berth_name_check("berth_platform.device_type", given->device_type));
    if (strcmp(given->name, entry->owner->entry) != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "the platform's name is '%s', that of its entry point '%s'; they must be "
                          "equal",
                          given->name, entry->owner->entry);
    }
    if (given->kind > BERTH_PLATFORM_OOT) {
        return BERTH_FAIL(INVALID_ARGUMENT, "platform %s: kind is %llu, must be 1 to %u",
                          given->name, (unsigned long long)given->kind, BERTH_PLATFORM_OOT);
    }
    if (given->dispatch_key != NULL) {
        BERTH_TRY(check_dispatch_key(given->name, given->dispatch_key));
    }
    const char *base = given->default_custom_ops;
    if (base != NULL && strcmp(base, "all") != 0 && strcmp(base, "none") != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "platform %s: default_custom_ops is '%s', must be all or none",
                          given->name, base);
    }
    BERTH_TRY(check_capabilities(given->name, &entry->capabilities));
    BERTH_TRY(check_device(entry));
    return check_worker(&entry->worker);
}
