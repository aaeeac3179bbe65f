// SPDX-License-Identifier: Apache-2.0
// registry: passes. What a table of patterns must be to be taken, and what the freeze finds.
#include "registry_rig.h"

#include "base/array.h"

static const berth_op op_rms = OP("rms_norm", "RMSNorm");
static const berth_pass_node *const norm[] = {BERTH_PASS_FIRST("rms_norm")};
static const berth_pass_node *const misspelt[] = {BERTH_PASS_FIRST("rms_nrom")};
static const berth_pass_node *const unknown_input[] = {
    BERTH_PASS_FIRST("reshape"),
    BERTH_PASS_NODE("rms_norm", BERTH_PASS_INPUT("why", 0, 0)),
};
static const berth_pass_node *const backward[] = {
    BERTH_PASS_NODE("reshape", BERTH_PASS_INPUT("x", 1, 0)),
    BERTH_PASS_FIRST("slice"),
};
static const berth_pass_node *const apart[] = {
    BERTH_PASS_FIRST("reshape"),
    BERTH_PASS_FIRST("slice"),
};

#define OF(pass_name, list, count, its_flag)                                                       \
    {                                                                                              \
        .size = sizeof(berth_pass), .name = (pass_name), .revision = 1, .flag = (its_flag),        \
        .patterns = (list), .pattern_count = (count)                                               \
    }

static const berth_pass_pattern *const of_norm[] = {BERTH_PASS_PATTERN(norm, rig_rewrite)};
static const berth_pass_pattern *const of_misspelt[] = {BERTH_PASS_PATTERN(misspelt, rig_rewrite)};
static const berth_pass_pattern *const of_unknown[] = {
    BERTH_PASS_PATTERN(unknown_input, rig_rewrite)};
static const berth_pass_pattern *const of_backward[] = {BERTH_PASS_PATTERN(backward, rig_rewrite)};
static const berth_pass_pattern *const of_apart[] = {BERTH_PASS_PATTERN(apart, rig_rewrite)};
static const berth_pass_pattern empty = {
    .size = sizeof(empty),
    .nodes = norm,
    .rewrite = rig_rewrite,
};
static const berth_pass_pattern *const of_empty[] = {&empty};
static const berth_pass_pattern bare = {.size = sizeof(bare), .nodes = norm, .node_count = 1};
static const berth_pass_pattern *const of_bare[] = {&bare};
static const berth_pass_node anonymous = {.size = sizeof(anonymous)};
static const berth_pass_node *const of_anonymous_node[] = {&anonymous};
static const berth_pass_pattern *const of_anonymous[] = {
    BERTH_PASS_PATTERN(of_anonymous_node, rig_rewrite)};
static const berth_pass_node *const of_nameless_input[] = {
    BERTH_PASS_FIRST("reshape"),
    BERTH_PASS_NODE("rms_norm", BERTH_PASS_INPUT(NULL, 0, 0)),
};
static const berth_pass_pattern *const of_nameless[] = {
    BERTH_PASS_PATTERN(of_nameless_input, rig_rewrite)};

typedef struct refusal {
    const char *name;
    berth_pass pass;
    const char *words[2];
} refusal;

static const refusal refusals[] = {
    {"a flag that is no key",
     OF("fuse",                                 of_norm,      1,  "fuse_everything"),
     {"pass 'fuse' has the flag 'fuse_everything'", "compilation.pass_config.fuse_everything"}                                      },
    {"a name that is none",      OF("fuse all", of_norm,      1,  NULL),              {"berth_pass.name", "is no name"}             },
    {"no patterns",              OF("fuse",     of_norm,      0,  NULL),              {"pass 'fuse' has no patterns", ""}           },
    {"too many patterns",        OF("fuse",     of_norm,      65, NULL),              {"patterns", "more than 64"}                  },
    {"no nodes",                 OF("fuse",     of_empty,     1,  NULL),              {"a pattern has no nodes", ""}                },
    {"no rewrite",               OF("fuse",     of_bare,      1,  NULL),              {"berth_pass_pattern", "'rewrite' is not set"}},
    {"a node without an op",
     OF("fuse",                                 of_anonymous, 1,  NULL),
     {"berth_pass_node", "'op' is not set"}                                                                                         },
    {"an input without a name",
     OF("fuse",                                 of_nameless,  1,  NULL),
     {"berth_pass_input", "'name' is not set"}                                                                                      },
    {"an input of a later node",
     OF("fuse",                                 of_backward,  1,  NULL),
     {"node 0 (reshape) takes 'x' from node 1", "must come before it"}                                                              },
    {"a node that nobody uses",
     OF("fuse",                                 of_apart,     1,  NULL),
     {"node 0 (reshape) is no input of a later one", ""}                                                                            },
};

