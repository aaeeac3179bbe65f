// SPDX-License-Identifier: Apache-2.0
// Attributes by a path, as filters of lists take them: "details.priority", "0.name", or an index.
#ifndef BERTH_CHAT_PICK_H
#define BERTH_CHAT_PICK_H

#include "chat/value.h"

typedef struct berth_jinja_path {
    const berth_jinja_value *path;     // a str, an int, or ABSENT or NONE: the item itself
    const berth_jinja_value *fallback; // NULL: what is missing is UNDEFINED
    bool ignores_case;                 // strings become small letters
} berth_jinja_path;

BERTH_MUST_CHECK berth_status berth_jinja_pick(berth_jinja *j, const berth_jinja_path *path,
                                               const berth_jinja_value *item,
                                               berth_jinja_value *out);

#endif
