// SPDX-License-Identifier: Apache-2.0
// registry: required slots, sizes of older and newer tables, what stands behind a table, the
// worker's features. Every table of the contract is gone through slot by slot.
#include "registry_rig.h"

#include "base/file.h"
#include "base/memory.h"

static const char *const on_fake[] = {"fake"};
static const berth_op op_rms = OP("rms_norm", "RMSNorm");
static const berth_op_impl impl_rms = IMPL("rms_norm", "fast", "oot");
static const berth_op_impl override_rms = OVERRIDE("rms_norm", "better", on_fake);
static const berth_layer layer = LAYER("RowParallelLinear");
static const berth_model model = MODEL("LlamaForCausalLM");
static const berth_quant_config quant = QUANT("fp8");
static const berth_attention_backend backend = ATTENTION("FLASH", &override_rms);
static const berth_pass pass = PASS("fuse");
static const berth_platform platform = PLATFORM("checked");
static const berth_device_api device = DEVICE;
static const berth_worker_api worker = {.size = sizeof(berth_worker_api)};

// What the entry points below add: a copy of one of the tables that a test has changed.
static struct {
    berth_registrar *registrar;
    const void *table;
    berth_table_id id;
    bool is_override;
    uint64_t words[64];      // the changed table
    berth_platform platform; // which its device, capabilities or worker belongs to
    berth_plugin plugin;
    berth_entry_point entry;
} given;

static berth_status add_given(berth_registrar *registrar) {
    const void *table = given.table;
    switch (given.id) {
    case BERTH_TABLE_OP:
        return registrar->add_op(registrar, table, 0);
    case BERTH_TABLE_IMPL:
        return given.is_override ? registrar->add_op_override(registrar, table, 0)
                                 : registrar->add_op_impl(registrar, table, 0);
    case BERTH_TABLE_LAYER:
        return registrar->add_layer(registrar, table, 0);
    case BERTH_TABLE_MODEL:
        return registrar->add_model(registrar, table, 0);
    case BERTH_TABLE_QUANT:
        return registrar->add_quant_config(registrar, table, 0);
    case BERTH_TABLE_ATTENTION:
        return registrar->add_attention_backend(registrar, table, 0);
    case BERTH_TABLE_PASS:
        return registrar->add_pass(registrar, table, 0);
    case BERTH_TABLE_PLATFORM:
        return registrar->add_platform(registrar, table, NULL);
    case BERTH_TABLE_DEVICE:
    case BERTH_TABLE_CAPABILITIES:
    case BERTH_TABLE_WORKER:
        return registrar->add_platform(registrar, &given.platform, NULL);
    default:
        return BERTH_FAIL(INTERNAL, "no way to add table %d", (int)given.id);
    }
}

FAKE(adds_given, BERTH_GROUP_GENERAL, { return add_given(registrar); });
FAKE(checked, BERTH_GROUP_PLATFORM, { return add_given(registrar); });

static const void *complete_table(berth_table_id id) {
    static const void *const tables[] = {
        [BERTH_TABLE_PLATFORM] = &platform, [BERTH_TABLE_CAPABILITIES] = &fake_capabilities,
        [BERTH_TABLE_DEVICE] = &device,     [BERTH_TABLE_WORKER] = &worker,
        [BERTH_TABLE_OP] = &op_rms,         [BERTH_TABLE_IMPL] = &impl_rms,
        [BERTH_TABLE_LAYER] = &layer,       [BERTH_TABLE_QUANT] = &quant,
        [BERTH_TABLE_MODEL] = &model,       [BERTH_TABLE_ATTENTION] = &backend,
        [BERTH_TABLE_PASS] = &pass,
    };
    return (size_t)id < BERTH_COUNT(tables) ? tables[id] : NULL;
}

