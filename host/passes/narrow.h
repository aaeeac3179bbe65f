// SPDX-License-Identifier: Apache-2.0
// The host's own pass, private to passes: it needs no platform, only what ops say of themselves.
#ifndef BERTH_PASSES_NARROW_H
#define BERTH_PASSES_NARROW_H

#include "graph/graph.h"

#define BERTH_NARROW_ROWS "narrow_rows" // its name, as those of registered passes

// The graph with rows selected as early as possible, a new one; NULL where nothing is gained.
BERTH_MUST_CHECK berth_status berth_narrow_rows(const berth_registry *registry,
                                                const berth_graph *graph, berth_graph **out_graph);

#endif
