// SPDX-License-Identifier: Apache-2.0
// The typed checks of test.h. Each prints what it saw and what it wanted, then leaves the test.
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const status_names[] = {
    "OK",       "INVALID_ARGUMENT", "NOT_FOUND",     "ALREADY_EXISTS", "UNSUPPORTED",
    "DECLINED", "WRONG_STATE",      "OUT_OF_MEMORY", "UNAVAILABLE",    "CORRUPT",
    "IO",       "INCOMPATIBLE",     "SEALED",        "INTERNAL",
};

static const char *status_name(berth_status status) {
    size_t count = sizeof(status_names) / sizeof(status_names[0]);
    return status >= 0 && (size_t)status < count ? status_names[status] : "unknown";
}

void check_true(bool holds, const char *text, const char *file, int line) {
    if (!holds) {
        print_error("not true: %s\n", text);
        _fail(file, line);
    }
}

void check_int(int64_t actual, int64_t expected, const char *text, const char *file, int line) {
    if (actual != expected) {
        print_error("%s is %" PRId64 ", not %" PRId64 "\n", text, actual, expected);
        _fail(file, line);
    }
}

void check_uint(uint64_t actual, uint64_t expected, const char *text, const char *file, int line) {
    if (actual != expected) {
        print_error("%s is %" PRIu64 ", not %" PRIu64 "\n", text, actual, expected);
        _fail(file, line);
    }
}

void check_status(berth_status actual, berth_status expected, const char *text, const char *file,
                  int line) {
    if (actual != expected) {
        print_error("%s gives %s (%d), not %s (%d)\n", text, status_name(actual), (int)actual,
                    status_name(expected), (int)expected);
        _fail(file, line);
    }
}

void check_str(const char *actual, const char *expected, const char *text, const char *file,
               int line) {
    if (actual != NULL && expected != NULL && strcmp(actual, expected) == 0) {
        return;
    }
    if (actual == NULL && expected == NULL) {
        return;
    }
    print_error("%s is\n  \"%s\", not\n  \"%s\"\n", text, actual == NULL ? "(NULL)" : actual,
                expected == NULL ? "(NULL)" : expected);
    _fail(file, line);
}

void check_contains(const char *whole, const char *part, const char *text, const char *file,
                    int line) {
    if (whole == NULL || strstr(whole, part) == NULL) {
        print_error("%s is\n  \"%s\", without\n  \"%s\"\n", text, whole == NULL ? "(NULL)" : whole,
                    part);
        _fail(file, line);
    }
}

void check_ptr(const void *actual, const void *expected, const char *text, const char *file,
               int line) {
    if (actual != expected) {
        print_error("%s is %p, not %p\n", text, actual, expected);
        _fail(file, line);
    }
}

void check_near(double actual, double expected, double tolerance, const char *file, int line) {
    if (!(fabs(actual - expected) <= tolerance)) {
        print_error("%.9g is not within %.3g of %.9g (off by %.3g)\n", actual, tolerance, expected,
                    fabs(actual - expected));
        _fail(file, line);
    }
}

void check_bytes(const void *actual, const void *expected, size_t count, const char *file,
                 int line) {
    const unsigned char *a = actual;
    const unsigned char *b = expected;
    for (size_t i = 0; i < count; ++i) {
        if (a[i] != b[i]) {
            print_error("byte %zu of %zu is 0x%02x, not 0x%02x\n", i, count, a[i], b[i]);
            _fail(file, line);
        }
    }
}

void check_skip(const char *reason, const char *file, int line) {
    print_message("skipped: %s\n", reason);
    _skip(file, line);
}