// A copy of a complete table to spoil, connected to the platform if it is part of one.
static void give(berth_table_id id, const void *table) {
    memset(&given, 0, sizeof(given));
    given.id = id;
    given.table = given.words;
    given.platform = platform;
    CHECK(berth_tables[id].size <= sizeof(given.words));
    memcpy(given.words, table, berth_tables[id].size);
    if (id == BERTH_TABLE_DEVICE) {
        given.platform.device = (const void *)given.words;
    } else if (id == BERTH_TABLE_CAPABILITIES) {
        given.platform.capabilities = (const void *)given.words;
    } else if (id == BERTH_TABLE_WORKER) {
        given.platform.worker = (const void *)given.words;
    }
}

static const berth_candidate *add_to(rig *in) {
    const bool is_platform = given.id == BERTH_TABLE_PLATFORM || given.id == BERTH_TABLE_DEVICE ||
                             given.id == BERTH_TABLE_CAPABILITIES || given.id == BERTH_TABLE_WORKER;
    return rig_add(in, is_platform ? &checked : &adds_given);
}

// Adds what is given; the reason of the refusal must have all of the texts (NULL: it is taken).
static void check_given(const char *table, const char *slot) {
    rig in;
    rig_open(&in);
    const berth_candidate *candidate = add_to(&in);
    if (table == NULL) {
        CHECK_STR(candidate->reason, "");
        CHECK_STATE(candidate, BERTH_PLUGIN_ACTIVE);
    } else {
        CHECK_REFUSED(candidate, table);
        CHECK_CONTAINS(candidate->reason, slot);
    }
    rig_close(&in);
}

// ---- required slots -----------------------------------------------------------------------------

typedef struct slot_case {
    berth_table_id id;
    const berth_slot *slot;
    char name[64];
} slot_case;

static slot_case slot_cases[64];

static void check_null_slot(void **state) {
    const slot_case *row = *state;
    char quoted[64];
    (void)snprintf(quoted, sizeof(quoted), "required slot '%s' is not set", row->slot->name);
    give(row->id, complete_table(row->id));
    given.words[row->slot->offset / sizeof(uint64_t)] = 0;
    check_given(berth_tables[row->id].name, quoted);

    // A table that ends before the slot has none either.
    (void)snprintf(quoted, sizeof(quoted), "ends before the required slot '%s'", row->slot->name);
    give(row->id, complete_table(row->id));
    given.words[0] = row->slot->offset;
    check_given(berth_tables[row->id].name, quoted);
}

TEST_CASES(registry_refuses_a_table_without) {
    size_t count = 0;
    for (size_t id = 0; id < berth_table_count; ++id) {
        const berth_table *table = &berth_tables[id];
        for (size_t i = 0; complete_table((berth_table_id)id) != NULL && i < table->slot_count;
             ++i) {
            if (table->slots[i].tag != BERTH_SLOT_REQUIRED) {
                continue;
            }
            slot_case *row = &slot_cases[count++];
            row->id = (berth_table_id)id;
            row->slot = &table->slots[i];
            (void)snprintf(row->name, sizeof(row->name), "%s.%s", table->name,
                           table->slots[i].name);
            test_add(cases, row->name, check_null_slot, row);
        }
    }
}

TEST(registry_takes_every_complete_table) {
    for (size_t id = 0; id < berth_table_count; ++id) {
        const void *table = complete_table((berth_table_id)id);
        if (table != NULL) {
            give((berth_table_id)id, table);
            check_given(NULL, NULL);
        }
    }
}

// The rows are compared with the headers: as many tags of each kind, and each name stands there.
static uint64_t count_in(const char *text, const char *tag) {
    uint64_t count = 0;
    for (const char *at = strstr(text, tag); at != NULL; at = strstr(at + 1, tag)) {
        ++count;
    }
    return count;
}

typedef struct header_case {
    const char *file;
    berth_table_id tables[4];
    size_t count;
} header_case;

