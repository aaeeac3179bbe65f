// SPDX-License-Identifier: Apache-2.0
// A merge sort from small runs to large ones.
#include "chat/sort.h"

#include <string.h>

static bool is_undefined(const berth_jinja_value *value) {
    return value->kind == BERTH_JINJA_UNDEFINED;
}

// What is missing has no order among others either: Python refuses it, whatever stands beside it.
static berth_status compare(const berth_jinja_sorter *s, const berth_jinja_value *a,
                            const berth_jinja_value *b, int *out) {
    const bool is_alike = a->kind == b->kind ||
                          (berth_jinja_is_number(a) && berth_jinja_is_number(b)) ||
                          is_undefined(a) || is_undefined(b);
    if (s->takes_any && !is_alike) {
        *out = strcmp(berth_jinja_type(a), berth_jinja_type(b));
        return berth_jinja_spend(s->j, 1);
    }
    return berth_jinja_compare(s->j, a, b, out);
}

static berth_status merge(berth_jinja_sorter *s, size_t from, size_t middle, size_t end) {
    size_t left = from;
    size_t right = middle;
    for (size_t at = from; at < end; ++at) {
        int sign = -1;
        if (left < middle && right < end) {
            BERTH_TRY(compare(s, &s->items[right].key, &s->items[left].key, &sign));
            sign = s->is_reversed ? -sign : sign;
        }
        const bool takes_right = left == middle || (right < end && sign < 0);
        s->spare[at] = takes_right ? s->items[right++] : s->items[left++];
    }
    return BERTH_OK;
}

berth_status berth_jinja_sort(berth_jinja_sorter *s) {
    for (size_t width = 1; width < s->count; width *= 2) {
        for (size_t from = 0; from < s->count; from += 2 * width) {
            const size_t middle = from + width < s->count ? from + width : s->count;
            const size_t end = from + 2 * width < s->count ? from + 2 * width : s->count;
            BERTH_TRY(merge(s, from, middle, end));
        }
        berth_jinja_sortable *const done = s->spare;
        s->spare = s->items;
        s->items = done;
    }
    return BERTH_OK;
}

berth_status berth_jinja_sorter_init(berth_jinja *j, size_t count, berth_jinja_sorter *out) {
    void *items, *spare;
    BERTH_TRY(berth_jinja_alloc(j, count, sizeof(berth_jinja_sortable), &items));
    BERTH_TRY(berth_jinja_alloc(j, count, sizeof(berth_jinja_sortable), &spare));
    *out = (berth_jinja_sorter){.j = j, .items = items, .spare = spare, .count = count};
    return BERTH_OK;
}
