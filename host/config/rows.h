// SPDX-License-Identifier: Apache-2.0
// The table of every option, shared by the files of this module.
#ifndef BERTH_CONFIG_ROWS_H
#define BERTH_CONFIG_ROWS_H

#include <stddef.h>

#include "base/option.h"
#include "base/status.h"

#define BERTH_CONFIG_MAX_ROWS 64

extern const berth_option berth_config_rows[];
extern const size_t berth_config_row_count; // at most BERTH_CONFIG_MAX_ROWS

// Why no list of choices in the row: later a platform can bring a backend of its own.
BERTH_MUST_CHECK berth_status berth_config_check_backend(const char *name);

#endif
