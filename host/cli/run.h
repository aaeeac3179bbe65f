// SPDX-License-Identifier: Apache-2.0
// Private to `berth run`: prompts on their way, and how they are printed.
#ifndef BERTH_CLI_RUN_H
#define BERTH_CLI_RUN_H

#include "base/array.h"
#include "cli/cli.h"
#include "engine/engine.h"
#include "model/model.h"

// One prompt on its way.
typedef struct berth_passage {
    berth_str prompt; // borrowed from the command line or the file
    uint64_t request;
    berth_token_ids ids; // of the output
    berth_text text;     // of the output
    const char *stop;    // the --stop that ended it, or NULL
    // With --logprobs: [ids, entries], ranks [ids].
    berth_array(int32_t) logprob_ids;
    berth_array(float) logprobs;
    berth_array(int32_t) ranks;
    size_t entries;
    berth_finish finish;
} berth_passage;

typedef struct berth_run {
    berth_session *session;
    char *file; // the content of --prompts
    berth_array(berth_passage) passages;
    berth_generation generation;
    berth_str *stop_strings; // of --stop
    size_t printed;          // passages that are out
    size_t streamed;         // bytes of the next one that are out
    bool has_heading;        // the next one's heading is out
    size_t ended;            // passages
    size_t tokens;           // of all outputs
    uint64_t shown_ns;       // when progress was last shown
    bool shows_progress;
} berth_run;

// The text that the chat template makes of a conversation with this prompt.
BERTH_MUST_CHECK berth_status berth_run_render(const berth_session *session, berth_str prompt,
                                               berth_text *text);
// What became known of the texts since the last call, in the order of the prompts.
BERTH_MUST_CHECK berth_status berth_run_print_texts(berth_run *run);
// All of them, for programs.
void berth_run_print_json(berth_run *run);
// A line on the terminal while texts do not come out there themselves.
void berth_run_show_progress(berth_run *run);

#endif
