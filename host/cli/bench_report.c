// SPDX-License-Identifier: Apache-2.0
// Input: rows. Output: aligned columns, or the array that programs read; a figure that does not
// exist is "-" or null.
#include "cli/bench_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "cli/cli_private.h"

static void put_row(berth_json_writer *json, const berth_bench_row *row) {
    berth_json_begin_object(json);
    berth_cli_put(json, "case", row->name);
    berth_cli_put_u64(json, "threads", (uint64_t)row->threads);
    berth_cli_put_f64(json, "value", row->value);
    berth_cli_put(json, "unit", row->unit);
    berth_cli_put_f64(json, "ceiling", row->ceiling);
    berth_cli_put_f64(json, "share", row->share);
    berth_cli_put_f64(json, "p10", row->p10);
    berth_cli_put_f64(json, "p90", row->p90);
    berth_cli_put_f64(json, "times_one", row->times_one);
    berth_cli_put(json, "gate", row->gate ? row->gate : "");
    berth_cli_put(json, "note", row->note ? row->note : "");
    berth_json_end_object(json);
}

static void print_json(berth_session *session, const berth_bench_row *rows, size_t count) {
    berth_json_writer json;
    berth_session_json(session, &json);
    berth_json_begin_array(&json);
    for (size_t i = 0; i < count; ++i) {
        put_row(&json, &rows[i]);
    }
    berth_json_end_array(&json);
    berth_session_json_end(session);
}

static void add_number(berth_listing *listing, double value) {
    if (isnan(value)) {
        berth_listing_add(listing, NULL);
    } else {
        berth_listing_add_format(listing, "%.3f", value);
    }
}

static berth_status print_table(berth_session *session, const berth_bench_row *rows, size_t count) {
    static const char *const headings[] = {"case",      "threads", "value", "unit",
                                           "ceiling",   "share",   "p10",   "p90",
                                           "times one", "gate",    "note"};
    berth_listing listing;
    berth_listing_begin(&listing, session, headings, BERTH_COUNT(headings));
    for (size_t i = 0; i < count; ++i) {
        const berth_bench_row *row = &rows[i];
        berth_listing_add(&listing, row->name);
        berth_listing_add_format(&listing, "%lld", (long long)row->threads);
        add_number(&listing, row->value);
        berth_listing_add(&listing, row->unit);
        add_number(&listing, row->ceiling);
        add_number(&listing, row->share);
        add_number(&listing, row->p10);
        add_number(&listing, row->p90);
        add_number(&listing, row->times_one);
        berth_listing_add(&listing, row->gate);
        berth_listing_add(&listing, row->note);
    }
    return berth_listing_end(&listing);
}

berth_status berth_bench_print(berth_session *session, const berth_bench_row *rows, size_t count) {
    if (!session->config.is_json) {
        return print_table(session, rows, count);
    }
    print_json(session, rows, count);
    return BERTH_OK;
}

size_t berth_bench_threads(const berth_config *config, int64_t *out_threads) {
    const int64_t all = (int64_t)berth_thread_cpus();
    out_threads[0] = config->threads > 0 ? config->threads : 1;
    out_threads[1] = all;
    return config->threads == 0 && all > 1 ? 2 : 1;
}

bool berth_bench_is_wanted(const char *wanted, const char *name, bool is_exact) {
    return !wanted || (is_exact ? strcmp(name, wanted) == 0 : strstr(name, wanted) != NULL);
}

static int compare(const void *a, const void *b) {
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

double berth_bench_quantile(double *samples, size_t count, double share) {
    qsort(samples, count, sizeof *samples, compare);
    return samples[(size_t)((double)(count - 1) * share + 0.5)];
}