static void check_header(const header_case *row) {
    static const char *const tags[] = {
        [BERTH_SLOT_REQUIRED] = "[required]",
        [BERTH_SLOT_INHERIT] = "[inherit]",
        [BERTH_SLOT_OPTIONAL] = "[optional]",
    };
    uint64_t counts[BERTH_COUNT(tags)] = {0};
    char path[128];
    char *text = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "plugin-api/berth/%s", row->file);
    CHECK_OK(berth_file_read(path, 1 << 20, &text, &size));
    for (size_t i = 0; i < row->count; ++i) {
        const berth_table *table = &berth_tables[row->tables[i]];
        CHECK_CONTAINS(text, table->name);
        for (size_t k = 0; k < table->slot_count; ++k) {
            CHECK_CONTAINS(text, table->slots[k].name);
            counts[table->slots[k].tag] += 1;
        }
    }
    for (size_t i = 0; i < BERTH_COUNT(tags); ++i) {
        CHECK_UINT(count_in(text, tags[i]), counts[i]);
    }
    berth_free(text);
}

TEST(registry_knows_every_tagged_slot_of_the_headers) {
    static const header_case rows[] = {
        {"plugin.h",    {BERTH_TABLE_PLUGIN, BERTH_TABLE_ENTRY_POINT}, 2},
        {"platform.h",  {BERTH_TABLE_PLATFORM},                        1},
        {"device.h",    {BERTH_TABLE_DEVICE},                          1},
        {"worker.h",    {BERTH_TABLE_WORKER},                          1},
        {"op.h",        {BERTH_TABLE_OP, BERTH_TABLE_IMPL},            2},
        {"layer.h",     {BERTH_TABLE_LAYER},                           1},
        {"quant.h",     {BERTH_TABLE_QUANT, BERTH_TABLE_QUANT_METHOD}, 2},
        {"quant_kv.h",  {BERTH_TABLE_KV_CACHE_METHOD},                 1},
        {"model.h",     {BERTH_TABLE_MODEL},                           1},
        {"attention.h", {BERTH_TABLE_ATTENTION},                       1},
        {"pass.h",
         {BERTH_TABLE_PASS, BERTH_TABLE_PATTERN, BERTH_TABLE_PATTERN_NODE,
          BERTH_TABLE_PATTERN_INPUT},
         4                                                              },
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        check_header(&rows[i]);
    }
}

// ---- sizes --------------------------------------------------------------------------------------

TEST(registry_refuses_an_absurd_size) {
    static const uint64_t sizes[] = {0, 4, 12, 65544, UINT64_MAX};
    for (size_t i = 0; i < BERTH_COUNT(sizes); ++i) {
        give(BERTH_TABLE_LAYER, &layer);
        given.words[0] = sizes[i];
        check_given("berth_layer.size", "sizeof(berth_layer)");
    }
    give(BERTH_TABLE_LAYER, &layer);
    given.table = NULL;
    check_given("berth_layer is NULL", "");
}

TEST(registry_takes_what_an_older_table_lacks_as_zero) {
    rig in;
    rig_open(&in);
    give(BERTH_TABLE_OP, &op_rms);
    given.words[0] = offsetof(berth_op, reference_workspace);
    // Behind its end lies something else, which is not read.
    given.words[offsetof(berth_op, reference_workspace) / sizeof(uint64_t)] = 0xdead;
    given.words[offsetof(berth_op, has_decomposition) / sizeof(uint64_t)] = 0xdead;
    CHECK_STATE(add_to(&in), BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.registry));
    const berth_op *op = &berth_registry_find_op(in.registry, "rms_norm")->op;
    CHECK_UINT(op->size, sizeof(berth_op));
    CHECK(op->reference == fake_forward);
    CHECK(op->reference_workspace == NULL);
    CHECK_UINT(op->has_decomposition, 0);
    CHECK(!BERTH_HAS(op, reference_workspace));
    rig_close(&in);
}

TEST(registry_leaves_out_what_a_newer_table_has_more) {
    rig in;
    rig_open(&in);
    give(BERTH_TABLE_MODEL, &model);
    given.words[0] = sizeof(berth_model) + 16;
    given.words[sizeof(berth_model) / sizeof(uint64_t)] = 0xdead;
    CHECK_STATE(add_to(&in), BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.registry));
    const berth_model_entry *entry = berth_registry_model_at(in.registry, 0);
    CHECK_UINT(entry->model.size, sizeof(berth_model));
    CHECK_STR(entry->owner->id, "adds_given");
    rig_close(&in);
}

