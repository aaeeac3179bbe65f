// SPDX-License-Identifier: Apache-2.0
// Every checkpoint of tests/golden/<model>.txt, here or beside the repository, gives what the
// reference gave: on the host itself, on platform-cpu, and on the dummy platform, where exactly the
// ops that the file names are bounced; in float32, and in 16 bits within what the reference itself
// loses there.
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "support/program.h"

#define FOLDER     "tests/golden"
#define MODELS     "tests/data/models"
#define SHARED     "../shared/models" // the others, beside the repository, where it is there
#define VALIDATION (MODELS "/validation.json")
#define CPU        TEST_BUILD "/plugins/cpu.plugin.yaml"
#define MAX_OPS    32

// One checkpoint, and what its model's file says.
typedef struct checkpoint {
    char name[64];
    char dir[128];
    char golden[160];
    char bounced[MAX_OPS][64]; // in the order of the file
    size_t bounced_count;
} checkpoint;

// ---- eval ---------------------------------------------------------------------------------------

// The gate itself is the program's; that it looked at everything is checked here.
static void check_report(const program *p, size_t min_rows) {
    berth_json *report = NULL;
    const berth_str text = berth_str_from(p->out);
    int64_t rows = 0;
    int64_t equal = 0;
    int64_t compared = 0;
    double error = 1;
    bool has_passed = false;
    if (p->status != 0) {
        print_error("%s%s", p->out, p->err);
    }
    CHECK_INT(p->status, 0);
    CHECK_STR(p->err, "");
    CHECK_OK(berth_json_parse(text, "report", NULL, &report));
    CHECK_OK(berth_json_get_bool(report, "passed", &has_passed));
    CHECK_OK(berth_json_get_i64(report, "rows", &rows));
    CHECK_OK(berth_json_get_i64(report, "greedy_equal", &equal));
    CHECK_OK(berth_json_get_i64(report, "greedy_compared", &compared));
    CHECK_OK(berth_json_get_f64(report, "logit_error", &error));
    CHECK(has_passed);
    CHECK(rows >= (int64_t)min_rows);
    CHECK(compared > 90);
    CHECK_INT(equal, compared);
    CHECK(error > 0); // a program that compares a thing with itself gives 0
    CHECK(error <= 1e-4);
    berth_json_destroy(report);
}

// In 16 bits: errors that float32 could not have, within the gate.
static void check_rounded(const program *p, const char *dtype, double share) {
    berth_json *report = NULL;
    double rms = 0;
    double gate = 0;
    berth_str name;
    if (p->status != 0) {
        print_error("%s%s", p->out, p->err);
    }
    CHECK_INT(p->status, 0);
    CHECK_OK(berth_json_parse(berth_str_from(p->out), "report", NULL, &report));
    CHECK_OK(berth_json_get_str(report, "dtype", &name));
    CHECK_OK(berth_json_get_f64(report, "logit_rms", &rms));
    CHECK_OK(berth_json_get_f64(report, "rms_gate", &gate));
    CHECK_STR(name.data, dtype);
    CHECK(rms > 2e-4);
    CHECK(rms <= share * gate);
    berth_json_destroy(report);
}

#define EVAL_ROWS 300 // fewer than the prompts of any golden file have

static void eval_natively(void **state) {
    const checkpoint *c = *state;
    program p;
    PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_PLUGINS="), BERTH, "eval", "--model", c->dir, "--golden",
                c->golden, "--allow-fallback", "--json");
    check_report(&p, EVAL_ROWS);
}

static void eval_on_cpu(void **state) {
    const checkpoint *c = *state;
    program p;
    if (!berth_path_exists(CPU)) {
        SKIP("platform-cpu is not built here");
    }
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", c->dir, "--golden", c->golden, "--loss",
                VALIDATION, "--platform", "cpu", "--json");
    check_report(&p, EVAL_ROWS);
    CHECK_CONTAINS(p.out, "\"loss\": {");
}

