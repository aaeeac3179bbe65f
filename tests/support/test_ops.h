// SPDX-License-Identifier: Apache-2.0
// A plugin of small ops for the tests of graph and executor, registered like any other, and the
// registry that holds it. The ops compute something simple on f32 that depends on every operand:
//
//   add(a, b)                                    y[i] = a[i] + b[i]
//   scale(x) {factor, bias = 0.0}                y[i] = x[i] * factor + bias
//   linear(x, weight, bias?)                     y = x W^T + bias
//   norm(x, residual?, weight?) {eps}            y[, x + residual]
//   embedding(token_ids, weight)                 y[t] = weight[token_ids[t]]
//   accumulate(x; total)                         total += rows of x; y[t] = total after row t
//   select_rows(x, rows)                         y[r] = x[rows[r]]
//   pool(x)                                      y[ceil(s0/2)]: sums of pairs of rows
//   row_sum(x)                                   y[t, 1], accepts strided rows
//   column_sum(x)                                y[1, i], over all rows
//   contiguous(x)                                y = x, accepts any strides
//   describe(x) {count, ratio, flag, label, sizes, weights}   y = x, attributes of every kind
#ifndef TEST_OPS_H
#define TEST_OPS_H

#include <berth/plugin.h>

#include "registry/registry.h"

extern const berth_plugin test_ops_plugin;
extern const berth_op test_paged_attention; // of the plugin; test_attention.c

// A frozen registry with the plugin above and, when not NULL, one more. Fails the test otherwise.
berth_registry *test_ops_registry(const berth_plugin *also);

#endif
