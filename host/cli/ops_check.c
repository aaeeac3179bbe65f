// SPDX-License-Identifier: Apache-2.0
// `berth ops check`: every case of every golden file that is asked for, a line per file.
#include "cli/ops_check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/cli_private.h"

#define SHOWN_FAILURES 8 // of one file
#define LINE_BYTES     512

// What became of one file.
typedef struct file_report {
    const char *name;
    const char *what; // op or layer
    const char *class_name;
    const char *absent; // why nothing ran, NULL: it did
    const char *ran;
    size_t case_count;
    size_t failed_count;
    double share;
    double error;
    berth_array(const char *) failures;
} file_report;

typedef struct report {
    berth_check check;
    berth_arena *arena; // of texts
    file_report *files;
    size_t count;
} report;

// ---- one case -----------------------------------------------------------------------------------

static berth_status keep_failure(report *all, file_report *file, const berth_check_case *at,
                                 const berth_check_output *output,
                                 const berth_check_difference *difference) {
    const char *text =
        difference->index < 0
            ? berth_arena_printf(all->arena, "%s: %s %s", at->name, output->name, difference->why)
            : berth_arena_printf(
                  all->arena, "%s: %s[%" PRId64 "] is %.9g, must be %.9g (%.3g of the tolerance)",
                  at->name, output->name, difference->index, difference->got, difference->wanted,
                  difference->share);
    if (!text) {
        return berth_arena_exhausted(all->arena, "failures");
    }
    return file->failures.count < SHOWN_FAILURES ? berth_array_push(&file->failures, text)
                                                 : BERTH_OK;
}

static berth_status keep_message(report *all, file_report *file, const char *name) {
    const char *text = berth_arena_printf(all->arena, "%s: %s", name, berth_status_message());
    berth_status_clear();
    ++file->failed_count;
    if (!text) {
        return berth_arena_exhausted(all->arena, "failures");
    }
    return file->failures.count < SHOWN_FAILURES ? berth_array_push(&file->failures, text)
                                                 : BERTH_OK;
}

static berth_status compare(report *all, file_report *file, const berth_check_case *at) {
    bool is_different = false;
    for (size_t i = 0; i < at->output_count; ++i) {
        berth_check_difference difference;
        berth_check_compare(at, &at->outputs[i], &difference);
        file->share = fmax(file->share, difference.share);
        file->error = fmax(file->error, difference.error);
        if (difference.is_different) {
            is_different = true;
            BERTH_TRY(keep_failure(all, file, at, &at->outputs[i], &difference));
        }
    }
    file->failed_count += is_different;
    return BERTH_OK;
}

static berth_status compute(berth_check_case *at) {
    if (at->row->prepare) {
        BERTH_TRY(at->row->prepare(at));
    }
    if (at->row->run) {
        return at->row->run(at);
    }
    berth_check_results results;
    BERTH_TRY(berth_check_execute(at, &results));
    return berth_check_give(at, &results);
}

// "native" and "cpu.rms_norm", where both ran.
static berth_status keep_who(report *all, file_report *file, const berth_check_case *at) {
    if (!at->ran || (file->ran && strstr(file->ran, at->ran))) {
        return BERTH_OK;
    }
    file->ran = file->ran ? berth_arena_printf(all->arena, "%s, %s", file->ran, at->ran)
                          : berth_arena_strdup(all->arena, at->ran);
    return file->ran ? BERTH_OK : berth_arena_exhausted(all->arena, "names");
}

static berth_status compute_all(berth_check_case *at) {
    const berth_json *derived = berth_json_find(at->json, "derived");
    const size_t count = derived ? berth_json_size(derived) : 0;
    BERTH_TRY(compute(at));
    return at->derived_count >= count
               ? BERTH_OK
               : BERTH_FAIL(UNSUPPORTED, "only %zu of %zu derived numbers are compared",
                            at->derived_count, count);
}

static berth_status check_entry(report *all, file_report *file, berth_check_case *at) {
    if (compute_all(at) != BERTH_OK) {
        return keep_message(all, file, at->name);
    }
    BERTH_TRY(keep_who(all, file, at));
    return compare(all, file, at);
}

static berth_status check_case(report *all, file_report *file, berth_check_case *at) {
    BERTH_TRY(check_entry(all, file, at));
    for (const char *const *entry = at->row->entries; *entry; ++entry) {
        at->op = *entry;
        BERTH_TRY(check_entry(all, file, at));
    }
    return BERTH_OK;
}

// ---- one file -----------------------------------------------------------------------------------

// The op or layer of a file when there is one; else why not.
static const char *why_absent(const berth_registry *registry, const berth_check_row *row,
                              const char *class_name) {
    const char *name = row->op ? row->op : row->file;
    if (row->absent) {
        return row->absent;
    }
    if (row->is_class_op) {
        return berth_registry_find_op(registry, class_name) ? NULL : "no plugin has the op";
    }
    if (row->layer || row->is_class_layer) {
        return berth_registry_find_layer(registry, row->layer ? row->layer : class_name)
                   ? NULL
                   : "no plugin has the layer";
    }
    return berth_registry_find_op(registry, name) ? NULL : "no plugin has the op";
}

