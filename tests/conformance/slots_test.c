// SPDX-License-Identifier: Apache-2.0
// What a vendor may leave out, slot by slot, as the headers tag them: without a [required] slot the
// plugin is refused in a line that names it; without an [inherit] or [optional] one the model still
// says the same, or the line that refuses names the slot. The fake `nulled` takes the slots away
// from the plugins of this build; the list of slots is the registry's, which `tools/check-tags`
// compares with the headers, so a new slot is tested by being there.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "registry/registry_private.h"
#include "support/dummy_model.h"
#include "support/program.h"
#include "support/test.h"

#define MAX_TABLES 8
#define STAGE_4    4 // exit status: the plugin's fault

// Where tables come from, and the tables that are taken apart there.
typedef struct origin {
    const char *library; // below the build directory
    const char *flags;
    const char *as;
    bool is_platform; // and runs the model; else the host does
    size_t count;
    berth_table_id tables[MAX_TABLES];
} origin;

static const origin origins[] = {
    {
     .library = "plugins/libberth-platform-dummy.so",
     .is_platform = true,
     .tables = {BERTH_TABLE_PLUGIN, BERTH_TABLE_ENTRY_POINT, BERTH_TABLE_PLATFORM,
                   BERTH_TABLE_CAPABILITIES, BERTH_TABLE_DEVICE, BERTH_TABLE_WORKER,
                   BERTH_TABLE_IMPL, BERTH_TABLE_ATTENTION},
     .count = 8,
     },
    {
     .library = "plugins/libberth-platform-dummy.so",
     .is_platform = true,
     .as = "impl",
     .tables = {BERTH_TABLE_IMPL},
     .count = 1,
     },
    {
     .library = "plugins/libberth-model-dummy.so",
     .tables = {BERTH_TABLE_PLUGIN, BERTH_TABLE_ENTRY_POINT, BERTH_TABLE_MODEL},
     .count = 3,
     },
    {
     .library = "tests/core/libberth-core-layers.so",
     .flags = "1",
     .tables = {BERTH_TABLE_LAYER},
     .count = 1,
     },
    {
     .library = "tests/core/libberth-core-quant.so",
     .flags = "1",
     .tables = {BERTH_TABLE_QUANT, BERTH_TABLE_QUANT_METHOD, BERTH_TABLE_KV_CACHE_METHOD},
     .count = 3,
     },
    {
     .library = "tests/core/libberth-core-ops.so",
     .flags = "1",
     .tables = {BERTH_TABLE_OP},
     .count = 1,
     },
    {
     .library = "tests/core/libberth-core-passes.so",
     .flags = "1",
     .tables = {BERTH_TABLE_PASS, BERTH_TABLE_PATTERN},
     .count = 2,
     },
};

// Not tagged, and each may be absent.
static const berth_slot capability_slots[] = {
    {.name = "flags",           .offset = offsetof(berth_capabilities, flags),           .tag = BERTH_SLOT_OPTIONAL},
    {.name = "dtypes",          .offset = offsetof(berth_capabilities, dtypes),          .tag = BERTH_SLOT_OPTIONAL},
    {.name = "dtype_count",
     .offset = offsetof(berth_capabilities,                            dtype_count),
     .tag = BERTH_SLOT_OPTIONAL                                                                                    },
    {.name = "max_head_size",
     .offset = offsetof(berth_capabilities,                            max_head_size),
     .tag = BERTH_SLOT_OPTIONAL                                                                                    },
    {.name = "alignment_bytes",
     .offset = offsetof(berth_capabilities,                            alignment_bytes),
     .tag = BERTH_SLOT_OPTIONAL                                                                                    },
};

// Slots that come with others, all of which the fake gives: one alone is refused.
static const char *const sociable[] = {
    "berth_worker_api.execute_model",
    "berth_worker_api.sample_tokens",
    "berth_worker_api.get_kv_cache_spec",
    "berth_worker_api.initialize_from_config",
    "berth_worker_api.take_draft_token_ids",
    "berth_worker_api.sleep",
    "berth_worker_api.wake_up",
    "berth_worker_api.add_lora",
    "berth_worker_api.remove_lora",
    "berth_worker_api.list_loras",
    "berth_worker_api.pin_lora",
    "berth_worker_api.profile",
    "berth_op_impl.packed_bytes",
    "berth_op_impl.pack",
    "berth_capabilities.dtypes",
};

