// SPDX-License-Identifier: Apache-2.0
// The limits of a rendering and its failures.
#include "chat/machine.h"

#include <stdarg.h>
#include <stdio.h>

#define BYTES_PER_STEP 64
#define WHERE_BYTES    512

void berth_jinja_report(const berth_jinja *j, berth_status code, const char *format, ...) {
    char where[WHERE_BYTES];
    va_list arguments;
    (void)snprintf(where, sizeof(where), "%s:%u", j->name, (unsigned)j->line);
    va_start(arguments, format);
    (void)berth_status_fail_in(code, where, format, arguments);
    va_end(arguments);
}

berth_status berth_jinja_spend(berth_jinja *j, uint64_t count) {
    if (count > j->steps) {
        return BERTH_JINJA_FAIL(j, OUT_OF_MEMORY,
                                "the template does not come to an end within %llu "
                                "steps",
                                (unsigned long long)BERTH_JINJA_STEPS);
    }
    j->steps -= count;
    return BERTH_OK;
}

berth_status berth_jinja_enter(berth_jinja *j) {
    if (j->depth == BERTH_JINJA_DEPTH) {
        return BERTH_JINJA_FAIL(j, OUT_OF_MEMORY, "nested deeper than %d levels",
                                BERTH_JINJA_DEPTH);
    }
    ++j->depth;
    return BERTH_OK;
}

void berth_jinja_leave(berth_jinja *j) {
    --j->depth;
}

berth_status berth_jinja_alloc(berth_jinja *j, size_t count, size_t size, void **out_memory) {
    BERTH_TRY(berth_jinja_spend(j, 1 + count / BYTES_PER_STEP * size));
    *out_memory = berth_arena_array(j->arena, count, size);
    if (!*out_memory) {
        return BERTH_JINJA_FAIL(j, OUT_OF_MEMORY,
                                "the template's values need more than %zu MiB of memory",
                                BERTH_JINJA_BYTES >> 20);
    }
    return BERTH_OK;
}
