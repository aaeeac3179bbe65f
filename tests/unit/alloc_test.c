// SPDX-License-Identifier: Apache-2.0
// The allocation counter of tests/support: what it counts and how it refuses.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/alloc.h"
#include "support/test.h"

TEST(alloc_counts_the_program_and_its_libraries) {
    uint64_t before = test_alloc_count();
    char *volatile own = malloc(3);
    CHECK(test_alloc_count() > before);
    before = test_alloc_count();
    json_t *library = json_object();
    CHECK(test_alloc_count() > before);
    json_decref(library);
    free(own);
}

TEST(alloc_is_refused_from_the_nth_on) {
    if (!test_alloc_fail_from(2)) {
        SKIP("a sanitizer's allocator cannot refuse");
    }
    char *volatile first = malloc(8);
    char *volatile second = malloc(8);
    char *volatile third = calloc(1, 8);
    const bool has_failed = test_alloc_has_failed();
    test_alloc_fail_from(0);
    char *volatile fourth = strdup("again");
    const bool as_told = first != NULL && second == NULL && third == NULL && fourth != NULL;
    free(first);
    free(second);
    free(third);
    free(fourth);
    CHECK(as_told);
    CHECK(has_failed);
}
