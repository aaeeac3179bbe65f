// SPDX-License-Identifier: Apache-2.0
// registry: op libraries. What a library exports is given here; that one is opened at all is
// tests/integration/op_library_test.c.
#include "registry_rig.h"

static const char *const on_fake[] = {"fake"};
static const berth_op op_rms = OP("rms_norm", "RMSNorm");
static const berth_op op_grown = {
    .size = sizeof(berth_op),
    .name = "grown",
    .class_name = "Grown",
    .revision = 3,
    .compatible_revision = 2,
    .infer = fake_infer,
    .reference = fake_forward,
};
static const berth_op_impl impl_rms =
    IMPL("rms_norm", "plain", "oot", .library = "libfast.so", .priority = 7);
static const berth_op_impl override_grown = {
    .size = sizeof(berth_op_impl),
    .op = "Grown",
    .name = "special",
    .revision = 2,
    .forward = fake_forward,
    .device_types = on_fake,
    .device_type_count = 1,
    .library = "libfast.so",
};
static const berth_op_impl impl_other = IMPL("rms_norm", "other", "oot", .library = "libother.so");

FAKE(acme, BERTH_GROUP_GENERAL, {
    berth_status status = registrar->add_op(registrar, &op_rms, 0);
    status = status ? status : registrar->add_op(registrar, &op_grown, 0);
    status = status ? status : registrar->add_op_impl(registrar, &impl_rms, 0);
    status = status ? status : registrar->add_op_override(registrar, &override_grown, 0);
    return status ? status : registrar->add_op_impl(registrar, &impl_other, 0);
});

// ---- what it exports ----------------------------------------------------------------------------

static berth_status fast_forward(void *self, const berth_op_args *args) {
    (void)self, (void)args;
    return BERTH_OK;
}

// A library that lacks nothing; each test changes one thing.
typedef struct export_rig {
    rig rig;
    berth_op_library_entry *library; // libfast.so
    berth_op_impl forms[2];
    const berth_op_impl *impls[2];
    berth_op_library given;
} export_rig;

static void open_export(export_rig *in) {
    rig_open(&in->rig);
    CHECK_STATE(rig_add(&in->rig, &acme), BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in->rig.registry));
    CHECK_UINT(berth_registry_library_count(in->rig.registry), 2);
    in->library = berth_registry_library_at(in->rig.registry, 0);
    in->forms[0] = (berth_op_impl)IMPL("RMSNorm", "plain", "oot", .flags = 4, .priority = -1);
    in->forms[1] = (berth_op_impl)IMPL("grown", "special", NULL, .flags = 1); // no device types
    for (size_t i = 0; i < BERTH_COUNT(in->forms); ++i) {
        in->forms[i].forward = fast_forward;
        in->forms[i].revision = i == 0 ? 1 : 3;
        in->impls[i] = &in->forms[i];
    }
    in->given = (berth_op_library){
        .size = sizeof(berth_op_library),
        .abi_min = BERTH_ABI(1, 0),
        .abi_max = BERTH_ABI_CURRENT,
        .id = "acme",
        .version = "1.0",
        .impls = in->impls,
        .impl_count = BERTH_COUNT(in->forms),
    };
}

static berth_status adopt(export_rig *in) {
    return berth_op_library_adopt(in->rig.registry, in->library, &in->given);
}

TEST(op_library_has_a_record_for_each_file_beside_the_plugin) {
    export_rig in;
    open_export(&in);
    CHECK_STR(in.library->file, "libfast.so");
    CHECK_STR(in.library->path, "./libfast.so");
    CHECK_STR(in.library->owner->id, "acme");
    CHECK_STR(berth_library_state_name(in.library->state), "not tried");
    CHECK_STR(berth_registry_library_at(in.rig.registry, 1)->file, "libother.so");
    const berth_op_entry *rms = berth_registry_find_op(in.rig.registry, "rms_norm");
    const berth_op_entry *grown = berth_registry_find_op(in.rig.registry, "grown");
    CHECK_PTR(grown->overrides[0]->library, in.library);
    CHECK_PTR(rms->impls[0]->library, in.library);
    CHECK_PTR(rms->impls[1]->library, berth_registry_library_at(in.rig.registry, 1));
    rig_close(&in.rig);
}

