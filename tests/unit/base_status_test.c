// SPDX-License-Identifier: Apache-2.0
// base/status: what a user reads of a failure, what a developer reads, and that it never overflows.
#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "support/test.h"

static berth_status bind_op(const char *op) {
    return BERTH_FAIL(NOT_FOUND, "no kernel for op '%s' on cuda", op);
}

static berth_status build(const char *op) {
    BERTH_TRY_NOTE(bind_op(op), "building %s", "qwen3");
    return BERTH_OK;
}

static berth_status load(const char *op) {
    BERTH_TRY(build(op));
    return BERTH_OK;
}

static berth_status start(const char *op) {
    BERTH_TRY_NOTE(load(op), "loading /models/q");
    return BERTH_OK;
}

TEST(status_text_is_the_failure_and_then_its_context) {
    CHECK_STATUS(start("rope"), BERTH_NOT_FOUND);
    CHECK_STATUS(berth_status_code(), BERTH_NOT_FOUND);
    CHECK_STR(berth_status_message(),
              "no kernel for op 'rope' on cuda (while building qwen3; while loading /models/q)");
}

TEST(status_trace_has_a_source_position_per_frame) {
    CHECK_STATUS(start("rope"), BERTH_NOT_FOUND);
    char trace[512];
    const size_t size = berth_status_trace(trace, sizeof(trace));
    CHECK_UINT(size, strlen(trace));
    CHECK_CONTAINS(trace, "base_status_test.c:");
    CHECK_CONTAINS(trace, ": no kernel for op 'rope' on cuda\nwhile ");
    CHECK_CONTAINS(trace, ": building qwen3\nwhile ");
}

TEST(status_fail_starts_a_new_report) {
    CHECK_STATUS(start("rope"), BERTH_NOT_FOUND);
    CHECK_STATUS(BERTH_FAIL(IO, "disk"), BERTH_IO);
    CHECK_STR(berth_status_message(), "disk");
}

TEST(status_fail_may_quote_the_report_it_replaces) {
    CHECK_STATUS(BERTH_FAIL(IO, "disk"), BERTH_IO);
    berth_status_report report;
    berth_status_take(&report);
    CHECK_STATUS(berth_status_restore(&report), BERTH_IO);
    CHECK_STATUS(BERTH_FAIL(CORRUPT, "bad: %s", berth_status_message()), BERTH_CORRUPT);
    CHECK_STR(berth_status_message(), "bad: disk");
}

TEST(status_without_a_report_is_empty) {
    berth_status_clear();
    berth_status_note("file", 1, "a note to nothing");
    CHECK_STATUS(berth_status_code(), BERTH_OK);
    CHECK_STR(berth_status_message(), "");
    char buffer[8] = "x";
    CHECK_UINT(berth_status_text(buffer, 0), 0);
    CHECK_STR(buffer, "x");
}

TEST(status_report_is_taken_and_restored) {
    CHECK_STATUS(start("rope"), BERTH_NOT_FOUND);
    berth_status_report report;
    berth_status_take(&report);
    CHECK_STR(berth_status_message(), "");
    char text[64];
    berth_status_report_text(&report, text, sizeof(text));
    CHECK_CONTAINS(text, "no kernel for op 'rope' on cuda (while building");
    CHECK_STATUS(berth_status_restore(&report), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "loading /models/q)");
}

TEST(status_text_that_is_too_long_is_cut_between_characters) {
    char buffer[12];
    CHECK_STATUS(BERTH_FAIL(IO, "1234567\xc3\xa4 and more"), BERTH_IO);
    CHECK_UINT(berth_status_text(buffer, sizeof(buffer)), 10);
    CHECK_STR(buffer, "1234567\xe2\x80\xa6");
    CHECK_UINT(berth_status_text(buffer, 3), 0);
    CHECK_STR(buffer, "");
}

TEST(status_report_never_overflows) {
    char text[3 * BERTH_STATUS_TEXT_BYTES];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    CHECK_STATUS(BERTH_FAIL(IO, "%s", text), BERTH_IO);
    berth_status_note("file", 1, "%s", text);
    CHECK_UINT(strlen(berth_status_message()), BERTH_STATUS_TEXT_BYTES - 1);
    CHECK_CONTAINS(berth_status_message(), "xx\xe2\x80\xa6");
    CHECK_STATUS(BERTH_FAIL(IO, "first"), BERTH_IO);
    for (int i = 0; i < 3 * BERTH_STATUS_FRAMES; ++i) {
        berth_status_note("file", i, "note %d", i);
    }
    CHECK_CONTAINS(berth_status_message(), "first (while note 0;");
    CHECK_CONTAINS(berth_status_message(), "note 14)");
}

TEST(status_text_has_no_control_characters) {
    CHECK_STATUS(BERTH_FAIL(IO, "a\nb\x1b[31m\x7f"), BERTH_IO);
    CHECK_STR(berth_status_message(), "a b [31m ");
}

TEST(status_names_are_those_of_the_codes) {
    CHECK_STR(berth_status_name(BERTH_OK), "OK");
    CHECK_STR(berth_status_name(BERTH_NOT_FOUND), "NOT_FOUND");
    CHECK_STR(berth_status_name(BERTH_SEALED), "SEALED");
    CHECK_STR(berth_status_name(99), "INTERNAL");
    CHECK_STR(berth_status_name(-1), "INTERNAL");
}

TEST(status_allocates_nothing) {
    const uint64_t before = berth_memory_allocations();
    CHECK_STATUS(start("rope"), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "rope");
    CHECK_UINT(berth_memory_allocations(), before);
}

static void *fail_elsewhere(void *context) {
    *(berth_status *)context = BERTH_FAIL(CORRUPT, "another thread's");
    return NULL;
}

TEST(status_report_belongs_to_its_thread) {
    CHECK_STATUS(BERTH_FAIL(IO, "mine"), BERTH_IO);
    pthread_t thread;
    berth_status status = BERTH_OK;
    CHECK_INT(pthread_create(&thread, NULL, fail_elsewhere, &status), 0);
    pthread_join(thread, NULL);
    CHECK_STATUS(status, BERTH_CORRUPT);
    CHECK_STR(berth_status_message(), "mine");
}
