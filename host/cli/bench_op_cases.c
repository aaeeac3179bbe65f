// SPDX-License-Identifier: Apache-2.0
// The list of the tables of cases, one a kind of op.
#include "base/array.h"
#include "cli/bench_op.h"

static const berth_op_table *const tables[] = {
    &berth_op_rows,
    &berth_op_products,
    &berth_op_mixers,
    &berth_op_elements,
};

size_t berth_op_case_count(void) {
    size_t count = 0;
    for (size_t i = 0; i < BERTH_COUNT(tables); ++i) {
        count += tables[i]->count;
    }
    return count;
}

const berth_op_case *berth_op_case_at(size_t index) {
    size_t table = 0;
    while (index >= tables[table]->count) {
        index -= tables[table]->count;
        ++table;
    }
    return &tables[table]->cases[index];
}