// An op whose arguments were declared with a smaller struct than this host's.
static const struct {
    uint64_t size;
    const char *name;
} short_argument = {.size = 16, .name = "x"};

static const berth_op_argument *const mixed_inputs[] = {(const void *)&short_argument,
                                                        BERTH_OPTIONAL_INPUT("bias")};
static const berth_op_attribute *const mixed_attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 0.5)};
static const berth_op op_linear = OP("linear", "Linear", .inputs = mixed_inputs, .input_count = 2,
                                     .attributes = mixed_attributes, .attribute_count = 1);

TEST(registry_copies_the_tables_behind_a_table) {
    rig in;
    rig_open(&in);
    give(BERTH_TABLE_OP, &op_linear);
    CHECK_STATE(add_to(&in), BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.registry));
    const berth_op *copy = &berth_registry_find_op(in.registry, "Linear")->op;
    CHECK(copy->inputs != mixed_inputs && copy->inputs[0] != mixed_inputs[0]);
    CHECK_UINT(copy->inputs[0]->size, sizeof(berth_op_argument));
    CHECK_STR(copy->inputs[0]->name, "x");
    CHECK_UINT(copy->inputs[0]->layout, BERTH_LAYOUT_CONTIGUOUS);
    CHECK_UINT(copy->inputs[1]->flags, BERTH_ARGUMENT_OPTIONAL);
    CHECK(copy->attributes[0]->default_value != mixed_attributes[0]->default_value);
    CHECK_NEAR(copy->attributes[0]->default_value->f64, 0.5, 0);
    rig_close(&in);
}

// ---- what else a table must say -----------------------------------------------------------------

#define WORD(type, member) (offsetof(type, member) / sizeof(uint64_t))

typedef struct value_case {
    const char *name;
    berth_table_id id;
    size_t word;
    uint64_t value;
    const char *text;
    const char *other;
} value_case;

static const char long_name[] = "a234567890123456789012345678901234567890123456789012345678901234"
                                "b234567890123456789012345678901234567890123456789012345678901234";

static const berth_op_argument *const bad_arguments[] = {
    &(const berth_op_argument){.size = sizeof(berth_op_argument), .name = "x", .layout = 9}
};
static const berth_op_argument *const no_argument[] = {NULL};
static const berth_op_attribute *const bad_kind[] = {
    BERTH_REQUIRED_ATTRIBUTE("eps", BERTH_ATTRIBUTE_NONE)};
static const berth_op_attribute *const bad_default[] = {
    &(const berth_op_attribute){.size = sizeof(berth_op_attribute),
                                .name = "eps",
                                .kind = BERTH_ATTRIBUTE_F64,
                                .default_value = &(const berth_attribute){
                                    .size = sizeof(berth_attribute),
                                    .kind = BERTH_ATTRIBUTE_I64,
                                }}
};
static const berth_weight_rule *const bad_rules[] = {
    &(const berth_weight_rule){.size = sizeof(berth_weight_rule), .to = "b"}
};

// Two words are changed at most: the value, and a count of 1 behind it for arrays.
static void check_value(const value_case *row, bool has_count) {
    give(row->id, complete_table(row->id));
    given.words[row->word] = row->value;
    if (has_count) {
        given.words[row->word + 1] = 1;
    }
    check_given(row->text, row->other);
}

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

