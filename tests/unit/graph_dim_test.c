// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"
#include "support/test.h"

static berth_dim dim(int64_t a, int64_t b, int64_t c) {
    return (berth_dim){.symbol = BERTH_SYMBOL_TOKENS, .a = a, .b = b, .c = c};
}

static void check_prints(berth_dim given, const char *wanted) {
    berth_dim normal;
    berth_text text;
    const char *cstr = NULL;
    CHECK_OK(berth_dim_normalise(given, &normal));
    berth_text_init(&text, 256);
    berth_dim_print(normal, &text);
    CHECK_OK(berth_text_finish(&text, &cstr));
    CHECK_STR(cstr, wanted);
    berth_text_deinit(&text);
}

TEST(graph_dim_prints_its_normal_form) {
    check_prints(BERTH_DIM_CONST(64), "64");
    check_prints(BERTH_DIM_TOKENS, "s0");
    check_prints(BERTH_DIM_SEQUENCES, "s1");
    check_prints(dim(2, 0, 1), "2*s0");
    check_prints(dim(2, 3, 1), "2*s0+3");
    check_prints(dim(3, -1, 2), "ceil((3*s0-1)/2)");
    check_prints(dim(1, 0, 4), "ceil(s0/4)");
    check_prints(dim(1, 3, 4), "ceil((s0+3)/4)");
    check_prints(dim(6, 3, 4), "ceil((3*s0+2)/2)");
    check_prints(dim(0, 7, 2), "4");
}

// Equal as functions, equal in the normal form, and the other way round.
TEST(graph_dim_is_equal_exactly_when_its_values_are) {
    berth_dim dims[512];
    size_t count = 0;
    for (int64_t i = 0; i < 4 * 7 * 6; ++i) {
        if (berth_dim_normalise(dim(1 + i % 4, i / 4 % 7, 1 + i / 28), &dims[count]) == BERTH_OK) {
            ++count;
        }
    }
    CHECK_UINT(count, 168);
    for (size_t i = 0; i < count * count; ++i) {
        const berth_dim a = dims[i / count];
        const berth_dim b = dims[i % count];
        bool is_same = true;
        for (int64_t s = 0; s < 40; ++s) {
            is_same = is_same && berth_dim_value(a, s, 0) == berth_dim_value(b, s, 0);
        }
        CHECK_INT(berth_dim_equal(a, b), is_same);
    }
}

TEST(graph_dim_keeps_its_value_in_the_normal_form) {
    for (int64_t i = 0; i < 5 * 9 * 6; ++i) {
        const int64_t a = 1 + i % 5;
        const int64_t b = i / 5 % 9;
        const int64_t c = 1 + i / 45;
        berth_dim normal;
        CHECK_OK(berth_dim_normalise(dim(a, b, c), &normal));
        for (int64_t s = 0; s < 20; ++s) {
            CHECK_INT(berth_dim_value(normal, s, 0), (a * s + b + c - 1) / c);
        }
    }
}

TEST(graph_dim_refuses_what_has_no_value) {
    berth_dim out;
    CHECK_STATUS(berth_dim_normalise(BERTH_DIM_CONST(0), &out), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_dim_normalise(BERTH_DIM_CONST(-3), &out), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_dim_normalise(dim(1, 0, 0), &out), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_dim_normalise(dim(-1, 0, 1), &out), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_dim_normalise(dim(1, -1, 1), &out), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_dim_normalise(dim(INT64_MAX, 0, 1), &out), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_dim_normalise(dim(1, INT64_MIN, 1), &out), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_dim_normalise((berth_dim){.symbol = 9, .a = 1, .c = 1}, &out),
                 BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "there are s0 and s1 only");
}

TEST(graph_dim_says_overflow) {
    CHECK_INT(berth_dim_value(dim(INT64_C(1) << 40, 0, 1), INT64_C(1) << 40, 0), -1);
    const berth_value_type type = {
        .dtype = BERTH_DTYPE_F32,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(INT64_C(1) << 40), BERTH_DIM_CONST(INT64_C(1) << 40)},
    };
    CHECK_INT(berth_type_elements(&type, 1, 1), -1);
}

TEST(graph_dtype_has_a_name_and_a_size) {
    CHECK_STR(berth_dtype_name(BERTH_DTYPE_BF16), "bf16");
    CHECK_STR(berth_dtype_name(BERTH_DTYPE_NONE), "?");
    CHECK_UINT(berth_dtype_find(BERTH_STR("f8_e4m3fn")), BERTH_DTYPE_F8_E4M3FN);
    CHECK_UINT(berth_dtype_find(BERTH_STR("float")), BERTH_DTYPE_NONE);
    CHECK_UINT(berth_dtype_bytes(BERTH_DTYPE_F32, 5), 20);
    CHECK_UINT(berth_dtype_bytes(BERTH_DTYPE_F4_E2M1, 5), 3);
    CHECK_UINT(berth_dtype_bytes(BERTH_DTYPE_F4_E2M1, 8), 4);
}