static berth_status check_cases(report *all, file_report *file, const berth_check_row *row,
                                const berth_check_file *pair) {
    const berth_json *cases = NULL;
    BERTH_TRY(berth_json_get_array(pair->json, "cases", &cases));
    file->case_count = berth_json_size(cases);
    for (size_t i = 0; i < file->case_count && !file->absent; ++i) {
        berth_check_case *at = NULL;
        if (berth_check_load(&all->check, pair, row, i, &at) != BERTH_OK) {
            BERTH_TRY(keep_message(all, file, "loading"));
            continue;
        }
        file->absent = why_absent(all->check.session->registry, row, at->class_name);
        const berth_status status = file->absent ? BERTH_OK : check_case(all, file, at);
        berth_arena_destroy(at->arena);
        BERTH_TRY(status);
    }
    return BERTH_OK;
}

static berth_status check_file(report *all, file_report *file) {
    const berth_session *session = all->check.session;
    const berth_check_row row = berth_check_row_of(file->name);
    berth_check_file pair;
    berth_str class_name = {0};
    file->what = row.layer ? row.layer : row.op ? row.op : file->name;
    berth_status status = berth_check_open(session->config.golden, file->name, all->arena, &pair);
    if (status == BERTH_OK) {
        status = berth_json_str_or(pair.json, "class", berth_str_from(""), &class_name);
    }
    if (status == BERTH_OK) {
        file->class_name = berth_arena_copy(all->arena, class_name);
        status = check_cases(all, file, &row, &pair);
    }
    berth_check_close(&pair);
    return status;
}

// ---- which files --------------------------------------------------------------------------------

static bool is_asked_for(const berth_session *session, const char *name) {
    const char *wanted = berth_session_argument(session, 0);
    const berth_check_row row = berth_check_row_of(name);
    if (!wanted || strcmp(wanted, name) == 0 || (row.layer && strcmp(wanted, row.layer) == 0)) {
        return true;
    }
    const berth_op_entry *op = berth_registry_find_op(session->registry, wanted);
    const char *id = row.op ? row.op : name;
    for (const char *const *entry = row.entries; op && *entry; ++entry) {
        if (strcmp(op->op.name, *entry) == 0) {
            return true;
        }
    }
    return op && !row.layer && !row.is_class_op && !row.is_class_layer &&
           strcmp(op->op.name, id) == 0;
}

// Whether the file, or one of its cases, names the class that is asked for.
static berth_status is_of_class(report *all, const char *name, bool *out_is) {
    const char *wanted = berth_session_argument(all->check.session, 0);
    const berth_op_entry *op = berth_registry_find_op(all->check.session->registry, wanted);
    const berth_json *cases = NULL;
    berth_check_file pair;
    berth_str own = {0};
    wanted = op ? op->op.class_name : wanted;
    *out_is = false;
    berth_status status =
        berth_check_open(all->check.session->config.golden, name, all->arena, &pair);
    if (status == BERTH_OK) {
        status = berth_json_get_array(pair.json, "cases", &cases);
    }
    for (size_t i = 0; status == BERTH_OK && i < berth_json_size(cases); ++i) {
        const berth_json *found = berth_json_find(berth_json_at(cases, i), "class");
        *out_is |= found && berth_json_as_str(found, &own) && berth_str_equal_cstr(own, wanted);
    }
    if (status == BERTH_OK) {
        status = berth_json_str_or(pair.json, "class", berth_str_from(""), &own);
        *out_is |= berth_str_equal_cstr(own, wanted);
    }
    berth_check_close(&pair);
    return status;
}

static berth_status choose_files(report *all) {
    const berth_session *session = all->check.session;
    const char **names = NULL;
    size_t count = 0;
    BERTH_TRY(berth_check_list(session->config.golden, all->arena, &names, &count));
    all->files = BERTH_ARENA_ARRAY(all->arena, file_report, count + 1);
    if (!all->files) {
        return berth_arena_exhausted(all->arena, "reports");
    }
    for (size_t i = 0; i < count; ++i) {
        bool is_wanted = is_asked_for(session, names[i]);
        if (!is_wanted) {
            BERTH_TRY(is_of_class(all, names[i], &is_wanted));
        }
        if (is_wanted) {
            all->files[all->count++] = (file_report){.name = names[i], .error = -1};
        }
    }
    if (all->count == 0) {
        const char *wanted = berth_session_argument(session, 0);
        const char *nearest =
            wanted ? berth_str_nearest(berth_str_from(wanted), names, count) : NULL;
        return BERTH_FAIL(NOT_FOUND, "%s: no golden vectors%s%s%s%s%s", session->config.golden,
                          wanted ? " of " : "", wanted ? wanted : "",
                          nearest ? ", did you mean '" : "", nearest ? nearest : "",
                          nearest ? "'" : "");
    }
    return BERTH_OK;
}

// ---- telling ------------------------------------------------------------------------------------

