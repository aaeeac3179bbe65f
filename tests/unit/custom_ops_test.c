// SPDX-License-Identifier: Apache-2.0
// config: what custom_ops means. The rows are those of vLLM's table and its three errors, with one
// correction: an op has one id, and both of its spellings mean it.
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "config/config.h"
#include "support/test.h"

#define MOST_ITEMS 6

typedef struct list {
    berth_arena *arena;
    berth_config config;
    berth_custom_ops ops;
} list;

static void open_list(list *in, const char *const *items, int64_t mode, const char *backend) {
    *in = (list){0};
    CHECK_OK(berth_arena_create(4096, 1 << 20, &in->arena));
    in->config.arena = in->arena;
    in->config.compilation_mode = mode;
    in->config.compilation_backend = backend;
    const char **copies = BERTH_ARENA_ARRAY(in->arena, const char *, MOST_ITEMS);
    size_t count = 0;
    while (count < MOST_ITEMS && items[count] != NULL) {
        copies[count] = items[count];
        ++count;
    }
    in->config.custom_ops = (berth_option_list){.items = copies, .count = count};
}

static void close_list(list *in) {
    berth_arena_destroy(in->arena);
    berth_status_clear();
}

static bool is_enabled(const list *in, const char *id, const char *class_name) {
    berth_op_wish wish = BERTH_OP_DEFAULT;
    CHECK_OK(berth_custom_ops_wants(&in->ops, id, class_name, &wish));
    return berth_custom_ops_is_enabled(&in->ops, wish, true);
}

// ---- vLLM's table -------------------------------------------------------------------------------

typedef struct row {
    const char *name;
    const char *items[MOST_ITEMS];
    int64_t mode;
    const char *backend;
    bool rms;
    bool silu;
    bool gelu;
    bool relu3;
    bool is_default_on;
} row;

static const row rows[] = {
    {"1: nothing, mode 0, eager",               {NULL},                          0, "eager",    1, 1, 1, 1, 1},
    {"2: nothing, mode 1, eager",               {NULL},                          1, "eager",    1, 1, 1, 1, 1},
    {"3: nothing, mode 2, eager",               {NULL},                          2, "eager",    1, 1, 1, 1, 1},
    {"4: nothing, mode 3, eager",               {NULL},                          3, "eager",    1, 1, 1, 1, 1},
    {"5: nothing, mode 0, inductor",            {NULL},                          0, "inductor", 1, 1, 1, 1, 1},
    {"6: nothing, mode 1, inductor",            {NULL},                          1, "inductor", 0, 0, 0, 0, 0},
    {"7: nothing, mode 2, inductor",            {NULL},                          2, "inductor", 0, 0, 0, 0, 0},
    {"8: nothing, mode 3, inductor",            {NULL},                          3, "inductor", 0, 0, 0, 0, 0},
    {"9: +rms_norm,-silu_and_mul",              {"+rms_norm", "-silu_and_mul"},  0, "inductor", 1, 0, 1, 1, 1},
    {"10: none,-rms_norm,+relu3",               {"none", "-rms_norm", "+relu3"}, 1, "eager",    0, 0, 0, 1, 0},
    {"11: all,-silu_and_mul",                   {"all", "-silu_and_mul"},        2, "inductor", 1, 0, 1, 1, 1},
    {"12: -relu3,+relu2",                       {"-relu3", "+relu2"},            3, "eager",    1, 1, 1, 0, 1},
    {"13: none,-relu3,+rms_norm,+silu_and_mul",
     {"none", "-relu3", "+rms_norm", "+silu_and_mul"},
     3,                                                                             "eager",
     1,                                                                                            1,
     0,                                                                                                  0,
     0                                                                                                       },
    {"14: -rms_norm",                           {"-rms_norm"},                   3, "eager",    0, 1, 1, 1, 1},
    {"15: none,+relu3",                         {"none", "+relu3"},              3, "inductor", 0, 0, 0, 1, 0},
    {"16: all,-rms_norm",                       {"all", "-rms_norm"},            3, "inductor", 0, 1, 1, 1, 1},
};

