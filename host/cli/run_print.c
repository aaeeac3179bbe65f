// SPDX-License-Identifier: Apache-2.0
// Input: prompts on their way. Output: their texts, in order, or one JSON array, or how far they
// are.
#include "cli/run.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli_private.h"

#define PROGRESS_NS UINT64_C(100000000) // between two lines of progress

// ---- texts --------------------------------------------------------------------------------------

// Which of several prompts this text continues.
static void add_heading(berth_run *run, const berth_passage *next) {
    berth_text *out = &run->session->out;
    if (run->passages.count > 1 && !run->has_heading) {
        berth_text_add_format(out, "%s--- %zu: ", run->printed > 0 ? "\n" : "", run->printed + 1);
        berth_text_add(out, next->prompt); // no format: it may hold NUL bytes
        berth_text_add_char(out, '\n');
    }
    run->has_heading = true;
}

berth_status berth_run_print_texts(berth_run *run) {
    berth_text *out = &run->session->out;
    for (; run->printed < run->passages.count; ++run->printed) {
        const berth_passage *next = &run->passages.data[run->printed];
        if (next->ids.count == 0) {
            if (next->finish == BERTH_FINISH_ABORTED) {
                continue; // nothing of it came
            }
            break;
        }
        add_heading(run, next);
        berth_text_add(out, berth_str_slice(berth_text_str(&next->text), run->streamed, SIZE_MAX));
        run->streamed = next->text.size;
        if (next->finish == BERTH_FINISH_NOT_YET) {
            break;
        }
        berth_text_add_char(out, '\n');
        run->streamed = 0;
        run->has_heading = false;
    }
    return out->size > 0 ? berth_session_print(run->session) : BERTH_OK;
}

// ---- JSON ---------------------------------------------------------------------------------------

static const char *const finishes[] = {
    [BERTH_FINISH_LENGTH] = "length",
    [BERTH_FINISH_STOP] = "stop",
    [BERTH_FINISH_ABORTED] = "aborted",
};

static void put_logprob(berth_json_writer *json, const berth_passage *done, size_t at) {
    berth_json_put_key(json, "id");
    berth_json_put_i64(json, done->logprob_ids.data[at]);
    berth_cli_put_f64(json, "logprob", done->logprobs.data[at]);
}

// For every token its own log probability, its rank, and those of the likeliest.
static void put_logprobs(berth_json_writer *json, const berth_passage *done) {
    berth_json_put_key(json, "logprobs");
    berth_json_begin_array(json);
    for (size_t i = 0; i < done->ranks.count; ++i) {
        const size_t first = i * done->entries;
        berth_json_begin_object(json);
        put_logprob(json, done, first);
        berth_json_put_key(json, "rank");
        berth_json_put_i64(json, done->ranks.data[i]);
        berth_json_put_key(json, "top");
        berth_json_begin_array(json);
        for (size_t k = 1; k < done->entries; ++k) {
            berth_json_begin_object(json);
            put_logprob(json, done, first + k);
            berth_json_end_object(json);
        }
        berth_json_end_array(json);
        berth_json_end_object(json);
    }
    berth_json_end_array(json);
}

static void put_passage(berth_json_writer *json, const berth_passage *done) {
    berth_json_begin_object(json);
    berth_json_put_key(json, "prompt");
    berth_json_put_str(json, done->prompt);
    berth_json_put_key(json, "text");
    berth_json_put_str(json, berth_text_str(&done->text));
    berth_json_put_key(json, "ids");
    berth_json_begin_array(json);
    for (size_t k = 0; k < done->ids.count; ++k) {
        berth_json_put_i64(json, done->ids.data[k]);
    }
    berth_json_end_array(json);
    berth_cli_put(json, "finish", finishes[done->finish]);
    berth_cli_put(json, "stop", done->stop);
    if (done->entries > 0) {
        put_logprobs(json, done);
    }
    berth_json_end_object(json);
}

void berth_run_print_json(berth_run *run) {
    berth_json_writer json;
    berth_session_json(run->session, &json);
    berth_json_begin_array(&json);
    for (size_t i = 0; i < run->passages.count; ++i) {
        put_passage(&json, &run->passages.data[i]);
    }
    berth_json_end_array(&json);
    berth_session_json_end(run->session);
}

// ---- progress -----------------------------------------------------------------------------------

// Why not where texts come out on a terminal: they are the progress, and the line would stand in
// the middle of them.
void berth_run_show_progress(berth_run *run) {
    const uint64_t now = berth_clock_ns();
    const bool is_wanted = run->session->config.is_json || !isatty(STDOUT_FILENO);
    if (run->passages.count < 2 || !is_wanted || now - run->shown_ns < PROGRESS_NS) {
        return;
    }
    run->shown_ns = now;
    berth_progress_show(run->session, "%zu of %zu prompts done, %zu tokens …", run->ended,
                        run->passages.count, run->tokens);
}
