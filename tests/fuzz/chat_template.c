// SPDX-License-Identifier: Apache-2.0
// Any bytes as a chat template: refused, or rendered to UTF-8 within its limits.
#include <stdlib.h>

#include "base/utf8.h"
#include "chat/chat.h"

#define TEXT_BYTES ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Every kind of value that a conversation has, and names short enough for a fuzzer to find.
static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be short.\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" h\\u00e9 \\n\\t\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
    "\"arguments\":{\"a\":1,\"b\":[2.5,true]}}}]}],\"tools\":[{\"name\":\"f\"}],"
    "\"add_generation_prompt\":true,\"a\":3,\"b\":-0.5,\"s\":\"a "
    "b\",\"l\":[3,1,2],\"d\":{\"k\":1}}";

static void render(const berth_chat *chat) {
    berth_json *variables;
    berth_text text;
    const berth_str json = {.data = conversation, .size = sizeof(conversation) - 1};
    if (berth_json_parse(json, "conversation", NULL, &variables) != BERTH_OK) {
        return;
    }
    berth_text_init(&text, TEXT_BYTES);
    if (berth_chat_render(chat, variables, 1752148800, &text) == BERTH_OK &&
        berth_utf8_valid_bytes(berth_text_str(&text)) < text.size) {
        abort();
    }
    berth_text_deinit(&text);
    berth_json_destroy(variables);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    berth_chat *chat;
    const berth_str source = {.data = (const char *)data, .size = size};
    if (berth_chat_parse(source, "template", &chat) == BERTH_OK) {
        render(chat);
        berth_chat_close(chat);
    }
    return 0;
}