// What platform-cpu compiles for each instruction set, as far as this machine has it. Several
// threads: their number is not the machine's.
static void eval_on_cpu_with(const checkpoint *c, const char *set) {
    program p;
    if (!berth_path_exists(CPU)) {
        SKIP("platform-cpu is not built here");
    }
    PROGRAM_RUN(&p, PROGRAM_ENV(set), BERTH, "eval", "--model", c->dir, "--golden", c->golden,
                "--platform", "cpu", "--threads", "3", "--json");
    if (p.status == 6 && strstr(p.err, "which this machine or build lacks") != NULL) {
        SKIP("this machine lacks it");
    }
    check_report(&p, EVAL_ROWS);
    PROGRAM_RUN(&p, PROGRAM_ENV(set), BERTH, "eval", "--model", c->dir, "--golden", c->golden,
                "--platform", "cpu", "--threads", "3", "--json", "--dtype", "bfloat16");
    check_rounded(&p, "bf16", 1);
}

static void eval_with_avx512(void **state) {
    eval_on_cpu_with(*state, "BERTH_CPU_ISA=avx512");
}

static void eval_with_avx2(void **state) {
    eval_on_cpu_with(*state, "BERTH_CPU_ISA=avx2");
}

static void eval_with_portable(void **state) {
    eval_on_cpu_with(*state, "BERTH_CPU_ISA=portable");
}

// Prompts in pieces, sequences that wait for room, small KV blocks: the same figures.
static void eval_in_pieces(void **state) {
    const checkpoint *c = *state;
    program p;
    if (!berth_path_exists(CPU)) {
        SKIP("platform-cpu is not built here");
    }
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", c->dir, "--golden", c->golden, "--platform",
                "cpu", "--json", "--chunk", "7", "--max-num-seqs", "3", "--block-size", "5");
    check_report(&p, EVAL_ROWS);
}

static void eval_on_dummy(void **state) {
    const checkpoint *c = *state;
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", c->dir, "--golden", c->golden, "--platform",
                "dummy", "--allow-fallback", "--json");
    check_report(&p, EVAL_ROWS);
}

static void eval_on_cpu_in(const checkpoint *c, const char *dtype, const char *name, double share) {
    program p;
    if (!berth_path_exists(CPU)) {
        SKIP("platform-cpu is not built here");
    }
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", c->dir, "--golden", c->golden, "--platform",
                "cpu", "--json", "--dtype", dtype);
    check_rounded(&p, name, share);
}

static void eval_on_cpu_in_bf16(void **state) {
    eval_on_cpu_in(*state, "bfloat16", "bf16", 1);
}

// Three bits more than bf16.
static void eval_on_cpu_in_f16(void **state) {
    eval_on_cpu_in(*state, "float16", "f16", 0.25);
}

static void eval_natively_in_bf16(void **state) {
    const checkpoint *c = *state;
    program p;
    PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_PLUGINS="), BERTH, "eval", "--model", c->dir, "--golden",
                c->golden, "--allow-fallback", "--json", "--dtype", "bfloat16");
    check_rounded(&p, "bf16", 1);
}

// The dummy has no bf16: everything bounces.
static void eval_on_dummy_in_bf16(void **state) {
    const checkpoint *c = *state;
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", c->dir, "--golden", c->golden, "--platform",
                "dummy", "--allow-fallback", "--json", "--dtype", "bfloat16");
    check_rounded(&p, "bf16", 1);
}

// ---- bounced ops --------------------------------------------------------------------------------

static bool is_listed(const checkpoint *c, berth_str op) {
    for (size_t i = 0; i < c->bounced_count; ++i) {
        if (berth_str_equal_cstr(op, c->bounced[i])) {
            return true;
        }
    }
    return false;
}

