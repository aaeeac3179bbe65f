// SPDX-License-Identifier: Apache-2.0
// What every test file includes: TEST registers a test by its name, CHECK_* stop the test and print
// both values. `tools/test-list` finds the names, `tests/support/main.c` runs them under cmocka.
//
//     TEST(graph_rejects_a_cycle) {
//         CHECK_STATUS(berth_graph_verify(graph), BERTH_INVALID_ARGUMENT);
//     }
//
// In every check the value at hand stands first and the wanted one second. The working directory of
// a test is the root of the repository.
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
// Why: host tables have a slot of this name.
#undef fail

#include <berth/status.h>

// TEST(name) { ... }: at the beginning of a line, the name is a sentence in lower case.
#define TEST(name)                                                                                 \
    void test_##name(void **state);                                                                \
    void test_##name(__attribute__((unused)) void **state)

// TEST_CASES(name) { ... }: adds tests that are known only at run time, one test_add per case.
#define TEST_CASES(name)                                                                           \
    void cases_##name(test_cases *cases);                                                          \
    void cases_##name(test_cases *cases)

typedef struct test_cases test_cases;

// Adds the test "<TEST_CASES name>: <case_name>"; its body gets `context` as *state. The name is
// copied, the context is borrowed until the executable ends.
void test_add(test_cases *cases, const char *case_name, void (*run)(void **state), void *context);

typedef struct test_entry {
    const char *name;                 // NULL ends the list
    void (*run)(void **state);        // of a TEST
    void (*cases)(test_cases *cases); // of a TEST_CASES
} test_entry;

extern const test_entry test_entries[]; // generated, in the order of the file

#define CHECK(condition) check_true((condition), #condition, __FILE__, __LINE__)
#define CHECK_INT(actual, expected)                                                                \
    check_int((int64_t)(actual), (int64_t)(expected), #actual, __FILE__, __LINE__)
#define CHECK_UINT(actual, expected)                                                               \
    check_uint((uint64_t)(actual), (uint64_t)(expected), #actual, __FILE__, __LINE__)
#define CHECK_STATUS(actual, expected) check_status(actual, expected, #actual, __FILE__, __LINE__)
#define CHECK_OK(actual)               check_status(actual, BERTH_OK, #actual, __FILE__, __LINE__)
#define CHECK_STR(actual, expected)    check_str(actual, expected, #actual, __FILE__, __LINE__)
#define CHECK_CONTAINS(text, part)     check_contains(text, part, #text, __FILE__, __LINE__)
#define CHECK_PTR(actual, expected)    check_ptr(actual, expected, #actual, __FILE__, __LINE__)
#define CHECK_NULL(actual)             check_ptr(actual, NULL, #actual, __FILE__, __LINE__)
// |actual - expected| <= tolerance; a NaN is never near.
#define CHECK_NEAR(actual, expected, tolerance)                                                    \
    check_near((double)(actual), (double)(expected), (double)(tolerance), __FILE__, __LINE__)
// `count` bytes each; prints the first that differs.
#define CHECK_BYTES(actual, expected, count)                                                       \
    check_bytes(actual, expected, count, __FILE__, __LINE__)
// Ends the test as skipped and says why.
#define SKIP(reason) check_skip(reason, __FILE__, __LINE__)

void check_true(bool holds, const char *text, const char *file, int line);
void check_int(int64_t actual, int64_t expected, const char *text, const char *file, int line);
void check_uint(uint64_t actual, uint64_t expected, const char *text, const char *file, int line);
void check_status(berth_status actual, berth_status expected, const char *text, const char *file,
                  int line);
void check_str(const char *actual, const char *expected, const char *text, const char *file,
               int line);
void check_contains(const char *whole, const char *part, const char *text, const char *file,
                    int line);
void check_ptr(const void *actual, const void *expected, const char *text, const char *file,
               int line);
void check_near(double actual, double expected, double tolerance, const char *file, int line);
void check_bytes(const void *actual, const void *expected, size_t count, const char *file,
                 int line);
void check_skip(const char *reason, const char *file, int line);

#endif
