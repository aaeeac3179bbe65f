// SPDX-License-Identifier: Apache-2.0
// `berth ops check` on the golden vectors of tests/data/golden/ops, as operators run it; and what
// it says about vectors that do not fit.
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "support/program.h"
#include "support/sandbox.h"

#define GOLDEN "tests/data/golden/ops"
#define OWN    "tests/data/golden/own" // what those do not have
#define CHECK_IN(p, directory, ...)                                                                \
    PROGRAM_RUN((p), PROGRAM_ENV(NULL), BERTH, "ops", "check", __VA_ARGS__, "--golden", (directory))
#define CHECK_OPS(p, ...) CHECK_IN((p), GOLDEN, __VA_ARGS__)

static void must_pass(const program *p) {
    if (p->status != 0) {
        print_error("%s%s", p->out, p->err);
    }
    CHECK_INT(p->status, 0);
    CHECK(strstr(p->out, "DIFFERS") == NULL && strstr(p->out, "absent") == NULL);
}

TEST(golden_vectors_of_ops_natively) {
    program p;
    CHECK_OPS(&p, "--custom-ops", "none");
    must_pass(&p);
    CHECK(strstr(p.out, "cpu.") == NULL);
}

TEST(golden_vectors_of_ops_on_the_cpu) {
    program p;
    CHECK_OPS(&p, "--platform", "cpu");
    must_pass(&p);
    CHECK_CONTAINS(p.out, "cpu.rms_norm");
}

TEST(golden_vectors_of_ops_on_a_device_with_handles) {
    program p;
    CHECK_OPS(&p, "--platform", "dummy", "--allow-fallback");
    must_pass(&p);
    CHECK_CONTAINS(p.out, "dummy_rms_norm");
    CHECK_CONTAINS(p.out, "(bounced)");
}

TEST(own_vectors_on_every_platform) {
    program p;
    CHECK_IN(&p, OWN, "--custom-ops", "none");
    must_pass(&p);
    CHECK_IN(&p, OWN, "--platform", "cpu");
    must_pass(&p);
    CHECK_IN(&p, OWN, "--platform", "dummy", "--allow-fallback");
    must_pass(&p);
}

TEST(ops_check_takes_an_id_a_class_or_a_file) {
    static const char *const names[] = {"rms_norm", "RMSNorm"};
    program p;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        CHECK_OPS(&p, names[i]);
        must_pass(&p);
        CHECK_CONTAINS(p.out, "rms_norm  ok");
        CHECK(strstr(p.out, "gemma") == NULL);
    }
    CHECK_OPS(&p, "paged_attention");
    must_pass(&p);
    CHECK_CONTAINS(p.out, "varlen_attention"); // another file of that op
    CHECK_OPS(&p, "varlen_attention");
    must_pass(&p);
    CHECK_OPS(&p, "rms_norms");
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "did you mean 'rms_norm'");
}

TEST(ops_check_needs_a_directory) {
    program p;
    PROGRAM_RUN(&p, PROGRAM_ENV(NULL), BERTH, "ops", "check");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "use --golden DIR");
    PROGRAM_RUN(&p, PROGRAM_ENV(NULL), BERTH, "ops", "check", "--golden", "/nonexistent");
    CHECK_INT(p.status, 3);
}

TEST(ops_check_reports_json) {
    program p;
    CHECK_OPS(&p, "silu_and_mul", "--json");
    berth_json *root = program_json(&p);
    int64_t failed = -1;
    CHECK_UINT(berth_json_size(root), 1);
    CHECK_OK(berth_json_get_i64(root, "0.failed", &failed));
    CHECK_INT(failed, 0);
    berth_json_destroy(root);
}

// ---- vectors that do not fit --------------------------------------------------------------------

// x, y f32[2] = {1, 4} each; what relu2 gives of x is {1, 16}.
static void write_golden(const sandbox *box, const char *name, const char *attributes,
                         const char *output) {
    static const float numbers[] = {1, 4};
    char text[1024];
    char header[512];
    (void)snprintf(text, sizeof text,
                   "{\"op\": \"relu2\", \"class\": \"C\", \"cases\": [{\"name\": \"it\", "
                   "\"attributes\": {%s}, \"inputs\": {\"x\": \"t\"}, \"outputs\": {\"%s\": "
                   "\"t\"}, \"compare\": {\"mode\": \"exact\"}}]}",
                   attributes, output);
    (void)snprintf(header, sizeof header,
                   "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ");
    const uint64_t bytes = strlen(header) / 8 * 8;
    char file[600];
    memcpy(file, &bytes, sizeof bytes);
    memcpy(file + sizeof bytes, header, bytes);
    memcpy(file + sizeof bytes + bytes, numbers, sizeof numbers);
    char path[128];
    (void)snprintf(path, sizeof path, "%s.json", name);
    sandbox_write(box, path, text);
    (void)snprintf(path, sizeof path, "%s.safetensors", name);
    FILE *stream = fopen(sandbox_path(box, path), "wb");
    CHECK(stream != NULL);
    CHECK_UINT(fwrite(file, 1, sizeof bytes + bytes + sizeof numbers, stream),
               sizeof bytes + bytes + sizeof numbers);
    (void)fclose(stream);
}

static void check_says(const char *name, const char *attributes, const char *output,
                       const char *text) {
    program p;
    sandbox box;
    sandbox_make(&box);
    write_golden(&box, name, attributes, output);
    PROGRAM_RUN(&p, PROGRAM_ENV(NULL), BERTH, "ops", "check", "--golden", box.dir);
    CHECK_INT(p.status, 1);
    CHECK_CONTAINS(p.out, text);
    sandbox_remove(&box);
}

TEST(ops_check_names_case_output_index_got_and_want) {
    check_says("relu2", "", "y", "relu2: it: y[1] is 16, must be 4");
}

TEST(ops_check_refuses_an_attribute_that_nobody_knows) {
    check_says("relu2", "\"slope\": 1", "y", "op 'relu2' has no attribute 'slope'");
}

TEST(ops_check_counts_an_absent_op_as_a_failure) {
    check_says("relu3", "", "y", "no plugin has the op");
}
