// SPDX-License-Identifier: Apache-2.0
#include "support/bench_rows.h"

#include <math.h>

#include "base/array.h"
#include "base/file.h"
#include "support/test.h"

void bench_need_cpu(void) {
    if (!berth_path_exists(TEST_BUILD "/plugins/cpu.plugin.yaml")) {
        SKIP("platform-cpu is not built here");
    }
}

void bench_check_row(const berth_json *row, const char *name, int64_t threads) {
    static const char *const texts[] = {"unit", "note"};
    static const char *const members[] = {"ceiling", "share", "times_one"};
    berth_str text;
    int64_t count = 0;
    double value = 0;
    double p10 = 0;
    double p90 = 0;
    CHECK_OK(berth_json_get_str(row, "case", &text));
    CHECK_STR(text.data, name);
    CHECK_OK(berth_json_get_i64(row, "threads", &count));
    CHECK_INT(count, threads);
    CHECK_OK(berth_json_get_f64(row, "value", &value));
    CHECK_OK(berth_json_get_f64(row, "p10", &p10));
    CHECK_OK(berth_json_get_f64(row, "p90", &p90));
    CHECK(p10 > 0 && p10 <= value && value <= p90);
    for (size_t i = 0; i < BERTH_COUNT(texts); ++i) {
        CHECK_OK(berth_json_get_str(row, texts[i], &text));
    }
    for (size_t i = 0; i < BERTH_COUNT(members); ++i) {
        CHECK(berth_json_find(row, members[i]) != NULL);
    }
}

void bench_check_share(const berth_json *row) {
    double value = 0;
    double ceiling = 0;
    double share = 0;
    CHECK_OK(berth_json_get_f64(row, "value", &value));
    CHECK_OK(berth_json_get_f64(row, "ceiling", &ceiling));
    CHECK_OK(berth_json_get_f64(row, "share", &share));
    CHECK(fabs(share - value / ceiling) < 1e-9);
}