static void put_file(berth_json_writer *json, const file_report *file) {
    berth_json_begin_object(json);
    berth_cli_put(json, "golden", file->name);
    berth_cli_put(json, "op", file->what);
    berth_cli_put(json, "class", file->class_name);
    berth_cli_put(json, "absent", file->absent);
    berth_cli_put(json, "ran", file->ran);
    berth_cli_put_u64(json, "cases", file->case_count);
    berth_cli_put_u64(json, "failed", file->failed_count);
    berth_cli_put_f64(json, "tolerance", isfinite(file->share) ? file->share : 1e300);
    if (file->error >= 0) {
        berth_cli_put_f64(json, "error", file->error);
    }
    berth_json_put_key(json, "failures");
    berth_json_begin_array(json);
    for (size_t i = 0; i < file->failures.count; ++i) {
        berth_json_put_cstr(json, file->failures.data[i]);
    }
    berth_json_end_array(json);
    berth_json_end_object(json);
}

static void tell_json(const report *all) {
    berth_json_writer json;
    berth_session_json(all->check.session, &json);
    berth_json_begin_array(&json);
    for (size_t i = 0; i < all->count; ++i) {
        put_file(&json, &all->files[i]);
    }
    berth_json_end_array(&json);
    berth_session_json_end(all->check.session);
}

static void add_row(berth_listing *table, const file_report *file) {
    berth_listing_add(table, file->name);
    berth_listing_add(table, file->absent ? "absent" : file->failed_count > 0 ? "DIFFERS" : "ok");
    berth_listing_add_format(table, "%zu", file->case_count);
    berth_listing_add_format(table, "%zu", file->failed_count);
    berth_listing_add_format(table, "%.3g", file->share);
    if (file->error >= 0) {
        berth_listing_add_format(table, "%.3g", file->error);
    } else {
        berth_listing_add(table, "");
    }
    berth_listing_add(table, file->absent ? file->absent : file->ran);
}

static berth_status tell(const report *all) {
    static const char *const headings[] = {"golden",    "result", "cases",  "failed",
                                           "tolerance", "error",  "runs by"};
    berth_session *session = all->check.session;
    berth_listing table;
    berth_listing_begin(&table, session, headings, BERTH_COUNT(headings));
    for (size_t i = 0; i < all->count; ++i) {
        add_row(&table, &all->files[i]);
    }
    BERTH_TRY(berth_listing_end(&table));
    for (size_t i = 0; i < all->count; ++i) {
        const file_report *file = &all->files[i];
        for (size_t k = 0; k < file->failures.count; ++k) {
            berth_text_add_format(&session->out, "%s: %s\n", file->name, file->failures.data[k]);
        }
        if (file->failed_count > file->failures.count) {
            berth_text_add_format(&session->out, "%s: and %zu more\n", file->name,
                                  file->failed_count - file->failures.count);
        }
    }
    return BERTH_OK;
}

// ---- the command --------------------------------------------------------------------------------

static berth_status check_all(report *all) {
    berth_session *session = all->check.session;
    session->stage = BERTH_STAGE_INPUT;
    BERTH_TRY(choose_files(all));
    for (size_t i = 0; i < all->count; ++i) {
        BERTH_TRY(check_file(all, &all->files[i]));
        session->answer_is_no |= all->files[i].absent || all->files[i].failed_count > 0;
    }
    if (session->config.is_json) {
        tell_json(all);
        return BERTH_OK;
    }
    return tell(all);
}

static berth_status run(berth_session *session) {
    const berth_platform_entry *platform = session->decision.platform;
    report all = {.check = {.session = session}, .arena = session->arena};
    session->stage = BERTH_STAGE_WORKER;
    BERTH_TRY(berth_runtime_open(platform, 0, berth_registry_host(session->registry),
                                 &all.check.runtime));
    const berth_status status = check_all(&all);
    for (size_t i = 0; i < all.count; ++i) {
        berth_array_free(&all.files[i].failures);
    }
    berth_runtime_close(all.check.runtime);
    return status;
}

static berth_status prepare(berth_session *session) {
    session->stage = BERTH_STAGE_USAGE;
    return session->config.golden
               ? BERTH_OK
               : BERTH_FAIL(INVALID_ARGUMENT, "ops check: no golden vectors, use --golden DIR");
}

const berth_command berth_command_ops_check = {
    .name = "ops check",
    .arguments = "[OP]",
    .help = "compare what ops and layers compute with golden vectors",
    .details =
        "OP is an op's id or class name, a layer's class name, or the name of a golden file.\n"
        "--golden is a directory of pairs NAME.json and NAME.safetensors. `tolerance` is the\n"
        "greatest share of a case's tolerance that was used, `error` the greatest error against\n"
        "float64, over that of the golden values. --json prints an array of {golden, op, class,\n"
        "absent, ran, cases, failed, tolerance, error, failures}.",
    .bit = BERTH_COMMAND_CHECK,
    .max_arguments = 1,
    .needs = BERTH_STAGE_TABLES,
    .prepare = prepare,
    .run = run,
};
