// SPDX-License-Identifier: Apache-2.0
// Chat templates: what a checkpoint says of how a conversation becomes one text. They are programs
// in Jinja; this module runs the language as transformers sets it up (trim_blocks, lstrip_blocks,
// the immutable sandbox, loop controls, {% generation %}, tojson, raise_exception, strftime_now).
// The command line calls it; it knows neither tokens nor models.
//
// A template is a stranger's program: what it does not know is UNSUPPORTED and names itself, and
// steps, nesting, memory and output have limits. Every failure names the template and the line.
#ifndef BERTH_CHAT_H
#define BERTH_CHAT_H

#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "base/str.h"
#include "base/text.h"

#define BERTH_CHAT_TEMPLATE_BYTES ((size_t)4 << 20)  // the longest template
#define BERTH_CHAT_TEXT_BYTES     ((size_t)32 << 20) // the longest text that one prints

// Immutable: any number of threads may render with one.
typedef struct berth_chat berth_chat;

// Reads chat_template.jinja of a checkpoint directory, else the chat_template of its
// tokenizer_config.json: a string, or a list of named ones, of which "tool_use" counts where a
// rendering has tools and there is such a one, and "default" else. The special tokens that
// tokenizer_config.json names (bos_token, eos_token, …) are variables of every template. NOT_FOUND:
// the checkpoint has no template.
BERTH_MUST_CHECK berth_status berth_chat_open(const char *directory, berth_chat **out_chat);
// The same from memory; `name` stands for the file in errors. There are no special tokens then.
BERTH_MUST_CHECK berth_status berth_chat_parse(berth_str source, const char *name,
                                               berth_chat **out_chat);
// Appends the text that the template makes of `variables`, an object: messages, tools,
// add_generation_prompt and whatever else. They are stronger than special tokens. strftime_now
// sees `now`, seconds since 1970. INVALID_ARGUMENT: the template refuses the conversation, or a
// value is not what the template takes it for.
BERTH_MUST_CHECK berth_status berth_chat_render(const berth_chat *chat, const berth_json *variables,
                                                int64_t now, berth_text *text);
void berth_chat_close(berth_chat *chat);

#endif