typedef struct slot_case {
    const origin *from;
    const char *table;
    const berth_slot *slot; // NULL: every slot is filled and none taken away
} slot_case;

// ---- running ------------------------------------------------------------------------------------

// Twelve tokens of the model of an origin, by the host alone when `from` is NULL.
static void run_model(program *p, const origin *from, const char *slot, const char *model) {
    char library[256];
    char nulled[256];
    char as[64];
    char flags[64];
    (void)snprintf(library, sizeof(library), "NULLED_LIBRARY=" TEST_BUILD "/%s",
                   from == NULL ? "" : from->library);
    (void)snprintf(nulled, sizeof(nulled), "NULLED_SLOT=%s", slot);
    (void)snprintf(as, sizeof(as), "NULLED_AS=%s", from && from->as ? from->as : "");
    (void)snprintf(flags, sizeof(flags), "NULLED_FLAGS=%s", from && from->flags ? from->flags : "");
    const char *arguments[16] = {
        BERTH, "run", "--model", model, "--prompt", "ROMEO:", "-n", "12", "--allow-fallback",
    };
    size_t count = 9;
    if (from != NULL) {
        arguments[count++] = "--plugin";
        arguments[count++] = TEST_BUILD "/tests/plugins/nulled/libberth-nulled.so";
    }
    if (from != NULL && from->is_platform) {
        arguments[count++] = "--platform";
        arguments[count++] = "dummy";
    }
    char destroy[64]; // without it a platform leaks what it would have freed
    (void)snprintf(destroy, sizeof(destroy), "berth_platform:%zu",
                   offsetof(berth_platform, destroy));
    program_run(p,
                PROGRAM_ENV("BERTH_PLUGIN_DIRS=/nonexistent", library, nulled, as, flags,
                            strcmp(slot, destroy) == 0 ? "ASAN_OPTIONS=detect_leaks=0" : NULL),
                arguments);
}

// What the host alone makes of llama, which the model of model-dummy must equal.
static const char *expected_text(void) {
    static program plain;
    if (plain.out[0] == '\0') {
        run_model(&plain, NULL, "", LLAMA);
        CHECK_STR(plain.err, "");
        CHECK_INT(plain.status, 0);
        CHECK(strlen(plain.out) > 12);
    }
    return plain.out;
}

static bool is_sociable(const slot_case *it) {
    char name[128];
    (void)snprintf(name, sizeof(name), "%s.%s", it->table, it->slot->name);
    for (size_t i = 0; i < BERTH_COUNT(sociable); ++i) {
        if (strcmp(sociable[i], name) == 0) {
            return true;
        }
    }
    return false;
}

// An override has no dispatch key, so only an implementation lacks it.
static bool is_required(const slot_case *it) {
    const bool is_key = strcmp(it->slot->name, "dispatch_key") == 0 && it->from->as == NULL;
    return it->slot->tag == BERTH_SLOT_REQUIRED &&
           !(is_key && strcmp(it->table, "berth_op_impl") == 0);
}

static void check_slot(void **test_state) {
    const slot_case *it = *test_state;
    const char *text = expected_text();
    sandbox box;
    program p;
    char slot[256] = "";
    const bool is_dummy_model = strstr(it->from->library, "model-dummy") != NULL;
    if (it->slot != NULL) {
        (void)snprintf(slot, sizeof(slot), "%s:%u", it->table, it->slot->offset);
    }
    sandbox_make(&box);
    run_model(&p, it->from, slot, is_dummy_model ? dummy_model_write(&box) : LLAMA);
    sandbox_remove(&box);
    if (it->slot == NULL || !(is_required(it) || is_sociable(it))) {
        CHECK_STR(p.err, "");
        CHECK_INT(p.status, 0);
        CHECK_STR(p.out, text);
        return;
    }
    char named[128];
    (void)snprintf(named, sizeof(named), is_required(it) ? "required slot '%s'" : "%s",
                   it->slot->name);
    CHECK_CONTAINS(p.err, named);
    CHECK_CONTAINS(p.err, it->table);
    CHECK(p.status < 128);
    if (it->from->is_platform) {
        CHECK_INT(p.status, STAGE_4);
    }
}