TEST(registry_refuses_values_that_make_no_sense) {
    const value_case rows[] = {
        {"an op's id",              BERTH_TABLE_OP,           WORD(berth_op,           name),               ADDRESS("RMSNorm"),
         "op 'RMSNorm': an id has lower-case letters",                                                                                                                                  ""                    },
        {"an op's class",           BERTH_TABLE_OP,           WORD(berth_op,           class_name),         ADDRESS("RMS Norm"),
         "berth_op.class_name 'RMS Norm' is no name",                                                                                                                                   ""                    },
        {"a long name",             BERTH_TABLE_LAYER,        WORD(berth_layer,        name),               ADDRESS(long_name),
         "is no name: 1 to 127",                                                                                                                                                        ""                    },
        {"an empty name",           BERTH_TABLE_MODEL,        WORD(berth_model,        architecture),       ADDRESS(""),
         "berth_model.architecture '' is no name",                                                                                                                                      ""                    },
        {"too many inputs",         BERTH_TABLE_OP,           WORD(berth_op,           input_count),        17,
         "inputs: there are 17, more than 16",                                                                                                                                          "adding op 'rms_norm'"},
        {"inputs without an array", BERTH_TABLE_OP,           WORD(berth_op,           input_count),        2,
         "inputs: there are 2, but no array of them",                                                                                                                                   ""                    },
        {"too many rules",          BERTH_TABLE_MODEL,        WORD(berth_model,        weight_rule_count),  1025,
         "weight_rules: there are 1025, more than 1024",                                                                                                                                "LlamaForCausalLM"    },
        {"a dispatch key",          BERTH_TABLE_IMPL,         WORD(berth_op_impl,      dispatch_key),       ADDRESS("gpu"),
         "dispatch key 'gpu'; the keys are native, cpu, cuda",                                                                                                                          ""                    },
        {"pack alone",              BERTH_TABLE_IMPL,         WORD(berth_op_impl,      pack),               8,
         "only one of 'packed_bytes' and 'pack'",                                                                                                                                       "'rms_norm'"          },
        {"a kind",                  BERTH_TABLE_PLATFORM,     WORD(berth_platform,     kind),               7,                   "kind is 7, must be 1 to 6",
         ""                                                                                                                                                                                                   },
        {"a key",                   BERTH_TABLE_PLATFORM,     WORD(berth_platform,     dispatch_key),       ADDRESS("x"),
         "dispatch key 'x'",                                                                                                                                                            "checked"             },
        {"a base",                  BERTH_TABLE_PLATFORM,     WORD(berth_platform,     default_custom_ops), ADDRESS("+all"),
         "default_custom_ops is '+all', must be all or none",                                                                                                                           ""                    },
        {"dtypes",                  BERTH_TABLE_CAPABILITIES, WORD(berth_capabilities, dtype_count),        3,
         "berth_capabilities has 3 dtypes, but no array",                                                                                                                               "checked"             },
        {"an alignment",            BERTH_TABLE_CAPABILITIES, WORD(berth_capabilities, alignment_bytes),    48,
         "alignment_bytes is 48, not a power of two",                                                                                                                                   ""                    },
        {"a claim to record",       BERTH_TABLE_CAPABILITIES, WORD(berth_capabilities, flags),
         BERTH_CAPABILITY_GRAPH_CAPTURE,                                                                                         "capture_end, replay and release_graph come together", ""                    },
        {"a recorder alone",        BERTH_TABLE_DEVICE,       WORD(berth_device_api,   capture_begin),      8,
         "capture_end, replay and release_graph come together",                                                                                                                         ""                    },
        {"host memory for ever",    BERTH_TABLE_DEVICE,       WORD(berth_device_api,   allocate_host),      8,
         "allocate_host and release_host come together",                                                                                                                                ""                    },
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        check_value(&rows[i], false);
    }
    const value_case arrays[] = {
        {"a layout",               BERTH_TABLE_OP,    WORD(berth_op,    inputs),       ADDRESS(bad_arguments),
         "'x' has the layout 9",                                   "rms_norm"        },
        {"a missing input",        BERTH_TABLE_OP,    WORD(berth_op,    inputs),       ADDRESS(no_argument),
         "berth_op_argument is NULL (while reading inputs",        "rms_norm"        },
        {"a state",                BERTH_TABLE_OP,    WORD(berth_op,    states),       ADDRESS(bad_arguments),
         "states: 'x' has the layout 9",                           ""                },
        {"an attribute's kind",    BERTH_TABLE_OP,    WORD(berth_op,    attributes),   ADDRESS(bad_kind),
         "attribute 'eps' is of the kind 0",                       ""                },
        {"an attribute's default", BERTH_TABLE_OP,    WORD(berth_op,    attributes),   ADDRESS(bad_default),
         "the default of attribute 'eps' is of another kind",      ""                },
        {"a rule",                 BERTH_TABLE_MODEL, WORD(berth_model, weight_rules), ADDRESS(bad_rules),
         "berth_weight_rule: the required slot 'from' is not set", "LlamaForCausalLM"},
    };
    for (size_t i = 0; i < BERTH_COUNT(arrays); ++i) {
        check_value(&arrays[i], true);
    }
}

