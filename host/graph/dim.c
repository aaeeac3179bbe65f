// SPDX-License-Identifier: Apache-2.0
// Symbolic dimensions: normal form, value, text. A dim is ceil((a * s + b) / c) of one symbol s.
//
// Why the normal form decides equality: ceil(x / n) = ceil(ceil(x) / n), so a common divisor g of a
// and c may be taken out and b becomes ceil(b / g). Once a and c share no divisor, a * s takes
// every remainder of c, so another b changes the value for some s, and another a / c changes the
// slope.
#include "graph/graph.h"

#define LIMIT (INT64_C(1) << 47)

static int64_t divisor_of(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t ceil_div(int64_t number, int64_t divisor) {
    return number / divisor + (number % divisor > 0 ? 1 : 0);
}

static berth_status normalise_const(berth_dim dim, berth_dim *out_dim) {
    const int64_t value = ceil_div(dim.b, dim.c);
    if (value < 1) {
        return BERTH_FAIL(INVALID_ARGUMENT, "a dimension of %lld: it must be at least 1",
                          (long long)value);
    }
    *out_dim = BERTH_DIM_CONST(value);
    return BERTH_OK;
}

berth_status berth_dim_normalise(berth_dim dim, berth_dim *out_dim) {
    if (dim.symbol > BERTH_SYMBOL_SEQUENCES) {
        return BERTH_FAIL(INVALID_ARGUMENT, "a dimension of symbol %llu: there are s0 and s1 only",
                          (unsigned long long)dim.symbol);
    }
    if (dim.a < 0 || dim.a > LIMIT || dim.b < -LIMIT || dim.b > LIMIT || dim.c < 1 ||
        dim.c > LIMIT) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "a dimension ceil((%lld*s+%lld)/%lld): a must be 0 or more, c 1 or more, "
                          "and none beyond 2^47",
                          (long long)dim.a, (long long)dim.b, (long long)dim.c);
    }
    if (dim.symbol == BERTH_SYMBOL_NONE || dim.a == 0) {
        return normalise_const(dim, out_dim);
    }
    if (dim.b <= -dim.c) {
        return BERTH_FAIL(INVALID_ARGUMENT, "a dimension ceil((%lld*s%lld)/%lld) may be negative",
                          (long long)dim.a, (long long)dim.b, (long long)dim.c);
    }
    const int64_t shared = divisor_of(dim.a, dim.c);
    *out_dim = (berth_dim){
        .symbol = dim.symbol,
        .a = dim.a / shared,
        .b = ceil_div(dim.b, shared),
        .c = dim.c / shared,
    };
    return BERTH_OK;
}

bool berth_dim_equal(berth_dim a, berth_dim b) {
    return a.symbol == b.symbol && a.a == b.a && a.b == b.b && a.c == b.c;
}

bool berth_dim_is_const(berth_dim dim) {
    return dim.symbol == BERTH_SYMBOL_NONE;
}

int64_t berth_dim_value(berth_dim dim, int64_t tokens, int64_t sequences) {
    if (dim.symbol == BERTH_SYMBOL_NONE) {
        return dim.b;
    }
    const int64_t symbol = dim.symbol == BERTH_SYMBOL_TOKENS ? tokens : sequences;
    int64_t value = 0;
    if (__builtin_mul_overflow(dim.a, symbol, &value) ||
        __builtin_add_overflow(value, dim.b, &value)) {
        return -1;
    }
    return ceil_div(value, dim.c);
}

void berth_dim_print(berth_dim dim, berth_text *text) {
    if (dim.symbol == BERTH_SYMBOL_NONE) {
        berth_text_add_format(text, "%lld", (long long)dim.b);
        return;
    }
    const bool is_sum = dim.b != 0;
    if (dim.c != 1) {
        berth_text_add_cstr(text, is_sum ? "ceil((" : "ceil(");
    }
    if (dim.a != 1) {
        berth_text_add_format(text, "%lld*", (long long)dim.a);
    }
    berth_text_add_format(text, "s%llu", (unsigned long long)(dim.symbol - 1));
    if (is_sum) {
        berth_text_add_format(text, "%+lld", (long long)dim.b);
    }
    if (dim.c != 1) {
        berth_text_add_format(text, "%s/%lld)", is_sum ? ")" : "", (long long)dim.c);
    }
}
