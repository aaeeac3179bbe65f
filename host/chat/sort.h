// SPDX-License-Identifier: Apache-2.0
// Sorting values by keys, as Python sorts: equal ones stay in their order.
#ifndef BERTH_CHAT_SORT_H
#define BERTH_CHAT_SORT_H

#include "chat/value.h"

typedef struct berth_jinja_sortable {
    berth_jinja_value key, item;
} berth_jinja_sortable;

typedef struct berth_jinja_sorter {
    berth_jinja *j;
    berth_jinja_sortable *items; // filled by the caller, then sorted
    berth_jinja_sortable *spare;
    size_t count;
    bool is_reversed; // equal ones stay in their order all the same
    bool takes_any;   // keys of types that have no order go by the names of their types
} berth_jinja_sorter;

// Of `count` items of the arena, all zero.
BERTH_MUST_CHECK berth_status berth_jinja_sorter_init(berth_jinja *j, size_t count,
                                                      berth_jinja_sorter *out);
// Refuses keys that Python cannot order.
BERTH_MUST_CHECK berth_status berth_jinja_sort(berth_jinja_sorter *s);

#endif
