// SPDX-License-Identifier: Apache-2.0
// platform-cpu from the outside: the instruction set that the user names, and the threads.
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "support/program.h"
#include "support/test.h"

#define MODEL "tests/data/models/shakespeare"

static bool is_built(void) {
    return berth_path_exists(TEST_BUILD "/plugins/cpu.plugin.yaml");
}

TEST(an_instruction_set_that_nobody_knows_is_refused_with_status_6) {
    program p;
    if (!is_built()) {
        SKIP("platform-cpu is not built here");
    }
    PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_CPU_ISA=sse9"), BERTH, "run", "--model", MODEL, "--platform",
                "cpu", "--prompt", "ROMEO:", "-n", "2");
    CHECK_INT(p.status, 6);
    CHECK_STR(p.out, "");
    CHECK_CONTAINS(p.err, "BERTH_CPU_ISA is 'sse9'; it must be avx512, avx2 or portable");
    CHECK(strchr(p.err, '\n') == p.err + strlen(p.err) - 1);
    PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_CPU_ISA=sse9"), BERTH, "plugins", "explain");
    CHECK_CONTAINS(p.out, "BERTH_CPU_ISA is 'sse9'");
}

TEST(the_text_is_the_same_on_any_number_of_threads) {
    static const char *const counts[] = {"2", "3", "8"};
    program alone;
    program p;
    if (!is_built()) {
        SKIP("platform-cpu is not built here");
    }
    PROGRAM_MUST(&alone, NULL, BERTH, "run", "--model", MODEL, "--platform", "cpu", "--prompt",
                 "ROMEO:", "-n", "48", "--threads", "1");
    for (size_t i = 0; i < BERTH_COUNT(counts); ++i) {
        PROGRAM_MUST(&p, NULL, BERTH, "run", "--model", MODEL, "--platform", "cpu", "--prompt",
                     "ROMEO:", "-n", "48", "--threads", counts[i]);
        CHECK_STR(p.out, alone.out);
    }
}