TEST(op_library_gives_forms_their_place_and_keeps_the_rest) {
    export_rig in;
    open_export(&in);
    CHECK_OK(adopt(&in));
    const berth_impl_entry *rms = berth_registry_find_op(in.rig.registry, "rms_norm")->impls[0];
    const berth_impl_entry *grown = berth_registry_find_op(in.rig.registry, "grown")->overrides[0];
    CHECK(rms->form.forward == fast_forward && rms->impl.forward == fake_forward);
    CHECK_INT(rms->form.priority, 7);
    CHECK_UINT(rms->form.flags, 4);
    CHECK_UINT(grown->form.flags, 1);
    CHECK_UINT(grown->form.revision, 3);
    CHECK_UINT(grown->impl.revision, 2);
    CHECK_UINT(grown->form.device_type_count, 1);
    CHECK_STR(grown->form.device_types[0], "fake");
    rig_close(&in.rig);
}

TEST(op_library_that_fails_fails_once_and_for_all) {
    export_rig in;
    open_export(&in);
    CHECK(!berth_op_library_open(in.rig.registry, in.library));
    CHECK_INT(in.library->state, BERTH_LIBRARY_FAILED);
    const char *reason = in.library->reason;
    CHECK_CONTAINS(reason, "cannot load the library: ./libfast.so");
    CHECK(!berth_op_library_open(in.rig.registry, in.library));
    CHECK_PTR(in.library->reason, reason); // nobody tried again
    const berth_op_library_entry *other = berth_registry_library_at(in.rig.registry, 1);
    CHECK_STR(berth_library_state_name(other->state), "not tried");
    rig_close(&in.rig);
}

// ---- refusals -----------------------------------------------------------------------------------

typedef void (*change_fn)(export_rig *in);

static void change_head(export_rig *in) {
    in->given.size = 16;
}
static void change_size(export_rig *in) {
    in->given.size = 32;
}
static void change_abi(export_rig *in) {
    in->given.abi_min = in->given.abi_max = BERTH_ABI(2, 0);
}
static void change_range(export_rig *in) {
    in->given.abi_max = BERTH_ABI(0, 9);
}
static void change_id(export_rig *in) {
    in->given.id = "other";
}
static void change_no_version(export_rig *in) {
    in->given.version = NULL;
}
static void change_version(export_rig *in) {
    in->given.version = "1.0.1";
}
static void change_no_array(export_rig *in) {
    in->given.impls = NULL;
}
static void change_count(export_rig *in) {
    in->given.impl_count = 5000;
}
static void change_missing(export_rig *in) {
    in->impls[1] = NULL;
}
static void change_forward(export_rig *in) {
    in->forms[0].forward = NULL;
}
static void change_short(export_rig *in) {
    in->forms[0].size = 40;
}
static void change_name(export_rig *in) {
    in->forms[0].name = "plane";
}
static void change_key(export_rig *in) {
    in->forms[0].dispatch_key = "cuda";
}
static void change_no_key(export_rig *in) {
    in->forms[0].dispatch_key = NULL;
}
static void change_override(export_rig *in) {
    in->forms[1].dispatch_key = "oot";
}
static void change_op(export_rig *in) {
    in->forms[0].op = "rms_norms";
}
static void change_fewer(export_rig *in) {
    in->given.impl_count = 1;
}
static void change_old(export_rig *in) {
    in->forms[1].revision = 1;
}
static void change_new(export_rig *in) {
    in->forms[0].revision = 2;
}
static void change_nested(export_rig *in) {
    in->forms[0].library = "libmore.so";
}
static uint64_t packed(const berth_op_site *site, uint64_t input) {
    (void)site;
    return input;
}
static void change_half(export_rig *in) {
    in->forms[0].packed_bytes = packed;
}

typedef struct refusal {
    const char *name;
    change_fn change;
    const char *text;
} refusal;

