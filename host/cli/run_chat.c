// SPDX-License-Identifier: Apache-2.0
// `berth run --chat`: a prompt as a user's message in the checkpoint's chat template.
#include <time.h>

#include "base/json_writer.h"
#include "cli/run.h"

#define CONVERSATION_BYTES ((size_t)128 << 20)

static void put_message(berth_json_writer *json, const char *role, berth_str content) {
    berth_json_begin_object(json);
    berth_json_put_key(json, "role");
    berth_json_put_cstr(json, role);
    berth_json_put_key(json, "content");
    berth_json_put_str(json, content);
    berth_json_end_object(json);
}

// Why tools and documents are null: transformers defines them always, and templates ask for them.
static void put_conversation(const char *system, berth_str prompt, berth_text *text) {
    berth_json_writer json;
    berth_json_writer_init(&json, text, 0);
    berth_json_begin_object(&json);
    berth_json_put_key(&json, "messages");
    berth_json_begin_array(&json);
    if (system) {
        put_message(&json, "system", berth_str_from(system));
    }
    put_message(&json, "user", prompt);
    berth_json_end_array(&json);
    berth_json_put_key(&json, "tools");
    berth_json_put_null(&json);
    berth_json_put_key(&json, "documents");
    berth_json_put_null(&json);
    berth_json_put_key(&json, "add_generation_prompt");
    berth_json_put_bool(&json, true);
    berth_json_end_object(&json);
}

static berth_status render(const berth_chat *chat, berth_str conversation, berth_text *text) {
    const berth_json_limits limits = {.bytes = CONVERSATION_BYTES};
    berth_json *variables = NULL;
    BERTH_TRY(berth_json_parse(conversation, "the conversation", &limits, &variables));
    berth_status status = berth_chat_render(chat, variables, (int64_t)time(NULL), text);
    if (status == BERTH_OK) {
        status = berth_text_finish(text, NULL);
    }
    berth_json_destroy(variables);
    return status;
}

berth_status berth_run_render(const berth_session *session, berth_str prompt, berth_text *text) {
    berth_text conversation;
    berth_text_init(&conversation, CONVERSATION_BYTES);
    put_conversation(session->config.system, prompt, &conversation);
    berth_status status = berth_text_finish(&conversation, NULL);
    if (status == BERTH_OK) {
        status = render(session->chat, berth_text_str(&conversation), text);
    }
    berth_text_deinit(&conversation);
    return status;
}