static void check_row(void **state) {
    const row *wanted = *state;
    list in;
    open_list(&in, wanted->items, wanted->mode, wanted->backend);
    CHECK_OK(berth_custom_ops_parse(&in.config, NULL, &in.ops));
    CHECK_INT(in.ops.is_base_all, wanted->is_default_on);
    CHECK_INT(is_enabled(&in, "rms_norm", "RMSNorm"), wanted->rms);
    CHECK_INT(is_enabled(&in, "silu_and_mul", "SiluAndMul"), wanted->silu);
    CHECK_INT(is_enabled(&in, "gelu_and_mul", "GeluAndMul"), wanted->gelu);
    // A registered subclass of relu2 follows its own name, not its parent's.
    CHECK_INT(is_enabled(&in, "relu3", "ReLUCubedActivation"), wanted->relu3);
    close_list(&in);
}

TEST_CASES(custom_ops_row) {
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        test_add(cases, rows[i].name, check_row, (void *)&rows[i]);
    }
}

// ---- the errors ---------------------------------------------------------------------------------

typedef struct error_row {
    const char *name;
    const char *items[MOST_ITEMS];
    const char *text;
} error_row;

static const error_row error_rows[] = {
    {"two bases: all,none",                    {"all", "none"}, "custom_ops has two bases, 'all' and 'none'"},
    {"the same base twice: all,+rms_norm,all",
     {"all", "+rms_norm", "all"},
     "two bases, 'all' and 'all'"                                                                           },
    {"both signs: +rms_norm,-rms_norm",
     {"+rms_norm", "-rms_norm"},
     "has both +rms_norm and -rms_norm"                                                                     },
    {"a bare name",                            {"rms_norm"},    "'rms_norm' is none of all, none, +op"      },
    {"a sign alone",                           {"all", "+"},    "'+' is none of"                            },
    {"a sign and a blank",                     {"- "},          "'-' is none of"                            },
    {"an empty item",                          {""},            "'' is none of"                             },
    {"two items in one",                       {"all,-op"},     "'all,-op' is none of"                      },
    {"a signed base",                          {"+op,none"},    "'+op,none' is none of"                     },
};

static void check_error(void **state) {
    const error_row *wanted = *state;
    list in;
    open_list(&in, wanted->items, 0, "eager");
    CHECK_STATUS(berth_custom_ops_parse(&in.config, NULL, &in.ops), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), wanted->text);
    close_list(&in);
}

TEST_CASES(custom_ops_refuses) {
    for (size_t i = 0; i < BERTH_COUNT(error_rows); ++i) {
        test_add(cases, error_rows[i].name, check_error, (void *)&error_rows[i]);
    }
}

// ---- one op, two spellings ----------------------------------------------------------------------

TEST(custom_ops_takes_both_spellings_for_one_op) {
    static const char *const by_class[MOST_ITEMS] = {"all", "-RMSNorm"};
    static const char *const by_id[MOST_ITEMS] = {"none", "+rms_norm"};
    list in;
    open_list(&in, by_class, 0, "eager");
    CHECK_OK(berth_custom_ops_parse(&in.config, NULL, &in.ops));
    CHECK(!is_enabled(&in, "rms_norm", "RMSNorm"));
    CHECK(is_enabled(&in, "gemma_rms_norm", "GemmaRMSNorm"));
    close_list(&in);
    open_list(&in, by_id, 0, "eager");
    CHECK_OK(berth_custom_ops_parse(&in.config, NULL, &in.ops));
    CHECK(is_enabled(&in, "rms_norm", "RMSNorm"));
    CHECK(!is_enabled(&in, "gemma_rms_norm", "GemmaRMSNorm"));
    close_list(&in);
}