static const refusal refusals[] = {
    {"head",           change_head,       "berth_op_library.size is 16 bytes, too small for any ABI" },
    {"size",           change_size,       "ends before the required slot 'version'"                  },
    {"ABI",            change_abi,        "the library speaks ABI 2.0, this host 1.0 to 1.1"         },
    {"range",          change_range,      "the library's ABI range is 1.0 to 0.9, upside down"       },
    {"id",             change_id,         "it belongs to plugin 'other' 1.0, and this is 'acme' 1.0" },
    {"version",        change_version,    "plugin 'acme' 1.0.1, and this is 'acme' 1.0; install both"},
    {"no version",     change_no_version, "the required slot 'version' is not set"                   },
    {"no array",       change_no_array,   "2 implementations, but no array of them"                  },
    {"count",          change_count,      "5000 implementations; at most 4096"                       },
    {"missing",        change_missing,    "berth_op_impl is NULL"                                    },
    {"no forward",     change_forward,    "berth_op_impl: the required slot 'forward' is not set"    },
    {"short",          change_short,      "its size of 40 bytes ends before the required slot"       },
    {"name",           change_name,       "the library has no 'plain' of op 'rms_norm'"              },
    {"key",            change_key,        "the library has no 'plain' of op 'rms_norm'"              },
    {"no key",         change_no_key,     "the library has no 'plain' of op 'rms_norm'"              },
    {"override's key", change_override,   "the library has no 'special' of op 'grown'"               },
    {"op",             change_op,         "the library has no 'plain' of op 'rms_norm'"              },
    {"fewer",          change_fewer,      "the library has no 'special' of op 'grown'"               },
    {"old",            change_old,        "'special' is written for revision 1 of op 'grown'"        },
    {"new",            change_new,        "'plain' is written for revision 2 of op 'rms_norm'"       },
    {"nested",         change_nested,     "has the library 'libmore.so'; leave it NULL"              },
    {"half",           change_half,       "has only one of 'packed_bytes' and 'pack'"                },
};

static void check_refusal(void **state) {
    const refusal *row = *state;
    export_rig in;
    open_export(&in);
    row->change(&in);
    CHECK(adopt(&in) != BERTH_OK);
    CHECK_CONTAINS(berth_status_message(), row->text);
    rig_close(&in.rig);
}

TEST_CASES(op_library_is_refused) {
    for (size_t i = 0; i < BERTH_COUNT(refusals); ++i) {
        test_add(cases, refusals[i].name, check_refusal, (void *)&refusals[i]);
    }
}

// ---- who may name one ---------------------------------------------------------------------------

static const char *wanted_file = "";
FAKE(beta, BERTH_GROUP_GENERAL, {
    const berth_op_impl impl = IMPL("rms_norm", "beta", "oot", .library = wanted_file);
    return registrar->add_op_impl(registrar, &impl, 0);
});
FAKE(gamma, BERTH_GROUP_GENERAL, {
    const berth_op_impl impl = IMPL("rms_norm", "gamma", NULL, .library = "libfast.so");
    const berth_attention_backend backend = ATTENTION("gamma", &impl);
    return registrar->add_attention_backend(registrar, &backend, 0);
});

TEST(op_library_is_a_file_of_the_plugins_own_folder) {
    static const char *const paths[] = {
        "../libfast.so", "/tmp/libfast.so", "fast/lib.so", "..", ".lib.so", "lib fast.so", ""};
    for (size_t i = 0; i < BERTH_COUNT(paths); ++i) {
        rig in;
        rig_open(&in);
        wanted_file = paths[i];
        CHECK_REFUSED(rig_add(&in, &beta),
                      strpbrk(paths[i], " ") || !*paths[i] ? "is no name" : "own folder");
        rig_close(&in);
    }
}

TEST(op_library_is_nothing_that_an_attention_backend_has) {
    rig in;
    rig_open(&in);
    CHECK_REFUSED(rig_add(&in, &gamma), "has the library 'libfast.so'; leave it NULL");
    rig_close(&in);
}

TEST(op_library_needs_a_plugin_that_has_a_folder) {
    static const berth_plugin *const linked_in[] = {&acme};
    rig in;
    rig_open(&in);
    CHECK_STATUS(berth_registry_add_core(in.registry, linked_in, 1), BERTH_INTERNAL);
    CHECK_CONTAINS(berth_status_message(), "'acme' is linked into the host and has no folder");
    rig_close(&in);
}