static void check_override(const berth_op_impl *impl, const char *text) {
    give(BERTH_TABLE_IMPL, impl);
    given.is_override = true;
    check_given(text, "");
}

TEST(registry_wants_device_types_and_no_key_of_an_override) {
    static const char *const nothing[] = {NULL};
    berth_op_impl changed = override_rms;
    changed.dispatch_key = "cuda";
    check_override(&changed, "is an override and has the dispatch key 'cuda'");
    changed = override_rms;
    changed.device_type_count = 0;
    check_override(&changed, "is an override without device_types");
    changed.device_type_count = 17;
    check_override(&changed, "device_types: there are 17, more than 16");
    changed.device_type_count = 1;
    changed.device_types = nothing;
    check_override(&changed, "device type '' is no name");
}

// ---- workers ------------------------------------------------------------------------------------

typedef struct worker_case {
    uint64_t features;
    const char *set[4]; // slots that are not NULL
    const char *text;   // NULL: accepted
} worker_case;

static void set_slot(const char *name) {
    const berth_table *table = &berth_tables[BERTH_TABLE_WORKER];
    for (size_t i = 0; i < table->slot_count; ++i) {
        if (strcmp(table->slots[i].name, name) == 0) {
            given.words[table->slots[i].offset / sizeof(uint64_t)] = 1;
            return;
        }
    }
    CHECK_STR(name, "a slot of the worker");
}

TEST(registry_wants_features_and_slots_of_a_worker_to_agree) {
    static const worker_case rows[] = {
        {0,                    {"init_device", "load_model", "shutdown"},             NULL                             },
        {0,                    {"execute_model", "sample_tokens"},                    NULL                             },
        {0,                    {"execute_model"},                                     "sample_tokens is not"           },
        {0,                    {"sample_tokens"},                                     "execute_model is not"           },
        {0,                    {"get_kv_cache_spec"},                                 "initialize_from_config"         },
        {0,                    {"initialize_from_config"},                            "get_kv_cache_spec is"           },
        {BERTH_WORKER_SLEEP,   {"sleep", "wake_up"},                                  NULL                             },
        {BERTH_WORKER_SLEEP,   {NULL},                                                "sleep is not set"               },
        {BERTH_WORKER_SLEEP,   {"sleep"},                                             "wake_up is not set"             },
        {0,                    {"wake_up"},                                           "sleep is not set"               },
        {0,                    {"sleep", "wake_up"},                                  "the bit in 'features'"          },
        {BERTH_WORKER_LORA,    {"add_lora", "remove_lora", "list_loras", "pin_lora"}, NULL                             },
        {BERTH_WORKER_LORA,    {"add_lora", "remove_lora", "list_loras"},             "pin_lora is not set"            },
        {0,                    {"add_lora", "remove_lora", "list_loras", "pin_lora"}, "the bit in 'features'"          },
        {BERTH_WORKER_DRAFT,   {"take_draft_token_ids"},                              NULL                             },
        {BERTH_WORKER_DRAFT,   {NULL},                                                "take_draft_token_ids is not set"},
        {0,                    {"take_draft_token_ids"},                              "the bit in 'features'"          },
        {BERTH_WORKER_PROFILE, {"profile"},                                           NULL                             },
        {BERTH_WORKER_PROFILE, {NULL},                                                "profile is not set"             },
        {0,                    {"profile"},                                           "BERTH_WORKER_PROFILE"           },
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        give(BERTH_TABLE_WORKER, &worker);
        given.words[WORD(berth_worker_api, features)] = rows[i].features;
        for (size_t k = 0; k < BERTH_COUNT(rows[i].set) && rows[i].set[k] != NULL; ++k) {
            set_slot(rows[i].set[k]);
        }
        check_given(rows[i].text == NULL ? NULL : "berth_worker_api", rows[i].text);
    }
}

