// SPDX-License-Identifier: Apache-2.0
// Input: a candidate's library, or the table of a plugin that is linked in. Output: a checked copy
// of what it exports, matched with its manifest; or one line that says what is wrong and what to
// do. A library stays mapped whatever happens: code of its constructors may be running.
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "registry/registry_private.h"

// ---- negotiation --------------------------------------------------------------------------------

typedef struct abi_range {
    uint64_t min;
    uint64_t max;
} abi_range;

typedef struct abi_text {
    char text[64];
} abi_text;

static abi_text print_range(abi_range range) {
    abi_text out;
    const int size = snprintf(out.text, sizeof(out.text), "%" PRIu32 ".%" PRIu32,
                              BERTH_ABI_MAJOR(range.min), BERTH_ABI_MINOR(range.min));
    if (range.min != range.max && size > 0 && (size_t)size < sizeof(out.text)) {
        (void)snprintf(out.text + size, sizeof(out.text) - (size_t)size, " to %" PRIu32 ".%" PRIu32,
                       BERTH_ABI_MAJOR(range.max), BERTH_ABI_MINOR(range.max));
    }
    return out;
}

static berth_status negotiate(const berth_host *host, const berth_candidate *candidate,
                              abi_range plugin) {
    const abi_range own = {host->abi_min, host->abi_max};
    const abi_text plugin_text = print_range(plugin);
    const abi_text own_text = print_range(own);
    if (plugin.min > plugin.max) {
        return BERTH_FAIL(INCOMPATIBLE,
                          "the library's ABI range is %s, upside down; set abi_min and abi_max",
                          plugin_text.text);
    }
    if (plugin.min > own.max || plugin.max < own.min) {
        return BERTH_FAIL(INCOMPATIBLE, "the library speaks ABI %s, this host %s; install a %s",
                          plugin_text.text, own_text.text,
                          plugin.min > own.max ? "newer berth or an older build of the plugin"
                                               : "newer build of the plugin");
    }
    if (candidate->abi_min != 0 &&
        (candidate->abi_min < plugin.min || candidate->abi_max > plugin.max)) {
        const abi_range manifest = {candidate->abi_min, candidate->abi_max};
        const abi_text manifest_text = print_range(manifest);
        return BERTH_FAIL(INCOMPATIBLE,
                          "the manifest promises ABI %s, the library speaks %s; correct 'abi' in "
                          "%s",
                          manifest_text.text, plugin_text.text,
                          candidate->manifest == NULL ? "the manifest" : candidate->manifest);
    }
    return BERTH_OK;
}

// The ABI comes before everything else: behind its first three members a future table may differ.
berth_status berth_library_negotiate(const berth_registry *registry,
                                     const berth_candidate *candidate, berth_table_id id,
                                     const void *table) {
    struct {
        uint64_t size;
        abi_range abi;
    } head;
    memcpy(&head, table, sizeof(head.size));
    if (head.size < sizeof(head)) {
        return BERTH_FAIL(
            INVALID_ARGUMENT, "%s.size is %llu bytes, too small for any ABI; set it to sizeof(%s)",
            berth_tables[id].name, (unsigned long long)head.size, berth_tables[id].name);
    }
    memcpy(&head, table, sizeof(head));
    return negotiate(&registry->host, candidate, head.abi);
}

static berth_status check_plugin(const berth_registry *registry, const berth_candidate *candidate,
                                 const berth_plugin *given) {
    BERTH_TRY(berth_library_negotiate(registry, candidate, BERTH_TABLE_PLUGIN, given));
    BERTH_TRY(berth_table_check(BERTH_TABLE_PLUGIN, given, 0));
    BERTH_TRY(berth_name_check("berth_plugin.id", given->id));
    if (*candidate->id != '\0' && strcmp(candidate->id, given->id) != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "the manifest's id is '%s', the library's '%s'",
                          candidate->id, given->id);
    }
    for (size_t i = 0; i < registry->opened.count; ++i) {
        const berth_opened *other = registry->opened.data[i];
        if (strcmp(other->plugin.id, given->id) == 0) {
            return BERTH_FAIL(
                ALREADY_EXISTS, "the plugin id '%s' is taken by %s; remove one", given->id,
                other->candidate->library == NULL ? "a core plugin" : other->candidate->library);
        }
    }
    return BERTH_OK;
}

// ---- entry points -------------------------------------------------------------------------------

static const berth_entry_point *find_point(const berth_opened *opened, size_t count,
                                           const char *group, const char *name) {
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(opened->entries[i].group, group) == 0 &&
            strcmp(opened->entries[i].name, name) == 0) {
            return &opened->entries[i];
        }
    }
    return NULL;
}

static berth_status copy_entry_points(berth_registry *registry, berth_opened *opened) {
    const berth_plugin *plugin = &opened->plugin;
    const uint64_t count = plugin->entry_point_count;
    if (count > BERTH_ENTRY_POINTS_MAX || (count > 0 && plugin->entry_points == NULL)) {
        return BERTH_FAIL(
            INVALID_ARGUMENT, "the library has %llu entry points%s; at most %d are allowed",
            (unsigned long long)count, plugin->entry_points == NULL ? ", but no array of them" : "",
            BERTH_ENTRY_POINTS_MAX);
    }
    opened->entries = BERTH_ARENA_ARRAY(registry->arena, berth_entry_point, count);
    if (opened->entries == NULL) {
        return berth_arena_exhausted(registry->arena, "entry points");
    }
    for (uint64_t i = 0; i < count; ++i) {
        berth_entry_point *copy = &opened->entries[i];
        BERTH_TRY(berth_table_check(BERTH_TABLE_ENTRY_POINT, plugin->entry_points[i], 0));
        berth_table_copy(BERTH_TABLE_ENTRY_POINT, copy, plugin->entry_points[i]);
        if (find_point(opened, i, copy->group, copy->name) != NULL) {
            return BERTH_FAIL(ALREADY_EXISTS, "the library has the entry point '%s' of %s twice",
                              copy->name, copy->group);
        }
    }
    opened->entry_count = count;
    return BERTH_OK;
}