TEST(custom_ops_refuses_both_signs_under_two_spellings) {
    static const char *const items[MOST_ITEMS] = {"+rms_norm", "-RMSNorm"};
    berth_op_wish wish = BERTH_OP_DEFAULT;
    list in;
    open_list(&in, items, 0, "eager");
    CHECK_OK(berth_custom_ops_parse(&in.config, NULL, &in.ops));
    CHECK_STATUS(berth_custom_ops_wants(&in.ops, "rms_norm", "RMSNorm", &wish),
                 BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "both +rms_norm and -RMSNorm, which are one op");
    CHECK_OK(berth_custom_ops_wants(&in.ops, "silu_and_mul", "SiluAndMul", &wish));
    CHECK_INT(wish, BERTH_OP_DEFAULT);
    close_list(&in);
}

TEST(custom_ops_keeps_each_name_once_and_trims) {
    static const char *const items[MOST_ITEMS] = {" +a ", "+a", "- b", "\tall"};
    list in;
    open_list(&in, items, 0, "eager");
    CHECK_OK(berth_custom_ops_parse(&in.config, NULL, &in.ops));
    CHECK_UINT(in.ops.plus_count, 1);
    CHECK_STR(in.ops.plus[0], "a");
    CHECK_UINT(in.ops.minus_count, 1);
    CHECK_STR(in.ops.minus[0], "b");
    CHECK(in.ops.is_base_all && !in.ops.is_base_default);
    close_list(&in);
}

// ---- the truth table ----------------------------------------------------------------------------

typedef struct truth {
    const char *base; // NULL: nobody wrote one, and the host's rule says none
    berth_op_wish wish;
    bool has_decomposition;
    bool is_enabled;
} truth;

TEST(custom_ops_follows_the_truth_table) {
    static const truth table[] = {
        {"all",  BERTH_OP_DEFAULT, true,  true },
        {"all",  BERTH_OP_PLUS,    true,  true },
        {"all",  BERTH_OP_MINUS,   true,  false},
        {"none", BERTH_OP_DEFAULT, true,  false},
        {"none", BERTH_OP_DEFAULT, false, false}, // a written none turns everything off
        {"none", BERTH_OP_PLUS,    true,  true },
        {"none", BERTH_OP_MINUS,   true,  false},
        {NULL,   BERTH_OP_DEFAULT, true,  false},
        {NULL,   BERTH_OP_DEFAULT, false, true }, // the default none spares what cannot be fused
        {NULL,   BERTH_OP_PLUS,    true,  true },
        {NULL,   BERTH_OP_MINUS,   false, false},
    };
    for (size_t i = 0; i < BERTH_COUNT(table); ++i) {
        const char *const items[MOST_ITEMS] = {table[i].base};
        list in;
        open_list(&in, items, 3, "inductor");
        CHECK_OK(berth_custom_ops_parse(&in.config, NULL, &in.ops));
        CHECK_INT(in.ops.is_base_default, table[i].base == NULL);
        CHECK_INT(berth_custom_ops_is_enabled(&in.ops, table[i].wish, table[i].has_decomposition),
                  table[i].is_enabled);
        close_list(&in);
    }
}

TEST(custom_ops_takes_the_default_base_of_the_platform) {
    static const char *const nothing[MOST_ITEMS] = {"-rms_norm"};
    static const char *const written[MOST_ITEMS] = {"all"};
    list in;
    open_list(&in, nothing, 0, "eager");
    CHECK_OK(berth_custom_ops_parse(&in.config, "none", &in.ops));
    CHECK(!in.ops.is_base_all && !in.ops.is_base_default);
    CHECK(!is_enabled(&in, "linear", "Linear"));
    in.config.compilation_mode = 3;
    in.config.compilation_backend = "inductor";
    CHECK_OK(berth_custom_ops_parse(&in.config, "all", &in.ops));
    CHECK(in.ops.is_base_all);
    CHECK(!is_enabled(&in, "rms_norm", "RMSNorm")); // the user's items survive
    CHECK_STATUS(berth_custom_ops_parse(&in.config, "some", &in.ops), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "default_custom_ops is 'some'");
    close_list(&in);
    open_list(&in, written, 0, "eager");
    CHECK_OK(berth_custom_ops_parse(&in.config, "none", &in.ops));
    CHECK(in.ops.is_base_all); // what the user wrote wins
    close_list(&in);
}
