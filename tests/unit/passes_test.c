// SPDX-License-Identifier: Apache-2.0
// passes: where what is emitted stands, who may be fused, and what ends the build of a model. The
// passes are the test's own, over small ops; those of core-passes are in tests/passes.
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "passes/passes.h"
#include "support/alloc.h"
#include "support/test.h"
#include "support/test_plan.h"

// ---- fused ops ----------------------------------------------------------------------------------

// blend(x, residual?, weight?) {factor}: scale of norm; y[, x + residual].
static berth_status infer_blend(const berth_op_site *site, berth_op_result *out) {
    for (uint64_t i = 0; i < 2; ++i) {
        if (i == 0 || site->inputs[1] != NULL) {
            *out->types[out->count++] = *site->inputs[0];
        }
    }
    return BERTH_OK;
}

static berth_status never(void *self, const berth_op_args *args) {
    (void)self, (void)args;
    return BERTH_UNSUPPORTED;
}

static const berth_op_argument *const blend_inputs[] = {
    BERTH_INPUT("x"),
    BERTH_OPTIONAL_INPUT("residual"),
    BERTH_OPTIONAL_INPUT("weight"),
};
static const berth_op_attribute *const blend_attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("factor", BERTH_ATTRIBUTE_F64),
};
static const berth_op_argument *const total[] = {BERTH_INPUT("total")};

static const berth_op blend = {
    .size = sizeof(berth_op),
    .name = "blend",
    .class_name = "Blend",
    .revision = 1,
    .inputs = blend_inputs,
    .input_count = BERTH_COUNT(blend_inputs),
    .attributes = blend_attributes,
    .attribute_count = 1,
    .infer = infer_blend,
    .reference = never,
};
// gather_up(x; total) {factor}: accumulate of scale.
static const berth_op gather_up = {
    .size = sizeof(berth_op),
    .name = "gather_up",
    .class_name = "GatherUp",
    .revision = 1,
    .inputs = blend_inputs,
    .input_count = 1,
    .states = total,
    .state_count = 1,
    .attributes = blend_attributes,
    .attribute_count = 1,
    .infer = infer_blend,
    .reference = never,
};
// attend(x; key_cache, value_cache) {factor}: paged_attention of one value.
static const berth_op_argument *const caches[] = {BERTH_INPUT("key_cache"),
                                                  BERTH_INPUT("value_cache")};
static const berth_op attend = {
    .size = sizeof(berth_op),
    .name = "attend",
    .class_name = "Attend",
    .revision = 1,
    .inputs = blend_inputs,
    .input_count = 1,
    .states = caches,
    .state_count = BERTH_COUNT(caches),
    .attributes = blend_attributes,
    .attribute_count = 1,
    .infer = infer_blend,
    .reference = never,
};
static const berth_op *const fused_ops[] = {&blend, &gather_up, &attend};

// What `supports` says: no to the layer named here.
static const char *refused_layer = "";

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return strcmp(site->layer, refused_layer) == 0
               ? BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "not this one")
               : BERTH_OK;
}

static const char *const cpu_only[] = {"cpu"};
#define FUSED(op_id)                                                                               \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (op_id), .name = "fused", .dispatch_key = "cpu",      \
        .revision = 1, .supports = supports, .forward = test_host_forward                          \
    }
static const berth_op_impl fused_impls[] = {FUSED("blend"), FUSED("gather_up"), FUSED("accumulate"),
                                            FUSED("attend")};
static const berth_op_impl norm_override = {
    .size = sizeof(berth_op_impl),
    .op = "norm",
    .name = "dear",
    .revision = 1,
    .device_types = cpu_only,
    .device_type_count = 1,
    .forward = test_host_forward,
};

// ---- passes -------------------------------------------------------------------------------------

#define PASS(pass_name, pass_priority, list)                                                       \
    {                                                                                              \
        .size = sizeof(berth_pass), .name = (pass_name), .revision = 1,                            \
        .priority = (pass_priority), .patterns = (list), .pattern_count = 1                        \
    }

enum { NORM, SCALE };
static const berth_pass_node *const norm_scale[] = {
    BERTH_PASS_FIRST("norm"),
    BERTH_PASS_NODE("scale", BERTH_PASS_INPUT("x", NORM, 0)),
};