// ---- manifest against library -------------------------------------------------------------------

static bool is_listed(const berth_candidate *candidate, const berth_entry_point *point) {
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        if (strcmp(candidate->entries[i].group, point->group) == 0 &&
            strcmp(candidate->entries[i].name, point->name) == 0) {
            return true;
        }
    }
    return false;
}

// The record of an entry point that the candidate does not list yet.
static berth_entry unlisted(const berth_registry *registry, const berth_candidate *candidate,
                            const berth_entry_point *point) {
    berth_entry entry = {.group = point->group, .name = point->name, .reason = ""};
    if (candidate->manifest != NULL) {
        entry.reason = "stands only in the library, not in the manifest: it is not called";
    } else if (candidate->library != NULL &&
               !berth_filter_accepts(registry->config->plugins, point->name)) {
        entry.state = BERTH_PLUGIN_FILTERED;
        entry.reason = "not named by the filter of plugins";
    }
    return entry;
}

// The manifest is the allow-list. Without one (--plugin FILE, core) all entry points are taken.
static berth_status match(berth_registry *registry, berth_opened *opened) {
    berth_candidate *candidate = opened->candidate;
    const size_t most = candidate->entry_count + opened->entry_count;
    berth_entry *entries = BERTH_ARENA_ARRAY(registry->config->arena, berth_entry, most);
    if (entries == NULL) {
        return berth_arena_exhausted(registry->config->arena, "entry points");
    }
    size_t count = candidate->entry_count;
    for (size_t i = 0; i < count; ++i) {
        entries[i] = candidate->entries[i];
        if (entries[i].state == BERTH_PLUGIN_FOUND && *entries[i].reason == '\0' &&
            find_point(opened, opened->entry_count, entries[i].group, entries[i].name) == NULL) {
            berth_entry_set(&entries[i], BERTH_PLUGIN_LOAD_FAILED,
                            "stands only in the manifest: the library has no such entry point");
        }
    }
    for (size_t i = 0; i < opened->entry_count; ++i) {
        if (!is_listed(candidate, &opened->entries[i])) {
            entries[count++] = unlisted(registry, candidate, &opened->entries[i]);
        }
    }
    candidate->entries = entries;
    candidate->entry_count = count;
    return BERTH_OK;
}

// ---- opening ------------------------------------------------------------------------------------

berth_status berth_library_adopt(berth_registry *registry, const berth_plugin *plugin,
                                 berth_candidate *candidate, berth_opened **out) {
    BERTH_TRY(check_plugin(registry, candidate, plugin));
    berth_opened *opened = BERTH_ARENA_NEW(registry->arena, berth_opened);
    if (opened == NULL) {
        return berth_arena_exhausted(registry->arena, "plugins");
    }
    opened->candidate = candidate;
    berth_table_copy(BERTH_TABLE_PLUGIN, &opened->plugin, plugin);
    BERTH_TRY(copy_entry_points(registry, opened));
    if (*candidate->id == '\0') {
        candidate->id = opened->plugin.id;
        candidate->version = opened->plugin.version;
        candidate->vendor = opened->plugin.vendor;
    }
    BERTH_TRY(match(registry, opened));
    BERTH_TRY(berth_array_push(&registry->opened, opened));
    *out = opened;
    return BERTH_OK;
}

// What a library exports, and who writes that.
typedef struct export_row {
    const char *symbol;
    const char *what;
    const char *macro;
} export_row;

static const export_row plugin_export = {
    .symbol = "berth_plugin_v1",
    .what = "plugin",
    .macro = "BERTH_PLUGIN_DEFINE",
};
static const export_row op_library_export = {
    .symbol = "berth_op_library_v1",
    .what = "op library",
    .macro = "BERTH_OP_LIBRARY_DEFINE",
};

berth_status berth_library_map(const char *path, berth_table_id id, const void **out_table) {
    const export_row *row = id == BERTH_TABLE_PLUGIN ? &plugin_export : &op_library_export;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *text = dlerror();
        return BERTH_FAIL(UNAVAILABLE, "cannot load the library: %s", text == NULL ? "" : text);
    }
    *out_table = dlsym(handle, row->symbol);
    if (*out_table == NULL) {
        return BERTH_FAIL(INCOMPATIBLE,
                          "%s does not export %s; it is no %s, or was built without %s", path,
                          row->symbol, row->what, row->macro);
    }
    return BERTH_OK;
}

berth_status berth_library_open(berth_registry *registry, berth_candidate *candidate,
                                berth_opened **out) {
    const void *plugin = NULL;
    BERTH_TRY(berth_library_map(candidate->library, BERTH_TABLE_PLUGIN, &plugin));
    return berth_library_adopt(registry, plugin, candidate, out);
}