// ---- the library's own table --------------------------------------------------------------------

static void check_plugin(const berth_plugin *plugin, berth_status status, const char *text) {
    rig in;
    rig_open(&in);
    berth_candidate *candidate = NULL;
    berth_opened *opened = NULL;
    CHECK_STATUS(rig_adopt(&in, plugin, &candidate, &opened), status);
    CHECK_CONTAINS(berth_status_message(), text);
    rig_close(&in);
}

TEST(registry_refuses_a_library_table_without_its_slots) {
    const berth_table *table = &berth_tables[BERTH_TABLE_PLUGIN];
    for (size_t i = 0; i < table->slot_count; ++i) {
        berth_plugin changed = adds_given;
        memset((char *)&changed + table->slots[i].offset, 0, sizeof(uint64_t));
        if (table->slots[i].tag == BERTH_SLOT_REQUIRED) {
            check_plugin(&changed, BERTH_INVALID_ARGUMENT, table->slots[i].name);
        }
    }
    berth_plugin changed = adds_given;
    changed.size = 16;
    check_plugin(&changed, BERTH_INVALID_ARGUMENT, "berth_plugin.size is 16 bytes, too small");
    changed = adds_given;
    changed.entry_point_count = 65;
    check_plugin(&changed, BERTH_INVALID_ARGUMENT, "65 entry points; at most 64");
    changed.entry_points = NULL;
    changed.entry_point_count = 1;
    check_plugin(&changed, BERTH_INVALID_ARGUMENT, "1 entry points, but no array of them");
}

TEST(registry_refuses_an_entry_point_without_its_slots) {
    const berth_table *table = &berth_tables[BERTH_TABLE_ENTRY_POINT];
    berth_plugin changed = adds_given;
    for (size_t i = 0; i < table->slot_count; ++i) {
        berth_entry_point entry = entry_adds_given;
        const berth_entry_point *const entries[] = {&entry};
        changed.entry_points = entries;
        memset((char *)&entry + table->slots[i].offset, 0, sizeof(uint64_t));
        check_plugin(&changed, BERTH_INVALID_ARGUMENT, table->slots[i].name);
    }
    const berth_entry_point *const twice[] = {&entry_adds_given, &entry_adds_given};
    changed.entry_points = twice;
    changed.entry_point_count = 2;
    check_plugin(&changed, BERTH_ALREADY_EXISTS,
                 "the entry point 'adds_given' of "
                 "berth.general_plugins twice");
}

TEST(registry_negotiates_the_abi) {
    berth_plugin changed = adds_given;
    changed.abi_min = BERTH_ABI(2, 0);
    changed.abi_max = BERTH_ABI(2, 3);
    check_plugin(
        &changed, BERTH_INCOMPATIBLE,
        "the library speaks ABI 2.0 to 2.3, this host 1.0 to 1.1; install a newer berth or an "
        "older build of the plugin");
    changed.abi_min = BERTH_ABI(0, 1);
    changed.abi_max = BERTH_ABI(0, 9);
    check_plugin(&changed, BERTH_INCOMPATIBLE, "install a newer build of the plugin");
    changed.abi_min = BERTH_ABI(3, 0);
    check_plugin(&changed, BERTH_INCOMPATIBLE, "upside down");
    changed.abi_min = BERTH_ABI(0, 9);
    changed.abi_max = BERTH_ABI(4, 0); // wide enough for today's
    rig in;
    rig_open(&in);
    CHECK_STATE(rig_add(&in, &changed), BERTH_PLUGIN_REGISTER_FAILED); // nothing is given to add
    rig_close(&in);
}