// ---- the cases ----------------------------------------------------------------------------------

static void add_case(test_cases *cases, const slot_case *of) {
    slot_case *it = malloc(sizeof(*it)); // lives as long as the executable
    const origin *from = of->from;
    char name[256];
    if (it == NULL) {
        abort();
    }
    *it = *of;
    (void)snprintf(name, sizeof(name), "%s%s%s %s.%s", strrchr(from->library, '/') + 1,
                   from->as == NULL ? "" : " as ", from->as == NULL ? "" : from->as, of->table,
                   of->slot == NULL ? "(complete)" : of->slot->name);
    test_add(cases, name, check_slot, it);
}

static void add_slots(test_cases *cases, const origin *from, berth_table_id id) {
    const berth_table *table = &berth_tables[id];
    const bool is_tagged = id != BERTH_TABLE_CAPABILITIES;
    const berth_slot *slots = is_tagged ? table->slots : capability_slots;
    const size_t count = is_tagged ? table->slot_count : BERTH_COUNT(capability_slots);
    for (size_t i = 0; i < count; ++i) {
        // Why not this one: an op that needs scratch and does not say how much is wrong in itself,
        // and the only ops are those of the host.
        if (strcmp(slots[i].name, "reference_workspace") != 0) {
            add_case(cases, &(slot_case){.from = from, .table = table->name, .slot = &slots[i]});
        }
    }
}

TEST(a_model_with_larger_heads_than_the_platform_has_is_refused) {
    program p;
    PROGRAM_RUN(&p,
                PROGRAM_ENV("BERTH_PLUGIN_DIRS=/nonexistent", "NULLED_SMALL_HEADS=1",
                            "NULLED_LIBRARY=" TEST_BUILD "/plugins/libberth-platform-dummy.so"),
                BERTH, "run", "--model", LLAMA, "--prompt", "x", "--allow-fallback", "--plugin",
                TEST_BUILD "/tests/plugins/nulled/libberth-nulled.so", "--platform", "dummy");
    CHECK_INT(p.status, 6);
    CHECK_CONTAINS(p.err, "heads of at most 4 elements");
    CHECK_STR(p.out, "");
}

TEST_CASES(a_slot_may_be_missing_or_is_named) {
    for (size_t i = 0; i < BERTH_COUNT(origins); ++i) {
        add_case(cases, &(slot_case){.from = &origins[i], .table = "every table"});
        for (size_t k = 0; k < origins[i].count; ++k) {
            add_slots(cases, &origins[i], origins[i].tables[k]);
        }
    }
}

// Every kind of table that a plugin can add is taken apart above, but for the elements of an op's
// arrays, which tests/unit/registry_check_test.c has, for a second library's, which
// tests/unit/registry_op_library_test.c has, and for those of a pattern, which
// tests/unit/registry_pass_test.c has.
TEST(every_table_has_an_origin) {
    bool has_origin[BERTH_TABLE_PATTERN_INPUT + 1] = {
        [BERTH_TABLE_OP_LIBRARY] = true,    [BERTH_TABLE_ARGUMENT] = true,
        [BERTH_TABLE_ATTRIBUTE] = true,     [BERTH_TABLE_VALUE] = true,
        [BERTH_TABLE_RULE] = true,          [BERTH_TABLE_PATTERN_NODE] = true,
        [BERTH_TABLE_PATTERN_INPUT] = true,
    };
    for (size_t i = 0; i < BERTH_COUNT(origins); ++i) {
        for (size_t k = 0; k < origins[i].count; ++k) {
            has_origin[origins[i].tables[k]] = true;
        }
    }
    CHECK_UINT(berth_table_count, BERTH_COUNT(has_origin));
    for (size_t i = 0; i < berth_table_count; ++i) {
        if (!has_origin[i]) {
            print_error("%s has no origin\n", berth_tables[i].name);
        }
        CHECK(has_origin[i]);
    }
}