static berth_pass given;
FAKE(adds_given, BERTH_GROUP_GENERAL, { return registrar->add_pass(registrar, &given, 0); });
FAKE(adds_op, BERTH_GROUP_GENERAL, { return registrar->add_op(registrar, &op_rms, 0); });

static void check_refusal(void **state) {
    const refusal *row = *state;
    rig in;
    rig_open(&in);
    given = row->pass;
    const berth_candidate *candidate = rig_add(&in, &adds_given);
    CHECK_REFUSED(candidate, row->words[0]);
    CHECK_CONTAINS(candidate->reason, row->words[1]);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_UINT(berth_registry_pass_count(in.registry), 0);
    rig_close(&in);
}

TEST_CASES(registry_refuses_a_pass_with) {
    for (size_t i = 0; i < BERTH_COUNT(refusals); ++i) {
        test_add(cases, refusals[i].name, check_refusal, (void *)&refusals[i]);
    }
}

static void check_freeze(const berth_pass *pass, const char *words) {
    rig in;
    rig_open(&in);
    given = *pass;
    const berth_candidate *of_op = rig_add(&in, &adds_op);
    const berth_candidate *of_pass = rig_add(&in, &adds_given);
    CHECK_STATE(of_pass, BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_STATE(of_op, BERTH_PLUGIN_ACTIVE);
    if (words != NULL) {
        CHECK_REFUSED(of_pass, words);
    }
    CHECK_UINT(berth_registry_pass_count(in.registry), words == NULL);
    rig_close(&in);
}

TEST(registry_refuses_a_pass_that_looks_for_what_is_not_there) {
    check_freeze(&(berth_pass)OF("fuse", of_norm, 1, "fuse_norm_linear"), NULL);
    check_freeze(&(berth_pass)OF("fuse", of_misspelt, 1, NULL),
                 "pass 'fuse' looks for the op 'rms_nrom', which is not there; did you mean "
                 "'rms_norm'?");
    check_freeze(&(berth_pass)OF("fuse", of_unknown, 1, NULL),
                 "pass 'fuse' looks for the input 'why' of op 'rms_norm'");
}

static uint64_t digest_of(const berth_pass *pass) {
    rig in;
    rig_open(&in);
    given = *pass;
    (void)rig_add(&in, &adds_op);
    (void)rig_add(&in, &adds_given);
    CHECK_OK(berth_registry_freeze(in.registry));
    const uint64_t digest = berth_registry_digest(in.registry);
    rig_close(&in);
    return digest;
}

TEST(registry_digest_knows_passes_by_name_revision_and_priority) {
    const berth_pass first = OF("fuse", of_norm, 1, NULL);
    berth_pass other = first;
    CHECK_UINT(digest_of(&first), digest_of(&other));
    other.revision = 2;
    CHECK(digest_of(&first) != digest_of(&other));
    other = first;
    other.priority = 3;
    CHECK(digest_of(&first) != digest_of(&other));
    other = first;
    other.name = "melt";
    CHECK(digest_of(&first) != digest_of(&other));
}

FAKE(half_done, BERTH_GROUP_GENERAL, {
    const berth_pass pass = OF("fuse", of_norm, 1, NULL);
    const berth_status status = registrar->add_pass(registrar, &pass, 0);
    return status == BERTH_OK ? registrar->add_op(registrar, NULL, 0) : status;
});

TEST(registry_drops_a_pass_with_its_entry_point) {
    rig in;
    rig_open(&in);
    (void)rig_add(&in, &adds_op);
    CHECK_REFUSED(rig_add(&in, &half_done), "berth_op is NULL");
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_UINT(berth_registry_pass_count(in.registry), 0);
    rig_close(&in);
}