static berth_value emit_blend(const berth_pass_match *match, berth_builder *builder,
                              const char *name, berth_value outputs[2], uint64_t count) {
    return BERTH_EMIT(builder, name, .prefix = match->sites[SCALE]->layer,
                      BERTH_INPUTS(berth_pass_value(match, NORM, "x"),
                                   berth_pass_value(match, NORM, "residual"),
                                   berth_pass_value(match, NORM, "weight")),
                      BERTH_ATTRIBUTES(berth_pass_attribute(match, SCALE, "factor")),
                      .outputs = outputs, .output_count = count);
}

static berth_status fuse(const berth_pass_match *match, berth_builder *builder) {
    berth_value outputs[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    const int has_residual = berth_pass_type(match, NORM, "residual") != NULL;
    if (berth_pass_attribute(match, SCALE, "bias")->f64 != 0) {
        return BERTH_NOT_FOUND;
    }
    (void)emit_blend(match, builder, "blend", outputs, has_residual ? 2 : 1);
    match->replace(match, match->outputs[SCALE][0], outputs[0]);
    if (has_residual) {
        match->replace(match, match->outputs[NORM][1], outputs[1]);
    }
    return BERTH_OK;
}
static const berth_pass_pattern *const fusing[] = {BERTH_PASS_PATTERN(norm_scale, fuse)};
static const berth_pass fuse_norm_scale = PASS("fuse_norm_scale", 10, fusing);

enum { ADDEND, CHANGE };
static const berth_pass_node *const scale_accumulate[] = {
    BERTH_PASS_FIRST("scale"),
    BERTH_PASS_NODE("accumulate", BERTH_PASS_INPUT("x", ADDEND, 0)),
};

static berth_status fuse_change(const berth_pass_match *match, berth_builder *builder) {
    const berth_value y =
        BERTH_EMIT(builder, "gather_up", .prefix = match->sites[CHANGE]->layer,
                   BERTH_INPUTS(berth_pass_value(match, ADDEND, "x")),
                   BERTH_ATTRIBUTES(berth_pass_attribute(match, ADDEND, "factor")));
    match->replace(match, match->outputs[CHANGE][0], y);
    return BERTH_OK;
}
static const berth_pass_pattern *const changing[] = {
    BERTH_PASS_PATTERN(scale_accumulate, fuse_change),
};
static const berth_pass fuse_scale_accumulate = PASS("fuse_scale_accumulate", 5, changing);

static const berth_pass_node *const reshape[] = {BERTH_PASS_FIRST("reshape")};

// A view of the same shape is what it is a view of.
static berth_status drop_view(const berth_pass_match *match, berth_builder *builder) {
    const berth_value_type from = *builder->type(builder, match->inputs[0][0]);
    const berth_value_type *to = builder->type(builder, match->outputs[0][0]);
    if (from.ndim != to->ndim ||
        memcmp(from.dims, to->dims, from.ndim * sizeof from.dims[0]) != 0) {
        return BERTH_NOT_FOUND;
    }
    match->replace(match, match->outputs[0][0], match->inputs[0][0]);
    return BERTH_OK;
}
static const berth_pass_pattern *const dropping[] = {BERTH_PASS_PATTERN(reshape, drop_view)};
static const berth_pass eliminate_noops = PASS("eliminate_noops", 20, dropping);

// A small pass of mistakes, one at a time.
static int mistake;
static berth_status go_wrong(const berth_pass_match *match, berth_builder *builder) {
    berth_value outputs[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    const berth_value x = berth_pass_value(match, NORM, "x");
    const berth_value y = match->outputs[SCALE][0];
    switch (mistake) {
    case 0: // an op that is not there
        match->replace(match, y, emit_blend(match, builder, "blond", outputs, 1));
        break;
    case 1: // another type
        match->replace(match, y, BERTH_EMIT(builder, "column_sum", BERTH_INPUTS(x)));
        break;
    case 2: // what it takes away
        match->replace(match, y,
                       BERTH_EMIT(builder, "contiguous", BERTH_INPUTS(match->outputs[NORM][0])));
        break;
    case 3: // nothing
        match->replace(match, y, BERTH_VALUE_NONE);
        break;
    case 4: // what is no output of its own
        match->replace(match, x, y);
        break;
    case 5: // weights are a model's
        (void)builder->parameter(builder,
                                 &(const berth_parameter){.size = sizeof(berth_parameter)});
        break;
    case 6: // a state that nobody changed there
        match->replace(match, y,
                       BERTH_EMIT(builder, "accumulate", .prefix = "sum", BERTH_INPUTS(x)));
        break;
    default:
        return BERTH_PLUGIN_FAIL(match->host, BERTH_UNSUPPORTED, "cannot make up its mind");
    }
    return BERTH_OK;
}
static const berth_pass_pattern *const mistaken[] = {BERTH_PASS_PATTERN(norm_scale, go_wrong)};
static const berth_pass wrong = PASS("wrong", 0, mistaken);

static const berth_pass *const good_passes[] = {&fuse_scale_accumulate, &eliminate_noops,
                                                &fuse_norm_scale};
static const berth_pass *const wrong_passes[] = {&wrong};

#define CONTENT(list, ...)                                                                         \
    {                                                                                              \
        .ops = fused_ops, .op_count = BERTH_COUNT(fused_ops), .passes = (list),                    \
        .pass_count = BERTH_COUNT(list), __VA_ARGS__                                               \
    }
#define WITH_IMPLS .impls = fused_impls, .impl_count = BERTH_COUNT(fused_impls)
static const test_content good = CONTENT(good_passes, WITH_IMPLS);

// ---- running them -------------------------------------------------------------------------------

static void check_passes(test_plan *it, const char *before, const char *after) {
    berth_graph *better = NULL;
    test_plan_parse(it, before);
    const berth_plan_request request = test_plan_request(it);
    const berth_status status = berth_passes_run(&request, &better);
    CHECK_STR(status == BERTH_OK ? "" : berth_status_message(), "");
    if (after == NULL) {
        CHECK(better == NULL);
    } else {
        berth_text text;
        CHECK(better != NULL);
        berth_text_init(&text, 1 << 16);
        berth_graph_print(better, &text);
        CHECK_STR(text.data, after);
        berth_text_deinit(&text);
        CHECK_OK(berth_graph_verify(better, it->registry));
    }
    berth_graph_destroy(better);
    berth_graph_destroy(it->graph);
    it->graph = NULL;
}

#define ROOTS                                                                                      \
    "graph \"g\" {\n"                                                                              \
    "  %1 = input token_ids : i32[s0]\n"                                                           \
    "  %2 = parameter \"w\" : f32[16, 8]\n"                                                        \
    "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"

static const char *const plain = ROOTS "  %4 = norm(%3) {eps = 0.1} @\"n\" : f32[s0, 8]\n"
                                       "  %5 = scale(%4) {factor = 2.0} @\"s\" : f32[s0, 8]\n"
                                       "  output y = %5\n}\n";
static const char *const blended =
    ROOTS "  %4 = blend(%3) {factor = 2.0} @\"s\" : f32[s0, 8]\n  output y = %4\n}\n";

typedef struct pass_case {
    const char *name;
    const char *before;
    const char *after; // NULL: the same
} pass_case;

static pass_case cases_of_places[] = {
    {"nothing to find",                           ROOTS "  output y = %3\n}\n", NULL},
    {"a condition that does not hold",
     ROOTS "  %4 = norm(%3) {eps = 0.1} @\"n\" : f32[s0, 8]\n"
           "  %5 = scale(%4) {factor = 2.0, bias = 1.0} @\"s\" : f32[s0, 8]\n"
           "  output y = %5\n}\n",                                              NULL},
 // The second norm has the first one's sum, so the second fusion stands on the first.
    {"two fusions, one behind the other",
     ROOTS "  %4 = norm(%3) {eps = 0.1} @\"n0\" : f32[s0, 8]\n"
           "  %5 = scale(%4) {factor = 2.0} @\"s0\" : f32[s0, 8]\n"
           "  %6, %7 = norm(%5, %3) {eps = 0.1} @\"n1\" : f32[s0, 8], f32[s0, 8]\n"
           "  %8 = scale(%6) {factor = 3.0} @\"s1\" : f32[s0, 8]\n"
           "  %9 = add(%7, %8) : f32[s0, 8]\n"
           "  output y = %9\n}\n",                                              ROOTS "  %4 = blend(%3) {factor = 2.0} @\"s0\" : f32[s0, 8]\n"
           "  %5, %6 = blend(%4, %3) {factor = 3.0} @\"s1\" : f32[s0, 8], f32[s0, 8]\n"
           "  %7 = add(%6, %5) : f32[s0, 8]\n"
           "  output y = %7\n}\n"                 },
 // The sum is wanted before the scale: the fusion stands there, before the line of the weight.
    {"an output that is used early",
     ROOTS "  %4, %5 = norm(%3, %3) {eps = 0.1} @\"n\" : f32[s0, 8], f32[s0, 8]\n"
           "  %6 = contiguous(%5) : f32[s0, 8]\n"
           "  %7 = scale(%4) {factor = 2.0} @\"s\" : f32[s0, 8]\n"
           "  %8 = add(%6, %7) : f32[s0, 8]\n"
           "  output y = %8\n}\n",                                              ROOTS "  %4, %5 = blend(%3, %3) {factor = 2.0} @\"s\" : f32[s0, 8], f32[s0, 8]\n"
           "  %6 = contiguous(%5) : f32[s0, 8]\n"
           "  %7 = add(%6, %4) : f32[s0, 8]\n"
           "  output y = %7\n}\n"                 },
    {"a value that others use, too",
     ROOTS "  %4 = norm(%3) {eps = 0.1} @\"n\" : f32[s0, 8]\n"
           "  %5 = scale(%4) {factor = 2.0} @\"s\" : f32[s0, 8]\n"
           "  %6 = add(%4, %5) : f32[s0, 8]\n"
           "  output y = %6\n}\n",                                              NULL},
    {"a value that is an output",
     ROOTS "  %4 = norm(%3) {eps = 0.1} @\"n\" : f32[s0, 8]\n"
           "  %5 = scale(%4) {factor = 2.0} @\"s\" : f32[s0, 8]\n"
           "  output y = %5\n"
           "  output n = %4\n}\n",                                              NULL},
    {"views of the same shape, one of the other",
     ROOTS "  %4 = reshape %3 : f32[s0, 8]\n"
           "  %5 = reshape %4 : f32[s0, 8]\n"
           "  %6 = reshape %5 : f32[s0, 2, 4]\n"
           "  %7 = slice %6 dim 1 from 0 length 1 : f32[s0, 1, 4]\n"
           "  output y = %7\n"
           "  output z = %5\n}\n",                                              ROOTS "  %4 = reshape %3 : f32[s0, 2, 4]\n"
           "  %5 = slice %4 dim 1 from 0 length 1 : f32[s0, 1, 4]\n"
           "  output y = %5\n"
           "  output z = %3\n}\n"                 },
 // States change where they changed before, whatever stands between.
    {"states of two layers",
     ROOTS "  %4 = state \"a\" 0 : f32[8]\n"
           "  %5 = state \"b\" 0 : f32[8]\n"
           "  %6 = scale(%3) {factor = 2.0} @\"s\" : f32[s0, 8]\n"
           "  %7, %8' = accumulate(%3; %5) @\"b\" : f32[s0, 8]\n"
           "  %9, %10' = accumulate(%6; %4) @\"a\" : f32[s0, 8]\n"
           "  %11, %12' = accumulate(%9; %8) @\"b\" : f32[s0, 8]\n"
           "  %13, %14' = accumulate(%7; %10) @\"a\" : f32[s0, 8]\n"
           "  output y = %11\n"
           "  output z = %13\n}\n",                                             ROOTS "  %4 = state \"a\" 0 : f32[8]\n"
           "  %5 = state \"b\" 0 : f32[8]\n"
           "  %6, %7' = accumulate(%3; %5) @\"b\" : f32[s0, 8]\n"
           "  %8, %9' = gather_up(%3; %4) {factor = 2.0} @\"a\" : f32[s0, 8]\n"
           "  %10, %11' = accumulate(%8; %7) @\"b\" : f32[s0, 8]\n"
           "  %12, %13' = accumulate(%6; %9) @\"a\" : f32[s0, 8]\n"
           "  output y = %10\n"
           "  output z = %12\n}\n"               },
    {"three passes, the highest priority first",
     ROOTS "  %4 = state \"a\" 0 : f32[8]\n"
           "  %5 = norm(%3) {eps = 0.1} @\"n\" : f32[s0, 8]\n"
           "  %6 = reshape %5 : f32[s0, 8]\n"
           "  %7 = scale(%6) {factor = 2.0} @\"s\" : f32[s0, 8]\n"
           "  %8, %9' = accumulate(%7; %4) @\"a\" : f32[s0, 8]\n"
           "  output y = %8\n}\n",                                              ROOTS "  %4 = state \"a\" 0 : f32[8]\n"
           "  %5 = blend(%3) {factor = 2.0} @\"s\" : f32[s0, 8]\n"
           "  %6, %7' = accumulate(%5; %4) @\"a\" : f32[s0, 8]\n"
           "  output y = %6\n}\n"                 },
};

static void check_place(void **state) {
    const pass_case *row = *state;
    test_plan it;
    test_plan_open(&it, &good, "fake-host");
    check_passes(&it, row->before, row->after);
    test_plan_close(&it);
}

TEST_CASES(passes_find_a_place_for) {
    for (size_t i = 0; i < BERTH_COUNT(cases_of_places); ++i) {
        test_add(cases, cases_of_places[i].name, check_place, &cases_of_places[i]);
    }
}

// ---- who may be fused ---------------------------------------------------------------------------

static void check_with(const test_content *content, const char *platform, const char *custom_ops,
                       const char *after) {
    test_plan it;
    test_plan_open(&it, content, platform);
    test_plan_list(&it, &it.config.custom_ops, custom_ops);
    check_passes(&it, plain, after);
    test_plan_close(&it);
}

TEST(passes_fuse_only_what_the_platform_runs) {
    static const test_content without = CONTENT(good_passes, .impls = NULL);
    check_with(&good, "fake-host", "all", blended);
    check_with(&without, "fake-host", "all", NULL);
    check_with(&good, "fake-streams", "all", NULL); // another key
    check_with(&good, "fake-device", "all", NULL);
    check_with(&good, NULL, "all", NULL);
    refused_layer = "s";
    check_with(&good, "fake-host", "all", NULL);
    refused_layer = "";
}

TEST(passes_leave_what_custom_ops_switch_off) {
    check_with(&good, "fake-host", "none", NULL);
    check_with(&good, "fake-host", "-blend", NULL);
    check_with(&good, "fake-host", "-Blend", NULL);
    check_with(&good, "fake-host", "-norm", NULL);
    check_with(&good, "fake-host", "-scale", NULL);
    check_with(&good, "fake-host", "none,+blend", NULL);
    check_with(&good, "fake-host", "none,+blend,+norm,+scale", blended);
}

TEST(passes_fuse_what_the_same_plugin_overrides) {
    static const test_content content =
        CONTENT(good_passes, WITH_IMPLS, .overrides = &norm_override, .override_count = 1);
    // Of another plugin's override: tests/integration/passes_test.c.
    check_with(&content, "fake-host", "all", blended);
}

// ---- attention ----------------------------------------------------------------------------------

static const berth_pass_node *const attention[] = {BERTH_PASS_FIRST("paged_attention")};

static berth_status fuse_attention(const berth_pass_match *match, berth_builder *builder) {
    const berth_value y = BERTH_EMIT(builder, "attend", .prefix = match->sites[0]->layer,
                                     BERTH_INPUTS(berth_pass_value(match, 0, "query")),
                                     BERTH_ATTRIBUTES(BERTH_F64("factor", 2)));
    match->replace(match, match->outputs[0][0], y);
    return BERTH_OK;
}
static const berth_pass_pattern *const attending[] = {
    BERTH_PASS_PATTERN(attention, fuse_attention)};
static const berth_pass fuse_attend = PASS("fuse_attend", 10, attending);
static const berth_pass *const attention_passes[] = {&fuse_attend};

static berth_status get_backend(void *self, const berth_attention_query *query,
                                const berth_attention_backend **out) {
    static const berth_op_impl impl = {
        .size = sizeof(impl),
        .op = "paged_attention",
        .name = "flash-impl",
        .revision = 1,
        .forward = test_host_forward,
    };
    static const berth_attention_backend backend = {
        .size = sizeof(backend), .name = "flash", .impl = &impl};
    (void)self, (void)query;
    *out = &backend;
    return BERTH_OK;
}

#define ATTENTION_ROOTS                                                                            \
    ROOTS "  %4 = reshape %3 : f32[s0, 2, 4]\n"                                                    \
          "  %5 = state \"attn\" 0 : f32[4, 2, 4]\n"                                               \
          "  %6 = state \"attn\" 1 : f32[4, 2, 4]\n"

static void check_attention(const test_content *content, const char *after) {
    test_plan it;
    test_plan_open(&it, content, "fake-host");
    test_plan_cache(&it, "attn", 2, 4);
    check_passes(&it,
                 ATTENTION_ROOTS "  %7, %8', %9' = paged_attention(%4, %4, %4; %5, %6) "
                                 "{scale = 2.0} @\"attn\" : f32[s0, 2, 4]\n"
                                 "  output y = %7\n}\n",
                 after);
    test_plan_close(&it);
}

TEST(passes_leave_what_an_attention_backend_runs) {
    static const test_content without = CONTENT(attention_passes, WITH_IMPLS);
    static const test_content with =
        CONTENT(attention_passes, WITH_IMPLS, .get_attn_backend = get_backend);
    check_attention(&without, ATTENTION_ROOTS
                    "  %7, %8', %9' = attend(%4; %5, %6) {factor = 2.0} @\"attn\" : "
                    "f32[s0, 2, 4]\n"
                    "  output y = %7\n}\n");
    check_attention(&with, NULL);
}

TEST(passes_are_switched_off_by_name) {
    test_plan it;
    test_plan_open(&it, &good, "fake-host");
    test_plan_list(&it, &it.config.disabled_passes, "nobody, fuse_norm_scale");
    check_passes(&it, plain, NULL);
    test_plan_close(&it);
}

TEST(passes_name_themselves_in_the_plan) {
    test_plan it;
    berth_graph *better = NULL;
    test_plan_open(&it, &good, "fake-host");
    test_plan_parse(&it, plain);
    const berth_plan_request request = test_plan_request(&it);
    CHECK_OK(berth_passes_run(&request, &better));
    berth_graph_destroy(it.graph);
    it.graph = better;
    CHECK_OK(test_plan_create(&it));
    CHECK_UINT(berth_plan_site_count(it.plan), 2);
    CHECK_NULL(berth_plan_site(it.plan, 0)->pass);
    CHECK_STR(berth_plan_site(it.plan, 1)->op, "blend");
    CHECK_STR(berth_plan_site(it.plan, 1)->pass, "fuse_norm_scale");
    test_plan_close(&it);
}

// The n-th allocation and all after it fail, for every n.
TEST(passes_give_up_wherever_memory_ends) {
    test_plan it;
    uint64_t refused = 1;
    if (!test_alloc_fail_from(0)) {
        SKIP("a sanitizer's allocator cannot refuse");
    }
    test_plan_open(&it, &good, "fake-host");
    test_plan_parse(&it, plain);
    const berth_plan_request request = test_plan_request(&it);
    for (bool is_through = false; !is_through; ++refused) {
        berth_graph *better = NULL;
        (void)test_alloc_fail_from(refused);
        const berth_status status = berth_passes_run(&request, &better);
        is_through = !test_alloc_has_failed();
        (void)test_alloc_fail_from(0);
        CHECK_STATUS(status, is_through ? BERTH_OK : BERTH_OUT_OF_MEMORY);
        CHECK((better != NULL) == is_through);
        berth_graph_destroy(better);
    }
    CHECK(refused > 20);
    berth_status_clear();
    test_plan_close(&it);
}

// ---- mistakes -----------------------------------------------------------------------------------

static const char *const blames[] = {
    "there is no op 'blond'; did you mean 'blend'?",
    "it replaces a value of another type: f32[s0, 8] by f32[1, 8]",
    "what it emits uses %5, which is neither its own nor there before the match",
    "it replaces %6 by %0, which is neither its own nor there before the match",
    "it replaces %3, which is no output of a matched node",
    "a pass calls 'parameter' of its builder, which is for models and layers",
    "the states of layer 'sum' are changed where those of '' were",
    "cannot make up its mind",
};

static void check_blame(void **state) {
    static const test_content content = CONTENT(wrong_passes, WITH_IMPLS);
    const char *const *blame = *state;
    test_plan it;
    berth_graph *better = NULL;
    mistake = (int)(blame - blames);
    test_plan_open(&it, &content, "fake-host");
    test_plan_parse(&it, ROOTS "  %4 = state \"sum\" 0 : f32[8]\n"
                               "  %5 = norm(%3) {eps = 0.1} @\"n\" : f32[s0, 8]\n"
                               "  %6 = scale(%5) {factor = 2.0} @\"s\" : f32[s0, 8]\n"
                               "  output y = %6\n}\n");
    const berth_plan_request request = test_plan_request(&it);
    CHECK_STATUS(berth_passes_run(&request, &better), BERTH_INTERNAL);
    CHECK_NULL(better);
    CHECK_CONTAINS(berth_status_message(), "pass 'wrong' of plugin 'content'");
    CHECK_CONTAINS(berth_status_message(), *blame);
    berth_status_clear();
    test_plan_close(&it);
}

TEST_CASES(passes_blame_the_pass_for) {
    for (size_t i = 0; i < BERTH_COUNT(blames); ++i) {
        test_add(cases, blames[i], check_blame, (void *)(uintptr_t)&blames[i]);
    }
}