static void bounced_on_dummy(void **state) {
    const checkpoint *c = *state;
    bool is_seen[MAX_OPS] = {false};
    berth_json *report = NULL;
    const berth_json *sites = NULL;
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "--model", c->dir, "--platform", "dummy",
                 "--allow-fallback", "--json");
    CHECK_OK(berth_json_parse(berth_str_from(p.out), "report", NULL, &report));
    CHECK_OK(berth_json_get_array(report, "sites", &sites));
    CHECK(berth_json_size(sites) > 0);
    for (size_t i = 0; i < berth_json_size(sites); ++i) {
        const berth_json *site = berth_json_at(sites, i);
        berth_str op;
        bool is_bounced = false;
        CHECK_OK(berth_json_get_str(site, "op", &op));
        CHECK_OK(berth_json_get_bool(site, "is_bounced", &is_bounced));
        if (is_bounced != is_listed(c, op)) {
            print_error("op '" BERTH_STR_FMT "' %s\n", BERTH_STR_ARG(op),
                        is_bounced ? "is bounced" : "is not bounced any more");
        }
        CHECK_INT(is_bounced, is_listed(c, op));
        for (size_t k = 0; k < c->bounced_count; ++k) {
            is_seen[k] = is_seen[k] || berth_str_equal_cstr(op, c->bounced[k]);
        }
    }
    for (size_t k = 0; k < c->bounced_count; ++k) {
        CHECK(is_seen[k]);
    }
    berth_json_destroy(report);
}

static void refused_on_dummy(void **state) {
    const checkpoint *c = *state;
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", c->dir, "--golden", c->golden, "--platform",
                "dummy");
    CHECK_INT(p.status, 6);
    CHECK_STR(p.out, "");
    CHECK_CONTAINS(p.err, "--allow-fallback");
    for (size_t i = 0; i < c->bounced_count; ++i) {
        CHECK_CONTAINS(p.err, c->bounced[i]);
    }
    CHECK(strchr(p.err, '\n') == p.err + strlen(p.err) - 1);
    // The dummy has it; others that end or begin like it are not meant.
    CHECK(strstr(p.err, " rms_norm,") == NULL && strstr(p.err, " rms_norm;") == NULL);
}

// Naming the ops is as good as the flag.
static void allowed_on_dummy(void **state) {
    const checkpoint *c = *state;
    char list[MAX_OPS * 64] = "";
    program p;
    for (size_t i = 0; i < c->bounced_count; ++i) {
        const size_t used = strlen(list);
        (void)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? "," : "", c->bounced[i]);
    }
    PROGRAM_MUST(&p, NULL, BERTH, "run", "--model", c->dir, "--platform", "dummy", "--fallback-ops",
                 list, "--prompt", "ROMEO:", "-n", "4", "--json"); // any text, that of id 0 too
    CHECK_CONTAINS(p.out, "\"finish\": \"");
    CHECK(strstr(p.out, "\"ids\": []") == NULL);
}

// ---- the files ----------------------------------------------------------------------------------

static void add_case(test_cases *cases, checkpoint *c, const char *what, void (*run)(void **)) {
    char name[128];
    (void)snprintf(name, sizeof name, "%.63s %.63s", c->name, what);
    test_add(cases, name, run, c);
}

static void skip_absent(void **state) {
    (void)state;
    SKIP("its checkpoint is not here");
}

// What a checkpoint that is not in the repository is worth a run of.
static void add_few_cases(test_cases *cases, checkpoint *c) {
    add_case(cases, c, "on cpu", eval_on_cpu);
    add_case(cases, c, "on cpu in pieces", eval_in_pieces);
    add_case(cases, c, "on dummy", eval_on_dummy);
    add_case(cases, c, "on cpu in bf16", eval_on_cpu_in_bf16);
    add_case(cases, c, "on dummy in bf16", eval_on_dummy_in_bf16);
    add_case(cases, c, "bounces on dummy what is listed", bounced_on_dummy);
}

static void add_cases(test_cases *cases, checkpoint *c) {
    if (!berth_path_is_dir(c->dir)) {
        add_case(cases, c, "is there", skip_absent);
        return;
    }
    if (strncmp(c->dir, SHARED, strlen(SHARED)) == 0) {
        add_few_cases(cases, c);
        return;
    }
    add_case(cases, c, "natively", eval_natively);
    add_case(cases, c, "on cpu", eval_on_cpu);
    add_case(cases, c, "on cpu with avx512", eval_with_avx512);
    add_case(cases, c, "on cpu with avx2", eval_with_avx2);
    add_case(cases, c, "on cpu in portable C", eval_with_portable);
    add_case(cases, c, "on cpu in pieces", eval_in_pieces);
    add_case(cases, c, "on dummy", eval_on_dummy);
    add_case(cases, c, "natively in bf16", eval_natively_in_bf16);
    add_case(cases, c, "on cpu in bf16", eval_on_cpu_in_bf16);
    add_case(cases, c, "on cpu in f16", eval_on_cpu_in_f16);
    add_case(cases, c, "on dummy in bf16", eval_on_dummy_in_bf16);
    add_case(cases, c, "bounces on dummy what is listed", bounced_on_dummy);
    add_case(cases, c, "is refused on dummy without the flag", refused_on_dummy);
    add_case(cases, c, "runs on dummy when its ops are named", allowed_on_dummy);
}

static bool starts(const char *line, const char *word, const char **out_rest) {
    const size_t size = strlen(word);
    *out_rest = line + size;
    return strncmp(line, word, size) == 0;
}

// "bounced dummy embedding linear"
static void read_bounced(checkpoint *c, const char *words) {
    berth_str rest = berth_str_from(words);
    for (berth_str word; berth_str_split_first(&rest, ' ', &word);) {
        CHECK(c->bounced_count < MAX_OPS && word.size < sizeof c->bounced[0]);
        memcpy(c->bounced[c->bounced_count++], word.data, word.size);
    }
}

// The lines of one file; `checkpoint` lines open entries, a `bounced dummy` line is for those above
// it that have none yet.
static size_t read_file(const char *path, checkpoint *list, size_t room) {
    char line[512];
    const char *rest = NULL;
    size_t count = 0;
    size_t done = 0; // entries that have their line
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (starts(line, "checkpoint ", &rest)) {
            CHECK(count < room);
            checkpoint *c = &list[count++];
            (void)snprintf(c->name, sizeof c->name, "%s", rest);
            (void)snprintf(c->dir, sizeof c->dir, MODELS "/%.63s", c->name);
            if (!berth_path_is_dir(c->dir)) {
                (void)snprintf(c->dir, sizeof c->dir, SHARED "/%.63s", c->name);
            }
            (void)snprintf(c->golden, sizeof c->golden, "%.127s/golden.json", c->dir);
        } else if (starts(line, "bounced dummy ", &rest)) {
            for (; done < count; ++done) {
                read_bounced(&list[done], rest);
            }
        } else {
            CHECK(line[0] == '#' || line[0] == '\0');
        }
    }
    CHECK_INT(fclose(file), 0);
    return count;
}

TEST_CASES(golden) {
    static checkpoint all[64];
    size_t count = 0;
    berth_arena *arena = NULL;
    berth_dir_listing listing;
    CHECK_OK(berth_arena_create(1 << 12, 1 << 20, &arena));
    CHECK_OK(berth_dir_list(FOLDER, arena, &listing));
    for (size_t i = 0; i < listing.count; ++i) {
        if (berth_str_ends_with(berth_str_from(listing.names[i]), BERTH_STR(".txt"))) {
            const char *path = berth_path_join(arena, FOLDER, listing.names[i]);
            count += read_file(path, all + count, BERTH_COUNT(all) - count);
        }
    }
    for (size_t i = 0; i < count; ++i) {
        add_cases(cases, &all[i]);
    }
    berth_arena_destroy(arena);
}
